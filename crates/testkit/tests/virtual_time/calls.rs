//! What calls and the rarer parts take, by formula. Each row changes one parameter and says by how
//! much one measurement gets longer. A row with 0 says where the part is not passed, or that it has
//! no effect while the component to which it belongs is switched off.

use rdmalab_experiments::Experiment;
use rdmalab_measure::Quantity;
use rdmalab_rank::Rank;
use rdmalab_sim::{Profile, SimRank};
use rdmalab_verbs::{
    Access, Buffer, Context, Qp, QpType, ReadyToReceive, ReadyToSend, RecvRequest, SendRequest, Wc,
};

use crate::lab::{Endpoint, Shape, connect, lab, model, outcome, wait};

/// A parameter and its value, the other parameters, what is measured, and how much longer that
/// takes with the parameter than with its least value, ns.
type Row<'a> = (&'a str, f64, &'a [(&'a str, f64)], fn(&Profile) -> f64, f64);

/// Measurements end with some looks, of a nanosecond each: one for each message, and one more.
const LOOKS_NS: f64 = 5.0;

fn assert_rows(rows: &[Row]) {
    for (name, value, with, measure, longer_ns) in rows {
        let without = measure(&model(with));
        let changes: Vec<_> = with.iter().copied().chain([(*name, *value)]).collect();
        let found = measure(&model(&changes)) - without;
        assert!(
            (found - longer_ns).abs() <= LOOKS_NS + 1e-6,
            "{name} = {value} with {with:?}: {found} ns longer, not {longer_ns} ns"
        );
    }
}

/// What a call gives, and how long it takes, with one time stamp, ns.
fn timed<T>(rank: &SimRank, call: impl FnOnce() -> T) -> (T, f64) {
    let begin = rank.now().0;
    let result = call();
    (result, (rank.now().0 - begin) as f64 / 1e3)
}

fn took_ns<T>(rank: &SimRank, call: impl FnOnce() -> T) -> f64 {
    timed(rank, call).1
}

/// What rank 0 measures, whose only queue pair is connected to one with receives.
fn of_ends(profile: &Profile, measure: impl Fn(&SimRank, &Endpoint) -> f64) -> f64 {
    let (simulation, device) = lab(profile, 2);
    let (results, _) = simulation.run(|rank| {
        let end = connect(rank, &device, Shape::default());
        let sges = [end.mr.sge(0, 64)];
        end.qp.post_recv(&[RecvRequest::new(&sges); 8]).unwrap();
        rank.barrier()?;
        let found = if rank.index() == 0 { measure(rank, &end) } else { 0.0 };
        rank.barrier()?;
        Ok(found)
    });
    *results[0].as_ref().unwrap()
}

/// What a rank without peers measures.
fn of_context(profile: &Profile, measure: impl Fn(&SimRank, &Context) -> f64) -> f64 {
    let (simulation, device) = lab(profile, 1);
    let (results, _) = simulation.run(|rank| Ok(measure(rank, &device.open().unwrap())));
    *results[0].as_ref().unwrap()
}

/// How the requests of a list carry their 8 bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Op {
    Send,
    Inline,
    Read,
}

/// Posts a list of requests, all of which complete.
fn post_list(end: &Endpoint, count: usize, op: Op) {
    let sges = [end.mr.sge(0, 8)];
    let request = match op {
        Op::Send => SendRequest::send(&sges),
        Op::Inline => SendRequest::send(&sges).inline_data(),
        Op::Read => SendRequest::read(&sges, &end.peer, 0),
    };
    end.qp.post_send(&vec![request.signaled(); count]).unwrap();
}

fn post_ns<const COUNT: usize>(profile: &Profile) -> f64 {
    of_ends(profile, |rank, end| took_ns(rank, || post_list(end, COUNT, Op::Send)))
}

/// A poll for one of four completions, or for all of them.
fn poll_ns<const MOST: usize>(profile: &Profile) -> f64 {
    of_ends(profile, |rank, end| {
        post_list(end, 4, Op::Send);
        rank.sleep(1_000_000).unwrap();
        let mut wcs = [Wc::default(); MOST];
        let (found, took) = timed(rank, || end.send_cq.poll(&mut wcs).unwrap());
        assert_eq!(found, MOST);
        took
    })
}

fn poll_in_vain_ns(profile: &Profile) -> f64 {
    of_ends(profile, |rank, end| {
        took_ns(rank, || assert!(end.send_cq.poll_one().unwrap().is_none()))
    })
}

fn recv_post_ns<const COUNT: usize>(profile: &Profile) -> f64 {
    of_ends(profile, |rank, end| {
        let sges = [end.mr.sge(0, 64)];
        took_ns(rank, || end.qp.post_recv(&[RecvRequest::new(&sges); COUNT]).unwrap())
    })
}

fn arm_ns(profile: &Profile) -> f64 {
    of_ends(profile, |rank, end| took_ns(rank, || end.send_cq.request_notify(false).unwrap()))
}

fn look_for_event_ns(profile: &Profile) -> f64 {
    of_context(profile, |rank, context| {
        let channel = context.create_channel().unwrap();
        took_ns(rank, || assert!(channel.wait_ns(0).unwrap().is_none()))
    })
}

fn stamp_ns(profile: &Profile) -> f64 {
    of_context(profile, |rank, _| took_ns(rank, || ()))
}

fn copy_ns(profile: &Profile) -> f64 {
    of_context(profile, |rank, _| took_ns(rank, || rank.copied(5000)))
}

/// A protection domain, a completion queue, and a queue pair, which changes its state three times
/// and is destroyed: seven calls.
fn seven_verbs_ns(profile: &Profile) -> f64 {
    of_context(profile, |rank, context| {
        took_ns(rank, || {
            let pd = context.alloc_pd().unwrap();
            let cq = context.create_cq(8, None).unwrap();
            let qp = Qp::builder(QpType::Rc, &cq, &cq).build(&pd).unwrap();
            let path = rdmalab_verbs::Path::by_lid(1);
            qp.to_init(1, Access::LOCAL_WRITE, 7).unwrap();
            let own = qp.endpoint(&path, 0).unwrap();
            let mtu = context.query_port(1).unwrap().active_mtu;
            qp.to_rtr(&ReadyToReceive::new(own, path, mtu)).unwrap();
            qp.to_rts(&ReadyToSend::new(0)).unwrap();
        })
    })
}

/// The registration of three pages, and the end of it.
fn registered_ns(profile: &Profile, more: Access) -> (f64, f64) {
    let registered = std::cell::Cell::new(0.0);
    let deregistered = of_context(profile, |rank, context| {
        let pd = context.alloc_pd().unwrap();
        let buffer = Buffer::private(3 * 4096).unwrap();
        let access = Access::LOCAL_WRITE | more;
        let (mr, took) = timed(rank, || pd.register(&buffer, access).unwrap());
        registered.set(took);
        took_ns(rank, || drop(mr))
    });
    (registered.get(), deregistered)
}

fn register_ns(profile: &Profile) -> f64 {
    registered_ns(profile, Access::LOCAL_WRITE).0
}

fn register_on_demand_ns(profile: &Profile) -> f64 {
    registered_ns(profile, Access::ON_DEMAND).0
}

fn deregister_ns(profile: &Profile) -> f64 {
    registered_ns(profile, Access::LOCAL_WRITE).1
}

/// From the begin of the post of a list to the completion of its last request.
fn list_ns(profile: &Profile, count: usize, op: Op) -> f64 {
    of_ends(profile, |rank, end| {
        took_ns(rank, || {
            post_list(end, count, op);
            for _ in 0..count {
                wait(rank, &end.send_cq);
            }
        })
    })
}

fn one_send_ns(profile: &Profile) -> f64 {
    list_ns(profile, 1, Op::Send)
}

fn four_sends_ns(profile: &Profile) -> f64 {
    list_ns(profile, 4, Op::Send)
}

fn four_inline_sends_ns(profile: &Profile) -> f64 {
    list_ns(profile, 4, Op::Inline)
}

fn one_read_ns(profile: &Profile) -> f64 {
    list_ns(profile, 1, Op::Read)
}

fn four_reads_ns(profile: &Profile) -> f64 {
    list_ns(profile, 4, Op::Read)
}

/// The median of a message from the begin of its post to the receiver that waits for it; messages
/// come 10 us after each other.
fn one_way_ns(profile: &Profile, poll: &str) -> f64 {
    let options = [("messages", "20"), ("runs", "1"), ("poll", poll), ("pause", "10us")];
    median(profile, 2, Experiment::ONEWAY, &options, Quantity::OneWay)
}

fn busy_one_way_ns(profile: &Profile) -> f64 {
    one_way_ns(profile, "busy")
}

fn event_one_way_ns(profile: &Profile) -> f64 {
    one_way_ns(profile, "event")
}

/// The time of a round trip to two ranks, which begins with a multicast.
fn multicast_ns(profile: &Profile) -> f64 {
    let options = [("messages", "20"), ("transport", "ud"), ("to", "group")];
    median(profile, 3, Experiment::FAN, &options, Quantity::RoundTrip)
}

/// The same with a message to each.
fn unicast_ns(profile: &Profile) -> f64 {
    let options = [("messages", "20"), ("transport", "ud"), ("to", "each")];
    median(profile, 3, Experiment::FAN, &options, Quantity::RoundTrip)
}

fn median(
    profile: &Profile,
    ranks: usize,
    experiment: Experiment,
    options: &[(&str, &str)],
    quantity: Quantity,
) -> f64 {
    let found = outcome(profile, ranks, experiment, options);
    let series = found.series.iter().find(|series| series.quantity == quantity).unwrap();
    let mut samples: Vec<f64> = series.counted().collect();
    samples.sort_by(f64::total_cmp);
    samples[samples.len() / 2]
}

#[test]
fn each_call_takes_its_time() {
    const PAGES: f64 = 3.0;
    assert_rows(&[
        ("stamp_ns", 101.0, &[], stamp_ns, 100.0),
        ("post_more_ns", 70.0, &[], post_ns::<1>, 0.0),
        ("post_more_ns", 70.0, &[], post_ns::<4>, 3.0 * 70.0),
        ("poll_more_ns", 60.0, &[], poll_ns::<1>, 0.0),
        ("poll_more_ns", 60.0, &[], poll_ns::<4>, 3.0 * 60.0),
        ("poll_hit_ns", 101.0, &[], poll_ns::<4>, 100.0),
        ("poll_empty_ns", 101.0, &[], poll_in_vain_ns, 100.0),
        ("recv_post_ns", 80.0, &[], recv_post_ns::<1>, 80.0),
        ("recv_post_ns", 80.0, &[], recv_post_ns::<3>, 3.0 * 80.0),
        ("arm_ns", 90.0, &[], arm_ns, 90.0),
        ("memory_look_ns", 101.0, &[], look_for_event_ns, 100.0),
        ("verb_ns", 1000.0, &[], seven_verbs_ns, 7.0 * 1000.0),
        ("register_ns", 500.0, &[], register_ns, 500.0),
        ("register_ns", 500.0, &[], deregister_ns, 0.0),
        ("register_ns_per_page", 70.0, &[], register_ns, PAGES * 70.0),
        // A region that is paged on demand begins without pages.
        ("register_ns_per_page", 70.0, &[("odp_resolve_ns", 1.0)], register_on_demand_ns, 0.0),
        ("deregister_ns", 300.0, &[], deregister_ns, 300.0),
        ("deregister_ns", 300.0, &[], register_ns, 0.0),
        // 5000 bytes at a nanosecond each. Without a rate a copy takes no time.
        ("copy_mb_per_s", 1000.0, &[], copy_ns, 5000.0),
    ]);
}

#[test]
fn what_follows_a_message_waits_for_its_gap() {
    assert_rows(&[
        ("send_gap_ns", 500.0, &[], one_send_ns, 0.0),
        ("send_gap_ns", 500.0, &[], four_sends_ns, 3.0 * 500.0),
        ("receive_gap_ns", 500.0, &[], one_send_ns, 0.0),
        ("receive_gap_ns", 500.0, &[], four_sends_ns, 3.0 * 500.0),
        // Requests and responses take their turns at the receive engines of both ends.
        ("read_answer_gap_ns", 500.0, &[], one_read_ns, 0.0),
        ("read_answer_gap_ns", 500.0, &[], four_reads_ns, 3.0 * 500.0),
        ("read_answer_gap_ns", 500.0, &[], four_sends_ns, 0.0),
        ("ack_delay_ns", 400.0, &[], one_send_ns, 400.0),
        ("ack_delay_ns", 400.0, &[], one_read_ns, 0.0),
    ]);
}

#[test]
fn an_adapter_that_reads_fewer_wqes_at_once_reads_more_often() {
    const READ_NS: f64 = 300.0;
    let reads = &[("wqe_read", 1.0), ("bus_read_ns", READ_NS)][..];
    let free = &[("wqe_read", 1.0)][..];
    let none = &[("bus_read_ns", READ_NS)][..];
    assert_rows(&[
        // One read of all four, instead of none.
        ("bus_read_ns", READ_NS, free, four_inline_sends_ns, READ_NS),
        ("wqes_per_read", 1.0, reads, four_inline_sends_ns, 3.0 * READ_NS),
        ("wqes_per_read", 2.0, reads, four_inline_sends_ns, READ_NS),
        ("wqes_per_read", 4.0, reads, four_inline_sends_ns, 0.0),
        ("wqes_per_read", 1.0, free, four_inline_sends_ns, 0.0),
        ("wqes_per_read", 1.0, none, four_inline_sends_ns, 0.0),
    ]);
}

#[test]
fn a_processor_that_sleeps_needs_time_to_wake_up() {
    // Messages come every 10 us.
    let soon = &[("wake_cold_after_ns", 50_000.0)][..];
    let late = &[("wake_cold_after_ns", 5_000.0)][..];
    assert_rows(&[
        ("wake_ns", 2000.0, &[], busy_one_way_ns, 0.0),
        ("wake_ns", 2000.0, &[], event_one_way_ns, 2000.0),
        ("wake_ns", 2000.0, soon, event_one_way_ns, 2000.0),
        // It is cold, and takes the other time instead.
        ("wake_ns", 2000.0, late, event_one_way_ns, 0.0),
        ("wake_cold_ns", 6000.0, late, event_one_way_ns, 6000.0),
        ("wake_cold_ns", 6000.0, late, busy_one_way_ns, 0.0),
        ("wake_cold_ns", 6000.0, soon, event_one_way_ns, 0.0),
        ("wake_cold_ns", 6000.0, &[], event_one_way_ns, 0.0),
        ("wake_cold_after_ns", 5_000.0, &[("wake_cold_ns", 6000.0)], event_one_way_ns, 6000.0),
        ("wake_cold_after_ns", 5_000.0, &[], event_one_way_ns, 0.0),
        ("post_cold_ns", 700.0, late, busy_one_way_ns, 700.0),
        ("post_cold_ns", 700.0, soon, busy_one_way_ns, 0.0),
        ("post_cold_ns", 700.0, &[], busy_one_way_ns, 0.0),
    ]);
}

#[test]
fn a_switch_needs_time_for_a_multicast() {
    assert_rows(&[
        ("multicast_ns", 900.0, &[], multicast_ns, 900.0),
        ("multicast_ns", 900.0, &[], unicast_ns, 0.0),
    ]);
}

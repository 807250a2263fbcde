//! What a message takes, by formula: each part of an adapter adds its own time and nothing else.

use rdmalab_measure::Stamp;
use rdmalab_rank::Rank;
use rdmalab_sim::Profile;
use rdmalab_verbs::{
    Access, Buffer, Path, Qp, QpEndpoint, QpType, ReadyToReceive, ReadyToSend, RecvRequest,
    SendRequest,
};

use crate::lab::{Shape, connect, lab, model, wait};

/// How one message goes.
#[derive(Clone, Copy, Default)]
struct Way {
    bytes: usize,
    is_inline: bool,
    is_unreliable: bool,
}

/// Picoseconds from the begin of the post of a SEND to the end of the poll that finds it at the
/// other end; both ends wait for each other first.
fn one_way_ps(profile: &Profile, way: Way) -> u64 {
    let (simulation, device) = lab(profile, 2);
    let (results, _) = simulation.run(|rank| {
        let qp_type = if way.is_unreliable { QpType::Uc } else { QpType::Rc };
        let shape = Shape { qp_type, bytes: 1 << 20, ..Shape::default() };
        let end = connect(rank, &device, shape);
        let sges = [end.mr.sge(0, way.bytes)];
        if rank.index() == 1 {
            end.qp.post_recv(&[RecvRequest::new(&sges)]).unwrap();
            rank.barrier()?;
            wait(rank, &end.recv_cq);
            let now = rank.now();
            rank.barrier()?;
            return Ok(now);
        }
        rank.barrier()?;
        let begin = rank.now();
        let request = SendRequest::send(&sges).signaled();
        let request = if way.is_inline { request.inline_data() } else { request };
        end.qp.post_send(&[request]).unwrap();
        wait(rank, &end.send_cq);
        rank.barrier()?;
        Ok(begin)
    });
    let [Ok(Stamp(begin)), Ok(Stamp(end))] = results[..] else { panic!("{results:?}") };
    end - begin
}

/// The same in nanoseconds, without the time of the last stamp.
fn one_way_ns(changes: &[(&str, f64)], way: Way) -> f64 {
    let profile = model(changes);
    (one_way_ps(&profile, way) as f64 / 1e3) - profile.parameters.stamp_ns.ns()
}

/// The receiver looks every nanosecond, so an end is found at most one later.
const LOOK_NS: f64 = 1.0;

fn assert_near(found: f64, expected: f64, what: &str) {
    assert!((found - expected).abs() <= LOOK_NS + 1e-6, "{what}: {found} ns, not {expected} ns");
}

/// A parameter, its time, the other parameters, how the message goes, and how often it takes the
/// time.
type Form<'a> = (&'a str, f64, &'a [(&'a str, f64)], Way, f64);

const SMALL: Way = Way { bytes: 32, is_inline: false, is_unreliable: false };
const INLINE: Way = Way { bytes: 32, is_inline: true, is_unreliable: false };

#[test]
fn each_part_adds_its_time_once_for_each_time_it_is_passed() {
    // With a doorbell the adapter reads the WQE and the payload; with BlueFlame only the payload;
    // an inline message is in the WQE.
    let doorbell = &[("wqe_read", 1.0)][..];
    let blue_flame = &[("wqe_read", 1.0), ("blue_flame", 2.0), ("blue_flame_bytes", 256.0)][..];
    let inline_only = &[("wqe_read", 1.0), ("blue_flame", 1.0), ("blue_flame_bytes", 256.0)][..];
    let cases: &[Form] = &[
        ("post_ns", 100.0, &[], SMALL, 1.0),
        ("poll_hit_ns", 100.0, &[], SMALL, 1.0),
        ("mmio_ns", 100.0, &[], SMALL, 1.0),
        ("propagation_ns", 700.0, &[], SMALL, 1.0),
        ("propagation_ns", 700.0, &[("switch_between_two", 1.0)], SMALL, 2.0),
        ("switch_ns", 110.0, &[], SMALL, 0.0),
        ("switch_ns", 110.0, &[("switch_between_two", 1.0)], SMALL, 1.0),
        ("send_ns", 90.0, &[], SMALL, 1.0),
        ("receive_ns", 90.0, &[], SMALL, 1.0),
        ("completion_ns", 40.0, &[], SMALL, 1.0),
        // The completion follows the payload on the bus, and each write takes its time.
        ("bus_write_ns", 150.0, &[], SMALL, 1.0),
        ("bus_read_ns", 300.0, &[], SMALL, 0.0),
        ("bus_read_ns", 300.0, doorbell, SMALL, 2.0),
        ("bus_read_ns", 300.0, blue_flame, SMALL, 1.0),
        ("bus_read_ns", 300.0, doorbell, INLINE, 1.0),
        ("bus_read_ns", 300.0, blue_flame, INLINE, 0.0),
        ("bus_read_ns", 300.0, inline_only, SMALL, 2.0),
        ("bus_read_ns", 300.0, inline_only, INLINE, 0.0),
        ("inline_ns_per_64_bytes", 10.0, &[], INLINE, 1.0),
        ("inline_ns_per_64_bytes", 10.0, &[], SMALL, 0.0),
        // Neither delays a single message.
        ("send_gap_ns", 500.0, &[], SMALL, 0.0),
        ("ack_delay_ns", 500.0, &[], SMALL, 0.0),
        ("recv_chunk_ns", 680.0, &[("recv_chunk_bytes", 512.0)], SMALL, 1.0),
        ("recv_chunk_ns", 680.0, &[], SMALL, 0.0),
        ("context_miss_ns", 800.0, &[("context_sets", 16.0)], SMALL, 2.0),
        ("context_miss_ns", 800.0, &[], SMALL, 0.0),
    ];
    for (name, ns, with, way, times) in cases {
        let without = one_way_ns(with, *way);
        let changes: Vec<_> = with.iter().copied().chain([(*name, *ns)]).collect();
        let found = one_way_ns(&changes, *way);
        assert_near(found - without, times * ns, &format!("{name} with {with:?}"));
    }
}

#[test]
fn bytes_take_the_rate_of_the_link_and_of_the_bus() {
    // 1000 MB/s: a nanosecond a byte.
    let way = |bytes| Way { bytes, ..SMALL };
    for bytes in [32, 4096] {
        let base = one_way_ns(&[], way(bytes));
        let link = one_way_ns(&[("link_mb_per_s", 1000.0)], way(bytes));
        assert_near(link - base, bytes as f64, "the link");
        let changes = [("link_mb_per_s", 1000.0), ("packet_overhead_bytes", 26.0)];
        assert_near(one_way_ns(&changes, way(bytes)) - base, bytes as f64 + 26.0, "with headers");
        // Written to memory, with the 64 bytes of the completion after it.
        let bus = one_way_ns(&[("bus_mb_per_s", 1000.0)], way(bytes));
        assert_near(bus - base, bytes as f64 + 64.0, "the bus");
        let read = [("bus_mb_per_s", 1000.0), ("wqe_read", 1.0), ("blue_flame", 2.0)];
        let read = [&read[..], &[("blue_flame_bytes", 256.0)]].concat();
        assert_near(one_way_ns(&read, way(bytes)) - base, 2.0 * bytes as f64 + 64.0, "both ways");
    }
}

#[test]
fn the_packets_of_a_long_message_overlap_in_all_parts() {
    // Link and bus at a nanosecond a byte: the message takes its bytes once, and one packet more
    // for each further stage.
    let bytes = 16 * 4096;
    let changes = [
        ("link_mb_per_s", 1000.0),
        ("bus_mb_per_s", 1000.0),
        ("wqe_read", 1.0),
        ("blue_flame", 2.0),
        ("blue_flame_bytes", 256.0),
        ("mtu_bytes", 4096.0),
    ];
    let found = one_way_ns(&changes, Way { bytes, ..SMALL });
    let base = one_way_ns(&[], Way { bytes, ..SMALL });
    assert_near(found - base, (bytes + 2 * 4096 + 64) as f64, "read, link and write");
}

/// Packets that move together are a shortcut of the simulation, so it may not change a result where
/// nothing contends. A last packet that is shorter may be found too late, by less than the time of
/// a whole one.
#[test]
fn a_message_takes_the_same_time_packet_by_packet() {
    let read = [("wqe_read", 1.0), ("blue_flame", 2.0), ("blue_flame_bytes", 256.0)];
    let parts: [&[(&str, f64)]; 7] = [
        &[("link_mb_per_s", 1000.0)],
        &[("link_mb_per_s", 1000.0), ("switch_between_two", 1.0), ("switch_ns", 90.0)],
        &[("bus_mb_per_s", 1000.0), ("bus_read_ns", 300.0), ("bus_write_ns", 100.0)],
        &[("bus_mb_per_s", 1000.0), ("bus_read_ns", 300.0), ("bus_reads", 1.0)],
        &[("link_mb_per_s", 1000.0), ("bus_mb_per_s", 1000.0), ("packet_overhead_bytes", 26.0)],
        &[("link_mb_per_s", 1000.0), ("bus_mb_per_s", 1300.0), ("propagation_ns", 500.0)],
        &[("link_mb_per_s", 1300.0), ("bus_mb_per_s", 1000.0), ("receive_ns", 50.0)],
    ];
    for part in parts {
        for (mtu, bytes) in [(4096, 1 << 20), (1024, 1 << 17), (256, 1 << 14), (4096, 70_001)] {
            let time = |turn_bytes: u32| {
                let more = [("mtu_bytes", mtu.into()), ("turn_bytes", turn_bytes.into())];
                let way = Way { bytes, ..SMALL };
                one_way_ns(&[part, &read, &more].concat(), way)
            };
            let together = time(1 << 16);
            let late_ns = if bytes % mtu as usize == 0 { 0.0 } else { mtu.into() };
            for turn_bytes in [mtu, 1 << 14] {
                let what =
                    format!("{bytes} B in packets of {mtu} B, {turn_bytes} B a turn: {part:?}");
                let alone = time(turn_bytes);
                assert!(
                    (-LOOK_NS..=late_ns + LOOK_NS).contains(&(together - alone)),
                    "{what}: {alone} {together}"
                );
            }
        }
    }
}

#[test]
fn loggp_is_what_the_ideal_profile_gives() {
    let profile = rdmalab_sim::find("ideal").unwrap();
    for bytes in [1, 32, 4096] {
        let way = Way { bytes, ..SMALL };
        let found = one_way_ps(&profile, way) as f64 / 1e3 - profile.parameters.stamp_ns.ns();
        // o + L + bytes G + o, and up to one look later.
        let expected = 100.0 + 1000.0 + bytes as f64 * 0.1 + 100.0;
        let late = found - expected;
        assert!((-0.1..=10.1).contains(&late), "{bytes} B: {found} ns, not {expected} ns");
    }
}

#[test]
fn an_unreliable_send_completes_when_it_leaves_and_a_reliable_one_when_it_is_acknowledged() {
    let profile = model(&[("propagation_ns", 1000.0)]);
    for (is_unreliable, expected) in [(true, 0.0), (false, 2000.0)] {
        let (simulation, device) = lab(&profile, 2);
        let (results, _) = simulation.run(|rank| {
            let qp_type = if is_unreliable { QpType::Uc } else { QpType::Rc };
            let end = connect(rank, &device, Shape { qp_type, ..Shape::default() });
            let sges = [end.mr.sge(0, 8)];
            end.qp.post_recv(&[RecvRequest::new(&sges)]).unwrap();
            rank.barrier()?;
            let begin = rank.now();
            if rank.index() == 0 {
                end.qp.post_send(&[SendRequest::send(&sges).signaled()]).unwrap();
                wait(rank, &end.send_cq);
            } else {
                wait(rank, &end.recv_cq);
            }
            let now = rank.now();
            rank.barrier()?;
            Ok(now.0 - begin.0)
        });
        let took_ns = *results[0].as_ref().unwrap() as f64 / 1e3;
        assert!((took_ns - expected).abs() < 5.0, "{took_ns} ns, not {expected} ns");
    }
}

/// The 40 bytes before a datagram, and its payload, go to the pieces of the receive in order.
#[test]
fn a_datagram_is_scattered_over_pieces_that_split_its_header() {
    let (simulation, device) = lab(&model(&[("propagation_ns", 100.0)]), 2);
    let (results, _) = simulation.run(|rank| {
        let context = device.open().unwrap();
        let pd = context.alloc_pd().unwrap();
        let cq = context.create_cq(8, None).unwrap();
        let mr = pd.register(&Buffer::private(4096).unwrap(), Access::LOCAL_WRITE).unwrap();
        let qp = Qp::builder(QpType::Ud, &cq, &cq).max_sge(1, 3).build(&pd).unwrap();
        qp.to_init(1, Access::LOCAL_WRITE, 7).unwrap();
        let path = Path::by_gid(1, 0);
        let own = qp.endpoint(&path, 0).unwrap();
        let all = rank.exchange(own.to_string().as_bytes())?;
        let theirs: QpEndpoint = str::from_utf8(&all[1 - rank.index()]).unwrap().parse().unwrap();
        let mtu = context.query_port(1).unwrap().active_mtu;
        qp.to_rtr(&ReadyToReceive::new(theirs, path, mtu)).unwrap();
        qp.to_rts(&ReadyToSend::new(0)).unwrap();
        if rank.index() == 1 {
            let sges = [mr.sge(0, 16), mr.sge(100, 30), mr.sge(200, 50)];
            qp.post_recv(&[RecvRequest::new(&sges)]).unwrap();
        }
        rank.barrier()?;
        if rank.index() == 0 {
            mr.buffer().copy_in(0, b"0123456789");
            let ah = pd.create_ah(&theirs, &path).unwrap();
            let sges = [mr.sge(0, 10)];
            let request = SendRequest::send(&sges).to(&ah, theirs.qpn, 7).signaled();
            qp.post_send(&[request]).unwrap();
        }
        wait(rank, &cq);
        rank.barrier()?;
        let mut bytes = vec![0; 16 + 30 + 50];
        for (at, part) in [(0, 0..16), (100, 16..46), (200, 46..96)] {
            mr.buffer().read_bytes(at, &mut bytes[part]);
        }
        Ok(bytes)
    });
    let bytes = results[1].as_ref().unwrap();
    // The version in front, the GID of the destination at its end, and then the payload.
    assert_eq!((bytes[0] >> 4, bytes[24], bytes[25]), (6, 0xfe, 0x80), "{bytes:?}");
    assert_eq!(&bytes[40..50], b"0123456789");
}

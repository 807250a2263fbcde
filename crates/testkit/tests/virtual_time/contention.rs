//! Messages that meet at a bus or a link. Packets that move together are a shortcut of the
//! simulation also there: results are those of packets that move one by one.

use rdmalab_experiments::{Experiment, sweep};
use rdmalab_random::Random;
use rdmalab_rank::Rank;
use rdmalab_testing::seeds;
use rdmalab_verbs::{QpType, RecvRequest, SendRequest};

use crate::lab::{Endpoint, Shape, connect_to, lab, model};

/// A message over a queue pair of its own.
#[derive(Clone, Copy, Debug)]
struct Message {
    from: usize,
    to: usize,
    bytes: usize,
    post_ns: u64,
    is_read: bool,
}

impl Message {
    fn send(from: usize, to: usize, bytes: usize, post_ns: u64) -> Message {
        Message { from, to, bytes, post_ns, is_read: false }
    }

    /// The rank that posts the request.
    fn poster(&self) -> usize {
        if self.is_read { self.to } else { self.from }
    }
}

/// How many seeds to play without `RDMALAB_SEEDS`.
const SEEDS: u64 = 200;
const MTU: f64 = 4096.0;
/// Time between two looks for a message: far less than what results may differ by, a packet.
const LOOK_NS: u64 = 100;
const LINK: (&str, f64) = ("link_mb_per_s", 1000.0);

/// When each message is there, in nanoseconds from a common begin.
fn ends_ns(changes: &[(&str, f64)], ranks: usize, messages: &[Message]) -> Vec<f64> {
    let read = [("wqe_read", 1.0), ("bus_read_ns", 200.0), ("mtu_bytes", MTU)];
    let (simulation, device) = lab(&model(&[&read[..], changes].concat()), ranks);
    let (results, _) = simulation.run(|rank| {
        let me = rank.index();
        let ends: Vec<Endpoint> = messages
            .iter()
            .map(|message| {
                let shape = Shape { qp_type: QpType::Rc, bytes: message.bytes, ..Shape::default() };
                let other = match me {
                    _ if me == message.from => message.to,
                    _ if me == message.to => message.from,
                    _ => me,
                };
                connect_to(rank, &device, shape, other)
            })
            .collect();
        for (message, end) in messages.iter().zip(&ends) {
            if message.to == me && !message.is_read {
                end.qp.post_recv(&[RecvRequest::new(&[end.mr.sge(0, message.bytes)])]).unwrap();
            }
        }
        rank.barrier()?;
        let begin = rank.now().0;
        let mut order: Vec<usize> = (0..messages.len()).collect();
        order.retain(|index| messages[*index].poster() == me);
        order.sort_by_key(|index| messages[*index].post_ns);
        let mut open: Vec<usize> = (0..messages.len()).collect();
        open.retain(|index| messages[*index].to == me);
        let mut found = vec![0.0; messages.len()];
        let mut next = order.into_iter().peekable();
        while !open.is_empty() || next.peek().is_some() {
            let now_ns = (rank.now().0 - begin) / 1000;
            if let Some(index) = next.next_if(|index| messages[*index].post_ns <= now_ns) {
                let (end, bytes) = (&ends[index], messages[index].bytes);
                let sges = [end.mr.sge(0, bytes)];
                let request = match messages[index].is_read {
                    true => SendRequest::read(&sges, &end.peer, 0),
                    false => SendRequest::send(&sges),
                };
                end.qp.post_send(&[request.signaled()]).unwrap();
            }
            open.retain(|index| {
                let end = &ends[*index];
                let cq = if messages[*index].is_read { &end.send_cq } else { &end.recv_cq };
                let Some(wc) = cq.poll_one().unwrap() else { return true };
                assert!(wc.is_ok(), "{wc:?}");
                found[*index] = (rank.now().0 - begin) as f64 / 1e3;
                false
            });
            rank.think(LOOK_NS)?;
        }
        rank.barrier()?;
        Ok(found)
    });
    let results: Vec<Vec<f64>> = results.into_iter().map(Result::unwrap).collect();
    messages.iter().enumerate().map(|(index, message)| results[message.to][index]).collect()
}

/// Compares with packets that move one by one.
fn assert_like_packets(changes: &[(&str, f64)], ranks: usize, messages: &[Message]) {
    let times = [4096.0, 65536.0].map(|turn_bytes| {
        ends_ns(&[changes, &[("turn_bytes", turn_bytes)]].concat(), ranks, messages)
    });
    // Who gets how much of a half duplex bus depends on who comes first, over and over again.
    let is_half_duplex = changes.contains(&("bus_half_duplex", 1.0));
    let whole = times[0].iter().copied().fold(0.0, f64::max);
    for (index, (packets, together)) in times[0].iter().zip(&times[1]).enumerate() {
        // Which packet goes first where two are there at once is nobody's promise. What makes long
        // messages later on their way is known late, by a turn at the most on each link.
        let turns = if messages[index].bytes > MTU as usize { 2.0 * 65536.0 } else { 0.0 };
        let tolerance = turns + (2.0 + 2.0 * messages.len() as f64) * MTU + 0.02 * whole;
        assert!(
            is_half_duplex || (packets - together).abs() <= tolerance,
            "message {index} of {messages:?} under {changes:?}: {packets} ns by packets, \
             {together} ns together"
        );
    }
    let [packets, together] = times.map(|times| times.into_iter().fold(0.0, f64::max));
    assert!(
        (together / packets - 1.0).abs() < 0.03 || (together - packets).abs() < 8.0 * MTU,
        "all of {messages:?} under {changes:?}: {packets} ns by packets, {together} ns together"
    );
}

/// A small message that comes to a link while a long one passes waits for a packet of it.
#[test]
fn a_small_message_passes_a_long_one() {
    let messages = [Message::send(0, 1, 1 << 20, 0), Message::send(0, 1, 8, 300_000)];
    for part in ["link_mb_per_s", "bus_mb_per_s"] {
        for turn_bytes in [4096.0, 16384.0, 65536.0] {
            let ends = ends_ns(&[(part, 1000.0), ("turn_bytes", turn_bytes)], 2, &messages);
            let waited = ends[1] - 300_000.0;
            // The read of its WQE may wait for a packet of the long one too.
            let most = 2.0 * (2.0 * MTU + 400.0);
            assert!(waited <= most, "{part}, {turn_bytes} B a turn: {waited} ns");
            let whole = f64::from(1 << 20) + 8.0;
            assert!((whole..whole + MTU + 1000.0).contains(&ends[0]), "{part}: {ends:?}");
        }
    }
}

#[test]
fn long_messages_share_what_they_meet_at() {
    const LONG: usize = 1 << 20;
    let bus = [("bus_mb_per_s", 1300.0), LINK];
    let half = [("bus_mb_per_s", 1000.0), ("bus_half_duplex", 1.0)];
    let two = [Message::send(0, 1, LONG, 0), Message::send(0, 1, LONG, 100_000)];
    let three = [two[0], two[1], Message::send(0, 1, 70_000, 200_000)];
    let fan_in = [Message::send(0, 2, LONG, 0), Message::send(1, 2, LONG / 4, 200_000)];
    let across = [Message::send(0, 1, LONG, 0), Message::send(1, 0, LONG, 50_000)];
    for model in [&[LINK][..], &bus, &half] {
        assert_like_packets(model, 2, &two);
        assert_like_packets(model, 2, &three);
        assert_like_packets(model, 3, &fan_in);
        assert_like_packets(model, 2, &across);
    }
}

/// Random messages between random ranks, by SEND and READ, at random times.
#[test]
fn random_messages_take_the_same_time_as_packet_by_packet() {
    for seed in seeds(SEEDS) {
        let mut random = Random::new(seed);
        let ranks = 2 + random.below(3) as usize;
        let messages: Vec<Message> = (0..2 + random.below(5))
            .map(|_| {
                let from = random.below(ranks as u64) as usize;
                let to = (from + 1 + random.below(ranks as u64 - 1) as usize) % ranks;
                let bytes = random.pick(&[8, 4096, 50_000, 1 << 18]);
                let (post_ns, is_read) = (random.below(300_000), random.chance(300));
                Message { from, to, bytes, post_ns, is_read }
            })
            .collect();
        let bus = ("bus_mb_per_s", random.pick(&[0.0, 1200.0, 1500.0, 4000.0]));
        println!("seed {seed}");
        assert_like_packets(&[LINK, bus], ranks, &messages);
    }
}

/// Messages of one adapter alternate on its bus and its link. Who goes first where several could
/// makes a difference, and that more than a packet of each may wait for the bus: a message waits
/// there twice, for its WQE and its payload. Of 1000 seeds, the largest differences are 5.0, 5.7,
/// 5.7, 8.0 and 9.1 packets for 2 to 6 messages. A turn has 16 packets.
#[test]
fn messages_of_an_adapter_differ_by_less_than_a_turn() {
    for seed in seeds(60) {
        let mut random = Random::new(seed);
        let ranks = 2 + random.below(4) as usize;
        let messages: Vec<Message> = (0..2 + random.below(5))
            .map(|_| {
                let to = 1 + random.below(ranks as u64 - 1) as usize;
                let bytes = random.pick(&[8, 4096, 50_000, 1 << 18]);
                Message::send(0, to, bytes, random.below(300_000))
            })
            .collect();
        let bus = ("bus_mb_per_s", random.pick(&[0.0, 800.0, 1200.0, 4000.0]));
        let [packets, together] = [4096.0, 65536.0]
            .map(|turn_bytes| ends_ns(&[LINK, bus, ("turn_bytes", turn_bytes)], ranks, &messages));
        let packet_ns = if bus.1 == 800.0 { MTU / 0.8 } else { MTU };
        let most_ns = (4 + messages.len()) as f64 * packet_ns;
        for (index, (packets, together)) in packets.iter().zip(&together).enumerate() {
            assert!(
                (packets - together).abs() <= most_ns,
                "seed {seed}: message {index} of {messages:?} with {bus:?}: {packets} ns by \
                 packets, {together} ns together"
            );
        }
    }
}

/// Long messages from one adapter to many peers, and back, cost events for trains, not for packets.
#[test]
fn long_messages_to_many_peers_cost_few_events() {
    let options = [("size", "1M"), ("messages", "3"), ("warm-up", "1")];
    let [packets, together] = [4096.0, 65536.0].map(|turn_bytes| {
        let part = [("bus_mb_per_s", 1200.0), LINK, ("turn_bytes", turn_bytes)];
        let read = [("wqe_read", 1.0), ("bus_read_ns", 200.0), ("mtu_bytes", MTU)];
        let (simulation, device) = lab(&model(&[&read[..], &part].concat()), 8);
        let point = &sweep(Experiment::FAN, &options).unwrap()[0];
        let (results, report) =
            simulation.run(|rank| rdmalab_experiments::run(rank, &device, point));
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        report.events
    });
    assert!(together < packets / 10, "{together} events together, {packets} by packets");
}

/// Queue pairs that share a bus and a link keep the order of their messages, whatever has to be
/// read for each: a message out of order would be sent again.
#[test]
fn messages_of_a_queue_pair_stay_in_order() {
    const QPS: usize = 3;
    const ROUNDS: usize = 12;
    const BYTES: [usize; 4] = [8192, 8, 3000, 70_000];
    for (bus, link, inline) in
        [(1300.0, 0.0, 64), (1300.0, 6818.0, 64), (0.0, 1000.0, 64), (784.0, 1000.0, 0)]
    {
        let read = [("wqe_read", 1.0), ("bus_read_ns", 300.0), ("mtu_bytes", MTU)];
        let rates = [("bus_mb_per_s", bus), ("link_mb_per_s", link), ("blue_flame", 2.0)];
        let (simulation, device) = lab(&model(&[&read[..], &rates].concat()), 2);
        let (results, report) = simulation.run(|rank| {
            let shape = Shape { bytes: 1 << 17, inline, ..Shape::default() };
            let ends = [(); QPS].map(|()| connect_to(rank, &device, shape, 1 - rank.index()));
            rank.barrier()?;
            for round in 0..ROUNDS {
                for (index, end) in ends.iter().enumerate() {
                    let bytes = BYTES[(round + index) % BYTES.len()];
                    let sges = [end.mr.sge(0, bytes)];
                    let is_read = rank.index() == 1 && round % 3 == 0;
                    let request = match is_read {
                        true => SendRequest::read(&sges, &end.peer, 0),
                        false => SendRequest::write(&sges, &end.peer, 0),
                    };
                    let is_inline = !is_read && bytes <= inline as usize;
                    let request = if is_inline { request.inline_data() } else { request };
                    end.qp.post_send(&[request.signaled()]).unwrap();
                    rank.think(50)?;
                }
            }
            for end in &ends {
                for _ in 0..ROUNDS {
                    crate::lab::wait(rank, &end.send_cq);
                }
            }
            rank.barrier()
        });
        assert!(results.iter().all(Result::is_ok), "{results:?}");
        let each = |index: usize| -> usize {
            (0..ROUNDS).map(|round| BYTES[(round + index) % BYTES.len()]).sum()
        };
        let expected = 2 * (0..QPS).map(each).sum::<usize>() as u64;
        let what = format!("bus {bus}, link {link}, inline {inline}: {:?}", report.bytes);
        assert_eq!(report.bytes.sent, expected, "sent again: {what}");
        assert_eq!(report.bytes.arrived, expected, "{what}");
    }
}

/// Nobody acknowledges a message over UC: it is complete when its last packet has left, however
/// many packets of others came in between. Without a propagation time it has arrived then.
#[test]
fn an_unreliable_message_completes_when_its_last_packet_has_left() {
    const LONG: usize = 1 << 20;
    let profile = model(&[LINK, ("mtu_bytes", MTU), ("wqe_read", 0.0)]);
    let (simulation, device) = lab(&profile, 2);
    let (results, _) = simulation.run(|rank| {
        let shape = Shape { qp_type: QpType::Uc, bytes: LONG, ..Shape::default() };
        let ends = [(); 2].map(|()| connect_to(rank, &device, shape, 1 - rank.index()));
        let is_sender = rank.index() == 0;
        for end in ends.iter().filter(|_| !is_sender) {
            end.qp.post_recv(&[RecvRequest::new(&[end.mr.sge(0, LONG)])]).unwrap();
        }
        rank.barrier()?;
        let mut found = [0; 2];
        if is_sender {
            for end in &ends {
                let sges = [end.mr.sge(0, LONG)];
                end.qp.post_send(&[SendRequest::send(&sges).signaled()]).unwrap();
                // The second one comes while a train of the first is under way.
                rank.think(30_000)?;
            }
        }
        while found.contains(&0) {
            let look = || {
                ends.iter().position(|end| {
                    let cq = if is_sender { &end.send_cq } else { &end.recv_cq };
                    cq.poll_one().unwrap().is_some_and(|wc| wc.is_ok())
                })
            };
            let index = rank.spin(look)?;
            found[index] = rank.now().0 / 1000;
        }
        rank.barrier()?;
        Ok(found)
    });
    let [Ok(sent), Ok(received)] = &results[..] else { panic!("{results:?}") };
    for (sent, received) in sent.iter().zip(received) {
        assert!(sent.abs_diff(*received) <= 100, "{sent} ns and {received} ns");
    }
}

//! Tests of the rules: the syntax, and that decisions depend on the packet only.

use proptest::prelude::*;
use rdmalab_engine::qp::Standing;
use rdmalab_wire::ids::{Psn, Qpn};

use crate::deferred::{Deferred, Full};
use crate::packet::{Class, Flow, Medium, PacketInfo, Payload};
use crate::quirk::chain::MAX_LABELS;
use crate::quirk::{Answer, Chain, Fate, Reply};
use crate::specification::Specification;

fn flow(qp: u32, is_response: bool) -> Flow {
    Flow {
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
        destination_qp: Qpn::new(qp),
        source_qp: Qpn::new(0),
        is_response,
    }
}

fn leaving(qp: u32, class: Class, psn: u32) -> PacketInfo {
    let is_response = matches!(class, Class::Ack | Class::Nak | Class::ReadResponse);
    PacketInfo {
        flow: flow(qp, is_response),
        local_qp: Qpn::new(77),
        medium: Medium::Memory,
        class,
        psn: Psn::new(psn),
        psns: 1,
        transmission: None,
        standing: None,
        bytes: 1000,
        payload: Payload::default(),
    }
}

fn specification(text: &str) -> Specification {
    Specification::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The rules, armed at 0 ns.
fn rules(text: &str) -> Chain {
    specification(text).into_chain(0)
}

/// The PSNs among `psns` that are lost.
fn lost(text: &str, class: Class, psns: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut rules = rules(text);
    let is_lost = |psn: &u32| rules.packet_leaves(&leaving(1, class, *psn), 0).lost;
    psns.into_iter().filter(is_lost).collect()
}

#[test]
fn types_numbers_and_counts_select() {
    assert_eq!(lost("drop", Class::Send, 0..3), [0, 1, 2]);
    assert_eq!(lost("drop of ack,nak", Class::Send, 0..3), []);
    assert_eq!(lost("drop of request", Class::Atomic, 0..2), [0, 1]);
    assert_eq!(lost("drop of response", Class::Atomic, 0..2), []);
    assert_eq!(lost("drop nth 2,4", Class::Send, 10..20), [11, 13]);
    assert_eq!(lost("drop every 3", Class::Send, 10..20), [12, 15, 18]);
    assert_eq!(
        lost("drop psn 0xffffff..1", Class::Send, [5, 0xff_ffff, 0, 1, 2]),
        [0xff_ffff, 0, 1]
    );
    assert_eq!(lost("drop psn 7", Class::Send, 5..9), [7]);
    assert_eq!(lost("drop first", Class::Send, [1, 2, 1, 2, 3]), [1, 2, 3]);
    assert_eq!(lost("drop again", Class::Send, [1, 2, 1, 2, 3]), [1, 2]);
    assert_eq!(lost("drop to 2", Class::Send, 0..2), []);
    assert_eq!(lost("drop to 0x1 from 10.0.0.1", Class::Send, 0..2), [0, 1]);
    assert_eq!(lost("drop to 10.0.0.1", Class::Send, 0..2), []);
    assert_eq!(lost("drop over network", Class::Send, 0..2), []);
    assert_eq!(lost("drop 0%", Class::Send, 0..500), []);
    assert_eq!(lost("drop 100%", Class::Send, 0..500).len(), 500);
}

#[test]
fn payloads_select_by_length_and_origin() {
    let lost = |text: &str| -> Vec<u32> {
        let mut rules = rules(text);
        // Payloads of odd length are inline.
        let mut is_lost = |bytes: u32| {
            let payload = Payload { bytes, is_inline: bytes % 2 == 1 };
            let packet = PacketInfo { payload, ..leaving(1, Class::Send, bytes) };
            rules.packet_leaves(&packet, 0).lost
        };
        (0..6).filter(|bytes| is_lost(*bytes)).collect()
    };
    assert_eq!(lost("drop inline"), [1, 3, 5]);
    // A packet without payload is not gathered.
    assert_eq!(lost("drop gathered"), [2, 4]);
    assert_eq!(lost("drop payload 2..3"), [2, 3]);
    assert_eq!(lost("drop payload ..1"), [0, 1]);
    assert_eq!(lost("drop payload 4.."), [4, 5]);
    assert_eq!(lost("drop of send inline payload 3"), [3]);
    assert_eq!(lost("drop of ack gathered"), []);
}

#[test]
fn chances_are_kept() {
    let count = lost("seed=3; drop 10%", Class::Send, 0..100_000).len();
    // Five standard deviations of a binomial distribution are 474.
    assert!((9_500..10_500).contains(&count), "{count}");
    let other = lost("seed=4; drop 10%", Class::Send, 0..1000);
    assert_ne!(lost("seed=3; drop 10%", Class::Send, 0..1000), other);
    // A retransmission draws again.
    let mut rules = rules("drop 50%");
    let mut fates = (0..64).map(|_| rules.packet_leaves(&leaving(1, Class::Send, 9), 0));
    let first = fates.next().unwrap().lost;
    assert!(fates.any(|fate| fate.lost != first));
}

/// Several threads in any order, each with its own flows, get the same fates as one thread.
#[test]
fn threads_change_nothing() {
    let text = "seed=11; drop 20%; duplicate 10% of send; reorder 2 every 5; corrupt nth 7";
    let of_flow = |qp: u32| (0..200u32).map(move |at| leaving(qp, Class::Send, at / 2));
    let alone: Vec<Vec<Fate>> = (1..5)
        .map(|qp| {
            let mut rules = rules(text);
            of_flow(qp).map(|packet| rules.packet_leaves(&packet, 0)).collect()
        })
        .collect();
    let rules = std::sync::Mutex::new(rules(text));
    let together: Vec<Vec<Fate>> = std::thread::scope(|scope| {
        let (rules, of_flow) = (&rules, &of_flow);
        let threads = (1..5).map(|qp| {
            scope.spawn(move || {
                let fate = |packet| rules.lock().unwrap().packet_leaves(&packet, 0);
                of_flow(qp).map(fate).collect()
            })
        });
        let threads: Vec<_> = threads.collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    assert_eq!(together, alone);
    assert!(alone.windows(2).all(|flows| flows[0] != flows[1]), "flows share their fate");
}

#[test]
fn a_seed_repeats_where_only_a_part_of_a_number_does() {
    let whole = || rules("drop 50%");
    let part = || specification("drop 50%").with_qp_bits(14).into_chain(0);
    let lost = |mut rules: Chain, qp: u32| -> Vec<bool> {
        let one = |psn| rules.packet_leaves(&leaving(qp, Class::Send, psn), 0).lost;
        (0..64).map(one).collect()
    };
    let (slot_3, slot_9) = ((3 << 14) | 5, (9 << 14) | 5);
    assert_ne!(lost(whole(), slot_3), lost(whole(), slot_9));
    assert_eq!(lost(part(), slot_3), lost(part(), slot_9));
    assert_ne!(lost(part(), slot_3), lost(part(), slot_3 + 1));
    // The higher bits tell the members of a group apart.
    let member = |slot: u32| -> Vec<bool> {
        let mut packet = leaving(Qpn::MULTICAST.get(), Class::Send, 0);
        packet.flow.source_qp = Qpn::new(5 ^ slot << 14);
        let mut rules = part();
        let one = |psn| rules.packet_leaves(&PacketInfo { psn: Psn::new(psn), ..packet }, 0).lost;
        (0..64).map(one).collect()
    };
    assert_ne!(member(3), member(9));
}

#[test]
fn times_and_rates() {
    let send = leaving(1, Class::Send, 1);
    for (now_ns, expected) in
        [(999_999, false), (1_000_000, true), (1_999_999, true), (2_000_000, false)]
    {
        let mut partition = rules("partition 1ms..2ms");
        assert_eq!(partition.packet_leaves(&send, now_ns).lost, expected, "{now_ns}");
        let mut later = specification("partition 1ms..2ms").into_chain(500);
        assert_eq!(later.packet_leaves(&send, now_ns + 500).lost, expected);
    }
    let mut late = rules("delay 50us of send; delay 1.5us");
    assert_eq!(late.packet_leaves(&send, 100).delay_ns, 51_500);
    assert_eq!(late.packet_leaves(&leaving(1, Class::Ack, 1), 100).delay_ns, 1_500);
    let mut jitter = rules("delay 1us jitter 9us");
    let delay = |psn| jitter.packet_leaves(&leaving(1, Class::Send, psn), 0).delay_ns;
    let delays: Vec<u64> = (0..100).map(delay).collect();
    assert!(delays.iter().all(|ns| (1_000..10_000).contains(ns)));
    assert!(delays.iter().any(|ns| *ns > 8_000) && delays.iter().any(|ns| *ns < 3_000));
    // 1000 bytes at 8 Mbit/s take a millisecond, one after the other.
    let mut line = rules("rate 8Mbit");
    let mut delay = |now_ns| line.packet_leaves(&send, now_ns).delay_ns;
    assert_eq!((delay(0), delay(0), delay(500_000)), (1_000_000, 2_000_000, 2_500_000));
}

#[test]
fn other_fates() {
    let mut rules = rules("duplicate nth 1; corrupt nth 2; reorder 3 nth 3; damage nth 4");
    let mut fate = |psn| rules.packet_leaves(&leaving(1, Class::Send, psn), 0);
    assert_eq!(fate(0).copies, 1);
    assert!(fate(1).corrupt.is_some());
    assert_eq!(fate(2).behind, 3);
    let damaged = fate(3);
    let mut payload = [0u8; 9];
    assert!(damaged.damage(&mut payload) && !damaged.damage(&mut []));
    assert_eq!(payload.iter().map(|byte| byte.count_ones()).sum::<u32>(), 1);
    assert!(!fate(4).damage(&mut payload));
    assert_eq!(rules.met(), [1, 1, 1, 1]);
}

#[test]
fn requests_that_arrive_are_answered_in_order_only() {
    let mut rules = rules("rnr-nak nth 2 of read; drop of read");
    let read = PacketInfo { standing: Some(Standing::Expected), ..leaving(1, Class::Read, 5) };
    let early = PacketInfo { standing: Some(Standing::Ahead), ..read };
    let mut arrived = |packet: &PacketInfo| rules.packet_arrived(packet, 0).reply;
    assert_eq!([arrived(&read), arrived(&early)], [Reply::Accept; 2]);
    assert_eq!(arrived(&leaving(1, Class::Ack, 5)), Reply::Accept);
    assert_eq!(arrived(&read), Reply::Answer(Answer::RnrNak));
    assert_eq!(arrived(&read), Reply::Accept);
    // For a leaving packet only the other rule matters.
    assert!(rules.packet_leaves(&read, 0).lost);
    assert_eq!(rules.met(), [1, 1]);
}

/// Fates of many packets under one specification, in one number.
fn digest(text: &str) -> u64 {
    let mut rules = specification(text).with_qp_bits(14).into_chain(5);
    let mut sum = 0xcbf2_9ce4_8422_2325_u64;
    for at in 0..4000u32 {
        let class = [Class::Send, Class::Read, Class::ReadResponse, Class::Ack][at as usize % 4];
        let payload = Payload { bytes: at % 300, is_inline: at % 3 == 0 };
        let packet = leaving(1 + at % 7, class, at / 9 % 150);
        let packet = PacketInfo { payload, bytes: 100 + at % 1000, ..packet };
        let fate = rules.packet_leaves(&packet, u64::from(at) * 700);
        let rest = match fate.lost {
            true => [0; 4],
            false => [
                fate.corrupt.map_or(0, |bit| bit | 1),
                u64::from(fate.copies),
                fate.delay_ns,
                u64::from(fate.behind),
            ],
        };
        for value in [1, u64::from(fate.lost), fate.met].into_iter().chain(rest) {
            sum = (sum ^ value).wrapping_mul(0x0100_0000_01b3);
        }
    }
    sum
}

/// These values date from before rules became a quirk. Users rely on what a seed decides.
#[test]
fn a_seed_decides_as_in_earlier_versions() {
    for (text, expected) in [
        ("seed=9; drop 2% of request; duplicate 3%; drop 2% first of ack", 0x56d2_209b_ffc3_91f7),
        (
            "seed=7; delay 50us jitter 20us of ack; rate 100Mbit 50%; corrupt 5%; \
             reorder 3 every 7",
            0xd5d8_b962_1532_84e7,
        ),
        (
            "rate 10Mbit; delay 3us gathered; drop nth 3,9 of send; drop 30% again payload 100..",
            0x1f7f_5c81_dde3_9d6a,
        ),
        (
            "partition 1ms..2ms; duplicate 20% to 3; rate 1Gbit of request; delay 1us jitter 9us",
            0x5f6c_234b_05d1_680d,
        ),
    ] {
        assert_eq!(digest(text), expected, "{text}");
    }
}

#[test]
fn mistakes_teach() {
    for (text, part) in [
        ("", "contains no rule"),
        ("seed=7", "contains no rule"),
        ("seed=x; drop", "\"x\" is not a seed"),
        ("drop; loose 1%", "part 2 (loose 1%): \"loose\" is not an action; the actions are drop,"),
        ("drop 1% of requets", "\"requets\" is not a packet type; the types are all, request"),
        ("drop 101%", "choose 0% to 100%"),
        ("drop -1%", "choose 0% to 100%"),
        ("drop 1", "\"1\" is not allowed here"),
        ("drop of", "of needs packet types"),
        ("drop nth 0", "numbered from 1"),
        ("drop every 0", "never"),
        ("drop to nobody", "neither a queue pair"),
        ("drop psn 0x1000000", "24 bits"),
        ("drop 2s..1s", "an empty range"),
        ("drop 2..1", "not a time range"),
        ("delay", "needs a time"),
        ("delay 5", "is not a time"),
        ("delay 61s", "the limit is 60s"),
        ("rate fast", "is not a rate"),
        ("rate 0bit", "use drop"),
        ("reorder 0", "has no effect"),
        ("partition", "needs a time range"),
        ("drop over air", "memory or network"),
        ("rnr-nak gathered", "cannot know"),
    ] {
        let error = Specification::parse(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let many = "drop;".repeat(MAX_LABELS + 1);
    assert!(Specification::parse(&many).unwrap_err().to_string().contains("limit is 64"));
    assert_eq!(rules(&"drop;".repeat(MAX_LABELS)).labels().len(), MAX_LABELS);
}

/// The next packet that is due, without its flow.
fn due(deferred: &mut Deferred<u64>, now_ns: u64) -> Option<u64> {
    deferred.take_due(now_ns).map(|(_, packet)| packet)
}

/// While a delayed packet is due and not taken yet, no later packet may leave before it.
#[test]
fn what_leaves_does_not_overtake_what_is_due() {
    let mut deferred = Deferred::default();
    let mut leaves = |of: &Flow, fate, now_ns, is_busy, number| {
        let deferral = deferred.defer(of, &fate, now_ns, is_busy, || (1, number));
        (deferral.sends_now, deferred.next_ns())
    };
    let (ours, other) = (flow(1, false), flow(2, false));
    assert_eq!(leaves(&ours, Fate::delay(100), 0, false, 1), (false, Some(100)));
    assert!(leaves(&ours, Fate::PASS, 99, false, 2).0, "the first is late on purpose");
    assert!(!leaves(&ours, Fate::PASS, 100, false, 3).0);
    assert!(leaves(&other, Fate::PASS, 100, false, 4).0);
    assert!(!leaves(&other, Fate::PASS, 101, true, 5).0, "one is just being sent");
    let order: Vec<u64> = std::iter::from_fn(|| due(&mut deferred, 101)).collect();
    assert_eq!(order, [1, 3, 5]);
}

#[test]
fn what_is_held_is_bounded_and_comes_in_order() {
    let mut deferred = Deferred::default();
    for n in 0..crate::deferred::MAX_DEFERRED as u64 {
        deferred.until(flow(1, false), 1_000 - n % 10, 1, n).unwrap();
    }
    assert_eq!(deferred.until(flow(1, false), 0, 1, 0), Err(Full));
    assert_eq!(deferred.next_ns(), Some(991));
    assert_eq!(due(&mut deferred, 990), None);
    let first: Vec<u64> = (0..3).filter_map(|_| due(&mut deferred, 991)).collect();
    assert_eq!(first, [9, 19, 29]);
    let mut deferred = Deferred::default();
    deferred.until(flow(1, false), 1, crate::deferred::MAX_DEFERRED_BYTES, 1).unwrap();
    assert_eq!(deferred.until(flow(1, false), 1, 1, 2), Err(Full));
    assert_eq!(due(&mut deferred, 1), Some(1));
    assert!(deferred.is_empty());
    // It must be overtaken by two packets of its own flow; other flows do not count.
    deferred.behind(flow(1, false), 2, 100, 1, 7).unwrap();
    assert!(!deferred.passed(&flow(2, false), 100) && !deferred.passed(&flow(1, true), 100));
    assert!(!deferred.passed(&flow(1, false), 100));
    assert_eq!(due(&mut deferred, 100), None);
    assert!(deferred.passed(&flow(1, false), 100));
    assert_eq!(due(&mut deferred, 100), Some(7));
    deferred.behind(flow(1, false), 2, 100, 1, 8).unwrap();
    assert_eq!(deferred.next_ns(), Some(100 + crate::deferred::OVERTAKING_NS));
    assert_eq!(due(&mut deferred, 100 + crate::deferred::OVERTAKING_NS), Some(8));
}

/// A packet for rules with a probability.
fn packet() -> impl Strategy<Value = PacketInfo> {
    let ends = (any::<u32>(), any::<u32>(), 0u32..1 << 24, 0u32..1 << 24, any::<bool>());
    let rest = (0u32..1 << 24, 0u32..9, any::<u32>(), any::<bool>());
    (ends, rest).prop_map(|((from, to, dst, src, is_response), rest)| {
        let (psn, transmission, bytes, over_network) = rest;
        PacketInfo {
            flow: Flow {
                source: std::net::Ipv4Addr::from_bits(from).into(),
                destination: std::net::Ipv4Addr::from_bits(to).into(),
                destination_qp: Qpn::new(dst),
                source_qp: Qpn::new(src),
                is_response,
            },
            local_qp: Qpn::new(src),
            medium: if over_network { Medium::Network } else { Medium::Memory },
            class: if is_response { Class::Ack } else { Class::Send },
            psn: Psn::new(psn),
            psns: 1,
            transmission: Some(transmission),
            standing: None,
            bytes,
            payload: Payload { bytes: bytes / 2, is_inline: bytes % 2 == 0 },
        }
    })
}

proptest! {
    /// A decision with a probability is a function of seed, rule, flow, PSN and transmission.
    /// Earlier packets, the time, the length and the medium do not matter.
    #[test]
    fn a_verdict_is_a_function_of_five_things(
        seed: u64,
        history in prop::collection::vec((packet(), any::<u64>()), 0..50),
        packet in packet(),
        // At later times a delay would saturate.
        (bytes, now_ns) in (any::<u32>(), 0u64..1 << 63),
    ) {
        let text = "drop 30%; duplicate 30%; corrupt 30%; delay 1us jitter 9us 30%; reorder 3 30%";
        let rules = || rules(&format!("seed={seed}; {text}"));
        let alone = rules().packet_leaves(&packet, 0);
        let mut busy = rules();
        for (before, at_ns) in &history {
            busy.packet_leaves(before, *at_ns);
        }
        prop_assert_eq!(busy.packet_leaves(&packet, now_ns), alone);
        let medium = match packet.medium {
            Medium::Memory => Medium::Network,
            Medium::Network => Medium::Memory,
        };
        let payload = Payload { bytes, is_inline: !packet.payload.is_inline };
        let other = PacketInfo { bytes, payload, medium, ..packet };
        prop_assert_eq!(rules().packet_leaves(&other, now_ns), alone);
    }

    /// Each of the five matters: over many PSNs the fates differ.
    #[test]
    fn each_of_the_five_matters(seed: u64, packet in packet()) {
        let fates = |text: &str, change: &dyn Fn(&mut PacketInfo)| -> Vec<Fate> {
            let mut rules = rules(text);
            let one = |at: u32| {
                let psn = Psn::new(packet.psn.get().wrapping_add(at) & 0xff_ffff);
                let mut packet = PacketInfo { psn, ..packet };
                change(&mut packet);
                rules.packet_leaves(&packet, 0)
            };
            (0..200).map(one).collect()
        };
        let r = &format!("seed={seed}; drop 50%");
        let as_it_is = fates(r, &|_| ());
        let other_seed = &format!("seed={}; drop 50%", seed ^ 1);
        // The first rule matches no packet; the second is another rule with the same text.
        let other_rule = &format!("seed={seed}; duplicate 0%; drop 50%");
        let lost = |fates: &[Fate]| fates.iter().map(|fate| fate.lost).collect::<Vec<_>>();
        prop_assert_ne!(lost(&fates(other_seed, &|_| ())), lost(&as_it_is));
        prop_assert_ne!(lost(&fates(other_rule, &|_| ())), lost(&as_it_is));
        let again = |p: &mut PacketInfo| p.transmission = p.transmission.map(|times| times + 1);
        prop_assert_ne!(fates(r, &again), as_it_is.clone());
        prop_assert_ne!(fates(r, &|p| p.flow.is_response ^= true), as_it_is.clone());
        prop_assert_ne!(
            fates(r, &|p| p.flow.destination_qp = Qpn::new(p.flow.destination_qp.get() ^ 1)),
            as_it_is.clone()
        );
        prop_assert_ne!(
            fates(r, &|p| p.flow.source = std::net::Ipv4Addr::from_bits(7).into()),
            as_it_is
        );
    }

    /// Flows get the same fates in whatever order their packets are interleaved.
    #[test]
    fn interleaving_changes_nothing(
        packets in prop::collection::vec((1u32..5, 0u32..40, any::<bool>()), 1..200),
        order in prop::collection::vec(any::<u32>(), 200),
        seed: u64,
    ) {
        let text = format!(
            "seed={seed}; drop 20%; duplicate 10% again; delay 5us jitter 7us 30%; \
             corrupt nth 3 of send; reorder 2 every 4; drop 30% first of ack"
        );
        let packets: Vec<PacketInfo> = packets
            .iter()
            .map(|(qp, psn, ack)| leaving(*qp, if *ack { Class::Ack } else { Class::Send }, *psn))
            .collect();
        let play = |order: &[usize]| {
            let mut rules = rules(&text);
            let mut fates = vec![Fate::PASS; packets.len()];
            for at in order {
                fates[*at] = rules.packet_leaves(&packets[*at], 0);
            }
            fates
        };
        let in_order: Vec<usize> = (0..packets.len()).collect();
        // Another order of the flows, with each flow's own order kept.
        let mut shuffled = in_order.clone();
        shuffled.sort_by_key(|at| order[packets[*at].flow.destination_qp.get() as usize]);
        prop_assert_eq!(play(&in_order), play(&shuffled));
    }
}

//! Rules: what they say, and that nothing but the packet decides.

use proptest::prelude::*;
use rdmalab_wire::ids::{Psn, Qpn};

use super::*;
use crate::deferred::{Deferred, Full};
use crate::faults::state::Sending;

fn flow(qp: u32, is_response: bool) -> Flow {
    Flow {
        source: "10.0.0.1".parse().unwrap(),
        destination: "10.0.0.2".parse().unwrap(),
        destination_qp: Qpn::new(qp),
        source_qp: Qpn::new(0),
        is_response,
    }
}

fn sending(qp: u32, class: Class, psn: u32) -> Sending {
    let is_response = matches!(class, Class::Ack | Class::Nak | Class::ReadResponse);
    Sending {
        flow: flow(qp, is_response),
        medium: Medium::Memory,
        class,
        psn: Psn::new(psn),
        transmission: None,
        bytes: 1000,
        payload: Payload::default(),
    }
}

fn rules(text: &str) -> Rules {
    Rules::parse(text).unwrap_or_else(|error| panic!("{error}"))
}

/// The numbers among `psns` that are lost.
fn lost(text: &str, class: Class, psns: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let (rules, mut state) = (rules(text), State::default());
    let is_lost = |psn: &u32| state.decide(&rules, &sending(1, class, *psn), 0, 0).fate.lost;
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
        let (rules, mut state) = (rules(text), State::default());
        // Odd numbers go inline.
        let mut is_lost = |bytes: u32| {
            let payload = Payload { bytes, is_inline: bytes % 2 == 1 };
            let sending = Sending { payload, ..sending(1, Class::Send, bytes) };
            state.decide(&rules, &sending, 0, 0).fate.lost
        };
        (0..6).filter(|bytes| is_lost(*bytes)).collect()
    };
    assert_eq!(lost("drop inline"), [1, 3, 5]);
    // A packet without a payload took none from anywhere.
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
    // A repetition has another chance.
    let (rules, mut state) = (rules("drop 50%"), State::default());
    let mut fates = (0..64).map(|_| state.decide(&rules, &sending(1, Class::Send, 9), 0, 0));
    let first = fates.next().unwrap().fate.lost;
    assert!(fates.any(|decision| decision.fate.lost != first));
}

/// Threads that take turns in any order, each with flows of its own, meet the fates that one thread
/// meets.
#[test]
fn threads_change_nothing() {
    let rules = rules("seed=11; drop 20%; duplicate 10% of send; reorder 2 every 5; corrupt nth 7");
    let of_flow = |qp: u32| (0..200u32).map(move |at| sending(qp, Class::Send, at / 2));
    let alone: Vec<Vec<Fate>> = (1..5)
        .map(|qp| {
            let mut state = State::default();
            of_flow(qp).map(|send| state.decide(&rules, &send, 0, 0).fate).collect()
        })
        .collect();
    let state = std::sync::Mutex::new(State::default());
    let together: Vec<Vec<Fate>> = std::thread::scope(|scope| {
        let (state, rules, of_flow) = (&state, &rules, &of_flow);
        let threads = (1..5).map(|qp| {
            scope.spawn(move || {
                let decide = |send| state.lock().unwrap().decide(rules, &send, 0, 0).fate;
                of_flow(qp).map(decide).collect()
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
    let r = rules("drop 50%");
    let lost = |r: &Rules, qp: u32| -> Vec<bool> {
        let mut state = State::default();
        let one = |psn| state.decide(r, &sending(qp, Class::Send, psn), 0, 0).fate.lost;
        (0..64).map(one).collect()
    };
    let (slot_3, slot_9) = ((3 << 14) | 5, (9 << 14) | 5);
    assert_ne!(lost(&r, slot_3), lost(&r, slot_9));
    let r = r.with_qp_bits(14);
    assert_eq!(lost(&r, slot_3), lost(&r, slot_9));
    assert_ne!(lost(&r, slot_3), lost(&r, slot_3 + 1));
    // Members of a group are told apart by the rest.
    let member = |r: &Rules, slot: u32| -> Vec<bool> {
        let mut send = sending(Qpn::MULTICAST.get(), Class::Send, 0);
        send.flow.source_qp = Qpn::new(5 ^ slot << 14);
        let mut state = State::default();
        let one = |psn| state.decide(r, &Sending { psn: Psn::new(psn), ..send }, 0, 0).fate.lost;
        (0..64).map(one).collect()
    };
    assert_ne!(member(&r, 3), member(&r, 9));
}

#[test]
fn times_and_rates() {
    let r = rules("partition 1ms..2ms");
    let mut state = State::default();
    for (now_ns, expected) in [(999_999, false), (1_000_000, true), (1_999_999, true)] {
        let send = sending(1, Class::Send, 1);
        assert_eq!(state.decide(&r, &send, 0, now_ns).fate.lost, expected, "{now_ns}");
        assert_eq!(state.decide(&r, &send, 500, now_ns + 500).fate.lost, expected);
    }
    assert!(!state.decide(&r, &sending(1, Class::Send, 1), 0, 2_000_000).fate.lost);
    let r = rules("delay 50us of send; delay 1.5us");
    let decision = state.decide(&r, &sending(1, Class::Send, 1), 0, 100);
    assert_eq!(decision.due_ns, Some(100 + 51_500));
    let decision = state.decide(&r, &sending(1, Class::Ack, 1), 0, 100);
    assert_eq!(decision.due_ns, Some(100 + 1_500));
    let r = rules("delay 1us jitter 9us");
    let dues: Vec<u64> = (0..100)
        .filter_map(|psn| state.decide(&r, &sending(1, Class::Send, psn), 0, 0).due_ns)
        .collect();
    assert!(dues.iter().all(|due| (1_000..10_000).contains(due)));
    assert!(dues.iter().any(|due| *due > 8_000) && dues.iter().any(|due| *due < 3_000));
    // 1000 bytes at 8 Mbit/s take a millisecond, one after the other.
    let (r, mut state) = (rules("rate 8Mbit"), State::default());
    let mut due = || state.decide(&r, &sending(1, Class::Send, 1), 0, 0).due_ns.unwrap();
    assert_eq!((due(), due(), due()), (1_000_000, 2_000_000, 3_000_000));
}

#[test]
fn other_fates() {
    let (r, mut state) =
        (rules("duplicate nth 1; corrupt nth 2; reorder 3 nth 3"), State::default());
    let mut fate = |psn| state.decide(&r, &sending(1, Class::Send, psn), 0, 0).fate;
    assert_eq!(fate(0).copies, 1);
    assert!(fate(1).corrupt.is_some());
    assert_eq!(fate(2).behind, 3);
    assert_eq!(fate(3), Fate::default());
    assert_eq!(state.met(), [1, 1, 1]);
}

#[test]
fn mistakes_teach() {
    for (text, part) in [
        ("", "there is no rule"),
        ("seed=7", "there is no rule"),
        ("seed=x; drop", "\"x\" is no seed"),
        ("drop; loose 1%", "part 2 (loose 1%): \"loose\" is no action: those are drop,"),
        ("drop 1% of requets", "\"requets\" is no packet type: those are all, request"),
        ("drop 101%", "0% to 100% are"),
        ("drop -1%", "0% to 100% are"),
        ("drop 1", "\"1\" means nothing here"),
        ("drop of", "of needs packet types"),
        ("drop nth 0", "count from 1"),
        ("drop every 0", "never"),
        ("drop to nobody", "neither a queue pair"),
        ("drop psn 0x1000000", "24 bits"),
        ("drop 2s..1s", "ends before it begins"),
        ("drop 2..1", "no window of time"),
        ("delay", "needs a time"),
        ("delay 5", "is no time"),
        ("delay 61s", "60s at most"),
        ("rate fast", "is no rate"),
        ("rate 0bit", "is a drop"),
        ("reorder 0", "changes nothing"),
        ("partition", "needs its time"),
        ("drop over air", "memory or network"),
    ] {
        let error = Rules::parse(text).expect_err(text).to_string();
        assert!(error.contains(part), "{text}: {error}");
        assert!(!error.contains('\n'), "{error}");
    }
    let many = "drop;".repeat(MAX_RULES + 1);
    assert!(Rules::parse(&many).unwrap_err().to_string().contains("64 rules"));
    assert_eq!(rules(&"drop;".repeat(MAX_RULES)).rules().len(), MAX_RULES);
}

#[test]
fn what_is_held_is_bounded_and_comes_in_order() {
    let mut deferred = Deferred::default();
    for n in 0..crate::deferred::MAX_DEFERRED as u64 {
        deferred.until(1_000 - n % 10, 1, n).unwrap();
    }
    assert_eq!(deferred.until(0, 1, 0), Err(Full));
    assert_eq!(deferred.next_ns(), Some(991));
    assert_eq!(deferred.take_due(990), None);
    let first: Vec<u64> = (0..3).filter_map(|_| deferred.take_due(991)).collect();
    assert_eq!(first, [9, 19, 29]);
    let mut deferred = Deferred::default();
    deferred.until(1, crate::deferred::MAX_DEFERRED_BYTES, 1).unwrap();
    assert_eq!(deferred.until(1, 1, 2), Err(Full));
    assert_eq!(deferred.take_due(1), Some(1));
    assert!(deferred.is_empty());
    // Overtaken by two of its own flow, not by others.
    deferred.behind(flow(1, false), 2, 100, 1, 7).unwrap();
    assert!(!deferred.passed(&flow(2, false)) && !deferred.passed(&flow(1, true)));
    assert!(!deferred.passed(&flow(1, false)));
    assert_eq!(deferred.take_due(100), None);
    assert!(deferred.passed(&flow(1, false)));
    assert_eq!(deferred.take_due(100), Some(7));
    deferred.behind(flow(1, false), 2, 100, 1, 8).unwrap();
    assert_eq!(deferred.next_ns(), Some(100 + crate::deferred::OVERTAKING_NS));
    assert_eq!(deferred.take_due(100 + crate::deferred::OVERTAKING_NS), Some(8));
}

/// A packet that chances decide about.
fn subject() -> impl Strategy<Value = Subject> {
    let ends = (any::<u32>(), any::<u32>(), 0u32..1 << 24, 0u32..1 << 24, any::<bool>());
    let rest = (0u32..1 << 24, 0u32..9, any::<u32>(), any::<u64>(), any::<bool>());
    (ends, rest).prop_map(|((from, to, dst, src, is_response), rest)| {
        let (psn, transmission, bytes, since_ns, over_network) = rest;
        Subject {
            flow: Flow {
                source: std::net::Ipv4Addr::from_bits(from).into(),
                destination: std::net::Ipv4Addr::from_bits(to).into(),
                destination_qp: Qpn::new(dst),
                source_qp: Qpn::new(src),
                is_response,
            },
            medium: if over_network { Medium::Network } else { Medium::Memory },
            class: if is_response { Class::Ack } else { Class::Send },
            psn: Psn::new(psn),
            transmission,
            bytes,
            payload: Payload { bytes: bytes / 2, is_inline: bytes % 2 == 0 },
            since_ns,
        }
    })
}

proptest! {
    /// The verdict of a chance is a function of seed, rule, flow, PSN and transmission: what was
    /// judged before, the time, the length and what carries the packet do not matter.
    #[test]
    fn a_verdict_is_a_function_of_five_things(
        seed: u64,
        history in prop::collection::vec(subject(), 0..50),
        subject in subject(),
        (bytes, since_ns) in (any::<u32>(), any::<u64>()),
    ) {
        let text = "drop 30%; duplicate 30%; corrupt 30%; delay 1us jitter 9us 30%; reorder 3 30%";
        let rules = rules(&format!("seed={seed}; {text}"));
        let judged = |subject: &Subject| rules.judge(subject, &mut Counts::default());
        let alone = judged(&subject);
        let mut counts = Counts::default();
        for before in &history {
            rules.judge(before, &mut counts);
        }
        prop_assert_eq!(rules.judge(&subject, &mut counts), alone);
        let medium = match subject.medium {
            Medium::Memory => Medium::Network,
            Medium::Network => Medium::Memory,
        };
        let payload = Payload { bytes, is_inline: !subject.payload.is_inline };
        let other = Subject { bytes, payload, since_ns, medium, ..subject };
        prop_assert_eq!(judged(&other), alone);
    }

    /// Each of the five matters: over many numbers the fates differ.
    #[test]
    fn each_of_the_five_matters(seed: u64, subject in subject()) {
        let fates = |rules: &Rules, change: &dyn Fn(&mut Subject)| -> Vec<Fate> {
            let one = |at: u32| {
                let psn = Psn::new(subject.psn.get().wrapping_add(at) & 0xff_ffff);
                let mut subject = Subject { psn, ..subject };
                change(&mut subject);
                rules.judge(&subject, &mut Counts::default())
            };
            (0..200).map(one).collect()
        };
        let r = rules(&format!("seed={seed}; drop 50%"));
        let as_it_is = fates(&r, &|_| ());
        let other_seed = rules(&format!("seed={}; drop 50%", seed ^ 1));
        // Nothing is selected by the first rule; the second is another rule of the same text.
        let other_rule = rules(&format!("seed={seed}; duplicate 0%; drop 50%"));
        let lost = |fates: &[Fate]| fates.iter().map(|fate| fate.lost).collect::<Vec<_>>();
        prop_assert_ne!(lost(&fates(&other_seed, &|_| ())), lost(&as_it_is));
        prop_assert_ne!(lost(&fates(&other_rule, &|_| ())), lost(&as_it_is));
        prop_assert_ne!(fates(&r, &|s| s.transmission += 1), as_it_is.clone());
        prop_assert_ne!(fates(&r, &|s| s.flow.is_response ^= true), as_it_is.clone());
        prop_assert_ne!(
            fates(&r, &|s| s.flow.destination_qp = Qpn::new(s.flow.destination_qp.get() ^ 1)),
            as_it_is.clone()
        );
        prop_assert_ne!(
            fates(&r, &|s| s.flow.source = std::net::Ipv4Addr::from_bits(7).into()),
            as_it_is
        );
    }

    /// Flows in any order relative to each other meet the same fates.
    #[test]
    fn interleaving_changes_nothing(
        packets in prop::collection::vec((1u32..5, 0u32..40, any::<bool>()), 1..200),
        order in prop::collection::vec(any::<u32>(), 200),
        seed: u64,
    ) {
        let rules = rules(&format!(
            "seed={seed}; drop 20%; duplicate 10% again; delay 5us jitter 7us 30%; \
             corrupt nth 3 of send; reorder 2 every 4; drop 30% first of ack"
        ));
        let sendings: Vec<Sending> = packets
            .iter()
            .map(|(qp, psn, ack)| sending(*qp, if *ack { Class::Ack } else { Class::Send }, *psn))
            .collect();
        let play = |order: &[usize]| {
            let mut state = State::default();
            let mut fates = vec![Decision::default(); sendings.len()];
            for at in order {
                fates[*at] = state.decide(&rules, &sendings[*at], 0, 0);
            }
            fates
        };
        let in_order: Vec<usize> = (0..sendings.len()).collect();
        // Another order that keeps each flow's own.
        let mut shuffled = in_order.clone();
        shuffled.sort_by_key(|at| order[sendings[*at].flow.destination_qp.get() as usize]);
        prop_assert_eq!(play(&in_order), play(&shuffled));
    }
}

//! Trains on a shared part, compared with packets that wait for it one by one.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use rdmalab_random::Random;

use crate::booking::{Booking, Flow, Work};
use crate::shared::Shared;
use crate::span::Span;
use crate::time::Ps;

/// The longest time of a packet.
const SLOT: u64 = 1_000_000;
const FLOWS: usize = 8;

/// A train, when its packets come, and its flow.
#[derive(Clone, Copy, Debug)]
struct Drawn {
    came: Span,
    work: Work,
    flow: usize,
}

/// What trains are like.
struct Kind {
    flows: u64,
    trains: u64,
    packets: u64,
    /// The most slots between two trains of a flow.
    space: u64,
    /// Packets of a flow are so many times as long as those of another one.
    ratio: u64,
    /// Of a thousand trains, how many are bursts of single packets.
    bursts: u32,
}

const USUAL: Kind = Kind { flows: 5, trains: 8, packets: 60, space: 40, ratio: 1, bursts: 0 };

/// Trains in the order of coming. Hardly ever two things happen at the same time.
fn draw_trains(random: &mut Random, kind: &Kind) -> Vec<Drawn> {
    let mut trains = Vec::new();
    for flow in 0..=random.below(kind.flows) as usize {
        let mut at = random.below(kind.space * SLOT);
        let shorter = random.pick(&[1, kind.ratio]);
        for _ in 0..random.below(kind.trains) {
            let packets = 1 + random.below(kind.packets);
            let first = Ps((SLOT / 2 + random.below(SLOT / 2)) / shorter);
            let gap = random.pick(&[0, 0, 1, 2, 5]) * random.below(SLOT);
            if random.chance(kind.bursts) {
                for index in 0..packets {
                    let came = Span::at(Ps(at + gap * index + random.below(SLOT / 20)));
                    let work = Work { first, all: first, packets: 1 };
                    trains.push(Drawn { came, work, flow });
                }
            } else {
                // The last packet may be shorter. While a flow is alone, one that comes by itself
                // takes the time of a whole packet (`Span::through`).
                let short = if gap == 0 && packets > 1 { random.below(first.0) } else { 0 };
                let all = first * packets - Ps(short);
                let came = Span { first: Ps(at), last: Ps(at + gap * (packets - 1)) };
                trains.push(Drawn { came, work: Work { first, all, packets }, flow });
            }
            at += gap * packets + SLOT / 20 + random.below(kind.space * SLOT);
        }
    }
    trains.sort_by_key(|train| train.came.first);
    trains
}

/// What happens at a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Book,
    Come(usize),
    /// Whoever waits for the first packet of a train, or the last one, looks whether it has passed.
    Look(usize, bool),
}

/// When each train has passed, as who waits for it acts on it, and as its booking tells at the end.
fn pass_all(trains: &[Drawn]) -> [Vec<Span>; 2] {
    let mut link = Shared::default();
    let mut passed: Vec<(Span, Option<Booking>)> = Vec::new();
    let mut steps = BinaryHeap::new();
    let comes = |(index, train): (usize, &Drawn)| Reverse((train.came.first, Step::Come(index)));
    steps.extend(trains.iter().enumerate().map(comes));
    while let Some(Reverse((now, step))) = steps.pop() {
        match step {
            Step::Book => link.go_on(now),
            Step::Come(index) => {
                let Drawn { came, work, flow } = trains[index];
                let (told, booking) = link.pass(came, work, Flow::Node(flow));
                if booking.is_some() {
                    steps.push(Reverse((told.first, Step::Look(index, false))));
                    steps.push(Reverse((told.last, Step::Look(index, true))));
                }
                passed.push((told, booking));
            }
            Step::Look(index, is_last) => {
                let (told, Some(booking)) = &mut passed[index] else { continue };
                let Span { first, last } = booking.span();
                let (known, acted) =
                    if is_last { (last, &mut told.last) } else { (first, &mut told.first) };
                *acted = now;
                if known > now {
                    steps.push(Reverse((known, step)));
                }
            }
        }
        if matches!(step, Step::Book | Step::Come(_)) {
            steps.extend(link.goes_on_at(now).map(|at| Reverse((at, Step::Book))));
        }
    }
    let booked = |(told, booking): &(Span, Option<Booking>)| {
        booking.as_ref().map_or(*told, |booking| booking.span())
    };
    [passed.iter().map(|(told, _)| *told).collect(), passed.iter().map(booked).collect()]
}

/// The same, packet by packet: of the flows with a packet, the one that waits longest is next.
fn pass_packets(trains: &[Drawn]) -> Vec<Span> {
    let mut flows = [(); FLOWS].map(|()| VecDeque::new());
    for (index, Drawn { came, work, flow }) in trains.iter().enumerate() {
        for at in 0..work.packets {
            let part = (came.last - came.first).0 * at / (work.packets - 1).max(1);
            let is_last = at + 1 == work.packets;
            let time = if is_last { work.all - work.first * at } else { work.first };
            flows[*flow].push_back((came.first + Ps(part), time, index));
        }
    }
    let (mut until, mut served, mut spans) = (Ps::ZERO, [Ps::ZERO; FLOWS], Vec::new());
    spans.resize(trains.len(), Span::default());
    loop {
        let since = |(flow, packets): (usize, &VecDeque<(Ps, Ps, usize)>)| {
            packets.front().map(|(comes, ..)| ((*comes).max(served[flow]), flow))
        };
        let Some((since, flow)) = flows.iter().enumerate().filter_map(since).min() else {
            return spans;
        };
        let Some((_, time, train)) = flows[flow].pop_front() else { return spans };
        until = until.max(since) + time;
        served[flow] = until;
        let Span { first, last } = &mut spans[train];
        *first = if *first == Ps::ZERO { until } else { *first };
        *last = until;
    }
}

/// Trains of a kind pass as their packets do if these wait one by one. Nobody who waits for them
/// acts too early. In one set of a hundred somebody acts too late, by less than a packet: the time
/// that he knows becomes earlier, because packets that come change the order of others.
fn assert_like_packets(kind: &Kind, seeds: u64) {
    let mut late = 0;
    for seed in 0..seeds {
        let trains = draw_trains(&mut Random::new(seed), kind);
        let expected = pass_packets(&trains);
        let [acted, booked] = pass_all(&trains);
        assert_eq!(booked, expected, "seed {seed}: {trains:?}");
        for (acted, expected) in acted.iter().zip(&expected) {
            let times = [(acted.first, expected.first), (acted.last, expected.last)];
            for (acted, expected) in times {
                let allowed = expected..expected + Ps(SLOT);
                assert!(allowed.contains(&acted), "seed {seed}: {acted:?} {expected:?} {trains:?}");
            }
        }
        late += u64::from(acted != expected);
    }
    assert!(late <= seeds / 100, "{late} of {seeds}");
}

#[test]
fn trains_pass_as_their_packets() {
    assert_like_packets(&USUAL, 3000);
}

#[test]
fn short_trains_pass_as_their_packets() {
    assert_like_packets(&Kind { packets: 6, space: 4, ..USUAL }, 3000);
}

/// Many small packets of new flows end sooner than large ones that were booked before.
#[test]
fn packets_of_different_lengths_wait_one_by_one() {
    assert_like_packets(&Kind { packets: 100, space: 10, ratio: 16, ..USUAL }, 600);
    let many = Kind { flows: 8, trains: 12, packets: 100, space: 10, ratio: 16, bursts: 0 };
    assert_like_packets(&many, 200);
}

#[test]
fn bursts_of_single_packets_pass_in_turns() {
    assert_like_packets(&Kind { packets: 20, space: 10, bursts: 500, ..USUAL }, 2000);
    assert_like_packets(&Kind { packets: 4, space: 3, bursts: 700, ..USUAL }, 2000);
}

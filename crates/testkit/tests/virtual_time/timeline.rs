//! Where the time goes: the parts of the time between two posts add up to it exactly, and each is
//! what its parameters say. Looking changes nothing.

use rdmalab_experiments::sweep;
use rdmalab_measure::Stamp;
use rdmalab_rank::Rank;
use rdmalab_sim::{Breakdown, Component, Profile, Ps, Report, find};
use rdmalab_verbs::{RecvRequest, SendRequest};

use crate::experiments::cases;
use crate::lab::{Shape, connect, device_of, lab, model, wait};

const MESSAGES: usize = 10;
const BYTES: usize = 32;

/// Round trips; returns the time from the begin of the first post of rank 0 to that of its last
/// one, as the program sees it.
fn round_trips(profile: &Profile, is_inline: bool) -> (Ps, Report) {
    let (simulation, device) = lab(profile, 2);
    let (results, report) = simulation.with_timeline(0, 3).run(|rank| {
        let end = connect(rank, &device, Shape::default());
        let sges = [end.mr.sge(0, BYTES)];
        for _ in 0..MESSAGES {
            end.qp.post_recv(&[RecvRequest::new(&sges)]).unwrap();
        }
        rank.barrier()?;
        let send = SendRequest::send(&sges).signaled();
        let send = if is_inline { send.inline_data() } else { send };
        let mut stamps = Vec::new();
        for _ in 0..MESSAGES {
            if rank.index() == 1 {
                wait(rank, &end.recv_cq);
            }
            // The post begins when the stamp has ended.
            stamps.push(rank.now());
            end.qp.post_send(&[send]).unwrap();
            if rank.index() == 0 {
                wait(rank, &end.recv_cq);
            }
        }
        rank.barrier()?;
        Ok((stamps[0], *stamps.last().unwrap()))
    });
    let [Ok((Stamp(first), Stamp(last))), Ok(_)] = results[..] else { panic!("{results:?}") };
    (Ps(last - first), report)
}

fn sum(breakdown: &Breakdown) -> Ps {
    breakdown.by_component.iter().fold(Ps::ZERO, |sum, (_, time)| sum + *time)
}

/// The mean of a component in nanoseconds.
fn mean_ns(report: &Report, of: Component) -> f64 {
    let parts = &report.breakdown.by_component;
    let time = parts.iter().find(|(component, _)| *component == of).map_or(Ps::ZERO, |part| part.1);
    time.ns() / report.breakdown.messages as f64
}

#[test]
fn the_parts_add_up_to_the_time_from_post_to_post() {
    for (name, is_inline) in [("ideal", false), ("connectx4", true), ("connectx4", false)] {
        let (time, report) = round_trips(&find(name).unwrap(), is_inline);
        let breakdown = &report.breakdown;
        assert_eq!(breakdown.messages, MESSAGES as u64 - 1);
        assert_eq!((breakdown.total, sum(breakdown)), (time, time), "{name}: {breakdown:?}");
        // So do those of a single message.
        let steps = &report.timeline;
        let (first, last) = (steps.first().unwrap(), steps.last().unwrap());
        let path = steps.iter().filter_map(|step| step.on_path).fold(Ps::ZERO, |a, b| a + b);
        assert_eq!(path, last.at - first.at, "{name}: {steps:?}");
        assert_eq!(last.what, "the next post begins");
    }
}

/// Each time is a power of two, so that none can stand for another one.
#[test]
fn each_part_is_what_its_parameters_say() {
    let profile = model(&[
        ("stamp_ns", 2.0),
        ("post_ns", 4.0),
        ("poll_hit_ns", 8.0),
        ("poll_empty_ns", 1.0),
        ("mmio_ns", 16.0),
        ("wqe_read", 1.0),
        ("bus_read_ns", 64.0),
        ("send_ns", 128.0),
        ("switch_between_two", 1.0),
        ("switch_ns", 256.0),
        ("propagation_ns", 512.0),
        ("receive_ns", 1024.0),
        ("completion_ns", 4096.0),
        ("ack_delay_ns", 1e6),
    ]);
    let (_, report) = round_trips(&profile, false);
    for (component, round_trip_ns) in [
        (Component::Program, 2.0 * 2.0),
        (Component::Post, 2.0 * 4.0),
        (Component::Doorbell, 2.0 * 16.0),
        (Component::WqeRead, 2.0 * 64.0),
        // A SEND leaves 1 ps after what its queue pair sent before, at the earliest.
        (Component::PayloadRead, 2.0 * 64.0),
        (Component::SendEngine, 2.0 * 128.0),
        (Component::Switch, 2.0 * 256.0),
        (Component::Link, 4.0 * 512.0),
        (Component::ReceiveEngine, 2.0 * 1024.0),
        (Component::Completion, 2.0 * 4096.0),
        (Component::MemoryWrite, 0.0),
        (Component::Timer, 0.0),
    ] {
        let found = mean_ns(&report, component);
        assert!((found - round_trip_ns).abs() < 0.01, "{component:?}: {found} ns: {report:?}");
    }
    // Two polls that find something, each up to one look late.
    let poll = mean_ns(&report, Component::Poll);
    assert!((16.0..=18.0).contains(&poll), "{poll} ns");
}

/// The sum is exact whatever is measured, and the results are those without a timeline.
#[test]
fn looking_changes_nothing() {
    for (experiment, ranks, options) in cases() {
        let points = sweep(experiment, options).unwrap();
        let run = |watched: Option<usize>| {
            let (simulation, _) = lab(&find("connectx4").unwrap(), ranks);
            let simulation = simulation.with_seed(points[0].common.stream_seed());
            let device = device_of(&simulation);
            let simulation = match watched {
                Some(rank) => simulation.with_timeline(rank, 5),
                None => simulation,
            };
            simulation.run(|rank| rdmalab_experiments::run(rank, &device, &points[0]))
        };
        let (expected, plain) = run(None);
        for rank in 0..2 {
            let (results, report) = run(Some(rank));
            assert_eq!(format!("{results:?}"), format!("{expected:?}"), "{experiment} {options:?}");
            assert_eq!((report.time, report.events), (plain.time, plain.events));
            assert_eq!(sum(&report.breakdown), report.breakdown.total, "{experiment} {options:?}");
        }
    }
}

//! Labels results with the profile, the capture and the fault rules that influenced them. The
//! process that applied them adds the labels, so that environment variables and remote servers are
//! covered too.

use std::path::Path;

use rdmalab_engine::odp::Counters;
use rdmalab_engine::qp::Tally;
use rdmalab_experiments::Point;
use rdmalab_measure::{Outcome, at_rank};
use rdmalab_softnic::{DelayCounts, HooksState, Profile};
use rdmalab_verbs::{Device, Kind};

use super::hw_counters::{DEVICES, HwCounters};
use crate::device_counts::{push_packets, push_pages};

/// The capture and fault rules of this process at some time, what its device had counted, and the
/// profile of the device.
pub struct HooksSnapshot {
    hooks: HooksState,
    pages: Counters,
    tally: Option<Tally>,
    /// Waits that had ended, and those that had ended late.
    waits: (u64, u64),
    profile: Option<&'static Profile>,
    /// What a port of an adapter had counted: its device, number and counters.
    port: (String, u8, HwCounters),
}

impl HooksSnapshot {
    /// The state now; on devices that are not soft, nothing is captured or disturbed.
    pub fn of(device: &Device, port: u8) -> Self {
        let (hooks, pages, tally) = match device.kind() {
            Kind::Soft => (
                rdmalab_softnic::hooks(),
                rdmalab_softnic::page_counters(),
                rdmalab_softnic::tally(),
            ),
            _ => (HooksState::default(), Counters::default(), Some(Tally::default())),
        };
        let counters = match device.kind() {
            Kind::System => HwCounters::of(Path::new(DEVICES), &device.name(), port),
            _ => HwCounters::default(),
        };
        let port = (device.name(), port, counters);
        let (waits, profile) = (rdmalab_softnic::waits(), crate::soft::profile(device));
        Self { hooks, pages, tally, waits, profile, port }
    }

    /// The results of this rank at a point since then, with labels.
    pub fn labelled(self, measured: Outcome, rank: usize, point: &Point) -> Outcome {
        let now = rdmalab_softnic::hooks();
        let disturbed = now.disturbed_packets - self.hooks.disturbed_packets;
        let mut measured = label(measured, rank, &self.hooks, disturbed);
        push_delays(&mut measured, rank, now.delays.since(&self.hooks.delays));
        let (device, port, before) = &self.port;
        if *before != HwCounters::default() {
            let now = HwCounters::of(Path::new(DEVICES), device, *port);
            now.push_since(before, &mut measured, rank);
        }
        let pages = rdmalab_softnic::page_counters().since(&self.pages);
        push_pages(&mut measured, rank, pages.named().into_iter());
        match rdmalab_softnic::tally().zip(self.tally) {
            Some((now, before)) => {
                let counted = now.since(&before);
                push_packets(&mut measured, rank, point, counted.named().into_iter());
            }
            None => measured.warnings.push(format!(
                "packets of rank {rank} were not counted, because a thread kept a queue pair locked"
            )),
        }
        let (waits, late) = rdmalab_softnic::waits();
        let waits = (waits - self.waits.0, late - self.waits.1);
        push_waits(&mut measured, rank, waits);
        match self.profile {
            None => measured,
            Some(profile) => under(measured, rank, profile),
        }
    }
}

/// Says how many waits for pages and pauses lasted longer than the profile says.
fn push_waits(measured: &mut Outcome, rank: usize, (ended, late): (u64, u64)) {
    if ended > 0 {
        measured.push_count(&at_rank("waits", rank), ended);
        measured.push_count(&at_rank("late_waits", rank), late);
    }
    if late > 0 {
        measured.warnings.push(format!(
            "{late} of {ended} waits of 50 us or more at rank {rank} (page faults and pauses) \
             lasted more than 10 % too long: its threads slept or computed, or other programs had \
             the processors"
        ));
    }
}

/// The results of another program on a device, with the device's profile.
pub fn under_profile(measured: Outcome, device: &Device) -> Outcome {
    match crate::soft::profile(device) {
        None => measured,
        Some(profile) => under(measured, 0, profile),
    }
}

fn under(mut measured: Outcome, rank: usize, profile: &Profile) -> Outcome {
    measured.push_fact(&at_rank("profile", rank), &profile.name);
    measured.warnings.push(format!(
        "the device was under the profile {} ({}): these are numbers of that profile, not of a \
         device without it, and of no adapter",
        profile.name,
        profile.does()
    ));
    measured
}

fn label(mut measured: Outcome, rank: usize, hooks: &HooksState, disturbed: u64) -> Outcome {
    let at = |name: &str| at_rank(name, rank);
    if let Some(rules) = &hooks.faults {
        measured.push_fact(&at("faults"), rules);
        measured.push_count(&at("disturbed_packets"), disturbed);
        measured.warnings.push(format!(
            "packets were disturbed on purpose ({rules}), and one-sided operations took the ring: \
             the numbers show these conditions, not the device"
        ));
    }
    if let Some(file) = &hooks.capture {
        let name = file.file_name().unwrap_or_default();
        measured.push_fact(&at("capture"), name.display());
        measured.warnings.push(
            "packets were captured: each was copied, and one-sided operations took the ring: \
             compare with other captured runs only"
                .to_owned(),
        );
    }
    measured
}

/// Adds how many packets left after a delay, and how many of them late.
fn push_delays(measured: &mut Outcome, rank: usize, delays: DelayCounts) {
    if delays.left == 0 {
        return;
    }
    measured.push_count(&at_rank("delayed_packets", rank), delays.left);
    measured.push_count(&at_rank("late_packets", rank), delays.late);
    if delays.late > 0 {
        measured.warnings.push(format!("rank {rank}: {delays}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_done_is_said_and_by_whom() {
        let hooks = HooksState {
            capture: Some("/somewhere/a.pcapng".into()),
            faults: Some("drop 1%".to_owned()),
            disturbed_packets: 5,
            ..HooksState::default()
        };
        let of = |rank| label(Outcome::default(), rank, &hooks, 7);
        assert_eq!(of(0).fact("faults"), Some("drop 1%"));
        assert_eq!(of(1).fact("faults_at_rank_1"), Some("drop 1%"));
        assert_eq!(of(0).fact("capture"), Some("a.pcapng"));
        assert_eq!(of(1).counts[0].name, "disturbed_packets_at_rank_1");
        assert_eq!((of(1).counts[0].value, of(0).warnings.len()), (7, 2));
        let profile = rdmalab_softnic::find_profile("late-ack").unwrap();
        let under = |rank| under(Outcome::default(), rank, &profile);
        assert_eq!(under(0).fact("profile"), Some("late-ack"));
        assert_eq!(under(2).fact("profile_at_rank_2"), Some("late-ack"));
        assert!(under(0).warnings[0].contains("late-ack (delay 200us of ack)"));
        let mut timely = Outcome::default();
        push_waits(&mut timely, 1, (0, 0));
        assert_eq!(timely, Outcome::default());
        push_waits(&mut timely, 1, (5, 0));
        assert_eq!((timely.count("waits_at_rank_1"), timely.warnings.len()), (Some(5), 0));
        let mut late = Outcome::default();
        push_waits(&mut late, 0, (5, 2));
        assert_eq!(late.count("late_waits"), Some(2));
        assert!(late.warnings[0].starts_with("2 of 5 waits"), "{late:?}");
        let calm = label(Outcome::default(), 0, &HooksState::default(), 0);
        assert_eq!(calm, Outcome::default());
    }

    #[test]
    fn late_packets_are_counted_and_mentioned_if_there_are_any() {
        let of = |left, late| {
            let mut measured = Outcome::default();
            push_delays(&mut measured, 1, DelayCounts { left, late, late_ns: late * 2_500 });
            measured
        };
        assert_eq!(of(0, 0), Outcome::default());
        assert_eq!((of(9, 0).counts.len(), of(9, 0).warnings.len()), (2, 0));
        let late = of(9, 4);
        assert_eq!(
            (late.counts[1].name.as_str(), late.counts[1].value),
            ("late_packets_at_rank_1", 4)
        );
        let expected = "rank 1: 4 of 9 delayed packets left more than 1 us after they were due, \
                        2.5 us on average";
        assert_eq!(late.warnings, [expected]);
    }
}

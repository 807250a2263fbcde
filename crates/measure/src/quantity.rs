//! Names of what is measured, with units, so that a table always says what a number is.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Declares the quantities, each with all that is known of it. A new quantity is one entry here:
/// records, tables, charts and expectations take everything from it.
macro_rules! quantities {
    ($($(#[$doc:meta])* $name:ident = $facts:expr;)+) => {
        /// What a number is. Results of different quantities are not compared.
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
        )]
        #[serde(rename_all = "snake_case")]
        pub enum Quantity {
            $($(#[$doc])* $name,)+
        }

        impl Quantity {
            /// All of them, in the order of declaration.
            pub const ALL: [Self; [$(stringify!($name)),+].len()] = [$(Self::$name),+];

            const fn facts(self) -> &'static Facts {
                match self {
                    $(Self::$name => const { &$facts },)+
                }
            }
        }
    };
}

/// Which way a quantity is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// More, as of a rate.
    More,
    /// Less, as of a time.
    Less,
    /// Neither: it only describes something, such as the true length of a time-out.
    Neither,
}

/// All that is known of a quantity.
struct Facts {
    /// The name for tables.
    name: &'static str,
    /// The name of a field that holds it.
    field: &'static str,
    /// The unit that this name ends with.
    suffix: &'static str,
    /// Which way it is better.
    better: Better,
    /// What it means, for readers who did not measure it: a part of a sentence.
    meaning: &'static str,
    /// Whether it begins at one end and is over at the other.
    is_between_ends: bool,
    /// Whether a share is shown in percent.
    is_percent: bool,
    /// Whether a report also shows its values side by side, since they are of several ranks.
    is_ranked: bool,
    /// Whether its samples are those of intervals, one after the other.
    is_of_intervals: bool,
}

impl Facts {
    const fn of(
        better: Better,
        name: &'static str,
        field: &'static str,
        suffix: &'static str,
        meaning: &'static str,
    ) -> Self {
        Self {
            name,
            field,
            suffix,
            better,
            meaning,
            is_between_ends: false,
            is_percent: false,
            is_ranked: false,
            is_of_intervals: false,
        }
    }
}

use Better::{Less, More, Neither};

/// From this [`Quantity::MissedShare`] on, other results of a point are those of few samples.
pub const MISSED_MAX: f64 = 0.1;

quantities! {
    /// From the stamp before the post at the sender to the stamp after the arrival at the
    /// receiver. Needs one clock, or two and the error between them.
    OneWay = Facts {
        is_between_ends: true,
        ..Facts::of(
            Less, "one-way", "one_way_ns", "ns",
            "from the stamp before the post at the sender to the stamp after the arrival at the \
             receiver",
        )
    };
    /// From the moment when the adapter copied the payload to the stamp after the arrival. A thread
    /// keeps writing the time into the payload, so the received payload holds the time of the copy.
    OneWayFromCopy = Facts {
        is_between_ends: true,
        ..Facts::of(
            Less, "one-way from copy", "one_way_from_copy_ns", "ns",
            "from the moment when the payload was copied for sending to the stamp after the \
             arrival",
        )
    };
    /// From the stamp before the post to the arrival of the answer, at one end.
    RoundTrip = Facts::of(
        Less, "round trip", "round_trip_ns", "ns",
        "from the stamp before the post to the arrival of the answer",
    );
    /// Half of [`Quantity::RoundTrip`]: equals the one-way time only where both ways are alike.
    HalfRoundTrip = Facts::of(
        Less, "RTT/2", "half_round_trip_ns", "ns",
        "half of a round trip: the one-way time only where both ways are alike",
    );
    /// Messages or operations per second, counted where they arrive.
    Rate = Facts::of(
        More, "rate", "rate_per_s", "per_s",
        "messages per second, counted where they arrive",
    );
    /// Bytes per second, counted where they arrive.
    Bandwidth = Facts::of(
        More, "bandwidth", "bandwidth_bytes_per_s", "bytes_per_s",
        "bytes per second, counted where they arrive",
    );
    /// Bytes per second that a source of samples gives: its rate times the bytes of a sample,
    /// without the ticks that it missed.
    OfferedBandwidth = Facts::of(
        More, "offered bandwidth", "offered_bytes_per_s", "bytes_per_s",
        "bytes per second of the samples that the source makes, without the ticks that it missed",
    );
    /// The time that a post call takes, until it returns.
    PostCost = Facts::of(
        Less, "post cost", "post_cost_ns", "ns",
        "the time that a post call takes until it returns",
    );
    /// From the stamp before the post to the completion polled at the same end.
    CompletionTime = Facts::of(
        Less, "completion time", "completion_time_ns", "ns",
        "from the stamp before the post to the completion polled at the same end",
    );
    /// From the stamp before the first post of several operations until the last of them, or the
    /// operation that a label names, is done. Of a program: from its start to the end of its first
    /// process.
    ExecutionTime = Facts::of(
        Less, "execution time", "execution_time_ns", "ns",
        "from the stamp before the first post until the last operation, or a named one, is done; \
         of a program, from its start to the end of its first process",
    );
    /// The time of the whole run over the number of messages: the reciprocal of the rate.
    MessageTime = Facts::of(
        Less, "time per message", "message_time_ns", "ns",
        "the time of the whole run over the number of messages",
    );
    /// The time of a call that is not a post, until it returns.
    CallCost = Facts::of(
        Less, "call cost", "call_cost_ns", "ns",
        "the time of a call that is not a post, until it returns",
    );
    /// From the begin of making something, such as a connection, until it can be used.
    SetupTime = Facts::of(
        Less, "set-up time", "setup_time_ns", "ns",
        "from the begin of making something until it can be used",
    );
    /// How long something waits for an answer before it acts, as measured. It may be longer or
    /// shorter than the nominal time.
    Timeout = Facts::of(
        Neither, "time-out", "timeout_ns", "ns",
        "how long something waits for an answer before it acts",
    );
    /// The share of trials in which an adapter waited for a time-out.
    TimeoutShare = Facts {
        is_percent: true,
        ..Facts::of(
            Less, "share of trials with a time-out", "timeout_share", "share",
            "trials with an operation that took longer than the least time-out, over all trials",
        )
    };
    /// The share of a timer's ticks that were over before the source of samples got to them.
    MissedShare = Facts {
        is_percent: true,
        ..Facts::of(
            Less, "missed share", "missed_share", "share",
            "ticks that were over before the source got to them, over all ticks",
        )
    };
    /// The share of the samples of a source that did not arrive.
    LostShare = Facts {
        is_percent: true,
        ..Facts::of(
            Less, "lost share", "lost_share", "share",
            "samples that did not arrive, over all samples of the source",
        )
    };
    /// The share of the samples of a source that arrived once more.
    DuplicateShare = Facts {
        is_percent: true,
        ..Facts::of(
            Less, "duplicate share", "duplicate_share", "share",
            "samples that arrived once more, over all samples of the source",
        )
    };
    /// Packets of a kind, which a label names, that a rank sends in a run: the mean of the runs.
    Packets = Facts::of(
        Neither, "packets of a run", "run_packets", "packets",
        "packets that a rank sends in a run, the mean of the runs",
    );
    /// Pages to which something happens, which a label names, in each interval of a program's run.
    IntervalPages = Facts {
        is_of_intervals: true,
        ..Facts::of(
            Neither, "pages in an interval", "interval_pages", "pages",
            "pages that were missing, taken away or prefetched in one of the equal intervals of a \
             program's run, the length of which is the fact page_interval_ns",
        )
    };
    /// How many messages go by until a series repeats itself.
    Period = Facts::of(
        Neither, "period", "period_messages", "messages",
        "messages until the round trips repeat themselves",
    );
    /// By how much a repeating pattern stands out at most.
    PeakHeight = Facts::of(
        Neither, "peak height", "peak_height_ns", "ns",
        "by how much the highest peak of what repeats itself stands out",
    );
    /// How evenly several are served: the index of Jain, Chiu and Hawe; 1 where all are alike.
    Fairness = Facts::of(
        More, "fairness (Jain)", "fairness_share", "share",
        "how evenly all are served: 1 is alike, 1/n is one of n alone",
    );
    /// Processor time, user and system, over elapsed time, of one rank: 1 is one busy core. A
    /// processor that polls is no worse off than one that sleeps.
    CpuShare = Facts {
        is_percent: true,
        is_ranked: true,
        ..Facts::of(
            Neither, "CPU", "cpu_share", "share",
            "processor time over elapsed time: 100 % is one busy core",
        )
    };
    /// The part of [`Quantity::CpuShare`] that was spent in the kernel; the rest is the program's.
    KernelShare = Facts {
        is_percent: true,
        is_ranked: true,
        ..Facts::of(
            Neither, "CPU in the kernel", "kernel_share", "share",
            "the part of the processor time that was spent in the kernel, over elapsed time",
        )
    };
}

impl Quantity {
    /// The name for tables.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.facts().name
    }

    /// The name of a field that holds it, with its unit: for records.
    #[must_use]
    pub const fn field(self) -> &'static str {
        self.facts().field
    }

    /// What it means, for readers who did not measure it: a part of a sentence.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        self.facts().meaning
    }

    /// The unit as names of fields end with it, see [`crate::unit::SUFFIXES`].
    #[must_use]
    pub const fn suffix(self) -> &'static str {
        self.facts().suffix
    }

    /// The unit of its values: `ns`, `1/s`, `B/s`, `messages`, `packets`, or `1` for a share.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self.suffix() {
            "per_s" => "1/s",
            "bytes_per_s" => "B/s",
            "share" => "1",
            same => same,
        }
    }

    /// Which way it is better.
    #[must_use]
    pub const fn better(self) -> Better {
        self.facts().better
    }

    /// Whether it begins at one end and is over at the other, so that the difference of the two
    /// clocks is in the value.
    #[must_use]
    pub const fn is_between_ends(self) -> bool {
        self.facts().is_between_ends
    }

    /// Whether a report shows its values side by side, since they are of several ranks, beside the
    /// curve over what varies.
    #[must_use]
    pub const fn is_ranked(self) -> bool {
        self.facts().is_ranked
    }

    /// Whether its samples are those of intervals, one after the other: when something happened,
    /// and so no number that is compared.
    #[must_use]
    pub const fn is_of_intervals(self) -> bool {
        self.facts().is_of_intervals
    }

    /// Whether more is better; else less is, or neither: see [`Quantity::better`].
    #[must_use]
    pub const fn more_is_better(self) -> bool {
        matches!(self.better(), Better::More)
    }

    /// A value, kept in [`Quantity::unit`], for people.
    #[must_use]
    pub fn format(self, value: f64) -> String {
        match self.suffix() {
            "per_s" => fmt_rate(value),
            "bytes_per_s" => fmt_bandwidth(value),
            "share" if self.facts().is_percent => fmt_percent(value),
            "share" => format!("{value:.3}"),
            "packets" if value.fract() != 0.0 => format!("{value:.1}"),
            "messages" | "packets" | "pages" => format!("{value:.0}"),
            _ => fmt_ns(value),
        }
    }
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// A share in whole percent; below 1 % with two significant digits.
#[must_use]
pub fn fmt_percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent {
        0.0..1.0 if percent > 0.0 => {
            let digits = (1.0 - percent.log10().floor()).min(9.0) as usize;
            format!("{percent:.digits$} %")
        }
        _ => format!("{percent:.0} %"),
    }
}

/// A time: three significant digits in ns, us, ms or s.
#[must_use]
pub fn fmt_ns(ns: f64) -> String {
    scaled(ns, &[(1.0, "ns"), (1e3, "us"), (1e6, "ms"), (1e9, "s")])
}

/// A rate: three significant digits in 1/s, k/s, M/s or G/s.
#[must_use]
pub fn fmt_rate(per_s: f64) -> String {
    scaled(per_s, &[(1.0, "1/s"), (1e3, "k/s"), (1e6, "M/s"), (1e9, "G/s")])
}

/// A bandwidth: three significant digits in B/s, kB/s, MB/s or GB/s, powers of ten.
#[must_use]
pub fn fmt_bandwidth(bytes_per_s: f64) -> String {
    scaled(bytes_per_s, &[(1.0, "B/s"), (1e3, "kB/s"), (1e6, "MB/s"), (1e9, "GB/s")])
}

/// Three significant digits with the largest unit that leaves at least 1; beyond 999 of the
/// largest unit, whole ones.
fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    if !value.is_finite() {
        return value.to_string();
    }
    // What rounds to 0 has no sign.
    let value = if value.abs() < 0.005 * units[0].0 { 0.0 } else { value };
    let mut text = String::new();
    for &(scale, unit) in units {
        let number = value / scale;
        // What a value rounds to decides the unit, so that 999.7 ns is 1.00 us.
        let digits = match number.abs() {
            n if n < 9.995 => 2,
            n if n < 99.95 => 1,
            _ => 0,
        };
        text = format!("{number:.digits$} {unit}");
        if number.abs() < 999.5 {
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_digits_and_the_unit_that_fits() {
        for (ns, text) in [
            (0.0, "0.00 ns"),
            (0.456, "0.46 ns"),
            (9.996, "10.0 ns"),
            (103.4, "103 ns"),
            (999.4, "999 ns"),
            (999.7, "1.00 us"),
            (5_123.0, "5.12 us"),
            (99_960.0, "100 us"),
            (1.2e6, "1.20 ms"),
            (2e9, "2.00 s"),
            (4.2e12, "4200 s"),
            (-103.4, "-103 ns"),
            (-0.004, "0.00 ns"),
            (-0.0, "0.00 ns"),
            (-0.006, "-0.01 ns"),
            (f64::NAN, "NaN"),
        ] {
            assert_eq!(fmt_ns(ns), text);
        }
    }

    #[test]
    fn rates_and_bandwidths_use_powers_of_ten() {
        assert_eq!(fmt_rate(137e6), "137 M/s");
        assert_eq!(fmt_rate(21.84e6), "21.8 M/s");
        assert_eq!(fmt_rate(12.0), "12.0 1/s");
        assert_eq!(fmt_bandwidth(58.04e9), "58.0 GB/s");
        assert_eq!(fmt_bandwidth(1.5e12), "1500 GB/s");
    }

    #[test]
    fn names_and_fields_are_distinct_and_carry_their_unit() {
        for (i, a) in Quantity::ALL.iter().enumerate() {
            for b in &Quantity::ALL[i + 1..] {
                assert_ne!(a.name(), b.name());
                assert_ne!(a.field(), b.field());
            }
            assert_eq!(crate::unit::of_name(a.field()), Some(a.suffix()), "{a:?}");
            assert!(!a.meaning().is_empty() && !a.meaning().ends_with('.'), "{a:?}");
            let is_time = a.suffix() == "ns";
            assert!(a.more_is_better() || !a.suffix().ends_with("per_s"), "{a:?}");
            let is_bad = is_time || a.facts().is_percent;
            assert!(a.better() != Better::Less || is_bad, "{a:?}");
        }
    }

    #[test]
    fn what_is_no_better_either_way_is_neither() {
        use Better::{Less, More, Neither};
        for (quantity, better) in [
            (Quantity::RoundTrip, Less),
            (Quantity::CallCost, Less),
            (Quantity::Rate, More),
            (Quantity::Fairness, More),
            (Quantity::Timeout, Neither),
            (Quantity::ExecutionTime, Less),
            (Quantity::TimeoutShare, Less),
            (Quantity::MissedShare, Less),
            (Quantity::Period, Neither),
            (Quantity::PeakHeight, Neither),
            (Quantity::CpuShare, Neither),
        ] {
            assert_eq!(quantity.better(), better, "{quantity}");
            assert_eq!(quantity.more_is_better(), better == More, "{quantity}");
        }
    }

    #[test]
    fn a_quantity_formats_in_its_own_unit() {
        assert_eq!(Quantity::OneWay.format(1500.0), "1.50 us");
        assert_eq!(Quantity::Rate.format(1500.0), "1.50 k/s");
        assert_eq!(Quantity::Bandwidth.format(1500.0), "1.50 kB/s");
        assert_eq!([1500.0, 0.3].map(|n| Quantity::Packets.format(n)), ["1500", "0.3"]);
        let percent = [1.0, 0.0151, 0.0068, 0.00005, 0.0].map(|n| Quantity::MissedShare.format(n));
        assert_eq!(percent, ["100 %", "2 %", "0.68 %", "0.0050 %", "0 %"]);
        assert_eq!(format!("{:>8}", Quantity::HalfRoundTrip), "   RTT/2");
    }
}

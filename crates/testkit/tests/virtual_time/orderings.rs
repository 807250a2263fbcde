//! Which of two published values is larger, the models say as well: each profile against the values
//! of `studies/*/published.csv` that are there to calibrate it.

use std::collections::BTreeMap;

use rdmalab_experiments::Experiment;
use rdmalab_measure::{Outcome, Quantity};
use rdmalab_sim::find;

use crate::lab::{Options, outcome};

/// Two values are clearly apart if one is larger by this factor.
const APART: f64 = 1.05;

/// A published value, and the point behind it with fewer messages.
struct Row {
    metric: &'static str,
    experiment: Experiment,
    ranks: usize,
    options: &'static [Options],
    number: Number,
}

/// A number of a result.
#[derive(Clone, Copy)]
enum Number {
    /// A quantile of a series.
    Quantile(Quantity, &'static str, f64),
    /// A figure.
    Figure(&'static str),
    /// One number less another one of other options.
    Less(&'static [Options], &'static Number),
}

use Number::{Figure, Less, Quantile};

impl Number {
    fn of(self, outcome: &Outcome) -> f64 {
        match self {
            Figure(label) => {
                let found = outcome.figures.iter().find(|figure| figure.label == label);
                found.unwrap_or_else(|| panic!("no {label}: {outcome:?}")).value
            }
            Quantile(quantity, label, share) => {
                let is_it =
                    |s: &&rdmalab_measure::Series| s.quantity == quantity && s.label == label;
                let series = outcome.series.iter().find(is_it);
                let series = series.unwrap_or_else(|| panic!("no {quantity:?} {label}"));
                let mut all: Vec<f64> = series.counted().collect();
                all.sort_by(f64::total_cmp);
                all[(share * (all.len() - 1) as f64).round() as usize]
            }
            Less(..) => unreachable!("it needs two results"),
        }
    }
}

impl Row {
    fn simulated(&self, profile: &str) -> f64 {
        let measured = |options: &[Options], number: Number| {
            let options = options.concat();
            number.of(&outcome(&find(profile).unwrap(), self.ranks, self.experiment, &options))
        };
        match self.number {
            Less(options, number) => measured(self.options, *number) - measured(options, *number),
            number => measured(self.options, number),
        }
    }
}

/// The published values of a study in ns, by metric.
fn published(text: &'static str) -> BTreeMap<&'static str, f64> {
    let scales = [("ns", 1.0), ("us", 1e3), ("ms", 1e6)];
    let of = |line: &'static str| {
        let mut fields = line.split(',');
        let (metric, value, unit) = (fields.next()?, fields.next()?, fields.next()?);
        let (_, scale) = scales.iter().find(|(name, _)| *name == unit)?;
        Some((metric, value.trim_start_matches('~').parse::<f64>().ok()? * scale))
    };
    text.lines().filter_map(of).collect()
}

/// What a model gets wrong, and the pairs of values that are out of order by it, the smaller one
/// first.
type Deficit = (&'static str, &'static [(&'static str, &'static str)]);

/// Holds each pair of values that are clearly apart against the model. The lists of `deficits` only
/// shrink: a pair that is in order is to be taken out, and no pair is to be added.
fn hold(profile: &str, csv: &'static str, rows: &[Row], deficits: &[Deficit]) {
    let published = published(csv);
    let of = |row: &Row| (row.metric, published[row.metric], row.simulated(profile));
    let both: Vec<(&str, f64, f64)> = rows.iter().map(of).collect();
    let known: Vec<(&str, &str)> = deficits.iter().flat_map(|(_, pairs)| *pairs).copied().collect();
    let (mut wrong, mut mended, mut pairs) = (Vec::new(), Vec::new(), 0);
    for (small, theirs, ours) in &both {
        let larger = both.iter().filter(|(_, larger, _)| theirs * APART < *larger);
        for (large, _, larger_ours) in larger {
            pairs += 1;
            match (ours < larger_ours, known.contains(&(*small, *large))) {
                (false, false) => wrong.push((*small, *large)),
                (true, true) => mended.push((*small, *large)),
                _ => {}
            }
        }
    }
    assert!(pairs > 10, "{profile}: {pairs} pairs only");
    assert!(wrong.is_empty(), "{profile}: out of order: {wrong:?}, of {both:#?}");
    assert!(mended.is_empty(), "{profile}: in order by now, take them out: {mended:?}");
}

const BURST: Options = &[("messages", "400"), ("runs", "2"), ("pause", "0"), ("warm-up", "0")];
const IMM: Options = &[("op", "send_imm"), ("size", "32")];
const OFF: Options = &[("inline", "off")];
const ON: Options = &[("inline", "on")];
const RC: Options = &[("transport", "rc")];
const UC: Options = &[("transport", "uc")];
const UD: Options = &[("transport", "ud")];
const ONE_WAY: Number = Quantile(Quantity::OneWay, "t_lat", 0.5);

const fn oneway(metric: &'static str, options: &'static [Options], number: Number) -> Row {
    Row { metric, experiment: Experiment::ONEWAY, ranks: 2, options, number }
}

#[test]
fn connectx4_has_the_order_of_potter2018() {
    let copy = Quantile(Quantity::OneWayFromCopy, "t_lat_send", 0.5);
    let rows = [
        oneway("event.rc.median", &[BURST, IMM, OFF, RC, &[("poll", "event")]], ONE_WAY),
        oneway("busy.rc.median", &[BURST, IMM, OFF, RC], ONE_WAY),
        oneway(
            "send_ts.median_from_send",
            &[BURST, IMM, OFF, UC, &[("stamps", "subm,send,recv")]],
            copy,
        ),
        oneway(
            "send_ts.median_from_submit",
            &[BURST, IMM, OFF, UC, &[("stamps", "subm,send,recv")]],
            ONE_WAY,
        ),
        oneway("inline.off.median", &[BURST, IMM, OFF, UC], ONE_WAY),
        oneway("inline.on.median", &[BURST, IMM, ON, UC], ONE_WAY),
        oneway("unsignaled.min_median", &[BURST, IMM, ON, UC, &[("signal-every", "max")]], ONE_WAY),
        Row {
            metric: "timestamp_save.cost",
            experiment: Experiment::OVERHEAD,
            ranks: 2,
            options: &[&[("messages", "50"), ("warm-up", "0"), ("list", "1")]],
            number: Quantile(Quantity::CallCost, "nothing, two stamps", 0.5),
        },
    ];
    let deficits: [Deficit; 1] = [(
        "a completion for each message costs nothing in a burst",
        &[("unsignaled.min_median", "inline.on.median")],
    )];
    let csv = include_str!("../../../../studies/potter2018/published.csv");
    hold("connectx4", csv, &rows, &deficits);
}

const TRIPS: Options = &[("messages", "3000"), ("runs", "1"), ("size", "128"), ("warm-up", "0")];
const OWN: Options = &[("queue", "own")];
const SRQ: Options = &[("queue", "srq")];
const ONE: Options = &[("rx-depth", "1")];
const FEW: Options = &[("rx-depth", "16")];
const MORE: Options = &[("rx-depth", "32")];
const MANY: Options = &[("rx-depth", "10000")];
const CALLS: Options = &[("messages", "20"), ("warm-up", "5"), ("max-sge", "1"), ("work", "2us")];

/// Round trips at the client; of what comes every so often, the share up to it.
const fn trips(metric: &'static str, options: &'static [Options], share: f64) -> Row {
    let number = Quantile(Quantity::RoundTrip, "rank 0", share);
    Row { metric, experiment: Experiment::RECVQ, ranks: 2, options, number }
}

const fn calls(metric: &'static str, options: &'static [Options]) -> Row {
    let number = Quantile(Quantity::RoundTrip, "", 0.5);
    Row { metric, experiment: Experiment::RPC, ranks: 2, options, number }
}

const DEFICITS_OF_CONNECTX2: [Deficit; 5] = [
    (
        "queues of one receive cost nothing: 5.6 us instead of 12.5 and 17 us in an own one",
        &[
            ("n1.rq.mode_low", "n1.rq.mode_high"),
            ("n1.srq", "n1.rq.mode_low"),
            ("n1.srq", "n1.rq.mode_high"),
            ("cp.r0.write100.sge1", "n1.rq.mode_low"),
            ("cp.r0.write100.sge1", "n1.rq.mode_high"),
            ("cp.r0.read1K.sge1", "n1.rq.mode_low"),
            ("cp.r0.read1K.sge1", "n1.rq.mode_high"),
            ("cp.r0.read10K.sge1", "n1.rq.mode_low"),
            ("cp.r0.read10K.sge1", "n1.rq.mode_high"),
        ],
    ),
    (
        "the end of a short ring costs nothing: 5.55 us instead of 7.2 us in a queue of its own",
        &[
            ("n1.srq", "n16.rq.slow"),
            ("n32.srq.wrap", "n16.rq.slow"),
            ("n10k.rq.256", "n16.rq.slow"),
            ("n10k.srq.128", "n16.rq.slow"),
            ("cp.r0.write100.sge1", "n16.rq.slow"),
            ("cp.r0.read1K.sge1", "n16.rq.slow"),
        ],
    ),
    (
        "slow round trips of a shared queue are slow at both ends at once: 4.44 us and 5.55 us",
        &[
            ("n32.srq.mid", "n10k.rq.128"),
            ("n32.srq.wrap", "n10k.rq.256"),
            ("n32.srq.wrap", "cp.r0.read100.sge1"),
        ],
    ),
    (
        "so are those of a deep one: 5.55 us instead of 4.5 us",
        &[("n10k.srq.128", "n10k.rq.256"), ("n10k.srq.128", "cp.r0.read100.sge1")],
    ),
    (
        "other round trips take the same time with any queue: 3.18 us",
        &[("rc.client.base", "n16.rq.base"), ("rc.client.base", "n16.srq.base")],
    ),
];

#[test]
fn connectx2_has_the_order_of_mordkovich2013() {
    let rows = [
        trips("rc.client.base", &[TRIPS, SRQ, MORE, &[("max-sge", "8")]], 0.1),
        trips("n1.rq.mode_low", &[TRIPS, OWN, ONE], 0.1),
        trips("n1.rq.mode_high", &[TRIPS, OWN, ONE], 0.9),
        trips("n1.srq", &[TRIPS, SRQ, ONE], 0.5),
        trips("n16.rq.slow", &[TRIPS, OWN, FEW], 0.99),
        trips("n16.rq.base", &[TRIPS, OWN, FEW], 0.5),
        trips("n16.srq.base", &[TRIPS, SRQ, FEW], 0.5),
        // One of 32, and one more of 32.
        trips("n32.srq.wrap", &[TRIPS, SRQ, MORE], 0.985),
        trips("n32.srq.mid", &[TRIPS, SRQ, MORE], 0.953),
        // One of 128, and one of 256.
        trips("n10k.rq.128", &[TRIPS, OWN, MANY], 0.994),
        trips("n10k.rq.256", &[TRIPS, OWN, MANY], 0.998),
        trips("n10k.srq.128", &[TRIPS, SRQ, MANY], 0.996),
        calls("cp.r0.read100.sge1", &[CALLS, &[("size", "100")]]),
        calls("cp.r0.read1K.sge1", &[CALLS, &[("size", "1000")]]),
        calls("cp.r0.read10K.sge1", &[CALLS, &[("size", "10000")]]),
        calls("cp.r0.read1M.sge1", &[CALLS, &[("size", "1000000")]]),
        calls("cp.r0.write100.sge1", &[CALLS, &[("size", "100"), ("call", "write")]]),
    ];
    let csv = include_str!("../../../../studies/mordkovich2013/published.csv");
    hold("connectx2", csv, &rows, &DEFICITS_OF_CONNECTX2);
}

const ROUNDS: Options = &[("messages", "4"), ("warm-up", "2")];
const BYTE: Options = &[("size", "1")];
const WRITE: Options = &[("op", "write")];
const READ: Options = &[("op", "read"), ("to", "group")];
const GROUP: Options = &[("transport", "ud"), ("to", "group")];
const P1: Options = &[("peers", "1")];
const P12: Options = &[("peers", "12")];
const P30: Options = &[("peers", "30")];
const P62: Options = &[("peers", "62")];
const LEAST: Number = Figure("least T/n");

/// One to many and back, with 64 ranks as in the study.
const fn fan(metric: &'static str, options: &'static [Options], number: Number) -> Row {
    Row { metric, experiment: Experiment::FAN, ranks: 64, options, number }
}

#[test]
fn infinihost_has_the_order_of_viertel2006() {
    let rows = [
        fan("1B.mc.n1", &[ROUNDS, BYTE, GROUP, P1], LEAST),
        fan("1B.rdmaw_rc.n1", &[ROUNDS, BYTE, WRITE, P1], LEAST),
        fan("1B.ud.n1", &[ROUNDS, BYTE, UD, P1], LEAST),
        fan("1B.send_uc.min", &[ROUNDS, BYTE, UC, P12], LEAST),
        fan("1B.send_rc.min", &[ROUNDS, BYTE, RC, P12], LEAST),
        fan("1B.mc.n62", &[ROUNDS, BYTE, GROUP, P62], LEAST),
        fan("1B.ud.n62", &[ROUNDS, BYTE, UD, P62], LEAST),
        fan(
            "1B.mc_ud_gap.n62",
            &[ROUNDS, BYTE, UD, P62],
            Less(&[ROUNDS, BYTE, GROUP, P62], &LEAST),
        ),
        fan("1B.send.plateau", &[ROUNDS, BYTE, RC, P30], LEAST),
        fan("64K.send.n2", &[ROUNDS, RC, &[("size", "64K"), ("peers", "2")]], LEAST),
        fan("64K.send.n16", &[ROUNDS, RC, &[("size", "64K"), ("peers", "16")]], LEAST),
        Row {
            ranks: 17,
            ..fan("1M.n16", &[ROUNDS, RC, &[("size", "1M"), ("peers", "16")]], LEAST)
        },
        fan("rdmar.1B.n1", &[ROUNDS, BYTE, READ, P1], LEAST),
        fan("rdmar.1B.1n", &[ROUNDS, BYTE, READ, &[("peers", "5")]], Figure("1:n least T/n")),
        fan("rdmar.1B.n1time", &[ROUNDS, BYTE, READ, &[("peers", "9")]], Figure("n:1 least T/n")),
    ];
    let deficits: [Deficit; 2] = [
        (
            "a datagram to each of 62 peers takes 3.9 us instead of 3.3 us",
            &[("1B.mc_ud_gap.n62", "1B.mc.n62")],
        ),
        (
            "READs do not overlap as they do there: n:1 takes 4.6 us instead of 3 us",
            &[("rdmar.1B.n1time", "1B.ud.n62")],
        ),
    ];
    let csv = include_str!("../../../../studies/viertel2006/published.csv");
    hold("infinihost", csv, &rows, &deficits);
}

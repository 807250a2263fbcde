//! One pair of points: from samples to a verdict.

use rdmalab_measure::quantity::fmt_ns;
use rdmalab_measure::stats::{
    self, Estimate, Interval, MIN_RUNS, QuantileRatio, RunRatio, Runs, Timed, Verdict, dominance,
    hidden_by, is_regression, run_shift, shift_at, welch_ratio,
};
use rdmalab_record::{Point, Record, SeriesSummary};

use super::comparison::{CONFIDENCE, Options, Pair, PointGroup, Row, SideSummary};

/// Compares a pair, which is one of `count` pairs.
pub fn row(pair: &Pair, options: &Options, count: usize) -> Row {
    let row = Row {
        place: pair.place.clone(),
        quantity: pair.quantity,
        label: pair.label.to_owned(),
        a: SideSummary { value: f64::NAN, ..SideSummary::default() },
        b: SideSummary { value: f64::NAN, ..SideSummary::default() },
        ratio: None,
        within: None,
        p_value: None,
        dominance: None,
        deciles: Vec::new(),
        is_of_means: false,
        verdict: Verdict::CannotTell,
        is_regression: false,
        obstacle: None,
    };
    // Bonferroni's correction: all intervals hold together.
    let confidence = 1.0 - (1.0 - CONFIDENCE) / count as f64;
    let mut row = if pair.is_figure {
        figures(row, pair, confidence)
    } else {
        samples(row, pair, options, confidence)
    };
    row.p_value = row.p_value.map(|p| (p * count as f64).min(1.0));
    let interval = row.ratio.and_then(|ratio| ratio.interval);
    let better = pair.quantity.better();
    row.verdict = Verdict::of(interval, options.threshold, better);
    row.is_regression = is_regression(interval, options.threshold, better);
    row
}

/// The results of `of` for the points of each record; records without a result are left out.
fn by_record<T>(cell: &PointGroup, of: impl Fn(&Record, &Point) -> Option<T>) -> Vec<Vec<T>> {
    let records = cell.points.chunk_by(|x, y| std::ptr::eq(x.0, y.0));
    let found = records.map(|points| points.iter().filter_map(|(r, p)| of(r, p)).collect());
    found.filter(|found: &Vec<T>| !found.is_empty()).collect()
}

fn figures(mut row: Row, pair: &Pair, confidence: f64) -> Row {
    let value = |_: &Record, point: &Point| {
        let mut figures = point.figures.iter();
        let ours = figures.find(|f| f.quantity == pair.quantity && f.label == pair.label);
        ours.map(|f| f.value).filter(|v| v.is_finite())
    };
    let [a, b] = pair.cells.map(|cell| by_record(cell, value));
    let known = |records: &[Vec<f64>]| {
        let mut sorted = records.concat();
        stats::sort(&mut sorted);
        let mean = stats::geometric_mean(records, CONFIDENCE);
        SideSummary {
            records: records.len(),
            runs: sorted.len(),
            n: sorted.len(),
            value: mean.map_or_else(|| stats::median(&sorted), |mean| mean.value),
            interval: mean.and_then(|mean| mean.interval),
            ..SideSummary::default()
        }
    };
    (row.a, row.b) = (known(&a), known(&b));
    let least = row.a.runs.min(row.b.runs);
    let compared = if least > 1 { welch_ratio(&a, &b, confidence) } else { None };
    match compared {
        Some((ratio, p)) => {
            (row.ratio, row.p_value, row.is_of_means) = (Some(ratio), Some(p), true);
        }
        None => {
            let value = row.b.value / row.a.value;
            row.ratio = value.is_finite().then_some(Estimate { value, interval: None });
            row.obstacle = Some(match least {
                0 | 1 => "one number a run: measure with --repeat 5 or more".to_owned(),
                _ => "the runs have identical numbers, or a number is not positive".to_owned(),
            });
        }
    }
    row
}

fn samples(mut row: Row, pair: &Pair, options: &Options, confidence: f64) -> Row {
    let sides = pair.cells.map(|cell| runs(cell, pair));
    let [Ok(a), Ok(b)] = sides else {
        let why = sides.into_iter().find_map(Result::err);
        row.obstacle = why;
        return row;
    };
    let lost = |cell: &PointGroup| {
        let series = cell.points.iter().filter_map(|(_, point)| series(point, pair));
        series.map(|s| s.summary.lost).fold(0, u64::saturating_add)
    };
    (row.a.lost, row.b.lost) = (lost(pair.cells[0]), lost(pair.cells[1]));
    let q = options.quantile;
    let supports = |run: &Vec<f64>| stats::supports_quantile(run.len() as u64, q);
    let is_supported = a.iter().chain(&b).flatten().all(supports);
    let (timed_a, timed_b) = (Timed::of_sessions(&a), Timed::of_sessions(&b));
    let (Some(timed_a), Some(timed_b)) = (timed_a, timed_b) else {
        row.obstacle = Some("a side has no samples".to_owned());
        return row;
    };
    let [error_a, error_b] = pair.cells.map(|cell| clock_error_ns(cell, pair));
    let a = SideSamples {
        timed: timed_a,
        runs: Runs::new(a).with_common_error(error_a),
        error_ns: error_a,
    };
    let b = SideSamples {
        timed: timed_b,
        runs: Runs::new(b).with_common_error(error_b),
        error_ns: error_b,
    };
    row.a = known(&a, q, row.a.lost);
    row.b = known(&b, q, row.b.lost);
    let mut row = ratio(row, (&a, &b), is_supported, q, confidence);
    row.obstacle =
        row.obstacle.take().or_else(|| clocks_decide(&row, options, confidence, (&a, &b)));
    let decile = |q| match a.timed.runs().min(b.timed.runs()) {
        1 => shift_at(&a.timed, &b.timed, q, CONFIDENCE).map(|shift| Estimate {
            interval: shift.interval.map(|i| wider(i, error_a + error_b)),
            ..shift
        }),
        _ => run_shift(&a.runs, &b.runs, q, CONFIDENCE),
    };
    let deciles = (1..10).map(|tenth| decile(f64::from(tenth) / 10.0));
    row.deciles = deciles.collect::<Option<Vec<Estimate>>>().unwrap_or_default();
    // If the clocks may be off, they decide which of two samples is larger.
    let is_one_clock = error_a + error_b == 0.0;
    row.dominance = dominance(&a.timed, &b.timed, CONFIDENCE).filter(|_| is_one_clock);
    row
}

/// The samples of a side: with their times, and run by run.
struct SideSamples {
    timed: Timed,
    runs: Runs,
    /// How far all of them may be off in the same direction.
    error_ns: f64,
}

/// The largest clock error of a side's points: the clocks were compared for each, with one bias.
fn clock_error_ns(cell: &PointGroup, pair: &Pair) -> f64 {
    let errors = cell.points.iter().map(|(_, point)| point.clock_error_ns(pair.quantity));
    errors.fold(0.0, f64::max)
}

fn wider(interval: Interval, by: f64) -> Interval {
    Interval { low: interval.low - by, high: interval.high + by, ..interval }
}

/// The ratio of the sides with its interval. The interval includes the differences between runs;
/// without several runs there is none, since samples of one run show nothing about the next.
fn ratio(
    mut row: Row,
    (a, b): (&SideSamples, &SideSamples),
    is_supported: bool,
    q: f64,
    confidence: f64,
) -> Row {
    let within = QuantileRatio::of(&a.timed, &b.timed, q);
    match a.timed.runs().min(b.timed.runs()) {
        1 => {
            if row.a.interval.is_none() || row.b.interval.is_none() {
                let why = "too few samples for this quantile: measure more";
                row.obstacle = Some(why.to_owned());
            }
            let value = within.as_ref().map(QuantileRatio::value);
            let hidden = [(a, &row.a), (b, &row.b)].map(|(s, k)| hidden_by(s.error_ns, k.value));
            let times = (hidden[0] + hidden[1]).exp();
            let within = within.and_then(|ratio| ratio.interval(confidence));
            let within = within.map(|i| Interval { low: i.low / times, high: i.high * times, ..i });
            row.within = within.filter(|i| i.high.is_finite());
            row.ratio = value.map(|value| Estimate { value, interval: None });
            row.obstacle.get_or_insert_with(|| {
                format!("one run does not show how runs differ: measure with --repeat {MIN_RUNS}")
            });
        }
        _ if !is_supported => {
            let value = within.as_ref().map(QuantileRatio::value);
            row.ratio = value.map(|value| Estimate { value, interval: None });
            row.obstacle = Some("too few samples of a run for this quantile: measure more".into());
        }
        _ => {
            let between = RunRatio::of(&a.runs, &b.runs, q);
            row.ratio = between.map(|ratio| ratio.estimate(confidence));
            row.p_value = between.map(|ratio| ratio.p_value());
            if between.is_some() {
                (row.a, row.b) = (over_runs(row.a, a, q), over_runs(row.b, b, q));
                row.is_of_means = true;
            }
            let ratio = row.ratio.as_mut();
            // The interval has no finite end.
            if let Some(r) = ratio.filter(|r| r.interval.is_some_and(|i| i.high.is_infinite())) {
                r.interval = None;
            }
        }
    }
    if row.ratio.is_none() {
        let why = "a time is not positive, or there is one sample: no ratio";
        row.obstacle = Some(why.to_owned());
    }
    row
}

/// Returns that the clock error decides, if there would be a verdict without it.
fn clocks_decide(
    row: &Row,
    options: &Options,
    confidence: f64,
    (a, b): (&SideSamples, &SideSamples),
) -> Option<String> {
    let exact = |side: &SideSamples| side.runs.clone().with_common_error(0.0);
    let without = RunRatio::of(&exact(a), &exact(b), options.quantile)?.interval(confidence);
    let is_open = |interval| {
        let better = row.quantity.better();
        Verdict::of(interval, options.threshold, better) == Verdict::CannotTell
    };
    let decide = !is_open(Some(without)) && is_open(row.ratio.and_then(|ratio| ratio.interval));
    decide.then(|| {
        format!(
            "cannot be decided: the clocks of the two hosts may be off by up to {} in A and {} in \
             B, and without this error there would be a verdict; compare round trips (ping), \
             which need one clock",
            fmt_ns(a.error_ns),
            fmt_ns(b.error_ns)
        )
    })
}

fn known(side: &SideSamples, q: f64, lost: u64) -> SideSummary {
    let timed = &side.timed;
    let quantile = timed.quantile(q);
    SideSummary {
        records: timed.sessions(),
        runs: timed.runs(),
        n: timed.n(),
        lost,
        value: quantile.map_or_else(|| stats::quantile(timed.sorted(), q), |found| found.value),
        interval: quantile
            .and_then(|found| found.interval(CONFIDENCE))
            .map(|interval| wider(interval, side.error_ns)),
        effective_n: quantile.map(|found| found.effective_n),
        units: Some(timed.units()),
        clock_error_ns: side.error_ns,
    }
}

/// The side with the geometric mean of its runs' quantiles, of which the ratio is.
fn over_runs(known: SideSummary, side: &SideSamples, q: f64) -> SideSummary {
    let Some(mean) = stats::geometric_mean(&side.runs.quantiles(q), CONFIDENCE) else {
        return known;
    };
    // Each time is the difference of two stamps.
    let unknown_ns = side.error_ns + side.timed.step();
    let interval = mean.interval.map(|interval| wider(interval, unknown_ns));
    SideSummary { value: mean.value, interval, ..known }
}

fn series<'a>(point: &'a Point, pair: &Pair) -> Option<&'a SeriesSummary> {
    point.series(pair.quantity, pair.label)
}

/// The samples that count of each run of each record, in the order of measurement.
fn runs(cell: &PointGroup, pair: &Pair) -> Result<Vec<Vec<Vec<f64>>>, String> {
    let one = |record: &Record, point: &Point| {
        let series = series(point, pair)?;
        Some(record.counted_samples(series).map_err(|e| e.to_string()))
    };
    by_record(cell, one).into_iter().map(|runs| runs.into_iter().collect()).collect()
}

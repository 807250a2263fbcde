//! What became of the messages: how many were sent, and how many were lost, came late, twice or in
//! another order.

use rdmalab_record::Point;

use crate::model::{Model, Row};
use crate::value::fmt_count;

/// Counts of messages, by their names in a record.
const MESSAGES: [&str; 2] = ["sent", "received"];

/// Counts of messages that did not arrive once, in time, in order and whole, by their names in a
/// record: lost answers or messages, lost messages on the way out, those that came after their
/// time-out, a second time, behind a later one, those that belong to no message of the run, and
/// those whose payload was not as it had been sent.
const FAULTS: [&str; 7] =
    ["lost", "lost_out", "late", "duplicated", "reordered", "strays", "damaged"];

/// The columns of the table of messages after the parameters, and their cells in each row of the
/// model; `None` where all arrived once and in order.
pub fn delivery(model: &Model) -> Option<(Vec<String>, Vec<Vec<String>>)> {
    let sum = |name: &str, row: &Row| {
        let counts: Vec<u64> = row.points.iter().filter_map(|point| point.count(name)).collect();
        (!counts.is_empty()).then(|| counts.into_iter().fold(0, u64::saturating_add))
    };
    let has = |name: &&str, least: u64| {
        model.rows.iter().any(|row| sum(name, row).is_some_and(|count| count >= least))
    };
    let faults: Vec<&str> = FAULTS.into_iter().filter(|name| has(name, 1)).collect();
    if faults.is_empty() {
        return None;
    }
    let messages: Vec<&str> = MESSAGES.into_iter().filter(|name| has(name, 0)).collect();
    let names = messages.iter().chain(&faults);
    let cells = |row| {
        let sent = sum("sent", row).filter(|sent| *sent > 0);
        let cell = |name: &&str| {
            let share = sent.filter(|_| *name == "lost");
            match (sum(name, row), share) {
                (None, _) => "-".to_owned(),
                (Some(lost), Some(sent)) if lost > 0 => {
                    format!("{} ({:.2} %)", fmt_count(lost), lost as f64 / sent as f64 * 100.0)
                }
                (Some(count), _) => fmt_count(count),
            }
        };
        names.clone().map(cell).collect()
    };
    let heads = names.clone().map(|name| name.replace('_', " ")).collect();
    Some((heads, model.rows.iter().map(cells).collect()))
}

/// Messages that were lost in a run, from its count, or else from its series.
pub fn lost(point: &Point) -> u64 {
    let of_series = point.series.iter().map(|series| series.summary.lost).max();
    point.count("lost").or(of_series).unwrap_or(0)
}

//! Describes each side, and what differs between them besides the measured numbers.

use std::collections::{BTreeMap, BTreeSet};

use rdmalab_measure::text::count_of;
use rdmalab_record::{Point, Record};
use serde_json::Value;

use super::comparison::{PointGroup, names};
use crate::machine;
use crate::value::{heading, shown};

/// Options of the command about places and connections that are not parameters.
const OPTIONS: [&str; 6] = ["hosts", "ranks", "cores", "interface", "udp-port", "rendezvous"];

/// Facts of points that matter for a comparison, at any rank.
const FACTS: [&str; 13] = [
    "profile",
    "faults",
    "capture",
    "placement",
    "link",
    "link_layer",
    "gid",
    "port",
    "mtu_bytes",
    "inline_granted_bytes",
    "backing",
    "clock",
    "counted_at",
];

/// Differences: their name, and the value of each side.
struct Differences(Vec<(String, String, String)>);

impl Differences {
    fn push(&mut self, name: &str, [a, b]: [String; 2]) {
        if a != b {
            self.0.push((heading(name), a, b));
        }
    }
}

/// Properties that are the same throughout one side and different on the other.
pub fn differing(
    sides: &[Vec<PointGroup>; 2],
    varying: &[&str],
    records: [&[Record]; 2],
) -> Vec<(String, String, String)> {
    let mut found = Differences(Vec::new());
    for name in names(sides).into_iter().filter(|name| !varying.contains(name)) {
        let of = |cells: &Vec<PointGroup>| {
            text(name, cells.first().and_then(|cell| cell.parameters.get(name)))
        };
        found.push(name, [of(&sides[0]), of(&sides[1])]);
    }
    let each = |of: &dyn Fn(&Record) -> String| records.map(|side| all(side.iter().map(of)));
    found.push("rdmalab", each(&|record| record.header.program_version.clone()));
    found.push(
        "idle states held to us",
        each(&|record| {
            record.header.held_dma_latency_us.map_or("-".to_owned(), |us| us.to_string())
        }),
    );
    found.push("other end", each(&|record| word(record.header.other_end())));
    for name in OPTIONS {
        found.push(name, each(&|record| word(record.header.option(name))));
    }
    machines(records, &mut found);
    facts(sides, &mut found);
    found.0
}

/// Adds what differs between the machines.
fn machines(records: [&[Record]; 2], found: &mut Differences) {
    let has_settings = |record: &Record| !machine::settings(&record.environment).is_empty();
    let all_have = records.iter().all(|side| side.iter().all(has_settings));
    let of = |record: &Record| -> BTreeMap<String, String> {
        let properties = machine::properties(&record.environment);
        // What was measured of the clock differs from run to run.
        let lasting = properties.into_iter().filter(|(name, _)| !name.starts_with("clock "));
        let settings = machine::settings(&record.environment).into_iter();
        // Older records have none, which is no difference of the machines.
        let settings = settings.filter(|_| all_have);
        lasting.chain(settings.map(|setting| (setting.name, setting.value))).collect()
    };
    let sides = records.map(|side| side.iter().map(of).collect::<Vec<_>>());
    let names: BTreeSet<&String> = sides.iter().flatten().flat_map(BTreeMap::keys).collect();
    for name in names {
        let value =
            |machine: &BTreeMap<String, String>| word(machine.get(name).map(String::as_str));
        found.push(name, [0, 1].map(|side: usize| all(sides[side].iter().map(value))));
    }
}

fn text(name: &str, value: Option<&Value>) -> String {
    value.map_or("-".to_owned(), |value| shown(name, value))
}

/// Between several values of one side.
pub const OR: &str = " or ";

/// Each value once.
pub fn all(values: impl Iterator<Item = String>) -> String {
    let values: BTreeSet<String> = values.collect();
    values.into_iter().collect::<Vec<_>>().join(OR)
}

fn word(value: Option<&str>) -> String {
    value.unwrap_or("-").to_owned()
}

fn points<'a>(side: &[PointGroup<'a>]) -> Vec<&'a Point> {
    side.iter().flat_map(|cell| cell.points.iter().map(|(_, point)| *point)).collect()
}

/// Adds the facts whose values differ between the sides.
fn facts(sides: &[Vec<PointGroup>; 2], found: &mut Differences) {
    let sides = [points(&sides[0]), points(&sides[1])];
    let told = sides.iter().flatten().flat_map(|point| &point.facts);
    let is_wanted = |name: &str| FACTS.contains(&name.split("_at_rank_").next().unwrap_or(name));
    let names: BTreeSet<&str> =
        told.map(|fact| fact.name.as_str()).filter(|name| is_wanted(name)).collect();
    for name in names {
        let of = |point: &&Point| match point.fact(name) {
            None | Some("none") => "-".to_owned(),
            // The file name of a capture does not matter.
            Some(_) if name.starts_with("capture") => "yes".to_owned(),
            Some(value) => match serde_json::from_str::<Value>(value) {
                Ok(number) if number.is_number() => shown(name, &number),
                _ => value.to_owned(),
            },
        };
        found.push(name, [all(sides[0].iter().map(of)), all(sides[1].iter().map(of))]);
    }
}

/// Describes a side in one line.
pub fn describe(records: &[Record]) -> String {
    let Some(first) = records.first() else { return String::new() };
    let more = match records.len() {
        1 => String::new(),
        n => format!(", and {}", count_of(n - 1, "more record")),
    };
    format!(
        "{} on {}, {}{more}",
        all(records.iter().map(|record| record.header.experiment.clone())),
        all(records.iter().map(crate::model::device_line)),
        first.header.started_utc
    )
}

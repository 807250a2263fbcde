//! The record of a part that no experiment measures: points that an ended run left out are added.

use std::path::Path;
use std::time::{Instant, SystemTime};

use rdmalab_experiments::shuffle;
use rdmalab_measure::{Clock, Outcome as Measured};
use rdmalab_record::{ClockFacts, Environment, Header, Object, PointId, Record, Skipped, Writer};

use crate::failure::{Outcome, run as failed, usage};
use crate::interrupt::Interrupt;

/// Measures the points with these parameters that are not in the record yet: all once in the random
/// order of the header's seed, then all again in another order, as for experiments. A point that
/// cannot be measured is a skipped one, with the reason.
///
/// # Errors
/// When the record cannot be written, or on an interrupt.
pub fn each(
    (parameters, repeat): (&[Object], u32),
    (dir, mut header): (&Path, Header),
    interrupt: &Interrupt,
    mut measure: impl FnMut(usize) -> Result<Measured, String>,
) -> Outcome {
    let turns = shuffle(parameters.len(), repeat as usize, header.seed);
    header.planned_points = turns.len() as u64;
    let (mut writer, done) = writer(dir, header)?;
    for (order, turn) in turns.iter().enumerate() {
        let parameters = parameters[turn.point].clone();
        let (repetition, order_index) = (turn.repetition as u32, order as u64);
        if done.contains(&(parameters.clone(), repetition)) {
            continue;
        }
        if interrupt.is_set() {
            return Err(failed("interrupted"));
        }
        writer.may_grow().map_err(usage)?;
        let (started, began) = (SystemTime::now(), Instant::now());
        match measure(turn.point) {
            Ok(measured) => {
                let elapsed = began.elapsed();
                let id = PointId { parameters, repetition, order_index, started, elapsed };
                writer.append(&id, &measured).map_err(failed)?;
            }
            Err(_) if interrupt.is_set() => return Err(failed("interrupted")),
            Err(reason) => {
                let skipped = Skipped { order_index, repetition, parameters, reason };
                writer.skip(&skipped).map_err(failed)?;
            }
        }
    }
    Ok(())
}

/// Opens or creates the record; also returns the points that it already has.
fn writer(dir: &Path, header: Header) -> Outcome<(Writer, Vec<(Object, u32)>)> {
    if dir.join("record.json").is_file() {
        let record = Record::open(dir).map_err(failed)?;
        if record.header.device != header.device {
            return Err(usage(format!(
                "{}: it was measured on {}, not on {}: name another directory, or use the same \
                 device and profile (--profile)",
                dir.display(),
                record.header.device.title(),
                header.device.title()
            )));
        }
        let points = record.points.iter().map(|p| (p.parameters.clone(), p.repetition));
        let skipped = record.skipped.iter().map(|s| (s.parameters.clone(), s.repetition));
        let done = points.chain(skipped).collect();
        return Ok((Writer::resume(&record).map_err(failed)?, done));
    }
    Writer::clear(dir).map_err(failed)?;
    let environment = Environment::here(&header.device.name, Some(ClockFacts::of(&Clock::new())));
    Ok((Writer::create_at(dir, header, &environment).map_err(failed)?, Vec::new()))
}

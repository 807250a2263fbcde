//! The size from which on registering memory is cheaper than copying it.

use rdmalab_measure::Quantity;
use rdmalab_measure::curve::{Crossing, PairedPoint, Position, crossing};
use rdmalab_record::Finding;

use crate::curve::Curve;
use crate::estimate::{known, placed};

/// The size from which on registering is cheaper than copying.
pub fn registering(curve: &Curve) -> Vec<Finding> {
    let known = |points, label| known(points, Quantity::CallCost, label);
    let pairs: Vec<PairedPoint> = curve
        .points
        .iter()
        .filter_map(|(x, points)| {
            let (a, b) = (known(points, "register + deregister")?, known(points, "copy")?);
            Some(PairedPoint { x: *x, a, b })
        })
        .collect();
    let [first, .., last] = pairs.as_slice() else {
        let advice = "measure more than one --size to see from which on registering pays";
        let is_there = !pairs.is_empty();
        return is_there.then(|| curve.finding("crossover", "bytes", advice)).into_iter().collect();
    };
    let (first, last) = (first.x, last.x);
    let Some(Crossing { at, range }) = crossing(&pairs) else { return Vec::new() };
    let size = |bytes: f64| format!("{bytes:.0} bytes");
    let sentence = match at {
        Position::Before => format!(
            "registering and deregistering is cheaper than copying at every size from {} on",
            size(first)
        ),
        Position::Beyond => format!(
            "none in range: copying is cheaper than registering and deregistering up to {}",
            size(last)
        ),
        Position::At(x) => {
            let end = |place, beyond: &str| match place {
                Position::At(x) => size(x),
                _ => beyond.to_owned(),
            };
            format!(
                "registering and deregistering is cheaper than copying from {} on (by the medians' \
                 intervals between {} and {})",
                size(x),
                end(range.0, &format!("less than {}", size(first))),
                end(range.1, &format!("more than {}", size(last)))
            )
        }
    };
    vec![placed(curve.finding("crossover", "bytes", &sentence), at, range, (first, last))]
}

#[cfg(test)]
mod tests {
    use rdmalab_measure::Outcome;
    use serde_json::{Value, json};

    use super::*;
    use crate::testing::{all, around, of};

    fn sizes(memory: &str, sizes: &[u32]) -> Vec<(Value, Outcome)> {
        let point = |size: &u32| {
            let mut outcome = Outcome::default();
            let size = f64::from(*size);
            let register = if memory == "device" { 1000.0 } else { 1000.0 + 0.4 * size };
            let of = Quantity::CallCost;
            outcome.push_series(of, "register + deregister", 0, around(register));
            outcome.push_series(of, "copy", 0, around(0.5 * size));
            (json!({ "memory": memory, "size_bytes": size as u64 }), outcome)
        };
        sizes.iter().map(point).collect()
    }

    #[test]
    fn the_size_from_which_registering_is_cheaper() {
        let found = of("mr", sizes("device", &[4096, 1024]));
        let [text] = &found[..] else { panic!("{found:?}") };
        let number = text.split(" from ").nth(1).unwrap().split(' ').next().unwrap();
        assert!((1900.0..2200.0).contains(&number.parse::<f64>().unwrap()), "{text}");
        assert!(text.contains("between") && !text.contains("memory"), "{text}");
        let two = [sizes("device", &[1024, 4096]), sizes("private", &[1024, 4096])].concat();
        let found = of("mr", two);
        assert!(found[0].starts_with("memory device: registering"), "{found:?}");
        assert!(found[1].starts_with("memory private: none in range"), "{found:?}");
        assert!(of("mr", sizes("device", &[4096, 8192]))[0].contains("every size from 4096"));
        assert!(of("mr", sizes("device", &[4096]))[0].contains("more than one --size"));
    }

    #[test]
    fn a_number_stands_with_its_sentence() {
        let found = all("mr", sizes("device", &[4096, 1024]));
        let [one] = &found[..] else { panic!("{found:?}") };
        assert_eq!((one.name.as_str(), one.unit.as_str()), ("crossover", "bytes"));
        assert_eq!((one.along.as_deref(), &one.points[..]), (Some("size_bytes"), &[0, 1][..]));
        let (value, low, high) = (one.value.unwrap(), one.low.unwrap(), one.high.unwrap());
        assert!(low < value && value < high && (1900.0..2200.0).contains(&value), "{one:?}");
        assert!(one.sentence.contains(&format!("from {value:.0} bytes on")), "{one:?}");
        // Outside the measured range the finding has a bound and no value.
        let ends = |sizes_of: &[u32], memory| {
            let found = all("mr", sizes(memory, sizes_of)).remove(0);
            (found.value, found.low, found.high)
        };
        assert_eq!(ends(&[4096, 8192], "device"), (None, None, Some(4096.0)));
        assert_eq!(ends(&[256, 512], "device"), (None, Some(512.0), None));
        assert_eq!(ends(&[512], "device"), (None, None, None));
        let two = [sizes("device", &[1024, 4096]), sizes("private", &[1024, 4096])].concat();
        let found = all("mr", two);
        assert_eq!(found[1].parameters["memory"], "private");
        assert_eq!(found[1].points, [2, 3]);
    }

    #[test]
    fn a_record_without_both_costs_has_none() {
        let mut points = sizes("device", &[1024, 4096]);
        assert_eq!(of("mr", points.clone()).len(), 1);
        points.iter_mut().for_each(|(_, outcome)| outcome.series.truncate(1));
        assert!(of("mr", points).is_empty());
        assert!(of("mr", Vec::new()).is_empty());
    }

    #[test]
    fn what_was_measured_counts_and_not_the_name_of_the_experiment() {
        let points = sizes("device", &[1024, 4096]);
        assert_eq!(of("of_a_program", points.clone()), of("mr", points));
    }
}

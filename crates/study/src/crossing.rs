//! Whether two lines cross, and in which direction.

use rdmalab_measure::group::by_key;
use serde_json::Value;

use crate::claim::{Claim, Relation};
use crate::evidence::{Decision, Evidence, Verdict, place};

/// Judges whether the sign of the difference changes along the range's parameter, in the direction
/// of the claim, for each combination of the other parameters. `beyond` is the least value that the
/// device could not measure, if there is one: the range ends there. `why_undecided` returns why
/// points are undecided.
pub(crate) fn crossing(
    claim: &Claim,
    evidence: &[Evidence],
    names: &[String],
    beyond: Option<f64>,
    why_undecided: &dyn Fn() -> String,
) -> Verdict {
    let Some(range) = &claim.range else { return Verdict::CannotBeSeen("no range".to_owned()) };
    let (mut crossed, mut other_way, mut not, mut short) = (0, Vec::new(), Vec::new(), Vec::new());
    for (family, members) in families(&range.parameter, evidence, names) {
        let ends = members.first().zip(members.last()).map(|(a, b)| (a.0, b.0));
        let is_whole = ends.is_some_and(|(low, high)| {
            low <= range.from && (range.to <= high || beyond.is_some_and(|place| high < place))
        });
        let mut decided = members.iter().filter(|m| m.1 != Decision::Undecided).map(|m| m.1);
        match (decided.next(), decided.next_back(), claim.relation) {
            (Some(Decision::Holds), Some(Decision::Fails), Relation::RisesAbove)
            | (Some(Decision::Fails), Some(Decision::Holds), Relation::FallsBelow) => crossed += 1,
            (Some(first), Some(last), _) if first != last => other_way.push(family),
            (Some(_), Some(_), _) if is_whole => not.push(family),
            // Only a part of the range was measured: the crossing may lie in the rest.
            (Some(_), Some(_), _) => short.extend(ends),
            _ => {}
        }
    }
    let between = format!("{} {} to {}", range.parameter, range.from, range.to);
    let of = |families: &[String]| match families.join("; ") {
        named if named.is_empty() => String::new(),
        named => format!(": {named}"),
    };
    if !other_way.is_empty() {
        let why = format!("they cross the other way between {between}{}", of(&other_way));
        return Verdict::Refuted(why);
    }
    if !not.is_empty() {
        return Verdict::Refuted(format!("no crossing between {between}{}", of(&not)));
    }
    match (crossed, short.first()) {
        (0, Some((low, high))) => Verdict::CannotBeSeen(format!(
            "no crossing from {low} to {high}, and less than {between} was measured"
        )),
        (0, None) => {
            let why = why_undecided();
            let why = if why.is_empty() { why } else { format!(": {why}") };
            Verdict::CannotBeSeen(format!("too little is decided between {between}{why}"))
        }
        _ => Verdict::Confirmed(String::new()),
    }
}

/// The decisions in the order of the parameter, for each combination of the other parameters.
fn families(
    parameter: &str,
    evidence: &[Evidence],
    names: &[String],
) -> Vec<(String, Vec<(f64, Decision)>)> {
    let others: Vec<String> = names.iter().filter(|n| *n != parameter).cloned().collect();
    let mut families = by_key(evidence.iter().map(|e| {
        let at = e.left.parameters.get(parameter).and_then(Value::as_f64);
        (place(&e.left.parameters, &others), (at.unwrap_or(f64::NAN), e.decision))
    }));
    families.iter_mut().for_each(|(_, members)| members.sort_by(|a, b| a.0.total_cmp(&b.0)));
    families
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::tests::{claim, evidence, of_runs};
    use crate::measurement::Measurement;
    use crate::undecided::why_undecided;

    #[test]
    fn lines_cross_where_the_sign_changes_as_is_said() {
        use Decision::{Fails, Holds, Undecided};
        let range = "range={parameter='size_bytes', from=0, to=2}";
        let (up, down) = (claim("rises above", range), claim("falls below", range));
        let names = ["size_bytes".to_owned()];
        let to = |beyond, d: &[Decision]| crossing(&up, &evidence(d), &names, beyond, &String::new);
        let of = |d: &[Decision]| to(None, d);
        // A part of the range decides nothing.
        let less = of(&[Holds, Holds]);
        assert!(less.why().contains("from 0 to 1, and less than size_bytes 0 to 2"), "{less:?}");
        assert_eq!(less.name(), "cannot be seen");
        // If the device cannot measure more, the measured values are the whole range.
        assert_eq!(to(Some(2.0), &[Holds, Holds]).name(), "refuted");
        assert_eq!(to(Some(1.0), &[Holds, Holds]).name(), "cannot be seen");
        assert_eq!(of(&[Holds, Undecided, Fails]), Verdict::Confirmed(String::new()));
        assert!(matches!(of(&[Holds, Undecided, Holds]), Verdict::Refuted(_)));
        assert!(matches!(of(&[Undecided, Undecided, Holds]), Verdict::CannotBeSeen(_)));
        // A crossing in the other direction contradicts the claim.
        let other = of(&[Fails, Undecided, Holds]);
        let said = "they cross the other way between size_bytes 0 to 2";
        assert_eq!(other, Verdict::Refuted(said.to_owned()));
        let of = |d: &[Decision]| crossing(&down, &evidence(d), &names, None, &String::new);
        assert_eq!(of(&[Fails, Undecided, Holds]), Verdict::Confirmed(String::new()));
        assert_eq!(of(&[Holds, Undecided, Fails]), Verdict::Refuted(said.to_owned()));
    }

    #[test]
    fn what_leaves_a_crossing_open_is_said() {
        use Decision::{Holds, Undecided};
        let up = claim("rises above", "range={parameter='size_bytes', from=0, to=2}");
        let names = ["size_bytes".to_owned()];
        let of = |evidence: &[Evidence]| {
            let why = || why_undecided(&up, evidence, 5);
            crossing(&up, evidence, &names, None, &why).why().to_owned()
        };
        let few = "too little is decided between size_bytes 0 to 2";
        let mut open = evidence(&[Undecided, Undecided, Holds]);
        let runs = "the intervals allow both at 2 of 3 points: more repetitions may tell";
        assert_eq!(of(&open), format!("{few}: {runs}"));
        // More repetitions would not help if the clock error is the reason.
        for e in &mut open {
            e.left = Measurement { clock_error_ns: 5e3, ..of_runs(&[0.9, 0.9]) };
        }
        let text = of(&open);
        assert!(text.starts_with(&format!("{few}: times from host to host")), "{text}");
        assert!(text.contains("off by up to 5.00 us") && !text.contains("repetitions"), "{text}");
        assert_eq!(of(&evidence(&[Holds])), few);
    }
}

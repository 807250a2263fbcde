//! Published values beside ours, with the verdict on each, for all forms of a study.

use maud::{Markup, html};
use rdmalab_measure::text::count_of;
use rdmalab_record::Object;
use rdmalab_study::{ComparedValue, Evaluation, Study};
use serde_json::{Value, json};

use crate::chart::sentence;
use crate::csv_text::lines;
use crate::markdown;
use crate::page::{table, table_of};
use crate::study_terms::{behind, standing, without_ours};

const TITLE: &str = "Published values beside ours";
const HEADS: [&str; 8] =
    ["value", "where", "verdict", "study", "tolerance", "here", "n, runs", "here / study"];

/// The cells of a value, for [`HEADS`].
fn cells(evaluation: &Evaluation, value: &ComparedValue) -> Vec<String> {
    let p = &value.published;
    let (verdict, why) = (evaluation.named(value.verdict()), value.why());
    let number = value.ours.as_ref().map(|(what, number)| format!("{number} ({what})"));
    let or_dash = |text: Option<String>| text.unwrap_or_else(|| "-".to_owned());
    vec![
        p.what.clone(),
        p.place.clone(),
        match () {
            () if why.is_empty() => verdict.to_owned(),
            () if why.starts_with(verdict) => why,
            () => format!("{verdict}: {why}"),
        },
        format!("{} {}", p.value, p.unit),
        or_dash(Some(p.tolerance.clone()).filter(|text| !text.is_empty())),
        or_dash(number),
        or_dash(value.samples_and_runs.map(|(n, runs)| behind(n, runs))),
        or_dash(value.ratio.map(|ratio| format!("{ratio:.2}"))),
    ]
}

/// The values with a number of ours, and those that no experiment produces.
fn both(evaluation: &Evaluation) -> (Vec<&ComparedValue>, Vec<&ComparedValue>) {
    evaluation.values_by_verdict().into_iter().partition(|value| !value.figure.is_empty())
}

/// The section of the page.
pub fn section(study: &Study, evaluation: &Evaluation) -> Markup {
    let (compared, others) = both(evaluation);
    let heads = HEADS.map(str::to_owned);
    let row = |v: &&ComparedValue| {
        (v.verdict().is_calibrated().then_some("calibrated"), cells(evaluation, v))
    };
    let plain_heads = ["value", "where", "study", "kind", "standing"].map(str::to_owned);
    html! {
        section {
            h2 { (TITLE) }
            @if let Some(origin) = evaluation.origin(&study.plan.hardware) {
                p.meaning { strong { (sentence(&origin)) "." } }
            }
            @if !evaluation.values.is_empty() { p { (evaluation.value_summary()) "." } }
            p.meaning {
                "In brackets: the 95 % interval of ours, from the differences between runs and \
                 from their samples; a single run has no interval. Within the tolerance is a \
                 value whose whole interval lies there. A model is judged by its number alone, \
                 since without noise it gives the same number each time. What lies outside comes \
                 first."
            }
            @if compared.is_empty() { p.meaning { "None of its values has a number of ours." } }
            @else { (table_of(TITLE, &heads, 2, compared.iter().map(row))) }
            @if !others.is_empty() {
                details {
                    summary {
                        (count_of(others.len(), "published value")) " without a number of ours"
                    }
                    (table("Values not produced here", &plain_heads, 2,
                        others.into_iter().map(without_ours)))
                }
            }
        }
    }
}

/// The section in Markdown.
pub fn in_markdown(study: &Study, evaluation: &Evaluation) -> String {
    let (compared, others) = both(evaluation);
    let mut out = format!("\n## {TITLE}\n\n");
    if let Some(origin) = evaluation.origin(&study.plan.hardware) {
        out += &format!("**{}.**\n\n", markdown::plain(&sentence(&origin)));
    }
    out += &format!("{}.\n\n", evaluation.value_summary());
    let rows = compared.into_iter().map(|value| cells(evaluation, value));
    out += &markdown::table(&HEADS.map(str::to_owned), 3, rows);
    if !others.is_empty() {
        out += "\n## Published values without a number of ours\n\n";
        let heads = ["value", "where", "study", "kind", "why"].map(str::to_owned);
        out += &markdown::table(&heads, 5, others.into_iter().map(without_ours));
    }
    out
}

/// How many values have each verdict, in JSON.
pub fn counts(evaluation: &Evaluation) -> Value {
    let counts = evaluation.value_counts().into_iter();
    Value::Object(counts.map(|(name, count)| (name.to_owned(), count.into())).collect())
}

/// A value in JSON.
pub fn value(evaluation: &Evaluation, compared: &ComparedValue) -> Value {
    let p = &compared.published;
    json!({
        "metric": p.metric,
        "what": p.what,
        "place": p.place,
        "value": p.value,
        "unit": p.unit,
        "tolerance": p.tolerance,
        "kind": p.kind.name(),
        "figure": (!compared.figure.is_empty()).then_some(&compared.figure),
        "ours": compared.ours.as_ref().map(|(what, number)| json!({ "is": what, "text": number })),
        // Both in the unit that records use for the quantity: ns, 1/s, B/s, or a share.
        "published_number": p.in_base(),
        "number": compared.number,
        "n": compared.samples_and_runs.map(|both| both.0),
        "runs": compared.samples_and_runs.map(|both| both.1),
        "ours_over_theirs": compared.ratio,
        "standing": standing(&compared.standing),
        "verdict": evaluation.named(compared.verdict()),
        "why": compared.why(),
        "calibrated_by": compared.calibrated_by,
    })
}

/// The published values of a study as CSV: a row for each, with our number and the verdict. The
/// order is that of the verdicts, deficits first.
#[must_use]
pub fn study_values_csv(evaluation: &Evaluation) -> String {
    let row = |compared: &ComparedValue| {
        let Value::Object(mut row) = value(evaluation, compared) else { return Object::new() };
        for name in ["ours", "calibrated_by"] {
            row.remove(name);
        }
        let (is, text) = compared.ours.clone().unwrap_or_default();
        row.insert("ours_is".to_owned(), is.into());
        row.insert("ours_text".to_owned(), text.into());
        row.insert("calibrated_by".to_owned(), compared.calibrated_by.join(" ").into());
        row
    };
    lines(&evaluation.values_by_verdict().into_iter().map(row).collect::<Vec<Object>>())
}

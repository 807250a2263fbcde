//! A study as one page: verdicts on its claims, its published values beside ours, and the figures.

use maud::{Markup, html};
use rdmalab_measure::text::count_of;
use rdmalab_record::{DeviceKind, Object, Record, Samples, shell_word};
use rdmalab_study::{
    Decision, Evaluation, Evidence, Figure, JudgedClaim, Study, SweepResult, SweepState, Verdict,
};

use crate::chart::sentence;
use crate::curves::COLUMNS;
use crate::model::Model;
use crate::page::{caution, setup, table, whole};
use crate::side_by_side::side_by_side;
use crate::study_sweep::{Shown, share};
use crate::study_terms::{ADVICE_HEADS, advice_rows, behind, condition_of, record};
use crate::study_values;

/// Most bytes of what a page shows of sweeps, together with all else that is in it but the style:
/// a page has at most 1.5 MB.
const MAX_BYTES: usize = 1_400_000;

/// Most pairs of numbers of a claim in its table.
const MAX_EVIDENCE: usize = 60;

/// The page of a study. Samples of its charts are read from the records' directories.
#[must_use]
pub fn study_page(
    study: &Study,
    parts: &[SweepResult],
    evaluation: &Evaluation,
    beside: &[OtherCondition],
) -> String {
    let records: Vec<&Record> = parts.iter().filter_map(record).collect();
    let title = match records.first() {
        Some(record) => format!("{} on {}", study.plan.key, record.header.device.title()),
        None => study.plan.key.clone(),
    };
    let start = html! {
        (head(study, &title, &records))
        (counts(evaluation))
        (conditions(evaluation, &records, beside))
        (claims(evaluation))
        (study_values::section(study, evaluation))
    };
    let end = html! {
        (advice(study, evaluation))
        @if let Some(record) = records.first() { (setup(&Model::of(record))) }
        (repeat(parts))
    };
    let sides: Vec<Markup> = study
        .plan
        .figures
        .iter()
        .enumerate()
        .map(|(i, f)| sides(f, parts, &format!("b{i}")))
        .collect();
    let shown: Vec<Vec<Shown>> = parts
        .iter()
        .enumerate()
        .map(|(i, part)| shown(study, part, beside, &format!("p{i}")))
        .collect();
    let fixed =
        [&start, &end].into_iter().chain(&sides).map(|markup| markup.0.len()).sum::<usize>();
    let sizes: Vec<usize> = shown.iter().flatten().map(Shown::bytes).collect();
    let most = share(&sizes, MAX_BYTES.saturating_sub(fixed));
    let content = html! {
        (start)
        @for (figure, sides) in study.plan.figures.iter().zip(&sides) {
            (one_figure(figure, sides, parts.iter().zip(&shown), most))
        }
        (end)
    };
    whole(&title, content)
}

/// A run of the same study under another condition.
#[derive(Clone, Debug)]
pub struct OtherCondition {
    /// The condition.
    pub name: String,
    /// The results of each sweep.
    pub parts: Vec<SweepResult>,
    /// The evaluation of the study with these results.
    pub evaluation: Evaluation,
}

/// The parameter for the condition in tables of several conditions.
const CONDITION: &str = "condition";

/// The condition of a record; if it has none, a substitute name.
fn condition(record: &Record) -> String {
    record.header.condition.clone().unwrap_or_else(|| "this run".to_owned())
}

/// The verdicts of each condition, if there are several.
fn conditions(evaluation: &Evaluation, records: &[&Record], beside: &[OtherCondition]) -> Markup {
    let own = records.first().map_or("this run".to_owned(), |record| condition(record));
    let mut heads = vec!["claim".to_owned(), own];
    heads.extend(beside.iter().map(|other| other.name.clone()));
    let row = |judged: &JudgedClaim| {
        let of = |other: &OtherCondition| {
            let same = other.evaluation.claims.iter().find(|c| c.claim.key == judged.claim.key);
            same.map_or("-".to_owned(), |found| found.verdict.name().to_owned())
        };
        let mut cells = vec![judged.claim.says.clone(), judged.verdict.name().to_owned()];
        cells.extend(beside.iter().map(of));
        cells
    };
    html! {
        @if !beside.is_empty() {
            section {
                h2 { "Conditions side by side" }
                p.meaning {
                    "The same study under other conditions. Figures show all of them; whether two \
                    differ, " code { "rdmalab compare" } " tells of their records."
                }
                (table("Verdicts of each condition", &heads, 1, evaluation.claims.iter().map(row)))
            }
        }
    }
}

/// The records of all conditions as one record in which the condition is a parameter. It has
/// summaries only: samples stay in their own records.
fn all_conditions(own: &Record, others: &[(&str, &Record)]) -> Record {
    let mut all = own.clone();
    all.points.clear();
    all.findings = None;
    let own = (condition(own), own);
    let each = others.iter().map(|(name, record)| ((*name).to_owned(), *record));
    for (name, record) in std::iter::once(own).chain(each) {
        for point in &record.points {
            let mut point = point.clone();
            let mut parameters = Object::new();
            parameters.insert(CONDITION.to_owned(), name.as_str().into());
            parameters.extend(std::mem::take(&mut point.parameters));
            point.parameters = parameters;
            point.number = all.points.len() as u64;
            point.series.iter_mut().for_each(|series| series.samples = Samples::Elsewhere);
            all.points.push(point);
        }
    }
    all
}

fn head(study: &Study, title: &str, records: &[&Record]) -> Markup {
    let plan = &study.plan;
    html! {
        header {
            p.brand { "rdmalab" span.kind { "study" } }
            h1 { (title) }
            p.lead { (plan.title) "." }
            p.meta { (plan.source) ". Measured there on " (plan.hardware) "." }
            @if let Some(record) = records.first() { (caution(&record.header.device)) }
            @else { p.banner { "Nothing of it was measured." } }
            p.paper {
                "On paper: the first three charts of each sweep, without details. The page in a \
                 browser has all of them, and the numbers."
            }
        }
    }
}

fn counts(evaluation: &Evaluation) -> Markup {
    let count = |name: &str| {
        evaluation.claims.iter().filter(|judged| judged.verdict.name() == name).count()
    };
    html! {
        section.cards aria-label="Verdicts" {
            @for name in ["confirmed", "refuted", "cannot be seen"] {
                div.card {
                    p.what { "Claims " (name) }
                    p.value { (count(name)) }
                    p.at { "of " (evaluation.claims.len()) }
                }
            }
        }
    }
}

fn claims(evaluation: &Evaluation) -> Markup {
    html! {
        section {
            h2 { "What the study says, and what was seen here" }
            p.meaning {
                "A difference counts where its 95 % interval leaves no doubt. The interval covers \
                 what the runs of both sides differ by (Welch's, of logarithms) and what the \
                 samples within the runs leave open; of what is found or counted over runs it is \
                 binomial, or their ends from six runs on. A single run does not show how runs \
                 differ. Two medians that merely differ do not support a claim."
                @if evaluation.kind == Some(DeviceKind::Sim) {
                    " Numbers of a model from which nothing is drawn are exact: without interval."
                }
            }
            div.claims {
                @for judged in &evaluation.claims { (one_claim(judged)) }
            }
        }
    }
}

fn one_claim(judged: &JudgedClaim) -> Markup {
    let class = match judged.verdict {
        Verdict::Confirmed(_) => "confirmed",
        Verdict::Refuted(_) => "refuted",
        Verdict::CannotBeSeen(_) => "unseen",
    };
    let claim = &judged.claim;
    html! {
        div.claim id=(format!("claim-{}", claim.key)) {
            p { span class=(format!("verdict {class}")) { (judged.verdict.name()) } " "
                strong { (claim.says) } }
            @if !judged.verdict.why().is_empty() {
                p.at { (sentence(judged.verdict.why())) "." }
            }
            p.at { "Judged by: " (condition_of(claim)) ". Source: " (claim.source) }
            @if !judged.evidence.is_empty() {
                details {
                    summary { (count_of(judged.evidence.len(), "pair")) " of numbers" }
                    (evidence(judged))
                    @if judged.evidence.len() > MAX_EVIDENCE {
                        p.at {
                            "The first " (MAX_EVIDENCE) " are shown; "
                            code { "rdmalab report --format json" } " has all."
                        }
                    }
                }
            }
        }
    }
}

fn evidence(judged: &JudgedClaim) -> Markup {
    let sign = match judged.claim.factor {
        Some(factor) => format!("left {} {factor} right", judged.claim.relation.sign()),
        None => format!("left {} right", judged.claim.relation.sign()),
    };
    let heads =
        ["at", "left", "n, runs", "right", "n, runs", "left / right", "95 % interval", &sign];
    let heads = heads.map(str::to_owned);
    let row = |e: &Evidence| {
        let ends = e.ratio.1.map(|(low, high)| format!("{low:.3} - {high:.3}"));
        vec![
            if e.place.is_empty() { "everywhere".to_owned() } else { e.place.clone() },
            e.left.text(),
            behind(e.left.n, e.left.runs),
            e.right.text(),
            behind(e.right.n, e.right.runs),
            format!("{:.3}", e.ratio.0),
            ends.unwrap_or_else(|| match e.left.runs == 1 || e.right.runs == 1 {
                true => "one run".to_owned(),
                false => "too few".to_owned(),
            }),
            match e.decision {
                Decision::Holds => "holds",
                Decision::Fails => "fails",
                Decision::Undecided => "open",
            }
            .to_owned(),
        ]
    };
    table(&judged.claim.says, &heads, 1, judged.evidence.iter().take(MAX_EVIDENCE).map(row))
}

fn one_figure<'a>(
    figure: &Figure,
    sides: &Markup,
    parts: impl Iterator<Item = (&'a SweepResult, &'a Vec<Shown>)>,
    most: usize,
) -> Markup {
    html! {
        section {
            h2 { "Figure " (figure.key) ": " (figure.title) }
            @if !figure.note.is_empty() { p.meaning { (figure.note) } }
            (sides)
            @for (part, shown) in parts.filter(|(part, _)| part.figure == figure.key) {
                (one_part(part, shown, most))
            }
        }
    }
}

/// The sweeps that a figure shows side by side, as far as they were measured.
fn sides(figure: &Figure, parts: &[SweepResult], id: &str) -> Markup {
    let records = figure.side_by_side.iter().filter_map(|name| {
        let mut own = parts.iter().filter(|p| p.figure == figure.key && p.sweep == *name);
        Some((name.as_str(), own.find_map(record)?))
    });
    let records: Vec<(&str, &Record)> = records.collect();
    side_by_side(&records, id)
}

/// What the page shows of a sweep, with other conditions beside it if there are any.
fn shown(study: &Study, part: &SweepResult, beside: &[OtherCondition], id: &str) -> Vec<Shown> {
    let (Some(own), Some(figure)) = (record(part), study.plan.figure(&part.figure)) else {
        return Vec::new();
    };
    let same = |other: &&SweepResult| other.figure == part.figure && other.sweep == part.sweep;
    let others = beside
        .iter()
        .filter_map(|other| Some((other.name.as_str(), record(other.parts.iter().find(same)?)?)));
    let others: Vec<(&str, &Record)> = others.collect();
    let about = (study, figure);
    if others.is_empty() {
        return vec![Shown::of(about, part, own, id, String::new())];
    }
    let all = all_conditions(own, &others);
    let title = "Conditions side by side".to_owned();
    vec![
        Shown::of(about, part, &all, &format!("{id}c"), title),
        Shown::of(about, part, own, id, sentence(&condition(own))),
    ]
}

fn one_part(part: &SweepResult, shown: &[Shown], most: usize) -> Markup {
    let words: Vec<String> = part.line.iter().map(|word| shell_word(word)).collect();
    html! {
        @if !part.sweep.is_empty() { h3 { (sentence(&part.sweep)) } }
        @match &part.state {
            SweepState::Measured(_) => @for one in shown { (one.within(most)) },
            SweepState::Missing(why) => p.meaning { strong { "Not available: " } (why) "." }
            SweepState::NotAsked => p.meaning { "Left out of this run." }
        }
        @if record(part).is_some() { pre.command tabindex="0" { code { (words.join(" ")) } } }
    }
}

/// What the study advises, with what was seen of it here.
fn advice(study: &Study, evaluation: &Evaluation) -> Markup {
    let heads = ADVICE_HEADS.map(str::to_owned);
    html! {
        @if !study.advice.is_empty() {
            section #advice {
                h2 { "What the study advises" }
                p.meaning { "In our words, each with the claim of the study that bears it." }
                (table("Advice", &heads, 2, advice_rows(study, evaluation)))
            }
        }
    }
}

fn repeat(parts: &[SweepResult]) -> Markup {
    let commands = parts
        .iter()
        .filter(|part| record(part).is_some())
        .map(|part| part.line.iter().map(|word| shell_word(word)).collect::<Vec<_>>().join(" "));
    html! {
        section {
            h2 { "Measure it again" }
            p.meaning {
                "Charts over time show the least, the median and the largest sample of equal parts \
                 of a run, " (COLUMNS) " at most; the records have each sample. Each sweep alone, \
                 as it was measured:"
            }
            pre tabindex="0" { code { (commands.collect::<Vec<_>>().join("\n")) } }
        }
    }
}

//! A study as one page: verdicts on its claims, its published values beside ours, and the figures.

use maud::{Markup, html};
use rdmalab_measure::text::count_of;
use rdmalab_record::{DeviceKind, Object, Record, Samples, shell_word};
use rdmalab_study::{
    Bars, Decision, Evaluation, Evidence, Figure, JudgedClaim, Study, SweepResult, SweepState,
    Verdict,
};

use crate::chart::{Chart, Scope, sentence};
use crate::charts;
use crate::model::{Group, Model, NINTH, PEER, TENTH, group_name};
use crate::page::{caution, figures_of, figures_table, messages_table, setup, table, whole};
use crate::published::PublishedValue;
use crate::side_by_side::side_by_side;
use crate::study_terms::{ADVICE_HEADS, advice_rows, behind, condition_of, record};
use crate::study_values;
use crate::table::{Quantiles, cells_of, heads_of, parameter_cells, parameter_heads};

/// Most charts of one sweep that are visible at once: the others are folded below them.
const MAX_MAIN: usize = 12;

/// Most series of one sweep that have all kinds of charts: others have only charts that compare.
const MAX_GROUPS: usize = 4;
/// Most peers that have their own table.
const MAX_PEERS: usize = 8;

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
    let content = html! {
        (head(study, &title, &records))
        (counts(evaluation))
        (conditions(evaluation, &records, beside))
        (claims(evaluation))
        (study_values::section(study, evaluation))
        @for (i, figure) in study.plan.figures.iter().enumerate() {
            (one_figure(study, figure, parts, beside, i))
        }
        (advice(study, evaluation))
        @if let Some(record) = records.first() { (setup(&Model::of(record))) }
        (repeat(parts))
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
    table(&judged.claim.says, &heads, 1, judged.evidence.iter().map(row))
}

fn one_figure(
    study: &Study,
    figure: &Figure,
    parts: &[SweepResult],
    beside: &[OtherCondition],
    index: usize,
) -> Markup {
    let of_it = parts.iter().enumerate().filter(|(_, part)| part.figure == figure.key);
    html! {
        section {
            h2 { "Figure " (figure.key) ": " (figure.title) }
            @if !figure.note.is_empty() { p.meaning { (figure.note) } }
            (sides(figure, parts, &format!("s{index}b")))
            @for (i, part) in of_it {
                (one_part((study, figure), part, beside, &format!("s{index}p{i}")))
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

fn one_part(
    about: (&Study, &Figure),
    part: &SweepResult,
    beside: &[OtherCondition],
    id: &str,
) -> Markup {
    let same = |other: &&SweepResult| other.figure == part.figure && other.sweep == part.sweep;
    let others = beside
        .iter()
        .filter_map(|other| Some((other.name.as_str(), record(other.parts.iter().find(same)?)?)));
    let others: Vec<(&str, &Record)> = others.collect();
    let all = record(part).filter(|_| !others.is_empty());
    let all = all.map(|own| all_conditions(own, &others));
    let words: Vec<String> = part.line.iter().map(|word| shell_word(word)).collect();
    html! {
        @if !part.sweep.is_empty() { h3 { (sentence(&part.sweep)) } }
        @match &part.state {
            SweepState::Measured(record) => {
                @if let Some(all) = &all {
                    h4 { "Conditions side by side" }
                    (measured(about, part, all, &format!("{id}c")))
                    h4 { (sentence(&condition(record))) }
                }
                (measured(about, part, record, id))
            }
            SweepState::Missing(why) => p.meaning { strong { "Not available: " } (why) "." }
            SweepState::NotAsked => p.meaning { "Left out of this run." }
        }
        @if record(part).is_some() { pre tabindex="0" { code { (words.join(" ")) } } }
    }
}

fn measured(
    (study, figure): (&Study, &Figure),
    part: &SweepResult,
    record: &Record,
    id: &str,
) -> Markup {
    let model = Model::of(record);
    let groups = model.groups();
    let published = PublishedValue::of(study, part, &model);
    let has_deciles = figure.bars == Bars::Deciles;
    let scope = Scope { is_whole: true, is_brief: false, has_deciles, published: &published };
    let (peers, groups): (Vec<Group>, Vec<Group>) =
        groups.into_iter().partition(|group| group.label.starts_with(PEER));
    let mut charts = Vec::new();
    for (i, group) in groups.iter().enumerate() {
        let scope = Scope { is_brief: i >= MAX_GROUPS, ..scope };
        charts.extend(charts::of_group(&model, group, &format!("{id}g{i}"), &scope));
    }
    charts.extend(charts::of_peers(&model, &peers, &format!("{id}peers"), &scope));
    charts.extend(charts::of_figures(&model, id, &scope));
    let (mut main, mut rest): (Vec<Chart>, Vec<Chart>) =
        charts.into_iter().partition(|chart| chart.is_main);
    let more = main.split_off(main.len().min(MAX_MAIN));
    rest.splice(0..0, more);
    let missing = record.unfinished_points();
    html! {
        (figures_of(&main))
        @if !rest.is_empty() {
            details {
                summary { (count_of(rest.len(), "more chart")) ": each line by itself" }
                (figures_of(&rest))
            }
        }
        details {
            summary { "The numbers, of " (record.points.len()) " measurements" }
            @for group in groups.iter().chain(peers.iter().take(MAX_PEERS)) {
                @let name = sentence(&group_name(group.quantity, group.label));
                h4 { (name) }
                (times_table(&model, group, &name))
            }
            (rates_table(&model))
            @if peers.len() > MAX_PEERS {
                p.meaning {
                    "Of " (peers.len()) " peers the first " (MAX_PEERS) " have a table here; "
                    code { "rdmalab report --format csv" } " has all of them."
                }
            }
        }
        @if missing > 0 {
            p.meaning { (missing) " planned measurements are missing: the run was ended early." }
        }
        @if !record.skipped.is_empty() {
            details {
                summary { (count_of(record.skipped.len(), "point")) " impossible here" }
                ul { @for s in &record.skipped {
                    li { (model.skipped_place(s)) ": " (s.reason) }
                } }
            }
        }
    }
}

fn times_table(model: &Model, group: &Group, caption: &str) -> Markup {
    // A quantile that no record has gets no column.
    let is_there = |q: &f64| group.rows.iter().any(|(_, merged)| merged.quantile(*q).is_some());
    let body: Vec<f64> = [TENTH, NINTH].into_iter().filter(is_there).collect();
    let mut heads = parameter_heads(model);
    let parameters = heads.len();
    heads.extend(heads_of(group, Quantiles::with(&body)));
    let rows = group.rows.iter().map(|(row, merged)| {
        let mut cells = parameter_cells(model, row);
        cells.extend(cells_of(group, merged, Quantiles::with(&body)));
        cells
    });
    table(caption, &heads, parameters, rows)
}

fn rates_table(model: &Model) -> Markup {
    html! {
        @if let Some(table) = figures_table(model) {
            h4 { "Rates and processor time" }
            (table)
        }
        @if let Some(table) = messages_table(model) {
            h4 { "Messages" }
            (table)
        }
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
            p.meaning { "Each sweep alone, as it was measured:" }
            pre tabindex="0" { code { (commands.collect::<Vec<_>>().join("\n")) } }
        }
    }
}

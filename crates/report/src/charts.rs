//! Chooses the charts of a record, and draws them.

use rdmalab_measure::Quantity;
use rdmalab_measure::group::by_key;
use rdmalab_record::Finding;
use serde_json::Value;

use crate::chart::{Chart, Scope, family, sentence, x_text};
use crate::curves;
use crate::histograms::histograms;
use crate::model::{Group, Merged, Model, NINTH, PAGE, PEER, Row, TAIL, TENTH, group_name};
use crate::published::PlacedValue;
use crate::ranking::{figure_ranking, median_ranking, share_above};
use crate::svg::{Line, Mark, Rule};
use crate::value::{finding_value, heading, percentile};

mod done;
mod lines;
use lines::draw;
pub use lines::{LineChart, several};

/// Most charts of quantiles for one quantity: the table has the others.
const MAX_PANELS: usize = 6;

/// Most findings that are marked in a chart.
const MAX_RULES: usize = 4;

/// The numeric parameter that charts run along: the first of `preferred`, or that with most values.
pub fn along<'a>(model: &Model<'a>, preferred: &[&str]) -> Option<&'a str> {
    let values = |name: &str| -> Vec<f64> {
        let each = model.rows.iter().filter_map(|r| r.parameters.get(name)?.as_f64());
        let mut all: Vec<f64> = each.collect();
        all.sort_by(f64::total_cmp);
        all.dedup();
        all
    };
    let is_number = |name: &&&str| {
        model.rows.iter().all(|r| r.parameters.get(**name).is_some_and(Value::is_number))
    };
    let numeric: Vec<&str> = model.varying.iter().filter(is_number).copied().collect();
    let named = preferred.iter().find_map(|p| numeric.iter().find(|n| n.starts_with(p)));
    named.copied().or_else(|| numeric.into_iter().max_by_key(|n| values(n).len()))
}

/// Groups of rows that differ along `x` only, with a name for their other parameters.
fn families<'g, 'a, T>(
    model: &Model<'a>,
    x: &str,
    rows: impl Iterator<Item = (&'g Row<'a>, T)>,
) -> Vec<(String, Vec<(f64, T)>)>
where
    'a: 'g,
{
    let mut families = by_key(rows.filter_map(|(row, value)| {
        let at = row.parameters.get(x)?.as_f64()?;
        Some((family(model, x, row.parameters), (at, value)))
    }));
    for (_, members) in &mut families {
        members.sort_by(|a, b| a.0.total_cmp(&b.0));
    }
    families
}

/// Vertical lines at the findings along `x` for these families.
fn found_at(model: &Model, x: &str, families: &[&str]) -> Vec<Rule> {
    let rule = |finding: &Finding| {
        let first = finding.points.first()?;
        let point = model.record.points.iter().find(|point| point.number == *first)?;
        let family = family(model, x, &point.parameters);
        let is_here = finding.along.as_deref() == Some(x) && families.contains(&family.as_str());
        let place = if families.len() > 1 { format!(" {family}") } else { String::new() };
        let value = finding.value.filter(|_| is_here)?;
        let shown = finding_value(finding, finding.value);
        Some(Rule { x: value, name: format!("{}{place} {shown}", finding.name.replace('_', " ")) })
    };
    model.findings.iter().filter_map(rule).take(MAX_RULES).collect()
}

/// All charts of one quantity's samples; `id` makes their names unique in the page.
pub fn of_group(model: &Model, group: &Group, id: &str, scope: &Scope) -> Vec<Chart> {
    if group.label.starts_with(PAGE) {
        return done::of_pages(model, group, id, scope);
    }
    let mut charts = match scope.above {
        Some(bound) => share_above(model, group, bound, &format!("{id}-a"), scope),
        None => Vec::new(),
    };
    if scope.is_brief {
        charts.extend(compared(model, group, id, scope));
        return charts;
    }
    charts.extend(curves::patterns(model, group, &format!("{id}-p"), scope));
    let shapes = curves::distributions(model, group, &format!("{id}-d"), scope);
    let bars = histograms(model, group, &format!("{id}-h"), scope).into_iter();
    let details = if let Some(x) = along(model, &["interval", "size", "buffers"]) {
        let rows = group.rows.iter().filter(|(_, m)| m.is_supported).map(|(r, m)| (*r, m));
        let families = families(model, x, rows);
        let is_compared = families.len() > 1;
        if is_compared {
            charts.extend(medians(model, group, x, &families, &format!("{id}-m"), scope));
        }
        let panels = panels(model, group, x, &families, id, scope);
        charts.extend(panels.map(|c| if is_compared { c.aside() } else { c }));
        bars.chain(shapes).map(Chart::aside).collect::<Vec<Chart>>()
    } else {
        if group.rows.len() > 1 {
            charts.extend(median_ranking(model, group, &format!("{id}-r"), scope));
        }
        // If no varying parameter is a number to draw lines over, the distributions are compared.
        bars.map(Chart::aside).chain(shapes).collect()
    };
    charts.extend(curves::heat(model, group, &format!("{id}-2"), scope));
    charts.extend(details);
    let in_time = curves::in_time(model, group, &format!("{id}-s"), scope);
    charts.extend(in_time.into_iter().map(Chart::aside));
    charts
}

/// The charts that contain all rows: usually one.
fn compared(model: &Model, group: &Group, id: &str, scope: &Scope) -> Vec<Chart> {
    let Some(x) = along(model, &["interval", "size", "buffers"]) else {
        return median_ranking(model, group, &format!("{id}-r"), scope);
    };
    let rows = group.rows.iter().filter(|(_, m)| m.is_supported).map(|(r, m)| (*r, m));
    medians(model, group, x, &families(model, x, rows), &format!("{id}-m"), scope)
}

/// The medians of all peers side by side, at the largest value along which charts run.
pub fn of_peers(model: &Model, peers: &[Group], id: &str, scope: &Scope) -> Vec<Chart> {
    let Some(first) = peers.first() else { return Vec::new() };
    let x = along(model, &["interval", "size", "buffers"]).unwrap_or_default();
    let mut last: Vec<(String, f64)> = Vec::new();
    for row in &model.rows {
        let at = row.parameters.get(x).and_then(Value::as_f64).unwrap_or(0.0);
        let name = family(model, x, row.parameters);
        match last.iter_mut().find(|(known, _)| *known == name) {
            Some((_, most)) => *most = most.max(at),
            None => last.push((name, at)),
        }
    }
    let line = |(name, most): &(String, f64)| {
        let is_it = |row: &Row| {
            let at = row.parameters.get(x).and_then(Value::as_f64).unwrap_or(0.0);
            at == *most && family(model, x, row.parameters) == *name
        };
        let mark = |peer: &Group| {
            let number: f64 = peer.label.strip_prefix(PEER)?.parse().ok()?;
            let (_, merged) = peer.rows.iter().find(|(row, m)| m.is_supported && is_it(row))?;
            Some(median_mark(first.quantity, PEER.trim(), number, merged))
        };
        let mut marks: Vec<Mark> = peers.iter().filter_map(mark).collect();
        marks.sort_by(|a, b| a.x.total_cmp(&b.x));
        Line { name: name.clone(), marks }
    };
    let lines: Vec<Line> = last.iter().map(line).filter(|l| !l.marks.is_empty()).collect();
    let ends = last.iter().map(|(_, most)| *most).fold(0.0, f64::max);
    let place = match x {
        "" => String::new(),
        x => format!(", at {} {}", heading(x), x_text(x, ends)),
    };
    let title = format!("Median {} of each peer{place}", first.quantity.name());
    let (how, x) = ("with 95 % intervals", PEER.trim());
    let published = Vec::new();
    let over = LineChart { x, quantity: first.quantity, how, rules: Vec::new(), published };
    let charts = if lines.is_empty() { Vec::new() } else { several(id, &title, &over, &lines) };
    charts.into_iter().take(scope.at_most(MAX_PANELS)).collect()
}

/// One chart of percentiles for each family.
fn panels<'m>(
    model: &'m Model,
    group: &'m Group,
    x: &'m str,
    families: &'m [(String, Vec<(f64, &'m Merged)>)],
    id: &'m str,
    scope: &'m Scope,
) -> impl Iterator<Item = Chart> + 'm {
    let name = group_name(group.quantity, group.label);
    let shown = families.iter().take(scope.at_most(MAX_PANELS)).enumerate();
    shown.filter(|(_, (_, members))| members.len() > 1).map(move |(i, (family, members))| {
        let title = match family.as_str() {
            "" => format!("{} over {}", sentence(&name), heading(x)),
            other => format!("{other}: {name} over {}", heading(x)),
        };
        let published = of_samples(model, group, x, scope, None);
        let here = published.into_iter().filter(|at| at.line.as_deref() == Some(family));
        let published =
            here.map(|at| PlacedValue { line: Some(at.stat.to_owned()), ..at }).collect();
        let how = "median with 95 % interval, percentiles, maximum";
        let rules = found_at(model, x, &[family]);
        let over = LineChart { x, quantity: group.quantity, how, rules, published };
        quantiles(&over, members, title, &format!("{id}-q{i}"), scope)
    })
}

/// The published values about these samples along `x`, each with its family; with `stat`, only
/// those of that statistic.
fn of_samples(
    model: &Model,
    group: &Group,
    x: &str,
    scope: &Scope,
    stat: Option<&str>,
) -> Vec<PlacedValue> {
    let each = scope.published.iter().filter(|t| t.is_of(group.quantity, group.label));
    let each = each.filter(|t| stat.is_none_or(|stat| t.stat() == stat));
    let rows = group.rows.iter().map(|(row, _)| *row);
    each.flat_map(|t| t.along(x, rows.clone(), |row| family(model, x, row.parameters))).collect()
}

fn medians(
    model: &Model,
    group: &Group,
    x: &str,
    families: &[(String, Vec<(f64, &Merged)>)],
    id: &str,
    scope: &Scope,
) -> Vec<Chart> {
    let has_deciles = scope.has_deciles && group.rows.iter().any(|(_, m)| deciles(m).is_some());
    let mark = |at: f64, m: &Merged| {
        let mark = median_mark(group.quantity, x, at, m);
        if has_deciles { with_deciles(group.quantity, m, mark) } else { mark }
    };
    let line = |(name, members): &(String, Vec<(f64, &Merged)>)| Line {
        name: name.clone(),
        marks: members.iter().map(|(at, m)| mark(*at, m)).collect(),
    };
    let lines: Vec<Line> = families.iter().map(line).collect();
    let name = group_name(group.quantity, group.label);
    let title = format!("Median {name} compared");
    let names: Vec<&str> = families.iter().map(|(name, _)| name.as_str()).collect();
    let rules = found_at(model, x, &names);
    let published = of_samples(model, group, x, scope, Some("median"));
    let (title, how) = match has_deciles {
        true => (format!("{title}, with bars from 10 % to 90 %"), "from 10 % to 90 %"),
        false => (title, "with 95 % intervals"),
    };
    let over = LineChart { x, quantity: group.quantity, how, rules, published };
    several(id, &title, &over, &lines)
}

/// The 10 % and the 90 % quantile, if both are known.
fn deciles(merged: &Merged) -> Option<(f64, f64)> {
    merged.quantile(TENTH).zip(merged.quantile(NINTH))
}

/// The mark with a bar from the 10 % to the 90 % quantile.
fn with_deciles(quantity: Quantity, merged: &Merged, mark: Mark) -> Mark {
    let Some((low, high)) = deciles(merged) else { return Mark { interval: None, ..mark } };
    let ends = format!("10 % {}, 90 % {}", quantity.format(low), quantity.format(high));
    Mark { interval: Some((low, high)), text: format!("{}; {ends}", mark.text), ..mark }
}

/// A median with its interval.
pub fn median_mark(quantity: Quantity, x: &str, at: f64, merged: &Merged) -> Mark {
    let interval = merged.interval.filter(|_| merged.is_supported);
    let text = match interval {
        Some((low, high)) => format!(
            "{}: median {} ({} - {})",
            x_text(x, at),
            quantity.format(merged.median),
            quantity.format(low),
            quantity.format(high)
        ),
        None => format!("{}: median {}", x_text(x, at), quantity.format(merged.median)),
    };
    Mark { x: at, y: merged.median, interval, text }
}

fn quantiles(
    over: &LineChart,
    members: &[(f64, &Merged)],
    title: String,
    id: &str,
    scope: &Scope,
) -> Chart {
    let (quantity, x) = (over.quantity, over.x);
    let mark = |at: f64, y: f64, name: &str| Mark {
        x: at,
        y,
        interval: None,
        text: format!("{}: {name} {}", x_text(x, at), quantity.format(y)),
    };
    let mut lines = vec![Line {
        name: "median".to_owned(),
        marks: members.iter().map(|(at, m)| median_mark(quantity, x, *at, m)).collect(),
    }];
    let body: &[f64] = if scope.is_whole { &[TENTH, NINTH] } else { &[] };
    for q in body.iter().copied().chain([TAIL[0], TAIL[1]]) {
        let name = percentile(q);
        let marks: Vec<Mark> =
            members.iter().filter_map(|(at, m)| Some(mark(*at, m.quantile(q)?, &name))).collect();
        if !marks.is_empty() {
            lines.push(Line { name, marks });
        }
    }
    let marks = members.iter().map(|(at, m)| mark(*at, m.max, "max")).collect();
    lines.push(Line { name: "max".to_owned(), marks });
    draw(id, title, over, &lines, &lines)
}

/// Rates, bandwidths and shares over what varies.
pub fn of_figures(model: &Model, id: &str, scope: &Scope) -> Vec<Chart> {
    let mut quantities: Vec<Quantity> = Vec::new();
    for (quantity, _) in model.figures() {
        if !quantities.contains(&quantity) {
            quantities.push(quantity);
        }
    }
    quantities
        .iter()
        .enumerate()
        .flat_map(|(i, q)| of_figure(model, *q, &format!("{id}f{i}"), scope))
        .collect()
}

fn of_figure(model: &Model, quantity: Quantity, id: &str, scope: &Scope) -> Vec<Chart> {
    let labels: Vec<&str> =
        model.figures().into_iter().filter(|(q, _)| *q == quantity).map(|(_, l)| l).collect();
    let Some(x) = along(model, &["interval", "buffers", "size"]) else {
        return figure_ranking(model, quantity, &labels, id, scope);
    };
    let mut lines: Vec<Line> = Vec::new();
    let mut names: Vec<String> = Vec::new();
    let mut published: Vec<PlacedValue> = Vec::new();
    for label in &labels {
        let rows = model.rows.iter().filter_map(|r| Some((r, r.figure(quantity, label)?)));
        let named = |family: &str| -> String {
            let words = [family, *label];
            let name: Vec<&str> = words.into_iter().filter(|t| !t.is_empty()).collect();
            name.join(" ")
        };
        for at in scope.published.iter().filter(|t| t.is_of(quantity, label)) {
            let rows = rows.clone().map(|(row, _)| row);
            published.extend(at.along(x, rows, |row| named(&family(model, x, row.parameters))));
        }
        for (family, members) in families(model, x, rows) {
            let mark = |(at, y): &(f64, f64)| Mark {
                x: *at,
                y: *y,
                interval: None,
                text: format!("{}: {}", x_text(x, *at), quantity.format(*y)),
            };
            let marks = members.iter().map(mark).collect();
            lines.push(Line { name: named(&family), marks });
            if !names.contains(&family) {
                names.push(family);
            }
        }
    }
    let map = labels.first().filter(|_| labels.len() == 1);
    let map_id = format!("{id}-2");
    let map = map.and_then(|l| curves::heat_of_figure(model, quantity, l, &map_id, scope));
    let bars = match quantity.is_ranked() {
        true => figure_ranking(model, quantity, &labels, &format!("{id}-b"), scope),
        false => Vec::new(),
    };
    let title = format!("{} over {}", sentence(quantity.name()), heading(x));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rules = found_at(model, x, &names);
    let over = LineChart { x, quantity, how: "medians of the runs", rules, published };
    let charts = several(&format!("{id}-"), &title, &over, &lines);
    charts.into_iter().take(scope.at_most(MAX_PANELS)).chain(map).chain(bars).collect()
}

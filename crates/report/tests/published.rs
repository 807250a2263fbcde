//! Published values in the charts whose x axis has their unit, and in table cells.

mod common;

use common::{PRINTED, page_with as page, printed_of_round_trips as round_trips, value};
use rdmalab_study::evaluate;

/// The chart with the given caption.
fn chart<'a>(text: &'a str, caption: &str) -> &'a str {
    let start = format!("<figcaption>{caption}");
    let found = text.split("<figure>").find(|figure| figure.starts_with(&start));
    let captions = text.split("<figcaption>").skip(1).map(|rest| rest.split('<').next().unwrap());
    let found =
        found.unwrap_or_else(|| panic!("no {caption} in {:?}", captions.collect::<Vec<_>>()));
    found.split("</figure>").next().unwrap()
}

/// The vertical lines that have this title.
fn uprights<'a>(chart: &'a str, title: &str) -> Vec<&'a str> {
    let marks = chart.split("<g class='pub").filter(|mark| mark.contains(title));
    let level = |mark: &'a str| mark.split("<path class='level' d='M").nth(1);
    marks.filter_map(level).map(|path| path.split('\'').next().unwrap()).collect()
}

#[test]
fn a_printed_value_is_a_line_in_a_histogram() {
    let text = page(common::words().1, PRINTED, &round_trips());
    let histogram = chart(&text, "Round trip: distribution at transport rc, op send");
    for (title, label) in [
        ("published: the usual: 0.45 us (calibration, p. 1)", "published median 450 ns"),
        ("published: ninety of a hundred: 0.6 us (context, p. 2)", "published p90 600 ns"),
        ("published: the worst: 0.9 us (contested, p. 3)", "published max 900 ns"),
    ] {
        assert_eq!(uprights(histogram, title).len(), 1, "{title}: {histogram}");
        assert!(histogram.contains(&format!(">{label}</text>")), "{label}: {histogram}");
    }
    // A value far outside does not compress the chart: an arrow shows where it is.
    assert!(histogram.contains(">published p99 44.0 us →</text>"), "{histogram}");
    assert_eq!(uprights(histogram, "another machine").len(), 0);
    // The marker's shape shows how reliable the value is, and the name below shows its source.
    assert!(histogram.contains("l9 9m0 -9l-9 9'/><title>published: the worst"), "{histogram}");
    for name in ["published (calibration, p. 1)", "published (contested, p. 3)"] {
        assert!(histogram.contains(&format!(">{name}</text>")), "{name}: {histogram}");
    }
    assert!(histogram.contains(" Beside: published: the usual"), "for who cannot see it");
    // The value belongs to this row only. Shares and ratios are no values of this axis.
    assert!(
        !chart(&text, "Round trip: distribution at transport uc, op send").contains("published")
    );
    assert!(!histogram.contains("above 600 ns") && !histogram.contains("what it saves"));
}

#[test]
fn a_printed_quantile_lies_at_its_share_of_the_samples() {
    let text = page(common::words().1, PRINTED, &round_trips());
    let body = chart(&text, "Round trip: share of samples up to a value");
    let tail = chart(&text, "Round trip: share of samples at or above a value");
    let height = |chart: &str, title: &str| -> f64 {
        let found = uprights(chart, title);
        assert_eq!(found.len(), 1, "{title}: {chart}");
        found[0].split('V').nth(1).unwrap().parse().unwrap()
    };
    // The axis runs from 214 at 0 % to 26 at 100 %.
    assert!((height(body, "the usual") - 120.0).abs() < 0.1);
    assert!((height(body, "ninety of a hundred") - 44.8).abs() < 0.1);
    assert!((height(body, "above 600 ns") - 29.76).abs() < 0.1);
    assert_eq!(uprights(body, "the worst").len(), 0, "it is all of them");
    // The axis is logarithmic, from one of 3000 samples to all.
    let (ninety, share) = (height(tail, "ninety of a hundred"), height(tail, "above 600 ns"));
    assert!(ninety < share && share < height(tail, "the worst"), "{tail}");
    assert_eq!(uprights(tail, "the usual").len(), 0);
    for chart in [body, tail] {
        assert!(!chart.contains("what it saves"), "{chart}");
    }
    assert!(body.contains(">published p99 44.0 us →</text>"), "{body}");
}

#[test]
fn a_ratio_is_no_point_of_a_line() {
    let rows = "f,28,%,,calibration,p. 6,what it saves\n";
    let side = "ours.quantity='half_round_trip_ns'\nours.where={ op='send', size_bytes=8 }\n";
    let over = format!("{side}over={{ where={{ op='write' }} }}\nas='reduction'");
    let text = page(common::ping(200, &[8, 512, 32768]).1, rows, &value("f", &over));
    let (_, figure) = text.split_once("Figure f").expect("the figure");
    assert!(!figure.contains("what it saves"), "{figure}");
    let share = value("f", &format!("{side}ours.above=600"));
    let text = page(common::ping(200, &[8, 512, 32768]).1, rows, &share);
    assert!(!chart(&text, "Median RTT/2 compared").contains("what it saves"));
}

#[test]
fn a_cell_of_a_map_has_what_was_printed_of_it() {
    let rows = "a,0.5,us,5%,calibration,p. 1,one buffer\nb,2.5,MB/s,,contested,p. 2,the rate\n";
    let values = value(
        "a",
        "ours.quantity='message_time_ns'\nours.label='runs'\n\
         ours.where={ size_bytes=512, buffers=1 }",
    );
    let text = page(common::grid().1, rows, &values);
    let map = chart(&text, "Median time per message, runs over");
    assert_eq!(map.matches("<g class='pub'>").count(), 2, "in its cell, and in the legend: {map}");
    assert!(map.contains(">500 ns</text>"), "{map}");
    assert!(map.contains("; published: one buffer: 0.5 us (calibration, p. 1)</title>"), "{map}");
    assert!(map.contains(">published (calibration, p. 1)</text>"), "{map}");
    assert!(map.contains(" Beside: published: one buffer"), "{map}");
    let plain = page(common::grid().1, rows, "");
    assert!(!chart(&plain, "Median time per message, runs over").contains("pub"));
}

#[test]
fn markdown_keeps_values_that_nothing_stands_beside() {
    let rows = "a,0.5,us,5%,calibration,p. 1,one\nb,9,us,,contested,p. 2,another\n";
    let absent = "[[absent]]\nmetrics=['b']\nbecause='nobody knows how'\n";
    let (study, parts) = common::one_figure(common::words().1, "", rows, absent);
    let text = rdmalab_report::study_markdown(&study, &parts, &evaluate(&study, &parts));
    let (_, table) = text.split_once("## Published values without a number of ours").unwrap();
    let (table, _) = table.split_once("\n# Figure").unwrap();
    let row = "| another | p. 2 | 9 us | contested | not produced here: nobody knows how |";
    assert!(table.contains(row), "{table}");
    assert!(table.contains("| one | p. 1 | 0.5 us | calibration | "), "{table}");
}

#[test]
fn each_value_has_a_verdict_and_calibrated_ones_are_grey() {
    let mut record = common::ping(200, &[8, 512]).1;
    record.header.device.kind = rdmalab_record::DeviceKind::Sim;
    let rows = "a,0.45,us,5%,calibration,p. 1,the usual\nb,9,us,5%,calibration,p. 2,another\n\
        c,9,us,,contested,p. 3,a third\n";
    let ours = |(metric, size_bytes): (&str, u64)| {
        let place = format!("ours.where={{ op='write', size_bytes={size_bytes} }}");
        value(metric, &format!("ours.quantity='half_round_trip_ns'\n{place}"))
    };
    let values = [("a", 8), ("b", 512), ("c", 8)].map(ours).concat();
    let (mut study, parts) = common::one_figure(record, "", rows, &values);
    study.plan.sim.profile = Some("x".to_owned());
    let calibration = rdmalab_study::Calibration::of_model(&study, "sim:x", ["s: a 0.45 us"]);
    let evaluation = rdmalab_study::evaluate_model(&study, &parts, &calibration);
    let page = rdmalab_report::study_page(&study, &parts, &evaluation, &[]);
    let (_, table) = page.split_once("<h2>Published values beside ours").unwrap();
    let (table, _) = table.split_once("</table>").unwrap();
    assert!(table.contains("1 calibrated, 0 predicted within, 1 predicted outside, 1 contested."));
    let at = |text: &str| table.find(text).unwrap_or_else(|| panic!("no {text} in {table}"));
    assert!(at("another</th>") < at("a third</th>") && at("a third</th>") < at("the usual</th>"));
    let (row, _) = table.split_once("the usual</th>").unwrap();
    let (before, start) = row.rsplit_once("<tr").unwrap();
    assert!(start.contains("class=\"calibrated\""), "{start}");
    assert!(!before.contains("class=\"calibrated\""), "{before}");
    assert!(table.contains(">predicted, outside</td>"), "{table}");

    let csv = rdmalab_report::study_values_csv(&evaluation);
    let lines: Vec<&str> = csv.lines().collect();
    assert!(lines[0].contains(",verdict,") && lines.len() == 4, "{csv}");
    assert!(lines[1].contains("\"predicted, outside\"") && lines[3].ends_with(",a"), "{csv}");
    let json = rdmalab_report::study_json(&study, &parts, &evaluation);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(json["values"][0]["calibrated_by"][0], "a");
    assert_eq!(json["values"][1]["published_number"], 9000.0);
    assert_eq!(json["value_verdicts"]["predicted, outside"], 1);
    let markdown = rdmalab_report::study_markdown(&study, &parts, &evaluation);
    assert!(markdown.contains("| another | p. 2 | predicted, outside | 9 us | 5% |"), "{markdown}");
}

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
    let histogram = chart(&text, "Distribution at transport rc, op send");
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
    assert!(!chart(&text, "Distribution at transport uc, op send").contains("published"));
    assert!(!histogram.contains("above 600 ns") && !histogram.contains("what it saves"));
}

#[test]
fn a_printed_quantile_lies_at_its_share_of_the_samples() {
    let text = page(common::words().1, PRINTED, &round_trips());
    let body = chart(&text, "Share of samples up to a value");
    let tail = chart(&text, "Share of samples at or above a value");
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

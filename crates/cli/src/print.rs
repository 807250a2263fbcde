//! Prints records: in each form, as a histogram, and as pictures.

use std::io::IsTerminal;
use std::path::Path;

use rdmalab_record::Record;
use rdmalab_report::{Histogram, Scale, Style, Table};

use crate::failure::{Outcome, run as failed};
use crate::files;
use crate::format::Format;

/// Bins of a histogram in the terminal.
const BINS: usize = 24;

/// Prints a record. With `gbits`, perftest's tables show bandwidths in Gb/s.
///
/// # Errors
/// Its samples cannot be read.
pub fn record(record: &Record, format: Format, gbits: bool) -> Outcome {
    match format {
        Format::Table => out!("{}", Table::of(record)),
        Format::Json => out!("{}", rdmalab_report::json(record)),
        Format::Markdown => out!("{}", rdmalab_report::markdown(record)),
        Format::Csv => out!("{}", rdmalab_report::csv(record)),
        Format::Perftest => {
            let perftest = rdmalab_report::perftest(record);
            out!("{}", if gbits { in_gbits(&perftest.text) } else { perftest.text });
            for note in &perftest.notes {
                errln!("note: {note}");
            }
        }
    }
    Ok(())
}

/// Prints records one after the other. For people, a list of them comes first.
///
/// # Errors
/// The samples of a record cannot be read.
pub fn records(records: &[Record], format: Format) -> Outcome {
    // CSV readers expect one table.
    if format == Format::Csv {
        out!("{}", rdmalab_report::csv_of(records));
        return Ok(());
    }
    let contents = match format {
        Format::Table => rdmalab_report::contents_text(records),
        Format::Markdown => rdmalab_report::contents_markdown(records),
        Format::Json | Format::Csv | Format::Perftest => String::new(),
    };
    out!("{contents}");
    for (i, record) in records.iter().enumerate() {
        if (i > 0 || !contents.is_empty()) && format != Format::Json {
            outln!();
        }
        self::record(record, format, false)?;
    }
    Ok(())
}

/// perftest's bandwidth table with `--report_gbits`: changes the third and the fourth column.
fn in_gbits(text: &str) -> String {
    let mut is_bandwidth = false;
    let convert = |line: &str| {
        if line.contains("#bytes") {
            is_bandwidth = line.contains("MiB/sec");
            return line.replace("MiB/sec", "Gb/sec");
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[bytes, count, peak, average, rate] = words.as_slice() else { return line.to_owned() };
        let gbits =
            |word: &str| word.parse::<f64>().map(|mib| mib * f64::from(1 << 20) * 8.0 / 1e9);
        match (is_bandwidth, gbits(peak), gbits(average)) {
            (true, Ok(peak), Ok(average)) => format!(
                " {bytes:<7}    {count:<10}       {peak:<7.2}            {average:<7.2}\t\t   \
                 {rate:<7}"
            ),
            _ => line.to_owned(),
        }
    };
    text.lines().map(convert).map(|line| line + "\n").collect()
}

/// Writes the charts; with several records, file names begin with the number of the record.
///
/// # Errors
/// When a file cannot be written.
pub fn charts(records: &[Record], dir: &Path) -> Outcome {
    files::directory("--svg", dir)?;
    for (i, record) in records.iter().enumerate() {
        let before = if records.len() > 1 { format!("{}-", i + 1) } else { String::new() };
        for picture in rdmalab_report::pictures(record) {
            let file = dir.join(format!("{before}{}.svg", picture.name));
            files::write("--svg", &file, picture.svg)?;
        }
    }
    Ok(())
}

/// Prints the histogram of the first series of a record's first point.
///
/// # Errors
/// Its samples cannot be read.
pub fn histogram(record: &Record) -> Outcome {
    let Some(series) = record.points.first().and_then(|point| point.series.first()) else {
        return Ok(());
    };
    let mut samples = record.samples(series).map_err(failed)?;
    samples.drain(..(series.summary.warm_up as usize).min(samples.len()));
    let histogram = Histogram::of(&samples, Scale::Auto, BINS);
    out!("{}", histogram.text(series.quantity, style()));
    Ok(())
}

/// The properties of the terminal.
fn style() -> Style {
    let is_unicode = ["LC_ALL", "LC_CTYPE", "LANG"]
        .iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()))
        .is_some_and(|value| value.to_ascii_uppercase().replace('-', "").contains("UTF8"));
    Style { is_unicode: is_unicode || !std::io::stdout().is_terminal(), ..Style::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gigabits_are_of_the_bandwidth_only() {
        let text = " #bytes  #iterations  BW peak[MiB/sec]  BW average[MiB/sec]  MsgRate[Mpps]\n \
                    65536  5000  0.00  11920.93  0.190735\n";
        let gbits = in_gbits(text);
        let words: Vec<&str> = gbits.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(words, ["65536", "5000", "0.00", "100.00", "0.190735"]);
        assert!(gbits.starts_with(" #bytes") && gbits.contains("average[Gb/sec]"), "{gbits}");
        let latency = " #bytes #iterations t_min[usec]\n 2 1000 0.30 0.31 0.32\n";
        assert_eq!(in_gbits(latency), latency);
    }
}

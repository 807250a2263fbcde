//! `rdmalab report`, and what `run` prints: a record in one of the forms.

use std::io::IsTerminal;
use std::path::{Path, PathBuf};

use rdmalab_findings::with_findings;
use rdmalab_record::Record;
use rdmalab_report::{Histogram, Scale, Style, Table};

use crate::args::ReportArgs;
use crate::failure::{Outcome, run as failed, usage};
use crate::files;
use crate::run::args::Format;
use crate::study::again;

/// Bins of a histogram in the terminal.
const BINS: usize = 24;

/// Prints a record, or writes its page.
pub fn run(args: &ReportArgs) -> Outcome {
    if let Some(file) = &args.html {
        files::check("--html", file)?;
    }
    if let Some(dir) = args.dirs.iter().find(|dir| again::is_one(dir)) {
        return match args.dirs.as_slice() {
            [_] => again::run(dir, args),
            _ => Err(usage(format!(
                "{0} is a study's directory, which is reported alone; the directories in it are \
                 records",
                dir.display()
            ))),
        };
    }
    let mut records = Vec::new();
    for dir in &args.dirs {
        records.extend(below(dir)?.into_iter().map(with_findings));
    }
    let says_it = matches!(args.format, Format::Table | Format::Markdown | Format::Json);
    if !says_it || args.html.is_some() || args.svg.is_some() {
        say_damage(&records);
    }
    if let Some(file) = &args.html {
        files::write("--html", file, rdmalab_report::pages(&records))?;
        return expected(args, &records);
    }
    if let Some(dir) = &args.svg {
        pictures(&records, dir)?;
        return expected(args, &records);
    }
    print_all(&records, args.format)?;
    expected(args, &records)
}

/// Says of what records have lost, where what is printed has no place for it.
pub fn say_damage(records: &[Record]) {
    for record in records {
        for what in &record.damage {
            errln!("warning: {}: {what}", record.dir.display());
        }
    }
}

/// The record of a directory, or those of the directories in it, by their names.
///
/// # Errors
/// When there is none, or one of them cannot be read.
pub fn below(dir: &Path) -> Outcome<Vec<Record>> {
    let is_record = |dir: &Path| dir.join("record.json").is_file();
    let entries = match std::fs::read_dir(dir) {
        _ if is_record(dir) => None,
        // What is in it is not known, so that it cannot be said that there is nothing.
        Err(error) if error.kind() == std::io::ErrorKind::PermissionDenied => {
            return Err(usage(format!("cannot read {}: {error}", dir.display())));
        }
        other => other.ok(),
    };
    let entries = entries.into_iter().flatten();
    let mut found: Vec<PathBuf> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    found.retain(|path| is_record(path));
    found.sort();
    // What a killed run left is told apart by whoever opens it.
    let left = dir.extension().is_some_and(|end| end == "begun");
    if found.is_empty() && dir.is_dir() && !is_record(dir) && !left {
        return Err(usage(format!(
            "{}: there is no record in it: name directories that `rdmalab run` or `rdmalab advise` \
             made, or one with such directories in it",
            dir.display()
        )));
    }
    if found.is_empty() {
        found.push(dir.to_owned());
    }
    found.iter().map(|path| Record::open(path).map_err(usage)).collect()
}

/// Prints records one after the other; for people, with a table of which they are before them.
fn print_all(records: &[Record], format: Format) -> Outcome {
    // A reader of CSV takes one table.
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
        print(record, format, false)?;
    }
    Ok(())
}

/// Holds all records to what is expected.
///
/// # Errors
/// What does not hold.
pub fn expected(args: &ReportArgs, records: &[Record]) -> Outcome {
    if args.expect.is_empty() {
        return Ok(());
    }
    crate::failure::for_each(records, |record| crate::expect::check(&args.expect, record))
}

/// Writes the charts; with several records, a number of the record stands before each name.
///
/// # Errors
/// When a file cannot be written.
pub fn pictures(records: &[Record], dir: &Path) -> Outcome {
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

/// Prints a record; `gbits`: perftest's bandwidths in Gb/s.
///
/// # Errors
/// When samples of it cannot be read.
pub fn print(record: &Record, format: Format, gbits: bool) -> Outcome {
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

/// perftest's bandwidth table with its `--report_gbits`: the third and the fourth column.
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

/// Prints the histogram of the first series of a record's first point.
///
/// # Errors
/// When its samples cannot be read.
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

/// What the terminal can show.
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

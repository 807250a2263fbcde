//! Writing a record: samples first and whole, then the line that names them.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rdmalab_measure::outcome::{Derived, Series};
use rdmalab_measure::{Outcome, Summary};
use serde_json::Value;

use crate::finding::findings_line;
use crate::header::utc;
use crate::point_json::{point_line, skipped_line};
use crate::{
    ENVIRONMENT_FILE, Environment, Error, FINDINGS_FILE, Finding, HEADER_FILE, Header, POINTS_FILE,
    Point, PointId, SAMPLES_DIR, SKIPPED_FILE, Samples, SeriesSummary, Skipped, SourceFile, npy,
};

/// Names that are tried for a record before giving up: one per record begun in the same second.
const MAX_NAMES: u32 = 1000;

/// What names of records begin with.
const PREFIX: &str = "rdmalab-";

/// What a record is called until it is one: its name with this.
pub(crate) const BEGUN: &str = ".begun";

/// Making a record takes less. The beginning of one that is older was left by a program that died.
const MAKING: Duration = Duration::from_secs(10);

/// Characters of a label in a file name.
const MAX_LABEL: usize = 40;

/// A record in the making. Everything that a call returned from is on the disk.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    header: Header,
    points: Lines,
    skipped: Lines,
}

/// A file of lines that are there whole or not at all.
#[derive(Debug)]
struct Lines {
    file: File,
    bytes: u64,
    lines: u64,
}

impl Writer {
    /// A record in a new directory below `parent`, named after the experiment and the time:
    /// `rdmalab-ping-20260131T235959Z`, with a number behind if there is one already.
    ///
    /// # Errors
    /// [`Error::Create`].
    pub fn create(parent: &Path, header: Header, environment: &Environment) -> Result<Self, Error> {
        let base = directory_name(&header);
        for n in 1..=MAX_NAMES {
            let name = if n == 1 { base.clone() } else { format!("{base}-{n}") };
            match Self::create_at(&parent.join(name), header.clone(), environment) {
                Err(Error::Create { source, .. })
                    if source.kind() == io::ErrorKind::AlreadyExists => {}
                done => return done,
            }
        }
        let source = io::Error::from(io::ErrorKind::AlreadyExists);
        Err(Error::Create { dir: parent.join(base), source })
    }

    /// A record in the new directory `dir`, whose parent exists. It is there whole, or not at all:
    /// it is made beside, in `dir.begun`, which a killed program leaves ([`Writer::clear`]).
    ///
    /// # Errors
    /// [`Error::Create`], also when there is something of that name.
    pub fn create_at(dir: &Path, header: Header, environment: &Environment) -> Result<Self, Error> {
        let fail = |source| Error::Create { dir: dir.to_owned(), source };
        let begun = begun(dir);
        // Keeps the name for us, too.
        DirBuilder::new().create(&begun).map_err(fail)?;
        // Says that we live, where the file system has locks.
        let alive = File::open(&begun).map_err(fail)?;
        let _ = alive.try_lock();
        let make = || -> io::Result<(Lines, Lines)> {
            if dir.symlink_metadata().is_ok() {
                return Err(io::ErrorKind::AlreadyExists.into());
            }
            fs::create_dir(begun.join(SAMPLES_DIR))?;
            write_json(&begun, ENVIRONMENT_FILE, &serde_json::to_value(environment)?)?;
            let points = Lines::create(&begun.join(POINTS_FILE))?;
            let skipped = Lines::create(&begun.join(SKIPPED_FILE))?;
            write_json(&begun, HEADER_FILE, &serde_json::to_value(&header)?)?;
            sync_dir(&begun)?;
            fs::rename(&begun, dir)?;
            let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
            sync_dir(parent.unwrap_or(Path::new(".")))?;
            Ok((points, skipped))
        };
        let made = make().inspect_err(|_| {
            let _ = fs::remove_dir_all(&begun);
        });
        let (points, skipped) = made.map_err(fail)?;
        Ok(Self { dir: dir.to_owned(), header, points, skipped })
    }

    /// Removes what a killed program left of a record in `dir` that it had just begun, so that
    /// another may begin there. What is a record stays, and what is none of ours.
    ///
    /// # Errors
    /// [`Error::Create`] when it cannot be removed.
    pub fn clear(dir: &Path) -> Result<(), Error> {
        let fail = |source| Error::Create { dir: dir.to_owned(), source };
        let begun = begun(dir);
        if begun.is_dir() {
            fs::remove_dir_all(&begun).map_err(fail)?;
        }
        // Earlier versions made it in place, with the header last.
        if dir.is_dir() && is_half_made(dir).map_err(fail)? {
            fs::remove_dir_all(dir).map_err(fail)?;
        }
        Ok(())
    }

    /// Removes what killed programs left of records that they had just begun in `parent`, and
    /// returns what that was. Nothing that another program is about to make, or that is no
    /// beginning of a record, is touched; what cannot be removed stays.
    #[must_use]
    pub fn clear_begun(parent: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut found: Vec<PathBuf> = paths.filter(|path| is_abandoned(path)).collect();
        found.sort();
        found.retain(|path| fs::remove_dir_all(path).is_ok());
        found
    }

    /// Goes on with a record that was ended early, as [`Record::open`](crate::Record::open) read
    /// it: what a kill tore is cut off, what was finished stays.
    ///
    /// # Errors
    /// [`Error::Append`] when its files cannot be opened for writing.
    pub fn resume(record: &crate::Record) -> Result<Self, Error> {
        let open = |name: &str| Lines::resume(&record.dir.join(name));
        let fail = |source| Error::Append {
            dir: record.dir.clone(),
            kept: record.points.len() as u64,
            source,
        };
        let points = open(POINTS_FILE).map_err(fail)?;
        let skipped = open(SKIPPED_FILE).map_err(fail)?;
        Ok(Self { dir: record.dir.clone(), header: record.header.clone(), points, skipped })
    }

    /// Where it is.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// What was asked for.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Points that it holds.
    #[must_use]
    pub fn points(&self) -> u64 {
        self.points.lines
    }

    /// Whether anything may be added: a header of an older version would promise lines of that
    /// version, and a reader that knows no newer one would believe it.
    ///
    /// # Errors
    /// [`Error::Resume`].
    pub fn may_grow(&self) -> Result<(), Error> {
        let found = self.header.schema_version;
        let (dir, written_by) = (self.dir.clone(), self.header.program_version.clone());
        match found {
            crate::SCHEMA_VERSION => Ok(()),
            _ => Err(Error::Resume { dir, found, written_by }),
        }
    }

    /// Adds a finished point and returns what was kept of it. After an error the record is as it
    /// was before, and another point may be tried.
    ///
    /// # Errors
    /// [`Error::Append`]; [`Error::Resume`] as of [`Writer::may_grow`].
    pub fn append(&mut self, id: &PointId, outcome: &Outcome) -> Result<Point, Error> {
        self.may_grow()?;
        let number = self.points.lines;
        let samples = samples_of(number, &outcome.series);
        let point = point(number, id, outcome, &samples);
        let line = point_line(&point);
        let all = samples.iter().zip(&outcome.series);
        let files: Vec<(&String, &Series)> = all
            .filter_map(|(samples, series)| match samples {
                Samples::File(name) => Some((name, series)),
                _ => None,
            })
            .collect();
        let add = |points: &mut Lines| -> io::Result<()> {
            for (file, series) in &files {
                replace(&self.dir.join(file), |f| npy::write_npy(f, &series.samples))?;
            }
            if !files.is_empty() {
                sync_dir(&self.dir.join(SAMPLES_DIR))?;
            }
            points.push(&line)
        };
        add(&mut self.points).map_err(|source| {
            // Samples without a line would be taken for a point's that was lost.
            for (file, _) in &files {
                let _ = fs::remove_file(self.dir.join(file));
            }
            self.append_error(source)
        })?;
        Ok(point)
    }

    /// Notes a point that is impossible here.
    ///
    /// # Errors
    /// [`Error::Append`]; [`Error::Resume`] as of [`Writer::may_grow`].
    pub fn skip(&mut self, skipped: &Skipped) -> Result<(), Error> {
        self.may_grow()?;
        let line = skipped_line(skipped);
        self.skipped.push(&line).map_err(|source| self.append_error(source))
    }

    /// Notes what all points together say; a later conclusion takes the place of it.
    ///
    /// # Errors
    /// [`Error::Append`]; [`Error::Resume`] as of [`Writer::may_grow`].
    pub fn conclude(&mut self, findings: &[Finding]) -> Result<(), Error> {
        self.may_grow()?;
        let path = self.dir.join(FINDINGS_FILE);
        let file = if path.exists() { Lines::resume(&path) } else { Lines::create(&path) };
        let line = findings_line(self.points.lines as usize, findings);
        file.and_then(|mut file| file.push(&line)).map_err(|source| self.append_error(source))
    }

    fn append_error(&self, source: io::Error) -> Error {
        Error::Append { dir: self.dir.clone(), kept: self.points.lines, source }
    }
}

impl Lines {
    fn create(path: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().append(true).create_new(true).open(path)?;
        file.sync_all()?;
        Ok(Self { file, bytes: 0, lines: 0 })
    }

    /// Behind the last whole line.
    fn resume(path: &Path) -> io::Result<Self> {
        let text = fs::read(path)?;
        let whole = text.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
        let lines = text[..whole].iter().filter(|b| **b == b'\n').count() as u64;
        let file = OpenOptions::new().append(true).open(path)?;
        file.set_len(whole as u64)?;
        Ok(Self { file, bytes: whole as u64, lines })
    }

    fn push(&mut self, line: &Value) -> io::Result<()> {
        let mut text = serde_json::to_string(line)?;
        text.push('\n');
        let written = self.file.write_all(text.as_bytes()).and_then(|()| self.file.sync_data());
        if let Err(e) = written {
            // A full disk may have taken the first half. Shortening needs no space; should it fail
            // too, the reader leaves the torn line out.
            let _ = self.file.set_len(self.bytes);
            return Err(e);
        }
        self.bytes += text.len() as u64;
        self.lines += 1;
        Ok(())
    }
}

fn point(number: u64, id: &PointId, outcome: &Outcome, samples: &[Samples]) -> Point {
    let series = outcome.series.iter().zip(samples).map(|(series, samples)| SeriesSummary {
        quantity: series.quantity,
        label: series.label.clone(),
        samples: samples.clone(),
        summary: Summary::of(series),
    });
    Point {
        number,
        order_index: id.order_index,
        repetition: id.repetition,
        parameters: id.parameters.clone(),
        started_utc: utc(id.started),
        elapsed_s: id.elapsed.as_secs_f64(),
        series: series.collect(),
        figures: outcome.figures.clone(),
        counts: outcome.counts.clone(),
        facts: outcome.facts.clone(),
        warnings: outcome.warnings.clone(),
        cut_short: outcome.cut_short.clone(),
    }
}

/// Where a record is until it is one.
fn begun(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(BEGUN);
    dir.with_file_name(name)
}

/// Whether a program that is gone had begun a record there.
fn is_abandoned(path: &Path) -> bool {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let is_ours = name.starts_with(PREFIX) && name.ends_with(BEGUN);
    if !is_ours || !path.symlink_metadata().is_ok_and(|found| found.is_dir()) {
        return false;
    }
    let Ok(dir) = File::open(path) else { return false };
    let changed = dir.metadata().and_then(|found| found.modified());
    let age = changed.ok().and_then(|changed| changed.elapsed().ok());
    age.is_some_and(|age| age > MAKING)
        && dir.try_lock().is_ok()
        && holds_only(path, &[PARTS, &[HEADER_FILE]].concat()).unwrap_or(false)
}

/// What there is of a record before it has a header.
const PARTS: &[&str] = &[ENVIRONMENT_FILE, POINTS_FILE, SKIPPED_FILE, SAMPLES_DIR];

/// Whether there is the beginning of a record, without its header, and nothing else.
fn is_half_made(dir: &Path) -> io::Result<bool> {
    holds_only(dir, PARTS)
}

/// Whether a directory has only these, and what was being written.
fn holds_only(dir: &Path, parts: &[&str]) -> io::Result<bool> {
    for entry in fs::read_dir(dir)? {
        let name = entry?.file_name();
        let name = name.to_string_lossy();
        let is_partial = name.ends_with(".partial");
        if !is_partial && !parts.contains(&&*name) {
            return Ok(false);
        }
    }
    Ok(true)
}

fn directory_name(header: &Header) -> String {
    // 2026-01-31T23:59:59.000Z without what a shell or another file system might mind.
    let time: String = header.started_utc.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let time = time.split('.').next().unwrap_or_default();
    format!("{PREFIX}{}-{time}Z", plain(&header.experiment))
}

/// Where the samples of each series are to be: in a file, unless they follow from those in files.
fn samples_of(number: u64, series: &[Series]) -> Vec<Samples> {
    let names = file_names(number, series);
    let one = |(series_of_it, name): (&Series, &String)| {
        let derived = series_of_it.derived.as_ref().filter(|d| follows(series_of_it, d, series));
        match derived {
            None => Samples::File(name.clone()),
            Some(derived) => {
                let part = |at: &usize| SourceFile {
                    samples_file: names[*at].clone(),
                    warm_up: series[*at].warm_up as u64,
                };
                Samples::Derived { how: derived.how, parts: derived.of.iter().map(part).collect() }
            }
        }
    };
    series.iter().zip(&names).map(one).collect()
}

/// Whether they do, bit by bit: a derivation that says so and does not hold would lose samples.
fn follows(series: &Series, derived: &Derived, all: &[Series]) -> bool {
    let parts: Option<Vec<&Series>> = derived.of.iter().map(|at| all.get(*at)).collect();
    let Some(parts) = parts.filter(|p| p.iter().all(|part| part.derived.is_none())) else {
        return false;
    };
    let parts: Vec<_> = parts.iter().map(|part| (&*part.samples, part.warm_up)).collect();
    derived.how.apply(&parts).is_some_and(|(samples, warm_up)| {
        let same = |(a, b): (&f64, &f64)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan();
        warm_up == series.warm_up
            && samples.len() == series.samples.len()
            && samples.iter().zip(&series.samples).all(same)
    })
}

/// Names of the sample files: distinct, also where labels are not.
fn file_names(number: u64, series: &[Series]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for one in series {
        let label = if one.label.is_empty() { String::new() } else { format!("-{}", one.label) };
        let stem = format!("{number:06}-{}{}", one.quantity.field(), plain(&label));
        let name = |n: usize| match n {
            1 => format!("{SAMPLES_DIR}/{stem}.npy"),
            _ => format!("{SAMPLES_DIR}/{stem}-{n}.npy"),
        };
        let n = (1..).find(|n| !names.contains(&name(*n))).expect("numbers do not end");
        names.push(name(n));
    }
    names
}

/// Text for a file name: letters, digits and `_.-` of ASCII, and not too much of it.
fn plain(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
    text.chars().map(keep).take(MAX_LABEL).collect()
}

fn write_json(dir: &Path, name: &str, value: &Value) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    replace(&dir.join(name), |file| file.write_all(text.as_bytes()))
}

/// A file that appears whole or not at all, also when the machine stops in between.
fn replace(path: &Path, write: impl FnOnce(&mut File) -> io::Result<()>) -> io::Result<()> {
    let mut partial = path.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    let done = || -> io::Result<()> {
        let mut file = File::create(&partial)?;
        write(&mut file)?;
        file.sync_all()?;
        fs::rename(&partial, path)
    };
    done().inspect_err(|_| {
        let _ = fs::remove_file(&partial);
    })
}

fn sync_dir(dir: &Path) -> io::Result<()> {
    File::open(dir)?.sync_all()
}

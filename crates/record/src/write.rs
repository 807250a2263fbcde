//! Writes a record: samples first and completely, then the line that names their files.

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
    BEGUN, CAPTURE_FILE, ENVIRONMENT_FILE, Environment, Error, FINDINGS_FILE, Finding, HEADER_FILE,
    Header, POINTS_FILE, Point, PointId, SAMPLES_DIR, SKIPPED_FILE, Samples, SeriesSummary,
    Skipped, SourceFile, npy,
};

/// Most names that are tried for a record: one for each record that begins in the same second.
const MAX_NAMES: u32 = 1000;

/// The beginning of each record's name.
const PREFIX: &str = "rdmalab-";

/// Creating a record takes less time. An older temporary directory is from a program that died.
const MAKING: Duration = Duration::from_secs(10);

/// Most characters of a label in a file name.
const MAX_LABEL: usize = 40;

/// A record that is being written. After a call returns, its data is on the disk.
#[derive(Debug)]
pub struct Writer {
    dir: PathBuf,
    header: Header,
    points: Lines,
    skipped: Lines,
}

/// A file of lines, each written completely or not at all.
#[derive(Debug)]
struct Lines {
    file: File,
    bytes: u64,
    lines: u64,
}

impl Writer {
    /// Creates a record in a new directory below `parent`, named after the experiment and the time:
    /// `rdmalab-ping-20260131T235959Z`, with a number behind if that name is taken.
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

    /// Creates a record in the new directory `dir`, whose parent exists. `dir` appears complete or
    /// not at all: it is created as `dir.begun` and then renamed. A killed program leaves that
    /// directory; see [`Writer::clear`].
    ///
    /// # Errors
    /// [`Error::Create`], also if `dir` exists.
    pub fn create_at(dir: &Path, header: Header, environment: &Environment) -> Result<Self, Error> {
        let fail = |source| Error::Create { dir: dir.to_owned(), source };
        let begun = begun(dir);
        // The temporary directory also reserves the name.
        DirBuilder::new().create(&begun).map_err(fail)?;
        // The lock shows other programs that this one is alive, where the file system has locks.
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

    /// Removes the unfinished record that a killed program left for `dir`, so that a new one can be
    /// created there. Complete records, and files that are not from rdmalab, stay.
    ///
    /// # Errors
    /// [`Error::Create`] if it cannot be removed.
    pub fn clear(dir: &Path) -> Result<(), Error> {
        let fail = |source| Error::Create { dir: dir.to_owned(), source };
        let begun = begun(dir);
        if begun.is_dir() {
            fs::remove_dir_all(&begun).map_err(fail)?;
        }
        // Earlier versions created the record in `dir` itself, and wrote the header last.
        if dir.is_dir() && is_half_made(dir).map_err(fail)? {
            fs::remove_dir_all(dir).map_err(fail)?;
        }
        Ok(())
    }

    /// Removes the unfinished records that killed programs left in `parent`, and returns their
    /// paths. Records that another program is creating, and other directories, are not touched.
    /// What cannot be removed stays.
    #[must_use]
    pub fn clear_begun(parent: &Path) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(parent) else { return Vec::new() };
        let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
        let mut found: Vec<PathBuf> = paths.filter(|path| is_abandoned(path)).collect();
        found.sort();
        found.retain(|path| fs::remove_dir_all(path).is_ok());
        found
    }

    /// Continues a record that ended early, as [`Record::open`](crate::Record::open) read it. An
    /// incomplete last line is cut off; finished points stay.
    ///
    /// # Errors
    /// [`Error::Append`] if its files cannot be opened for writing.
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

    /// The directory of the record.
    #[must_use]
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The header: what the user asked for.
    #[must_use]
    pub fn header(&self) -> &Header {
        &self.header
    }

    /// Number of points in the record.
    #[must_use]
    pub fn points(&self) -> u64 {
        self.points.lines
    }

    /// Whether points may be added. A record with the header of an older version must not get lines
    /// of this version: a reader that knows only the older one would misread them.
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

    /// Adds a finished point, and returns it as the record has it. After an error the record is
    /// unchanged, and the next point may be added.
    ///
    /// # Errors
    /// [`Error::Append`]; [`Error::Resume`] as for [`Writer::may_grow`].
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
            // Sample files without a line would look like those of a lost point.
            for (file, _) in &files {
                let _ = fs::remove_file(self.dir.join(file));
            }
            self.append_error(source)
        })?;
        Ok(point)
    }

    /// A finished point that is not in the record: its summaries, without samples. Number it
    /// [`Writer::points`] or more.
    #[must_use]
    pub fn unsaved(number: u64, id: &PointId, outcome: &Outcome) -> Point {
        let nowhere = vec![Samples::Elsewhere; outcome.series.len()];
        point(number, id, outcome, &nowhere)
    }

    /// Removes the record if it has neither points nor points that were impossible; whether it
    /// did.
    pub fn remove_if_empty(&self) -> bool {
        let is_empty = (self.points.lines, self.skipped.lines) == (0, 0);
        is_empty && fs::remove_dir_all(&self.dir).is_ok()
    }

    /// Records a point that is impossible here.
    ///
    /// # Errors
    /// [`Error::Append`]; [`Error::Resume`] as for [`Writer::may_grow`].
    pub fn skip(&mut self, skipped: &Skipped) -> Result<(), Error> {
        self.may_grow()?;
        let line = skipped_line(skipped);
        self.skipped.push(&line).map_err(|source| self.append_error(source))
    }

    /// Writes the findings over all points; they replace earlier ones.
    ///
    /// # Errors
    /// [`Error::Append`]; [`Error::Resume`] as for [`Writer::may_grow`].
    pub fn conclude(&mut self, findings: &[Finding]) -> Result<(), Error> {
        self.may_grow()?;
        let path = self.dir.join(FINDINGS_FILE);
        let file = if path.exists() { Lines::resume(&path) } else { Lines::create(&path) };
        let line = findings_line(self.points.lines as usize, findings);
        file.and_then(|mut file| file.push(&line)).map_err(|source| self.append_error(source))
    }

    /// Keeps a copy of the capture of the run, unless there is one of an earlier part of the run.
    /// Returns `false` if it keeps none, because this one is longer than
    /// [`CAPTURE_MAX_BYTES`](crate::CAPTURE_MAX_BYTES).
    ///
    /// # Errors
    /// [`Error::Read`] if there is no such file; [`Error::Append`].
    pub fn keep_capture(&self, file: &Path) -> Result<bool, Error> {
        let read = |source| Error::Read { path: file.to_owned(), source };
        let found = fs::metadata(file).map_err(read)?;
        let to = self.dir.join(CAPTURE_FILE);
        if to.exists() {
            return Ok(true);
        }
        if found.len() > crate::CAPTURE_MAX_BYTES {
            return Ok(false);
        }
        let bytes = fs::read(file).map_err(read)?;
        replace(&to, |f| f.write_all(&bytes)).map_err(|source| self.append_error(source))?;
        Ok(true)
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

    /// Opens a file, cuts off an incomplete last line, and appends after it.
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
            // On a full disk, part of the line may have been written. Truncating needs no space; if
            // it fails too, the reader leaves the incomplete line out.
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

/// The temporary name of a record while it is created.
fn begun(dir: &Path) -> PathBuf {
    let mut name = dir.file_name().unwrap_or_default().to_owned();
    name.push(BEGUN);
    dir.with_file_name(name)
}

/// Whether this is the unfinished record of a program that is gone.
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

/// The entries of a record before it has a header.
const PARTS: &[&str] = &[ENVIRONMENT_FILE, POINTS_FILE, SKIPPED_FILE, SAMPLES_DIR];

/// Whether a directory has only entries of a record without a header.
fn is_half_made(dir: &Path) -> io::Result<bool> {
    holds_only(dir, PARTS)
}

/// Whether a directory has only these entries and partly written files.
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
    // 2026-01-31T23:59:59.000Z without characters that are special to shells or file systems.
    let time: String = header.started_utc.chars().filter(|c| !matches!(c, '-' | ':')).collect();
    let time = time.split('.').next().unwrap_or_default();
    format!("{PREFIX}{}-{time}Z", plain(&header.experiment))
}

/// Where the samples of each series are kept: in a file, or derived from series that are in files.
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

/// Whether the derivation gives the same samples bit by bit. If it did not, samples would be lost.
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

/// Names of the sample files: distinct even if labels are equal.
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

/// Text for a file name: ASCII letters, digits and `_.-`, limited in length.
fn plain(text: &str) -> String {
    let keep = |c: char| if c.is_ascii_alphanumeric() || "_.-".contains(c) { c } else { '_' };
    text.chars().map(keep).take(MAX_LABEL).collect()
}

fn write_json(dir: &Path, name: &str, value: &Value) -> io::Result<()> {
    let mut text = serde_json::to_string_pretty(value)?;
    text.push('\n');
    replace(&dir.join(name), |file| file.write_all(text.as_bytes()))
}

/// Writes a file that appears completely or not at all, even if the machine stops meanwhile.
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

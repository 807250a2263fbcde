//! Reads a record of this version or an older one, complete or damaged.

use std::collections::HashSet;
use std::io;
use std::path::{Component, Path, PathBuf};

use serde_json::Value;

use crate::BEGUN;
use crate::finding::parse_findings;
use crate::point_json::{parse_point, parse_skipped};
use crate::{
    CAPTURE_FILE, CAPTURE_MAX_BYTES, ENVIRONMENT_FILE, Error, FINDINGS_FILE, Finding, HEADER_FILE,
    Header, OLDEST_VERSION, Object, POINTS_FILE, Point, SAMPLES_DIR, SCHEMA, SCHEMA_VERSION,
    SKIPPED_FILE, Samples, SeriesSummary, Skipped, npy,
};

/// A record. Its samples are not loaded before a caller asks for them.
#[derive(Clone, Debug)]
pub struct Record {
    /// Where it is.
    pub dir: PathBuf,
    /// The header: what the user asked for.
    pub header: Header,
    /// The object in `environment.json`, with the fields that the writing version had.
    pub environment: Object,
    /// Finished points, in the order in which they finished.
    pub points: Vec<Point>,
    /// Points that were impossible.
    pub skipped: Vec<Skipped>,
    /// The findings over all points. `None` where the record has none for exactly these points, as
    /// records before version 3.
    pub findings: Option<Vec<Finding>>,
    /// Number of points whose lines are damaged: they were measured, and are not among the points.
    pub damaged_points: u64,
    /// Damaged or missing parts, a sentence for each. Empty for an intact record.
    pub damage: Vec<String>,
}

impl Record {
    /// Reads the record in `dir`. Torn lines, and samples that are missing or damaged, are named in
    /// [`Record::damage`] and left out.
    ///
    /// # Errors
    /// [`Error::Read`], [`Error::Foreign`] and [`Error::Version`].
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let header = header(dir)?;
        let mut damage = Vec::new();
        let (points, damaged_points) = lines(dir, POINTS_FILE, parse_point, &mut damage)?;
        let (skipped, _) = lines(dir, SKIPPED_FILE, parse_skipped, &mut damage)?;
        let environment = match read_json(&dir.join(ENVIRONMENT_FILE)) {
            Ok(Value::Object(environment)) => environment,
            Ok(_) => Object::new(),
            Err(e) => {
                damage.push(e.to_string());
                Object::new()
            }
        };
        let findings = findings(dir, points.len(), &mut damage)?;
        let dir = dir.to_owned();
        let record =
            Self { dir, header, environment, points, skipped, findings, damaged_points, damage };
        Ok(record.with_lost_samples())
    }

    /// Adds to the damage the sample files that are missing or incomplete.
    fn with_lost_samples(mut self) -> Self {
        let series = self.points.iter().flat_map(|p| &p.series);
        let (mut seen, mut missing, mut damaged) = (HashSet::new(), Vec::new(), Vec::new());
        for name in series.flat_map(|s| s.samples.files()).filter(|name| seen.insert(*name)) {
            match self.path_of(name).filter(|path| path.is_file()) {
                None => missing.push(name.to_owned()),
                Some(path) => {
                    damaged.extend(npy::check(&path).err().map(|e| format!("{name} ({e})")));
                }
            }
        }
        let lost = [
            first_of(&missing).map(|files| format!("samples are missing: {files}")),
            first_of(&damaged).map(|files| format!("samples are damaged: {files}, and left out")),
        ];
        let kept = |what: String| format!("{what}; summaries are still there");
        self.damage.extend(lost.into_iter().flatten().map(kept));
        self
    }

    /// The points that count: those that were not cut short. A point that was cut short may be in
    /// the record a second time, after a new measurement.
    pub fn whole_points(&self) -> impl Iterator<Item = &Point> + Clone {
        self.points.iter().filter(|point| point.is_whole())
    }

    /// Number of planned points that were neither finished nor skipped: the run ended early. A
    /// damaged point was finished.
    #[must_use]
    pub fn unfinished_points(&self) -> u64 {
        let seen = (self.points.len() + self.skipped.len()) as u64 + self.damaged_points;
        self.header.planned_points.saturating_sub(seen)
    }

    /// The capture of the run, if the record has one of at most [`CAPTURE_MAX_BYTES`].
    #[must_use]
    pub fn capture(&self) -> Option<PathBuf> {
        let file = self.dir.join(CAPTURE_FILE);
        let found = file.metadata().ok()?;
        (found.is_file() && found.len() <= CAPTURE_MAX_BYTES).then_some(file)
    }

    /// The samples of a series, in the order of measurement, warm-up first; NaN for a lost one.
    ///
    /// # Errors
    /// [`Error::Read`]; [`Error::Foreign`] if a file name leads out of the record, if the files do
    /// not fit together, or if the record has no samples of the series.
    pub fn samples(&self, series: &SeriesSummary) -> Result<Vec<f64>, Error> {
        let foreign = |path: &str, what: &str| Error::Foreign {
            path: PathBuf::from(path),
            what: what.to_owned(),
        };
        let read = |name: &str| {
            let path = self.path_of(name);
            let path = path.ok_or_else(|| foreign(name, "its samples must lie below samples/"))?;
            npy::read_npy(&path).map_err(|source| Error::Read { path, source })
        };
        match &series.samples {
            Samples::File(name) => read(name),
            Samples::Derived { how, parts } => {
                let all: Result<Vec<Vec<f64>>, Error> =
                    parts.iter().map(|part| read(&part.samples_file)).collect();
                let all = all?;
                let warm_ups =
                    parts.iter().map(|p| usize::try_from(p.warm_up).unwrap_or(usize::MAX));
                let all: Vec<_> = all.iter().map(Vec::as_slice).zip(warm_ups).collect();
                let found = how.apply(&all).map(|(samples, _)| samples);
                let first = parts.first().map_or("", |part| &part.samples_file);
                found.ok_or_else(|| {
                    foreign(first, "its number of samples differs from that of the other series")
                })
            }
            Samples::Elsewhere => Err(foreign(&series.label, "its samples are elsewhere")),
        }
    }

    /// The samples of a series that count, in the order of measurement: without warm-up and lost
    /// samples.
    ///
    /// # Errors
    /// As [`Record::samples`].
    pub fn counted_samples(&self, series: &SeriesSummary) -> Result<Vec<f64>, Error> {
        let warm_up = usize::try_from(series.summary.warm_up).unwrap_or(usize::MAX);
        let samples = self.samples(series)?.into_iter().skip(warm_up);
        Ok(samples.filter(|s| !s.is_nan()).collect())
    }

    /// Records may come from strangers: a file name in a record must not lead out of its directory.
    fn path_of(&self, samples_file: &str) -> Option<PathBuf> {
        let name = Path::new(samples_file).strip_prefix(SAMPLES_DIR).ok()?;
        let mut parts = name.components();
        let is_plain = matches!(parts.next(), Some(Component::Normal(_))) && parts.next().is_none();
        is_plain.then(|| self.dir.join(SAMPLES_DIR).join(name))
    }
}

/// The first of some files and the number of further ones; `None` if there are no files.
fn first_of(files: &[String]) -> Option<String> {
    let (first, others) = files.split_first()?;
    Some(match others.len() {
        0 => first.clone(),
        n => format!("{first} and {n} more"),
    })
}

fn header(dir: &Path) -> Result<Header, Error> {
    let path = dir.join(HEADER_FILE);
    let foreign = |what: &str| Error::Foreign { path: dir.to_owned(), what: what.to_owned() };
    let value = match read_json(&path) {
        Err(Error::Read { source, .. })
            if matches!(source.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
        {
            return Err(match dir.exists() {
                true if is_begun(dir) => foreign(
                    "a run was killed while it made this directory, before it measured anything: \
                     remove it; the next run that writes its record beside it also does",
                ),
                true => foreign("it has no record.json"),
                false => {
                    let source = io::Error::new(source.kind(), "there is no such directory");
                    Error::Read { path: dir.to_owned(), source }
                }
            });
        }
        other => other?,
    };
    if value.get("schema").and_then(Value::as_str) != Some(SCHEMA) {
        return Err(foreign("the schema of its record.json is not rdmalab-record"));
    }
    let version = value.get("schema_version").and_then(Value::as_u64);
    let found = version.ok_or_else(|| foreign("its record.json has no schema_version"))?;
    if !(u64::from(OLDEST_VERSION)..=u64::from(SCHEMA_VERSION)).contains(&found) {
        let by = value.get("program_version").and_then(Value::as_str).unwrap_or("(unknown)");
        return Err(Error::Version { dir: dir.to_owned(), found, written_by: by.to_owned() });
    }
    serde_json::from_value(value).map_err(|e| Error::Foreign { path, what: e.to_string() })
}

/// The bytes of a file of the record; see [`npy::regular`].
fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut npy::regular(path)?, &mut bytes)?;
    Ok(bytes)
}

/// Whether the name is the temporary one that a record has while it is created.
fn is_begun(dir: &Path) -> bool {
    dir.file_name().is_some_and(|name| name.to_string_lossy().ends_with(BEGUN))
}

fn read_json(path: &Path) -> Result<Value, Error> {
    let text = read(path).map_err(|source| Error::Read { path: path.to_owned(), source })?;
    serde_json::from_slice(&text)
        .map_err(|e| Error::Foreign { path: path.to_owned(), what: e.to_string() })
}

/// The findings in the last line, if they were computed from `points` points.
fn findings(
    dir: &Path,
    points: usize,
    damage: &mut Vec<String>,
) -> Result<Option<Vec<Finding>>, Error> {
    if !dir.join(FINDINGS_FILE).exists() {
        return Ok(None);
    }
    let last = lines(dir, FINDINGS_FILE, parse_findings, damage)?.0.pop();
    Ok(last.filter(|(of, _)| *of == points as u64).map(|(_, findings)| findings))
}

/// Parses each line of a file. A line that cannot be parsed is reported as damage and left out;
/// returns also how many these are, without one that was not written completely.
fn lines<T>(
    dir: &Path,
    name: &str,
    parse: fn(&Value) -> Result<T, String>,
    damage: &mut Vec<String>,
) -> Result<(Vec<T>, u64), Error> {
    let path = dir.join(name);
    let text = match read(&path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            damage.push(format!("{name} is missing"));
            return Ok((Vec::new(), 0));
        }
        other => other.map_err(|source| Error::Read { path, source })?,
    };
    let (mut found, mut damaged) = (Vec::new(), 0);
    let mut pieces: Vec<&[u8]> = text.split(|b| *b == b'\n').collect();
    // After the last line feed there is nothing, or a line that was not written completely.
    let torn = pieces.pop().filter(|rest| !rest.is_empty());
    for (i, line) in pieces.into_iter().chain(torn).enumerate() {
        let parsed = serde_json::from_slice(line).map_err(|e| e.to_string());
        match parsed.and_then(|value| parse(&value)) {
            Ok(one) => found.push(one),
            Err(_) if torn.is_some_and(|t| std::ptr::eq(t, line)) => {
                damage.push(format!("the last line of {name} is incomplete and was left out"));
            }
            Err(e) => {
                damaged += 1;
                damage.push(format!("line {} of {name} was left out: {e}", i + 1));
            }
        }
    }
    Ok((found, damaged))
}

//! The directory of a study's run: the request, and a record for each part.

use std::fs;
use std::path::{Path, PathBuf};

use rdmalab_study::{Calibration, Study};
use serde::{Deserialize, Serialize};

use super::args::StudyArgs;
use crate::failure::{Outcome, run as failed, usage};
use crate::link::LinkArgs;
use crate::records::{RECORDS, new_directory};

/// The file name of the request.
pub const FILE: &str = "study.json";
/// The schema of that file.
const SCHEMA: &str = "rdmalab-study";

/// What the command line asked for: enough to resume the run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Request {
    /// `rdmalab-study`.
    pub schema: String,
    /// Version of the schema: 1.
    pub schema_version: u32,
    /// The study.
    pub study: String,
    /// The directory of studies, unless the study is a shipped one.
    pub studies: Option<PathBuf>,
    /// The figures; empty: all.
    pub figures: Vec<String>,
    /// The program of figures that are about an application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub program: Option<String>,
    /// Whether `--quick` was given.
    pub quick: bool,
    /// The device.
    pub device: String,
    /// Whether the plan chose the device, and so also the link and topology of each sweep.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_of_plan: bool,
    /// The profile of the device.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub profile: Option<String>,
    /// The cores of the ends.
    pub cores: Option<String>,
    /// The hosts of the ranks; empty: this machine.
    #[serde(default)]
    pub hosts: Vec<String>,
    /// How ssh is called.
    #[serde(default)]
    pub ssh: Option<String>,
    /// The program on these hosts.
    #[serde(default)]
    pub remote_program: String,
    /// The `--condition`.
    #[serde(default)]
    pub condition: Option<String>,
    /// The limit of the exit latency of the processors' idle states.
    #[serde(default)]
    pub hold_dma_latency: Option<u32>,
    /// The sources of the calibrated parameters of a simulated device, at that time. Runs of
    /// earlier versions have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub calibrated_from: Option<Vec<String>>,
    /// When the run started.
    pub started_utc: String,
}

/// A run of a study.
#[derive(Clone, Debug)]
pub struct StudyDir {
    /// The directory.
    pub path: PathBuf,
    /// What the command line asked for.
    pub request: Request,
}

impl Request {
    /// The request of a command line. `profiles` are those of the plan, if it chose the device.
    pub fn of(key: &str, args: &StudyArgs, profiles: &[String]) -> Self {
        let link = LinkArgs { profile: args.profile.clone(), ..LinkArgs::default() };
        let device = args.device.clone().unwrap_or_else(|| crate::soft::best(&link));
        let others = profiles.iter().map(|profile| format!("sim:{profile}"));
        let devices = std::iter::once(device.clone()).chain(others);
        // A device that does not exist is refused when it is opened.
        let models = devices.filter_map(|device| crate::simulated::profile(&device).ok().flatten());
        let mut sources: Vec<String> = models.flat_map(|model| model.calibrated_from()).collect();
        sources.sort_unstable();
        sources.dedup();
        let is_simulated = rdmalab_sim::name_of_device(&device).is_some();
        let now = std::time::SystemTime::now();
        Self {
            schema: SCHEMA.to_owned(),
            schema_version: 1,
            study: key.to_owned(),
            studies: args.studies.clone(),
            figures: args.figure.clone(),
            program: args.program.clone(),
            quick: args.quick,
            device,
            is_of_plan: !profiles.is_empty(),
            profile: args.profile.clone(),
            cores: args.cores.clone(),
            condition: args.condition.clone(),
            hold_dma_latency: args.latency.hold_dma_latency,
            hosts: args.hosts.clone(),
            ssh: args.ssh.clone(),
            remote_program: args.remote_program.clone(),
            calibrated_from: is_simulated.then_some(sources),
            started_utc: rdmalab_record::utc(now),
        }
    }

    /// The published values that calibrated the device, if it is a model.
    pub fn calibration(&self, study: &Study) -> Calibration {
        // A run that does not tell was on an earlier state of the profile.
        let now = || {
            let profile = rdmalab_sim::find(rdmalab_sim::name_of_device(&self.device)?).ok()?;
            Some(profile.calibrated_from())
        };
        let sources = self.calibrated_from.clone().or_else(now).unwrap_or_default();
        Calibration::of_model(study, &self.device, sources.iter().map(String::as_str))
    }

    /// The options of the soft device.
    pub fn link(&self) -> LinkArgs {
        LinkArgs { profile: self.profile.clone(), ..LinkArgs::default() }
    }

    /// Refuses options that differ from those with which the run was started, since all its records
    /// have the same conditions.
    ///
    /// # Errors
    /// The first option that differs, and its original value.
    pub fn check_same(&self, args: &StudyArgs) -> Outcome {
        let joined = |list: &[String]| (!list.is_empty()).then(|| list.join(","));
        let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let hold = |us: Option<u32>| us.map(|us| us.to_string());
        let quick = |is_it: bool| is_it.then(|| "yes".to_owned());
        let options = [
            ("figure", joined(&args.figure), joined(&self.figures)),
            ("program", args.program.clone(), self.program.clone()),
            ("quick", quick(args.quick), quick(self.quick)),
            ("device", args.device.clone(), Some(self.device.clone())),
            ("profile", args.profile.clone(), self.profile.clone()),
            ("cores", args.cores.clone(), self.cores.clone()),
            ("hosts", joined(&args.hosts), joined(&self.hosts)),
            ("condition", args.condition.clone(), self.condition.clone()),
            ("studies", shown(&args.studies), shown(&self.studies)),
            ("hold-dma-latency", hold(args.latency.hold_dma_latency), hold(self.hold_dma_latency)),
        ];
        for (name, now, first) in options {
            if now.is_some() && now != first {
                let first = first.map_or("without it".to_owned(), |it| format!("with {it}"));
                return Err(usage(format!(
                    "--{name}: --resume continues a run that was started {first}: leave --{name} \
                     out, or start a new run without --resume"
                )));
            }
        }
        Ok(())
    }
}

impl StudyDir {
    /// Makes a new directory below `--out`.
    ///
    /// # Errors
    /// Why it cannot be made, and what to do.
    pub fn new(request: Request, out: Option<&Path>) -> Outcome<Self> {
        let parent = out.unwrap_or(Path::new(RECORDS));
        let (prefix, utc) = (prefix(&request.study), &request.started_utc);
        let path = new_directory(parent, &prefix, utc, "choose another directory")?;
        let text = serde_json::to_string_pretty(&request).map_err(failed)?;
        let file = path.join(FILE);
        fs::write(&file, text + "\n").map_err(|e| failed(format!("{}: {e}", file.display())))?;
        Ok(Self { path, request })
    }

    /// The directory to resume: `dir`, or the newest of that study below `--out`.
    ///
    /// # Errors
    /// There is none, or it belongs to another study.
    pub fn to_resume(key: &str, dir: Option<&Path>, out: Option<&Path>) -> Outcome<Self> {
        let parent = out.unwrap_or(Path::new(RECORDS));
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => newest(key, parent).ok_or_else(|| {
                usage(format!(
                    "--resume: no run of {key} is below {}: name its directory with --resume=DIR",
                    parent.display()
                ))
            })?,
        };
        Self::of(key, &dir, "--resume")
    }

    /// Opens a directory of that study, which `option` names.
    ///
    /// # Errors
    /// Why it cannot be opened, or that it belongs to another study.
    pub fn of(key: &str, dir: &Path, option: &str) -> Outcome<Self> {
        let found = Self::open(dir).map_err(|what| usage(format!("{option}: {what}")))?;
        let of = &found.request.study;
        if of != key {
            return Err(usage(format!(
                "{option}: {} is a run of another study, {of}",
                dir.display()
            )));
        }
        Ok(found)
    }
}

impl StudyDir {
    /// Opens a directory.
    ///
    /// # Errors
    /// Why it is not the directory of a study, with its path.
    pub fn open(dir: &Path) -> Result<Self, String> {
        let file = dir.join(FILE);
        let text = fs::read_to_string(&file).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                format!("{} is not the directory of a study: it has no {FILE}", dir.display())
            }
            _ => format!("{}: {e}", file.display()),
        })?;
        let request: Request =
            serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        if request.schema != SCHEMA || request.schema_version != 1 {
            return Err(format!(
                "{} has schema {} version {}: use the rdmalab that wrote it",
                file.display(),
                request.schema,
                request.schema_version
            ));
        }
        Ok(Self { path: dir.to_owned(), request })
    }
}

fn prefix(key: &str) -> String {
    format!("rdmalab-study-{key}-")
}

/// The newest directory of a study; sorted by name, directories are sorted by time.
fn newest(key: &str, parent: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(parent).ok()?.filter_map(|entry| entry.ok().map(|e| e.path()));
    let is_it = |path: &PathBuf| {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with(&prefix(key)) && path.join(FILE).is_file()
    };
    entries.filter(is_it).max()
}

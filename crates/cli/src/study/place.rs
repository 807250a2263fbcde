//! The directory of a study's run: what was asked for, and a record for each part.

use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::args::StudyArgs;
use crate::failure::{Outcome, run as failed, usage};
use crate::link::LinkArgs;

/// Where directories of studies go unless told otherwise.
const RECORDS: &str = "rdmalab-records";
/// What was asked for, in the directory.
pub const ASKED: &str = "study.json";
/// The schema of that file.
const SCHEMA: &str = "rdmalab-study";
/// Directories of one second.
const MAX_NAMES: u32 = 1000;

/// What was asked for: enough to go on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    /// `rdmalab-study`.
    pub schema: String,
    /// Its version: 1.
    pub schema_version: u32,
    /// The study.
    pub study: String,
    /// The directory of studies, unless it is a shipped one.
    pub studies: Option<PathBuf>,
    /// The figures; empty: all.
    pub figures: Vec<String>,
    /// Whether it is the quick form.
    pub quick: bool,
    /// The device.
    pub device: String,
    /// The profile that it is under.
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
    /// What it is measured under.
    #[serde(default)]
    pub condition: Option<String>,
    /// How long idle states of the processors may take to end.
    #[serde(default)]
    pub hold_dma_latency: Option<u32>,
    /// When it began.
    pub started_utc: String,
}

/// A run of a study.
#[derive(Clone, Debug)]
pub struct Place {
    /// Its directory.
    pub dir: PathBuf,
    /// What was asked for.
    pub asked: Asked,
}

impl Asked {
    /// What the command line asks for.
    pub fn of(key: &str, args: &StudyArgs) -> Self {
        let link = LinkArgs { profile: args.profile.clone(), ..LinkArgs::default() };
        let device = args.device.clone().unwrap_or_else(|| crate::soft::best(&link));
        let now = std::time::SystemTime::now();
        Self {
            schema: SCHEMA.to_owned(),
            schema_version: 1,
            study: key.to_owned(),
            studies: args.studies.clone(),
            figures: args.figure.clone(),
            quick: args.quick,
            device,
            profile: args.profile.clone(),
            cores: args.cores.clone(),
            condition: args.condition.clone(),
            hold_dma_latency: args.latency.hold_dma_latency,
            hosts: args.hosts.clone(),
            ssh: args.ssh.clone(),
            remote_program: args.remote_program.clone(),
            started_utc: rdmalab_record::utc(now),
        }
    }

    /// How the device is.
    pub fn link(&self) -> LinkArgs {
        LinkArgs { profile: self.profile.clone(), ..LinkArgs::default() }
    }

    /// The first option that asks for something else than what was begun.
    ///
    /// # Errors
    /// Which one, and what there is: what is gone on with is of one kind.
    pub fn agrees(&self, args: &StudyArgs) -> Outcome {
        let joined = |list: &[String]| (!list.is_empty()).then(|| list.join(","));
        let shown = |path: &Option<PathBuf>| path.as_ref().map(|path| path.display().to_string());
        let hold = |us: Option<u32>| us.map(|us| us.to_string());
        let quick = |is_it: bool| is_it.then(|| "yes".to_owned());
        let options = [
            ("figure", joined(&args.figure), joined(&self.figures)),
            ("quick", quick(args.quick), quick(self.quick)),
            ("device", args.device.clone(), Some(self.device.clone())),
            ("profile", args.profile.clone(), self.profile.clone()),
            ("cores", args.cores.clone(), self.cores.clone()),
            ("hosts", joined(&args.hosts), joined(&self.hosts)),
            ("condition", args.condition.clone(), self.condition.clone()),
            ("studies", shown(&args.studies), shown(&self.studies)),
            ("hold-dma-latency", hold(args.latency.hold_dma_latency), hold(self.hold_dma_latency)),
        ];
        for (name, now, begun) in options {
            if now.is_some() && now != begun {
                let begun = begun.map_or("without it".to_owned(), |it| format!("with {it}"));
                return Err(usage(format!(
                    "--{name}: --resume goes on with a run that was begun {begun}: leave --{name} \
                     out, or begin anew without --resume"
                )));
            }
        }
        Ok(())
    }
}

impl Place {
    /// A new directory below `--out`.
    ///
    /// # Errors
    /// When it cannot be made, with what to do.
    pub fn new(asked: Asked, out: Option<&Path>) -> Outcome<Self> {
        let parent = out.unwrap_or(Path::new(RECORDS));
        let wrong = |e: std::io::Error| {
            usage(format!("--out {}: {e}; choose another place", parent.display()))
        };
        fs::create_dir_all(parent).map_err(wrong)?;
        let time: String = asked.started_utc.chars().filter(|c| !"-:".contains(*c)).collect();
        let time = time.split('.').next().unwrap_or_default();
        let base = format!("{}{time}Z", prefix(&asked.study));
        for n in 1..=MAX_NAMES {
            let name = if n == 1 { base.clone() } else { format!("{base}-{n}") };
            let dir = parent.join(name);
            match fs::create_dir(&dir) {
                Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(wrong(e)),
                Ok(()) => {
                    let text = serde_json::to_string_pretty(&asked).map_err(failed)?;
                    let file = dir.join(ASKED);
                    fs::write(&file, text + "\n")
                        .map_err(|e| failed(format!("{}: {e}", file.display())))?;
                    return Ok(Self { dir, asked });
                }
            }
        }
        Err(failed(format!("{}: too many directories of that name", parent.display())))
    }

    /// A directory that was begun: this one, or the newest of that study below `--out`.
    ///
    /// # Errors
    /// When there is none, or it is another study's.
    pub fn begun(key: &str, dir: Option<&Path>, out: Option<&Path>) -> Outcome<Self> {
        let parent = out.unwrap_or(Path::new(RECORDS));
        let dir = match dir {
            Some(dir) => dir.to_owned(),
            None => newest(key, parent).ok_or_else(|| {
                usage(format!(
                    "--resume: no run of {key} below {}: name its directory, --resume=DIR",
                    parent.display()
                ))
            })?,
        };
        Self::of(key, &dir, "--resume")
    }

    /// A directory of that study that an option names.
    ///
    /// # Errors
    /// Why it is none, or that it is another study's.
    pub fn of(key: &str, dir: &Path, option: &str) -> Outcome<Self> {
        let found = Self::open(dir).map_err(|what| usage(format!("{option}: {what}")))?;
        let of = &found.asked.study;
        if of != key {
            return Err(usage(format!("{option}: {} is a run of {of}", dir.display())));
        }
        Ok(found)
    }
}

impl Place {
    /// A directory that was begun.
    ///
    /// # Errors
    /// Why it is none, with its name.
    pub fn open(dir: &Path) -> Result<Self, String> {
        let file = dir.join(ASKED);
        let text = fs::read_to_string(&file).map_err(|e| match e.kind() {
            std::io::ErrorKind::NotFound => {
                format!("{} is no directory of a study: it has no {ASKED}", dir.display())
            }
            _ => format!("{}: {e}", file.display()),
        })?;
        let asked: Asked =
            serde_json::from_str(&text).map_err(|e| format!("{}: {e}", file.display()))?;
        if asked.schema != SCHEMA || asked.schema_version != 1 {
            return Err(format!(
                "{} is of {} version {}: use the rdmalab that wrote it",
                file.display(),
                asked.schema,
                asked.schema_version
            ));
        }
        Ok(Self { dir: dir.to_owned(), asked })
    }
}

fn prefix(key: &str) -> String {
    format!("rdmalab-study-{key}-")
}

/// Names sort by their time.
fn newest(key: &str, parent: &Path) -> Option<PathBuf> {
    let entries = fs::read_dir(parent).ok()?.filter_map(|entry| entry.ok().map(|e| e.path()));
    let is_it = |path: &PathBuf| {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        name.starts_with(&prefix(key)) && path.join(ASKED).is_file()
    };
    entries.filter(is_it).max()
}

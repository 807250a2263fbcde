//! `rdmalab env`: settings for a shell or a Dockerfile with which programs find rdmalab's library
//! without `exec`.

use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};

use crate::exec::runtime::{self, SONAME, Source};
use crate::failure::{Outcome, run as failed};

/// Print what a shell or a Dockerfile needs so that programs find our library without `exec`
///
/// Installs the library in a directory, and prints the lines that name it.
#[derive(Args, Debug)]
pub struct EnvArgs {
    /// Who reads the output
    #[arg(long, value_enum, default_value = "shell")]
    pub format: EnvFormat,
    /// The directory of the library [default: where it is installed, else a directory of yours]
    #[arg(long, value_name = "DIR")]
    pub dir: Option<PathBuf>,
}

/// Who reads what `env` prints.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum EnvFormat {
    /// A POSIX shell
    Shell,
    /// A Dockerfile
    Docker,
}

/// The default directory of the library in an image.
const IN_IMAGE: &str = "/usr/local/lib/rdmalab";

/// Installs the library, and prints the settings.
pub fn run(args: &EnvArgs) -> Outcome {
    match args.format {
        EnvFormat::Docker => docker(args.dir.as_deref().unwrap_or(Path::new(IN_IMAGE))),
        EnvFormat::Shell => shell(&directory(args.dir.as_deref())?),
    }
    Ok(())
}

/// A directory that permanently holds the library under the system's name.
fn directory(asked: Option<&Path>) -> Outcome<PathBuf> {
    let library = runtime::library().map_err(failed)?;
    if let Some(directory) = asked {
        return installed(&library, directory);
    }
    match &library {
        Source::File(path) if path.file_name().is_some_and(|name| name == SONAME) => {
            Ok(path.parent().unwrap_or(Path::new("/")).to_owned())
        }
        _ => {
            let home = runtime::home().ok_or_else(|| {
                failed("neither HOME nor XDG_DATA_HOME is set: name a directory with --dir DIR")
            })?;
            installed(&library, &home)
        }
    }
}

fn installed(library: &Source, directory: &Path) -> Outcome<PathBuf> {
    let cannot = |e: std::io::Error| failed(format!("{}: {e}", directory.display()));
    std::fs::create_dir_all(directory).map_err(cannot)?;
    let directory = directory.canonicalize().map_err(cannot)?;
    runtime::install(library, &directory.join(SONAME)).map_err(failed)?;
    if let Ok(cm) = runtime::find(&runtime::CM) {
        runtime::install(&cm, &directory.join(runtime::CM.soname)).map_err(failed)?;
    }
    Ok(directory)
}

fn shell(directory: &Path) {
    let quoted = directory.display().to_string().replace('\'', r"'\''");
    outln!("# put this into your shell with: eval \"$(rdmalab env)\"");
    outln!("export LD_LIBRARY_PATH='{quoted}'\"${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\"");
}

fn docker(directory: &Path) {
    let directory = directory.display();
    outln!("# glibc {GLIBC} or later in the image; no device, no privilege, no other package.");
    outln!("COPY rdmalab /usr/local/bin/rdmalab");
    outln!("RUN rdmalab env --dir {directory} >/dev/null");
    outln!("ENV LD_LIBRARY_PATH={directory}");
}

/// The oldest C library on which a binary built on Debian 12 runs.
const GLIBC: &str = "2.35";

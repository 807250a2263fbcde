//! The program of `exec`: its file, whether it can run on the soft device, and the command for it.

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use rdmalab_sim::name_of_device;
use rdmalab_softnic::Profile;

use crate::exec::paths::{self, Memory};
use crate::exec::{elf, runtime};
use crate::failure::{Failure, Outcome};
use crate::link::LinkArgs;

/// rdmalab itself failed.
pub const OURS: u8 = 125;
/// The program exists, but cannot be run on the soft device.
pub const CANNOT: u8 = 126;
/// The program was not found.
pub const NOT_THERE: u8 = 127;

/// The program, and the device that it finds.
#[derive(Args, Clone, Debug)]
pub struct ProgramArgs {
    /// Refused, with the reason: a program finds soft0 and soft1.
    #[arg(short, long, value_name = "NAME", hide = true)]
    pub device: Option<String>,
    /// How the device's ports are addressed [default: RDMALAB_PERSONALITY, else infiniband]
    #[arg(long, value_enum)]
    pub personality: Option<Personality>,
    /// Where the program's large buffers are
    #[arg(long, value_enum, default_value_t = Memory::Private)]
    pub memory: Memory,
    /// What lies between its processes and others.
    #[command(flatten)]
    pub link: LinkArgs,
    /// The program and its arguments
    #[arg(
        required = true,
        trailing_var_arg = true,
        allow_hyphen_values = true,
        value_name = "PROGRAM"
    )]
    pub program: Vec<OsString>,
}

/// How ports are addressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Personality {
    /// By LIDs, and by GIDs too
    Infiniband,
    /// By GIDs (RoCE)
    Ethernet,
}

impl Personality {
    /// The value of `RDMALAB_PERSONALITY`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Infiniband => "infiniband",
            Self::Ethernet => "ethernet",
        }
    }
}

/// Refuses a device that is named: a program finds the soft ones, and simulated ones are in no
/// process of their own.
///
/// # Errors
/// Why, and what to do, in one line.
pub fn check_named(device: Option<&str>) -> Outcome {
    let Some(device) = device else { return Ok(()) };
    let why = match name_of_device(device) {
        Some(_) => format!(
            "a program runs in real time, and a simulated device exists in virtual time only: use \
             `rdmalab run EXPERIMENT --device {device}`"
        ),
        None => "every program can use soft0 and soft1: leave this option out, and name the \
                 device in the program's own options"
            .to_owned(),
    };
    Err(Failure::Usage(format!("exec --device {device}: {why}")))
}

/// Whether this process could open the device; a reason why not is only a warning, since the
/// program may enter another network namespace with the interface.
pub fn check_device(link: &LinkArgs) -> bool {
    let missing = link.take_device();
    if let Err(reason) = &missing {
        errln!("rdmalab: exec: {reason}");
    }
    missing.is_ok()
}

/// The file of the program, and the command that runs it on the soft device. With `has_device` a
/// missing directory of the device's files is worth a line.
pub fn prepare(args: &ProgramArgs, has_device: bool) -> Outcome<(PathBuf, Command)> {
    let Some((name, rest)) = args.program.split_first() else {
        return Err(Failure::Code(OURS, "exec: name a program".to_owned()));
    };
    let program = find(name)?;
    check(&program)?;
    let ours = |reason: String| Failure::Code(OURS, format!("exec: {reason}"));
    let library = runtime::library().map_err(ours)?;
    let directory = runtime::prepare(&library).map_err(ours)?;
    let cm = directory.join(runtime::CM.soname);
    if let Ok(source) = runtime::find(&runtime::CM) {
        runtime::put(&source, &cm).map_err(ours)?;
    }
    let mut command = Command::new(&program);
    command
        .arg0(name)
        .args(rest)
        .env("LD_LIBRARY_PATH", runtime::in_front(&directory, "LD_LIBRARY_PATH"));
    if let Some(personality) = args.personality {
        command.env("RDMALAB_PERSONALITY", personality.name());
    }
    if let Some(said) = under_profile(&args.link) {
        errln!("rdmalab: exec: {said}");
    }
    args.link.make_room(&[0]).map_err(ours)?;
    command.envs(args.link.variables(0));
    let mut preload = Vec::new();
    if needs_preload(&program) {
        preload.push(directory.join(runtime::SONAME));
        preload.extend(Some(cm).filter(|cm| cm.exists()));
    }
    paths::put_in_front(&mut command, &directory, preload, args.memory, has_device)
        .map_err(ours)?;
    Ok((program, command))
}

/// The warning that the program's numbers are those of a profile.
fn under_profile(link: &LinkArgs) -> Option<String> {
    let profile = profile_of(link)?;
    Some(format!(
        "soft devices have the profile {} ({}): numbers are those of the profile, and of no \
         adapter",
        profile.name,
        profile.does()
    ))
}

/// The profile of the program's devices, unless it is the ideal one.
pub fn profile_of(link: &LinkArgs) -> Option<Profile> {
    let variable = || std::env::var("RDMALAB_PROFILE").ok().filter(|named| !named.is_empty());
    let named = link.profile.clone().or_else(variable)?;
    // A wrong value of the variable is reported when the device is opened.
    rdmalab_softnic::find_profile(&named).ok().filter(|found| !found.is_ideal())
}

/// The program's file, searched as a shell does.
fn find(name: &OsString) -> Outcome<PathBuf> {
    let shown = name.to_string_lossy();
    if shown.contains('/') {
        let path = PathBuf::from(name);
        return match path.metadata() {
            Ok(data) if data.is_file() => Ok(path),
            Ok(_) => Err(Failure::Code(CANNOT, format!("exec: {shown}: not a file"))),
            Err(error) => Err(Failure::Code(NOT_THERE, format!("exec: {shown}: {error}"))),
        };
    }
    let paths = std::env::var_os("PATH").unwrap_or_else(|| "/usr/local/bin:/usr/bin:/bin".into());
    std::env::split_paths(&paths)
        .map(|directory| directory.join(name))
        .find(|path| path.is_file() && is_executable(path))
        .ok_or_else(|| match shown.starts_with('-') {
            // Arguments are the program's from the first that is no option of ours.
            true => Failure::Usage(format!(
                "exec has no option {shown}: `rdmalab exec --help` lists its options"
            )),
            false => Failure::Code(NOT_THERE, format!("exec: {shown}: not found in PATH")),
        })
}

fn is_executable(path: &Path) -> bool {
    rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// Refuses a program that cannot load the library, with the reason.
fn check(program: &Path) -> Outcome {
    let refuse =
        |why: String| Err(Failure::Code(CANNOT, format!("exec: {}: {why}", program.display())));
    if let Some(privilege) = privilege(program) {
        return refuse(format!(
            "it is {privilege}: the dynamic linker ignores LD_LIBRARY_PATH for it, so it would \
             use the system's libibverbs; run a copy without the privilege"
        ));
    }
    match elf::linkage(program) {
        Ok(elf::Linkage::Static) => refuse(
            "it is statically linked, so it cannot load our libibverbs: link it dynamically"
                .to_owned(),
        ),
        Ok(elf::Linkage::Foreign(what)) => refuse(format!(
            "it is a program for {what}, but our library is for this machine's architecture"
        )),
        // The interpreter of a script is not checked; its children inherit the environment.
        Ok(elf::Linkage::Script | elf::Linkage::Dynamic { .. }) => Ok(()),
        Err(error) => refuse(error.to_string()),
    }
}

/// The reason why the kernel would start the program in secure mode, if it would.
fn privilege(program: &Path) -> Option<&'static str> {
    use std::os::unix::fs::MetadataExt;
    let data = program.metadata().ok()?;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    // The kernel ignores setuid if the owner is the current user.
    if data.mode() & 0o4000 != 0 && data.uid() != uid {
        return Some("setuid");
    }
    // Without execute permission for the group, the bit has another meaning.
    if data.mode() & 0o2010 == 0o2010 && data.gid() != gid {
        return Some("setgid");
    }
    let mut value = [0u8; 64];
    let has = rustix::fs::getxattr(program, c"security.capability", &mut value).is_ok();
    // Root has all capabilities anyway, so file capabilities do not cause secure mode.
    (has && uid != 0).then_some("given capabilities (setcap)")
}

/// Whether the program has a library path (`DT_RPATH`) that precedes `LD_LIBRARY_PATH`.
fn needs_preload(program: &Path) -> bool {
    matches!(elf::linkage(program), Ok(elf::Linkage::Dynamic { has_rpath: true }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_static_binary_is_refused_with_the_reason() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("static");
        std::fs::write(&path, elf::tests::image(&[])).unwrap();
        let Err(Failure::Code(code, line)) = check(&path) else { panic!("not refused") };
        assert_eq!(code, CANNOT);
        assert!(line.contains("statically linked"), "{line}");
    }
}

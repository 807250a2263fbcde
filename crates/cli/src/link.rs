//! Options of a soft device and its link: profile, network interface, capture, fault injection. The
//! processes that measure get them in their environment, as `exec` passes them to its program; the
//! process of the command itself captures nothing and injects no faults, unless it simulates:
//! simulated devices support the last two.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::Args;
use rdmalab_verbs::{Device, Kind};

/// Options of a soft device and its link, for every command that uses one.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "The link of a soft device")]
pub struct LinkArgs {
    /// The profile of the device: its limits, and what packets cost. A name that `rdmalab devices
    /// --profiles` lists, or the path of a file [default: RDMALAB_PROFILE, else ideal]
    #[arg(long, value_name = "NAME|FILE", value_parser = profile)]
    pub profile: Option<String>,
    /// The network interface to other hosts, by RoCEv2 over UDP [default: RDMALAB_INTERFACE, else
    /// none: the device reaches this host only]
    #[arg(long, value_name = "IF")]
    pub interface: Option<String>,
    /// The UDP port of RoCEv2, the same at both ends [default: RDMALAB_PORT, else 4791]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    pub udp_port: Option<u16>,
    /// Write every packet that a process sends or receives to a pcapng file. The first process
    /// (rank 0 of a run) writes FILE, the others add their number before the suffix. Simulated
    /// devices do it too, in virtual time [default: RDMALAB_CAPTURE, else none; for simulated
    /// devices none]
    #[arg(long, value_name = "FILE")]
    pub capture: Option<PathBuf>,
    /// Inject faults into the packets that processes of this command send, as in 'seed=7; drop 1%
    /// of request; delay 50us of ack'. Simulated devices do it too, in virtual time [default:
    /// RDMALAB_FAULTS, else none; for simulated devices none]
    #[arg(long, value_name = "RULES", value_parser = faults)]
    pub faults: Option<String>,
}

/// The options that simulated devices support too.
const SIMULATED: [&str; 2] = ["--capture", "--faults"];

/// Checks fault rules.
fn faults(text: &str) -> Result<String, String> {
    rdmalab_softnic::check_faults(text).map(|()| text.to_owned())
}

/// Checks a profile. The path of a file becomes absolute, because a process may change its
/// directory.
pub fn profile(text: &str) -> Result<String, String> {
    rdmalab_softnic::find_profile(text)?;
    if !rdmalab_softnic::is_profile_path(text) {
        return Ok(text.to_owned());
    }
    let path = std::path::absolute(text).map_err(|error| format!("{text}: {error}"))?;
    path.into_os_string().into_string().map_err(|path| format!("{}: no UTF-8", path.display()))
}

/// Variables of a process.
pub type Variables = Vec<(OsString, OsString)>;

impl LinkArgs {
    /// The options that were given; only soft devices support all of them.
    fn all(&self) -> impl Iterator<Item = &'static str> {
        let given = [
            ("--capture", self.capture.is_some()),
            ("--faults", self.faults.is_some()),
            ("--interface", self.interface.is_some()),
            ("--udp-port", self.udp_port.is_some()),
            ("--profile", self.profile.is_some()),
        ];
        given.into_iter().filter(|(_, is_given)| *is_given).map(|(name, _)| name)
    }

    /// The first option that was given.
    pub fn first(&self) -> Option<&'static str> {
        self.all().next()
    }

    /// Gives this process the same view of the device as the processes that it starts: the same
    /// profile and the same interface.
    ///
    /// # Errors
    /// The problem with the profile or the interface, in one line.
    pub fn take_device(&self) -> Result<(), String> {
        if let Some(profile) = &self.profile {
            rdmalab_softnic::choose_profile(profile)?;
        }
        rdmalab_softnic::choose_interface(self.interface.as_deref(), self.udp_port)
    }

    /// Refuses a device that does not support one of the options that were given.
    ///
    /// # Errors
    /// The option, and what to do, in one line.
    pub fn check(&self, device: &Device) -> Result<(), String> {
        let is_simulated = device.kind() == Kind::Sim;
        let mut refused = self.all().filter(|name| !is_simulated || !SIMULATED.contains(name));
        refused.next().map_or(Ok(()), |option| check_soft(option, device))
    }

    /// Applies all options to this process, which is itself a rank: mpirun or srun started it, and
    /// so its environment could not be set before.
    ///
    /// # Errors
    /// The problem with the profile, the interface or the capture, in one line.
    pub fn take_all(&self, rank: usize) -> Result<(), String> {
        self.take_device()?;
        self.make_room(&[rank])?;
        let capture = self.captures(&[rank]).pop();
        rdmalab_softnic::choose_hooks(capture, self.faults.clone())
    }

    /// Capture files of these ranks; none without `--capture`.
    pub fn captures(&self, ranks: &[usize]) -> Vec<PathBuf> {
        let Some(file) = &self.capture else { return Vec::new() };
        ranks.iter().map(|rank| of_rank(file, *rank)).collect()
    }

    /// Removes older captures of these ranks, and checks that new ones can be written.
    ///
    /// # Errors
    /// Why a capture cannot be written, in one line.
    pub fn make_room(&self, ranks: &[usize]) -> Result<(), String> {
        for file in self.captures(ranks) {
            rdmalab_softnic::make_room_for_capture(&file).map_err(|e| format!("--capture {e}"))?;
        }
        Ok(())
    }

    /// The environment variables of the process of a rank.
    pub fn variables(&self, rank: usize) -> Variables {
        let mut variables = Variables::new();
        let mut set = |name: &str, value: &OsStr| variables.push((name.into(), value.into()));
        if let Some(profile) = &self.profile {
            set("RDMALAB_PROFILE", profile.as_ref());
        }
        if let Some(interface) = &self.interface {
            set("RDMALAB_INTERFACE", interface.as_ref());
        }
        if let Some(port) = self.udp_port {
            set("RDMALAB_PORT", port.to_string().as_ref());
        }
        if let Some(faults) = &self.faults {
            set("RDMALAB_FAULTS", faults.as_ref());
        }
        if let Some(file) = &self.capture {
            set("RDMALAB_CAPTURE", of_rank(file, rank).as_os_str());
        }
        variables
    }

    /// The arguments of a worker.
    pub fn worker(&self) -> Vec<String> {
        let mut words = vec!["worker".to_owned()];
        if let Some(option) = self.first() {
            // Written with `=`, because the value begins with dashes.
            words.push(format!("--soft-only={option}"));
        }
        words
    }

    /// The options as they were given, for people.
    pub fn given(&self) -> String {
        let mut words = Vec::new();
        if let Some(profile) = &self.profile {
            words.push(format!("--profile {profile}"));
        }
        if let Some(interface) = &self.interface {
            words.push(format!("--interface {interface}"));
        }
        if let Some(port) = self.udp_port {
            words.push(format!("--udp-port {port}"));
        }
        if let Some(file) = &self.capture {
            words.push(format!("--capture {}", file.display()));
        }
        if let Some(faults) = &self.faults {
            words.push(format!("--faults '{faults}'"));
        }
        words.join(" ")
    }
}

/// Refuses a device that is not soft.
///
/// # Errors
/// One line that names the option.
pub fn check_soft(option: &str, device: &Device) -> Result<(), String> {
    if device.kind() == Kind::Soft {
        return Ok(());
    }
    let name = device.name();
    let instead = match (device.kind(), option) {
        (Kind::Sim, "--profile") => "; --device sim:FILE takes a profile of a simulated adapter",
        (Kind::Sim, _) => "",
        _ => "; packets of an adapter are captured with ibdump or tcpdump",
    };
    Err(format!(
        "{option} does not work on {name}: name a soft device (--device soft0), or leave {option} \
         out{instead}"
    ))
}

/// The capture file of a rank; rank 0 uses the given name. The path is absolute, because a process
/// may change its directory.
fn of_rank(file: &Path, rank: usize) -> PathBuf {
    let file = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    if rank == 0 {
        return file;
    }
    let mut name = file.file_stem().unwrap_or_default().to_owned();
    name.push(format!("-rank{rank}"));
    if let Some(suffix) = file.extension() {
        name.push(".");
        name.push(suffix);
    }
    file.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_rank_has_a_file_and_the_first_the_name() {
        let link = LinkArgs { capture: Some("/tmp/a.b.pcapng".into()), ..LinkArgs::default() };
        let files = link.captures(&[0, 1]);
        assert_eq!(files, ["/tmp/a.b.pcapng", "/tmp/a.b-rank1.pcapng"].map(PathBuf::from));
        assert_eq!(of_rank(Path::new("/plain"), 1), Path::new("/plain-rank1"));
        assert!(LinkArgs::default().captures(&[0, 1]).is_empty());
        assert!(of_rank(Path::new("here"), 0).is_absolute());
    }

    #[test]
    fn what_a_device_does_not_support_is_refused() {
        use rdmalab_verbs::Library;
        let link = LinkArgs { faults: Some("drop".into()), ..LinkArgs::default() };
        let device = |kind| {
            let table = rdmalab_provider::table::table::<rdmalab_softnic::SoftNic>();
            Library::new(table, kind, None).devices().unwrap()[0].clone()
        };
        assert_eq!(link.check(&device(Kind::Soft)), Ok(()));
        let said = link.check(&device(Kind::System)).unwrap_err();
        assert!(said.starts_with("--faults does not work on soft0: name a soft"), "{said}");
        assert_eq!(LinkArgs::default().check(&device(Kind::System)), Ok(()));
        assert_eq!(link.check(&device(Kind::Sim)), Ok(()));
        let link = LinkArgs { udp_port: Some(4791), ..link };
        let said = link.check(&device(Kind::Sim)).unwrap_err();
        assert!(said.starts_with("--udp-port does not work on soft0: name a soft"), "{said}");
    }

    #[test]
    fn a_process_is_told_what_was_asked_for_and_no_more() {
        assert_eq!(LinkArgs::default().variables(0), Variables::new());
        assert_eq!(LinkArgs::default().worker(), ["worker"]);
        let link = LinkArgs {
            profile: Some("late-ack".into()),
            interface: Some("lo".into()),
            udp_port: Some(4799),
            capture: Some("/c".into()),
            faults: Some("drop 1%".into()),
        };
        let told: Vec<String> = link
            .variables(1)
            .iter()
            .map(|(name, value)| format!("{}={}", name.display(), value.display()))
            .collect();
        let expected =
            ["PROFILE=late-ack", "INTERFACE=lo", "PORT=4799", "FAULTS=drop 1%", "CAPTURE=/c-rank1"];
        assert_eq!(told, expected.map(|rest| format!("RDMALAB_{rest}")));
        assert_eq!(link.worker(), ["worker", "--soft-only=--capture"]);
        let given = "--profile late-ack --interface lo --udp-port 4799 --capture /c --faults \
                     'drop 1%'";
        assert_eq!(link.given(), given);
    }

    #[test]
    fn a_profile_is_checked_and_a_file_has_its_whole_path() {
        assert_eq!(profile("late-ack").as_deref(), Ok("late-ack"));
        assert!(profile("late-akc").unwrap_err().contains("is late-ack meant?"));
        let file = tempfile::NamedTempFile::with_suffix(".toml").unwrap();
        let text = "name = 'x'\ntitle = 't'\nimitates = 'nothing'\nlacks = 'all'\n";
        std::fs::write(file.path(), text).unwrap();
        let found = profile(file.path().to_str().unwrap()).unwrap();
        assert!(Path::new(&found).is_absolute(), "{found}");
    }
}

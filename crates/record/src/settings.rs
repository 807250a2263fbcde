//! Settings of the machine that change times and that its administrator chooses. Each is kept with
//! the file that it was read from.

use std::collections::BTreeSet;
use std::fs;
use std::io::{ErrorKind, Read};
use std::path::Path;

use serde::{Deserialize, Serialize};

const CPUS: &str = "sys/devices/system/cpu";
const HUGE_PAGES: &str = "sys/kernel/mm/hugepages";
/// Stands in a file's name for the control group of the process, whose name is not kept.
const CGROUP: &str = "CGROUP";
/// The kernel's word for no limit of the exit latency of idle states, us
/// (`PM_QOS_CPU_LATENCY_DEFAULT_VALUE`).
const NO_LIMIT_US: i32 = 2_000_000_000;

/// A setting of the machine.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Its name.
    pub name: String,
    /// The file that it is read from; `*` stands for several.
    pub file: String,
    /// Its value; `None` if the file is not there.
    pub value: Option<String>,
}

impl Setting {
    fn new(name: &str, file: &str, value: Option<String>) -> Self {
        Self { name: name.to_owned(), file: format!("/{file}"), value }
    }
}

/// The settings of the machine whose files are below `root`, and those of its adapter.
pub(crate) fn read(root: &Path, device: &str) -> Vec<Setting> {
    let text = |file: &str| text(&root.join(file));
    let plain = |name: &str, file: &str| Setting::new(name, file, text(file));
    let mut settings = vec![
        plain("PCIe ASPM policy", "sys/module/pcie_aspm/parameters/policy"),
        plain("tuned profile", "etc/tuned/active_profile"),
        dma_latency(root),
        interrupts(root, device),
    ];
    settings.extend(cpuset(root));
    settings.extend(huge_pages(root));
    settings.extend(idle_states(root));
    settings
}

/// The text of a small file; `None` if it is absent or empty.
fn text(path: &Path) -> Option<String> {
    match fs::read(path) {
        Ok(bytes) => {
            let text = String::from_utf8_lossy(&bytes).trim().to_owned();
            (!text.is_empty()).then_some(text)
        }
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Some("not readable".to_owned())
        }
        Err(_) => None,
    }
}

/// The names in a directory, in the order of their numbers.
fn names(dir: &Path) -> Vec<String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let mut names: Vec<String> =
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect();
    names.sort_by_key(|name| (name.len(), name.clone()));
    names
}

/// The limit of the exit latency that programs hold, this one included: a number of 32 bits.
fn dma_latency(root: &Path) -> Setting {
    let file = "dev/cpu_dma_latency";
    let read = || {
        let mut bytes = [0; 4];
        fs::File::open(root.join(file))?.read_exact(&mut bytes)?;
        Ok::<_, std::io::Error>(i32::from_ne_bytes(bytes))
    };
    let value = match read() {
        Ok(NO_LIMIT_US) => Some("no limit".to_owned()),
        Ok(limit_us) => Some(format!("{limit_us} us")),
        Err(error) if error.kind() == ErrorKind::PermissionDenied => {
            Some("not readable".to_owned())
        }
        Err(_) => None,
    };
    Setting::new("exit latency held", file, value)
}

/// The processors of the adapter's interrupts. Which has which may change all the time.
fn interrupts(root: &Path, device: &str) -> Setting {
    // A device's name comes from the command line.
    let is_name = !device.is_empty() && !device.contains(['/', '.']);
    let dir = root.join("sys/class/infiniband").join(device).join("device/msi_irqs");
    let numbers = if is_name { names(&dir) } else { Vec::new() };
    let of = |number: &String| {
        let file = |of: &str| text(&root.join(format!("proc/irq/{number}/{of}")));
        file("effective_affinity_list").or_else(|| file("smp_affinity_list"))
    };
    let each: BTreeSet<String> = numbers.iter().filter_map(of).collect();
    let value = (!each.is_empty()).then(|| each.into_iter().collect::<Vec<_>>().join("; "));
    Setting::new("processors of the adapter's IRQs", "proc/irq/*/effective_affinity_list", value)
}

/// The processors and memory nodes that the control group of this process allows.
fn cpuset(root: &Path) -> [Setting; 2] {
    let groups = text(&root.join("proc/self/cgroup")).unwrap_or_default();
    let place = |line: &str| {
        let mut parts = line.splitn(3, ':').skip(1);
        let (controllers, path) = (parts.next()?, parts.next()?.trim_start_matches('/'));
        match controllers {
            "" => Some(("sys/fs/cgroup", path.to_owned(), ".effective")),
            _ if controllers.split(',').any(|one| one == "cpuset") => {
                Some(("sys/fs/cgroup/cpuset", path.to_owned(), ""))
            }
            _ => None,
        }
    };
    // A machine with both kinds of control groups has cpusets in the older ones.
    let places = || groups.lines().filter_map(place);
    let found = places().find(|(_, _, suffix)| suffix.is_empty()).or_else(|| places().next());
    let (dir, path, suffix) = found.unwrap_or(("sys/fs/cgroup", String::new(), ".effective"));
    [("processors of the cpuset", "cpus"), ("memory nodes of the cpuset", "mems")].map(
        |(name, what)| {
            // A group without the file has what the next group above has.
            let file = |group: &Path| {
                text(&root.join(dir).join(group).join(format!("cpuset.{what}{suffix}")))
            };
            let value = Path::new(&path).ancestors().find_map(file);
            Setting::new(name, &format!("{dir}/{CGROUP}/cpuset.{what}{suffix}"), value)
        },
    )
}

/// The number of reserved huge pages of each size.
fn huge_pages(root: &Path) -> Vec<Setting> {
    let of = |name: &String| {
        let file = format!("{HUGE_PAGES}/{name}/nr_hugepages");
        let size = name.strip_prefix("hugepages-")?;
        let value = text(&root.join(&file));
        Some(Setting::new(&format!("huge pages of {size}"), &file, value))
    };
    let found: Vec<Setting> = names(&root.join(HUGE_PAGES)).iter().filter_map(of).collect();
    match found.is_empty() {
        true => vec![Setting::new("huge pages", HUGE_PAGES, None)],
        false => found,
    }
}

/// The idle states of the processors, and where they are disabled.
fn idle_states(root: &Path) -> Vec<Setting> {
    let is_cpu = |name: &String| {
        name.strip_prefix("cpu").is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let cpus: Vec<String> = names(&root.join(CPUS)).into_iter().filter(is_cpu).collect();
    let states = cpus.iter().flat_map(|cpu| names(&root.join(CPUS).join(cpu).join("cpuidle")));
    let states: BTreeSet<String> = states.filter(|name| name.starts_with("state")).collect();
    let of = |state: &String| {
        let file = |cpu: &String, of: &str| {
            text(&root.join(CPUS).join(cpu).join("cpuidle").join(state).join(of))
        };
        let first = |of: &str| cpus.iter().find_map(|cpu| file(cpu, of));
        let has = cpus.iter().filter_map(|cpu| file(cpu, "disable"));
        let (all, off) =
            has.fold((0, 0), |(all, off), disabled| (all + 1, off + usize::from(disabled != "0")));
        let latency = first("latency").map_or(String::new(), |us| format!(", {us} us to leave"));
        let state_of = match off {
            0 => "enabled".to_owned(),
            off if off == all => "disabled".to_owned(),
            off => format!("disabled on {off} of {all} processors"),
        };
        let name = first("name").unwrap_or_else(|| state.clone());
        let file = format!("{CPUS}/cpu*/cpuidle/{state}/disable");
        Setting::new(&format!("idle state {name}"), &file, Some(format!("{state_of}{latency}")))
    };
    match states.is_empty() {
        true => vec![Setting::new("idle states", &format!("{CPUS}/cpu*/cpuidle"), None)],
        false => states.iter().map(of).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &[u8])]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        root
    }

    fn value<'a>(settings: &'a [Setting], name: &str) -> Option<&'a str> {
        let mut of = settings.iter().filter(|setting| setting.name == name);
        let found = of.next().unwrap_or_else(|| panic!("no {name} in {settings:?}"));
        assert!(of.next().is_none() && found.file.starts_with('/'), "{settings:?}");
        found.value.as_deref()
    }

    #[test]
    fn each_setting_is_read_from_its_file() {
        let root = tree(&[
            ("sys/module/pcie_aspm/parameters/policy", b"default [performance] powersave\n"),
            ("etc/tuned/active_profile", b"network-latency\n"),
            ("dev/cpu_dma_latency", &3i32.to_ne_bytes()),
            ("sys/class/infiniband/mlx5_0/device/msi_irqs/9", b"msix\n"),
            ("sys/class/infiniband/mlx5_0/device/msi_irqs/10", b"msix\n"),
            ("proc/irq/9/smp_affinity_list", b"0-3\n"),
            ("proc/irq/9/effective_affinity_list", b"2\n"),
            ("proc/irq/10/smp_affinity_list", b"0-3\n"),
            ("proc/self/cgroup", b"0::/user.slice/user-7.slice\n"),
            ("sys/fs/cgroup/user.slice/cpuset.cpus.effective", b"0-1\n"),
            ("sys/fs/cgroup/cpuset.cpus.effective", b"0-7\n"),
            ("sys/fs/cgroup/user.slice/user-7.slice/cpuset.mems.effective", b"0\n"),
            ("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages", b"64\n"),
            ("sys/kernel/mm/hugepages/hugepages-1048576kB/nr_hugepages", b"0\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/name", b"POLL\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", b"0\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/disable", b"0\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/name", b"C6\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/latency", b"133\n"),
            ("sys/devices/system/cpu/cpu0/cpuidle/state1/disable", b"1\n"),
            ("sys/devices/system/cpu/cpu1/cpuidle/state1/disable", b"0\n"),
        ]);
        let found = read(root.path(), "mlx5_0");
        for (name, expected) in [
            ("PCIe ASPM policy", "default [performance] powersave"),
            ("tuned profile", "network-latency"),
            ("exit latency held", "3 us"),
            ("processors of the adapter's IRQs", "0-3; 2"),
            ("processors of the cpuset", "0-1"),
            ("memory nodes of the cpuset", "0"),
            ("huge pages of 2048kB", "64"),
            ("huge pages of 1048576kB", "0"),
            ("idle state POLL", "enabled, 0 us to leave"),
            ("idle state C6", "disabled on 1 of 2 processors, 133 us to leave"),
        ] {
            assert_eq!(value(&found, name), Some(expected), "{name}");
        }
        // Names of users are not kept.
        assert!(found.iter().all(|setting| !setting.file.contains("user")), "{found:?}");
    }

    #[test]
    fn cpusets_of_both_kinds_of_control_groups_are_found() {
        let root = tree(&[
            ("proc/self/cgroup", b"4:cpu,cpuset:/a\n0::/b\n"),
            ("sys/fs/cgroup/cpuset/a/cpuset.cpus", b"5\n"),
            ("dev/cpu_dma_latency", &NO_LIMIT_US.to_ne_bytes()),
        ]);
        let found = read(root.path(), "");
        assert_eq!(value(&found, "processors of the cpuset"), Some("5"));
        assert_eq!(value(&found, "memory nodes of the cpuset"), None);
        assert_eq!(value(&found, "exit latency held"), Some("no limit"));
    }

    #[test]
    fn what_is_not_there_is_no_error_and_still_named() {
        let root = tree(&[]);
        let found = read(root.path(), "../x");
        assert!(found.iter().all(|setting| setting.value.is_none()), "{found:?}");
        let named: Vec<&str> = found.iter().map(|setting| setting.name.as_str()).collect();
        assert_eq!(named.len(), 8, "{named:?}");
        assert!(named.contains(&"idle states") && named.contains(&"huge pages"), "{named:?}");
    }
}

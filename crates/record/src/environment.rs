//! `environment.json`: properties of the machine that influence the numbers. This file names all
//! that is kept; names of hosts, users and files, and other environment variables, are not kept.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::settings::{self, Setting};

/// Keys of the kernel's command line that are kept.
const KERNEL_ARGUMENTS: [&str; 24] = [
    "amd_iommu",
    "amd_pstate",
    "clocksource",
    "default_hugepagesz",
    "hugepages",
    "hugepagesz",
    "idle",
    "intel_idle.max_cstate",
    "intel_iommu",
    "intel_pstate",
    "iommu",
    "iommu.passthrough",
    "irqaffinity",
    "isolcpus",
    "mitigations",
    "nohz_full",
    "nosmt",
    "pcie_aspm",
    "preempt",
    "processor.max_cstate",
    "rcu_nocbs",
    "skew_tick",
    "transparent_hugepage",
    "tsc",
];

/// Variables that change what is measured.
const VARIABLES: [&str; 4] =
    ["RDMALAB_PERSONALITY", "RDMALAB_LANE", "RDMALAB_FAULT_GUARD", "RDMALAB_DEBUG"];

/// Files of an adapter that are kept, below `/sys/class/infiniband/NAME`.
const DEVICE_FILES: [&str; 4] = ["board_id", "fw_ver", "hca_type", "hw_rev"];

/// The machine. A field is `None` where the machine does not report it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Environment {
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Version of the C library, as it names itself.
    pub libc: Option<String>,
    /// Arguments on the kernel's command line that influence times.
    pub kernel_arguments: BTreeMap<String, String>,
    /// Model of the processor.
    pub cpu_model: Option<String>,
    /// Its microcode.
    pub cpu_microcode: Option<String>,
    /// Processors that are online.
    pub cpus_online: Option<String>,
    /// Processors that this process may use.
    pub cpus_allowed: Option<String>,
    /// Processors that are isolated from the scheduler.
    pub cpus_isolated: Option<String>,
    /// Hyper-threading: `on`, `off`, `notsupported`.
    pub smt: Option<String>,
    /// Whether this is a virtual machine, according to the processor.
    pub is_hypervisor_guest: Option<bool>,
    /// The frequency governor of the first processor.
    pub cpu_governor: Option<String>,
    /// Whether it may exceed its nominal frequency.
    pub is_turbo_on: Option<bool>,
    /// The driver of the idle states.
    pub cpu_idle_driver: Option<String>,
    /// Processors of each NUMA node.
    pub numa_nodes: BTreeMap<String, String>,
    /// The clock that the kernel uses.
    pub kernel_clock_source: Option<String>,
    /// Transparent huge pages: the word in brackets is the choice.
    pub transparent_huge_pages: Option<String>,
    /// Memory of the machine.
    pub memory_bytes: Option<u64>,
    /// The limit of locked memory of this process; `None` if there is none or it is not known.
    pub memory_lock_limit_bytes: Option<u64>,
    /// The clock of the measuring program.
    pub clock: Option<ClockFacts>,
    /// What the adapter reports about itself.
    pub device: BTreeMap<String, String>,
    /// Variables of rdmalab that were set.
    pub variables: BTreeMap<String, String>,
    /// What an administrator chooses, and the file of each: power management, huge pages,
    /// interrupts, cpusets.
    pub settings: Vec<Setting>,
}

/// How times were taken.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClockFacts {
    /// The source of the time stamps.
    pub source: String,
    /// Why the stamps do not come from the processor's counter; `None` if they do.
    pub fallback_reason: Option<String>,
    /// The median cost of a stamp. Every interval contains it; it is never subtracted.
    pub stamp_cost_ns: f64,
    /// How far the calibration may be off, as a share.
    pub relative_error: f64,
}

impl ClockFacts {
    /// The facts of a clock, measured with 10 000 stamps.
    #[must_use]
    pub fn of(clock: &rdmalab_measure::Clock) -> Self {
        Self {
            source: clock.source().to_string(),
            fallback_reason: clock.fallback_reason().map(str::to_owned),
            stamp_cost_ns: clock.cost(10_000).median_ns,
            relative_error: clock.relative_error(),
        }
    }
}

impl Environment {
    /// This machine, with the facts of the adapter `device` if it exists.
    #[must_use]
    pub fn here(device: &str, clock: Option<ClockFacts>) -> Self {
        let variable = |name: &str| std::env::var(name).ok();
        Self { clock, ..Self::read(Path::new("/"), device, variable) }
    }

    /// Reads the files below `root`.
    fn read(root: &Path, device: &str, variable: impl Fn(&str) -> Option<String>) -> Self {
        let file = |path: &str| text(&root.join(path));
        let cpu = "sys/devices/system/cpu";
        let cpuinfo = file("proc/cpuinfo").unwrap_or_default();
        let status = file("proc/self/status").unwrap_or_default();
        let no_turbo = file(&format!("{cpu}/intel_pstate/no_turbo")).map(|t| t == "0");
        let boost = || file(&format!("{cpu}/cpufreq/boost")).map(|t| t == "1");
        Self {
            kernel: file("proc/sys/kernel/osrelease"),
            libc: libc_version(root, &file("proc/self/maps").unwrap_or_default()),
            kernel_arguments: kernel_arguments(&file("proc/cmdline").unwrap_or_default()),
            cpu_model: entry(&cpuinfo, "model name"),
            cpu_microcode: entry(&cpuinfo, "microcode"),
            cpus_online: file(&format!("{cpu}/online")),
            cpus_allowed: entry(&status, "Cpus_allowed_list"),
            cpus_isolated: file(&format!("{cpu}/isolated")),
            smt: file(&format!("{cpu}/smt/control")),
            is_hypervisor_guest: entry(&cpuinfo, "flags")
                .map(|flags| flags.split(' ').any(|f| f == "hypervisor")),
            cpu_governor: file(&format!("{cpu}/cpu0/cpufreq/scaling_governor")),
            is_turbo_on: no_turbo.or_else(boost),
            cpu_idle_driver: file(&format!("{cpu}/cpuidle/current_driver")),
            numa_nodes: numa_nodes(&root.join("sys/devices/system/node")),
            kernel_clock_source: file(
                "sys/devices/system/clocksource/clocksource0/current_clocksource",
            ),
            transparent_huge_pages: file("sys/kernel/mm/transparent_hugepage/enabled"),
            memory_bytes: file("proc/meminfo").and_then(|m| kilobytes(&entry(&m, "MemTotal")?)),
            memory_lock_limit_bytes: file("proc/self/limits").and_then(|l| lock_limit(&l)),
            clock: None,
            device: device_files(&root.join("sys/class/infiniband"), device),
            variables: VARIABLES
                .iter()
                .filter_map(|name| Some(((*name).to_owned(), variable(name)?)))
                .collect(),
            settings: settings::read(root, device),
        }
    }
}

/// The text of a small file without the white space around it; `None` if it is absent or empty.
fn text(path: &Path) -> Option<String> {
    let text = fs::read(path).ok()?;
    let text = String::from_utf8_lossy(&text).trim().to_owned();
    (!text.is_empty()).then_some(text)
}

/// The value of the first line `name : value`.
fn entry(text: &str, name: &str) -> Option<String> {
    let mut entries = text.lines().filter_map(|l| l.split_once(':'));
    let (_, value) = entries.find(|(key, _)| key.trim() == name)?;
    Some(value.trim().to_owned())
}

fn kilobytes(value: &str) -> Option<u64> {
    value.strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

fn lock_limit(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|l| l.strip_prefix("Max locked memory"))?;
    line.split_whitespace().next()?.parse().ok()
}

fn kernel_arguments(cmdline: &str) -> BTreeMap<String, String> {
    let split = |word: &str| match word.split_once('=') {
        Some((key, value)) => (key.to_owned(), value.to_owned()),
        None => (word.to_owned(), String::new()),
    };
    let kept = |(key, _): &(String, String)| KERNEL_ARGUMENTS.contains(&key.as_str());
    cmdline.split_whitespace().map(split).filter(kept).collect()
}

fn numa_nodes(dir: &Path) -> BTreeMap<String, String> {
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    let nodes = entries.filter_map(|entry| {
        let name = entry.file_name().into_string().ok()?;
        let number = name.strip_prefix("node")?;
        number.parse::<u32>().ok()?;
        Some((number.to_owned(), text(&entry.path().join("cpulist"))?))
    });
    nodes.collect()
}

fn device_files(dir: &Path, device: &str) -> BTreeMap<String, String> {
    // A device's name comes from the command line.
    if device.is_empty() || device.contains(['/', '.']) {
        return BTreeMap::new();
    }
    let known = DEVICE_FILES.iter();
    known
        .filter_map(|name| Some(((*name).to_owned(), text(&dir.join(device).join(name))?)))
        .collect()
}

/// The version in the text of the C library's file: calling the library for it would need C.
fn libc_version(root: &Path, maps: &str) -> Option<String> {
    const SENTENCE: &[u8] = b"GNU C Library ";
    let path = maps.lines().find_map(|line| {
        let path = line.split_whitespace().nth(5)?;
        path.rsplit('/').next()?.starts_with("libc.so").then_some(path)
    })?;
    let bytes = fs::read(root.join(path.trim_start_matches('/'))).ok()?;
    let at = bytes.windows(SENTENCE.len()).position(|w| w == SENTENCE)?;
    let line = bytes[at..].split(|b| *b == b'\n').next()?;
    Some(String::from_utf8_lossy(line).trim_end_matches('.').to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        root
    }

    #[test]
    fn only_what_is_listed_is_kept() {
        let root = tree(&[
            ("proc/cmdline", "root=/dev/secret isolcpus=2,3 quiet nosmt token=abc mitigations=off"),
            ("proc/cpuinfo", "model name\t: A Processor\nflags\t\t: fpu tsc hypervisor\n\n"),
            ("proc/meminfo", "MemTotal:       1024 kB\n"),
            ("proc/self/limits", "Max locked memory         8388608   8388608   bytes\n"),
            ("sys/devices/system/cpu/intel_pstate/no_turbo", "1\n"),
            ("sys/devices/system/cpu/isolated", "\n"),
            ("sys/devices/system/node/node0/cpulist", "0-3\n"),
            ("sys/devices/system/node/online", "0\n"),
            ("sys/class/infiniband/mlx5_0/fw_ver", "20.31.1014\n"),
            ("sys/class/infiniband/mlx5_0/node_guid", "0c42:a103:0065:2aa4\n"),
        ]);
        let set = |name: &str| Some(format!("{name} is set"));
        let found = Environment::read(root.path(), "mlx5_0", set);
        assert_eq!(found.kernel_arguments.len(), 3);
        assert_eq!(found.kernel_arguments["isolcpus"], "2,3");
        assert_eq!(found.cpu_model.as_deref(), Some("A Processor"));
        assert_eq!(found.is_hypervisor_guest, Some(true));
        assert_eq!((found.is_turbo_on, found.cpus_isolated.as_deref()), (Some(false), None));
        assert_eq!(found.memory_bytes, Some(1 << 20));
        assert_eq!(found.memory_lock_limit_bytes, Some(8 << 20));
        assert_eq!(found.numa_nodes, BTreeMap::from([("0".to_owned(), "0-3".to_owned())]));
        assert_eq!(found.device.len(), 1);
        assert_eq!(found.variables.len(), VARIABLES.len());
        let written = serde_json::to_string(&found).unwrap();
        assert!(!written.contains("secret") && !written.contains("token"), "{written}");
        assert!(!written.contains("0c42"), "{written}");
    }

    #[test]
    fn a_machine_that_tells_nothing_is_no_error() {
        let root = tree(&[]);
        let mut found = Environment::read(root.path(), "../x", |_| None);
        assert!(found.settings.drain(..).all(|setting| setting.value.is_none()));
        assert_eq!(found, Environment::default());
    }

    #[test]
    fn this_machine_tells_something() {
        let found = Environment::here("", None);
        assert!(found.kernel.is_some() && found.cpus_online.is_some(), "{found:?}");
        #[cfg(target_env = "gnu")]
        assert!(found.libc.unwrap().starts_with("GNU C Library"));
    }
}

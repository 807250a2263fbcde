//! Machines as trees of files: one without problems, and one with every problem.

use super::*;

const CPU: &str = "sys/devices/system/cpu";
const NIC: &str = "sys/class/infiniband/mlx5_0";

fn root_of(files: &[(&str, &str)]) -> tempfile::TempDir {
    let root = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = root.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }
    root
}

fn with(prefix: &str, files: &[(&str, &'static str)]) -> Vec<(String, &'static str)> {
    files.iter().map(|(path, text)| (format!("{prefix}/{path}"), *text)).collect()
}

fn machine(
    cpu: &[(&str, &'static str)],
    nic: &[(&str, &'static str)],
    rest: &[(&'static str, &'static str)],
) -> tempfile::TempDir {
    let mut files = with(CPU, cpu);
    files.extend(with(NIC, nic));
    files.extend(rest.iter().map(|(path, text)| ((*path).to_owned(), *text)));
    let files: Vec<(&str, &str)> = files.iter().map(|(p, t)| (p.as_str(), *t)).collect();
    root_of(&files)
}

fn well_kept() -> tempfile::TempDir {
    machine(
        &[
            ("cpu0/cpufreq/scaling_governor", "performance\n"),
            ("cpu1/cpufreq/scaling_governor", "performance\n"),
            ("cpu0/cpuidle/state0/name", "POLL"),
            ("cpu0/cpuidle/state0/latency", "0"),
            ("cpu0/cpuidle/state0/disable", "0"),
            ("cpu0/cpuidle/state1/name", "C1"),
            ("cpu0/cpuidle/state1/latency", "2"),
            ("cpu0/cpuidle/state1/disable", "0"),
            ("cpu0/cpuidle/state2/name", "C6"),
            ("cpu0/cpuidle/state2/latency", "133"),
            ("cpu0/cpuidle/state2/disable", "1"),
            ("isolated", "1\n"),
            ("nohz_full", "1\n"),
        ],
        &[
            ("ports/1/state", "4: ACTIVE\n"),
            ("ports/1/rate", "100 Gb/sec (4X EDR)\n"),
            ("ports/1/link_layer", "Ethernet\n"),
            ("ports/1/gids/0", "fe80:0000:0000:0000:0e42:a1ff:fe65:2aa4\n"),
            ("ports/1/gids/1", "0000:0000:0000:0000:0000:ffff:0a00:0001\n"),
            ("ports/1/gids/2", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("ports/1/gid_attrs/types/0", "RoCE v2\n"),
            ("ports/1/gid_attrs/types/1", "RoCE v2\n"),
            ("device/net/eth0/mtu", "9000\n"),
            ("device/numa_node", "0\n"),
            ("device/local_cpulist", "0-1\n"),
            ("device/current_link_speed", "8.0 GT/s PCIe\n"),
            ("device/max_link_speed", "8.0 GT/s PCIe\n"),
            ("device/current_link_width", "16\n"),
            ("device/max_link_width", "16\n"),
            ("device/msi_irqs/40", "msix\n"),
        ],
        &[
            ("proc/irq/40/effective_affinity_list", "0\n"),
            ("proc/irq/40/smp_affinity_list", "0-1\n"),
            ("proc/self/limits", "Max locked memory         unlimited  unlimited  bytes\n"),
            ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1\n"),
            (
                "proc/meminfo",
                "HugePages_Total:     512\nHugePages_Free:  500\nHugepagesize: 2048 kB\n",
            ),
            ("proc/cpuinfo", "flags\t\t: fpu tsc constant_tsc\n"),
            ("sys/kernel/realtime", "1\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n"),
            ("sys/module/pcie_aspm/parameters/policy", "default [performance] powersave\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ("sys/devices/system/node/node0/cpulist", "0-1\n"),
        ],
    )
}

fn neglected() -> tempfile::TempDir {
    machine(
        &[
            ("cpu0/cpufreq/scaling_governor", "powersave\n"),
            ("cpu1/cpufreq/scaling_governor", "performance\n"),
            ("cpu0/cpuidle/state3/name", "C6"),
            ("cpu0/cpuidle/state3/latency", "133"),
            ("cpu0/cpuidle/state3/disable", "0"),
            ("isolated", "\n"),
        ],
        &[
            ("ports/1/state", "1: DOWN\n"),
            ("ports/1/link_layer", "Ethernet\n"),
            ("ports/1/gids/0", "0000:0000:0000:0000:0000:0000:0000:0000\n"),
            ("device/net/eth0/mtu", "1500\n"),
            ("device/numa_node", "1\n"),
            ("device/local_cpulist", "8-15\n"),
            ("device/current_link_speed", "8.0 GT/s PCIe\n"),
            ("device/max_link_speed", "16.0 GT/s PCIe\n"),
            ("device/current_link_width", "8\n"),
            ("device/max_link_width", "16\n"),
            ("device/msi_irqs/40", "msix\n"),
            ("device/msi_irqs/41", "msix\n"),
        ],
        &[
            ("proc/irq/40/smp_affinity_list", "0-3\n"),
            ("proc/irq/41/smp_affinity_list", "9\n"),
            ("proc/self/limits", "Max locked memory         65536  65536  bytes\n"),
            ("proc/self/status", "Cpus_allowed_list:\t0-7\n"),
            ("proc/meminfo", "HugePages_Total:       0\nHugepagesize:       2048 kB\n"),
            ("proc/cpuinfo", "flags\t\t: fpu hypervisor\n"),
            ("proc/version", "Linux version 6.1.0 #1 SMP PREEMPT_DYNAMIC\n"),
            ("proc/sys/kernel/numa_balancing", "1\n"),
            ("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never\n"),
            ("sys/module/pcie_aspm/parameters/policy", "default performance [powersave]\n"),
            ("sys/devices/system/clocksource/clocksource0/current_clocksource", "hpet\n"),
            ("sys/devices/system/clocksource/clocksource0/available_clocksource", "tsc hpet\n"),
            ("sys/devices/system/node/node0/cpulist", "0-7\n"),
            ("sys/devices/system/node/node1/cpulist", "8-15\n"),
        ],
    )
}

fn findings(root: &tempfile::TempDir) -> Vec<Diagnosis> {
    examine(&Tree::at(root.path()))
}

fn levels(findings: &[Diagnosis]) -> Vec<(&str, Level)> {
    findings.iter().map(|f| (f.about.as_str(), f.level)).collect()
}

#[test]
fn a_well_kept_machine_is_left_in_peace() {
    let found = findings(&well_kept());
    let bad: Vec<_> = found.iter().filter(|f| f.level != Level::Good).collect();
    assert!(bad.is_empty(), "{bad:#?}");
    assert_eq!(found.len(), 17, "{:#?}", levels(&found));
    let text = text(&found);
    assert!(text.contains("nothing that disturbs") && !text.contains("--fix"), "{text}");
    assert!(text.contains("1 is RoCE v2 over IPv4") && text.contains("2 there"), "{text}");
    assert_eq!(script(&found), "# there is nothing that a command could fix\n");
}

#[test]
fn what_hurts_is_named_with_what_fixes_it() {
    let root = neglected();
    let found = findings(&root);
    let hurts: Vec<&str> =
        found.iter().filter(|f| f.level == Level::Hurts).map(|f| f.about.as_str()).collect();
    assert_eq!(
        hurts,
        [
            "governor",
            "idle states",
            "clock",
            "NUMA",
            "locked memory",
            "ASPM",
            "mlx5_0 port 1",
            "mlx5_0 port 1 GIDs",
            "mlx5_0 MTU",
            "mlx5_0 PCI Express",
            "mlx5_0 NUMA node",
            "mlx5_0 interrupts",
        ]
    );
    let notes = found.iter().filter(|f| f.level == Level::Note).map(|f| f.about.as_str());
    let notes: Vec<&str> = notes.collect();
    let expected =
        ["isolated CPUs", "real time", "huge pages", "transparent huge pages", "virtual machine"];
    assert_eq!(notes, expected);
    for finding in &found {
        assert!(!finding.advice.is_empty(), "{finding:?} without advice");
        assert!(!finding.advice.contains("  "), "{finding:?}");
    }
    let text = text(&found);
    let first = text.lines().next().unwrap();
    assert!(first.starts_with("HURTS") && text.contains("12 of 17 things"), "{text}");
    assert!(text.lines().all(|line| line.len() <= 100), "{text}");
    let script = script(&found);
    for part in [
        "echo performance",
        "cpupower idle-set --disable-by-latency 10",
        "echo tsc >/sys/devices/system/clocksource",
        "sysctl kernel.numa_balancing=0",
        "soft memlock unlimited",
        "ip link set dev eth0 mtu 9000",
        "echo 8-15 >/proc/irq/40/smp_affinity_list",
        "runs none of them",
    ] {
        assert!(script.contains(part), "no {part:?} in\n{script}");
    }
    assert!(!script.contains("irq/41"), "{script}");
    // Each line is a comment, a command, or empty, and a shell accepts it.
    let file = root.path().join("script");
    std::fs::write(&file, &script).unwrap();
    let checked = std::process::Command::new("sh").arg("-n").arg(&file).status().unwrap();
    assert!(checked.success(), "{script}");
    let value = json(&found);
    assert_eq!((&value["hurts"], value["findings"].as_array().unwrap().len()), (&12.into(), 17));
    assert_eq!(value["findings"][0]["level"], "hurts");
}

#[test]
fn a_machine_that_tells_nothing_is_unknown_not_good() {
    let root = root_of(&[("proc/x", "")]);
    let found = findings(&root);
    let known: Vec<_> = found.iter().filter(|f| f.level == Level::Good).collect();
    assert!(known.is_empty(), "{known:?}");
    assert!(found.iter().all(|f| f.level != Level::Hurts), "{found:#?}");
}

#[test]
fn nonsense_from_files_is_no_panic() {
    for junk in ["", "\n", "-", "999999999999999999999", "[", "0-4294967295", "a:b", "\u{0}", "-1"]
    {
        let root = root_of(&[
            ("proc/self/limits", junk),
            ("proc/self/status", junk),
            ("proc/meminfo", junk),
            ("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", junk),
            ("sys/devices/system/cpu/isolated", junk),
            ("sys/devices/system/cpu/cpu0/cpuidle/state0/latency", junk),
            ("sys/class/infiniband/a/ports/1/state", junk),
            ("sys/class/infiniband/a/device/numa_node", junk),
            ("sys/class/infiniband/a/device/local_cpulist", junk),
            ("sys/class/infiniband/a/device/net/e/mtu", junk),
            ("sys/class/infiniband/a/device/msi_irqs/1", junk),
            ("proc/irq/1/smp_affinity_list", junk),
        ]);
        assert!(!findings(&root).is_empty(), "{junk:?}");
    }
    assert_eq!(super::tree::list("0-2,7,x,5-4"), [0, 1, 2, 7].into());
}

#[test]
fn this_machine_can_be_examined() {
    let found = examine(&Tree::at(std::path::Path::new("/")));
    assert!(found.len() >= 11, "{found:?}");
}

#[test]
fn an_infiniband_ports_interface_limits_no_packet_and_a_guests_clock_hurts_nobody() {
    let level = |files: &[(&str, &str)], about: &str| {
        let found = findings(&root_of(files));
        found.iter().find(|finding| finding.about == about).map(|finding| finding.level)
    };
    let nic = |layer| {
        [
            ("sys/class/infiniband/mlx5_0/ports/1/state", "4: ACTIVE\n"),
            ("sys/class/infiniband/mlx5_0/ports/1/link_layer", layer),
            ("sys/class/infiniband/mlx5_0/device/net/ib0/mtu", "2044\n"),
        ]
    };
    assert_eq!(level(&nic("InfiniBand\n"), "mlx5_0 MTU"), None);
    assert_eq!(level(&nic("Ethernet\n"), "mlx5_0 MTU"), Some(Level::Hurts));
    let file = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    assert_eq!(level(&[(file, "kvm-clock\n")], "clock"), Some(Level::Note));
    assert_eq!(level(&[(file, "hpet\n")], "clock"), Some(Level::Hurts));
}

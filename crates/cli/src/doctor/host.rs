//! The host: processors, memory, kernel.

use std::collections::BTreeMap;

use super::diagnosis::Diagnosis;
use super::tree::{Tree, chosen, entry, list};

/// With a lower limit of locked memory, memory registration soon fails.
const LEAST_LOCK_BYTES: u64 = 64 << 20;

/// Idle states with a longer exit latency are visible in measured latencies.
const LONG_EXIT_US: i64 = 10;

/// All findings about the host.
pub fn findings(tree: &Tree) -> Vec<Diagnosis> {
    vec![
        governor(tree),
        idle_states(tree),
        isolated(tree),
        clock_source(tree),
        real_time(tree),
        numa_balancing(tree),
        huge_pages(tree),
        transparent_huge_pages(tree),
        locked_memory(tree),
        aspm(tree),
        virtual_machine(tree),
    ]
}

fn governor(tree: &Tree) -> Diagnosis {
    const ABOUT: &str = "governor";
    let file = |cpu: &String| format!("sys/devices/system/cpu/{cpu}/cpufreq/scaling_governor");
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for governor in tree.cpus().iter().filter_map(|cpu| tree.text(&file(cpu))) {
        *counts.entry(governor).or_default() += 1;
    }
    let all: usize = counts.values().sum();
    if all == 0 {
        return Diagnosis::unknown(ABOUT, "the kernel does not control the frequency here");
    }
    let words: Vec<String> = counts.iter().map(|(name, n)| format!("{name} on {n}")).collect();
    let found = format!("{} of {all} CPUs", words.join(", "));
    if counts.len() == 1 && counts.contains_key("performance") {
        return Diagnosis::good(ABOUT, found);
    }
    Diagnosis::hurts(
        ABOUT,
        found,
        "a processor that lowers its frequency between messages adds a varying delay: choose the \
         governor performance",
    )
    .fixed_by(
        "for f in /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor; do echo performance \
         >\"$f\"; done",
    )
}

fn idle_states(tree: &Tree) -> Diagnosis {
    const ABOUT: &str = "idle states";
    let dir = "sys/devices/system/cpu/cpu0/cpuidle";
    let states = tree.names(dir).into_iter().filter(|name| name.starts_with("state"));
    let state = |name: String| {
        let file = |of: &str| format!("{dir}/{name}/{of}");
        let is_off = tree.number(&file("disable")) == Some(1);
        let latency_us = tree.number(&file("latency"))?;
        let word = tree.text(&file("name")).unwrap_or(name.clone());
        (!is_off).then_some((latency_us, word))
    };
    match states.filter_map(state).max() {
        None => {
            Diagnosis::unknown(ABOUT, "the kernel shows none (a virtual machine, or idle=poll)")
        }
        Some((us, name)) if us > LONG_EXIT_US => Diagnosis::hurts(
            ABOUT,
            format!("leaving {name} takes {us} us"),
            "a thread that waits for an event wakes up that much later; measure with \
             --hold-dma-latency 0, or boot with processor.max_cstate=1 intel_idle.max_cstate=0",
        )
        .fixed_by(format!("cpupower idle-set --disable-by-latency {LONG_EXIT_US}")),
        Some((us, name)) => {
            Diagnosis::good(ABOUT, format!("{name} at most; leaving it takes {us} us"))
        }
    }
}

fn isolated(tree: &Tree) -> Diagnosis {
    const ABOUT: &str = "isolated CPUs";
    let tickless = tree.text("sys/devices/system/cpu/nohz_full").filter(|t| t != "(null)");
    match tree.text("sys/devices/system/cpu/isolated") {
        Some(cpus) => {
            let found = format!("{cpus}, without ticks: {}", tickless.as_deref().unwrap_or("none"));
            match tickless {
                Some(_) => Diagnosis::good(ABOUT, found),
                None => Diagnosis::note(
                    ABOUT,
                    found,
                    format!(
                        "the timer still interrupts them each tick: boot with nohz_full={cpus} \
                         rcu_nocbs={cpus}; measure there with --cores"
                    ),
                ),
            }
        }
        None => Diagnosis::note(
            ABOUT,
            "none",
            "the scheduler may run other threads on the measured cores, which affects p99.9 and \
             beyond: boot with isolcpus=LIST nohz_full=LIST rcu_nocbs=LIST, and measure there \
             with --cores",
        ),
    }
}

fn clock_source(tree: &Tree) -> Diagnosis {
    const ABOUT: &str = "clock";
    let file = "sys/devices/system/clocksource/clocksource0";
    match tree.text(&format!("{file}/current_clocksource")) {
        None => Diagnosis::unknown(ABOUT, "the kernel does not say which one it uses"),
        Some(source) if ["tsc", "arch_sys_counter"].contains(&source.as_str()) => {
            Diagnosis::good(ABOUT, source)
        }
        // A clock of a virtual machine that can be read without a system call.
        Some(source) if ["kvm-clock", "hyperv_clocksource_tsc_page"].contains(&source.as_str()) => {
            Diagnosis::note(
                ABOUT,
                source,
                "the hypervisor's clock, read without a system call: somewhat slower than the \
                 processor's counter",
            )
        }
        Some(source) => {
            let available = tree.text(&format!("{file}/available_clocksource"));
            let has_tsc = available.is_some_and(|all| all.split(' ').any(|one| one == "tsc"));
            let finding = Diagnosis::hurts(
                ABOUT,
                source,
                "reading the time is slow, and the kernel may not trust the processor's counter",
            );
            if has_tsc {
                finding.fixed_by(format!("echo tsc >/{file}/current_clocksource"))
            } else {
                finding
            }
        }
    }
}

fn real_time(tree: &Tree) -> Diagnosis {
    const ABOUT: &str = "real time";
    if tree.number("sys/kernel/realtime") == Some(1) {
        return Diagnosis::good(ABOUT, "PREEMPT_RT");
    }
    let version = tree.text("proc/version").unwrap_or_default();
    if version.contains("PREEMPT_RT") {
        return Diagnosis::good(ABOUT, "PREEMPT_RT");
    }
    Diagnosis::note(
        ABOUT,
        "no PREEMPT_RT",
        "the median is not affected; a kernel with PREEMPT_RT (Debian: linux-image-rt-amd64) \
         shortens the tail",
    )
}

fn numa_balancing(tree: &Tree) -> Diagnosis {
    const ABOUT: &str = "NUMA";
    let nodes = tree.names("sys/devices/system/node");
    let nodes = nodes
        .iter()
        .filter(|name| name.strip_prefix("node").is_some_and(|n| n.parse::<u32>().is_ok()));
    let count = nodes.count();
    let found = format!("{count} {}", if count == 1 { "node" } else { "nodes" });
    match (count, tree.number("proc/sys/kernel/numa_balancing")) {
        (0, _) => Diagnosis::unknown(ABOUT, "the kernel lists no NUMA nodes"),
        (1, _) => Diagnosis::good(ABOUT, found),
        (_, Some(1..)) => Diagnosis::hurts(
            ABOUT,
            format!("{found}, and the kernel moves pages between them"),
            "each move makes pages inaccessible for a moment, registered ones included: switch it \
             off, and use --cores to keep both ends on the adapter's node",
        )
        .fixed_by("sysctl kernel.numa_balancing=0"),
        _ => Diagnosis::note(
            ABOUT,
            found,
            "memory of another node costs about 100 ns per access: use --cores to stay on the \
             adapter's node",
        ),
    }
}

fn huge_pages(tree: &Tree) -> Diagnosis {
    const ABOUT: &str = "huge pages";
    let meminfo = tree.text("proc/meminfo").unwrap_or_default();
    let number = |name| entry(&meminfo, name).and_then(|v| v.parse::<u64>().ok());
    match (number("HugePages_Total"), number("HugePages_Free")) {
        (None, _) => Diagnosis::unknown(ABOUT, "the kernel does not say"),
        (Some(0), _) => Diagnosis::note(
            ABOUT,
            "none reserved",
            "each 4 KiB of a buffer needs an entry of the adapter's translation table: reserve \
             huge pages for programs that register many megabytes",
        )
        .fixed_by("sysctl vm.nr_hugepages=512"),
        (Some(total), free) => {
            let size = entry(&meminfo, "Hugepagesize").unwrap_or("?");
            Diagnosis::good(ABOUT, format!("{total} of {size}, {} free", free.unwrap_or(0)))
        }
    }
}

fn transparent_huge_pages(tree: &Tree) -> Diagnosis {
    const ABOUT: &str = "transparent huge pages";
    let text = tree.text("sys/kernel/mm/transparent_hugepage/enabled");
    match text.as_deref().and_then(chosen) {
        None => Diagnosis::unknown(ABOUT, "the kernel has none"),
        Some("always") => Diagnosis::note(
            ABOUT,
            "always",
            "the kernel merges pages while a program runs, which can stop it for milliseconds: \
             with madvise programs choose",
        )
        .fixed_by("echo madvise >/sys/kernel/mm/transparent_hugepage/enabled"),
        Some(word) => Diagnosis::good(ABOUT, word),
    }
}

fn locked_memory(tree: &Tree) -> Diagnosis {
    const ABOUT: &str = "locked memory";
    let limits = tree.text("proc/self/limits").unwrap_or_default();
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"));
    let Some(soft) = line.and_then(|line| line.split_whitespace().next()) else {
        return Diagnosis::unknown(ABOUT, "the kernel does not say the limit");
    };
    match soft.parse::<u64>() {
        Ok(bytes) if bytes < LEAST_LOCK_BYTES => Diagnosis::hurts(
            ABOUT,
            format!("at most {} KiB", bytes >> 10),
            "on adapters, registering more than this fails with ENOMEM (not on the soft device): \
             raise the limit, which takes effect at the next login",
        )
        .fixed_by(
            "printf '* soft memlock unlimited\\n* hard memlock unlimited\\n' \
             >/etc/security/limits.d/90-rdma-memlock.conf   # stays",
        ),
        Ok(bytes) => Diagnosis::good(ABOUT, format!("at most {} MiB", bytes >> 20)),
        Err(_) => Diagnosis::good(ABOUT, soft),
    }
}

fn aspm(tree: &Tree) -> Diagnosis {
    const ABOUT: &str = "ASPM";
    let file = "sys/module/pcie_aspm/parameters/policy";
    let advice = "PCI Express links sleep between messages and take microseconds to wake up";
    let mend = format!("echo performance >/{file}");
    match tree.text(file).as_deref().and_then(chosen) {
        None => Diagnosis::unknown(ABOUT, "the kernel does not manage it"),
        Some("performance") => Diagnosis::good(ABOUT, "performance"),
        Some("default") => Diagnosis::note(
            ABOUT,
            "default: what the firmware chose",
            format!("it may be that {advice}; pcie_aspm.policy=performance prevents this"),
        )
        .fixed_by(mend),
        Some(policy) => Diagnosis::hurts(ABOUT, policy, advice).fixed_by(mend),
    }
}

fn virtual_machine(tree: &Tree) -> Diagnosis {
    const ABOUT: &str = "virtual machine";
    let cpuinfo = tree.text("proc/cpuinfo").unwrap_or_default();
    let allowed = tree.text("proc/self/status");
    let allowed = allowed.as_deref().and_then(|status| entry(status, "Cpus_allowed_list"));
    let cpus = allowed.map_or(0, |text| list(text).len());
    if cpus == 1 {
        return Diagnosis::hurts(
            "processors",
            "this process may use one",
            "both ends share it, so one end's busy polling delays the other: allow two",
        );
    }
    match entry(&cpuinfo, "flags") {
        None => Diagnosis::unknown(ABOUT, "the processor does not say"),
        Some(flags) if flags.split(' ').any(|flag| flag == "hypervisor") => Diagnosis::note(
            ABOUT,
            "yes",
            "the hypervisor moves and stops the virtual processors, and the guest cannot see it: \
             compare within one run only",
        ),
        Some(_) => Diagnosis::good(ABOUT, "no"),
    }
}

//! Each RDMA adapter: its ports, GIDs, MTU, place and interrupts.

use std::collections::BTreeSet;

use super::diagnosis::Diagnosis;
use super::tree::{Tree, entry, list};

const CLASS: &str = "sys/class/infiniband";

/// The least Ethernet MTU for RoCEv2 packets with 4096 bytes of payload: 4096 + headers.
const ROCE_MTU: i64 = 4200;

/// All findings about adapters.
pub fn findings(tree: &Tree) -> Vec<Diagnosis> {
    let devices = tree.names(CLASS);
    if devices.is_empty() {
        return vec![Diagnosis::note(
            "adapters",
            "none",
            "measure the soft device, or load a driver (modprobe mlx5_ib; without an adapter: \
             modprobe rdma_rxe)",
        )];
    }
    devices.iter().flat_map(|device| adapter(tree, device)).collect()
}

fn adapter(tree: &Tree, device: &str) -> Vec<Diagnosis> {
    let mut found = Vec::new();
    let mut is_ethernet = false;
    for port in tree.names(&format!("{CLASS}/{device}/ports")) {
        found.push(state(tree, device, &port));
        let dir = format!("{CLASS}/{device}/ports/{port}");
        if tree.text(&format!("{dir}/link_layer")).as_deref() == Some("Ethernet") {
            found.push(gids(tree, device, &port));
            is_ethernet = true;
        }
    }
    if is_ethernet {
        // The interface of an InfiniBand port is IPoIB's; its MTU does not limit RDMA packets.
        found.extend(mtu(tree, device));
    }
    found.extend(bus(tree, device));
    found.extend(node(tree, device));
    found.extend(interrupts(tree, device));
    found
}

fn state(tree: &Tree, device: &str, port: &str) -> Diagnosis {
    let about = format!("{device} port {port}");
    let Some(state) = tree.text(&format!("{CLASS}/{device}/ports/{port}/state")) else {
        return Diagnosis::unknown(&about, "its state cannot be read");
    };
    let word = state.split(':').next_back().unwrap_or(&state).trim().to_owned();
    let rate = tree.text(&format!("{CLASS}/{device}/ports/{port}/rate")).unwrap_or_default();
    match word.as_str() {
        "ACTIVE" => Diagnosis::good(&about, format!("{word}, {rate}")),
        "INIT" => Diagnosis::hurts(
            &about,
            word,
            "nothing can be sent: start a subnet manager (opensm) somewhere on the network",
        ),
        _ => Diagnosis::hurts(
            &about,
            word,
            "nothing can be sent: check the cable, and set the network interface up",
        ),
    }
}

fn gids(tree: &Tree, device: &str, port: &str) -> Diagnosis {
    let about = format!("{device} port {port} GIDs");
    let dir = format!("{CLASS}/{device}/ports/{port}");
    let is_empty = |gid: &str| gid.chars().all(|c| c == '0' || c == ':');
    let known: Vec<(String, String, String)> = tree
        .names(&format!("{dir}/gids"))
        .into_iter()
        .filter_map(|index| {
            let gid = tree.text(&format!("{dir}/gids/{index}")).filter(|gid| !is_empty(gid))?;
            let kind = tree.text(&format!("{dir}/gid_attrs/types/{index}")).unwrap_or_default();
            Some((index, gid, kind))
        })
        .collect();
    let is_v4 = |gid: &str| gid.starts_with("0000:0000:0000:0000:0000:ffff:");
    let is_v2 = |kind: &str| kind.contains("v2");
    let best = known.iter().find(|(_, gid, kind)| is_v2(kind) && is_v4(gid));
    match (best, known.as_slice()) {
        (_, []) => Diagnosis::hurts(
            &about,
            "none",
            "no address to send from: the network interface needs one (ip address add)",
        ),
        (Some((index, gid, _)), all) => {
            let found = format!("{} there; {index} is RoCE v2 over IPv4: {gid}", all.len());
            Diagnosis::good(&about, found)
        }
        (None, all) if all.iter().any(|(_, _, kind)| is_v2(kind)) => {
            let v2 = all.iter().find(|(_, _, kind)| is_v2(kind));
            let index = v2.map_or("?", |(index, ..)| index.as_str());
            Diagnosis::note(
                &about,
                format!("{} there; {index} is RoCE v2 over IPv6", all.len()),
                "both ends need GIDs of the same kind: name them with -x where the default fails",
            )
        }
        (None, all) => Diagnosis::hurts(
            &about,
            format!("{} GIDs, none of them for RoCE v2", all.len()),
            "routers do not forward RoCE v1, and most switches do not apply ECN to it: choose v2 \
             (cma_roce_mode, or the driver's default)",
        ),
    }
}

fn mtu(tree: &Tree, device: &str) -> Vec<Diagnosis> {
    let dir = format!("{CLASS}/{device}/device/net");
    let of = |interface: String| {
        let mtu = tree.number(&format!("{dir}/{interface}/mtu"))?;
        let about = format!("{device} MTU");
        let found = format!("{mtu} on {interface}");
        // With an MTU below 2048 + headers, packets carry 1024 bytes.
        Some(if mtu >= ROCE_MTU {
            Diagnosis::good(&about, found)
        } else {
            let payload = if mtu >= 2148 { 2048 } else { 1024 };
            Diagnosis::hurts(
                &about,
                found,
                format!(
                    "packets carry {payload} bytes instead of 4096: more packets, and less \
                     bandwidth; raise it at both ends and in every switch between"
                ),
            )
            .fixed_by(format!("ip link set dev {interface} mtu 9000"))
        })
    };
    tree.names(&dir).into_iter().filter_map(of).collect()
}

fn bus(tree: &Tree, device: &str) -> Option<Diagnosis> {
    let about = format!("{device} PCI Express");
    let file = |name: &str| tree.text(&format!("{CLASS}/{device}/device/{name}"));
    let (speed, width) = (file("current_link_speed")?, file("current_link_width")?);
    let (max_speed, max_width) = (file("max_link_speed")?, file("max_link_width")?);
    let found = format!("{speed} x{width}");
    if speed == max_speed && width == max_width {
        return Some(Diagnosis::good(&about, found));
    }
    Some(Diagnosis::hurts(
        &about,
        format!("{found} of {max_speed} x{max_width}"),
        "the slot, a riser or the firmware limits it, and with it the bandwidth: try another slot",
    ))
}

fn node(tree: &Tree, device: &str) -> Option<Diagnosis> {
    let about = format!("{device} NUMA node");
    let node = tree.number(&format!("{CLASS}/{device}/device/numa_node"))?;
    let near = tree.text(&format!("{CLASS}/{device}/device/local_cpulist"))?;
    if node < 0 {
        return Some(Diagnosis::good(&about, "the machine has only one"));
    }
    let status = tree.text("proc/self/status")?;
    let allowed = list(entry(&status, "Cpus_allowed_list")?);
    let found = format!("{node}, with CPUs {near}");
    if list(&near).is_disjoint(&allowed) {
        let advice = format!(
            "this process may use none of these CPUs, so each message crosses sockets: start it \
             with numactl --cpunodebind={node} --membind={node}"
        );
        return Some(Diagnosis::hurts(&about, found, advice));
    }
    Some(Diagnosis::good(&about, found))
}

fn interrupts(tree: &Tree, device: &str) -> Option<Diagnosis> {
    let about = format!("{device} interrupts");
    let numbers = tree.names(&format!("{CLASS}/{device}/device/msi_irqs"));
    let cpus = |irq: &String| {
        let effective = tree.text(&format!("proc/irq/{irq}/effective_affinity_list"));
        effective.or_else(|| tree.text(&format!("proc/irq/{irq}/smp_affinity_list")))
    };
    let each: Vec<(&String, BTreeSet<u32>)> =
        numbers.iter().filter_map(|irq| Some((irq, list(&cpus(irq)?)))).collect();
    if each.is_empty() {
        return None;
    }
    let near = tree.text(&format!("{CLASS}/{device}/device/local_cpulist"));
    let near = near.map(|text| list(&text)).unwrap_or_default();
    let isolated = tree.text("sys/devices/system/cpu/isolated");
    let isolated = isolated.map(|text| list(&text)).unwrap_or_default();
    let is_far = |cpus: &BTreeSet<u32>| !near.is_empty() && cpus.is_disjoint(&near);
    let far: Vec<&String> = each.iter().filter(|(_, c)| is_far(c)).map(|(irq, _)| *irq).collect();
    let disturbs = |cpus: &BTreeSet<u32>| !cpus.is_disjoint(&isolated);
    let on_isolated = each.iter().filter(|(_, cpus)| disturbs(cpus)).count();
    if !far.is_empty() {
        let cpulist = tree.text(&format!("{CLASS}/{device}/device/local_cpulist"));
        let cpulist = cpulist.unwrap_or_default();
        let finding = Diagnosis::hurts(
            &about,
            format!("{} of {} go to CPUs of another node", far.len(), each.len()),
            "an event crosses sockets before it wakes a thread: move the interrupts to the \
             adapter's node, and stop irqbalance from moving them back",
        );
        let line = |irq: &&String| format!("echo {cpulist} >/proc/irq/{irq}/smp_affinity_list");
        return Some(Diagnosis { commands: far.iter().map(line).collect(), ..finding });
    }
    if on_isolated > 0 {
        return Some(Diagnosis::note(
            &about,
            format!("{on_isolated} of {} go to isolated CPUs", each.len()),
            "good for threads that wait for events there, bad for threads that poll there",
        ));
    }
    Some(Diagnosis::good(&about, format!("{}, all near", each.len())))
}

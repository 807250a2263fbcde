//! `rdmalab devices`: all devices, what each can do, and what is wrong with it.

use clap::Args;
use rdmalab_verbs::{Device, Library, LinkLayer, PortState, VerbsError};
use serde::Serialize;

use crate::failure::{Outcome, run as failed};
use crate::format::ListFormatArgs;
use crate::profiles;
use crate::simulated;
use crate::soft;
use crate::table::grouped;

/// List all devices: what each can do, and what is wrong with it
#[derive(Args, Debug)]
pub struct DevicesArgs {
    /// List the profiles of soft devices instead of devices
    #[arg(long)]
    pub profiles: bool,
    /// Describe this profile, and show soft devices with it
    #[arg(
        long,
        value_name = "NAME|FILE",
        value_parser = crate::link::profile,
        conflicts_with = "profiles"
    )]
    pub profile: Option<String>,
    /// List the parameters of simulated devices, with the values of a profile
    #[arg(long, value_name = "sim:PROFILE", num_args = 0..=1, default_missing_value = "sim:ideal",
        conflicts_with_all = ["profiles", "profile"])]
    pub parameters: Option<String>,
    /// How it is printed.
    #[command(flatten)]
    list: ListFormatArgs,
}

/// A device, as far as it could be queried.
#[derive(Debug, Serialize)]
struct Report {
    name: String,
    kind: String,
    /// The device's profile.
    profile: Option<String>,
    can: Option<Abilities>,
    ports: Vec<PortReport>,
    /// Problems, and what to do about them.
    wrong: Vec<String>,
}

impl Report {
    /// The text in brackets behind its name.
    fn described(&self) -> String {
        match &self.profile {
            None => self.kind.clone(),
            Some(profile) => format!("{}, profile {profile}", self.kind),
        }
    }
}

#[derive(Debug, Serialize)]
struct Abilities {
    fw_ver: String,
    max_qp: u32,
    max_qp_wr: u32,
    max_sge: u32,
    max_cqe: u32,
    max_srq_wr: u32,
    max_mr_bytes: u64,
    max_qp_rd_atom: u32,
    atomics: bool,
    memory_windows: bool,
    on_demand_paging: bool,
}

#[derive(Debug, Serialize)]
struct PortReport {
    port: u8,
    state: String,
    link_layer: String,
    mtu_bytes: usize,
    lid: u16,
    gids: Vec<String>,
}

/// Most GIDs shown for a port: tables of adapters have hundreds, most of them empty.
const GIDS_SHOWN: u32 = 16;

/// Prints the devices, or why there are none.
pub fn run(args: &DevicesArgs) -> Outcome {
    if let Some(device) = &args.parameters {
        return simulated::list_parameters(device, args.list.is_json());
    }
    if args.profiles {
        return profiles::list(args.list.is_json());
    }
    if let Some(profile) = &args.profile {
        rdmalab_softnic::choose_profile(profile).map_err(failed)?;
    }
    let mut reports = Vec::new();
    let mut remarks = Vec::new();
    match soft::library().devices() {
        Ok(devices) => reports.extend(devices.iter().map(report)),
        Err(error) => remarks.push(format!("no soft device: {error}")),
    }
    let theirs = match soft::system() {
        Ok(Some(library)) => list_system(&library, &mut remarks),
        Ok(None) => {
            remarks.push(
                "LD_LIBRARY_PATH names rdmalab's libibverbs.so.1, so adapters are not listed"
                    .into(),
            );
            Vec::new()
        }
        Err(error) => {
            remarks.push(format!(
                "no system libibverbs: {error}; install libibverbs1 to measure adapters"
            ));
            Vec::new()
        }
    };
    reports.extend(theirs);
    if args.list.is_json() {
        let profile = rdmalab_softnic::profile().map(profiles::json);
        let value = serde_json::json!({
            "devices": reports,
            "simulated": simulated::titles(),
            "profile": profile,
            "remarks": remarks,
        });
        outln!("{value:#}");
        return Ok(());
    }
    if let Some(profile) = &args.profile {
        profiles::tell(profile).map_err(failed)?;
    }
    reports.iter().for_each(print);
    outln!("simulated devices (`rdmalab devices --parameters sim:NAME` tells more)");
    for (name, title) in simulated::titles() {
        outln!("    {name}: {title}");
    }
    remarks.iter().for_each(|remark| outln!("{remark}"));
    if reports.is_empty() { Err(failed("there are no devices")) } else { Ok(()) }
}

/// Prints a line for each device, at the beginning of the tour.
pub fn brief() -> Outcome {
    let mut remarks = Vec::new();
    let mut all = soft::library().devices().map_err(failed)?;
    match soft::system() {
        Ok(Some(library)) => all.extend(library.devices().unwrap_or_default()),
        Ok(None) => {}
        Err(error) => remarks.push(format!("no system libibverbs: {error}")),
    }
    outln!("Devices (`rdmalab devices` tells more)\n");
    for report in all.iter().map(report) {
        let ports = report.ports.iter();
        let ports: Vec<String> = ports
            .map(|p| format!("port {} {}, {}, MTU {}", p.port, p.state, p.link_layer, p.mtu_bytes))
            .collect();
        outln!("  {}  ({})  {}", report.name, report.described(), ports.join("; "));
        report.wrong.iter().for_each(|wrong| outln!("      wrong: {wrong}"));
    }
    remarks.iter().for_each(|remark| outln!("  {remark}"));
    Ok(())
}

fn list_system(library: &Library, remarks: &mut Vec<String>) -> Vec<Report> {
    match library.devices() {
        Ok(devices) if devices.is_empty() => {
            remarks.push("the system's libibverbs finds no adapter (nor rdma_rxe, siw)".into());
            Vec::new()
        }
        Ok(devices) => devices.iter().map(report).collect(),
        Err(error) => {
            remarks.push(format!(
                "the system's libibverbs cannot list devices: {error} (is the kernel module \
                 ib_uverbs loaded?)"
            ));
            Vec::new()
        }
    }
}

fn report(device: &Device) -> Report {
    let kind = device.kind().to_string();
    let profile = soft::profile(device).map(|profile| profile.name.clone());
    let (name, ports, wrong) = (device.name(), Vec::new(), Vec::new());
    let mut report = Report { name, kind, profile, can: None, ports, wrong };
    if let Err(error) = query(device, &mut report) {
        report.wrong.push(error.to_string());
    }
    report
}

fn query(device: &Device, report: &mut Report) -> Result<(), VerbsError> {
    let context = device.open()?;
    let attr = context.query_device()?;
    report.can = Some(Abilities {
        fw_ver: attr.fw_ver,
        max_qp: attr.max_qp,
        max_qp_wr: attr.max_qp_wr,
        max_sge: attr.max_sge,
        max_cqe: attr.max_cqe,
        max_srq_wr: attr.max_srq_wr,
        max_mr_bytes: attr.max_mr_bytes,
        max_qp_rd_atom: attr.max_qp_rd_atom,
        atomics: attr.has_atomics,
        memory_windows: attr.max_mw > 0,
        on_demand_paging: attr.has_on_demand_paging,
    });
    for port in 1..=attr.phys_port_cnt {
        let state = context.query_port(port)?;
        if state.state != PortState::Active {
            report.wrong.push(format!(
                "port {port} is {}: nothing can be sent through it{}",
                state.state,
                match (state.state, state.link_layer) {
                    (PortState::Initializing, LinkLayer::InfiniBand) =>
                        " (is a subnet manager running?)",
                    (PortState::Down, _) => " (is the cable in, the network interface up?)",
                    _ => "",
                }
            ));
        }
        let gids = (0..state.gid_tbl_len.min(GIDS_SHOWN)).filter_map(|index| {
            let entry = context.query_gid_entry(port, index).ok()?;
            Some(format!("{index}: {} ({})", entry.gid, entry.gid_type))
        });
        report.ports.push(PortReport {
            port,
            state: state.state.to_string(),
            link_layer: state.link_layer.to_string(),
            mtu_bytes: state.active_mtu.bytes(),
            lid: state.lid,
            gids: gids.collect(),
        });
    }
    Ok(())
}

fn print(report: &Report) {
    outln!("{}  ({})", report.name, report.described());
    if let Some(can) = &report.can {
        let with = |has: bool, what: &'static str| has.then_some(what);
        let extras: Vec<&str> = [
            with(can.atomics, "atomics"),
            with(can.memory_windows, "memory windows"),
            with(can.on_demand_paging, "on-demand paging"),
        ]
        .into_iter()
        .flatten()
        .collect();
        outln!(
            "    {} QPs, {} requests per queue, {} scatter/gather entries per request, {} \
             completions per CQ, {} outstanding READs",
            grouped(can.max_qp.into()),
            grouped(can.max_qp_wr.into()),
            can.max_sge,
            grouped(can.max_cqe.into()),
            can.max_qp_rd_atom
        );
        if !extras.is_empty() {
            outln!("    {}", extras.join(", "));
        }
    }
    for port in &report.ports {
        outln!(
            "    port {}: {}, {}, MTU {}, LID {}",
            port.port,
            port.state,
            port.link_layer,
            port.mtu_bytes,
            port.lid
        );
        port.gids.iter().for_each(|gid| outln!("        GID {gid}"));
    }
    report.wrong.iter().for_each(|wrong| outln!("    wrong: {wrong}"));
}

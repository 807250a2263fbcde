//! perftest's programs as commands with their options, roles and tables, for people and scripts
//! that use perftest.

pub mod args;

use std::sync::atomic::Ordering;

use rdmalab_experiments::{
    ATOMIC_BYTES, Common, Experiment, Memory, OptionError, Point, Signal, sweep_from,
};
use rdmalab_rank::process::{Server, ServerEvent};
use rdmalab_sim::name_of_device;

use crate::failure::{Outcome, run as failed, usage};
use crate::format::Format;
use crate::interrupt::Interrupt;
use crate::run::args::HowArgs;
use crate::run::{Ended, run_points};
use args::{PerftestArgs, Test};

/// The sizes of `-a`.
const ALL_SIZES: &str = "2..8M*2";
/// Most bytes of messages in flight; perftest needs no such limit, since it reuses one buffer.
const UNDER_WAY_BYTES: u64 = 64 << 20;
const RULE: &str =
    "---------------------------------------------------------------------------------------";

/// Runs as the server or the client of a test, or as both ends on a simulated device.
pub fn run(args: &PerftestArgs) -> Outcome {
    let test = match &args.test {
        Ok(test) => test,
        Err(name) => {
            return Err(usage(format!(
                "{name}: no experiment of rdmalab measures that; `rdmalab exec -- {name}` runs \
                 perftest's own program on the soft device"
            )));
        }
    };
    if let Some((letter, instead)) = &args.refused {
        return Err(usage(format!("{} {letter}: {instead}", test.name)));
    }
    if args.gbits && args.format != Format::Perftest {
        return Err(usage("--report_gbits works only with --format perftest: leave it out"));
    }
    let points = points(test, args)?;
    let device = args.device.as_deref().unwrap_or_default();
    match &args.host {
        Some(host) if name_of_device(device).is_some() => Err(usage(format!(
            "{} {host}: both ends of {device} are simulated in one process: leave {host} out",
            test.name
        ))),
        None if name_of_device(device).is_some() => measure(test, args, points, None),
        None => serve(args),
        Some(host) => measure(test, args, points, Some(address(host, args.tcp_port))),
    }
}

/// The points for perftest's options.
fn points(test: &Test, args: &PerftestArgs) -> Outcome<Vec<Point>> {
    let base = base(test);
    let mut options = args.options.clone();
    // perftest counts in seconds.
    if let Some((_, text)) = options.iter_mut().find(|(name, _)| name == "duration")
        && text.bytes().all(|byte| byte.is_ascii_digit())
    {
        text.push('s');
    }
    if args.is_bidirectional {
        options.push(("bidirectional".to_owned(), "yes".to_owned()));
    }
    if args.events {
        options.push(("poll".to_owned(), "event".to_owned()));
    }
    if args.all_sizes {
        options.push(("size".to_owned(), ALL_SIZES.to_owned()));
    }
    let mut points = sweep_from(&base, &options).map_err(usage)?;
    if test.experiment == Experiment::BLAST {
        points.iter_mut().try_for_each(fit).map_err(usage)?;
    }
    Ok(points)
}

/// perftest's defaults.
fn base(test: &Test) -> Point {
    let mut point = Point::default_for(test.experiment);
    let is_bandwidth = test.experiment == Experiment::BLAST;
    point.common = Common {
        op: test.op,
        warm_up: 0,
        runs: 1,
        // As in perftest: on the soft device, results depend on the kind of memory.
        memory: Memory::Private,
        ..point.common
    };
    point.common = if is_bandwidth {
        Common {
            size_bytes: 65_536,
            messages: 5000,
            tx_depth: 128,
            rx_depth: 512,
            signal_every: Signal::Every(100),
            outstanding_reads: 16,
            ..point.common
        }
    } else {
        Common { size_bytes: 2, messages: 1000, ..point.common }
    };
    if test.op.is_atomic() {
        point.common.size_bytes = ATOMIC_BYTES;
    }
    point
}

/// Sets the messages in flight to the send queues' depth, within a limit; at least one is signaled.
fn fit(point: &mut Point) -> Result<(), OptionError> {
    let common = &mut point.common;
    let slots = u64::from(common.tx_depth) * u64::from(common.qps);
    let most = (UNDER_WAY_BYTES / common.size_bytes.max(1)).max(4 * u64::from(common.qps));
    let buffers = u32::try_from(slots.min(most)).unwrap_or(u32::MAX).max(common.list);
    if let Signal::Every(every) = common.signal_every {
        let share = (buffers / common.qps.max(1)).max(1);
        common.signal_every = Signal::Every(every.min(share).min(common.tx_depth).max(1));
    }
    point.set("buffers", &buffers.to_string())
}

/// The address of a server.
fn address(host: &str, tcp_port: u16) -> String {
    match host.parse::<std::net::Ipv6Addr>().is_ok() {
        true => format!("[{host}]:{tcp_port}"),
        false => format!("{host}:{tcp_port}"),
    }
}

/// Measures as the client of the server at `host`; without one, both ends are simulated.
fn measure(test: &Test, args: &PerftestArgs, points: Vec<Point>, host: Option<String>) -> Outcome {
    let how = HowArgs {
        device: args.device.clone(),
        repeat: 1,
        format: args.format,
        no_record: args.out.is_none(),
        out: args.out.clone(),
        cores: args.cores.clone(),
        host,
        link: args.link.clone(),
        ..HowArgs::default()
    };
    let title = |device: &str, point: &Point| {
        if args.format == Format::Perftest {
            banner(test, device, point);
        }
    };
    let gbits = args.gbits;
    match run_points(test.experiment, points, &how, gbits, &title)? {
        Ended::Whole => Ok(()),
        Ended::CutShort(failure) => Err(failure),
    }
}

fn banner(test: &Test, device: &str, point: &Point) {
    let transport = point.common.transport.name().to_ascii_uppercase();
    outln!("{RULE}");
    outln!("                    {}", test.title);
    outln!(" Device          : {device}\t\tConnection type : {transport}");
    outln!(
        " Number of qps   : {}\t\tTX depth        : {}",
        point.common.qps,
        point.common.tx_depth
    );
    if name_of_device(device).is_some() {
        outln!(" Numbers of a model, not of an adapter; both ends are simulated");
    }
    if test.op.reads() {
        outln!(" Outstand reads  : {}", point.common.outstanding_reads);
    }
}

/// Serves one client, as perftest does.
fn serve(args: &PerftestArgs) -> Outcome {
    let interrupt = Interrupt::catch();
    let worker = crate::serve::worker(args.device.as_deref(), &args.link)?;
    // Like perftest, the server listens on all addresses, serves one client, and then ends.
    let address = format!("0.0.0.0:{}", args.tcp_port);
    let server = Server::bind(Some(&address), worker, 1).map_err(usage)?;
    outln!("\n************************************");
    outln!("* Waiting for client to connect... *");
    outln!("************************************");
    let stop = interrupt.flag();
    let mut end = None;
    let served = server.run(&stop, |event| match event {
        ServerEvent::Began { client, host, .. } => outln!("{client} ({host}) is measuring"),
        ServerEvent::Ended { failure, .. } => {
            end = Some(failure);
            stop.store(true, Ordering::Relaxed);
        }
        ServerEvent::Refused { client, why } => errln!("rdmalab: {client}: refused: {why}"),
    });
    served.map_err(failed)?;
    match end {
        Some(None) => {
            outln!("done; the client has the results");
            Ok(())
        }
        Some(Some(how)) => Err(failed(format!("the worker for the client {how}"))),
        None => Err(failed("interrupted before a client was done")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::{FromArgMatches, Subcommand};
    use rdmalab_experiments::Op;

    fn parsed(words: &[&str]) -> Result<PerftestArgs, String> {
        let command = clap::Command::new("rdmalab").no_binary_name(true);
        let given = PerftestArgs::augment_subcommands(command).try_get_matches_from(words);
        given.and_then(|given| PerftestArgs::from_arg_matches(&given)).map_err(|e| e.to_string())
    }

    fn points_of(words: &[&str]) -> Outcome<Vec<Point>> {
        let args = parsed(words).unwrap();
        points(args.test.as_ref().unwrap(), &args)
    }

    #[test]
    fn letters_mean_what_they_mean_to_perftest() {
        let words =
            "ib_send_bw -c UC -s 4096 -n 777 -q 2 -Q 8 -l 4 -t 64 -r 100 -m 2048 -I 64 -S 3 -u 18";
        let points = points_of(&words.split(' ').collect::<Vec<_>>()).unwrap();
        let p = &points[0];
        assert_eq!(
            (p.common.size_bytes, p.common.messages, p.common.qps, p.common.list),
            (4096, 777, 2, 4)
        );
        assert_eq!(
            (
                p.common.tx_depth,
                p.common.rx_depth,
                p.common.mtu_bytes,
                p.common.sl,
                p.common.timeout
            ),
            (64, 100, 2048, 3, 18)
        );
        assert_eq!((p.common.signal_every, p.window()), (Signal::Every(8), 128));
        assert_eq!(p.common.transport.name(), "uc");
        let args =
            parsed(&["ib_write_lat", "-d", "soft1", "-p", "99", "-F", "-e", "host"]).unwrap();
        assert_eq!((args.device.as_deref(), args.tcp_port), (Some("soft1"), 99));
        assert!(args.events && args.host.as_deref() == Some("host"));
    }

    #[test]
    fn a_time_in_seconds_and_both_directions_are_perftests() {
        let of = |words: &[&str]| points_of(words).unwrap().remove(0);
        let point = of(&["ib_send_bw", "-D", "2", "-b", "host"]);
        assert_eq!((point.common.duration_ns, point.common.runs), (2_000_000_000, 1));
        assert_eq!(point.get("bidirectional").as_deref(), Some("yes"));
        assert_eq!(of(&["ib_read_lat", "-D", "500ms"]).common.duration_ns, 500_000_000);
        assert!(points_of(&["ib_send_bw", "-D", "x"]).is_err());
        assert!(parsed(&["ib_send_bw", "-D", "2", "-n", "5"]).is_err());
        assert!(parsed(&["ib_send_lat", "-b"]).unwrap_err().contains("'-b'"));
        for (words, op) in [
            (&["ib_atomic_lat"][..], Op::FetchAdd),
            (&["ib_atomic_bw", "-A", "CMP_AND_SWAP"], Op::CmpSwap),
        ] {
            let common = of(words).common;
            assert_eq!((common.op, common.size_bytes), (op, 8));
        }
    }

    #[test]
    fn all_sizes_are_perftests() {
        let points = points_of(&["ib_write_bw", "-a"]).unwrap();
        let sizes: Vec<u64> = points.iter().map(|p| p.common.size_bytes).collect();
        assert_eq!((sizes.len(), sizes[0], sizes[22]), (23, 2, 8 << 20));
        for point in &points {
            let Signal::Every(every) = point.common.signal_every else { panic!("max") };
            let window = point.window();
            assert!(
                u64::from(every) <= window && window <= point.common.tx_depth.into(),
                "{point:?}"
            );
        }
    }

    #[test]
    fn what_is_not_ours_is_refused_with_the_way_out() {
        let said = |words: &[&str]| run(&parsed(words).unwrap()).unwrap_err().to_string();
        for (words, equivalent) in [
            (&["ib_send_lat", "-R", "host"][..], "rdmalab run connect --by rdma_cm"),
            (&["ib_send_bw", "-g", "2", "host"], "rdmalab run fan --to group --transport ud"),
            (&["ib_send_lat", "-H"], "rdmalab report DIR"),
            (&["ib_send_lat", "-U", "host"], "--out DIR"),
            (&["ib_write_bw", "--run_infinitely"], "-D SECONDS"),
            (&["raw_ethernet_lat", "-d", "x"], "rdmalab exec -- raw_ethernet_lat"),
        ] {
            let said = said(words);
            assert!(said.contains(equivalent) && !said.contains('\n'), "{words:?}: {said}");
        }
        assert!(parsed(&["ib_send_lat", "-q", "2"]).unwrap_err().contains("'-q'"));
    }
}

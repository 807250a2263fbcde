//! `rdmalab serve`: the other end for clients on other machines.

use clap::Args;
use rdmalab_rank::process::{SESSIONS_MAX, Server, ServerEvent, WorkerCommand};

use crate::failure::{Outcome, run as failed, usage};
use crate::interrupt::Interrupt;
use crate::link::LinkArgs;

/// Serve as the other end for clients on other machines
///
/// Each client gets a process of its own, which runs with the client's parameters. Only this
/// machine can connect unless --bind names an address.
#[derive(Args, Debug)]
pub struct ServeArgs {
    /// Where to listen: ADDRESS or ADDRESS:PORT; 0.0.0.0 is every address of this machine
    /// [default: 127.0.0.1:18515]
    #[arg(long, value_name = "ADDRESS")]
    pub bind: Option<String>,
    /// The device for all clients [default: the one that the client names]
    #[arg(short, long, value_name = "NAME")]
    pub device: Option<String>,
    /// Clients at the same time
    #[arg(long, value_name = "N", default_value_t = SESSIONS_MAX as u64,
        value_parser = clap::value_parser!(u64).range(1..=10_000))]
    pub sessions: u64,
    /// What lies between this end and others: for all clients.
    #[command(flatten)]
    pub link: LinkArgs,
}

/// Serves until it is interrupted, which is no failure.
pub fn run(args: &ServeArgs) -> Outcome {
    let interrupt = Interrupt::catch();
    let worker = worker(args.device.as_deref(), &args.link)?;
    let server =
        Server::bind(args.bind.as_deref(), worker, args.sessions as usize).map_err(usage)?;
    let address = server.address().map_err(failed)?;
    outln!("rdmalab {} serves at {address}", env!("CARGO_PKG_VERSION"));
    if args.bind.is_none() {
        outln!(
            "only this machine can connect; --bind ADDRESS admits other machines, which must be \
             trusted"
        );
    }
    server.run(&interrupt.flag(), |event| outln!("{}", text(&event))).map_err(failed)
}

/// The command that starts a client's process; with `device`, clients cannot choose another one.
pub fn worker(device: Option<&str>, link: &LinkArgs) -> Outcome<WorkerCommand> {
    link.take_device().map_err(usage)?;
    let mut words = link.worker();
    words.extend(["--server".to_owned(), std::process::id().to_string()]);
    if let Some(name) = device {
        link.check(&crate::soft::between_processes(name, "serving")?).map_err(usage)?;
        words.extend(["--device".to_owned(), name.to_owned()]);
    }
    link.make_room(&[0]).map_err(usage)?;
    let mut worker = WorkerCommand::this_program(words).map_err(failed)?;
    worker.envs = link.variables(0);
    Ok(worker)
}

fn text(event: &ServerEvent) -> String {
    match event {
        ServerEvent::Began { client, host, pid } => {
            format!("{client} ({host}): begins, with process {pid}")
        }
        ServerEvent::Ended { client, failure: None } => format!("{client}: ended"),
        ServerEvent::Ended { client, failure: Some(how) } => format!("{client}: {how}"),
        ServerEvent::Refused { client, why } => format!("{client}: refused: {why}"),
    }
}

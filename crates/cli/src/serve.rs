//! `rdmalab serve`: the other end for clients of other machines.

use rdmalab_rank::process::{Server, ServerEvent, WorkerCommand};

use crate::args::ServeArgs;
use crate::failure::{Outcome, run as failed, usage};
use crate::interrupt::Interrupt;

/// Serves until it is interrupted, which is a good end.
pub fn run(args: &ServeArgs) -> Outcome {
    let interrupt = Interrupt::catch();
    let mut words = vec!["worker".to_owned()];
    if let Some(device) = &args.device {
        crate::soft::find(device)?;
        words.extend(["--device".to_owned(), device.clone()]);
    }
    let worker = WorkerCommand::this_program(words).map_err(failed)?;
    let server = Server::bind(args.bind.as_deref(), worker, args.sessions).map_err(usage)?;
    let address = server.address().map_err(failed)?;
    outln!("rdmalab {} serves at {address}", env!("CARGO_PKG_VERSION"));
    if args.bind.is_none() {
        outln!("for this machine only; --bind ADDRESS lets others in, whom you trust");
    }
    server.run(&interrupt.flag(), |event| outln!("{}", text(&event))).map_err(failed)
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

//! A gateway of one's own, on the system's libibverbs: `cargo run --example gateway FILE`. Under
//! `rdmalab exec` that is the soft device.

use rdmalab_gateway::Plan;
use rdmalab_gateway::node::{Log, Stop, World};
use rdmalab_gateway::timer::TimerKind;
use rdmalab_measure::Clock;
use rdmalab_verbs::Library;

fn main() -> Result<(), String> {
    let file = std::env::args().nth(1).ok_or("usage: gateway FILE")?;
    let tree = rdmalab_config::load(file.as_ref());
    let plan = tree.and_then(|tree| Plan::check(&tree)).map_err(|errors| {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        lines.join("\n")
    })?;
    let device = match plan.needs_device() {
        true => {
            let library = Library::system().map_err(|error| error.to_string())?;
            library.devices().map_err(|error| error.to_string())?.first().cloned()
        }
        false => None,
    };
    let world = World {
        device,
        clock: Clock::new(),
        timer: TimerKind::Timerfd,
        stop: Stop::default(),
        log: Log::new(|line| eprintln!("{line}")),
    };
    for path in plan.run(&world)?.paths {
        println!("{}", path.line());
    }
    Ok(())
}

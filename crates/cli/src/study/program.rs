//! Programs of perftest as parts of a study: they run unmodified, on a soft device under `rdmalab
//! exec`, and their samples are kept as a record. On simulated devices our `ping` stands for them.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rdmalab_experiments::{Experiment, Inline, Point, sweep};
use rdmalab_measure::{Outcome as Measured, Quantity};
use rdmalab_record::{Device, DeviceKind, Header, Object};
use rdmalab_study::SweepCommand;

use super::dir::Request;
use super::kept;
use super::shorten::evenly_spaced;
use super::simulated_program;
use crate::failure::Outcome;
use crate::foreign::{KillOnDrop, free_port, installed, last_words, read};
use crate::interrupt::Interrupt;
use crate::latency::LatencyArgs;
use crate::run::hooks;
use crate::run::plan::parameters;

/// Programs that parts may name.
const KNOWN: [&str; 1] = ["ib_send_lat"];
/// Options of rdmalab that perftest has too.
const OPTIONS: [&str; 8] =
    ["transport", "size", "messages", "inline", "mtu", "rdma-cm", OF_MODELS[0], OF_MODELS[1]];
/// Those of them that are of simulated devices, where our `ping` stands for a program.
pub const OF_MODELS: [&str; 2] = ["link", "sim"];
/// Time limit of a call, after which both ends are killed.
const LIMIT: Duration = Duration::from_secs(60);
/// Time limit for the server to listen.
const LISTENS: Duration = Duration::from_secs(20);
/// perftest prints this if it lost the processor while it measured the clock frequency. (With `-F`
/// it uses a frequency of zero, and all times are infinite.)
const DISTURBED: &str = "Can't produce a report";
/// Most attempts for a disturbed call.
const ATTEMPTS: usize = 5;
/// Approximate duration of a call, in seconds.
const CALL_S: f64 = 0.8;

/// One call.
#[derive(Clone, Debug)]
pub struct Case {
    /// The program.
    program: String,
    /// The point that it measures.
    pub point: Point,
    /// Whether rdma_cm creates the queue pairs.
    by_cm: bool,
    /// Whether the inline size was given.
    has_inline: bool,
}

/// Whether a part may name this program.
pub fn is_known(name: &str) -> bool {
    KNOWN.contains(&name)
}

/// The calls of a sweep with options of rdmalab.
///
/// # Errors
/// An option is unknown or has a wrong value.
pub fn cases(words: &SweepCommand) -> Result<Vec<Case>, String> {
    let program = words.experiment.clone();
    let mut by_cm = vec![false];
    let mut options: Vec<(&str, &str)> = Vec::new();
    for (name, value) in &words.options {
        match name.as_str() {
            "rdma-cm" => {
                let each = value.split(',').map(|word| match word {
                    "yes" => Ok(true),
                    "no" => Ok(false),
                    other => Err(format!("--rdma-cm: choose yes or no, not {other:?}")),
                });
                by_cm = each.collect::<Result<_, _>>()?;
            }
            known if OPTIONS.contains(&known) => options.push((name, value)),
            other => {
                let known = OPTIONS.join(", ");
                return Err(format!("--{other}: {program} supports only these options: {known}"));
            }
        }
    }
    let has_inline = words.options.iter().any(|(name, _)| name == "inline");
    let points = sweep(Experiment::PING, &options).map_err(|e| e.to_string())?;
    let case = |(point, by_cm)| Case { program: program.clone(), point, by_cm, has_inline };
    let each = points.into_iter().flat_map(|p| by_cm.iter().map(move |cm| (p.clone(), *cm)));
    Ok(each.map(case).collect())
}

impl Case {
    /// Approximate duration, in seconds.
    pub fn expected_s(&self) -> f64 {
        CALL_S + self.point.common.messages as f64 * 3e-6
    }

    fn arguments(&self) -> Vec<String> {
        let point = &self.point;
        let connection = point.common.transport.name().to_ascii_uppercase();
        let mut words = vec!["-F".to_owned(), "-U".to_owned()];
        let mut add = |letter: &str, value: String| words.extend([letter.to_owned(), value]);
        add("-c", connection);
        add("-s", point.common.size_bytes.to_string());
        add("-n", point.common.messages.to_string());
        if let (true, Inline::Bytes(bytes)) = (self.has_inline, point.common.inline) {
            add("-I", bytes.to_string());
        }
        if point.common.mtu_bytes > 0 {
            add("-m", point.common.mtu_bytes.to_string());
        }
        if self.by_cm {
            words.push("-R".to_owned());
        }
        words
    }

    /// The parameters, as in a record.
    pub fn parameters(&self) -> Object {
        let point = &self.point;
        let inline = match (self.has_inline, point.common.inline) {
            (true, Inline::Bytes(bytes)) => bytes.into(),
            _ => "default".into(),
        };
        let mut all: Object = [
            ("transport", point.common.transport.name().into()),
            ("op", "send".into()),
            ("size_bytes", point.common.size_bytes.into()),
            ("messages", point.common.messages.into()),
            ("inline_bytes", inline),
            ("mtu_bytes", point.common.mtu_bytes.into()),
            ("rdma_cm", if self.by_cm { "yes" } else { "no" }.into()),
        ]
        .map(|(name, value): (&str, serde_json::Value)| (name.to_owned(), value))
        .into_iter()
        .collect();
        let of_model = parameters(point).into_iter();
        all.extend(
            of_model
                .filter(|(name, value)| OF_MODELS.contains(&name.as_str()) && value != "profile"),
        );
        all
    }

    /// Whether its queue pairs are made by rdma_cm.
    pub fn is_by_cm(&self) -> bool {
        self.by_cm
    }

    /// The call as text.
    pub fn described(&self) -> String {
        format!("{} {}", self.program, self.arguments().join(" "))
    }
}

/// The options and repetitions for a `share` of the calls: fewer repetitions first, then fewer
/// sizes and MTUs between the ends. Fewer messages would not help: a call takes its time to start.
pub fn shortened(
    words: &SweepCommand,
    repeat: u32,
    cases: &[Case],
    share: f64,
) -> (SweepCommand, u32) {
    if share >= 1.0 {
        return (words.clone(), repeat);
    }
    let repeats = ((f64::from(repeat) * share).floor() as u32).clamp(1, repeat);
    let mut left = share * f64::from(repeat) / f64::from(repeats);
    let mut words = words.clone();
    type Value = fn(&Case) -> u64;
    let lists: [(&str, Value); 2] = [
        ("size", |case| case.point.common.size_bytes),
        ("mtu", |case| case.point.common.mtu_bytes.into()),
    ];
    for (name, value) in lists {
        let mut all: Vec<u64> = cases.iter().map(value).collect();
        all.sort_unstable();
        all.dedup();
        let kept = evenly_spaced(&all, (all.len() as f64 * left).floor() as usize);
        left *= all.len() as f64 / kept.len().max(1) as f64;
        let option = words.options.iter_mut().find(|(known, _)| known == name);
        if let (Some((_, old)), true) = (option, kept.len() < all.len()) {
            *old = kept.iter().map(u64::to_string).collect::<Vec<_>>().join(",");
        }
    }
    (words, repeats)
}

/// Runs the calls that are not in the record yet. A call that fails is a skipped point with the
/// last line of the program as the reason.
/// # Errors
/// When the record cannot be written, or on an interrupt.
pub fn run(
    (cases, repeat): (&[Case], u32),
    dir: &Path,
    command: &[String],
    request: &Request,
    interrupt: &Interrupt,
) -> Outcome {
    let device = request.device.as_str();
    let latency = LatencyArgs { hold_dma_latency: request.hold_dma_latency };
    let _hold = latency.hold()?;
    let found = crate::soft::find(device)?;
    let profile = crate::soft::profile(&found).map(|profile| profile.name.clone());
    let kind = match found.kind() {
        rdmalab_verbs::Kind::Soft => DeviceKind::Soft,
        rdmalab_verbs::Kind::Sim => DeviceKind::Sim,
        _ => DeviceKind::System,
    };
    let program = cases.first().map_or("", |case| case.program.as_str());
    let device = Device { profile, ..Device::new(device, kind) };
    let mut header = Header::new(program, command.to_vec(), device);
    header.seed = cases.first().map_or(0, |case| case.point.common.seed);
    header.condition.clone_from(&request.condition);
    header.held_dma_latency_us = request.hold_dma_latency;
    let parameters: Vec<_> = cases.iter().map(Case::parameters).collect();
    kept::each((&parameters, repeat), (dir, header), interrupt, |number| {
        let case = &cases[number];
        let measured = match kind {
            DeviceKind::Sim => simulated(case, &request.device, interrupt),
            _ => call(case, request, kind),
        };
        measured.map(|measured| hooks::under_profile(measured, &found))
    })
}

/// What a call would measure on a simulated device.
fn simulated(case: &Case, device: &str, interrupt: &Interrupt) -> Result<Measured, String> {
    let Case { program, point, by_cm, has_inline } = case;
    match by_cm {
        true => Err("simulated devices have no connection manager".to_owned()),
        false => simulated_program::call(program, point, *has_inline, device, interrupt),
    }
}

/// Why a call failed.
#[derive(Clone, Debug, PartialEq)]
enum CallError {
    /// The output was [`DISTURBED`].
    Disturbed,
    /// Any other reason, as a sentence.
    Failed(String),
}

impl From<String> for CallError {
    fn from(why: String) -> Self {
        Self::Failed(why)
    }
}

/// Makes a call, and repeats it if it was disturbed.
fn call(case: &Case, request: &Request, kind: DeviceKind) -> Result<Measured, String> {
    undisturbed(|| call_once(case, request, kind)).map_err(|error| match error {
        CallError::Failed(why) => why,
        CallError::Disturbed => format!(
            "{} could not measure the clock frequency in {ATTEMPTS} calls because other programs \
             took the processor: stop other programs and measure again",
            case.program
        ),
    })
}

/// The first call of [`ATTEMPTS`] that was not disturbed.
fn undisturbed<T>(mut call: impl FnMut() -> Result<T, CallError>) -> Result<T, CallError> {
    for _ in 1..ATTEMPTS {
        let made = call();
        if !matches!(made, Err(CallError::Disturbed)) {
            return made;
        }
    }
    call()
}

/// Runs a server and a client, and reads the samples that the client prints.
fn call_once(case: &Case, request: &Request, kind: DeviceKind) -> Result<Measured, CallError> {
    let passing = tempfile::tempdir().map_err(|e| e.to_string())?;
    let port = free_port().map_err(|e| e.to_string())?;
    let start = |name: &str, host: Option<&str>| {
        let file = passing.path().join(name);
        let out = File::create(&file).map_err(|e| e.to_string())?;
        let err = out.try_clone().map_err(|e| e.to_string())?;
        let mut command = program(case, request, kind)?;
        command
            .args(["-d", &request.device, "-p", &port.to_string()])
            .args(case.arguments())
            .args(host);
        command.stdin(Stdio::null()).stdout(out).stderr(err);
        let child = command.spawn().map_err(|e| format!("{}: {e}", case.program))?;
        Ok::<_, String>((KillOnDrop(child), file))
    };
    let (mut server, server_text) = start("server", None)?;
    let began = Instant::now();
    loop {
        // A client that starts before the server listens is refused, and is started again.
        let (mut client, text) = start("client", Some("127.0.0.1"))?;
        if client.succeeds_within(LIMIT)? {
            return samples(&read(&text)?);
        }
        let is_over = server.has_ended();
        let said = [read(&server_text)?, read(&text)?];
        if said.iter().any(|text| text.contains(DISTURBED)) {
            return Err(CallError::Disturbed);
        }
        if is_over || began.elapsed() > LISTENS {
            let line = said.iter().find_map(|text| last_words(text)).unwrap_or_default();
            return Err(CallError::Failed(format!("{} failed: {line}", case.described())));
        }
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// The command of the program; for a soft device, under `rdmalab exec`.
fn program(case: &Case, request: &Request, kind: DeviceKind) -> Result<Command, String> {
    let installed = installed(&case.program);
    let path = installed.ok_or_else(|| format!("{} is not installed", case.program))?;
    if kind != DeviceKind::Soft {
        return Ok(Command::new(path));
    }
    let own = std::env::current_exe().map_err(|e| format!("{}: {e}", request.device))?;
    let mut command = Command::new(own);
    command.arg("exec").envs(request.link().variables(0)).arg("--").arg(path);
    Ok(command)
}

/// Parses the output of `-U`: `number, microseconds` for each sample, in the order of measurement.
fn samples(text: &str) -> Result<Measured, CallError> {
    let sample = |line: &str| {
        let (number, us) = line.split_once(',')?;
        number.trim().parse::<u64>().ok()?;
        us.trim().parse::<f64>().ok().map(|us| us * 1e3)
    };
    let samples: Vec<f64> = text.lines().filter_map(sample).collect();
    if samples.is_empty() {
        return Err(CallError::Failed("the program printed no samples".to_owned()));
    }
    if !samples.iter().all(|ns| ns.is_finite()) {
        return Err(CallError::Disturbed);
    }
    let mut measured = Measured::default();
    measured.push_series(Quantity::HalfRoundTrip, "", 0, samples);
    Ok(measured)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_samples_are_read_and_the_rest_is_not() {
        let text = " local address: LID 0x1\n#, usec\n1, 1.5\n2, 0.25\n#bytes #iterations\n \
                    2       1000          0.30, ...\n";
        let found = samples(text).unwrap();
        assert_eq!(found.series[0].samples, [1500.0, 250.0]);
        assert!(matches!(samples("#, usec\n"), Err(CallError::Failed(_))));
        assert_eq!(samples("#, usec\n1, inf\n2, inf\n").err(), Some(CallError::Disturbed));
    }

    #[test]
    fn a_disturbed_call_is_repeated_a_few_times() {
        let of = |results: &[Result<u32, CallError>]| {
            let mut calls = 0;
            let made = undisturbed(|| {
                calls += 1;
                results[(calls - 1).min(results.len() - 1)].clone()
            });
            (made, calls)
        };
        let failed = || Err(CallError::Failed("no such device".to_owned()));
        assert_eq!(of(&[Ok(7)]), (Ok(7), 1));
        assert_eq!(of(&[Err(CallError::Disturbed), Err(CallError::Disturbed), Ok(7)]), (Ok(7), 3));
        assert_eq!(of(&[Err(CallError::Disturbed), failed(), Ok(7)]), (failed(), 2));
        assert_eq!(of(&[Err(CallError::Disturbed)]), (Err(CallError::Disturbed), ATTEMPTS));
    }

    #[test]
    fn our_options_become_those_of_perftest() {
        let words = |line: &str| {
            let line: Vec<String> = line.split(' ').map(str::to_owned).collect();
            cases(&SweepCommand::of_line(&line).unwrap())
        };
        assert!(words("ib_send_lat --pause 1us").unwrap_err().contains("options: transport"));
        assert!(words("ib_send_lat --rdma-cm maybe").unwrap_err().contains("choose yes or no"));
        let found =
            words("ib_send_lat --transport rc,ud --size 8 --inline 0 --rdma-cm yes").unwrap();
        let said: Vec<String> = found.iter().map(Case::described).collect();
        assert_eq!(said[1], "ib_send_lat -F -U -c UD -s 8 -n 100000 -I 0 -R");
        assert_eq!(found[0].parameters()["inline_bytes"], 0);
        let line = "ib_send_lat --transport rc,ud --size 8..4K*2 --messages 1000";
        let whole =
            SweepCommand::of_line(&line.split(' ').map(str::to_owned).collect::<Vec<_>>()).unwrap();
        let cut = |share: f64| {
            let (words, repeat) = shortened(&whole, 3, &cases(&whole).unwrap(), share);
            (words.line()[4].clone(), repeat, cases(&words).unwrap().len())
        };
        assert_eq!(cut(1.0), ("8..4K*2".to_owned(), 3, 20));
        assert_eq!(cut(0.4), ("8..4K*2".to_owned(), 1, 20));
        assert_eq!(cut(0.1), ("8,256,4096".to_owned(), 1, 6));
        assert_eq!(cut(1e-9), ("8,4096".to_owned(), 1, 4));
    }
}

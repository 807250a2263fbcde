//! A command line for a server and its client: how it is written, run, and judged.

use std::path::Path;
use std::time::{Duration, Instant};

use rdmalab_testkit::programs::{self, Ended};

/// A pair that takes longer counts as hung. This happens only if something is broken or the machine
/// is very busy.
pub const LIMIT: Duration = Duration::from_secs(100);
/// How long a server may take to notice that its client failed.
const GRACE: Duration = Duration::from_secs(2);
/// `ibv_rc_pingpong -t -e` reports an error (2, `ENOENT`) if it finds an empty CQ after an event,
/// because it polled the completion between arming the CQ and waiting. Rare, and its own bug.
const EVENT_OF_NOTHING: &str = "poll CQ failed 2";

/// Whether the user asked for the long lists.
pub fn full() -> bool {
    std::env::var("RDMALAB_INTEROP").is_ok_and(|wanted| wanted == "full")
}

/// As [`full`], for a test that consists of a long list only; if false, prints that it is skipped.
pub fn is_full(test: &str) -> bool {
    if !full() {
        programs::skipped(test, "a long list; RDMALAB_INTEROP=full runs it");
    }
    full()
}

/// One call of a program: `[VARIABLE=VALUE ...] PROGRAM [OPTION ...]`.
#[derive(Debug)]
pub struct Case {
    pub variables: Vec<(String, String)>,
    pub program: String,
    pub options: Vec<String>,
}

impl Case {
    pub fn parse(line: &str) -> Case {
        let mut words = line.split_whitespace().map(str::to_owned).peekable();
        let mut variables = Vec::new();
        let is_variable =
            |word: &str| word.split_once('=').is_some_and(|(name, _)| !name.contains('-'));
        while let Some(word) = words.next_if(|word| is_variable(word)) {
            let (name, value) = word.split_once('=').expect("a variable has a value");
            variables.push((name.to_owned(), value.to_owned()));
        }
        let program = words.next().unwrap_or_else(|| panic!("no program in {line:?}"));
        Case { variables, program, options: words.collect() }
    }

    /// Whether an option is given.
    pub fn has(&self, option: &str) -> bool {
        self.options.iter().any(|word| word == option)
    }

    /// The word after an option.
    pub fn text(&self, option: &str) -> Option<&str> {
        let at = self.options.iter().position(|word| word == option)?;
        self.options.get(at + 1).map(String::as_str)
    }

    /// The number after an option, or `default` without the option.
    pub fn number(&self, option: &str, default: u64) -> u64 {
        self.text(option).map_or(default, |word| word.parse().expect("a number"))
    }

    /// Runs a server and its client, again if the failure is no fault of our library.
    fn run(&self, path: &Path) -> (Ended, Option<Ended>) {
        let is_spoiled =
            |side: &Ended| programs::is_disturbed(side) || side.stderr.contains(EVENT_OF_NOTHING);
        programs::again_while(
            programs::SPOILED,
            || self.run_once(path),
            |(server, client)| is_spoiled(server) || client.as_ref().is_some_and(is_spoiled),
        )
    }

    fn run_once(&self, path: &Path) -> (Ended, Option<Ended>) {
        let port = programs::free_port();
        let mut arguments = Vec::new();
        if !self.has("-d") {
            arguments.extend(["-d".to_owned(), "soft0".to_owned()]);
        }
        arguments.extend(["-p".to_owned(), port.to_string()]);
        arguments.extend(self.options.iter().cloned());
        let mut server = programs::start(path, &arguments, &self.variables);
        // Started only now, because building our libraries may have taken a while.
        let until = Instant::now() + LIMIT;
        if !server.wait_until_it_listens(port) {
            return (server.end_by(Instant::now()), None);
        }
        arguments.push("127.0.0.1".to_owned());
        let client = programs::start(path, &arguments, &self.variables).end_by(until);
        let patience = if client.succeeded() { until } else { Instant::now() + GRACE };
        (server.end_by(patience), Some(client))
    }
}

/// Checks the output of one side; the error is a sentence.
pub type Judge = fn(&Case, &Ended) -> Result<(), String>;

/// Runs every case of the tables and fails with all failures. `judge` checks the client's output
/// and, if `both`, the server's.
#[track_caller]
pub fn check_pairs(tables: &[&str], both: bool, judge: Judge) {
    let only = std::env::var("RDMALAB_INTEROP_ONLY").unwrap_or_default();
    let mut failures = Vec::new();
    let mut missing: Vec<String> = Vec::new();
    let lines = tables.iter().flat_map(|table| table.lines()).map(str::trim);
    let mut count = 0;
    for line in lines.filter(|line| !line.is_empty() && line.contains(&only)) {
        let case = Case::parse(line);
        let Some(path) = programs::find(&case.program) else {
            if !missing.contains(&case.program) {
                programs::skipped(&case.program, "not installed");
                missing.push(case.program);
            }
            continue;
        };
        let _turn = programs::turn();
        let began = Instant::now();
        let (server, client) = case.run(&path);
        println!("{:6.2} s  {line}", began.elapsed().as_secs_f64());
        count += 1;
        let wrong = complaint(&case, &server, client.as_ref(), both, judge);
        if let Err(wrong) = wrong {
            let client = client.map_or_else(String::new, |client| client.report());
            failures.push(format!("{line}\n{wrong}\n{client}{}", server.report()));
        }
    }
    let failed = failures.len();
    assert!(failed == 0, "{failed} of {count} pairs failed\n\n{}", failures.join("\n"));
}

fn complaint(
    case: &Case,
    server: &Ended,
    client: Option<&Ended>,
    both: bool,
    judge: Judge,
) -> Result<(), String> {
    let client = client.ok_or("the server never listened")?;
    for (who, ended) in [("client", client), ("server", server)] {
        if !ended.succeeded() {
            return Err(format!("the {who} failed"));
        }
        if who == "client" || both {
            judge(case, ended).map_err(|wrong| format!("the {who}: {wrong}"))?;
        }
    }
    Ok(())
}

#[test]
fn a_line_is_taken_apart() {
    let case = Case::parse(" A=b C=d ib_x --opt=3 -n 7 -e ");
    assert_eq!(case.program, "ib_x");
    assert_eq!(case.variables.len(), 2);
    assert_eq!((case.number("-n", 1), case.number("-s", 2)), (7, 2));
    assert!(case.has("-e") && !case.has("-q"));
}

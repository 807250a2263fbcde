//! perftest's names as commands, alone and beside the unmodified programs on the same device.

mod common;

use std::process::Command;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use common::{Ended, Process, rdmalab, said};
use rdmalab_testing::{PERFTEST_DISTURBED, again_while, free_port, skipped};

/// One pair at a time, because each has two ends that spin.
static ONE: Mutex<()> = Mutex::new(());

/// Makes an end's command.
type MakeCommand<'a> = &'a dyn Fn() -> Command;

/// Runs both ends, again if perftest was [disturbed](PERFTEST_DISTURBED); returns the client's.
fn pair(server: MakeCommand<'_>, client: MakeCommand<'_>, arguments: &[&str]) -> Ended {
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    let once = || pair_once(server, client, arguments);
    let [server, client] = again_while("perftest could not tell its clock", once, |ends| {
        ends.iter().any(|said| said.stderr.contains(PERFTEST_DISTURBED))
    });
    let both = format!("{}{}", client.stderr, server.stderr);
    assert_eq!(server.code, Some(0), "{arguments:?}: {}{both}", server.stdout);
    client
}

fn pair_once(server: MakeCommand<'_>, client: MakeCommand<'_>, arguments: &[&str]) -> [Ended; 2] {
    let port = free_port().to_string();
    let mut server = Process::start(server().args(["-p", &port]).args(arguments));
    server.listens_on(port.parse().unwrap());
    let client = said(client().args(["-p", &port]).args(arguments).arg("127.0.0.1"));
    if client.code != Some(0) {
        // The server may wait for ever for a client that has failed.
        std::thread::sleep(Duration::from_secs(2));
        let _ = server.child.kill();
    }
    [server.end(), client]
}

/// Runs both ends with our command.
fn both(words: &[&str], arguments: &[&str]) -> Ended {
    pair(&|| rdmalab(words), &|| rdmalab(words), arguments)
}

/// The first two CPUs that this process may use.
fn allowed_cores() -> Vec<String> {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let list = text.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:")).unwrap();
    let range = |part: &str| {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.trim().parse::<usize>().unwrap();
        number(low)..=number(high)
    };
    list.split(',').flat_map(range).take(2).map(|core| core.to_string()).collect()
}

/// The numbers of the lines below the header of perftest's table.
fn table(text: &str) -> Vec<Vec<f64>> {
    let lines = text.lines().skip_while(|line| !line.contains("#bytes")).skip(1);
    let numbers = |line: &str| {
        line.split_whitespace().map(|word| word.parse::<f64>().ok()).collect::<Option<Vec<f64>>>()
    };
    lines.map_while(numbers).filter(|line| !line.is_empty()).collect()
}

#[test]
fn each_of_them_prints_its_table() {
    for (name, size) in [
        ("ib_send_lat", 2.0),
        ("ib_write_lat", 2.0),
        ("ib_read_lat", 2.0),
        ("ib_send_bw", 65536.0),
        ("ib_write_bw", 65536.0),
        ("ib_read_bw", 65536.0),
        ("ib_atomic_lat", 8.0),
        ("ib_atomic_bw", 8.0),
    ] {
        let client = both(&[name, "-d", "soft0"], &["-n", "100"]);
        assert_eq!(client.code, Some(0), "{name}: {}", client.stderr);
        let lines = table(&client.stdout);
        assert_eq!(lines.len(), 1, "{name}: {}", client.stdout);
        assert_eq!((lines[0][0], lines[0][1]), (size, 100.0), "{name}: {}", client.stdout);
        let columns = if name.ends_with("lat") { 9 } else { 5 };
        assert_eq!(lines[0].len(), columns, "{name}: {}", client.stdout);
    }
}

#[test]
fn its_letters_work_between_two_processes() {
    let lat = ["-c", "UC", "-s", "100", "-n", "50", "-i", "1", "-x", "1", "-m", "1024", "-t", "20"];
    let more = ["-r", "40", "-I", "32", "-u", "16", "-S", "1", "-F"];
    let client = both(&["ib_send_lat"], &[&lat[..], &more[..]].concat());
    assert_eq!(client.code, Some(0), "{}", client.stderr);
    assert_eq!(table(&client.stdout)[0][..2], [100.0, 50.0], "{}", client.stdout);
    let bw = ["-q", "2", "-Q", "5", "-l", "2", "-e", "-o", "4", "-n", "60", "--report_gbits"];
    let client = both(&["ib_write_bw"], &bw);
    assert_eq!(client.code, Some(0), "{}", client.stderr);
    assert!(client.stdout.contains("BW average[Gb/sec]"), "{}", client.stdout);
    let client = both(&["ib_read_lat"], &["-a", "-n", "5"]);
    assert_eq!(table(&client.stdout).len(), 23, "{}{}", client.stdout, client.stderr);
    let client = both(&["ib_send_bw"], &["-D", "50ms", "-b", "-s", "64"]);
    let line = &table(&client.stdout)[0];
    assert!(line[0] == 64.0 && line[1] > 0.0, "{}{}", client.stdout, client.stderr);
    let client = both(&["ib_send_lat"], &["-n", "50", "--format", "csv"]);
    assert!(client.stdout.starts_with("point,") || client.stdout.contains("size_bytes,"));
}

/// The median that a latency table shows, in us.
fn typical(client: &Ended) -> f64 {
    let lines = table(&client.stdout);
    let line = lines.first().unwrap_or_else(|| panic!("{}{}", client.stdout, client.stderr));
    line[4]
}

/// A delay of 200 us dominates both measurements and so hides differences of the machine: the
/// distance of two processors is worth up to 0.2 us, and only the machine knows it.
const LINE: &str = "delay 200us of request";
/// Confusing RTT with RTT/2 gives a factor of 2; equal quantities differ by less than a tenth.
const AGREE: std::ops::Range<f64> = 0.8..1.25;
/// How many times to run our pair and theirs in turn; the median of the ratios counts.
const PAIRS: usize = 5;

#[test]
fn medians_agree_with_the_unmodified_program_on_the_same_device() {
    let test = "medians_agree_with_the_unmodified_program_on_the_same_device";
    let cores = allowed_cores();
    for name in ["ib_send_lat", "ib_write_lat", "ib_read_lat"] {
        if !std::path::Path::new("/usr/bin").join(name).is_file() {
            return skipped(test, "no perftest (apt install perftest)");
        }
        let [first, second] = &cores[..] else {
            return skipped(test, "one CPU: both ends would take turns");
        };
        let cores = format!("{first},{second}");
        let call = [name, "-d", "soft0", "-s", "64", "-n", "500"];
        let theirs = |core: &str, faults: &[&str]| {
            let mut command = Command::new("taskset");
            command.args(["-c", core]).arg(assert_cmd::cargo::cargo_bin("rdmalab"));
            command.arg("exec").args(faults).arg("--").args(call);
            command
        };
        let ours = |faults: &[&str]| {
            let mut command = rdmalab(&call);
            command.args(["--cores", &cores]).args(faults);
            command
        };
        // Both medians in us, of a pair of ours and the pair of theirs that follows.
        let medians = |faults: &[&str]| {
            let own = pair(&|| ours(faults), &|| ours(faults), &[]);
            let other = pair(&|| theirs(second, faults), &|| theirs(first, faults), &[]);
            [typical(&own), typical(&other)]
        };
        println!("{name}: {:?} us without a line, ours and theirs", medians(&[]));
        let found: Vec<[f64; 2]> = (0..PAIRS).map(|_| medians(&["--faults", LINE])).collect();
        let mut ratios: Vec<f64> = found.iter().map(|[own, other]| own / other).collect();
        ratios.sort_by(f64::total_cmp);
        assert!(AGREE.contains(&ratios[PAIRS / 2]), "{name}: ours and theirs in us: {found:?}");
        // Both results include the delay, in the same unit.
        let least = found.as_flattened().iter().copied().fold(f64::INFINITY, f64::min);
        assert!(least >= 200.0, "{name}: {found:?}");
    }
}

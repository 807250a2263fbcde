//! Debian's perftest: latencies and bandwidths of every opcode.

use rdmalab_testkit::programs::Ended;

use crate::case::{Case, check_pairs, is_full};

const SEND: &str = "
    ib_send_lat
    ib_send_lat -c UC
    ib_send_lat -c UD
    ib_send_lat -e --use_old_post_send
    ib_send_lat -c UD -e --use-srq
    ib_send_bw
    ib_send_bw -c UC -b -n 500
    ib_send_bw -c UD -q 16 -n 200
    ib_send_bw -a -n 50
    ib_send_bw -c UD -a -n 200 -e
    ib_send_bw -b -q 4 -e -n 500
    ib_send_bw --use-srq -q 16 -n 200
    ib_send_bw --use_old_post_send -l 8 -Q 8
    ib_send_bw -I 64 -s 64 -t 16 -r 32
    ib_send_bw --recv_post_list 8 -m 256 -n 200
    ib_send_bw -d soft1 -s 2
    RDMALAB_PERSONALITY=ethernet ib_send_lat -x 1
    RDMALAB_PERSONALITY=ethernet ib_send_bw -c UD -g -x 0 -n 200
    RDMALAB_PERSONALITY=ethernet ib_send_lat -c UD -g -x 0 -n 200
    RDMALAB_LANE=off ib_send_bw -b
";

const WRITE: &str = "
    ib_write_lat -n 20
    ib_write_lat -c UC -n 20 --use_old_post_send -I 0
    ib_write_bw
    ib_write_bw -c UC -b
    ib_write_bw -q 16 -n 200
    ib_write_bw -a -n 48 -l 8
    ib_write_bw --use_old_post_send -I 64 -s 64
    ib_write_bw -m 256 -s 8388608 -n 5
    RDMALAB_PERSONALITY=ethernet ib_write_bw -x 0
    RDMALAB_LANE=off ib_write_lat -n 20
    RDMALAB_LANE=off ib_write_bw -c UC -n 200
    RDMALAB_PROFILE=connectx6 ib_write_bw --odp -n 200
";

const READ: &str = "
    ib_read_lat
    ib_read_lat -e -s 100000 -n 200
    ib_read_bw
    ib_read_bw -b -q 16 -n 100
    ib_read_bw -a -n 20 -o 1 --use_old_post_send
    RDMALAB_LANE=off ib_read_bw -m 1024 -n 200
    RDMALAB_PROFILE=connectx4 ib_read_bw --odp -n 200
";

const ATOMIC: &str = "
    ib_atomic_lat -A CMP_AND_SWAP
    ib_atomic_lat -A FETCH_AND_ADD -e
    ib_atomic_bw -A CMP_AND_SWAP -q 16 -n 200
    ib_atomic_bw -A FETCH_AND_ADD -b --use_old_post_send
    RDMALAB_LANE=off ib_atomic_bw -A FETCH_AND_ADD -o 1 -n 200
    RDMALAB_LANE=off ib_atomic_lat -A CMP_AND_SWAP
";

/// The cases of a program in the long list: one for each combination of transport and option.
fn long(program: &str, transports: &[&str]) -> String {
    let is_bw = program.ends_with("_bw");
    let is_send = program.starts_with("ib_send");
    let is_write = program.starts_with("ib_write");
    // Such a program spins on memory: few iterations, in case processors are short.
    let n = if is_write && !is_bw { 20 } else { 200 };
    let mut options: Vec<String> = ["", "-m 256", "-m 512", "-m 1024", "-m 2048", "-m 4096"]
        .map(|option| format!("{option} -n {n}"))
        .into();
    let mut add = |wanted: bool, more: &[&str]| {
        let more = more.iter().filter(|_| wanted);
        options.extend(more.map(|option| format!("{option} -n {n}")));
    };
    let is_atomic = program.starts_with("ib_atomic");
    add(!is_write, &["-e", "-e --use_old_post_send"]);
    add(is_bw, &["-b", "-q 16", "-q 16 -b", "-l 8", "-Q 1", "-Q 16", "-t 1 -Q 1", "-t 512"]);
    add(!is_atomic, &["-s 2", "-s 1023", "-s 2048"]);
    add(!is_atomic && !is_send, &["-s 4096", "-s 65536", "-s 8388608"]);
    add(is_send, &["--use-srq", "-r 16", "-r 4096"]);
    add(is_send && is_bw, &["--recv_post_list 8", "--use-srq -q 16", "-b --use-srq -e"]);
    add(is_send || is_write, &["-I 0 -s 64", "-I 64 -s 64", "-I 1 -s 1", "-I 912 -s 912"]);
    add(!is_send && !is_write, &["-o 1", "-o 2", "-o 16"]);
    add(is_atomic, &["-A CMP_AND_SWAP", "-A FETCH_AND_ADD"]);
    add(true, &["--use_old_post_send", "-d soft1", "-x 0", "-x 1"]);
    // A latency takes a second per size, at any number of iterations: perftest measures its clock.
    if !is_atomic {
        options.push(format!("-a -n {}", n / 10 + 3));
    }
    let mut lines = String::new();
    for transport in transports {
        for option in &options {
            lines += &format!("{program} -c {transport} {option}\n");
        }
        for gid in ["-x 0", "-x 1"] {
            let line = format!("{program} -c {transport} {gid} -n {n}\n");
            lines += &format!("RDMALAB_PERSONALITY=ethernet {line}");
            lines += &format!("RDMALAB_LANE=off {line}");
        }
    }
    let kept: Vec<&str> = lines.lines().filter(|line| makes_sense(line)).collect();
    kept.join("\n")
}

/// Whether a line can succeed. UD messages must fit into one packet, whatever `-m` says. And
/// without retransmission, messages beyond the posted receives (`-r`, 512 by default, which an SRQ
/// divides among its QPs) may be lost, and perftest waits for them for ever.
fn makes_sense(line: &str) -> bool {
    let (is_uc, is_ud) = (line.contains("-c UC"), line.contains("-c UD"));
    let may_lose = line.starts_with("ib_send_bw")
        && (line.contains("-r 16") || line.contains("--use-srq -q 16"));
    !(is_ud && line.contains("-m ") || (is_uc || is_ud) && may_lose)
}

/// Error messages that perftest prints without, or before, setting its exit code.
const COMPLAINTS: [&str; 5] =
    ["Couldn't", "Failed to", "Unable to", "Completion with error", "syndrome"];

/// The rows of the result: the lines of numbers after the line that starts with `#bytes`.
fn rows(output: &str) -> Vec<Vec<f64>> {
    let lines = output.lines().skip_while(|line| !line.trim().starts_with("#bytes")).skip(1);
    let row = |line: &str| line.split_whitespace().map(|word| word.parse().ok()).collect();
    lines.filter_map(row).filter(|row: &Vec<f64>| !row.is_empty()).collect()
}

/// The sizes that the result should have a row for.
fn sizes(case: &Case) -> Vec<u64> {
    let is_ud = case.text("-c") == Some("UD");
    if case.has("-a") {
        // UD ends at the MTU, the other transports at 8 MiB.
        return (1..=if is_ud { 12 } else { 23 }).map(|power| 1 << power).collect();
    }
    let default = match case.program.as_str() {
        name if name.starts_with("ib_atomic") => 8,
        name if name.ends_with("_lat") => 2,
        _ if is_ud => 4096,
        _ => 65536,
    };
    vec![case.number("-s", default)]
}

fn judge(case: &Case, ended: &Ended) -> Result<(), String> {
    let text = format!("{}{}", ended.stdout, ended.stderr);
    if let Some(words) = COMPLAINTS.iter().find(|words| text.contains(**words)) {
        return Err(format!("it says {words:?}"));
    }
    let rows = rows(&ended.stdout);
    let found: Vec<u64> = rows.iter().map(|row| row[0] as u64).collect();
    if found != sizes(case) {
        return Err(format!("rows for the sizes {found:?}"));
    }
    let default = if case.program == "ib_write_bw" { 5000 } else { 1000 };
    let iterations = case.number("-n", default) * case.number("-q", 1);
    for row in &rows {
        if row.get(1) != Some(&(iterations as f64)) {
            return Err(format!("{row:?}: not {iterations} iterations"));
        }
        let is_sane = match case.program.ends_with("_lat") {
            true => is_sane_latency(row),
            false => is_sane_bandwidth(row),
        };
        if !is_sane {
            return Err(format!("{row:?} is no measurement"));
        }
    }
    Ok(())
}

/// Columns: minimum, maximum, typical, mean, deviation, 99 %, 99.9 %.
fn is_sane_latency(row: &[f64]) -> bool {
    let [_, _, min, max, typical, mean, deviation, p99, p999] = row[..] else { return false };
    let inside = |value: f64| min <= value && value <= max;
    // perftest adds squares in 32 bits: after one pause of 46 ms the sum is negative.
    let is_beyond = (max - mean).powi(2) > f64::from(i32::MAX);
    let has_deviation = deviation >= 0.0 || (deviation.is_nan() && is_beyond);
    // A rounding error sometimes prints the mean above the maximum.
    min > 0.0 && inside(typical) && inside(p99) && p99 <= p999 && mean > 0.0 && has_deviation
}

/// Columns: peak, mean, messages. The peak is of the best interval, and so not below the mean. Low
/// rates may round to zero.
fn is_sane_bandwidth(row: &[f64]) -> bool {
    let [_, _, peak, mean, messages] = row[..] else { return false };
    peak >= 0.0 && mean >= 0.0 && messages > 0.0 && mean.is_finite() && peak.is_finite()
}

#[test]
fn sends() {
    check_pairs(&[SEND], false, judge);
}

#[test]
fn writes() {
    check_pairs(&[WRITE], false, judge);
}

#[test]
fn reads() {
    check_pairs(&[READ], false, judge);
}

#[test]
fn atomics() {
    check_pairs(&[ATOMIC], false, judge);
}

#[test]
fn everything_that_perftest_offers() {
    if !is_full("everything_that_perftest_offers") {
        return;
    }
    let (all, connected, reliable) = (&["RC", "UC", "UD"][..], &["RC", "UC"][..], &["RC"][..]);
    let tables: Vec<String> = [
        ("ib_send_lat", all),
        ("ib_send_bw", all),
        ("ib_write_lat", connected),
        ("ib_write_bw", connected),
        ("ib_read_lat", reliable),
        ("ib_read_bw", reliable),
        ("ib_atomic_lat", reliable),
        ("ib_atomic_bw", reliable),
    ]
    .map(|(program, transports)| long(program, transports))
    .into();
    let tables: Vec<&str> = tables.iter().map(String::as_str).collect();
    check_pairs(&tables, false, judge);
}

#[test]
fn a_table_of_results_is_read() {
    let output = " x\n #bytes #iterations    t_min[usec]\n 8       1000   1.5  \n----\n\n";
    assert_eq!(rows(output), [[8.0, 1000.0, 1.5]]);
    assert!(is_sane_latency(&[2.0, 9.0, 1.0, 3.0, 2.0, 2.0, 0.0, 2.5, 3.0]));
    assert!(!is_sane_latency(&[2.0, 9.0, 0.0, 3.0, 2.0, 2.0, 0.0, 2.5, 3.0]));
    assert!(!is_sane_latency(&[2.0, 9.0, 1.0, 3.0, 2.0, 2.0, f64::NAN, 2.5, 3.0]));
    assert!(is_sane_latency(&[2.0, 9.0, 1.0, 76_000.0, 2.0, 78.0, f64::NAN, 2.5, 3.0]));
    assert!(!is_sane_bandwidth(&[2.0, 9.0, 0.0, 3.0, 0.0]));
}

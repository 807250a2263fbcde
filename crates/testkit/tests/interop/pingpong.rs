//! The pingpongs of rdma-core, which check the data they receive if told to (`-c`).

use rdmalab_testkit::programs::Ended;

use crate::case::{Case, check_pairs, is_full};

const SHORT: &str = "
    ibv_rc_pingpong -c
    ibv_rc_pingpong -c -e -g 0
    ibv_rc_pingpong -c -N -g 1 -n 500
    ibv_rc_pingpong -c -t -e
    ibv_rc_pingpong -c -s 1000000 -m 256 -n 20
    ibv_rc_pingpong -d soft1 -c -r 16
    ibv_uc_pingpong -c
    ibv_uc_pingpong -c -e -g 0
    ibv_uc_pingpong -g 1 -n 500
    ibv_ud_pingpong -c
    ibv_ud_pingpong -c -e -g 0
    ibv_ud_pingpong -g 1 -n 500
    ibv_srq_pingpong -c
    ibv_srq_pingpong -c -e -g 0
    ibv_srq_pingpong -g 1 -n 500 -q 4
    ibv_srq_pingpong -c -s 8388608 -n 20
    RDMALAB_PERSONALITY=ethernet ibv_rc_pingpong -c -g 0
    RDMALAB_PERSONALITY=ethernet ibv_ud_pingpong -c -g 1 -e
    RDMALAB_LANE=off ibv_rc_pingpong -c
    RDMALAB_LANE=off ibv_srq_pingpong -c -e
    RDMALAB_PROFILE=connectx4 ibv_rc_pingpong -c -o
    RDMALAB_PROFILE=connectx4 ibv_rc_pingpong -c -O
    RDMALAB_PROFILE=connectx6 ibv_rc_pingpong -c -o -P
    RDMALAB_PROFILE=connectx6 ibv_srq_pingpong -c -o
";

/// Every combination that the programs offer.
fn long() -> String {
    let mut lines = String::new();
    for (program, flags) in [
        ("ibv_rc_pingpong", &["", "-t", "-N", "-t -N"][..]),
        ("ibv_uc_pingpong", &[""]),
        ("ibv_ud_pingpong", &[""]),
        ("ibv_srq_pingpong", &["", "-q 1"]),
    ] {
        for flag in flags {
            for wait in ["", "-e"] {
                for gid in ["", "-g 0", "-g 1"] {
                    for more in ["-c", "-n 300", "-c -s 1 -n 100", "-c -r 17 -n 200"] {
                        lines += &format!("{program} {flag} {wait} {gid} {more}\n");
                    }
                }
                for gid in ["-g 0 -c", "-g 1 -c"] {
                    let words = format!("{program} {flag} {wait} {gid}\n");
                    lines += &format!("RDMALAB_PERSONALITY=ethernet {words}");
                    lines += &format!("RDMALAB_LANE=off {words}");
                    lines += &format!("{program} -d soft1 {flag} {wait} {gid}\n");
                }
            }
        }
    }
    for program in ["ibv_rc_pingpong", "ibv_uc_pingpong", "ibv_srq_pingpong"] {
        for mtu in [256, 512, 1024, 2048, 4096] {
            for size in [1, 255, 4096, 4097, 100_000, 8 << 20] {
                lines += &format!("{program} -c -m {mtu} -s {size} -n 20\n");
            }
        }
    }
    lines
}

/// The first two numbers of a line like `8192000 bytes in 0.01 seconds = 9999.99 Mbit/sec`.
fn rate(output: &str, what: &str, unit: &str) -> Option<(f64, f64)> {
    let line = output.lines().find(|line| line.contains(what) && line.ends_with(unit))?;
    let count = line.split_whitespace().next()?.parse().ok()?;
    let rate = line.rsplit('=').next()?.split_whitespace().next()?.parse().ok()?;
    Some((count, rate))
}

fn judge(case: &Case, ended: &Ended) -> Result<(), String> {
    let text = format!("{}{}", ended.stdout, ended.stderr);
    if text.contains("invalid data") {
        return Err("it received something else than was sent".to_owned());
    }
    let size = case.number("-s", if case.program == "ibv_ud_pingpong" { 1024 } else { 4096 });
    let iterations = case.number("-n", 1000);
    let (bytes, bits) = rate(&text, " bytes in ", "Mbit/sec").ok_or("no line with bytes")?;
    let (iters, time) = rate(&text, " iters in ", "usec/iter").ok_or("no line with iters")?;
    // Both directions count.
    let expected = (size * iterations * 2) as f64;
    if bytes != expected || iters != iterations as f64 {
        return Err(format!("{bytes} B in {iters} iterations, not {expected} in {iterations}"));
    }
    if !(bits > 0.0 && time > 0.0) {
        return Err(format!("{bits} Mbit/s and {time} us are no rates"));
    }
    if case.has("-t") && !text.contains("completion clock cycles") {
        return Err("no time stamps".to_owned());
    }
    Ok(())
}

#[test]
fn pingpongs() {
    check_pairs(&[SHORT], true, judge);
}

#[test]
fn every_pingpong() {
    if is_full("every_pingpong") {
        check_pairs(&[&long()], true, judge);
    }
}

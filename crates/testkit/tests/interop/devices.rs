//! How the devices appear to the programs that list them.

use std::time::Instant;

use rdmalab_testkit::programs::{self, Ended};

use crate::case::{Case, LIMIT};

/// Runs one program alone; `None` if it is not installed.
fn run(line: &str) -> Option<Ended> {
    run_beside(line, || ())
}

/// As [`run`]; the value that `beside` returns exists while the program runs.
fn run_beside<T>(line: &str, beside: impl FnOnce() -> T) -> Option<Ended> {
    let case = Case::parse(line);
    let Some(path) = programs::find(&case.program) else {
        programs::skipped(&case.program, "not installed");
        return None;
    };
    let _turn = programs::turn();
    let _beside = beside();
    let ended =
        programs::start(&path, &case.options, &case.variables).end_by(Instant::now() + LIMIT);
    assert!(ended.succeeded(), "{}", ended.report());
    Some(ended)
}

/// The values after `name:` in the output, in order.
fn values<'a>(ended: &'a Ended, name: &str) -> Vec<&'a str> {
    let lines = ended.stdout.lines().filter_map(|line| line.trim().split_once(':'));
    lines.filter(|(found, _)| *found == name).map(|(_, value)| value.trim()).collect()
}

#[track_caller]
fn assert_values(ended: &Ended, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        let found = values(ended, name);
        assert_eq!(found, [*value], "{name}\n{}", ended.report());
    }
}

#[test]
fn ibv_devices_lists_both_with_their_guids() {
    let Some(ended) = run("ibv_devices") else { return };
    let mut guids = Vec::new();
    for name in ["soft0", "soft1"] {
        let line = ended.stdout.lines().find(|line| line.trim().starts_with(name));
        let guid = line.and_then(|line| line.split_whitespace().nth(1)).unwrap_or_default();
        let is_hex = guid.chars().all(|digit| digit.is_ascii_hexdigit());
        assert!(guid.len() == 16 && is_hex, "{name}: {}", ended.report());
        guids.push(guid);
    }
    assert_ne!(guids[0], guids[1], "{}", ended.report());
}

#[test]
fn ibv_devinfo_tells_the_limits_and_the_infiniband_port() {
    let Some(ended) = run("ibv_devinfo -v -d soft0") else { return };
    assert_values(
        &ended,
        &[
            ("hca_id", "soft0"),
            ("transport", "InfiniBand (0)"),
            ("phys_port_cnt", "1"),
            ("max_qp", "16384"),
            ("max_qp_wr", "16384"),
            ("max_cqe", "4194303"),
            ("max_sge", "32"),
            ("max_srq_wr", "16384"),
            ("max_qp_rd_atom", "16"),
            ("max_qp_init_rd_atom", "16"),
            ("state", "PORT_ACTIVE (4)"),
            ("max_mtu", "4096 (5)"),
            ("active_mtu", "4096 (5)"),
            ("link_layer", "InfiniBand"),
        ],
    );
    let lid = values(&ended, "port_lid").first().and_then(|lid| lid.parse::<u32>().ok());
    assert!(lid.is_some_and(|lid| lid > 0), "{}", ended.report());
    assert!(values(&ended, "GID[  0]").first().is_some_and(|gid| gid.starts_with("fe80:")));
    assert!(values(&ended, "GID[  1]").first().is_some_and(|gid| gid.contains("ffff:")));
}

#[test]
fn ibv_devinfo_shows_the_other_personality_and_the_other_device() {
    let Some(ended) = run("RDMALAB_PERSONALITY=ethernet ibv_devinfo -v -d soft1") else { return };
    assert_values(
        &ended,
        &[("hca_id", "soft1"), ("state", "PORT_ACTIVE (4)"), ("link_layer", "Ethernet")],
    );
}

/// `ibv_devinfo` shows the limits of the profile, and its name after the version.
#[test]
fn ibv_devinfo_tells_what_a_profile_takes_away() {
    let path = std::env::temp_dir().join(format!("rdmalab-small-{}.toml", std::process::id()));
    let text = "name = \"small\"\ntitle = \"t\"\nimitates = \"nothing\"\nlacks = \"all\"\n\
                rules = [\"delay 1us of ack\"]\n[limits]\nmax_qp = 100\nmax_qp_wr = 200\n\
                max_cqe = 300\nmax_sge = 4\nmax_srq_wr = 50\nmax_srq_sge = 3\nmax_mr = 60\n\
                max_qp_rd_atom = 2\nmax_qp_init_rd_atom = 1\nactive_mtu = 1024\n";
    std::fs::write(&path, text).expect("a file");
    let ended = run(&format!("RDMALAB_PROFILE={} ibv_devinfo -v -d soft0", path.display()));
    std::fs::remove_file(&path).expect("it is there");
    let Some(ended) = ended else { return };
    assert_values(
        &ended,
        &[
            ("max_qp", "100"),
            ("max_qp_wr", "200"),
            ("max_cqe", "300"),
            ("max_sge", "4"),
            ("max_srq_wr", "50"),
            ("max_srq_sge", "3"),
            ("max_mr", "60"),
            ("max_qp_rd_atom", "2"),
            ("max_qp_init_rd_atom", "1"),
            ("max_res_rd_atom", "200"),
            ("max_mtu", "4096 (5)"),
            ("active_mtu", "1024 (3)"),
        ],
    );
    let version = values(&ended, "fw_ver");
    assert!(version[0].ends_with("+small"), "{}", ended.report());
}

#[test]
fn ibv_devinfo_lists_the_names() {
    let Some(ended) = run("ibv_devinfo -l") else { return };
    let names: Vec<&str> = ended.stdout.lines().map(str::trim).collect();
    assert!(names.contains(&"soft0") && names.contains(&"soft1"), "{}", ended.report());
}

/// Processes of two versions cannot see each other and would wait for ever, so the user is warned.
#[test]
fn another_version_on_the_host_is_told() {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixDatagram};

    let hold_a_slot = || {
        let uid = rustix::process::getuid().as_raw();
        let name = SocketAddr::from_abstract_name(format!("rdmalab/999/{uid}/7")).expect("a name");
        UnixDatagram::bind_addr(&name).expect("nobody has it")
    };
    // All tests of this machine use the same name.
    let _turn = programs::machine_turn("other-version");
    let Some(ended) = run_beside("ibv_devinfo -d soft0", hold_a_slot) else { return };
    let told = "a program with another version of rdmalab runs on this host (999 of what";
    assert_eq!(ended.stderr.matches(told).count(), 1, "{}", ended.report());
    let Some(ended) = run("ibv_devinfo -d soft0") else { return };
    assert!(!ended.stderr.contains("(999 of what"), "{}", ended.report());
}

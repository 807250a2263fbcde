//! `rdmalab study --device sim`: the conditions that a plan gives for its simulation.

mod common;

use std::fs;

use common::{Ended, only, study};
use rdmalab_record::Record;
use tempfile::TempDir;

/// A study with one link of its own for all figures, several for one of them, and another adapter.
const SIMULATED: &str = "key = 'own'\ntitle = 'T'\nsource = 'S'\nhardware = 'H'\n\
    [sim]\nprofile = 'connectx2'\nlink = 'ddr'\ntopology = 'switch'\n\
    [[figure]]\nkey = 'f'\ntitle = 'F'\nsim = { link = 'sdr,qdr' }\n[[figure.sweep]]\n\
    run = 'ping --size 4096 --messages 50 --warm-up 0'\n\
    [[figure]]\nkey = 'g'\ntitle = 'G'\n[[figure.sweep]]\nname = 'here'\n\
    run = 'ping --size 4096 --messages 50 --warm-up 0'\n\
    [[figure.sweep]]\nname = 'there'\nrun = 'ping --size 4096 --messages 50 --warm-up 0'\n\
    sim = { profile = 'connectx4', link = 'ddr', topology = 'switch' }\n";

const OF_LINKS: &str = "[[claim]]\nkey = 'links'\nsays = 'QDR beats SDR.'\nrelation = '<'\n\
    left = { figure = 'f', quantity = 'round_trip_ns', where = { link = 'qdr' } }\n\
    right = { where = { link = 'sdr' } }\nsource = 'p. 1'\non = ['sim']\nbecause = 'of links'\n\
    [[claim]]\nkey = 'adapters'\nsays = 'The newer one is faster.'\nrelation = '<'\n\
    left = { figure = 'g', sweep = 'there', quantity = 'round_trip_ns' }\n\
    right = { sweep = 'here' }\nsource = 'p. 2'\n";

fn simulated_study() -> TempDir {
    let studies = tempfile::tempdir().unwrap();
    fs::create_dir(studies.path().join("own")).unwrap();
    fs::write(studies.path().join("own/plan.toml"), SIMULATED).unwrap();
    fs::write(studies.path().join("own/claims.toml"), OF_LINKS).unwrap();
    studies
}

#[test]
fn a_plan_gives_the_conditions_of_its_simulation() {
    let (studies, out) = (simulated_study(), tempfile::tempdir().unwrap());
    let path = studies.path().display().to_string();
    let call = ["own", "--studies", &path, "--device", "sim"];
    let plan = study(&out, &[&call[..], &["--plan"]].concat()).stdout;
    assert!(plan.contains("the plan has link ddr, topology switch"), "{plan}");
    assert!(plan.contains("--link sdr,qdr --sim leaf_ports=0;switch_between_two=1 "), "{plan}");
    assert!(plan.contains("switch_between_two=1 --device sim:connectx4"), "{plan}");
    let Ended { code, stdout, stderr, .. } = study(&out, &call);
    assert_eq!(code, Some(0), "{stdout}{stderr}");
    let dir = only(out.path());
    let of = |part: &str, name: &str| -> Vec<String> {
        let record = Record::open(&dir.join(part)).unwrap();
        record.points.iter().map(|p| p.parameters[name].as_str().unwrap().to_owned()).collect()
    };
    let mut links = of("f", "link");
    links.sort();
    assert_eq!(links, ["qdr", "sdr"]);
    assert_eq!(of("g.here", "link"), ["ddr"]);
    let device = |part: &str| Record::open(&dir.join(part)).unwrap().header.device.name;
    assert_eq!([device("g.here"), device("g.there")], ["sim:connectx2", "sim:connectx4"]);
    assert!(stdout.contains("2 confirmed, 0 refuted, 0 cannot be seen here"), "{stdout}");
    // Everything is there: nothing is measured again, and the page is written again.
    fs::remove_file(dir.join("report.html")).unwrap();
    let again = study(&out, &["own", "--studies", &path, "--resume"]);
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);
    assert!(again.stdout.contains("2 confirmed"), "{}", again.stdout);
    assert!(dir.join("report.html").is_file());
}

#[test]
fn conditions_of_a_plan_are_those_of_its_own_simulation_only() {
    let studies = simulated_study();
    let path = studies.path().display().to_string();
    for device in ["sim:connectx3", "soft0"] {
        let out = tempfile::tempdir().unwrap();
        let call = ["own", "--studies", &path, "--plan", "--device", device];
        let Ended { code, stdout, stderr, .. } = study(&out, &call);
        assert_eq!(code, Some(0), "{stdout}{stderr}");
        assert!(!stdout.contains("--link") && !stdout.contains("the plan has"), "{stdout}");
        let left = "not available: g.there: it applies to sim:connectx4 only: choose --device sim";
        assert!(stdout.contains(left), "{stdout}");
    }
}

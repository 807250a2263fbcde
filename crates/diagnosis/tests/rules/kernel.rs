//! The captures of the Linux kernel come out clean, but for what they show.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use rdmalab_diagnosis::{Kind, Report};
use rdmalab_trace::{Packets, Seen};

use crate::builder::diagnose;

fn report(file: &Path) -> Report {
    let packets: Vec<Seen> = Packets::open(file).expect("a capture").collect();
    diagnose(&packets)
}

#[test]
fn captures_of_the_kernel_show_what_they_have() {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../trace/tests/data");
    let entries = std::fs::read_dir(data).expect("the captures").map(|e| e.expect("one").path());
    let mut found: BTreeMap<String, BTreeSet<Kind>> = BTreeMap::new();
    let mut files = 0;
    for file in entries.filter(|file| file.extension().is_some_and(|end| end == "pcap")) {
        files += 1;
        let report = report(&file);
        let kinds: BTreeSet<Kind> = report.findings.iter().map(|f| f.kind).collect();
        let name = file.file_name().expect("a name").to_string_lossy().into_owned();
        // netem dropped packets before they were captured in this one.
        if name == "loss_rc_pingpong.pcap" {
            let lost = report.findings.iter().filter(|f| f.kind == Kind::Lost);
            assert!(lost.map(|f| f.count).sum::<u64>() >= 3, "{:#?}", report.findings);
        }
        if !kinds.is_empty() {
            found.insert(name, kinds);
        }
    }
    assert!(files > 20);
    let expected = BTreeMap::from([
        ("loss_rc_pingpong.pcap".to_owned(), BTreeSet::from([Kind::Timeout, Kind::Lost])),
        ("rping_reject.pcap".to_owned(), BTreeSet::from([Kind::CmReject])),
    ]);
    assert_eq!(found, expected);
}

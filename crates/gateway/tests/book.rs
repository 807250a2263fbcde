//! The configurations of the book's chapter are right, and run.

mod common;

use common::{plan, run};

const CHAPTER: &str = include_str!("../../../docs/book/src/gateway.md");

#[test]
fn every_configuration_of_the_chapter_runs() {
    let dir = tempfile::tempdir().unwrap();
    let blocks: Vec<String> = CHAPTER
        .split("```conf\n")
        .skip(1)
        .map(|rest| rest.split("```").next().unwrap())
        .map(|text| {
            // Names of this host that another run of this test may use at the same time.
            let names = format!("/book-{}-", std::process::id());
            text.replace("DIR", &dir.path().display().to_string())
                .replace("12361", &rdmalab_testing::free_port().to_string())
                .replace("/book-", &names)
        })
        .collect();
    assert!(blocks.len() >= 11, "{}", blocks.len());
    for text in blocks {
        let needs_device = match plan(&text) {
            Ok(plan) => plan.needs_device(),
            Err(errors) => panic!("{text}\n{errors:#?}"),
        };
        // Those with a device run in the tests of the command.
        if !needs_device {
            let summary = run(&text);
            assert!(summary.paths.iter().all(|path| path.samples > 0), "{text}\n{summary:#?}");
        }
    }
    let made = std::fs::read_dir(dir.path()).unwrap().count();
    assert_eq!(made, 7, "a file or directory of each block that writes one");
}

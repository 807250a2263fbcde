//! Pages in a real browser: no element may be wider than a telephone, a tablet or a wide screen,
//! and the page may load nothing else.

mod common;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rdmalab_record::Record;
use rdmalab_testing::Process;

/// Widths of the frames that hold a page.
const WIDTHS: [u32; 5] = [360, 390, 800, 1400, 1600];

/// After this time the browser counts as hung and is killed.
const LIMIT: Duration = Duration::from_secs(60);

/// Frames of these widths with the same page in each. A script outside looks for elements that are
/// wider than their frame, except those that scroll in a box of their own.
const FRAME: &str = r#"<!doctype html><meta charset=utf-8><body><pre id=found>none</pre><script>
const page = PAGE;
const found = [];
let left = WIDTHS.length;
for (const width of WIDTHS) {
  const frame = document.createElement('iframe');
  frame.style.width = width + 'px'; frame.style.height = '900px'; frame.style.border = '0';
  frame.srcdoc = page;
  frame.onload = () => {
    const root = frame.contentDocument.documentElement;
    const seen = root.clientWidth;
    if (seen < width - 20 || seen > width) found.push('the frame is ' + seen);
    if (root.scrollWidth > seen) found.push(width + ': the page is ' + root.scrollWidth);
    for (const e of root.querySelectorAll('body *')) {
      const box = e.getBoundingClientRect();
      const inside = e.closest('.scroll');
      if (inside && inside !== e) continue;
      if (e.closest('caption')) continue;
      const edge = e.ownerSVGElement ? e.ownerSVGElement.getBoundingClientRect() : null;
      const right = edge ? edge.right : seen;
      const start = edge ? edge.left : 0;
      if (box.width > 0 && (box.right > right + 1 || box.left < start - 1))
        found.push(width + ': ' + e.tagName + ' ' + (e.textContent || '').slice(0, 30)
          + ' ' + Math.round(box.left) + '..' + Math.round(box.right) + ' of ' + right);
    }
    for (const head of root.querySelectorAll('th')) {
      const right = head.getBoundingClientRect().right;
      if (width >= 1400 && head.textContent === 'verdict' && right > seen)
        found.push(width + ': the verdicts end at ' + right);
    }
    found.push(width + ': looked at ' + root.querySelectorAll('body *').length
      + ', fetched ' + frame.contentWindow.performance.getEntriesByType('resource').length);
    if (--left === 0)
      document.getElementById('found').textContent = 'FOUND\n' + found.join('\n') + '\nEND';
  };
  document.body.append(frame);
}
</script>"#;

fn browser() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    let mut all = std::env::split_paths(&path).flat_map(|dir| {
        ["chromium", "chromium-browser", "google-chrome"].map(|name| dir.join(name))
    });
    all.find(|p| p.is_file())
}

fn skip(reason: &str) {
    rdmalab_testing::skipped("pages_fit_every_screen", reason);
}

/// How often to start the browser. It sometimes hangs, or dies, or prints the document before the
/// frames exist.
const STARTS: u32 = 3;

/// The script's findings, from the first document in which it has finished.
fn found(mut dump: impl FnMut() -> Option<String>) -> String {
    let mut last = None;
    for _ in 0..STARTS {
        last = dump();
        let found = last.as_deref().and_then(|dom| dom.split_once(">FOUND\n"));
        // The script has finished, so its findings count.
        if let Some((found, _)) = found.and_then(|(_, rest)| rest.split_once("\nEND")) {
            return found.to_owned();
        }
    }
    let last = last.unwrap_or_else(|| "it hung".to_owned());
    panic!("the script did not end in {STARTS} starts of the browser; the last: {last:.300}")
}

/// The document that the browser prints; `None` if the browser hangs.
fn dump(browser: &Path, file: &Path) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    let mut command = Command::new(browser);
    command
        .args([
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--window-size=1700,1000",
            "--virtual-time-budget=20000",
            "--dump-dom",
        ])
        .arg(format!("--user-data-dir={}", profile.path().display()))
        .arg(format!("file://{}", file.display()));
    let ended = Process::start(&mut command).end_by(Instant::now() + LIMIT);
    ended.status.map(|_| ended.stdout)
}

/// What the browser found in the page, and the lines that show that it looked.
fn look(browser: &Path, page: &str) -> (Vec<String>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let text = serde_json::to_string(page).unwrap().replace("</", "<\\/");
    let frame = FRAME.replace("PAGE", &text).replace("WIDTHS", &format!("{WIDTHS:?}"));
    let file = dir.path().join("frame.html");
    std::fs::write(&file, frame).unwrap();
    let found = found(|| dump(browser, &file));
    let lines = found.lines().map(str::to_owned);
    lines.partition(|line| !line.contains("looked at"))
}

#[test]
fn a_document_without_findings_is_asked_for_again() {
    let whole = "<pre id=\"found\">FOUND\n360: looked at 3, fetched 0\nEND</pre>";
    let early = "<pre id=\"found\">none</pre>";
    let of = |documents: [Option<&str>; 3]| {
        let mut all = documents.into_iter();
        std::panic::catch_unwind(move || found(|| all.next().unwrap().map(str::to_owned))).ok()
    };
    let looked = Some("360: looked at 3, fetched 0".to_owned());
    assert_eq!(of([Some(whole), None, None]), looked);
    assert_eq!(of([None, Some(""), Some(whole)]), looked);
    assert_eq!(of([Some(early), Some(early), Some(whole)]), looked);
    assert_eq!(of([Some(early), Some(early), Some(early)]), None, "it never ends");
}

#[test]
fn pages_fit_every_screen() {
    let Some(browser) = browser() else {
        return skip("no chromium: apt-get install chromium");
    };
    let check_page = |name: &str, page: &str| {
        let (offences, looked) = look(&browser, page);
        assert_eq!(offences, Vec::<String>::new(), "{name}");
        assert_eq!(looked.len(), WIDTHS.len(), "{looked:?}");
        assert!(looked.iter().all(|l| l.ends_with("fetched 0")), "{looked:?}");
    };
    let check = |name: &str, record: &Record| check_page(name, &rdmalab_report::page(record));
    check("ping", &common::ping(2000, &[8, 512, 32768]).1);
    check("blast", &common::blast().1);
    check("poor", &common::poor().1);
    check("captured", &common::captured().1);
    check("words", &common::words().1);
    check("grid", &common::grid().1);
    check("patterned", &common::patterned().1);
    // Unfold the folded parts, because they must fit, too.
    check_page("study", &common::study().replace("<details>", "<details open>"));
    let beside = common::study_beside(&[("loaded", 500), ("another condition", 500)]);
    check_page("conditions", &beside.replace("<details>", "<details open>"));
    let open = |page: String| page.replace("<details>", "<details open>");
    let values = common::printed_of_round_trips();
    let printed = common::page_with(common::words().1, common::PRINTED, &values);
    check_page("published", &open(printed));
    let side = "ours.quantity='message_time_ns'\nours.label='runs'\nours.where={ size_bytes=512 }";
    let rows = "a,0.5,us,5%,calibration,p. 1,any number of buffers\n";
    check_page(
        "cells",
        &open(common::page_with(common::grid().1, rows, &common::value("a", side))),
    );
    check_page("peers", &open(common::study_of(common::fan(10).1, "bars='deciles'")));
    let [a, b] = [0, 1].map(|_| common::ping(500, &[8, 512, 32768]).1);
    check_page("sides", &open(common::study_of_two([("ours", a), ("other", b)])));
    let records = [common::words().1, common::blast().1];
    check_page("two", &rdmalab_report::pages(&records));
    // The check itself: it must find an element that is too wide.
    let (found, _) = look(&browser, "<body><div style='width:900px;height:9px'>wide</div>");
    assert!(found.iter().any(|l| l.starts_with("360: DIV wide")), "{found:?}");
    assert!(!found.iter().any(|l| l.starts_with("1600")), "{found:?}");
}

//! Pages in a real browser: nothing may stick out at the width of a telephone, a tablet and a wide
//! screen, and nothing may be fetched.

mod common;

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rdmalab_record::Record;

/// Widths of the frames that hold a page.
const WIDTHS: [u32; 4] = [360, 390, 900, 1600];

/// The browser is stopped after this time: it hangs.
const LIMIT: Duration = Duration::from_secs(60);

/// Frames of these widths with the same page in each; a script outside of them looks at what
/// sticks out. What scrolls within a box of its own does not.
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
    let line = format!("SKIPPED pages_fit_every_screen: {reason}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

/// Times that the browser is started, which now and then hangs or dies before it shows anything.
const STARTS: u32 = 3;

/// The document after its scripts ran.
fn dump(browser: &Path, file: &Path) -> String {
    let mut all = (0..STARTS).map(|_| dump_once(browser, file));
    // Any document that there is has to be right.
    let dom = all.find(|dom| dom.as_ref().is_some_and(|dom| !dom.trim().is_empty()));
    dom.flatten().unwrap_or_else(|| panic!("the browser showed nothing {STARTS} times"))
}

/// What it leaves; `None` when it does not end.
fn dump_once(browser: &Path, file: &Path) -> Option<String> {
    let profile = tempfile::tempdir().unwrap();
    let profile = profile.path();
    let out = profile.join("dom");
    let mut child = Command::new(browser)
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
        .arg(format!("--user-data-dir={}", profile.display()))
        .arg(format!("file://{}", file.display()))
        .stdin(Stdio::null())
        .stdout(std::fs::File::create(&out).unwrap())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let began = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if began.elapsed() > LIMIT {
            child.kill().unwrap();
            child.wait().unwrap();
            return None;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    Some(std::fs::read_to_string(&out).unwrap())
}

/// What the browser found in that page, and the lines that say that it looked.
fn look(browser: &Path, page: &str) -> (Vec<String>, Vec<String>) {
    let dir = tempfile::tempdir().unwrap();
    let text = serde_json::to_string(page).unwrap().replace("</", "<\\/");
    let frame = FRAME.replace("PAGE", &text).replace("WIDTHS", &format!("{WIDTHS:?}"));
    let file = dir.path().join("frame.html");
    std::fs::write(&file, frame).unwrap();
    let dom = dump(browser, &file);
    let found = dom.split_once(">FOUND\n").and_then(|(_, rest)| rest.split_once("\nEND"));
    let (found, _) = found.unwrap_or_else(|| panic!("the script did not run: {dom:.300}"));
    let lines = found.lines().map(str::to_owned);
    lines.partition(|line| !line.contains("looked at"))
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
    check("words", &common::words().1);
    check("grid", &common::grid().1);
    check("patterned", &common::patterned().1);
    // What is folded is unfolded: it has to fit too.
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
    // The look itself: what is too wide must be found.
    let (found, _) = look(&browser, "<body><div style='width:900px;height:9px'>wide</div>");
    assert!(found.iter().any(|l| l.starts_with("360: DIV wide")), "{found:?}");
    assert!(!found.iter().any(|l| l.starts_with("1600")), "{found:?}");
}

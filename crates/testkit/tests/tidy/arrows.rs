//! Which crate may depend on which. The table is the architecture; a new arrow is a decision, made
//! here with its reason.

use std::collections::BTreeMap;

use crate::tree::{Offence, SourceFile, Tree};

/// `ROOM -> ROOMS THAT IT MAY USE | WHY`; a star is every room but the test kit.
const HOUSE: &str = "
    random      ->                       | numbers from a seed, arithmetic
    testing     ->                       | what tests of every room say, without the product
    wire        ->                       | formats as plain values, below everything
    engine      -> wire                  | the protocol without clock, thread, socket or memory
    driver      -> engine wire           | plan, move the bytes, retire: once for every path and
                                           memory, real or simulated
    link        -> engine wire random    | carries the engine's trains, and knows no socket
    ring        ->                       | lock-free memory, small enough for a model checker
    profile     -> wire link             | devices as data; their costs are rules of faults
    softnic     -> driver engine wire link ring profile random | the engine in real time; QPNs
                                           are drawn
    sim         -> driver engine wire link rank measure random | the engine in virtual time; ranks
                                           are its coroutines, and have a clock; faults and captures
                                           are those of the link; noise is drawn
    abi         ->                       | the layouts of C, for whoever speaks it
    provider    -> abi engine ring wire  | any backend as C tables, soft or simulated; the lock of
                                           its critical sections is the ring's
    libibverbs  -> provider softnic abi  | the tables as exported symbols
    librdmacm   -> abi engine wire ring  | finds the verbs in our libibverbs at run time, or is
                                           lent them by a program that has the device inside: a
                                           linked copy would be a second one; the engine's
                                           connection manager has no statics, letters between
                                           processes are the ring's
    paths       ->                       | a preload shim sees file names, nothing of RDMA
    signals     ->                       | a preload shim sees signal handlers; the device finds it
                                           at run time
    memory      ->                       | a preload shim sees memory, nothing of RDMA; the device
                                           finds it at run time
    verbs       -> abi                   | safe Rust over whichever table is loaded
    rank        -> measure               | processes, exchange and the real clock, which
                                           measure calibrates
    experiments -> verbs rank measure random | run unchanged in real and in virtual time
    goal        -> verbs rank measure    | replays schedules of messages, like an experiment
    fit         ->                       | least squares of a function that the caller gives:
                                           arithmetic
    measure     -> random                | clocks, statistics and units are arithmetic
    record      -> measure               | files and schema of what was measured
    findings    -> record measure        | what points say together is arithmetic over records
    study       -> record measure        | published studies as data, held against records
    advice      -> record measure        | questions as data, answered from records by
                                           arithmetic; runs nothing
    report      -> record trace wire diagnosis measure study | reads records and diagnoses, and runs
                                           nothing; quantities and statistics are arithmetic
    trace       -> wire engine           | replays a capture against the protocol
    diagnosis   -> trace wire            | judges the packets that trace reads; opens no file
    sample      -> measure random        | samples, their formats and hooks, are values and
                                           arithmetic; noise is drawn from a seed
    config      ->                       | files as trees with positions, types of their keys:
                                           knows nobody's keys
    gateway     -> verbs rank ring measure sample config random | a program on top, like an
                                           experiment; computed signals draw numbers
    realtime    -> experiments gateway config sample verbs rank measure | experiments that cannot
                                           run in virtual time: the gateway has threads, sockets
                                           and timers of its own
    cli         -> *                     | the one binary composes the rest
    testkit     -> *                     | tests may use everything
";

/// The rooms that ship nowhere; any room may use them in its tests.
const TEST_ROOMS: [&str; 2] = ["testkit", "testing"];
/// The room that any other may use in its tests.
const RANDOM: &str = "random";

/// One room of the house.
struct Room {
    /// Directory under `crates/`.
    name: &'static str,
    /// Rooms that it may use.
    may_use: Vec<&'static str>,
    /// What the room is for, as far as it explains the arrows.
    why: String,
}

/// The rooms of [`HOUSE`]; a line without an arrow continues the reason above it.
fn house() -> Vec<Room> {
    let mut rooms: Vec<Room> = Vec::new();
    for line in HOUSE.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let Some((name, rest)) = line.split_once("->") else {
            let room = rooms.last_mut().expect("the table starts with a room");
            room.why = format!("{} {line}", room.why);
            continue;
        };
        let (uses, why) = rest.split_once('|').expect("every room has a reason");
        let may_use = uses.split_whitespace().collect();
        rooms.push(Room { name: name.trim(), may_use, why: why.trim().to_owned() });
    }
    rooms
}

/// Every dependency against the arrows, and every crate without a room.
pub fn offences(tree: &Tree) -> Vec<Offence> {
    let mut found = Vec::new();
    let rooms = manifests(tree, &mut found);
    let by_package: BTreeMap<&str, &str> =
        rooms.iter().map(|m| (m.package.as_str(), m.room.as_str())).collect();
    for manifest in &rooms {
        check(manifest, &house(), &by_package, &mut found);
    }
    found
}

fn check(
    manifest: &Manifest,
    house: &[Room],
    rooms: &BTreeMap<&str, &str>,
    found: &mut Vec<Offence>,
) {
    let this = manifest.room.as_str();
    let Some(allowed) = house.iter().find(|r| r.name == this) else {
        let what = format!(
            "`{this}` is not in the house: add a row to HOUSE in testkit/tests/tidy/arrows.rs \
             with what it may use and why"
        );
        found.push(Offence::new(&manifest.path, 0, what));
        return;
    };
    for (package, is_dev) in &manifest.dependencies {
        let Some(&target) = rooms.get(package.as_str()) else {
            continue;
        };
        let may = if TEST_ROOMS.contains(&target) && this != "testkit" {
            *is_dev
        } else {
            (target == RANDOM && *is_dev)
                || target == this
                || allowed.may_use.contains(&"*")
                || allowed.may_use.contains(&target)
        };
        if !may {
            found.push(Offence::new(&manifest.path, 0, explain(allowed, target, *is_dev)));
        }
    }
}

fn explain(from: &Room, target: &str, is_dev: bool) -> String {
    let (this, why) = (from.name, &from.why);
    match (target, is_dev) {
        (target, _) if TEST_ROOMS.contains(&target) => {
            format!("`{this}` ships {target}; make it a dev-dependency")
        }
        (_, true) => format!(
            "the tests of `{this}` may not use `{target}` ({why}); put the test where both meet, \
             or the harness into testkit"
        ),
        (_, false) => format!(
            "`{this}` may not use `{target}` ({why}); turn the arrow round, pass a value in, \
             or change the table with a reason"
        ),
    }
}

/// What a rule needs of a `Cargo.toml`.
struct Manifest {
    path: String,
    /// Directory under `crates/`.
    room: String,
    package: String,
    /// Package names, and whether only tests use them.
    dependencies: Vec<(String, bool)>,
}

fn manifests(tree: &Tree, found: &mut Vec<Offence>) -> Vec<Manifest> {
    let of_crates =
        |f: &&SourceFile| f.krate().is_some_and(|k| f.path == format!("crates/{k}/Cargo.toml"));
    let root = tree.get("Cargo.toml").and_then(|f| f.text.parse().ok()).unwrap_or_default();
    let parsed = tree.files.iter().filter(of_crates).map(|file| {
        let table = file.text.parse::<toml::Table>();
        table.map(|t| read(file, &t, &root)).map_err(|e| (file, e))
    });
    let mut read = Vec::new();
    for result in parsed {
        match result {
            Ok(manifest) => read.push(manifest),
            Err((file, e)) => {
                found.push(Offence::new(&file.path, 0, format!("not TOML: {}", e.message())));
            }
        }
    }
    read
}

fn read(file: &SourceFile, table: &toml::Table, root: &toml::Table) -> Manifest {
    let package = table.get("package").and_then(|p| p.get("name")).and_then(|n| n.as_str());
    let shared = root.get("workspace").and_then(|w| w.get("dependencies"));
    let mut dependencies = Vec::new();
    let targets = table.get("target").and_then(|t| t.as_table());
    let scopes = targets.into_iter().flat_map(|t| t.values().filter_map(|v| v.as_table()));
    for scope in [table].into_iter().chain(scopes) {
        for (key, is_dev) in
            [("dependencies", false), ("build-dependencies", false), ("dev-dependencies", true)]
        {
            let listed = scope.get(key).and_then(|d| d.as_table());
            for (name, value) in listed.into_iter().flatten() {
                let shared = shared.and_then(|s| s.get(name));
                // A renamed dependency names its package, here or in the workspace's table.
                let renamed = [Some(value), shared].into_iter().flatten();
                let renamed = renamed.filter_map(|v| v.get("package")?.as_str()).next();
                dependencies.push((renamed.unwrap_or(name).to_owned(), is_dev));
            }
        }
    }
    Manifest {
        path: file.path.clone(),
        room: file.krate().unwrap_or_default().to_owned(),
        package: package.unwrap_or_default().to_owned(),
        dependencies,
    }
}

#[cfg(test)]
fn whats(files: &[(&str, &str)]) -> Vec<String> {
    let offences = offences(&Tree::of(files));
    offences.into_iter().map(|o| format!("{}: {}", o.path, o.what)).collect()
}

#[cfg(test)]
const WIRE: (&str, &str) = ("crates/wire/Cargo.toml", "[package]\nname = \"rdmalab-wire\"\n");

#[cfg(test)]
const KIT: (&str, &str) = ("crates/testkit/Cargo.toml", "[package]\nname = \"rdmalab-testkit\"\n");

#[test]
fn an_arrow_may_not_be_reversed() {
    let engine =
        "[package]\nname = \"rdmalab-engine\"\n[dependencies]\nrdmalab-wire = { path = \"\" }\n";
    assert!(whats(&[WIRE, ("crates/engine/Cargo.toml", engine)]).is_empty());
    let wire = "[package]\nname = \"rdmalab-wire\"\n[dependencies]\nrdmalab-engine = \"1\"\n";
    let found = whats(&[("crates/wire/Cargo.toml", wire), ("crates/engine/Cargo.toml", engine)]);
    assert_eq!(found.len(), 1);
    assert!(found[0].contains("`wire` may not use `engine`"), "{found:?}");
}

#[test]
fn a_dependency_cannot_hide() {
    let head = "[package]\nname = \"rdmalab-ring\"\n";
    for section in [
        "[dependencies]\nw = { package = \"rdmalab-wire\", path = \"\" }\n",
        "[build-dependencies]\nrdmalab-wire.path = \"\"\n",
        "[dev-dependencies]\nrdmalab-wire.path = \"\"\n",
        "[target.'cfg(unix)'.dependencies]\nrdmalab-wire.workspace = true\n",
        "[dependencies.rdmalab-wire]\npath = \"\"\n",
    ] {
        let ring = format!("{head}{section}");
        assert_eq!(whats(&[WIRE, ("crates/ring/Cargo.toml", &ring)]).len(), 1, "{section}");
    }
    let root = "[workspace.dependencies]\nw = { package = \"rdmalab-wire\", path = \"\" }\n";
    let ring = format!("{head}[dependencies]\nw.workspace = true\n");
    let files = [("Cargo.toml", root), WIRE, ("crates/ring/Cargo.toml", ring.as_str())];
    assert_eq!(whats(&files).len(), 1);
}

#[test]
fn the_test_kit_serves_tests_only() {
    let with = |section: &str| {
        let ring = format!("[package]\nname = \"r\"\n[{section}]\nrdmalab-testkit.path = \"\"\n");
        whats(&[KIT, ("crates/ring/Cargo.toml", &ring)]).len()
    };
    assert_eq!(with("dev-dependencies"), 0);
    assert_eq!(with("dependencies"), 1);
}

#[test]
fn a_stranger_is_named_with_what_to_do() {
    let found = whats(&[("crates/attic/Cargo.toml", "[package]\nname = \"attic\"\n")]);
    assert!(found[0].contains("add a row"), "{found:?}");
    assert_eq!(whats(&[("crates/ring/Cargo.toml", "[package")]).len(), 1);
}

#[test]
fn the_table_has_no_cycle_and_names_only_its_own_rooms() {
    // A room may use only what a walk from the bottom has already reached.
    let house = house();
    let mut reached: Vec<&str> = Vec::new();
    for _ in &house {
        for room in &house {
            let ready = room.may_use.iter().all(|u| *u == "*" || reached.contains(u));
            if ready && !reached.contains(&room.name) {
                reached.push(room.name);
            }
        }
    }
    assert_eq!(reached.len(), house.len(), "reached {reached:?}");
}

//! Where an experiment is named, as a constant or as a text: in its folder, in the list, and in
//! what is about this one experiment. All else takes experiments from the list, so that a new one
//! is a folder, a line of the list (with its `mod`), and a chapter.

use crate::mask::{is_word, word_offsets};
use crate::tree::{Offence, SourceFile, Tree};

/// The list: lines `NAME: folder::Name,`.
const LIST: &str = "crates/experiments/src/list.rs";
/// Where the folders are.
const FOLDERS: &str = "crates/experiments/src/";

/// Files that name experiments for a reason. The list may only shrink.
const NAMED: [(&str, &str); 5] = [
    ("crates/cli/src/perftest/args.rs", "perftest's programs are two experiments"),
    ("crates/cli/src/perftest/mod.rs", "perftest's programs are two experiments"),
    ("crates/cli/src/simulated/loggp.rs", "LogGP is defined by one-way times and a rate"),
    ("crates/cli/src/study/program.rs", "calls of perftest's programs are read as `ping`"),
    ("crates/cli/src/tour/mod.rs", "a tour is of chosen experiments"),
];

/// Texts that are the name of an experiment and mean something else. The list may only shrink.
const ALIKE: [(&str, &str, &str); 7] = [
    ("crates/cli/src/exec/trials/vary.rs", "odp", "a word of `--vary`"),
    ("crates/cli/src/perftest/args.rs", "odp", "an option of perftest"),
    ("crates/cli/src/perftest/args.rs", "timeout", "the option `--timeout`"),
    ("crates/experiments/src/common/options.rs", "timeout", "the option `--timeout`"),
    ("crates/experiments/src/odp/mod.rs", "timeout", "the option `--timeout`"),
    ("crates/findings/src/lib.rs", "timeout", "the option `--timeout`"),
    ("crates/verbs/src/mock.rs", "mr", "a memory region"),
];

/// One folder that uses another one's.
const USES: [(&str, &str); 1] = [("overhead", "blast")];

/// Every place that names an experiment and is none of these.
pub fn offences(tree: &Tree) -> Vec<Offence> {
    let Some(list) = tree.get(LIST) else {
        return vec![Offence::new(LIST, 0, "the list of experiments is not there")];
    };
    let all = experiments(list);
    let mut found = Vec::new();
    if all.is_empty() {
        found.push(Offence::new(LIST, 0, "no line `NAME: folder::Name,` is in it"));
    }
    for (_, folder) in &all {
        if tree.get(&format!("{FOLDERS}{folder}/mod.rs")).is_none() {
            found.push(Offence::new(LIST, 0, format!("{folder} has no folder of that name")));
        }
    }
    let is_product = |file: &&SourceFile| file.is_shipped() && !is_test_module(tree, file);
    for file in tree.rust().filter(is_product).filter(|file| file.path != LIST) {
        let named = constants(file, &all);
        let is_known = NAMED.iter().any(|(path, _)| *path == file.path);
        if is_known && named.is_empty() {
            found.push(Offence::new(&file.path, 0, "names no experiment: take it from `NAMED`"));
        }
        found.extend(named.into_iter().filter(|_| !is_known));
        found.extend(texts(file, &all));
        found.extend(folders(file, &all));
    }
    found
}

/// Names and folders in the list.
fn experiments(list: &SourceFile) -> Vec<(String, String)> {
    let entry = |line: &str| {
        let (name, folder) = line.trim().strip_suffix(',')?.split_once(": ")?;
        let (folder, _) = folder.split_once("::")?;
        let is_name = name.starts_with(char::is_uppercase) && name.chars().all(is_word);
        let is_folder = folder.chars().all(|c| is_word(c) && !c.is_uppercase());
        (is_name && is_folder).then(|| (name.to_owned(), folder.to_owned()))
    };
    let lines = list.code_lines().map(|(_, line)| line);
    let lines = lines.skip_while(|line| !line.starts_with("experiments! {"));
    lines.take_while(|line| *line != "}").filter_map(entry).collect()
}

/// Whether a file is a module that its parent declares for tests only.
fn is_test_module(tree: &Tree, file: &SourceFile) -> bool {
    let Some((dir, name)) = file.path.rsplit_once('/') else { return false };
    let name = name.trim_end_matches(".rs");
    let parents = [format!("{dir}.rs"), format!("{dir}/mod.rs"), format!("{dir}/main.rs")];
    let declared = format!("#[cfg(test)]\nmod {name};");
    let mut parents = parents.iter().filter_map(|path| tree.get(path));
    parents.any(|parent| parent.code.contains(&declared))
}

/// What a file ships: without its tests, which stand last.
fn shipped(file: &SourceFile) -> &str {
    file.code.split("#[cfg(test)]\nmod tests").next().unwrap_or_default()
}

/// `Experiment::NAME` in a file.
fn constants(file: &SourceFile, all: &[(String, String)]) -> Vec<Offence> {
    let code = shipped(file);
    let mut found = Vec::new();
    for (name, _) in all {
        for at in word_offsets(code, name) {
            if code[..at].ends_with("Experiment::") {
                let what = format!(
                    "names `{name}`: ask `Workload`, so that a new experiment is not added here"
                );
                found.push(Offence::new(&file.path, line_of(code, at), what));
            }
        }
    }
    found
}

/// Texts in a file that begin a command line of an experiment, or are its name.
fn texts(file: &SourceFile, all: &[(String, String)]) -> Vec<Offence> {
    let lines = shipped(file).lines().count();
    let mut left: Vec<&str> =
        ALIKE.iter().filter(|alike| alike.0 == file.path).map(|alike| alike.1).collect();
    let mut found = Vec::new();
    for ((number, code), (_, line)) in file.code_lines().zip(file.lines()).take(lines) {
        for text in literals(code, line) {
            let (word, rest) = text.split_once(' ').unwrap_or((&text, "--"));
            let is_name = |(_, folder): &&(String, String)| folder == word;
            let Some((_, folder)) = all.iter().find(is_name).filter(|_| rest.starts_with("--"))
            else {
                continue;
            };
            let is_alike = ALIKE.iter().any(|(path, text, _)| *path == file.path && text == folder);
            left.retain(|text| text != folder);
            if !is_alike && !file.path.starts_with(&format!("{FOLDERS}{folder}/")) {
                let what = format!(
                    "has the name of `{folder}` as a text: ask `Workload`, or the quantities"
                );
                found.push(Offence::new(&file.path, number, what));
            }
        }
    }
    let unused = |text: &str| format!("has no text {text:?}: take it from `ALIKE`");
    found.extend(left.into_iter().map(|text| Offence::new(&file.path, 0, unused(text))));
    found
}

/// The insides of the string literals that begin and end in a line. In `code` they are blank.
fn literals(code: &str, line: &str) -> Vec<String> {
    let (code, line): (Vec<char>, Vec<char>) = (code.chars().collect(), line.chars().collect());
    let quotes: Vec<usize> = (0..code.len()).filter(|at| code[*at] == '"').collect();
    let inside = |two: &[usize]| two[0] + 1..two[1];
    let pairs = quotes
        .windows(2)
        .map(inside)
        .filter(|inside| code[inside.clone()].iter().all(|c| *c == ' '));
    pairs.map(|inside| line[inside].iter().collect()).collect()
}

/// Folders of experiments that a file names and is not in.
fn folders(file: &SourceFile, all: &[(String, String)]) -> Vec<Offence> {
    let Some(inside) = file.path.strip_prefix(FOLDERS) else { return Vec::new() };
    let own = inside.split('/').next().unwrap_or_default();
    let code = shipped(file);
    let mut found = Vec::new();
    for (_, folder) in all.iter().filter(|(_, folder)| folder != own) {
        let is_used = USES.contains(&(own, folder.as_str()));
        for at in word_offsets(code, folder).filter(|_| !is_used) {
            if code[..at].ends_with("crate::") {
                let what = format!("uses the folder of `{folder}`: move what both need to common/");
                found.push(Offence::new(&file.path, line_of(code, at), what));
            }
        }
    }
    found
}

fn line_of(code: &str, at: usize) -> usize {
    code[..at].matches('\n').count() + 1
}

#[cfg(test)]
fn lines_of(path: &str, text: &str) -> Vec<(String, usize)> {
    let list = "experiments! {\n    PING: ping::Ping,\n    RPC: rpc::Rpc,\n}\n";
    let mut files = vec![
        (LIST, list),
        ("crates/experiments/src/ping/mod.rs", ""),
        ("crates/experiments/src/rpc/mod.rs", ""),
        ("crates/cli/src/run/mod.rs", "#[cfg(test)]\nmod tests;\n"),
    ];
    let named = NAMED.map(|(path, _)| (path, "let a = Experiment::PING;\n"));
    files.extend(named);
    files.retain(|(known, _)| !ALIKE.iter().any(|(alike, _, _)| alike == known));
    files.retain(|(known, _)| *known != path);
    files.push((path, text));
    offences(&Tree::of(&files)).into_iter().map(|o| (o.path, o.line)).collect()
}

#[test]
fn an_experiment_is_named_where_it_is_at_home() {
    let path = "crates/cli/src/run/plan.rs";
    assert_eq!(lines_of(path, "\nmatch e {\n    Experiment::RPC => 1,\n}\n"), [(path.into(), 3)]);
    assert!(lines_of(path, "// Experiment::RPC\nlet a = \"Experiment::RPC\";\n").is_empty());
    assert_eq!(lines_of(path, "\nf(\"\u{e4}\", \"rpc\");\n"), [(path.into(), 2)]);
    assert_eq!(lines_of(path, "let a = \"rpc --size 8\";\n"), [(path.into(), 1)]);
    assert!(lines_of(path, "// \"rpc\"\nlet a = \"rpc is\", rpc, \"an rpc\";\n").is_empty());
    assert!(lines_of("crates/experiments/src/rpc/mod.rs", "let a = \"rpc\";\n").is_empty());
    assert!(lines_of(path, "#[cfg(test)]\nmod tests {\n    Experiment::RPC;\n}\n").is_empty());
    assert!(lines_of("crates/cli/tests/run.rs", "Experiment::RPC;\n").is_empty());
    let path = "crates/cli/src/study/tests.rs";
    assert_eq!(lines_of(path, "Experiment::RPC;\n"), [(path.into(), 1)]);
    let path = "crates/cli/src/run/tests.rs";
    assert!(lines_of(path, "Experiment::RPC;\n").is_empty());
    let path = "crates/experiments/src/common/pace.rs";
    assert_eq!(lines_of(path, "use crate::ping::Ping;\n"), [(path.into(), 1)]);
    let path = "crates/experiments/src/ping/trips.rs";
    assert!(lines_of(path, "use crate::ping::Ping;\n").is_empty());
    assert_eq!(lines_of(path, "use crate::rpc::Rpc;\n"), [(path.into(), 1)]);
}

#[test]
fn what_needs_no_exception_has_none() {
    let (path, _) = NAMED[2];
    assert_eq!(lines_of(path, "let a = 1;\n"), [(path.to_owned(), 0)]);
    let (path, _, _) = ALIKE[0];
    assert_eq!(lines_of(path, "let a = 1;\n"), [(path.to_owned(), 0)]);
}

#[test]
fn a_folder_that_is_in_the_list_is_there() {
    let tree = Tree::of(&[(LIST, "experiments! {\n    RPC: rpc::Rpc,\n}\n")]);
    assert_eq!(offences(&tree)[0].path, LIST);
}

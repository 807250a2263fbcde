//! All environment variables of rdmalab, for the manual page. The book has details on some of them.

use std::fmt::Write as _;

/// A variable.
struct Variable {
    name: &'static str,
    values: &'static str,
    what: &'static str,
}

const fn variable(name: &'static str, values: &'static str, what: &'static str) -> Variable {
    Variable { name, values, what }
}

/// The variables, grouped by the programs that read them.
const SECTIONS: [(&str, &[Variable]); 4] = [
    ("PROGRAMS ON THE SOFT DEVICE", &PROGRAMS),
    ("THE COMMAND RDMALAB", &COMMAND),
    ("BUILDING", &BUILDING),
    ("TESTS OF THE PROJECT", &TESTS),
];

const PROGRAMS: [Variable; 12] = [
    variable(
        "RDMALAB_DEBUG",
        "1",
        "Prints to standard error why a verb failed, what the limit is and what to do.",
    ),
    variable(
        "RDMALAB_PERSONALITY",
        "infiniband (default), ethernet",
        "The addressing of the ports. The option --personality of rdmalab exec sets it.",
    ),
    variable(
        "RDMALAB_LANE",
        "off",
        "One-sided operations of this process go through the ring, as SENDs do.",
    ),
    variable(
        "RDMALAB_CAPTURE",
        "a file",
        "Every packet goes into this pcapng file. The option --capture sets it.",
    ),
    variable(
        "RDMALAB_CAPTURE_SNAP",
        "bytes, 128 to 65535 (default)",
        "How much of each packet a capture keeps.",
    ),
    variable(
        "RDMALAB_FAULTS",
        "rules",
        "Disturbs the packets that the process sends: drop 1% of request; delay 50us of ack. The \
         option --faults sets it.",
    ),
    variable(
        "RDMALAB_COUNTERS",
        "a directory",
        "Each process leaves a file there with what its queue pairs counted. The option --repeat \
         of rdmalab exec sets it.",
    ),
    variable(
        "RDMALAB_PROFILE",
        "a profile's name, or a file's path",
        "The profile of the soft device: its limits, and the delays of packets. rdmalab devices \
         --profiles lists them. The option --profile sets it.",
    ),
    variable(
        "RDMALAB_ODP_WATCH",
        "scan",
        "On-demand paging looks for changes of the memory map, and asks the kernel for no events: \
         for tests.",
    ),
    variable(
        "RDMALAB_FAULT_GUARD",
        "auto (default), signal, syscall, off",
        "How the device protects its copies when a program unmaps memory.",
    ),
    variable(
        "RDMALAB_INTERFACE",
        "a network interface",
        "The network interface for RoCEv2 to other hosts. The option --interface sets it.",
    ),
    variable(
        "RDMALAB_PORT",
        "a UDP port",
        "The UDP port of RoCEv2, instead of 4791. The option --udp-port sets it.",
    ),
];

const COMMAND: [Variable; 9] = [
    variable(
        "RDMALAB_LIBDIR",
        "a directory",
        "Where exec and env take our libibverbs.so.1 from, instead of the one inside the binary.",
    ),
    variable(
        "RDMALAB_PATHS",
        "off, or a directory",
        "With off, exec does not preload the library that emulates /dev/infiniband and \
         /sys/class/infiniband. Otherwise exec sets it, to the directory of the emulated files.",
    ),
    variable(
        "RDMALAB_SIGNALS",
        "off",
        "With off, exec does not preload the library that keeps the device's handler for SIGSEGV \
         and SIGBUS in front of the program's.",
    ),
    variable(
        "XDG_RUNTIME_DIR",
        "a directory",
        "Where exec makes its directory; without it, or if it is not yours: the directory for \
         temporary files, then the cache (XDG_CACHE_HOME, or .cache in HOME).",
    ),
    variable(
        "RDMALAB_TOKEN",
        "text",
        "The secret by which ranks of several hosts authenticate under srun and mpirun, where the \
         launcher provides none.",
    ),
    variable("TMPDIR", "a directory", "The directory for temporary files."),
    variable(
        "XDG_DATA_HOME",
        "a directory",
        "Where env puts the library, in rdmalab/lib; without it .local/share in HOME.",
    ),
    variable("NO_COLOR", "anything", "No colours, also on a terminal."),
    variable(
        "LD_LIBRARY_PATH, LD_PRELOAD",
        "paths",
        "Set by exec, which puts its own before the former value: the directory of our library; \
         the library that emulates paths and, for programs with an rpath of their own, our \
         library itself.",
    ),
];

const BUILDING: [Variable; 1] = [variable(
    "RDMALAB_EMBED",
    "0",
    "Builds the binary without the shared library inside, which saves time; exec then takes the \
     one that it finds beside the binary.",
)];

const TESTS: [Variable; 15] = [
    variable("RDMALAB_SEEDS", "a number", "How many seeds the simulation tests run."),
    variable("RDMALAB_SEED", "a number", "Runs only this seed."),
    variable("RDMALAB_PAGED", "1", "With RDMALAB_SEED: all memory is paged on demand."),
    variable("RDMALAB_GUEST", "1", "Boots a guest with the kernel's rdma_rxe; downloads it once."),
    variable("RDMALAB_SIDEWAY", "1", "Builds and runs the tests of the crate sideway; minutes."),
    variable("RDMALAB_KILLS", "a number", "How often tests kill an end of a gateway."),
    variable("RDMALAB_SLOW", "1", "Longer runs of some tests."),
    variable("RDMALAB_INTEROP", "full", "Every combination of options of Debian's programs."),
    variable(
        "RDMALAB_INTEROP_ONLY",
        "text",
        "Only the pairs of programs whose command line contains this text.",
    ),
    variable("RDMALAB_TEST_MEMORY", "shared", "Test programs get buffers that peers can map."),
    variable("RDMALAB_TEST_DEVICE", "a name", "The device of our C test program."),
    variable(
        "RDMALAB_TEST_MACHINE",
        "a name",
        "Test only: the machine that a worker says it runs on, so that its clock counts as another \
         machine's.",
    ),
    variable(
        "RDMALAB_TEST_GDB",
        "anything",
        "A test process that hangs is not killed, so that a debugger can attach.",
    ),
    variable(
        "RDMALAB_TEST_*",
        "internal",
        "Other names with this prefix pass instructions to processes of a test.",
    ),
    variable("RDMALAB_LIBDIR", "a directory", "The library to test, instead of building one."),
];

/// The page, in roff.
pub fn page(name: &str) -> String {
    let mut text = format!(".TH {} 7\n.SH NAME\n", name.to_uppercase());
    let _ = writeln!(text, "{} \\- environment variables of rdmalab", escaped(name));
    for (title, variables) in SECTIONS {
        let _ = writeln!(text, ".SH \"{title}\"");
        for v in variables {
            let _ = writeln!(text, ".TP\n\\fB{}\\fR ({})", escaped(v.name), escaped(v.values));
            let _ = writeln!(text, "{}", escaped(v.what));
        }
    }
    text.push_str(".SH \"SEE ALSO\"\nrdmalab(1)\n");
    text
}

/// Escapes text for roff.
fn escaped(text: &str) -> String {
    let text = text.replace('\\', "\\e").replace('-', "\\-");
    if text.starts_with(['.', '\'']) { format!("\\&{text}") } else { text }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// The names of rdmalab's variables in a text.
    fn names(text: &str) -> BTreeSet<String> {
        let is_of_name = |c: char| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_';
        let mut found = BTreeSet::new();
        for (at, _) in text.match_indices("RDMALAB_") {
            // Not the end of a longer name.
            if text[..at].ends_with(|c: char| is_of_name(c)) {
                continue;
            }
            let length = text[at..].find(|c| !is_of_name(c)).unwrap_or(text.len() - at);
            found.insert(text[at..at + length].trim_end_matches('_').to_owned());
        }
        found.remove("RDMALAB");
        found
    }

    fn collect(directory: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(directory).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                collect(&path, found);
            } else if path.extension().is_some_and(|e| e == "rs") {
                found.append(&mut names(&std::fs::read_to_string(path).unwrap()));
            }
        }
    }

    #[test]
    fn the_page_names_every_variable_that_the_code_names_and_the_book() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
        let mut there = BTreeSet::new();
        collect(crates, &mut there);
        // One test uses a name without a meaning, and some names are for tests only.
        there.retain(|name| name != "RDMALAB_NO_SUCH_VARIABLE" && !name.contains("_TEST_"));
        let page = names(&page("x").replace("\\fB", " "));
        let missing: Vec<&String> = there.difference(&page).collect();
        assert!(missing.is_empty(), "not on the manual page: {missing:?}");
        let book = crates.join("../docs/book/src/environment.md");
        let mut book = names(&std::fs::read_to_string(book).unwrap());
        book.retain(|name| name != "RDMALAB_TEST_ROLE");
        let missing: Vec<&String> = book.difference(&page).collect();
        assert!(missing.is_empty(), "in the book, and not on the manual page: {missing:?}");
    }
}

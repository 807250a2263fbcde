//! Compares every layout and every constant with the C header of this machine.
//!
//! The crate asserts its own offsets at compile time; here a C compiler prints those of the header.
//! Without `cc` or the header the test says so and passes.

use rdmalab_abi::consts::ALL_CONSTANTS;
use rdmalab_abi::layout::Layout;
use rdmalab_abi::types::{ALL_LAYOUTS, NEWER_THAN_44};
use rdmalab_testing::skipped;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Types that have no name in C, as (ours, type around them, path of the member).
const NAMELESS: &[(&str, &str, &str)] = &[
    ("ibv_gid_global", "union ibv_gid", "global"),
    ("ibv_odp_transport_caps", "struct ibv_odp_caps", "per_transport_caps"),
    ("ibv_async_event_element", "struct ibv_async_event", "element"),
    ("ibv_send_wr_wr", "struct ibv_send_wr", "wr"),
    ("ibv_send_wr_rdma", "struct ibv_send_wr", "wr.rdma"),
    ("ibv_send_wr_atomic", "struct ibv_send_wr", "wr.atomic"),
    ("ibv_send_wr_ud", "struct ibv_send_wr", "wr.ud"),
    ("ibv_send_wr_qp_type", "struct ibv_send_wr", "qp_type"),
    ("ibv_send_wr_xrc", "struct ibv_send_wr", "qp_type.xrc"),
    ("ibv_send_wr_bind_mw", "struct ibv_send_wr", "bind_mw"),
    ("ibv_send_wr_tso", "struct ibv_send_wr", "tso"),
    ("ibv_ops_wr_tm", "struct ibv_ops_wr", "tm"),
    ("ibv_ops_wr_tm_add", "struct ibv_ops_wr", "tm.add"),
    ("rdma_cm_event_param", "struct rdma_cm_event", "param"),
];

/// The anonymous union at the end of `ibv_send_wr`, for which C has no expression.
const ANONYMOUS: &str = "ibv_send_wr_bind_mw_tso";

/// Types that have grown since rdma-core 44, so that only their known part is compared.
const GROWN: &[&str] = &["ibv_port_attr", "ibv_qp_ex", "verbs_context"];

/// C expressions for the size of a type, and for the offset of a member in it.
fn expressions(layout: &Layout, field: &str) -> (String, String) {
    if let Some((_, outer, path)) = NAMELESS.iter().find(|(name, ..)| *name == layout.name) {
        let size = format!("sizeof((({outer} *)0)->{path})");
        let offset = format!("offsetof({outer}, {path}.{field}) - offsetof({outer}, {path})");
        return (size, offset);
    }
    let c_type = format!("{} {}", layout.kind, layout.name);
    let field = if field == "bind_mw_tso" { "bind_mw" } else { field };
    let offset = if layout.name == "verbs_context" {
        // The structure grows at its start, so only the distance to the context is fixed.
        format!("(long long)offsetof({c_type}, {field}) - (long long)offsetof({c_type}, context)")
    } else {
        format!("offsetof({c_type}, {field})")
    };
    (format!("sizeof({c_type})"), offset)
}

/// All comparisons: a key, the C expression, and our value.
fn expectations() -> Vec<(String, String, i64)> {
    let mut all = Vec::new();
    for layout in ALL_LAYOUTS.iter().filter(|layout| layout.name != ANONYMOUS) {
        if !GROWN.contains(&layout.name) {
            let (size, _) = expressions(layout, "");
            all.push((layout.name.to_owned(), size, layout.size as i64));
        }
        let context = layout.fields.last().map_or(0, |field| field.offset as i64);
        let origin = if layout.name == "verbs_context" { context } else { 0 };
        for field in layout.fields {
            if NEWER_THAN_44.contains(&(layout.name, field.name)) {
                continue;
            }
            let (_, offset) = expressions(layout, field.name);
            let key = format!("{}.{}", layout.name, field.name);
            all.push((key.clone(), offset, field.offset as i64 - origin));
            // Bit patterns must agree too: a field of another width may hide in padding.
            if !NAMELESS.iter().any(|(name, ..)| *name == layout.name)
                && field.name != "bind_mw_tso"
            {
                let c_type = format!("{} {}", layout.kind, layout.name);
                let size = format!("sizeof((({c_type} *)0)->{})", field.name);
                all.push((format!("{key} size"), size, field.size as i64));
            }
        }
    }
    for (name, value) in ALL_CONSTANTS.iter().flat_map(|table| table.iter()) {
        all.push(((*name).to_owned(), (*name).to_owned(), *value));
    }
    all
}

fn c_program(expectations: &[(String, String, i64)]) -> String {
    let mut text = String::from(
        "#define _GNU_SOURCE\n#include <stddef.h>\n#include <stdio.h>\n#include <time.h>\n\
         #include <infiniband/verbs.h>\n#include <infiniband/sa.h>\n\
         #include <rdma/ib_user_verbs.h>\n#include <rdma/ib_user_sa.h>\n",
    );
    if has_header(CM_HEADER) {
        writeln!(text, "#include <{CM_HEADER}>").expect("text");
    }
    text.push_str("int main(void) {\n");
    for (index, (_, expression, _)) in expectations.iter().enumerate() {
        writeln!(text, "printf(\"{index} %lld\\n\", (long long)({expression}));").expect("text");
    }
    text.push_str("return 0;\n}\n");
    text
}

/// A directory of this test's own, removed at the end.
struct Scratch(PathBuf);

impl Scratch {
    fn new() -> Self {
        let name = format!("rdmalab-abi-{}", std::process::id());
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&path).expect("a scratch directory");
        Self(path)
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The header of the connection manager, which is in another package.
const CM_HEADER: &str = "rdma/rdma_cma.h";

fn has_header(path: &str) -> bool {
    Path::new("/usr/include").join(path).exists()
}

/// Whether a key belongs to the connection manager.
fn is_of_cm(key: &str) -> bool {
    ["rdma_", "RDMA_", "RAI_"].iter().any(|prefix| key.starts_with(prefix))
}

/// Why the comparison is impossible here, if it is.
fn why_not() -> Option<&'static str> {
    if Command::new("cc").arg("--version").output().is_err() {
        return Some("there is no C compiler `cc`");
    }
    if !has_header("infiniband/verbs.h") || !has_header("rdma/ib_user_verbs.h") {
        return Some("the headers of libibverbs-dev are not installed");
    }
    None
}

fn values_from_c(scratch: &Path, program: &str) -> BTreeMap<usize, i64> {
    let (source, binary) = (scratch.join("layout.c"), scratch.join("layout"));
    std::fs::write(&source, program).expect("the C source");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-w", "-o"])
        .args([&binary, &source])
        .output()
        .expect("cc runs");
    assert!(compiled.status.success(), "cc: {}", String::from_utf8_lossy(&compiled.stderr));
    let output = Command::new(&binary).output().expect("the C program runs");
    let text = String::from_utf8(output.stdout).expect("it prints text");
    text.lines()
        .map(|line| {
            let (index, value) = line.split_once(' ').expect("two numbers");
            (index.parse().expect("an index"), value.parse().expect("a value"))
        })
        .collect()
}

#[test]
fn layouts_and_constants_agree_with_the_c_header() {
    let test = "layouts_and_constants_agree_with_the_c_header";
    if let Some(reason) = why_not() {
        return skipped(test, reason);
    }
    let mut expectations = expectations();
    if !has_header(CM_HEADER) {
        skipped(test, "the connection manager's part: librdmacm-dev is not installed");
        expectations.retain(|(key, ..)| !is_of_cm(key));
    }
    let scratch = Scratch::new();
    let values = values_from_c(&scratch.0, &c_program(&expectations));
    assert_eq!(values.len(), expectations.len());
    let wrong: Vec<String> = expectations
        .iter()
        .enumerate()
        .filter(|(index, (.., ours))| values[index] != *ours)
        .map(|(index, (key, _, ours))| format!("{key}: we say {ours}, C says {}", values[&index]))
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(expectations.len() > 900, "only {} compared", expectations.len());
}

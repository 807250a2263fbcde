//! A C program, compiled with the system's header, runs on the provider.

use core::ffi::{CStr, c_int, c_void};
use std::ffi::CString;
use std::path::{Path, PathBuf};
use std::process::Command;

use rdmalab_abi::VerbsTable;
use rdmalab_provider::table::table;

use crate::mock::Mock;
use rdmalab_testing::skipped;

/// The functions in the order of the slots of `shim.c`.
fn slots(t: &VerbsTable) -> [*const c_void; 24] {
    [
        t.get_device_list as *const c_void,
        t.free_device_list as *const c_void,
        t.get_device_name as *const c_void,
        t.get_device_guid as *const c_void,
        t.open_device as *const c_void,
        t.close_device as *const c_void,
        t.query_device as *const c_void,
        t.query_port as *const c_void,
        t.alloc_pd as *const c_void,
        t.dealloc_pd as *const c_void,
        t.reg_mr as *const c_void,
        t.reg_mr_iova2 as *const c_void,
        t.dereg_mr as *const c_void,
        t.create_comp_channel as *const c_void,
        t.destroy_comp_channel as *const c_void,
        t.get_cq_event as *const c_void,
        t.ack_cq_events as *const c_void,
        t.destroy_cq as *const c_void,
        t.create_qp as *const c_void,
        t.modify_qp as *const c_void,
        t.destroy_qp as *const c_void,
        t.qp_to_qp_ex as *const c_void,
        t.query_gid_ex as *const c_void,
        t.wc_status_str as *const c_void,
    ]
}

/// Compiles the program; `None`, with a message, if the compiler or the header is missing.
fn compile() -> Option<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/c");
    let library = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_surface_program.so");
    let header = "#include <infiniband/verbs.h>\n";
    let probe = Path::new(env!("CARGO_TARGET_TMPDIR")).join("c_surface_probe.c");
    std::fs::write(&probe, header).expect("the directory for temporary files can be written");
    let probed = Command::new("cc").arg("-fsyntax-only").arg(&probe).output();
    if !probed.is_ok_and(|output| output.status.success()) {
        skipped("provider c_program", "no cc, or no infiniband/verbs.h (libibverbs-dev)");
        return None;
    }
    let output = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Werror", "-O1", "-shared", "-fPIC", "-o"])
        .arg(&library)
        .args([sources.join("program.c"), sources.join("shim.c")])
        .arg("-Wl,--no-undefined")
        .output()
        .expect("cc has just run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    Some(library)
}

/// A symbol of a loaded library.
fn symbol(library: *mut c_void, name: &CStr) -> *mut c_void {
    // SAFETY: the library is loaded and the name ends with zero.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    assert!(!found.is_null(), "{name:?}");
    found
}

#[test]
fn a_c_program_runs() {
    let Some(path) = compile() else { return };
    let path = CString::new(path.into_os_string().into_encoded_bytes()).expect("no zero in it");
    let functions = slots(&table::<Mock>());
    // SAFETY: the library is the one just compiled: its two functions have these types, it has no
    // constructors, and the table outlives the program's run.
    unsafe {
        let library = libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL);
        assert!(!library.is_null(), "{:?}", CStr::from_ptr(libc::dlerror()));
        let set_table: extern "C" fn(*const *const c_void) =
            core::mem::transmute(symbol(library, c"rdmalab_test_set_table"));
        let program: extern "C-unwind" fn() -> c_int =
            core::mem::transmute(symbol(library, c"rdmalab_test_program"));
        set_table(functions.as_ptr());
        assert_eq!(program(), 0, "the check in that line of program.c failed");
    }
}

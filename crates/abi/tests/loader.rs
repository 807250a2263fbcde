//! The function table of the system's library, if there is one; otherwise, the errors.

use rdmalab_abi::{LoadError, VerbsTable};
use rdmalab_testing::skipped;
use std::ffi::CStr;

#[test]
fn a_missing_library_is_named() {
    let error = VerbsTable::load(Some(c"/nonexistent/libibverbs.so.1")).unwrap_err();
    assert!(matches!(&error, LoadError::Open { library, .. } if library.contains("nonexistent")));
    assert!(error.to_string().contains("/nonexistent/libibverbs.so.1"));
}

#[test]
fn a_library_without_verbs_is_refused() {
    let error = VerbsTable::load(Some(c"libc.so.6")).unwrap_err();
    assert!(matches!(error, LoadError::Symbol { name: "ibv_get_device_list", .. }), "{error}");
}

#[test]
fn the_systems_library_answers() {
    let table = match VerbsTable::load(None) {
        Ok(table) => table,
        Err(reason) => return skipped("the_systems_library_answers", reason.to_string()),
    };
    // SAFETY: any number is allowed, and the answer is a static C string.
    let text = unsafe { CStr::from_ptr((table.wc_status_str)(rdmalab_abi::IBV_WC_SUCCESS)) };
    assert_eq!(text, c"success");
    let origin = table.origin().expect("the dynamic linker knows the library");
    assert!(origin.to_string_lossy().contains("libibverbs.so"), "{origin:?}");
}

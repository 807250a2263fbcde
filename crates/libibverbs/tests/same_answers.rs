//! Functions that need no device return the same as those of the system's library.

mod common;

use common::{built_library, systems_library};
use rdmalab_abi::layout::{Field, Layout};
use rdmalab_abi::types::*;
use rdmalab_abi::{CLayout, VerbsTable};
use rdmalab_testing::skipped;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

/// A loaded library, for the life of the test.
struct Library(*mut c_void);

impl Library {
    fn open(path: &Path) -> Self {
        let path = CString::new(path.to_str().expect("UTF-8")).expect("no zero byte");
        // SAFETY: a C string; the constructors of both libraries are harmless.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        assert!(!handle.is_null(), "{path:?} cannot be loaded");
        Self(handle)
    }

    /// The function with this name and version, as a program gets it.
    fn symbol(&self, name: &CStr, version: &CStr) -> *mut c_void {
        // SAFETY: an open handle, and C strings.
        let symbol = unsafe { libc::dlvsym(self.0, name.as_ptr(), version.as_ptr()) };
        assert!(!symbol.is_null(), "{name:?} {version:?}");
        symbol
    }

    /// Calls a function from a number to a number.
    fn number(&self, name: &CStr, version: &CStr, argument: c_int) -> c_int {
        type Function = unsafe extern "C" fn(c_int) -> c_int;
        // SAFETY: the callers name functions of this type.
        let function: Function = unsafe { std::mem::transmute(self.symbol(name, version)) };
        // SAFETY: any number is allowed.
        unsafe { function(argument) }
    }

    /// Calls a function from a number to a string.
    fn words(&self, name: &CStr, argument: c_int) -> String {
        type Function = unsafe extern "C" fn(c_int) -> *const c_char;
        let symbol = self.symbol(name, c"IBVERBS_1.1");
        // SAFETY: the callers name functions of this type.
        let function: Function = unsafe { std::mem::transmute(symbol) };
        // SAFETY: any number is allowed, and the answer is a static C string.
        unsafe { CStr::from_ptr(function(argument)) }.to_string_lossy().into_owned()
    }

    /// Calls a function that copies `src` to `dst`; returns the bytes of the fields in order.
    fn copy<D: CLayout, S>(&self, name: &CStr, version: &CStr, mut dst: D, src: &S) -> Vec<u8> {
        type Function<D, S> = unsafe extern "C" fn(*mut D, *const S);
        // SAFETY: the callers name functions of this type.
        let function: Function<D, S> = unsafe { std::mem::transmute(self.symbol(name, version)) };
        // SAFETY: both are valid, and `dst` is of integers only.
        unsafe { function(&mut dst, src) };
        let start = (&raw const dst).cast::<u8>();
        let mut bytes = Vec::new();
        for offset in field_bytes(&D::LAYOUT, 0) {
            // SAFETY: within the structure, and no padding, so initialised.
            bytes.push(unsafe { start.add(offset).read() });
        }
        bytes
    }
}

/// The offsets of a structure's bytes that are not padding.
fn field_bytes(layout: &Layout, start: usize) -> Vec<usize> {
    let bytes_of = |field: &Field| {
        let offset = start + field.offset;
        let inner = match (layout.name, field.name) {
            ("ibv_ah_attr", "grh") => ibv_global_route::LAYOUT,
            ("ibv_qp_attr", "ah_attr" | "alt_ah_attr") => ibv_ah_attr::LAYOUT,
            _ => return (offset..offset + field.size).collect(),
        };
        field_bytes(&inner, offset)
    };
    layout.fields.iter().flat_map(bytes_of).collect()
}

/// Our library and the system's; `None` if that is missing.
fn both() -> Option<(Library, Library)> {
    let Some(theirs) = systems_library() else {
        skipped("same_answers", "Debian's libibverbs1 is not installed");
        return None;
    };
    Some((Library::open(built_library()), Library::open(&theirs)))
}

#[test]
fn codes_have_the_same_words() {
    let Some((ours, theirs)) = both() else { return };
    let functions =
        [c"ibv_wc_status_str", c"ibv_node_type_str", c"ibv_port_state_str", c"ibv_event_type_str"];
    for function in functions {
        for code in -2..=40 {
            let (ours, theirs) = (ours.words(function, code), theirs.words(function, code));
            assert_eq!(ours, theirs, "{function:?} of {code}");
        }
    }
}

#[test]
fn rates_convert_to_the_same() {
    let Some((ours, theirs)) = both() else { return };
    let functions = [
        (c"ibv_rate_to_mult", c"IBVERBS_1.0", 40),
        (c"mult_to_ibv_rate", c"IBVERBS_1.0", 600),
        (c"ibv_rate_to_mbps", c"IBVERBS_1.1", 40),
        (c"mbps_to_ibv_rate", c"IBVERBS_1.1", 1_300_000),
    ];
    for (function, version, last) in functions {
        for code in -2..=last {
            let answers =
                (ours.number(function, version, code), theirs.number(function, version, code));
            assert_eq!(answers.0, answers.1, "{function:?} of {code}");
        }
    }
}

/// A value whose bytes all differ from their neighbours.
fn patterned<T>() -> T {
    let bytes: Vec<u8> = (0..size_of::<T>()).map(|index| (index * 7 + 3) as u8).collect();
    // SAFETY: the callers ask for structures of integers, for which any bytes are valid.
    unsafe { bytes.as_ptr().cast::<T>().read_unaligned() }
}

#[test]
fn the_kernels_structures_are_copied_alike() {
    let Some((ours, theirs)) = both() else { return };
    let (one, ten) = (c"IBVERBS_1.1", c"IBVERBS_1.0");
    macro_rules! same {
        ($name:literal, $version:expr, $dst:ty, $src:ty) => {
            let src = patterned::<$src>();
            let ours = ours.copy($name, $version, <$dst>::zeroed(), &src);
            let theirs = theirs.copy($name, $version, <$dst>::zeroed(), &src);
            assert_eq!(ours, theirs, "{:?}", $name);
            assert!(ours.iter().any(|&byte| byte != 0));
        };
    }
    same!(c"ibv_copy_ah_attr_from_kern", one, ibv_ah_attr, ib_uverbs_ah_attr);
    same!(c"ibv_copy_qp_attr_from_kern", ten, ibv_qp_attr, ib_uverbs_qp_attr);
    same!(c"ibv_copy_path_rec_from_kern", ten, ibv_sa_path_rec, ib_user_path_rec);
    same!(c"ibv_copy_path_rec_to_kern", ten, ib_user_path_rec, ibv_sa_path_rec);
}

#[test]
fn an_old_program_is_told_that_it_is_not_supported() {
    let ours = Library::open(built_library());
    type Function = unsafe extern "C" fn(*mut c_int) -> *mut c_void;
    let symbol = ours.symbol(c"ibv_get_device_list", c"IBVERBS_1.0");
    // SAFETY: the type of this function since the first version.
    let function: Function = unsafe { std::mem::transmute(symbol) };
    // SAFETY: null is allowed.
    let list = unsafe { function(std::ptr::null_mut()) };
    let error = std::io::Error::last_os_error();
    assert!(list.is_null());
    assert_eq!(error.raw_os_error(), Some(libc::EOPNOTSUPP));
}

fn path_as_c(path: &Path) -> CString {
    CString::new(path.to_str().expect("UTF-8")).expect("no zero byte")
}

#[test]
fn the_loader_takes_our_library_and_knows_it() {
    let ours = path_as_c(built_library());
    let table = VerbsTable::load(Some(&ours)).expect("every function is there");
    assert_eq!(VerbsTable::is_ours(Some(&ours)), Ok(true));
    let mut devices = -1;
    // SAFETY: a variable to write to; the list is freed as its manual page says.
    unsafe {
        let list = (table.get_device_list)(&mut devices);
        assert!(!list.is_null());
        (table.free_device_list)(list);
    }
    assert!(devices >= 0);
    if let Some(theirs) = systems_library() {
        assert_eq!(VerbsTable::is_ours(Some(&path_as_c(&theirs))), Ok(false));
    }
}

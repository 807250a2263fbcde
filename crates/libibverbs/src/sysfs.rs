//! Reads sysfs files of devices. The soft device has no such files: `dispatch` supplies the content
//! of those that programs read.

use crate::dispatch;
use core::ffi::{CStr, c_char, c_int};
use rdmalab_abi::inline::set_errno;
use std::ffi::{CString, OsStr};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::OnceLock;

/// The path of sysfs: `SYSFS_PATH`, without slashes at its end, or `/sys`. A program with raised
/// privileges ignores its environment.
pub fn ibv_get_sysfs_path() -> *const c_char {
    static SYSFS: OnceLock<CString> = OnceLock::new();
    SYSFS.get_or_init(|| sysfs_path(secure(), std::env::var_os("SYSFS_PATH"))).as_ptr()
}

fn secure() -> bool {
    // SAFETY: takes an integer, and has no side effect.
    unsafe { libc::getauxval(libc::AT_SECURE) != 0 }
}

fn sysfs_path(secure: bool, variable: Option<std::ffi::OsString>) -> CString {
    let path = variable.filter(|path| !secure && !path.is_empty());
    let bytes = path.as_ref().map_or(&b"/sys"[..], |path| path.as_bytes());
    let end = bytes.iter().rposition(|&byte| byte != b'/').map_or(0, |last| last + 1);
    CString::new(&bytes[..end]).unwrap_or_else(|_| c"/sys".to_owned())
}

/// Reads a file of a directory, without the newline at its end. Returns the number of bytes, or -1
/// and `errno` (`E2BIG` if the bytes and a final zero do not fit).
///
/// # Safety
/// `dir` and `file` are C strings, and `buf` is valid for writes of `size` bytes.
pub unsafe fn ibv_read_sysfs_file(
    dir: *const c_char,
    file: *const c_char,
    buf: *mut c_char,
    size: usize,
) -> c_int {
    // SAFETY: the caller's contract.
    let (dir, file) = unsafe { (CStr::from_ptr(dir), CStr::from_ptr(file)) };
    let content = match dispatch::sysfs_content(dir, file) {
        Some(content) => Ok(content),
        None => read(dir, file),
    };
    let mut content = match content {
        Ok(content) => content,
        Err(error) => return failed(error.raw_os_error().unwrap_or(libc::EIO)),
    };
    if content.last() == Some(&b'\n') {
        content.pop();
    }
    let Some(room) = size.checked_sub(1).filter(|&room| content.len() <= room) else {
        return failed(libc::E2BIG);
    };
    debug_assert!(content.len() <= room);
    // SAFETY: the caller's contract; the content and a zero fit into `size` bytes.
    unsafe {
        buf.copy_from_nonoverlapping(content.as_ptr().cast(), content.len());
        buf.add(content.len()).write(0);
    }
    content.len() as c_int
}

fn failed(errno: c_int) -> c_int {
    set_errno(errno);
    -1
}

/// At most this many bytes of a file are read: a sysfs attribute has at most a page.
const LONGEST: u64 = 64 * 1024;

fn read(dir: &CStr, file: &CStr) -> std::io::Result<Vec<u8>> {
    let os = |text| OsStr::from_bytes(CStr::to_bytes(text));
    let mut content = Vec::new();
    let path = Path::new(os(dir)).join(os(file).to_string_lossy().trim_start_matches('/'));
    std::fs::File::open(path)?.take(LONGEST).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sysfs_path_follows_the_environment_unless_privileged() {
        assert_eq!(sysfs_path(false, None).as_c_str(), c"/sys");
        assert_eq!(sysfs_path(false, Some("/a/b//".into())).as_c_str(), c"/a/b");
        assert_eq!(sysfs_path(true, Some("/a".into())).as_c_str(), c"/sys");
        assert_eq!(sysfs_path(false, Some("".into())).as_c_str(), c"/sys");
    }

    fn read_into(size: usize) -> (c_int, Vec<u8>) {
        let mut buf = vec![0x7f_u8; 16];
        // SAFETY: C strings, and a buffer of at least `size` bytes.
        let len = unsafe {
            ibv_read_sysfs_file(
                c"/proc/sys/kernel".as_ptr(),
                c"ostype".as_ptr(),
                buf.as_mut_ptr().cast(),
                size,
            )
        };
        (len, buf)
    }

    #[test]
    fn a_file_is_read_without_its_newline() {
        let (len, buf) = read_into(16);
        assert_eq!((len, &buf[..6]), (5, &b"Linux\0"[..]));
        assert_eq!(read_into(6).0, 5);
    }

    #[test]
    fn a_file_that_does_not_fit_is_refused_and_nothing_is_written() {
        for size in [0, 1, 5] {
            let (len, buf) = read_into(size);
            assert_eq!(len, -1);
            assert!(buf.iter().all(|&byte| byte == 0x7f));
        }
    }
}

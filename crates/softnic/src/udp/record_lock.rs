//! Record locks on the memory that names the owner of the socket. The kernel drops them when their
//! process ends, or executes another program.

/// The byte of the memory whose lock makes its holder the owner.
const OWNER_BYTE: i64 = 0;
/// The byte with a read lock of every process that shares the socket and may become its owner.
pub(super) const USER_BYTE: i64 = 1;

/// A record lock of one byte; `kind` is `F_RDLCK`, `F_WRLCK` or `F_UNLCK`.
pub(super) fn record_lock(kind: i32, byte: i64) -> libc::flock {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut lock: libc::flock = unsafe { std::mem::zeroed() };
    lock.l_type = kind as libc::c_short;
    lock.l_whence = libc::SEEK_SET as libc::c_short;
    (lock.l_start, lock.l_len) = (byte as libc::off_t, 1);
    lock
}

/// Sets a record lock, which the kernel drops when this process ends, or executes another program;
/// waits for it if asked to. Returns whether it was set.
pub(super) fn set_lock(fd: i32, kind: i32, byte: i64, wait: bool) -> bool {
    let lock = record_lock(kind, byte);
    let command = if wait { libc::F_SETLKW } else { libc::F_SETLK };
    // SAFETY: the kernel reads a live structure.
    unsafe { libc::fcntl(fd, command, &raw const lock) == 0 }
}

/// Takes the owner's lock; waits for it if asked to. Returns whether this process has it.
pub(super) fn lock(fd: i32, wait: bool) -> bool {
    set_lock(fd, libc::F_WRLCK, OWNER_BYTE, wait)
}

/// Releases the owner's lock: a process that waits for it gets it.
pub(super) fn unlock(fd: i32) {
    set_lock(fd, libc::F_UNLCK, OWNER_BYTE, false);
}

/// Whether another process has a lock on a byte.
pub(super) fn is_held_elsewhere(fd: i32, byte: i64) -> bool {
    let mut lock = record_lock(libc::F_WRLCK, byte);
    // SAFETY: the kernel reads and writes a live structure.
    let asked = unsafe { libc::fcntl(fd, libc::F_GETLK, &raw mut lock) };
    asked == 0 && i32::from(lock.l_type) != libc::F_UNLCK
}

/// Whether another process has the lock of the owner.
pub(super) fn is_locked_elsewhere(fd: i32) -> bool {
    is_held_elsewhere(fd, OWNER_BYTE)
}

/// Tells other processes from now on that this one may become the owner.
pub(super) fn register_standby(fd: i32) {
    // Read locks of this byte do not exclude each other.
    set_lock(fd, libc::F_RDLCK, USER_BYTE, false);
}

/// Whether another process may become the owner.
pub(super) fn has_standby(fd: i32) -> bool {
    is_held_elsewhere(fd, USER_BYTE)
}

#[cfg(test)]
mod tests {
    use super::super::ownership::Ownership;
    use super::*;

    #[test]
    fn a_lock_is_had_once() {
        let ownership = Ownership::create().unwrap();
        let fd = ownership.fd();
        assert!(lock(fd, false));
        // The holder may take it again; another process may not, which the tests with processes
        // show.
        assert!(lock(fd, false));
        assert!(!is_locked_elsewhere(fd), "it is ours");
        unlock(fd);
        assert!(!is_locked_elsewhere(fd));
        register_standby(fd);
        assert!(!has_standby(fd), "a process is not its own standby");
    }
}

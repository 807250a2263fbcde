//! Signal handlers belong to a process, so each test runs in its own process: this test program
//! again, with an environment variable that selects the part of the child.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::ptr;

use super::guard::{self, Mode, Policy};
use super::tests::{PAGE, Pages};
use super::{Fault, Side, vm};

/// Selects the part of the child.
const PART: &str = "RDMALAB_TEST_PART";

/// Exit code of the program's own handler.
const OWN_HANDLER: i32 = 42;

/// Plays `part` in a child and returns how it ended.
fn play(part: &str) -> ExitStatus {
    let (_, module) = module_path!().split_once("::").expect("a module of a crate");
    Command::new(std::env::current_exe().expect("a test program"))
        .args(["--exact", &format!("{module}::the_child"), "--ignored", "--test-threads=1"])
        .env(PART, part)
        .env_remove(guard::VARIABLE)
        .output()
        .expect("the test program starts")
        .status
}

#[test]
#[ignore = "the other tests of this file start it: cargo test -p rdmalab-softnic --lib guard"]
fn the_child() {
    // SAFETY: asks for no core file.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &libc::rlimit { rlim_cur: 0, rlim_max: 0 }) };
    match std::env::var(PART).as_deref() {
        Ok("default") => with_default_handlers(),
        Ok("rust") => assert_guarded_then_crash(),
        Ok("own") => with_a_handler_of_the_program(),
        Ok("late") => with_a_handler_that_comes_late(),
        Ok("kill") => killed_from_outside(),
        Ok("in_front") => in_front_of_a_handler(),
        Ok("truncated") => with_a_truncated_file(),
        Ok("uninstalled") => uninstalled(),
        Ok("off") => without_a_guard(),
        Ok("unmapped") => with_unmapped_memory(),
        Ok("sandbox") => in_a_sandbox(),
        _ => {}
    }
}

fn set_handler(signal: i32, handler: usize) {
    // SAFETY: the handlers here call nothing but `_exit`.
    assert_ne!(unsafe { libc::signal(signal, handler) }, libc::SIG_ERR);
}

fn handler_of(signal: i32) -> usize {
    // SAFETY: zeroes are a valid action; the call only fills it.
    unsafe {
        let mut now = std::mem::zeroed::<libc::sigaction>();
        assert_eq!(libc::sigaction(signal, ptr::null(), &mut now), 0);
        now.sa_sigaction
    }
}

fn set_default_handlers() {
    set_handler(libc::SIGSEGV, libc::SIG_DFL);
    set_handler(libc::SIGBUS, libc::SIG_DFL);
}

extern "C" fn exit_as_own_handler(_: i32) {
    // SAFETY: ends the process at once.
    unsafe { libc::_exit(OWN_HANDLER) };
}

fn own_handler() -> usize {
    (exit_as_own_handler as extern "C" fn(i32)) as usize
}

/// Copies to, copies from and atomics on a page without access.
fn assert_faults_are_errors() {
    let (good, bad) = (Pages::new(1), Pages::new(1));
    bad.protect(0, libc::PROT_NONE);
    for len in [1, 8, 40, 500, 4000] {
        // SAFETY: mappings of the test, of which `bad` may fault.
        unsafe {
            let to = super::copy(bad.at(0), good.at(0), len);
            assert_eq!(to, Err(Fault { side: Side::Destination }));
            let from = super::copy(good.at(0), bad.at(0), len);
            assert_eq!(from, Err(Fault { side: Side::Source }));
            super::copy(good.at(0), good.at(2048), len.min(2048)).expect("it is mapped");
        }
    }
    // SAFETY: aligned, and may fault.
    unsafe {
        super::fetch_add(bad.at(8).cast(), 1).expect_err("no access");
        super::cmp_swap(bad.at(8).cast(), 0, 1).expect_err("no access");
    }
}

/// A write by the program itself to an unmapped address.
fn crash() -> ! {
    // SAFETY: none, on purpose: this is a bug of the program, which must crash as usual.
    unsafe { ptr::without_provenance_mut::<u8>(16).write_volatile(1) };
    // Reached only if a handler swallowed the signal.
    std::process::exit(77)
}

fn assert_guarded_then_crash() {
    assert_eq!(guard::install_if_default(|| {}), Ok(Mode::Signal));
    assert_faults_are_errors();
    assert_eq!(guard::recheck(), Some(Mode::Signal));
    crash();
}

fn with_default_handlers() {
    set_default_handlers();
    assert_guarded_then_crash();
}

fn with_a_handler_of_the_program() {
    set_default_handlers();
    set_handler(libc::SIGSEGV, own_handler());
    assert_eq!(guard::install(Policy::Auto), Mode::Syscall);
    assert_eq!(handler_of(libc::SIGSEGV), own_handler());
    assert_eq!(handler_of(libc::SIGBUS), libc::SIG_DFL);
    assert_faults_are_errors();
    crash();
}

fn with_a_handler_that_comes_late() {
    set_default_handlers();
    assert_eq!(guard::install(Policy::Auto), Mode::Signal);
    let ours = handler_of(libc::SIGBUS);
    set_handler(libc::SIGBUS, own_handler());
    assert_eq!(guard::recheck(), Some(Mode::Syscall));
    assert_eq!(handler_of(libc::SIGBUS), own_handler());
    assert_faults_are_errors();
    set_handler(libc::SIGBUS, libc::SIG_DFL);
    assert_eq!(guard::recheck(), Some(Mode::Signal));
    assert_eq!(handler_of(libc::SIGBUS), ours);
    assert_faults_are_errors();
    set_handler(libc::SIGSEGV, own_handler());
    assert_eq!(guard::recheck(), Some(Mode::Syscall));
    assert_faults_are_errors();
    crash();
}

fn killed_from_outside() {
    set_default_handlers();
    assert_eq!(guard::install(Policy::Auto), Mode::Signal);
    // SAFETY: sends a signal to this process.
    unsafe { libc::kill(libc::getpid(), libc::SIGSEGV) };
    std::thread::sleep(std::time::Duration::from_secs(20));
}

fn in_front_of_a_handler() {
    set_handler(libc::SIGSEGV, own_handler());
    set_handler(libc::SIGBUS, own_handler());
    assert_eq!(guard::install(Policy::Signal), Mode::Signal);
    assert_faults_are_errors();
    crash();
}

fn with_a_truncated_file() {
    set_default_handlers();
    assert_eq!(guard::install(Policy::Auto), Mode::Signal);
    // SAFETY: a new file, mapped at an address of the kernel's choice.
    let page = unsafe {
        let file = libc::memfd_create(c"truncated".as_ptr(), 0);
        assert_eq!(libc::ftruncate(file, PAGE as i64), 0);
        let access = libc::PROT_READ | libc::PROT_WRITE;
        let page = libc::mmap(ptr::null_mut(), PAGE, access, libc::MAP_SHARED, file, 0);
        assert_eq!(libc::ftruncate(file, 0), 0);
        page.cast::<u8>()
    };
    let here = Pages::new(1);
    // SAFETY: `here` is mapped, and `page` may fault.
    let done = unsafe { super::copy(page, here.at(0), 100) };
    assert_eq!(done, Err(Fault { side: Side::Destination }));
    // SAFETY: none, on purpose: the program's mistake.
    unsafe { page.write_volatile(1) };
}

fn uninstalled() {
    set_default_handlers();
    assert_eq!(guard::install(Policy::Auto), Mode::Signal);
    assert_ne!(handler_of(libc::SIGSEGV), libc::SIG_DFL);
    guard::uninstall();
    assert_eq!(handler_of(libc::SIGSEGV), libc::SIG_DFL);
    assert_eq!(handler_of(libc::SIGBUS), libc::SIG_DFL);
    assert_eq!(guard::recheck(), Some(Mode::Syscall));
    assert_eq!(handler_of(libc::SIGSEGV), libc::SIG_DFL);
    assert_faults_are_errors();
    std::process::exit(OWN_HANDLER);
}

fn without_a_guard() {
    set_default_handlers();
    assert_eq!(guard::install(Policy::Off), Mode::Off);
    assert_eq!(handler_of(libc::SIGSEGV), libc::SIG_DFL);
    let here = Pages::new(1);
    // SAFETY: none for the null page, on purpose.
    let _ = unsafe { super::copy(ptr::without_provenance_mut(16), here.at(0), 8) };
}

fn with_unmapped_memory() {
    for policy in [Policy::Auto, Policy::Syscall] {
        guard::install(policy);
        let here = Pages::new(4);
        let gone = Pages::new(4).at(0);
        // SAFETY: this process has one thread, which maps nothing there again; `here` is mapped.
        unsafe {
            let to = super::copy(gone, here.at(0), 3 * PAGE);
            assert_eq!(to, Err(Fault { side: Side::Destination }));
            let from = super::copy(here.at(0), gone, 3 * PAGE);
            assert_eq!(from, Err(Fault { side: Side::Source }));
        }
    }
    std::process::exit(OWN_HANDLER);
}

/// Makes `process_vm_*` fail with `EPERM`, as some sandboxes do.
fn in_a_sandbox() {
    let statement = |code: u32, jt, jf, k| libc::sock_filter { code: code as u16, jt, jf, k };
    let equal = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
    let give = libc::BPF_RET | libc::BPF_K;
    let refused = libc::SECCOMP_RET_ERRNO | libc::EPERM as u32;
    let mut filter = [
        // Offset 0 of `seccomp_data`: the number of the call.
        statement(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, 0),
        statement(equal, 1, 0, libc::SYS_process_vm_readv as u32),
        statement(equal, 0, 1, libc::SYS_process_vm_writev as u32),
        statement(give, 0, 0, refused),
        statement(give, 0, 0, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog { len: filter.len() as u16, filter: filter.as_mut_ptr() };
    // SAFETY: only takes rights from this thread; the filter lives through the call.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        let mode = libc::SECCOMP_MODE_FILTER;
        assert_eq!(libc::prctl(libc::PR_SET_SECCOMP, mode, &raw const program), 0);
    }
    assert_eq!(vm::probe(std::process::id().cast_signed()), Err(vm::VmError::Denied));
    assert_eq!(guard::install(Policy::Syscall), Mode::Syscall);
    assert_faults_are_errors();
    std::process::exit(OWN_HANDLER);
}

#[test]
fn a_crash_elsewhere_kills_as_without_us() {
    assert_eq!(play("default").signal(), Some(libc::SIGSEGV));
    assert_eq!(play("rust").signal(), Some(libc::SIGSEGV));
    assert_eq!(play("truncated").signal(), Some(libc::SIGBUS));
}

#[test]
fn a_signal_that_was_sent_kills_as_without_us() {
    assert_eq!(play("kill").signal(), Some(libc::SIGSEGV));
}

#[test]
fn handlers_of_the_program_stay_and_copies_still_do_not_crash() {
    assert_eq!(play("own").code(), Some(OWN_HANDLER));
    assert_eq!(play("late").code(), Some(OWN_HANDLER));
    assert_eq!(play("in_front").code(), Some(OWN_HANDLER));
}

#[test]
fn uninstall_leaves_what_was_there() {
    assert_eq!(play("uninstalled").code(), Some(OWN_HANDLER));
}

#[test]
fn off_means_off() {
    assert_eq!(play("off").signal(), Some(libc::SIGSEGV));
}

#[test]
fn unmapped_memory_is_an_error_in_each_mode() {
    assert_eq!(play("unmapped").code(), Some(OWN_HANDLER));
}

#[test]
fn a_sandbox_without_process_vm_gets_the_pipe() {
    assert_eq!(play("sandbox").code(), Some(OWN_HANDLER));
}

use super::Side;
use super::tests::{PAGE, Pages};
use super::vm::{self, VmError};

fn own() -> i32 {
    std::process::id().cast_signed()
}

fn segment(pages: &Pages, offset: usize, len: usize) -> libc::iovec {
    libc::iovec { iov_base: pages.at(offset).cast(), iov_len: len }
}

/// Bytes `offset..offset + len` of a mapping.
fn bytes(pages: &Pages, offset: usize, len: usize) -> Vec<u8> {
    // SAFETY: within the mapping, readable when tests read it.
    (offset..offset + len).map(|i| unsafe { pages.at(i).read_volatile() }).collect()
}

fn fill(pages: &Pages, len: usize) {
    for i in 0..len {
        // SAFETY: within the mapping, which is writable.
        unsafe { pages.at(i).write_volatile((i % 249) as u8 + 1) };
    }
}

#[test]
fn many_segments_are_gathered_and_scattered() {
    let (here, there, back) = (Pages::new(2), Pages::new(2), Pages::new(2));
    fill(&here, 4000);
    for count in [1, 2, 31, 32, 33, 40, 100] {
        // Some segments are empty, and the last ones are shorter than a tail.
        let lens: Vec<usize> =
            (0..count).map(|i| if i % 5 == 4 { 0 } else { 3 + i % 30 }).collect();
        let len = lens.iter().sum();
        let cut = |pages| {
            let mut at = 0;
            let segments = lens.iter().map(|l| {
                at += l;
                segment(pages, at - l, *l)
            });
            segments.collect::<Vec<_>>()
        };
        let remote = there.at(5).addr() as u64;
        // SAFETY: mappings of the test.
        unsafe {
            vm::vm_write(own(), &cut(&here), remote, len).expect("all is mapped");
            vm::vm_read(own(), &cut(&back), remote, len).expect("all is mapped");
        }
        assert_eq!(bytes(&there, 5, len), bytes(&here, 0, len), "{count} segments");
        assert_eq!(bytes(&back, 0, len), bytes(&here, 0, len), "{count} segments");
        assert_eq!(bytes(&there, 5 + len, 1), [0], "{count} segments");
        // SAFETY: mappings of the test.
        unsafe {
            std::ptr::write_bytes(there.at(0), 0, 2 * PAGE);
            std::ptr::write_bytes(back.at(0), 0, 2 * PAGE);
        }
    }
}

#[test]
fn segments_may_hold_more_than_asked() {
    let (here, there) = (Pages::new(1), Pages::new(1));
    fill(&here, 100);
    let local = [segment(&here, 0, 10), segment(&here, 10, 50), segment(&here, 60, 40)];
    // SAFETY: mappings of the test.
    unsafe { vm::vm_write(own(), &local, there.at(0).addr() as u64, 30) }.expect("mapped");
    assert_eq!(bytes(&there, 0, 30), bytes(&here, 0, 30));
    assert_eq!(bytes(&there, 30, 1), [0]);
}

#[test]
fn the_side_and_place_of_a_fault_are_named() {
    for (bad_is_here, cut) in [(true, 4), (true, 40), (false, 4), (false, 40), (false, 4096)] {
        let (here, there) = (Pages::new(3), Pages::new(3));
        let bad = if bad_is_here { &here } else { &there };
        bad.protect(1, libc::PROT_NONE);
        let offset = |pages: &Pages| if std::ptr::eq(pages, bad) { PAGE - cut } else { 0 };
        let len = cut + 50;
        let local = [segment(&here, offset(&here), len)];
        let remote = there.at(offset(&there)).addr() as u64;
        // SAFETY: mappings of the test, one of which may fault.
        let (write, read) = unsafe {
            (vm::vm_write(own(), &local, remote, len), vm::vm_read(own(), &local, remote, len))
        };
        for (result, here_is) in [(write, Side::Source), (read, Side::Destination)] {
            let Err(VmError::Fault { side, done }) = result else {
                panic!("{result:?}");
            };
            assert_eq!(side == here_is, bad_is_here, "{side:?}, {cut} B before");
            assert_ne!(side, Side::Unknown);
            assert!(done <= cut, "{done} of {cut}");
        }
    }
}

#[test]
fn a_dead_process_is_gone_and_a_child_can_be_reached() {
    assert_eq!(vm::probe(own()), Ok(()));
    let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep starts");
    let pid = child.id().cast_signed();
    assert_eq!(vm::probe(pid), Ok(()));
    child.kill().expect("it is ours");
    child.wait().expect("it is ours");
    assert_eq!(vm::probe(pid), Err(VmError::Gone));
    let here = Pages::new(1);
    // SAFETY: writes nothing: no process has this ID any more.
    let done = unsafe { vm::vm_write(pid, &[segment(&here, 0, 8)], 4096, 8) };
    assert_eq!(done, Err(VmError::Gone));
}

#[test]
fn nothing_to_copy_is_done_at_once() {
    // SAFETY: copies nothing.
    unsafe {
        assert_eq!(vm::vm_write(own(), &[], 0, 0), Ok(()));
        assert_eq!(vm::vm_read(own(), &[], 0, 0), Ok(()));
    }
}

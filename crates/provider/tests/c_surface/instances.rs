//! Backends as values: several in one process, and one without file descriptors.

use core::ptr::null_mut;
use std::sync::Arc;
use std::thread;

use rdmalab_abi::*;
use rdmalab_engine::backend::{Backend, Deadline, VerbsError};
use rdmalab_provider::Devices;
use rdmalab_provider::table::{instance_table, table};

use crate::events::exchange;
use crate::fixture::{Fixture, RC};
use crate::mock::Mock;

fn instance(name: &'static str, count: u32) -> Arc<Mock> {
    Arc::new(Mock { name, count, has_descriptors: false })
}

fn names(devices: &[core::ptr::NonNull<ibv_device>]) -> Vec<String> {
    let t = instance_table::<Mock>();
    let name = |device: &core::ptr::NonNull<ibv_device>| {
        // SAFETY: the device lives, and its name is a C string.
        unsafe { core::ffi::CStr::from_ptr((t.get_device_name)(device.as_ptr())) }
            .to_string_lossy()
            .into_owned()
    };
    devices.iter().map(name).collect()
}

#[test]
fn each_instance_has_devices_of_its_own() {
    let (left, right) = (instance("left", 1), instance("right", 3));
    let (of_left, of_right) = (Devices::new(left.clone()), Devices::new(right.clone()));
    assert_eq!(names(&of_left.list().unwrap()), ["left0"]);
    assert_eq!(names(&of_right.list().unwrap()), ["right0", "right1", "right2"]);
    assert_eq!(of_right.list(), of_right.list(), "a device keeps its address");
    // Opening a device opens it on the backend that lists it.
    let t = instance_table::<Mock>();
    let third = of_right.list().unwrap()[2];
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let context = (t.open_device)(third.as_ptr());
        assert!(!context.is_null());
        assert_eq!((t.close_device)(context), 0);
    }
    // The devices of the process are separate from these.
    let mut count = 0;
    // SAFETY: as above.
    unsafe {
        let t = table::<Mock>();
        let list = (t.get_device_list)(&raw mut count);
        assert_eq!(names(&[(*list).as_mut().unwrap().into()]), ["mock0"]);
        (t.free_device_list)(list);
    }
    assert_eq!(count, 2);
    drop((of_left, of_right));
    assert_eq!((Arc::strong_count(&left), Arc::strong_count(&right)), (1, 1), "nothing is kept");
}

#[test]
fn a_table_of_instances_lists_nothing_by_itself() {
    let (t, mut count) = (instance_table::<Mock>(), 7);
    // SAFETY: the calls are those of a correct C program.
    let list = unsafe { (t.get_device_list)(&raw mut count) };
    assert!(list.is_null());
    assert_eq!(count, 0);
    assert_eq!(std::io::Error::last_os_error().raw_os_error(), Some(libc::ENOSYS));
}

#[test]
fn events_are_waited_for_without_a_descriptor() {
    // Other tests open descriptors meanwhile, so this thread gets its own descriptor table.
    // SAFETY: unshare takes no pointer.
    assert_eq!(unsafe { libc::unshare(libc::CLONE_FILES) }, 0);
    let own = || std::fs::read_dir("/proc/thread-self/fd").unwrap().count();
    let before = own();
    let devices = Devices::new(instance("bare", 1));
    let t = instance_table::<Mock>();
    let device = devices.list().unwrap()[0];
    // SAFETY: the calls are those of a correct C program.
    let context = unsafe { (t.open_device)(device.as_ptr()) };
    let f = Fixture::on(t, context, RC);
    // SAFETY: the objects are alive.
    unsafe { assert_eq!(((*f.ctx).async_fd, (*f.channel).fd), (-1, -1)) };
    assert_eq!(own(), before, "no descriptor was made");
    let waiting = {
        let (channel, cq) = (f.channel as usize, f.cq as usize);
        let get = f.t.get_cq_event;
        // SAFETY: the CQ is alive.
        assert_eq!(unsafe { inline::ibv_req_notify_cq(f.cq, 0) }, 0);
        thread::spawn(move || {
            let (mut found, mut context) = (null_mut(), null_mut());
            // SAFETY: the fixture outlives this thread, which is joined below.
            let got = unsafe { get(channel as *mut _, &mut found, &mut context) };
            (got, found as usize == cq)
        })
    };
    exchange(&f, 0);
    assert_eq!(waiting.join().unwrap(), (0, true));
    // SAFETY: the CQ is alive, and one event was taken.
    unsafe { (f.t.ack_cq_events)(f.cq, 1) };
}

#[test]
fn a_wait_ends_at_its_deadline() {
    let context = instance("bare", 1).open(0).unwrap();
    let channel = Mock::create_channel(&context).unwrap();
    for until in [Deadline::Now, Deadline::At(0)] {
        let nothing = Mock::wait_channel(&channel, until).unwrap_err();
        assert_eq!(nothing.errno, VerbsError::EAGAIN);
        let nothing = Mock::wait_async_event(&context, until).unwrap_err();
        assert_eq!(nothing.errno, VerbsError::EAGAIN);
    }
}

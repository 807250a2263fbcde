//! Events, their acknowledgement, and the destruction of objects that have events.

use core::ffi::c_int;
use core::ptr::null_mut;
use std::sync::mpsc;
use std::time::Duration;

use rdmalab_abi::{inline::*, *};

use crate::fixture::{Fixture, RC, Wanted, errno, send, set_nonblocking};

/// Sends one byte from `a` to `b`; both complete.
pub fn exchange(f: &Fixture, flags: u32) {
    f.receive(f.b, 1, f.sge(100, 1));
    let mut sge = f.sge(0, 1);
    let mut wr = send(2, IBV_WR_SEND, &mut sge);
    wr.send_flags = flags;
    // SAFETY: the calls are those of a correct C program.
    unsafe { assert_eq!(ibv_post_send(f.a, &mut wr, &mut null_mut()), 0) };
}

#[test]
fn an_event_names_its_queue_once_for_each_arming() {
    let f = Fixture::new(RC);
    set_nonblocking(unsafe_fd(&f));
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let (mut cq, mut context) = (null_mut(), null_mut());
        let mut next = || (f.t.get_cq_event)(f.channel, &mut cq, &mut context);
        assert_eq!(next(), -1);
        assert_eq!(errno(), libc::EAGAIN);
        assert_eq!(ibv_req_notify_cq(f.cq, 1), 0);
        exchange(&f, 0);
        assert_eq!(next(), -1, "not solicited");
        exchange(&f, IBV_SEND_SOLICITED);
        assert_eq!(next(), 0);
        assert_eq!(next(), -1, "once");
        assert_eq!(ibv_req_notify_cq(f.cq, 0), 0);
        exchange(&f, 0);
        assert_eq!(next(), 0);
        assert_eq!((cq, context.addr()), (f.cq, 0xc0));
        (f.t.ack_cq_events)(f.cq, 2);
        assert_eq!((*f.cq).comp_events_completed, 2);
    }
}

/// The descriptor of the fixture's channel.
fn unsafe_fd(f: &Fixture) -> c_int {
    // SAFETY: the channel is alive.
    unsafe { (*f.channel).fd }
}

/// A pointer that other threads may use, as in C programs.
#[derive(Clone, Copy)]
struct Foreign<T>(*mut T);

// SAFETY: what it points to may be used from any thread, as libibverbs promises.
unsafe impl<T> Send for Foreign<T> {}

impl<T> Foreign<T> {
    fn get(self) -> *mut T {
        self.0
    }
}

/// Asserts that `destroy` blocks until `acknowledge` is called, and then returns 0.
fn waits_for(destroy: impl FnOnce() -> c_int + Send + 'static, acknowledge: impl FnOnce()) {
    let (tell, told) = mpsc::channel();
    let thread = std::thread::spawn(move || tell.send(destroy()).expect("somebody listens"));
    let early = told.recv_timeout(Duration::from_millis(50));
    assert_eq!(early, Err(mpsc::RecvTimeoutError::Timeout), "it did not wait");
    acknowledge();
    assert_eq!(told.recv(), Ok(0));
    thread.join().expect("it does not panic");
}

#[test]
fn destroying_a_queue_waits_for_its_events() {
    let f = Fixture::new(RC);
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let cq = (f.t.create_cq)(f.ctx, 4, null_mut(), f.channel, 0);
        let mut init = ibv_qp_init_attr::zeroed();
        (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, IBV_QPT_RC);
        (init.cap.max_recv_wr, init.cap.max_recv_sge) = (1, 1);
        let qp = (f.t.create_qp)(f.pd, &mut init);
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_INIT;
        assert_eq!((f.t.modify_qp)(qp, &mut attr, 1), 0);
        f.receive(qp, 1, f.sge(0, 1));
        assert_eq!(ibv_req_notify_cq(cq, 0), 0);
        attr.qp_state = IBV_QPS_ERR;
        assert_eq!((f.t.modify_qp)(qp, &mut attr, 1), 0);
        let (mut named, mut context) = (null_mut(), null_mut());
        assert_eq!((f.t.get_cq_event)(f.channel, &mut named, &mut context), 0);
        assert_eq!(named, cq);
        assert_eq!((f.t.destroy_qp)(qp), 0);
        let (destroy, foreign) = (f.t.destroy_cq, Foreign(cq));
        waits_for(move || destroy(foreign.get()), || (f.t.ack_cq_events)(cq, 1));
        assert_eq!((*f.channel).refcnt, 1);
    }
}

#[test]
fn an_event_of_a_queue_that_is_gone_is_none() {
    let f = Fixture::new(RC);
    set_nonblocking(unsafe_fd(&f));
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let cq = (f.t.create_cq)(f.ctx, 4, null_mut(), f.channel, 0);
        let mut init = ibv_qp_init_attr::zeroed();
        (init.send_cq, init.recv_cq, init.qp_type) = (cq, cq, IBV_QPT_RC);
        (init.cap.max_recv_wr, init.cap.max_recv_sge) = (1, 1);
        let qp = (f.t.create_qp)(f.pd, &mut init);
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_INIT;
        assert_eq!((f.t.modify_qp)(qp, &mut attr, 1), 0);
        f.receive(qp, 1, f.sge(0, 1));
        assert_eq!(ibv_req_notify_cq(cq, 0), 0);
        attr.qp_state = IBV_QPS_ERR;
        assert_eq!((f.t.modify_qp)(qp, &mut attr, 1), 0);
        // The mock keeps the event queued. Nobody took the event, so none must be acknowledged.
        assert_eq!((f.t.destroy_qp)(qp), 0);
        assert_eq!((f.t.destroy_cq)(cq), 0);
        assert_eq!(ibv_req_notify_cq(f.cq, 0), 0);
        exchange(&f, 0);
        let (mut named, mut context) = (null_mut(), null_mut());
        assert_eq!((f.t.get_cq_event)(f.channel, &mut named, &mut context), 0);
        assert_eq!(named, f.cq, "the one of the dead queue was skipped");
        (f.t.ack_cq_events)(f.cq, 1);
        assert_eq!((f.t.get_cq_event)(f.channel, &mut named, &mut context), -1);
    }
}

#[test]
fn asynchronous_events_name_their_objects() {
    let f = Fixture::new(Wanted { with_srq: true, ..RC });
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        set_nonblocking((*f.ctx).async_fd);
        let mut event = ibv_async_event::zeroed();
        assert_eq!((f.t.get_async_event)(f.ctx, &mut event), -1);
        assert_eq!(errno(), libc::EAGAIN);

        let mut attr = ibv_srq_attr::zeroed();
        attr.srq_limit = 1;
        assert_eq!((f.t.modify_srq)(f.srq, &mut attr, IBV_SRQ_LIMIT as c_int), 0);
        let mut sge = f.sge(100, 1);
        let mut receive = ibv_recv_wr::zeroed();
        (receive.sg_list, receive.num_sge) = (&mut sge, 1);
        assert_eq!(ibv_post_srq_recv(f.srq, &mut receive, &mut null_mut()), 0);
        let mut sge = f.sge(0, 1);
        let mut wr = send(2, IBV_WR_SEND, &mut sge);
        assert_eq!(ibv_post_send(f.a, &mut wr, &mut null_mut()), 0);
        assert_eq!((f.t.get_async_event)(f.ctx, &mut event), 0);
        assert_eq!(event.event_type, IBV_EVENT_SRQ_LIMIT_REACHED);
        assert_eq!(event.element.srq, f.srq);
        (f.t.ack_async_event)(&mut event);
        assert_eq!((*f.srq).events_completed, 1);

        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_ERR;
        assert_eq!((f.t.modify_qp)(f.b, &mut attr, 1), 0);
        assert_eq!((f.t.get_async_event)(f.ctx, &mut event), 0);
        assert_eq!(event.event_type, IBV_EVENT_QP_LAST_WQE_REACHED);
        assert_eq!(event.element.qp, f.b);
        (f.t.ack_async_event)(&mut event);
        assert_eq!((*f.b).events_completed, 1);
    }
}

#[test]
fn destroying_a_qp_waits_for_its_events() {
    let f = Fixture::new(Wanted { with_srq: true, ..RC });
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut init = ibv_qp_init_attr::zeroed();
        (init.send_cq, init.recv_cq, init.qp_type) = (f.cq, f.cq, IBV_QPT_RC);
        init.srq = f.srq;
        let qp = (f.t.create_qp)(f.pd, &mut init);
        let mut attr = ibv_qp_attr::zeroed();
        attr.qp_state = IBV_QPS_ERR;
        assert_eq!((f.t.modify_qp)(qp, &mut attr, 1), 0);
        let mut event = ibv_async_event::zeroed();
        assert_eq!((f.t.get_async_event)(f.ctx, &mut event), 0);
        assert_eq!(event.element.qp, qp);
        let (destroy, foreign) = (f.t.destroy_qp, Foreign(qp));
        waits_for(move || destroy(foreign.get()), || (f.t.ack_async_event)(&mut event));
    }
}

#[test]
fn an_overflow_is_an_event_and_an_error_of_the_poll() {
    let f = Fixture::new(Wanted { cqe: 1, ..RC });
    exchange(&f, IBV_SEND_SIGNALED);
    // SAFETY: the calls are those of a correct C program.
    unsafe {
        let mut event = ibv_async_event::zeroed();
        assert_eq!((f.t.get_async_event)(f.ctx, &mut event), 0);
        assert_eq!((event.event_type, event.element.cq), (IBV_EVENT_CQ_ERR, f.cq));
        (f.t.ack_async_event)(&mut event);
        assert_eq!((*f.cq).async_events_completed, 1);
        let mut wc = ibv_wc::zeroed();
        assert!(ibv_poll_cq(f.cq, 1, &mut wc) < 0);
        assert_eq!(errno(), libc::EIO);
    }
}

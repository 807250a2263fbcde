//! Sending: one request or one response.

use rdmalab_engine::qp::{CopyError, Plan, Qp, Response};
use rdmalab_engine::train::{Train, TrainFlags};
use rdmalab_engine::vocab::QpType;

use crate::memory::{Host, read_wqe};
use crate::path::Path;

/// The result of an attempt to send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// There is nothing to send now.
    Idle,
    /// The path is full, or a local operation waits for running copies: try again later.
    Blocked,
    /// One train was sent, or one local operation executed; more may follow.
    Done,
}

/// Sends the next request of `qp`, or executes it if it is local.
#[inline(always)]
pub fn send_request<H: Host>(qp: &mut Qp, path: &mut impl Path<H>, host: &mut H) -> Step {
    let Some(room) = path.request_room(qp) else { return Step::Blocked };
    let Some(room) = qp.room_with_pages(room, host) else { return Step::Idle };
    match qp.plan(room) {
        Plan::Idle => Step::Idle,
        Plan::Local { position } => {
            let Some(ok) = host.execute_local(qp, position) else { return Step::Blocked };
            qp.retire_local(position, ok, host);
            Step::Done
        }
        Plan::WrongLength { position } => {
            qp.retire_sent(position, true, Err(CopyError::Length), host);
            Step::Done
        }
        Plan::Send { mut train, position, offset } => {
            if qp.qp_type == QpType::Ud {
                path.address(&mut train, qp.sq.ud(position));
            }
            push_request(qp, path, host, &train, position, offset);
            Step::Done
        }
    }
}

#[inline(always)]
fn push_request<H: Host>(
    qp: &mut Qp,
    path: &mut impl Path<H>,
    host: &mut H,
    train: &Train,
    position: u32,
    offset: u32,
) {
    let is_inline = qp.sq.wqe(position).is_inline();
    let pushed = path.push(train, is_inline, |range, to| {
        read_wqe(qp, host, position, offset + range.start..offset + range.end, to)
    });
    let result = pushed.map_err(|unsent| unsent.error);
    qp.retire_sent(position, train.flags.has(TrainFlags::LAST), result, host);
}

/// Sends the next response of `qp`.
#[inline(always)]
pub fn send_response<H: Host>(qp: &mut Qp, path: &mut impl Path<H>, host: &mut H) -> Step {
    let Some(room) = path.response_room(qp) else { return Step::Blocked };
    let Some(response) = qp.next_response(room, host) else { return Step::Idle };
    let (train, pushed) = match response {
        Response::Train(train) => (train, path.push(&train, false, |_, _| Ok(()))),
        Response::Data { train, host_addr, entry } => {
            let pushed = path.push(&train, false, |range, mut to| match &entry {
                Some(region) => {
                    let addr = host_addr.wrapping_add(u64::from(range.start));
                    host.read(region, addr, range.end - range.start, &mut to)
                }
                // Without a region there is no byte to read.
                None => Ok(()),
            });
            (train, pushed)
        }
    };
    if let Err(unsent) = pushed {
        qp.fail_read(train.first_psn.add(unsent.packets), unsent.error, host);
    }
    Step::Done
}

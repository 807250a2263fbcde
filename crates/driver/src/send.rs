//! Sending: one request or one response.

use std::ops::Range;

use rdmalab_engine::mr::KeyEntry;
use rdmalab_engine::qp::{CopyError, Plan, Qp, Response};
use rdmalab_engine::train::{Train, TrainFlags};
use rdmalab_engine::vocab::QpType;

use crate::memory::{Host, Memory, read_wqe};
use crate::path::{Path, Unsent};

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

/// The request that a planned train belongs to.
#[derive(Clone, Copy, Debug)]
pub struct Request {
    /// Its position in the send queue.
    pub position: u32,
    /// The first byte of its payload that the train carries.
    pub offset: u32,
}

impl Request {
    /// Whether the train is not to be sent any more, nor its payload read: the request was
    /// completed or flushed since it was planned.
    pub fn is_void(self, qp: &Qp) -> bool {
        !qp.sq.is_in_flight(self.position)
    }

    /// Reads a range of the payload of the train.
    #[inline(always)]
    pub fn read<H: Host>(
        self,
        qp: &Qp,
        host: &H,
        range: Range<u32>,
        to: H::Destination<'_>,
    ) -> Result<(), CopyError> {
        let range = self.offset + range.start..self.offset + range.end;
        read_wqe(qp, host, self.position, range, to)
    }

    /// The train was sent, or its payload could not be read.
    #[inline(always)]
    pub fn retire<H: Host>(
        self,
        qp: &mut Qp,
        host: &mut H,
        train: &Train,
        sent: Result<(), CopyError>,
    ) {
        qp.retire_sent(self.position, train.flags.has(TrainFlags::LAST), sent, host);
    }
}

/// Plans the next request of `qp`, of at most `room` bytes, and passes it to `send`. What needs no
/// path is done instead: a local operation is executed, and a request of a wrong length fails.
#[inline(always)]
pub fn plan_request<H: Host, T>(
    qp: &mut Qp,
    host: &mut H,
    room: u32,
    send: impl FnOnce(&mut Qp, &mut H, Train, Request) -> T,
) -> Result<T, Step> {
    let Some(room) = qp.room_with_pages(room, host) else { return Err(Step::Idle) };
    match qp.plan(room) {
        Plan::Idle => Err(Step::Idle),
        Plan::Local { position } => {
            let Some(ok) = host.execute_local(qp, position) else { return Err(Step::Blocked) };
            qp.retire_local(position, ok, host);
            Err(Step::Done)
        }
        Plan::WrongLength { position } => {
            qp.retire_sent(position, true, Err(CopyError::Length), host);
            Err(Step::Done)
        }
        Plan::Send { train, position, offset } => {
            Ok(send(qp, host, train, Request { position, offset }))
        }
    }
}

/// Sends the next request of `qp`, or executes it if it is local.
#[inline(always)]
pub fn send_request<H: Host>(qp: &mut Qp, path: &mut impl Path<H>, host: &mut H) -> Step {
    let Some(room) = path.request_room(qp) else { return Step::Blocked };
    let planned = plan_request(qp, host, room, |qp, host, mut train, request| {
        if qp.qp_type == QpType::Ud {
            path.address(&mut train, qp.sq.ud(request.position));
        }
        let is_inline = qp.sq.wqe(request.position).is_inline();
        let pushed = path.push(&train, is_inline, |range, to| request.read(qp, host, range, to));
        request.retire(qp, host, &train, pushed.map_err(|unsent| unsent.error));
    });
    planned.err().unwrap_or(Step::Done)
}

/// Reads a range of the payload of a response, if it has any.
#[inline(always)]
pub fn read_response<M: Memory>(
    memory: &M,
    data: &Option<(u64, KeyEntry)>,
    range: Range<u32>,
    mut to: M::Destination<'_>,
) -> Result<(), CopyError> {
    let Some((host_addr, region)) = data else { return Ok(()) };
    let addr = host_addr.wrapping_add(u64::from(range.start));
    memory.read(region, addr, range.end - range.start, &mut to)
}

/// A response was sent, or its payload could not be read.
#[inline(always)]
pub fn retire_response<H: Host>(
    qp: &mut Qp,
    host: &mut H,
    train: &Train,
    sent: Result<(), Unsent>,
) {
    if let Err(unsent) = sent {
        qp.fail_read(train.first_psn.add(unsent.packets), unsent.error, host);
    }
}

/// Sends the next response of `qp`.
#[inline(always)]
pub fn send_response<H: Host>(qp: &mut Qp, path: &mut impl Path<H>, host: &mut H) -> Step {
    let Some(room) = path.response_room(qp) else { return Step::Blocked };
    let Some(Response { train, data }) = &qp.next_response(room, host) else { return Step::Idle };
    let sent = path.push(train, false, |range, to| read_response(host, data, range, to));
    retire_response(qp, host, train, sent);
    Step::Done
}

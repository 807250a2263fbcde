//! The active side's last step: the queue pair becomes ready, and an RTU confirms the connection.

use crate::cm_id::CmId;
use crate::errno::{CallResult, Errno, failed};
use crate::process::process;
use crate::qp;

use rdmalab_engine::cm::CmError;

/// The error number of a call that the state of a connection does not allow.
pub fn wrong_state(call: &str, error: CmError) -> Errno {
    let errno = match error {
        CmError::TooMany => libc::ENOMEM,
        CmError::UnknownId | CmError::WrongState(_) => libc::EINVAL,
    };
    failed(errno, call, || error.to_string())
}

/// Moves the queue pair of the id, if it has one, to RTS, and sends the RTU.
pub fn establish(own: &CmId) -> CallResult<()> {
    let made = qp::to_rtr(own, None).and_then(|()| qp::to_rts(own, None)).and_then(|()| {
        let mut cm = process()?.lock();
        let Some(comm) = cm.id(own.number)?.comm else { return Err(Errno(libc::EINVAL)) };
        let done = cm.manager.establish(comm);
        cm.process_outputs();
        done.map_err(|error| wrong_state("rdma_establish", error))
    });
    if made.is_err() {
        qp::to_error(own);
    }
    made
}

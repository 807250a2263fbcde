//! Posting of work requests, and the copy of inline payload into the queue.

use rdmalab_engine::backend::{PostError, SendWr};
use rdmalab_engine::vocab::{QpState, SendFlags};

use crate::copy;
use crate::qp::QpInner;

impl QpInner {
    /// Queues one send; `freed` is the position up to which slots are free.
    #[inline(always)]
    pub(crate) fn post_one(&mut self, wr: &SendWr<'_>, freed: u32) -> Result<(), PostError> {
        let position = self.qp.post_send(wr, freed)?;
        if wr.flags.contains(SendFlags::INLINE) {
            self.copy_inline(wr, position)?;
        }
        Ok(())
    }

    #[inline]
    fn copy_inline(&mut self, wr: &SendWr<'_>, position: u32) -> Result<(), PostError> {
        let mut to = self.qp.sq.inline_mut(position).as_mut_ptr();
        for sge in wr.sges {
            let from = sge.addr as *const u8;
            // SAFETY: the queue checked that it has room for the sum of the lengths; the copy
            // reports an unmapped source.
            if unsafe { copy::copy(to, from, sge.length as usize) }.is_err() {
                self.qp.sq.unpush();
                return Err(PostError::Fault);
            }
            // SAFETY: stays within the slot's inline bytes, or one past them.
            to = unsafe { to.add(sge.length as usize) };
        }
        Ok(())
    }

    /// Fetches the posted work requests, and sends or flushes them, depending on the QP's state.
    #[inline]
    pub(crate) fn start_sending(&mut self) {
        self.qp.fetch_sends();
        match self.qp.state {
            QpState::Rts | QpState::Sqd => match self.transmit_singles() {
                true => self.settle(),
                false if self.links.route.is_some() && self.delays_requests() => self.settle(),
                false => {
                    self.transmit();
                }
            },
            QpState::Err | QpState::Sqe => self.qp.flush_sends(&mut self.links),
            _ => {}
        }
    }

    /// After RESET: drops completions, peer and counters of the QP's earlier connection.
    pub(crate) fn forget_everything(&mut self) {
        let qp_num = self.qp.qpn.get();
        self.links.send_cq.purge(qp_num);
        self.links.recv_cq.purge(qp_num);
        self.links.object.sq_freed.store(0, std::sync::atomic::Ordering::Release);
        self.links.peer = None;
        self.links.mapped = None;
        self.links.pushed = 0;
        self.links.route = None;
        self.links.delayed_ack = Default::default();
        self.links.nagle = Default::default();
        self.links.congestion = Default::default();
    }
}

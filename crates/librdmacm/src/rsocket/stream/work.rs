//! The progress of a connection: completions, credits, and disconnecting.

use core::ffi::{c_int, c_void};
use std::ptr::null_mut;

use rdmalab_abi::*;

use super::{IS_RECEIVE, Stream, StreamState};
use crate::channel;
use crate::device::verbs;
use crate::errno::{CallResult, Errno};
use crate::events;
use crate::rsocket::iomaps;
use crate::rsocket::memory::{Sge, entry_bytes};
use crate::rsocket::protocol::{
    DISCONNECT, OP_CONTROL, OP_IOMAP, OP_SGL, OP_WRITE, SGE_BYTES, SHUTDOWN, message,
};

impl Stream {
    /// Announces credits and free receive buffer space to the peer, if enough is free.
    fn send_credits(&mut self) -> CallResult<()> {
        let half = self.sizes.receive_buffer / 2;
        let has_room = self.read_free >= half;
        let is_due = self.recv_seq.wrapping_sub(self.recv_seq_told) as i16 >= 0;
        if !self.is_connected() || !self.can_control() || !(has_room || is_due) {
            return Ok(());
        }
        self.controls_sent += 1;
        let credits = self.recv_seq.wrapping_add(self.sizes.receive_queue);
        self.recv_seq_told = self.recv_seq.wrapping_add(self.sizes.receive_queue / 2);
        let what = message(OP_SGL, u32::from(credits));
        if !has_room {
            return self.post_write(&mut [], (0, 0), what, false);
        }
        let (addr, key) = (self.receive_buffer.address(), self.receive_buffer.keys().1);
        let announced = Sge { addr: addr + u64::from(self.announce_at), key, length: half };
        let bytes = entry_bytes(announced, self.swaps);
        let mut piece =
            [ibv_sge { addr: bytes.as_ptr() as u64, length: SGE_BYTES as u32, lkey: 0 }];
        let at = self.remote_sgl.addr + u64::from(self.remote_sge) * SGE_BYTES as u64;
        self.post_write(&mut piece, (at, self.remote_sgl.key), what, true)?;
        self.read_free -= half;
        self.announce_at = (self.announce_at + half) % (half * 2).max(1);
        self.remote_sge = (self.remote_sge + 1) % self.remote_sgl.length.max(1);
        Ok(())
    }

    /// Tells the peer that no data follow, or that the connection ends.
    pub fn send_shutdown(&mut self, ends: bool) -> CallResult<()> {
        self.controls_sent += 1;
        let what = message(OP_CONTROL, if ends { DISCONNECT } else { SHUTDOWN });
        self.post_write(&mut [], (0, 0), what, false)
    }

    /// Handles all completions.
    pub fn work(&mut self) -> CallResult<()> {
        if !self.was_connected() {
            return Ok(());
        }
        let looked = self.look();
        if std::mem::take(&mut self.has_progress) {
            self.waiters.wake();
        }
        looked
    }

    fn look(&mut self) -> CallResult<()> {
        self.poll_cm_events();
        self.send_credits()?;
        let mut wcs = [ibv_wc::zeroed(); 16];
        loop {
            // SAFETY: the socket's queue, and room for 16 completions.
            let got = unsafe { inline::ibv_poll_cq(self.cq(), 16, wcs.as_mut_ptr()) };
            let Ok(got) = usize::try_from(got) else {
                self.fail(libc::EIO);
                return Err(Errno(libc::EIO));
            };
            self.has_progress |= got > 0;
            for wc in &wcs[..got] {
                self.complete(wc)?;
            }
            if got == 0 {
                break;
            }
        }
        self.send_credits()
    }

    fn complete(&mut self, wc: &ibv_wc) -> CallResult<()> {
        let is_receive = wc.wr_id & IS_RECEIVE != 0;
        if wc.status != IBV_WC_SUCCESS {
            // The end of the connection flushes the work requests, which is no error.
            if self.is_connected() {
                self.fail(libc::EIO);
            }
            return Ok(());
        }
        if is_receive {
            self.on_message(u32::from_be(wc.imm_data));
            if self.is_connected() {
                self.post_receive()?;
            }
            return Ok(());
        }
        let what = wc.wr_id as u32;
        let data = what & 0x1fff_ffff;
        match what >> 29 {
            OP_SGL => self.controls_max += 1,
            OP_CONTROL => {
                self.controls_max += 1;
                if data == DISCONNECT {
                    self.disconnected();
                }
            }
            OP_IOMAP => {
                self.requests_free += 1;
                self.send_free += iomaps::BYTES as u32;
            }
            _ => {
                self.requests_free += 1;
                self.send_free += data;
            }
        }
        Ok(())
    }

    fn on_message(&mut self, what: u32) {
        let data = what & 0x1fff_ffff;
        match what >> 29 {
            OP_SGL => self.send_seq_max = data as u16,
            OP_CONTROL if data == DISCONNECT => self.disconnected(),
            OP_CONTROL if data == SHUTDOWN => {
                if self.is_writable {
                    self.is_readable = false;
                } else {
                    self.disconnected();
                }
            }
            OP_CONTROL | OP_IOMAP | OP_WRITE => {}
            // The peer sent more messages than it has credits: the queue has no room for them.
            _ if self.messages.len() > usize::from(self.sizes.receive_queue) => {
                self.fail(libc::EPROTO);
            }
            _ => self.messages.push_back(data.min(self.sizes.receive_buffer)),
        }
    }

    fn disconnected(&mut self) {
        self.has_progress = true;
        self.state = StreamState::Disconnected;
        (self.is_readable, self.is_writable) = (false, false);
    }

    fn fail(&mut self, errno: c_int) {
        self.has_progress = true;
        self.state = StreamState::Broken;
        self.error = errno;
        (self.is_readable, self.is_writable) = (false, false);
    }

    /// Fetches the events of the id: a peer may be gone without a shutdown message.
    fn poll_cm_events(&mut self) {
        let mut event = null_mut();
        // SAFETY: the channel of the socket's own id, whose descriptor does not block.
        unsafe {
            let channel = (*self.id).channel;
            while events::rdma_get_cm_event(channel, &raw mut event) == 0 {
                let kind = (*event).event;
                channel::rdma_ack_cm_event(event);
                if kind == RDMA_CM_EVENT_DISCONNECTED && self.is_connected() {
                    self.disconnected();
                }
            }
        }
    }

    /// Arms the completion queue. `false` if it was not armed before: a completion may have come,
    /// and the caller must look again.
    pub fn arm(&mut self) -> bool {
        self.take_cq_events();
        if self.is_armed {
            return true;
        }
        self.is_armed = true;
        // SAFETY: the socket's queue.
        unsafe { inline::ibv_req_notify_cq(self.cq(), 0) };
        false
    }

    pub(super) fn take_cq_events(&mut self) {
        let Ok(verbs) = verbs() else { return };
        let (mut cq, mut context): (*mut ibv_cq, *mut c_void) = (null_mut(), null_mut());
        // SAFETY: the socket's channel, whose descriptor does not block.
        unsafe {
            while (verbs.get_cq_event)((*self.id).recv_cq_channel, &raw mut cq, &raw mut context)
                == 0
            {
                self.is_armed = false;
                (verbs.ack_cq_events)(cq, 1);
            }
        }
    }
}

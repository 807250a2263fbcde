//! What a connection does by itself: completions, credits, and the end.

use core::ffi::{c_int, c_void};
use std::ptr::null_mut;

use rdmalab_abi::*;

use super::{
    DISCONNECT, IS_RECEIVE, OP_CONTROL, OP_IOMAP, OP_LIST, OP_WRITE, SGE_BYTES, SHUTDOWN, Sge,
    State, Stream, entry_bytes, message,
};
use crate::channel;
use crate::debug::{CallResult, Errno};
use crate::device::verbs;

impl Stream {
    /// Tells the peer what is free again, if that is worth a message.
    fn tell_credits(&mut self) -> CallResult<()> {
        let half = self.sizes.receive_buffer / 2;
        let has_room = self.read_free >= half;
        let is_due = self.received.wrapping_sub(self.received_told) as i16 >= 0;
        if !self.is_connected() || !self.can_control() || !(has_room || is_due) {
            return Ok(());
        }
        self.controls_sent += 1;
        let credits = self.received.wrapping_add(self.sizes.receive_queue);
        self.received_told = self.received.wrapping_add(self.sizes.receive_queue / 2);
        let what = message(OP_LIST, u32::from(credits));
        if !has_room {
            return self.post_write(&mut [], (0, 0), what, false);
        }
        let (addr, key) = (self.receive_buffer.address(), self.receive_buffer.keys().1);
        let announced = Sge { addr: addr + u64::from(self.announce_at), key, length: half };
        let bytes = entry_bytes(announced, self.swaps);
        let mut piece =
            [ibv_sge { addr: bytes.as_ptr() as u64, length: SGE_BYTES as u32, lkey: 0 }];
        let at = self.peer_list.addr + u64::from(self.peer_entry) * SGE_BYTES as u64;
        self.post_write(&mut piece, (at, self.peer_list.key), what, true)?;
        self.read_free -= half;
        self.announce_at = (self.announce_at + half) % (half * 2).max(1);
        self.peer_entry = (self.peer_entry + 1) % self.peer_list.length.max(1);
        Ok(())
    }

    /// Tells the peer that nothing follows, or that the connection is over.
    pub fn say_goodbye(&mut self, ends: bool) -> CallResult<()> {
        self.controls_sent += 1;
        let what = message(OP_CONTROL, if ends { DISCONNECT } else { SHUTDOWN });
        self.post_write(&mut [], (0, 0), what, false)
    }

    /// Looks at the completions, and answers them.
    pub fn work(&mut self) -> CallResult<()> {
        if !self.was_connected() {
            return Ok(());
        }
        let looked = self.look();
        if std::mem::take(&mut self.is_news) {
            self.sleepers.wake();
        }
        looked
    }

    fn look(&mut self) -> CallResult<()> {
        self.hear_of_the_end();
        self.tell_credits()?;
        let mut wcs = [ibv_wc::zeroed(); 16];
        loop {
            // SAFETY: the socket's queue, and room for as many completions.
            let got = unsafe { inline::ibv_poll_cq(self.cq(), 16, wcs.as_mut_ptr()) };
            let Ok(got) = usize::try_from(got) else {
                self.break_off(libc::EIO);
                return Err(Errno(libc::EIO));
            };
            self.is_news |= got > 0;
            for wc in &wcs[..got] {
                self.complete(wc)?;
            }
            if got == 0 {
                break;
            }
        }
        self.tell_credits()
    }

    fn complete(&mut self, wc: &ibv_wc) -> CallResult<()> {
        let is_receive = wc.wr_id & IS_RECEIVE != 0;
        if wc.status != IBV_WC_SUCCESS {
            // What was posted is flushed when the connection ends: no news then.
            if self.is_connected() {
                self.break_off(libc::EIO);
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
            OP_LIST => self.controls_max += 1,
            OP_CONTROL => {
                self.controls_max += 1;
                if data == DISCONNECT {
                    self.end();
                }
            }
            OP_IOMAP => {
                self.requests_free += 1;
                self.send_free += crate::rsocket::iomap::BYTES as u32;
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
            OP_LIST => self.sent_max = data as u16,
            OP_CONTROL if data == DISCONNECT => self.end(),
            OP_CONTROL if data == SHUTDOWN => {
                if self.is_writable {
                    self.is_readable = false;
                } else {
                    self.end();
                }
            }
            OP_CONTROL | OP_IOMAP | OP_WRITE => {}
            // A peer that sends more than it may is cut off: there is no room to note it.
            _ if self.messages.len() > usize::from(self.sizes.receive_queue) => {
                self.break_off(libc::EPROTO);
            }
            _ => self.messages.push_back(data.min(self.sizes.receive_buffer)),
        }
    }

    fn end(&mut self) {
        self.is_news = true;
        self.state = State::Disconnected;
        (self.is_readable, self.is_writable) = (false, false);
    }

    fn break_off(&mut self, errno: c_int) {
        self.is_news = true;
        self.state = State::Broken;
        self.error = errno;
        (self.is_readable, self.is_writable) = (false, false);
    }

    /// The connection manager tells of a peer that is gone without a word.
    fn hear_of_the_end(&mut self) {
        let mut event = null_mut();
        // SAFETY: the channel of the socket's own id, whose descriptor does not block.
        unsafe {
            let channel = (*self.id).channel;
            while channel::rdma_get_cm_event(channel, &raw mut event) == 0 {
                let kind = (*event).event;
                channel::rdma_ack_cm_event(event);
                if kind == RDMA_CM_EVENT_DISCONNECTED && self.is_connected() {
                    self.end();
                }
            }
        }
    }

    /// Asks to be told of the next completion; `false` if that is new, and one may have come
    /// before.
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

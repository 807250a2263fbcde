//! A stream: the state of a socket, its buffers, and sending and receiving through them.

mod work;

use core::ffi::c_int;
use std::collections::VecDeque;
use std::ptr::null_mut;

use libc::iovec;
use rdmalab_abi::*;

use super::iomaps::{self, Iomaps};
use super::memory::{Buffer, Sge, gather};
use super::protocol::{OP_DATA, OP_WRITE, SGE_BYTES, SGL_ENTRIES, message};
use super::settings::{Options, Sizes};
use super::wakeup::Waiters;
use crate::cm_id::own;
use crate::device::verbs;
use crate::errno::{CallResult, Errno, last_errno, verb};
use crate::{id, qp};

/// Work requests that are reserved for control messages.
const CONTROLS: u32 = 4;
/// Free bytes of the send buffer below which nothing is sent.
const LOW_WATER: u32 = 2048;
/// Bytes of the longest message.
const MESSAGE_MAX: u32 = 65_536;

/// Marks the completion of a receive.
const IS_RECEIVE: u64 = 1 << 63;

/// The state of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StreamState {
    New,
    Bound,
    Listening,
    Resolving,
    Routing,
    Connecting,
    Accepting,
    Connected,
    /// This side or the peer ended the connection.
    Disconnected,
    /// The queue pair failed.
    Broken,
    /// Connecting failed, or the socket is closed.
    Failed,
}

/// The connection of a socket, in any state.
pub struct Stream {
    /// Null after the socket was closed. Threads inside a call may still hold the stream then.
    pub id: *mut rdma_cm_id,
    pub state: StreamState,
    pub error: c_int,
    pub sizes: Sizes,
    pub is_nonblocking: bool,
    pub is_readable: bool,
    pub is_writable: bool,
    /// Threads that sleep on the descriptors.
    pub waiters: Waiters,
    /// Something happened that other threads may wait for.
    has_progress: bool,
    /// The peer has the other byte order.
    pub swaps: bool,
    pub options: Options,
    pub iomaps: Iomaps,
    is_armed: bool,
    send_buffer: Buffer,
    receive_buffer: Buffer,
    /// The target SGL, which the peer writes, and behind it the table of the peer's mappings.
    target_buffer: Buffer,
    /// The entry of the target SGL that is in use.
    target_sge: u32,
    remote_sgl: Sge,
    /// The entry of the peer's target SGL that this side writes next.
    remote_sge: u32,
    controls_sent: u32,
    controls_max: u32,
    send_seq: u16,
    send_seq_max: u16,
    recv_seq: u16,
    recv_seq_told: u16,
    send_at: u32,
    send_free: u32,
    requests_free: u32,
    messages: VecDeque<u32>,
    read_at: u32,
    read_free: u32,
    announce_at: u32,
}

// SAFETY: the pointers are to verbs objects and buffers of this socket, used under its lock.
unsafe impl Send for Stream {}

impl Stream {
    /// A socket on an id that has its own channel. The channel's descriptor never blocks: threads
    /// wait by polling it, without the socket's lock.
    pub fn new(id: *mut rdma_cm_id, sizes: Sizes) -> Self {
        // SAFETY: the caller's id; otherwise it takes integers only.
        unsafe { libc::fcntl((*(*id).channel).fd, libc::F_SETFL, libc::O_NONBLOCK) };
        Self {
            id,
            state: StreamState::New,
            error: 0,
            sizes,
            is_nonblocking: false,
            is_readable: false,
            is_writable: false,
            waiters: Waiters::default(),
            has_progress: false,
            swaps: false,
            options: Options::default(),
            iomaps: Iomaps::default(),
            is_armed: false,
            send_buffer: Buffer::NONE,
            receive_buffer: Buffer::NONE,
            target_buffer: Buffer::NONE,
            target_sge: 0,
            remote_sgl: Sge::default(),
            remote_sge: 1,
            controls_sent: 0,
            controls_max: CONTROLS,
            send_seq: 0,
            send_seq_max: 0,
            recv_seq: 0,
            recv_seq_told: 0,
            send_at: 0,
            send_free: 0,
            requests_free: 0,
            messages: VecDeque::new(),
            read_at: 0,
            read_free: 0,
            announce_at: 0,
        }
    }

    /// Whether the socket is closed.
    pub fn is_closed(&self) -> bool {
        self.id.is_null()
    }

    /// The channel's descriptor, which is the number of the socket; -1 after the socket was closed.
    pub fn channel_fd(&self) -> c_int {
        if self.is_closed() {
            return -1;
        }
        // SAFETY: the socket's id, and the channel that belongs to it.
        unsafe { (*(*self.id).channel).fd }
    }

    /// Why connecting failed; `ECONNABORTED` if the program has read the reason by `SO_ERROR`.
    pub fn failure(&self) -> Errno {
        Errno(if self.error == 0 { libc::ECONNABORTED } else { self.error })
    }

    pub fn is_opening(&self) -> bool {
        use StreamState::{Accepting, Connecting, Resolving, Routing};
        matches!(self.state, Resolving | Routing | Connecting | Accepting)
    }

    pub fn is_connected(&self) -> bool {
        self.state == StreamState::Connected
    }

    pub fn was_connected(&self) -> bool {
        matches!(
            self.state,
            StreamState::Connected | StreamState::Disconnected | StreamState::Broken
        )
    }

    /// Whether the socket has its queue pair and buffers.
    pub fn has_buffers(&self) -> bool {
        !self.target_buffer.at.is_null()
    }

    pub fn has_data(&self) -> bool {
        !self.messages.is_empty()
    }

    /// The path MTU in bytes; 2048 before the route is known, as in rdma-core.
    pub fn path_mtu(&self) -> c_int {
        // SAFETY: the socket's id or null, and its path or null.
        let path = unsafe { self.id.as_ref().and_then(|id| id.route.path_rec.as_ref()) };
        path.map_or(2048, |path| 1 << (7 + path.mtu.min(5)))
    }

    fn cq(&self) -> *mut ibv_cq {
        // SAFETY: the socket's id.
        unsafe { (*self.id).recv_cq }
    }

    /// Creates the completion queue, one for both directions.
    pub fn make_queue(&mut self) -> CallResult<()> {
        let verbs = verbs()?;
        let depth = i32::from(self.sizes.send_queue) + i32::from(self.sizes.receive_queue);
        // SAFETY: the socket's id with its device; what is made is freed with the queue pair.
        unsafe {
            let own = own(self.id)?;
            let channel = (verbs.create_comp_channel)(own.verbs());
            if channel.is_null() {
                return Err(last_errno());
            }
            libc::fcntl((*channel).fd, libc::F_SETFL, libc::O_NONBLOCK);
            let cq = (verbs.create_cq)(own.verbs(), depth, self.id.cast(), channel, 0);
            if cq.is_null() {
                let error = last_errno();
                (verbs.destroy_comp_channel)(channel);
                return Err(error);
            }
            own.set_recv_cq_channel(channel);
            own.set_send_cq_channel(channel);
            own.set_recv_cq(cq);
            own.set_send_cq(cq);
        }
        Ok(())
    }

    /// Creates the buffers, and posts the receives.
    pub fn make_buffers(&mut self) -> CallResult<()> {
        // SAFETY: the socket's id, which has a queue pair.
        let pd = unsafe { (*self.id).pd };
        let local = IBV_ACCESS_LOCAL_WRITE;
        let remote = local | IBV_ACCESS_REMOTE_WRITE;
        let sizes = self.sizes;
        let list = SGL_ENTRIES as usize * SGE_BYTES + usize::from(sizes.iomaps) * iomaps::BYTES;
        self.send_buffer = Buffer::new(pd, sizes.send_buffer as usize, local)?;
        self.receive_buffer = Buffer::new(pd, sizes.receive_buffer as usize, remote)?;
        self.target_buffer = Buffer::new(pd, list, remote)?;
        self.send_free = sizes.send_buffer;
        self.requests_free = u32::from(sizes.send_queue).saturating_sub(CONTROLS);
        self.announce_at = sizes.receive_buffer / 2;
        self.read_free = sizes.receive_buffer / 2;
        self.recv_seq_told = sizes.receive_queue / 2;
        for _ in 0..sizes.receive_queue {
            self.post_receive()?;
        }
        Ok(())
    }

    /// The target SGL, into which the peer writes.
    pub fn target_sgl(&self) -> Sge {
        Sge {
            addr: self.target_buffer.address(),
            key: self.target_buffer.keys().1,
            length: SGL_ENTRIES,
        }
    }

    /// The half of the receive buffer that is announced first.
    pub fn first_half(&self) -> Sge {
        let length = self.sizes.receive_buffer / 2;
        Sge { addr: self.receive_buffer.address(), key: self.receive_buffer.keys().1, length }
    }

    /// The table of mappings that the peer announces, and how many fit.
    pub fn own_iomaps(&self) -> (*const u8, u16) {
        (self.target_buffer.at.wrapping_add(SGL_ENTRIES as usize * SGE_BYTES), self.sizes.iomaps)
    }

    /// Stores the peer's connection data.
    pub fn set_peer(&mut self, credits: u16, list: Sge, half: Sge, iomaps: u16) {
        self.send_seq_max = credits;
        self.remote_sgl = list;
        self.write_target_sge(0, half);
        let behind = list.addr + u64::from(list.length) * SGE_BYTES as u64;
        self.iomaps.set_peer(Sge { addr: behind, key: list.key, length: u32::from(iomaps) });
    }

    /// Marks the socket as connected.
    pub fn begin(&mut self) {
        self.state = StreamState::Connected;
        (self.is_readable, self.is_writable) = (true, true);
    }

    fn target_sge_at(&self, index: u32) -> *mut u8 {
        self.target_buffer.at.wrapping_add((index % SGL_ENTRIES) as usize * SGE_BYTES)
    }

    fn write_target_sge(&mut self, index: u32, sge: Sge) {
        let at = self.target_sge_at(index);
        // SAFETY: within the list, which has room for `SGL_ENTRIES` entries and is aligned for
        // them. The peer writes there too, so the accesses are volatile.
        unsafe {
            at.cast::<u64>().write_volatile(sge.addr);
            at.add(8).cast::<u32>().write_volatile(sge.key);
            at.add(12).cast::<u32>().write_volatile(sge.length);
        }
    }

    /// The part of the peer's receive buffer to write to next.
    fn peer_room(&self) -> Sge {
        if self.target_buffer.at.is_null() {
            return Sge::default();
        }
        let at = self.target_sge_at(self.target_sge);
        // SAFETY: as above.
        unsafe {
            Sge {
                addr: at.cast::<u64>().read_volatile(),
                key: at.add(8).cast::<u32>().read_volatile(),
                length: at.add(12).cast::<u32>().read_volatile(),
            }
        }
    }

    pub fn can_send(&self) -> bool {
        self.is_connected()
            && self.requests_free > 0
            && self.send_free >= LOW_WATER.min(self.sizes.send_buffer)
            && self.send_seq != self.send_seq_max
            && self.peer_room().length != 0
    }

    /// Whether a WRITE to mapped memory of the peer can be posted (`riowrite`).
    pub fn can_write(&self) -> bool {
        self.is_connected() && self.requests_free > 0 && self.send_free > 0
    }

    /// Counts a message that was posted.
    pub fn count_message(&mut self) {
        self.send_seq = self.send_seq.wrapping_add(1);
    }

    pub fn can_control(&self) -> bool {
        self.controls_sent != self.controls_max
    }

    pub fn all_sent(&self) -> bool {
        let free = u32::from(self.sizes.send_queue).saturating_sub(CONTROLS);
        self.requests_free == free && self.controls_max - self.controls_sent == CONTROLS
    }

    fn post_receive(&self) -> CallResult<()> {
        let mut wr = ibv_recv_wr::zeroed();
        wr.wr_id = IS_RECEIVE;
        let mut bad = null_mut();
        // SAFETY: the socket's queue pair, and a request that lives during the call.
        verb(unsafe { inline::ibv_post_recv((*self.id).qp, &raw mut wr, &raw mut bad) })
    }

    /// Posts a WRITE of up to two pieces; with immediate data unless it is `OP_WRITE`.
    pub fn post_write(
        &self,
        pieces: &mut [ibv_sge],
        to: (u64, u32),
        what: u32,
        is_inline: bool,
    ) -> CallResult<()> {
        let mut wr = ibv_send_wr::zeroed();
        wr.wr_id = u64::from(what);
        wr.sg_list = if pieces.is_empty() { null_mut() } else { pieces.as_mut_ptr() };
        wr.num_sge = pieces.len() as c_int;
        wr.send_flags = if is_inline { IBV_SEND_INLINE } else { 0 };
        if what >> 29 == OP_WRITE {
            wr.opcode = IBV_WR_RDMA_WRITE;
        } else {
            wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
            wr.imm_data = what.to_be();
        }
        wr.wr.rdma = ibv_send_wr_rdma { remote_addr: to.0, rkey: to.1 };
        let mut bad = null_mut();
        // SAFETY: the socket's queue pair, and a request that lives during the call.
        verb(unsafe { inline::ibv_post_send((*self.id).qp, &raw mut wr, &raw mut bad) })
    }

    /// Copies bytes into the send buffer; returns the pieces that hold them, and how many pieces.
    pub fn stage(&mut self, from: &[iovec], skip: usize, bytes: u32) -> ([ibv_sge; 2], usize) {
        let size = self.sizes.send_buffer;
        let first = bytes.min(size - self.send_at);
        let lkey = self.send_buffer.keys().0;
        let piece = |at: u32, length: u32| ibv_sge {
            addr: self.send_buffer.address() + u64::from(at),
            length,
            lkey,
        };
        let pieces = [piece(self.send_at, first), piece(0, bytes - first)];
        let mut at = self.send_at as usize;
        gather(from, skip, bytes as usize, |source, length| {
            let room = (size as usize - at).min(length);
            // SAFETY: within the send buffer, in which `bytes` are free, as the caller has checked;
            // the source is the program's.
            unsafe {
                self.send_buffer.at.add(at).copy_from_nonoverlapping(source, room);
                self.send_buffer.at.copy_from_nonoverlapping(source.add(room), length - room);
            }
            at = (at + length) % size as usize;
        });
        self.send_at = (self.send_at + bytes) % size;
        (pieces, if first < bytes { 2 } else { 1 })
    }

    /// Subtracts a posted WRITE from the free work requests and the free bytes of the send buffer.
    pub fn spend(&mut self, bytes: u32) {
        self.requests_free -= 1;
        self.send_free -= bytes;
    }

    /// How many bytes one WRITE may have now.
    pub fn message_max(&self) -> u32 {
        MESSAGE_MAX.min(self.send_free)
    }

    /// Sends as much as fits into one message; returns how much. The caller has checked `can_send`.
    pub fn put(&mut self, from: &[iovec], skip: usize, left: usize) -> CallResult<usize> {
        let room = self.peer_room();
        let wanted = u32::try_from(left).unwrap_or(u32::MAX);
        let bytes = wanted.min(self.message_max()).min(room.length);
        let (mut pieces, count) = self.stage(from, skip, bytes);
        let is_inline = bytes <= self.sizes.inline;
        let to = (room.addr, room.key);
        let rest =
            Sge { addr: room.addr + u64::from(bytes), key: room.key, length: room.length - bytes };
        // Before the message is posted: as soon as the peer has it, it may announce new room in the
        // same entry, which must not be overwritten.
        self.write_target_sge(self.target_sge, rest);
        let what = message(OP_DATA, bytes);
        if let Err(error) = self.post_write(&mut pieces[..count], to, what, is_inline) {
            self.write_target_sge(self.target_sge, room);
            return Err(error);
        }
        self.spend(bytes);
        self.send_seq = self.send_seq.wrapping_add(1);
        if rest.length == 0 {
            self.target_sge = (self.target_sge + 1) % SGL_ENTRIES;
        }
        Ok(bytes as usize)
    }

    /// Copies received bytes into `to`, behind its first `skip` bytes, until `to` is full or no
    /// bytes are left. Returns how many. Removes them from the receive buffer, unless `is_peek`.
    pub fn take(&mut self, to: &[iovec], skip: usize, is_peek: bool) -> usize {
        let wanted: usize = to.iter().map(|piece| piece.iov_len).sum();
        let (mut got, mut at, mut index) = (0, self.read_at, 0);
        while skip + got < wanted {
            let Some(&there) = self.messages.get(index) else { break };
            let bytes = there.min((wanted - skip - got) as u32);
            let mut from = at;
            let size = self.sizes.receive_buffer;
            gather(to, skip + got, bytes as usize, |target, length| {
                let first = length.min((size - from) as usize);
                // SAFETY: within the receive buffer; the target is the program's, and the caller
                // of the exported function made it writable.
                unsafe {
                    let source = self.receive_buffer.at;
                    target.cast_mut().copy_from_nonoverlapping(source.add(from as usize), first);
                    target.cast_mut().add(first).copy_from_nonoverlapping(source, length - first);
                }
                from = (from + length as u32) % size;
            });
            at = from;
            got += bytes as usize;
            if is_peek {
                index += 1;
                continue;
            }
            self.read_free += bytes;
            self.read_at = at;
            if bytes == there {
                self.messages.pop_front();
                self.recv_seq = self.recv_seq.wrapping_add(1);
            } else if let Some(front) = self.messages.front_mut() {
                *front -= bytes;
            }
        }
        got
    }

    /// The descriptors that become readable when the stream has work to do.
    pub fn descriptors(&self) -> Vec<c_int> {
        if self.is_closed() {
            return Vec::new();
        }
        let mut descriptors = vec![self.channel_fd()];
        // SAFETY: the socket's id, and its channel or null.
        if let Some(channel) = unsafe { (*self.id).recv_cq_channel.as_ref() } {
            descriptors.push(channel.fd);
        }
        descriptors
    }

    /// Frees everything. Threads that still wait find the socket closed.
    pub fn free(&mut self) {
        if self.is_closed() {
            return;
        }
        self.iomaps.free();
        // SAFETY: the socket's id with what was made on it, freed once.
        unsafe {
            if !(*self.id).qp.is_null() {
                let _already_over = crate::connect::drop_connection(self.id);
                self.take_cq_events();
                qp::rdma_destroy_qp(self.id);
            }
            self.send_buffer.free();
            self.receive_buffer.free();
            self.target_buffer.free();
            id::rdma_destroy_id(self.id);
        }
        self.id = null_mut();
        (self.state, self.error) = (StreamState::Failed, libc::EBADF);
        (self.is_readable, self.is_writable) = (false, false);
        self.messages.clear();
        self.waiters.wake();
    }
}

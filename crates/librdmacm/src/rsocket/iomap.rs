//! `riomap` and its relatives: memory that the peer writes by offset, outside of the stream.

use core::ffi::{c_int, c_void};
use std::sync::MutexGuard;

use libc::{iovec, off_t};
use rdmalab_abi::*;

use super::iomaps::{BYTES, Mapping, entry};
use super::protocol::{OP_IOMAP, OP_WRITE, message};
use super::socket::{Socket, count as byte_count, get};
use super::stream::Stream;
use crate::device::verbs;
use crate::errno::{CallResult, Errno, answer, failed, last_errno};

/// Maps memory for the peer; returns its offset, or -1 and `errno`.
pub unsafe fn riomap(
    socket: c_int,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    offset: off_t,
) -> off_t {
    match get(socket).and_then(|socket| map(&mut socket.lock(), buf, len, prot, flags, offset)) {
        Ok(offset) => offset,
        Err(error) => answer(Err(error)).into(),
    }
}

fn map(
    stream: &mut Stream,
    buf: *mut c_void,
    len: usize,
    prot: c_int,
    flags: c_int,
    offset: off_t,
) -> CallResult<off_t> {
    if flags != 0 || prot & !(libc::PROT_WRITE | libc::PROT_NONE) != 0 || !stream.has_buffers() {
        return Err(failed(libc::EINVAL, "riomap", || {
            "the socket must be connected or connecting, the protection PROT_WRITE or PROT_NONE, \
             flags 0"
                .to_owned()
        }));
    }
    let is_remote = prot & libc::PROT_WRITE != 0;
    let offset = if offset == -1 { buf as off_t } else { offset };
    let same = |mapping: &&mut Mapping| {
        // SAFETY: registered by this function, and not deregistered yet.
        let mr = unsafe { &*mapping.mr };
        mr.addr == buf && mr.length == len && mapping.offset == offset as u64
    };
    if let Some(mapping) = stream.iomaps.own.iter_mut().find(same) {
        mapping.uses += 1;
        return Ok(offset);
    }
    let index = if is_remote { stream.iomaps.free_index() } else { None };
    if is_remote && index.is_none() {
        return Err(failed(libc::ENOMEM, "riomap", || {
            format!(
                "the peer keeps {} mappings: let it set RDMA_IOMAPSIZE",
                stream.iomaps.at_peer.length
            )
        }));
    }
    let access = IBV_ACCESS_LOCAL_WRITE | if is_remote { IBV_ACCESS_REMOTE_WRITE } else { 0 };
    // SAFETY: the socket's id with its domain, and the program's memory.
    let mr = unsafe { (verbs()?.reg_mr)((*stream.id).pd, buf, len, access as c_int) };
    if mr.is_null() {
        return Err(last_errno());
    }
    let is_announced = !is_remote;
    stream.iomaps.own.push(Mapping { offset: offset as u64, mr, index, is_announced, uses: 1 });
    Ok(offset)
}

/// Removes a mapping; returns 0, or -1 and `errno`.
pub unsafe fn riounmap(socket: c_int, buf: *mut c_void, len: usize) -> c_int {
    answer(get(socket).and_then(|socket| {
        let mut stream = socket.lock();
        let own = &mut stream.iomaps.own;
        let same = |mapping: &Mapping| {
            // SAFETY: registered by `map`, and not deregistered yet.
            let mr = unsafe { &*mapping.mr };
            mr.addr == buf && mr.length == len
        };
        let at = own.iter().position(same).ok_or(Errno(libc::EINVAL))?;
        own[at].uses -= 1;
        if own[at].uses == 0 {
            let mapping = own.remove(at);
            // SAFETY: registered by `map`, deregistered once.
            unsafe { (verbs()?.dereg_mr)(mapping.mr) };
        }
        Ok(())
    }))
}

/// Announces the mappings that the peer does not know yet.
pub fn announce<'a>(
    socket: &'a Socket,
    mut stream: MutexGuard<'a, Stream>,
    nonblocking: bool,
) -> CallResult<MutexGuard<'a, Stream>> {
    while let Some(at) = stream.iomaps.own.iter().position(|mapping| !mapping.is_announced) {
        let ready = |stream: &Stream| stream.can_send() || !stream.is_writable;
        let (after, waited) = socket.wait_until(stream, nonblocking, ready);
        stream = after;
        waited?;
        if !stream.is_writable {
            return Err(Errno(libc::ECONNRESET));
        }
        let Some(mapping) = stream.iomaps.own.get_mut(at) else { break };
        mapping.is_announced = true;
        let (offset, index) = (mapping.offset, mapping.index.unwrap_or(0));
        // SAFETY: registered by `map`, and not deregistered yet.
        let mr = unsafe { *mapping.mr };
        let bytes = entry(offset, mr.addr as u64, mr.rkey, mr.length as u32, stream.swaps);
        let from = [iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: BYTES }];
        let (mut pieces, count) = stream.stage(&from, 0, BYTES as u32);
        let there = stream.iomaps.at_peer;
        let to = (there.addr + u64::from(index) * BYTES as u64, there.key);
        stream.post_write(&mut pieces[..count], to, message(OP_IOMAP, index), false)?;
        stream.spend(BYTES as u32);
        stream.count_message();
    }
    Ok(stream)
}

/// Writes to memory that the peer has mapped; returns the number of bytes, or -1 and `errno`.
pub unsafe fn riowrite(
    socket: c_int,
    buf: *const c_void,
    count: usize,
    offset: off_t,
    flags: c_int,
) -> usize {
    let written = get(socket).and_then(|socket| write(&socket, buf, count, offset, flags));
    byte_count(written) as usize
}

fn write(
    socket: &Socket,
    buf: *const c_void,
    count: usize,
    offset: off_t,
    flags: c_int,
) -> CallResult<usize> {
    let mut stream = socket.lock();
    if !stream.was_connected() {
        return Err(Errno(libc::ENOTCONN));
    }
    let nonblocking = stream.is_nonblocking || flags & libc::MSG_DONTWAIT != 0;
    stream = announce(socket, stream, nonblocking)?;
    let from = [iovec { iov_base: buf.cast_mut(), iov_len: count }];
    let mut done = 0;
    while done < count {
        let ready = |stream: &Stream| stream.can_write() || !stream.is_writable;
        let (after, waited) = socket.wait_until(stream, nonblocking, ready);
        stream = after;
        match waited {
            Ok(()) if stream.is_writable => {}
            _ if done > 0 => break,
            Ok(()) => return Err(Errno(libc::ECONNRESET)),
            Err(error) => return Err(error),
        }
        let at = offset as u64 + done as u64;
        let Some((to, key, room)) = mapped(&stream, at) else {
            return if done > 0 { Ok(done) } else { Err(Errno(libc::EINVAL)) };
        };
        let left = u32::try_from(count - done).unwrap_or(u32::MAX);
        let bytes = left.min(room).min(stream.message_max());
        let (mut pieces, number) = stream.stage(&from, done, bytes);
        stream.post_write(&mut pieces[..number], (to, key), message(OP_WRITE, bytes), false)?;
        stream.spend(bytes);
        done += bytes as usize;
    }
    Ok(done)
}

/// The peer's address and key for an offset, and the bytes from there to the end of the mapping.
fn mapped(stream: &Stream, offset: u64) -> Option<(u64, u32, u32)> {
    let (at, number) = stream.own_iomaps();
    for index in 0..usize::from(number) {
        let at = at.wrapping_add(index * BYTES);
        // SAFETY: within the target buffer, and aligned. The peer writes there, so the reads are
        // volatile.
        let (start, addr, key, length) = unsafe {
            (
                at.cast::<u64>().read_volatile(),
                at.add(8).cast::<u64>().read_volatile(),
                at.add(16).cast::<u32>().read_volatile(),
                at.add(20).cast::<u32>().read_volatile(),
            )
        };
        let inside = offset.wrapping_sub(start);
        if offset >= start && inside < u64::from(length) {
            return Some((addr.wrapping_add(inside), key, length - inside as u32));
        }
    }
    None
}

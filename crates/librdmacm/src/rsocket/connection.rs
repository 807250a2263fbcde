//! Connecting sockets. Both ends send the addresses of their buffers as private data.

use rdmalab_abi::*;

use super::memory::Sge;
use super::protocol::VERSION;
use super::stream::{Stream, StreamState};
use crate::blocking::wait_for_event;
use crate::connect;
use crate::errno::{CallResult, Errno};
use crate::{qp, resolve};

/// Time-out of `rdma_resolve_addr`, ms. The kernel sends three neighbour solicitations, one a
/// second.
const RESOLVE_MS: core::ffi::c_int = 4000;
/// Bytes of the connection data, which is the private data (`struct rs_conn_data`).
const CONN_DATA_BYTES: usize = 40;
/// The sender is big-endian.
const FLAG_BIG_ENDIAN: u8 = 1;
/// The sender supports mappings (`riomap`).
const FLAG_IOMAP: u8 = 2;

/// Encodes a number of mappings in 8 bits; numbers above 128 go in steps of 256.
fn to_scale(value: u16) -> u8 {
    if value <= 128 { value as u8 } else { 128 | (value >> 8) as u8 }
}

fn from_scale(value: u8) -> u16 {
    if value <= 128 { u16::from(value) } else { u16::from(value & 127) << 8 }
}

/// The connection data of this end: version, flags, credits, mappings, target SGL, buffer.
fn conn_data(stream: &Stream) -> [u8; CONN_DATA_BYTES] {
    let mut bytes = [0; CONN_DATA_BYTES];
    bytes[0] = VERSION;
    bytes[1] = FLAG_IOMAP | if cfg!(target_endian = "big") { FLAG_BIG_ENDIAN } else { 0 };
    bytes[2..4].copy_from_slice(&stream.sizes.receive_queue.to_be_bytes());
    bytes[7] = to_scale(stream.sizes.iomaps);
    for (at, sge) in [(8, stream.target_sgl()), (24, stream.first_half())] {
        bytes[at..at + 8].copy_from_slice(&sge.addr.to_be_bytes());
        bytes[at + 8..at + 12].copy_from_slice(&sge.key.to_be_bytes());
        bytes[at + 12..at + 16].copy_from_slice(&sge.length.to_be_bytes());
    }
    bytes
}

/// Reads the peer's connection data from the event that the id keeps.
fn read_conn_data(stream: &mut Stream) -> CallResult<()> {
    // SAFETY: the socket's id; its last event is kept until the next call, with its private data.
    let bytes = unsafe {
        let event = (*stream.id).event;
        if event.is_null() {
            return Err(Errno(libc::EINVAL));
        }
        let conn = (*event).param.conn;
        if conn.private_data.is_null() || usize::from(conn.private_data_len) < CONN_DATA_BYTES {
            return Err(Errno(libc::ENOTSUP));
        }
        conn.private_data.cast::<[u8; CONN_DATA_BYTES]>().read_unaligned()
    };
    if bytes[0] != VERSION {
        return Err(Errno(libc::ENOTSUP));
    }
    let sge = |at: usize| {
        let word = |at: usize| {
            u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
        };
        let addr = u64::from(word(at)) << 32 | u64::from(word(at + 4));
        Sge { addr, key: word(at + 8), length: word(at + 12) }
    };
    let is_big = bytes[1] & FLAG_BIG_ENDIAN != 0;
    stream.swaps = is_big != cfg!(target_endian = "big");
    let iomaps = if bytes[1] & FLAG_IOMAP != 0 { from_scale(bytes[7]) } else { 0 };
    let credits = u16::from_be_bytes([bytes[2], bytes[3]]);
    stream.set_peer(credits, sge(8), sge(24), iomaps);
    Ok(())
}

/// Starts or continues connecting, without blocking.
pub fn connect(stream: &mut Stream) -> CallResult<()> {
    match stream.state {
        StreamState::New | StreamState::Bound => {
            stream.state = StreamState::Resolving;
            // SAFETY: the socket's id, which holds the address.
            let begun = unsafe {
                let to = &raw const (*stream.id).route.addr.dst_storage;
                resolve::resolve_addr(stream.id, std::ptr::null(), to.cast(), RESOLVE_MS)
            };
            continue_from(stream, begun)
        }
        StreamState::Resolving
        | StreamState::Routing
        | StreamState::Connecting
        | StreamState::Accepting => advance(stream),
        StreamState::Failed => Err(stream.failure()),
        _ => Err(Errno(libc::EISCONN)),
    }
}

/// Continues with the event of the last step; `EINPROGRESS` if the event has not come yet.
pub fn advance(stream: &mut Stream) -> CallResult<()> {
    // SAFETY: the socket's id.
    let came = unsafe { wait_for_event(stream.id) };
    continue_from(stream, came)
}

/// Continues from the result of a step, until a step waits or fails.
fn continue_from(stream: &mut Stream, mut step: CallResult<()>) -> CallResult<()> {
    loop {
        match step {
            Err(Errno(libc::EAGAIN)) => return Err(Errno(libc::EINPROGRESS)),
            Err(Errno(errno)) => {
                stream.state = StreamState::Failed;
                stream.error = errno;
                return Err(Errno(errno));
            }
            Ok(()) => {}
        }
        step = match stream.state {
            StreamState::Resolving => {
                stream.state = StreamState::Routing;
                // SAFETY: the socket's id.
                unsafe { resolve::resolve_route(stream.id) }
            }
            StreamState::Routing => {
                stream.state = StreamState::Connecting;
                send_request(stream)
            }
            StreamState::Connecting => match read_conn_data(stream) {
                Ok(()) => {
                    stream.begin();
                    return Ok(());
                }
                failed => failed,
            },
            StreamState::Accepting => {
                stream.begin();
                return Ok(());
            }
            _ => return Ok(()),
        };
    }
}

fn send_request(stream: &mut Stream) -> CallResult<()> {
    make_endpoint(stream)?;
    let conn_data = conn_data(stream);
    let mut param = rdma_conn_param::zeroed();
    param.private_data = conn_data.as_ptr().cast();
    param.private_data_len = CONN_DATA_BYTES as u8;
    param.flow_control = 1;
    param.retry_count = 7;
    param.rnr_retry_count = 7;
    // SAFETY: the socket's id, and parameters that live during the call.
    unsafe { connect::connect(stream.id, &raw const param) }
}

/// Accepts a connection request whose id was just fetched. Frees the stream on failure.
pub fn accept_request(stream: &mut Stream) -> CallResult<()> {
    let accepted = make_endpoint(stream).and_then(|()| read_conn_data(stream)).and_then(|()| {
        let conn_data = conn_data(stream);
        // SAFETY: the socket's id; the event of the request is kept, with its parameters.
        let mut param = unsafe { (*(*stream.id).event).param.conn };
        param.private_data = conn_data.as_ptr().cast();
        param.private_data_len = CONN_DATA_BYTES as u8;
        stream.state = StreamState::Accepting;
        // SAFETY: as above, and parameters that live during the call.
        unsafe { connect::accept(stream.id, &raw const param) }
    });
    match accepted {
        Ok(()) => stream.begin(),
        // Do not wait: the connecting socket may belong to this thread. A later call continues.
        Err(Errno(libc::EAGAIN)) => {}
        Err(error) => {
            stream.free();
            return Err(error);
        }
    }
    Ok(())
}

/// Creates the queue pair and the buffers, and posts the receives.
fn make_endpoint(stream: &mut Stream) -> CallResult<()> {
    stream.make_queue()?;
    let mut attr = ibv_qp_init_attr::zeroed();
    // SAFETY: the socket's id.
    unsafe {
        (attr.send_cq, attr.recv_cq) = ((*stream.id).send_cq, (*stream.id).recv_cq);
    }
    attr.qp_type = IBV_QPT_RC;
    attr.sq_sig_all = 1;
    attr.cap.max_send_wr = u32::from(stream.sizes.send_queue);
    attr.cap.max_recv_wr = u32::from(stream.sizes.receive_queue);
    attr.cap.max_send_sge = 2;
    attr.cap.max_recv_sge = 1;
    attr.cap.max_inline_data = stream.sizes.inline;
    // SAFETY: the socket's id, and attributes that live during the call.
    unsafe { qp::create_qp(stream.id, std::ptr::null_mut(), &raw mut attr)? };
    stream.sizes.inline = attr.cap.max_inline_data;
    stream.make_buffers()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mappings_are_counted_in_steps() {
        for (value, carried) in [(0, 0), (1, 1), (128, 128), (256, 256), (300, 256), (4096, 4096)] {
            assert_eq!(from_scale(to_scale(value)), carried, "{value}");
        }
    }
}

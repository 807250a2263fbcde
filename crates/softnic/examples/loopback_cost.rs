//! The software cost of one message without communication between processors: one thread, two queue
//! pairs of this process. Prints ns per message for the whole path (post, ring, responder,
//! completion, acknowledgement, repost) and for the posting alone.
//!
//! `cargo run --release -p rdmalab-softnic --example loopback_cost [MESSAGES]
//! [send|write|write-imm] [BYTES]`; the default is 32 bytes. Under `valgrind --tool=callgrind` it
//! compares the instructions of two versions.

use std::mem::MaybeUninit;
use std::time::Instant;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;

mod common;

/// Default for the argument.
const MESSAGES: u32 = 3_000_000;

/// Largest payload that is sent inline.
const INLINE_BYTES: u32 = 64;

fn request<'a>(wr_id: u64, flags: SendFlags, sges: &'a [Sge], remote: Remote) -> SendWr<'a> {
    SendWr {
        wr_id,
        opcode: remote.opcode,
        flags,
        imm_or_rkey: 0,
        sges,
        remote_addr: remote.addr,
        rkey: remote.rkey,
        compare_add: 0,
        swap: 0,
        ud: None,
        bind: None,
    }
}

/// The operation and its target.
#[derive(Clone, Copy)]
struct Remote {
    opcode: WrOpcode,
    addr: u64,
    rkey: u32,
}

/// The arguments: number of messages, opcode and payload bytes.
fn asked() -> Result<(u32, WrOpcode, u32), Box<dyn std::error::Error>> {
    let word = |at| std::env::args().nth(at);
    let opcode = match word(2).as_deref() {
        None | Some("send") => WrOpcode::Send,
        Some("write") => WrOpcode::Write,
        Some("write-imm") => WrOpcode::WriteImm,
        Some(other) => return Err(format!("{other} is none of send, write, write-imm").into()),
    };
    let messages = word(1).map_or(Ok(MESSAGES), |count| count.parse())?;
    Ok((messages, opcode, word(3).map_or(Ok(32), |bytes| bytes.parse())?))
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let (messages, opcode, length) = asked()?;
    let context = SoftNic.open(0)?;
    let pd = SoftNic::alloc_pd(&context)?;
    let mut memory = vec![0u8; 2 * length.max(64) as usize];
    let (addr, bytes) = (memory.as_mut_ptr() as u64, memory.len() as u64);
    let rights = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (_mr, keys) = SoftNic::reg_mr(&pd, addr, bytes, addr, rights)?;
    let target = addr + bytes / 2;
    let remote = Remote { opcode, addr: target, rkey: keys.rkey };
    let cq = |cookie| {
        let (timestamps, ignore_overrun) = (false, false);
        let init = CqInit { cqe: 1024, channel: None, timestamps, ignore_overrun, cookie };
        SoftNic::create_cq(&context, init).map(|(cq, _)| cq)
    };
    let (send_cq, recv_cq) = (cq(1)?, cq(2)?);
    let cap = QpCap {
        max_send_wr: 256,
        max_recv_wr: 256,
        max_send_sge: 1,
        max_recv_sge: 1,
        max_inline_data: INLINE_BYTES,
    };
    let qp = |cookie| {
        let (send_cq, recv_cq) = (&send_cq, &recv_cq);
        let (qp_type, srq, sq_sig_all) = (QpType::Rc, None, false);
        SoftNic::create_qp(&pd, QpInit { qp_type, send_cq, recv_cq, srq, cap, sq_sig_all, cookie })
    };
    let ((one, one_qpn, _), (two, two_qpn, _)) = (qp(3)?, qp(4)?);
    common::connect(&one, two_qpn.get())?;
    common::connect(&two, one_qpn.get())?;
    let receive = [Sge { addr: target, length: length.max(64), lkey: keys.lkey }];
    let post_recv = || SoftNic::post_recv(&two, [RecvWr { wr_id: 1, sges: &receive }].into_iter());
    for _ in 0..200 {
        post_recv().map_err(|(_, error)| format!("{error:?}"))?;
    }
    let gather = [Sge { addr, length, lkey: keys.lkey }];
    let inline = if length <= INLINE_BYTES { SendFlags::INLINE } else { SendFlags::NONE };
    let receives = if opcode == WrOpcode::Write { 0 } else { 64 };
    let mut out = [MaybeUninit::<Wc>::uninit(); 16];
    let (mut posting_ns, start) = (0.0, Instant::now());
    for batch in 0..messages / 64 {
        let posted = Instant::now();
        for index in 0..64 {
            let signaled = if index == 63 { SendFlags::SIGNALED } else { SendFlags::NONE };
            let wr = request(batch as u64, inline | signaled, &gather, remote);
            SoftNic::post_send(&one, [wr].into_iter()).map_err(|(_, e)| format!("{e:?}"))?;
        }
        posting_ns += posted.elapsed().as_nanos() as f64;
        let mut received = 0;
        while received < receives {
            let got = SoftNic::poll_cq(&recv_cq, &mut out[..1])?;
            for _ in 0..got {
                post_recv().map_err(|(_, error)| format!("{error:?}"))?;
            }
            received += got;
        }
        while SoftNic::poll_cq(&send_cq, &mut out)? == 0 {}
    }
    let all_ns = start.elapsed().as_nanos() as f64;
    println!("posting {:.1} ns a message", posting_ns / messages as f64);
    println!("receiving and reposting {:.1} ns a message", (all_ns - posting_ns) / messages as f64);
    Ok(())
}

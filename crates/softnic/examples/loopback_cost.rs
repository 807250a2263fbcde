//! What the software of one 32-byte SEND costs without any other processor: one thread, two queue
//! pairs of this process, every cache line at home. Prints ns per message for the whole way (post,
//! ring, responder, completion, acknowledgement, repost) and for the posting half.
//!
//! `cargo run --release -p rdmalab-softnic --example loopback_cost [MESSAGES]`

use std::mem::MaybeUninit;
use std::time::Instant;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;

mod common;

/// Unless the argument says otherwise.
const MESSAGES: u32 = 3_000_000;

fn inline_send(wr_id: u64, flags: SendFlags, sges: &[Sge]) -> SendWr<'_> {
    SendWr {
        wr_id,
        opcode: WrOpcode::Send,
        flags,
        imm_or_rkey: 0,
        sges,
        remote_addr: 0,
        rkey: 0,
        compare_add: 0,
        swap: 0,
        ud: None,
        bind: None,
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let messages = std::env::args().nth(1).map_or(Ok(MESSAGES), |count| count.parse())?;
    let context = SoftNic.open(0)?;
    let pd = SoftNic::alloc_pd(&context)?;
    let mut memory = vec![0u8; 4096];
    let addr = memory.as_mut_ptr() as u64;
    let (_mr, keys) = SoftNic::reg_mr(&pd, addr, 4096, addr, Access::LOCAL_WRITE)?;
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
        max_inline_data: 64,
    };
    let qp = |cookie| {
        let (send_cq, recv_cq) = (&send_cq, &recv_cq);
        let (qp_type, srq, sq_sig_all) = (QpType::Rc, None, false);
        SoftNic::create_qp(&pd, QpInit { qp_type, send_cq, recv_cq, srq, cap, sq_sig_all, cookie })
    };
    let ((one, one_qpn, _), (two, two_qpn, _)) = (qp(3)?, qp(4)?);
    common::connect(&one, two_qpn.get())?;
    common::connect(&two, one_qpn.get())?;
    let receive = [Sge { addr: addr + 2048, length: 64, lkey: keys.lkey }];
    let post_recv = || SoftNic::post_recv(&two, [RecvWr { wr_id: 1, sges: &receive }].into_iter());
    for _ in 0..200 {
        post_recv().map_err(|(_, error)| format!("{error:?}"))?;
    }
    let gather = [Sge { addr, length: 32, lkey: keys.lkey }];
    let mut out = [MaybeUninit::<Wc>::uninit(); 16];
    let (mut posting_ns, start) = (0.0, Instant::now());
    for batch in 0..messages / 64 {
        let posted = Instant::now();
        for index in 0..64 {
            let signaled = if index == 63 { SendFlags::SIGNALED } else { SendFlags::NONE };
            let wr = inline_send(batch as u64, SendFlags::INLINE | signaled, &gather);
            SoftNic::post_send(&one, [wr].into_iter()).map_err(|(_, e)| format!("{e:?}"))?;
        }
        posting_ns += posted.elapsed().as_nanos() as f64;
        let mut received = 0;
        while received < 64 {
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

//! The time of a 32-byte SEND and WRITE between two processes, using the backend only: half a round
//! trip and the time per message, in ns, minimum and median of many batches. The minimum is least
//! affected by other load; `rdmalab bench self` prints the same numbers beside limits.
//!
//! `cargo run --release -p rdmalab-softnic --example process_cost [BATCHES]`

use std::error::Error;
use std::io::{Read, Write};
use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Instant;

use rdmalab_engine::backend::*;
use rdmalab_engine::vocab::*;
use rdmalab_softnic::SoftNic;

mod common;

type Qp = <SoftNic as Backend>::Qp;
type Cq = <SoftNic as Backend>::Cq;
type Failure = Box<dyn Error>;

const BATCHES: usize = 400;
/// Round trips or messages of one batch.
const BATCH: u64 = 64;
const BYTES: usize = 32;
/// Size of each half of the memory: one is sent, the other is written or received.
const HALF: usize = 2048;
const DEPTH: u32 = 256;

/// One end of a connection.
struct Endpoint {
    qp: Qp,
    send_cq: Cq,
    recv_cq: Cq,
    memory: *mut u8,
    lkey: u32,
    remote_addr: u64,
    rkey: u32,
    posted: u64,
}

/// Binds this thread to a processor, if the system allows it.
fn bind_to(processor: usize) {
    // SAFETY: an empty set is a valid one, and the call reads it only.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(processor, &mut set);
        libc::sched_setaffinity(0, size_of_val(&set), &raw const set);
    }
}

impl Endpoint {
    /// Makes an end, and connects it with the end at the other side of the pipes.
    fn meet(mut from: impl Read, mut to: impl Write) -> Result<Endpoint, Failure> {
        let context = SoftNic.open(0)?;
        let pd = SoftNic::alloc_pd(&context)?;
        let memory = rdmalab_softnic::alloc_shared(2 * HALF)?;
        let (addr, length) = (memory as u64, 2 * HALF as u64);
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
        let (region, keys) = SoftNic::reg_mr(&pd, addr, length, addr, access)?;
        std::mem::forget(region);
        let cq = |cookie| {
            let (timestamps, ignore_overrun) = (false, false);
            let init = CqInit { cqe: 1024, channel: None, timestamps, ignore_overrun, cookie };
            SoftNic::create_cq(&context, init).map(|(cq, _)| cq)
        };
        let (send_cq, recv_cq) = (cq(1)?, cq(2)?);
        let (max_send_wr, max_recv_wr, max_inline_data) = (DEPTH, DEPTH, 64);
        let cap =
            QpCap { max_send_wr, max_recv_wr, max_send_sge: 1, max_recv_sge: 1, max_inline_data };
        let (qp_type, srq, sq_sig_all, cookie) = (QpType::Rc, None, false, 3);
        let (send, recv) = (&send_cq, &recv_cq);
        let init = QpInit { qp_type, send_cq: send, recv_cq: recv, srq, cap, sq_sig_all, cookie };
        let (qp, qpn, _) = SoftNic::create_qp(&pd, init)?;
        let mut ours = qpn.get().to_le_bytes().to_vec();
        ours.extend(keys.rkey.to_le_bytes());
        ours.extend(addr.to_le_bytes());
        to.write_all(&ours)?;
        to.flush()?;
        let mut theirs = [0; 16];
        from.read_exact(&mut theirs)?;
        let word = |at: usize| u32::from_le_bytes([0, 1, 2, 3].map(|i| theirs[at + i]));
        let remote_addr = word(8) as u64 | (word(12) as u64) << 32;
        common::connect(&qp, word(0))?;
        let (lkey, rkey) = (keys.lkey, word(4));
        let end = Endpoint { qp, send_cq, recv_cq, memory, lkey, remote_addr, rkey, posted: 0 };
        for _ in 0..DEPTH - 1 {
            end.post_recv()?;
        }
        // Neither end sends before both are ready.
        to.write_all(&[1])?;
        to.flush()?;
        from.read_exact(&mut theirs[..1])?;
        std::mem::forget((context, pd));
        Ok(end)
    }

    fn post_recv(&self) -> Result<(), Failure> {
        let addr = self.memory as u64 + HALF as u64;
        let sges = [Sge { addr, length: BYTES as u32, lkey: self.lkey }];
        let wr = RecvWr { wr_id: 1, sges: &sges };
        SoftNic::post_recv(&self.qp, std::iter::once(wr))
            .map_err(|(_, error)| format!("{error:?}").into())
    }

    /// Posts a message; polls the completion if this is the one in 64 that is signaled.
    fn post(&mut self, opcode: WrOpcode) -> Result<(), Failure> {
        let sges = [Sge { addr: self.memory as u64, length: BYTES as u32, lkey: self.lkey }];
        self.posted += 1;
        let signaled = self.posted.is_multiple_of(64);
        let signal = if signaled { SendFlags::SIGNALED } else { SendFlags::NONE };
        let wr = SendWr {
            wr_id: self.posted,
            opcode,
            flags: SendFlags::INLINE | signal,
            imm_or_rkey: 0,
            sges: &sges,
            remote_addr: self.remote_addr + HALF as u64,
            rkey: self.rkey,
            compare_add: 0,
            swap: 0,
            ud: None,
            bind: None,
        };
        SoftNic::post_send(&self.qp, std::iter::once(wr)).map_err(|(_, e)| format!("{e:?}"))?;
        if signaled && self.posted > 64 {
            self.take(&self.send_cq)?;
        }
        Ok(())
    }

    fn take(&self, cq: &Cq) -> Result<(), Failure> {
        let mut out = [MaybeUninit::<Wc>::uninit(); 1];
        while SoftNic::poll_cq(cq, &mut out)? == 0 {}
        // SAFETY: polling reported one completion, so it is initialised.
        let wc = unsafe { out[0].assume_init() };
        if wc.status != WcStatus::Success {
            return Err(format!("{:?}", wc.status).into());
        }
        Ok(())
    }

    fn byte(&self, at: usize) -> &AtomicU8 {
        // SAFETY: within the memory, which is never freed.
        unsafe { AtomicU8::from_ptr(self.memory.add(at)) }
    }

    /// Sends the message of this end for round trip `i`.
    fn send(&mut self, opcode: WrOpcode, i: u64) -> Result<(), Failure> {
        if opcode == WrOpcode::Write {
            self.byte(BYTES - 1).store((i % 255) as u8 + 1, Ordering::Release);
        }
        self.post(opcode)
    }

    fn receive(&self, opcode: WrOpcode, i: u64) -> Result<(), Failure> {
        match opcode {
            WrOpcode::Send => self.take(&self.recv_cq),
            _ => self.see((i % 255) as u8 + 1),
        }
    }

    /// Waits until the last byte that the peer writes has this value.
    fn see(&self, mark: u8) -> Result<(), Failure> {
        let (last, start) = (self.byte(HALF + BYTES - 1), Instant::now());
        let mut looks = 0u32;
        while last.load(Ordering::Acquire) != mark {
            looks += 1;
            if looks.is_multiple_of(1 << 20) && start.elapsed().as_secs() > 10 {
                return Err("nothing was written for 10 s".into());
            }
        }
        Ok(())
    }

    /// Round trips in batches; the end that is not `first` answers.
    fn trips(&mut self, opcode: WrOpcode, batches: usize, first: bool) -> Result<(), Failure> {
        let mut times = Vec::new();
        for batch in 0..batches as u64 + 20 {
            let start = Instant::now();
            for i in batch * BATCH..(batch + 1) * BATCH {
                if first {
                    self.send(opcode, i)?;
                }
                if opcode == WrOpcode::Send && i > 0 && first {
                    self.post_recv()?;
                }
                self.receive(opcode, i)?;
                if !first {
                    self.send(opcode, i)?;
                    if opcode == WrOpcode::Send {
                        self.post_recv()?;
                    }
                }
            }
            times.push(start.elapsed().as_nanos() as f64 / (2 * BATCH) as f64);
        }
        if opcode == WrOpcode::Send && first {
            self.post_recv()?;
        }
        report(opcode, "RTT/2", first, &times[20..]);
        Ok(())
    }

    /// Messages in one direction. The receiver sends one SEND back per batch to pace the sender.
    fn flood(&mut self, batches: usize, first: bool) -> Result<(), Failure> {
        let mut times = Vec::new();
        for batch in 0..batches + 20 {
            let start = Instant::now();
            for _ in 0..BATCH {
                if first {
                    self.post(WrOpcode::Send)?;
                } else {
                    self.take(&self.recv_cq)?;
                    self.post_recv()?;
                }
            }
            if batch >= 3 && first {
                self.take(&self.recv_cq)?;
                self.post_recv()?;
            }
            if !first && batch < batches + 17 {
                self.post(WrOpcode::Send)?;
            }
            times.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
        }
        report(WrOpcode::Send, "rate ", first, &times[20..]);
        Ok(())
    }

    /// WRITEs in one direction through the lane, which needs no action of the target.
    fn writes(&mut self, batches: usize, first: bool) -> Result<(), Failure> {
        if !first {
            self.see(0)?;
            return self.see(1);
        }
        let mut times = Vec::new();
        self.byte(BYTES - 1).store(0, Ordering::Release);
        for _ in 0..batches + 20 {
            let start = Instant::now();
            for _ in 0..BATCH {
                self.post(WrOpcode::Write)?;
            }
            times.push(start.elapsed().as_nanos() as f64 / BATCH as f64);
        }
        report(WrOpcode::Write, "rate ", first, &times[20..]);
        self.send(WrOpcode::Write, 0)
    }

    fn run(&mut self, batches: usize, first: bool) -> Result<(), Failure> {
        self.trips(WrOpcode::Send, batches, first)?;
        self.trips(WrOpcode::Write, batches, first)?;
        self.flood(batches, first)?;
        self.writes(batches, first)
    }
}

fn report(opcode: WrOpcode, what: &str, first: bool, times: &[f64]) {
    if first {
        let mut times = times.to_vec();
        times.sort_by(f64::total_cmp);
        let (least, median) = (times[0], times[times.len() / 2]);
        println!("{:5} {what} least {least:6.1} ns, median {median:6.1} ns", format!("{opcode:?}"));
    }
}

fn main() -> Result<(), Failure> {
    let mut arguments = std::env::args().skip(1);
    let word = arguments.next().unwrap_or_else(|| BATCHES.to_string());
    if word == "answer" {
        bind_to(1);
        let batches = arguments.next().ok_or("answer: how many batches")?.parse()?;
        return Endpoint::meet(std::io::stdin(), std::io::stdout())?.run(batches, false);
    }
    let batches: usize = word.parse()?;
    let mut other = Command::new(std::env::current_exe()?)
        .args(["answer", &word])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()?;
    bind_to(0);
    let pipes = (other.stdout.take(), other.stdin.take());
    let (Some(from), Some(to)) = pipes else { return Err("no pipes".into()) };
    Endpoint::meet(from, to)?.run(batches, true)?;
    other.wait()?;
    Ok(())
}

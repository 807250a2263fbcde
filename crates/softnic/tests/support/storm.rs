//! Random traffic of every opcode, for tests that disturb it.

use rdmalab_engine::vocab::*;

use super::node::*;
use rdmalab_random::Random;

/// Receives that are kept posted.
pub const RECEIVES: usize = 32;
/// Sends that are kept outstanding.
pub const SENDS: usize = 16;
/// Size of each side's memory.
pub const ROOM: usize = 1 << 20;

/// One side of the traffic: posts requests and counts completions.
pub struct Storm {
    pub endpoint: Endpoint,
    pub mem: Mem,
    /// Address and remote key of the other side's memory.
    pub theirs: (u64, u32),
    pub random: Random,
    /// How many sends and receives are posted and not complete.
    pub sends: usize,
    pub receives: usize,
    /// Good completions.
    pub done: u64,
    /// Statuses of failed completions in order: of sends, of receives.
    pub failed: (Vec<WcStatus>, Vec<WcStatus>),
}

impl Storm {
    /// One side, with its receives posted.
    pub fn new(endpoint: Endpoint, mem: Mem, theirs: (u64, u32), seed: u64) -> Storm {
        let (failed, random) = ((Vec::new(), Vec::new()), Random::new(seed));
        let mut storm =
            Storm { endpoint, mem, theirs, random, sends: 0, receives: 0, done: 0, failed };
        storm.post_receives();
        storm
    }

    fn post_receives(&mut self) {
        while self.receives < RECEIVES {
            self.endpoint.recv(0, &[self.mem.sge(ROOM / 2, ROOM / 2)]);
            self.receives += 1;
        }
    }

    fn post_one(&mut self) {
        let opcode = match self.random.below(8) {
            0 | 1 => WrOpcode::Write,
            2 => WrOpcode::WriteImm,
            3 | 4 => WrOpcode::Send,
            5 => WrOpcode::Read,
            6 => WrOpcode::FetchAdd,
            _ => WrOpcode::CmpSwap,
        };
        let length = match opcode {
            WrOpcode::FetchAdd | WrOpcode::CmpSwap => 8,
            _ => [0, 8, 32, 4096, 10_000, 1 << 17][self.random.below(6) as usize],
        };
        let sges = [self.mem.sge(0, length)];
        let (addr, rkey) = self.theirs;
        self.endpoint.send(rdma(opcode, &sges, addr, rkey));
        self.sends += 1;
    }

    /// Fills the queues, and polls completions. Returns whether none has failed.
    pub fn step(&mut self) -> bool {
        if self.failed.0.is_empty() && self.failed.1.is_empty() {
            while self.sends < SENDS {
                self.post_one();
            }
            self.post_receives();
        }
        self.take()
    }

    /// Posts receives only, and polls completions. Returns whether none has failed.
    pub fn answer(&mut self) -> bool {
        if self.failed.1.is_empty() {
            self.post_receives();
        }
        self.take()
    }

    /// Polls completions. Returns whether none has failed.
    pub fn take(&mut self) -> bool {
        let mut well = true;
        for (cq, is_send) in [(&self.endpoint.send_cq, true), (&self.endpoint.recv_cq, false)] {
            for wc in poll(cq, 8) {
                let (count, failed) = match is_send {
                    true => (&mut self.sends, &mut self.failed.0),
                    false => (&mut self.receives, &mut self.failed.1),
                };
                *count = count.checked_sub(1).expect("each request completes once");
                if wc.status == WcStatus::Success {
                    assert!(failed.is_empty(), "a success after a failure: {wc:?}");
                    self.done += 1;
                } else {
                    failed.push(wc.status);
                    well = false;
                }
            }
        }
        well
    }

    /// Waits until everything outstanding has completed.
    pub fn drain(&mut self) {
        super::until("everything outstanding completes", || {
            self.take();
            self.sends + self.receives == 0
        });
    }

    /// Checks a connection whose peer has gone: the first failed send got no answer, and all
    /// requests after it were flushed.
    pub fn check_lonely_end(&self) {
        let (sends, receives) = &self.failed;
        assert_eq!(sends.first(), Some(&WcStatus::RetryExcErr), "{sends:?}");
        let flushed = |status: &WcStatus| *status == WcStatus::WrFlushErr;
        assert!(sends[1..].iter().all(flushed), "{sends:?}");
        assert!(receives.iter().all(flushed), "{receives:?}");
        assert_eq!(receives.len(), RECEIVES);
        assert_eq!(self.endpoint.state(), QpState::Err);
    }
}

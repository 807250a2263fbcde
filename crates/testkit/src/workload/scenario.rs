//! The course of a run, drawn from a seed.

use crate::sim::{Faults, Knobs, PairConfig};
use rdmalab_engine::vocab::*;
use rdmalab_random::Random;
use rdmalab_wire::ids::PathMtu;

/// A work request of a scenario.
#[derive(Clone, Debug)]
pub struct Op {
    /// Its opcode.
    pub opcode: WrOpcode,
    /// Its flags.
    pub flags: SendFlags,
    /// Payload of SEND and WRITE.
    pub data: Vec<u8>,
    /// Bytes to READ, or of the payload.
    pub length: u32,
    /// Offset in the target.
    pub offset: u32,
    /// Immediate data.
    pub imm: u32,
    /// Compare value or addend.
    pub compare_add: u64,
    /// Swap value.
    pub swap: u64,
    /// Number of elements in its gather list.
    pub elements: u32,
    /// What is wrong with it, if anything.
    pub trouble: Option<Trouble>,
}

/// What can be wrong with a work request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// An unknown remote key.
    RemoteKey,
    /// An unknown local key.
    LocalKey,
    /// A message that is longer than any receive.
    TooLong,
}

impl Trouble {
    /// The status with which the work request completes.
    pub fn status(self) -> WcStatus {
        match self {
            Trouble::RemoteKey => WcStatus::RemAccessErr,
            Trouble::LocalKey => WcStatus::LocProtErr,
            Trouble::TooLong => WcStatus::RemInvReqErr,
        }
    }
}

impl Op {
    /// Whether it produces a completion when it succeeds.
    pub fn signaled(&self, sq_sig_all: bool) -> bool {
        sq_sig_all || self.flags.contains(SendFlags::SIGNALED)
    }
}

/// Everything that determines a run.
#[derive(Clone, Debug)]
pub struct Scenario {
    /// The seed it was drawn from.
    pub seed: u64,
    /// The two ends.
    pub config: PairConfig,
    /// How the drivers behave.
    pub knobs: Knobs,
    /// The link's faults until [`Scenario::heal_ns`].
    pub faults: Faults,
    /// When the faults end.
    pub heal_ns: u64,
    /// Rules of `--faults` that disturb the link until `heal_ns`, instead of `faults`.
    pub rules: Option<String>,
    /// Start and end of a time in which nothing passes.
    pub partition_ns: Option<(u64, u64)>,
    /// The requests of each end.
    pub ops: [Vec<Op>; 2],
    /// Receives that are posted before anything is sent.
    pub receives_first: u32,
    /// Bytes of each receive.
    pub receive_bytes: u32,
    /// Size of each end's target region for WRITE and READ.
    pub target_bytes: u32,
    /// Longest pause between two postings, ns.
    pub pause_ns: u64,
}

impl Scenario {
    /// The scenario of a seed.
    pub fn new(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let ty = random.pick(&[QpType::Rc, QpType::Rc, QpType::Rc, QpType::Uc, QpType::Ud]);
        let config = draw_config(&mut random, ty, seed);
        let faults = draw_faults(&mut random);
        let partition = ty == QpType::Rc && !faults.lossless() && random.chance(150);
        let from_ns = random.below(500_000);
        let mut scenario = Scenario {
            seed,
            config,
            knobs: draw_knobs(&mut random, ty, &faults),
            faults,
            rules: None,
            heal_ns: random.between(10_000, 20_000_000),
            partition_ns: partition.then(|| (from_ns, from_ns + random.below(20_000_000))),
            ops: [Vec::new(), Vec::new()],
            receives_first: random.below(12) as u32,
            receive_bytes: config.mtu.bytes() * random.between(1, 9) as u32 + 1,
            target_bytes: config.mtu.bytes() * 16 + random.below(300) as u32,
            pause_ns: random.pick(&[500, 5_000, 50_000]),
        };
        if !scenario.lossless() {
            scenario.config.attr.timeout = random.between(6, 11) as u8;
        }
        let both = random.chance(600);
        for end in 0..if both { 2 } else { 1 } {
            let count = random.between(1, 60) as usize;
            scenario.ops[end] = scenario.draw_ops(count, &mut random);
        }
        if random.chance(150) {
            scenario.spoil_one(&mut random);
        }
        if seed % RULED_EVERY == RULED_EVERY - 2 {
            scenario.rule(&mut Random::new(seed ^ 0x7a17));
        }
        scenario
    }

    /// Replaces the faults by rules, which come from a random generator of their own.
    fn rule(&mut self, random: &mut Random) {
        self.faults = Faults::default();
        self.partition_ns = None;
        self.knobs.lane = 0;
        self.config.attr.timeout = random.between(6, 11) as u8;
        // Long enough for some of the traffic to meet the rules.
        self.heal_ns = self.heal_ns.max(2_000_000);
        self.rules = Some(draw_rules(random, self.heal_ns));
    }

    /// A scenario to compare lane and link: RC, no faults, one end sends, and its requests have
    /// only one possible outcome.
    pub fn one_sided(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x1a2e);
        let mut scenario = Scenario::new(seed);
        scenario.config = draw_config(&mut random, QpType::Rc, seed);
        scenario.config.attr.rnr_retry = 7;
        scenario.faults = Faults::default();
        scenario.rules = None;
        scenario.partition_ns = None;
        scenario.knobs.lane = 0;
        let count = random.between(10, 60) as usize;
        scenario.ops = [scenario.draw_ops(count, &mut random), Vec::new()];
        for op in &mut scenario.ops[0] {
            // Without a fence a READ may return what a later WRITE stored.
            op.flags = op.flags | SendFlags::FENCE;
        }
        if random.chance(200) {
            scenario.spoil_one(&mut random);
        }
        scenario
    }

    /// The scenario of a seed with all memory paged on demand.
    pub fn paged(seed: u64) -> Self {
        let mut random = Random::new(seed ^ 0x9a6e);
        let mut scenario = Scenario::new(seed);
        scenario.config.on_demand = true;
        // A page fault is answered like a receive that is missing.
        scenario.config.attr.rnr_retry = 7;
        scenario.config.attr.min_rnr_timer = random.pick(&[1, 5, 12]);
        if !scenario.is_harsh() {
            // Longer than all pages of a READ take: a fault alone spends no retry. Where the link
            // may exhaust `retry_cnt`, faults may too.
            scenario.config.attr.timeout = 17;
        }
        scenario.knobs.lane = 0;
        scenario
    }

    /// Whether nothing is lost, repeated or overtaken.
    pub fn lossless(&self) -> bool {
        let loses_faults = self.config.on_demand && self.config.qp_type != QpType::Rc;
        let is_cut = self.rules.is_some() || self.partition_ns.is_some();
        self.faults.lossless() && !is_cut && !loses_faults
    }

    /// Whether packets may come twice, or in another order.
    pub fn disorder(&self) -> bool {
        self.faults.disorder() || self.rules.is_some()
    }

    /// Whether the link may exhaust `retry_cnt`. Seven retries survive light losses, because each
    /// retry gets further.
    pub fn is_harsh(&self) -> bool {
        let Faults { drop, duplicate, reorder, .. } = self.faults;
        let light = self.config.attr.retry_cnt == 7
            && self.partition_ns.is_none()
            && self.rules.is_none()
            && drop <= 30
            && duplicate <= 50
            && reorder <= 50;
        !self.lossless() && !light
    }

    /// Whether a request of either end is invalid on purpose.
    pub fn spoiled(&self) -> bool {
        self.ops.iter().flatten().any(|op| op.trouble.is_some())
    }

    fn draw_ops(&self, count: usize, random: &mut Random) -> Vec<Op> {
        // Unsignalled requests keep their slots until a later completion is polled.
        let every = (self.config.cap.max_send_wr as u64).div_ceil(2);
        let mut run = 0;
        let mut ops: Vec<Op> = (0..count)
            .map(|_| {
                let mut op = self.draw_op(random);
                run += 1;
                if run >= every || random.chance(400) {
                    op.flags = op.flags | SendFlags::SIGNALED;
                    run = 0;
                }
                op
            })
            .collect();
        if let Some(last) = ops.last_mut() {
            last.flags = last.flags | SendFlags::SIGNALED;
        }
        ops
    }

    fn draw_op(&self, random: &mut Random) -> Op {
        use WrOpcode as O;
        let opcode = match self.config.qp_type {
            QpType::Rc => random.pick(&[
                O::Send,
                O::Send,
                O::SendImm,
                O::SendInv,
                O::Write,
                O::Write,
                O::Write,
                O::WriteImm,
                O::Read,
                O::Read,
                O::CmpSwap,
                O::FetchAdd,
                O::FetchAdd,
                O::FetchAdd,
                O::LocalInv,
            ]),
            QpType::Uc => random.pick(&[O::Send, O::SendImm, O::Write, O::WriteImm]),
            QpType::Ud => random.pick(&[O::Send, O::SendImm]),
        };
        let length = self.draw_length(opcode, random);
        let room = (self.target_bytes - length.min(self.target_bytes)) as u64;
        let mut op = Op {
            opcode,
            flags: SendFlags::NONE,
            data: Vec::new(),
            length,
            offset: random.between(0, room) as u32,
            imm: random.next_u32(),
            compare_add: random.below(3),
            swap: random.below(3),
            elements: random.between(1, self.config.cap.max_send_sge as u64) as u32,
            trouble: None,
        };
        for (flag, per_mille) in [(SendFlags::SOLICITED, 200), (SendFlags::FENCE, 150)] {
            if random.chance(per_mille) {
                op.flags = op.flags | flag;
            }
        }
        if !opcode.is_read_or_atomic() && !opcode.is_local() {
            op.data = random.bytes(length as usize);
            if length <= self.config.cap.max_inline_data && random.chance(300) {
                op.flags = op.flags | SendFlags::INLINE;
            }
        }
        op
    }

    fn draw_length(&self, opcode: WrOpcode, random: &mut Random) -> u32 {
        let mtu = self.config.mtu.bytes() as u64;
        let most = match opcode {
            WrOpcode::CmpSwap | WrOpcode::FetchAdd => return 8,
            WrOpcode::LocalInv | WrOpcode::BindMw => return 0,
            _ if self.config.qp_type == QpType::Ud => mtu.min(self.receive_bytes as u64 - 1),
            WrOpcode::Write | WrOpcode::WriteImm | WrOpcode::Read => self.target_bytes as u64,
            _ => self.receive_bytes as u64,
        };
        let length = match random.below(6) {
            0 => 0,
            1 => random.below(65),
            2 => mtu - 1 + random.below(3),
            3 => mtu * random.below(5),
            _ => random.below(most + 1),
        };
        length.min(most) as u32
    }

    fn spoil_one(&mut self, random: &mut Random) {
        use WrOpcode as O;
        let end = random.below(2) as usize;
        let ty = self.config.qp_type;
        let too_long = self.receive_bytes + 1;
        if self.ops[end].is_empty() {
            return;
        }
        let index = random.below(self.ops[end].len() as u64) as usize;
        let op = &mut self.ops[end][index];
        let trouble = match op.opcode {
            _ if ty == QpType::Ud => return,
            O::Write | O::WriteImm | O::Read if op.length > 0 && ty == QpType::Rc => {
                Trouble::RemoteKey
            }
            O::CmpSwap | O::FetchAdd => Trouble::RemoteKey,
            O::Send | O::SendImm if ty == QpType::Rc && random.chance(500) => {
                op.length = too_long;
                op.data = random.bytes(too_long as usize);
                op.flags = op.flags.without(SendFlags::INLINE);
                Trouble::TooLong
            }
            O::Send | O::SendImm | O::Write if op.length > 0 => {
                op.flags = op.flags.without(SendFlags::INLINE);
                Trouble::LocalKey
            }
            _ => return,
        };
        op.trouble = Some(trouble);
    }
}

fn draw_config(random: &mut Random, ty: QpType, seed: u64) -> PairConfig {
    let mut config = PairConfig::new(ty);
    config.seed = seed ^ 0x5eed;
    config.mtu = random.pick(&[
        PathMtu::Mtu256,
        PathMtu::Mtu512,
        PathMtu::Mtu1024,
        PathMtu::Mtu2048,
        PathMtu::Mtu4096,
    ]);
    config.cap.max_send_wr = random.pick(&[2, 3, 8, 64]);
    config.cap.max_recv_wr = random.pick(&[2, 5, 64]);
    config.sq_sig_all = random.chance(200);
    config.srq_limit = random.chance(200).then_some(1);
    // Half of all connections start just before the PSN wraps.
    config.psn = [0, 1].map(|_| match random.chance(500) {
        true => 0x100_0000 - 1 - random.below(100) as u32,
        false => random.next_u32() & 0xff_ffff,
    });
    let most = random.between(1, 4) as u8;
    config.attr.max_rd_atomic = most;
    config.attr.max_dest_rd_atomic = most + random.below(3) as u8;
    config.attr.min_rnr_timer = random.between(1, 8) as u8;
    config.attr.timeout = 17;
    config.attr.retry_cnt = if random.chance(850) { 7 } else { random.below(7) as u8 };
    config.attr.rnr_retry = if random.chance(850) { 7 } else { random.below(7) as u8 };
    config
}

fn draw_faults(random: &mut Random) -> Faults {
    let mut faults = Faults::default();
    if random.chance(350) {
        // Nothing is lost, but trains are split at random.
        faults.split = random.pick(&[0, 300, 1000]);
        return faults;
    }
    let mut level = |levels: &[u32]| if random.chance(600) { random.pick(levels) } else { 0 };
    faults.drop = level(&[5, 30, 120]);
    faults.duplicate = level(&[5, 50, 200]);
    faults.reorder = level(&[5, 50, 200]);
    faults.split = level(&[100, 500, 1000]);
    faults
}

/// One seed in five is disturbed by rules.
const RULED_EVERY: u64 = 5;

/// Rules that end at `heal_ns`: one to four, each of any kind.
fn draw_rules(random: &mut Random, heal_ns: u64) -> String {
    let mut text = format!("seed={}", random.next_u32());
    for _ in 0..random.between(1, 4) {
        let action = match random.below(7) {
            0 | 1 => "drop".to_owned(),
            2 => "duplicate".to_owned(),
            3 => format!("reorder {}", random.between(1, 9)),
            4 => "corrupt".to_owned(),
            5 => {
                let (ns, more_ns) = (random.between(1, 60_000), random.between(1, 60_000));
                format!("delay {ns}ns jitter {more_ns}ns")
            }
            _ => format!("rate {}Mbit", random.pick(&[200, 1_000, 10_000])),
        };
        let which = match random.below(6) {
            0 | 1 => format!("{}%", random.pick(&[1, 5, 20])),
            2 => format!("nth {},{}", random.between(1, 9), random.between(10, 40)),
            3 => format!("every {}", random.between(2, 20)),
            4 => "30% first".to_owned(),
            _ => format!("10% again of {}", random.pick(&["request", "response"])),
        };
        let types =
            random.pick(&["", "", " of request", " of response", " of ack,nak", " of send"]);
        // A rule honours only its last selector of a kind.
        let types = if which.contains(" of ") { "" } else { types };
        let from_ns = random.pick(&[0, heal_ns / 3]);
        text += &format!("; {action} {which}{types} {from_ns}ns..{heal_ns}ns");
    }
    if random.chance(200) {
        let from_ns = random.below(heal_ns);
        text +=
            &format!("; partition {from_ns}ns..{heal_ns}ns to {:#x}", random.pick(&[0x101, 0x201]));
    }
    text
}

fn draw_knobs(random: &mut Random, ty: QpType, faults: &Faults) -> Knobs {
    let lane = ty == QpType::Rc && faults.lossless() && random.chance(500);
    Knobs {
        max_train_bytes: random.pick(&[1, 4096, 10_000, 64 << 10, u32::MAX]),
        late_retire: random.pick(&[0, 0, 200, 1000]),
        late_fetch: random.pick(&[0, 0, 300]),
        lane: if lane { random.pick(&[300, 1000]) } else { 0 },
        ..Knobs::default()
    }
}

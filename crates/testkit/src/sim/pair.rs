//! Two devices with a connected queue pair each, as most tests need them.

use super::device::{Device, PD};
use super::injector::FaultInjector;
use super::paging::PagedMemory;
use super::world::{At, World};
use rdmalab_engine::backend::{PostError, RecvWr, SendWr};
use rdmalab_engine::qp::recv_queue::SharedRecvQueue;
use rdmalab_engine::vocab::*;
use rdmalab_link::specification::Specification;
use rdmalab_wire::ids::{PathMtu, Qpn};
use rdmalab_wire::opcode::Transport;

/// How the two queue pairs are made and connected.
#[derive(Clone, Copy, Debug)]
pub struct PairConfig {
    /// The seed of all random choices.
    pub seed: u64,
    /// Transport.
    pub qp_type: QpType,
    /// Path MTU.
    pub mtu: PathMtu,
    /// Capacities of both.
    pub cap: QpCap,
    /// As `sq_sig_all` of `struct ibv_qp_init_attr`.
    pub sq_sig_all: bool,
    /// Both devices use a shared receive queue with this limit.
    pub srq_limit: Option<u32>,
    /// Whether all memory is paged on demand.
    pub on_demand: bool,
    /// The first PSN from device 0 to 1, and from 1 to 0.
    pub psn: [u32; 2],
    /// As `struct ibv_qp_attr`; the state is ignored.
    pub attr: QpAttr,
}

impl PairConfig {
    /// The usual attributes of an example program with all access rights and MTU 1024.
    pub fn new(qp_type: QpType) -> Self {
        let rights = Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
        PairConfig {
            seed: 1,
            qp_type,
            mtu: PathMtu::Mtu1024,
            cap: QpCap {
                max_send_wr: 64,
                max_recv_wr: 64,
                max_send_sge: 4,
                max_recv_sge: 4,
                max_inline_data: 256,
            },
            sq_sig_all: false,
            srq_limit: None,
            on_demand: false,
            psn: [0x10, 0x2000],
            attr: QpAttr {
                qp_access_flags: rights | Access::LOCAL_WRITE,
                max_rd_atomic: 4,
                max_dest_rd_atomic: 4,
                min_rnr_timer: 12,
                timeout: 14,
                retry_cnt: 7,
                rnr_retry: 7,
                port_num: 1,
                qkey: 0x1111_1111,
                ..QpAttr::default()
            },
        }
    }
}

/// The two devices. Everything of the [`World`] can be reached through [`Pair::world`].
#[derive(Debug)]
pub struct Pair {
    /// The world of both.
    pub world: World,
    /// For each device, a local key with write access to all its memory.
    pub lkeys: [u32; 2],
    config: PairConfig,
}

/// Device 0's queue pair.
pub const LEFT: At = At { device: 0, qp: 0 };
/// Device 1's queue pair.
pub const RIGHT: At = At { device: 1, qp: 0 };

/// Size of the address space that the key of all memory covers.
const ALL_MEMORY: u64 = 1 << 34;

impl Pair {
    /// Two queue pairs in RTS, connected to each other.
    pub fn new(config: PairConfig) -> Self {
        let mut world = World::new(2, config.seed);
        let lkeys = [0, 1].map(|index| {
            let device = &mut world.devices[index];
            let base = device.memory.base();
            if config.on_demand {
                device.paged = Some(PagedMemory::new(config.seed ^ index as u64 ^ 0x0d9));
            }
            if let Some(limit) = config.srq_limit {
                device.srq = Some(SharedRecvQueue::new(PD, 256, config.cap.max_recv_sge, limit));
            }
            Self::make_qp(device, &config);
            device.register(base, ALL_MEMORY, Access::LOCAL_WRITE)
        });
        let mut pair = Pair { world, lkeys, config };
        for at in [LEFT, RIGHT] {
            pair.connect(at);
        }
        pair
    }

    fn make_qp(device: &mut Device, config: &PairConfig) {
        let with_srq = config.srq_limit.is_some();
        let of = (config.cap, config.sq_sig_all);
        let index = device.create_qp(config.qp_type, of.0, of.1, with_srq, config.mtu);
        let qp = &mut device.qps[index].qp;
        // Adapters differ in these, so each seed has one kind at each end.
        qp.adapter.serves_faulted_reads = config.on_demand && config.seed & 1 == 1;
        qp.adapter.discards_while_paused = config.on_demand && config.seed & 2 == 2;
    }

    /// From now on the link applies these rules of `--faults` to each packet.
    pub fn disturb(&mut self, rules: &str) {
        let transport = match self.config.qp_type {
            QpType::Rc => Transport::Rc,
            QpType::Uc => Transport::Uc,
            QpType::Ud => Transport::Ud,
        };
        let asked = Specification::parse(rules).unwrap_or_else(|error| panic!("{rules}: {error}"));
        self.world.link.injector = Some(FaultInjector::new(asked.into_chain(0), transport));
    }

    /// The rules and quirks, with the packets that they have met.
    pub fn injector(&self) -> &FaultInjector {
        self.world.link.injector.as_ref().expect("a link with rules")
    }

    /// Takes a queue pair from RESET to RTS.
    pub fn connect(&mut self, at: At) {
        self.make_ready_to_receive(at);
        self.make_ready_to_send(at);
    }

    /// Takes a queue pair from RESET to RTR.
    pub fn make_ready_to_receive(&mut self, at: At) {
        use QpAttrMask as M;
        let mut attr = self.config.attr;
        let other = self.other(at);
        attr.path_mtu = self.config.mtu as u32;
        attr.dest_qp_num = self.world.qp(other).qp.qpn.get();
        attr.rq_psn = self.config.psn[other.device];
        attr.ah_attr.port_num = 1;
        let ty = self.config.qp_type;
        attr.qp_state = QpState::Init;
        let rights = if ty == QpType::Ud { M::QKEY } else { M::ACCESS_FLAGS };
        self.world.modify(at, &attr, M::STATE | M::PKEY_INDEX | M::PORT | rights);
        attr.qp_state = QpState::Rtr;
        let connected = M::AV | M::PATH_MTU | M::DEST_QPN | M::RQ_PSN;
        let mask = match ty {
            QpType::Ud => M::STATE,
            QpType::Uc => M::STATE | connected,
            QpType::Rc => M::STATE | connected | M::MAX_DEST_RD_ATOMIC | M::MIN_RNR_TIMER,
        };
        self.world.modify(at, &attr, mask);
    }

    /// Takes a queue pair from RTR to RTS.
    pub fn make_ready_to_send(&mut self, at: At) {
        use QpAttrMask as M;
        let mut attr = self.config.attr;
        attr.sq_psn = self.config.psn[at.device];
        attr.qp_state = QpState::Rts;
        let mut mask = M::STATE | M::SQ_PSN;
        if self.config.qp_type == QpType::Rc {
            mask = mask | M::TIMEOUT | M::RETRY_CNT | M::RNR_RETRY | M::MAX_QP_RD_ATOMIC;
        }
        self.world.modify(at, &attr, mask);
    }

    /// The other end.
    pub fn other(&self, at: At) -> At {
        At { device: 1 - at.device, qp: at.qp }
    }

    /// The device of an end.
    pub fn device(&mut self, at: At) -> &mut Device {
        &mut self.world.devices[at.device]
    }

    /// New memory at an end that holds `bytes`, as an element of a gather list.
    pub fn buffer(&mut self, at: At, bytes: &[u8]) -> Sge {
        let lkey = self.lkeys[at.device];
        let memory = &mut self.device(at).memory;
        let addr = memory.allocate(bytes.len());
        memory.write(addr, bytes);
        Sge { addr, length: bytes.len() as u32, lkey }
    }

    /// New memory at an end that the peer may access: its address and rkey.
    pub fn region(&mut self, at: At, bytes: &[u8], access: Access) -> (u64, u32) {
        let sge = self.buffer(at, bytes);
        let key = self.device(at).register(sge.addr, sge.length as u64, access);
        (sge.addr, key)
    }

    /// Posts a receive of `length` new bytes; returns the buffer.
    pub fn receive(&mut self, at: At, wr_id: u64, length: usize) -> Sge {
        let sge = self.buffer(at, &vec![0; length]);
        let posted = self.world.post_recv(at, &RecvWr { wr_id, sges: &[sge] });
        posted.expect("room in the receive queue");
        sge
    }

    /// Posts `wr` as a signaled send.
    pub fn post(&mut self, at: At, wr: SendWr<'_>) -> Result<u32, PostError> {
        self.world.post_send(at, &SendWr { flags: wr.flags | SendFlags::SIGNALED, ..wr })
    }

    /// Statuses of all send completions at an end, with their `wr_id`.
    pub fn sent(&self, at: At) -> Vec<(u64, WcStatus)> {
        self.world.qp(at).sent().iter().map(|sent| (sent.wc.wr_id, sent.wc.status)).collect()
    }

    /// Statuses of all receive completions at an end, with their `wr_id`.
    pub fn received(&self, at: At) -> Vec<(u64, WcStatus)> {
        self.world.qp(at).received().iter().map(|got| (got.wc.wr_id, got.wc.status)).collect()
    }

    /// State of the queue pair at an end.
    pub fn state(&self, at: At) -> QpState {
        self.world.qp(at).qp.state
    }
}

/// A work request without payload; tests override the fields that they need.
pub fn blank(wr_id: u64, opcode: WrOpcode) -> SendWr<'static> {
    SendWr {
        wr_id,
        opcode,
        flags: SendFlags::NONE,
        imm_or_rkey: 0,
        sges: &[],
        remote_addr: 0,
        rkey: 0,
        compare_add: 0,
        swap: 0,
        ud: None,
        bind: None,
    }
}

/// A datagram's destination.
pub fn datagram_to(remote_qpn: Qpn, remote_qkey: u32) -> UdAddress {
    UdAddress { ah: AhAttr::default(), remote_qpn, remote_qkey }
}

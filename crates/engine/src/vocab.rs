//! The vocabulary of the verbs, with the numbers of libibverbs, shared by engine and backends.

mod qp_cap;

use rdmalab_wire::ids::{Gid, Lid, PKey, Qpn};

pub use qp_cap::QpCap;

/// Declares an enum whose discriminants are those of a C enum, with a checked conversion.
macro_rules! c_enum {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $value:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, PartialOrd, Ord)]
        #[repr(u32)]
        pub enum $name { $($(#[$vdoc])* $variant = $value,)* }
        impl $name {
            /// From the number that libibverbs uses; `None` for a number that it does not define.
            #[inline]
            pub const fn from_ibv(value: u32) -> Option<Self> {
                match value { $($value => Some(Self::$variant),)* _ => None }
            }
            /// All values, in the order of their numbers.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)*];
        }
    };
}

/// Declares a set of bits with the values of libibverbs.
macro_rules! c_bits {
    ($(#[$doc:meta])* $name:ident { $($(#[$bdoc:meta])* $bit:ident = $value:expr,)* }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        #[repr(transparent)]
        pub struct $name(pub u32);
        impl $name {
            $($(#[$bdoc])* pub const $bit: Self = Self($value);)*
            /// The empty set.
            pub const NONE: Self = Self(0);
            /// Whether every bit of `other` is set.
            #[inline]
            pub const fn contains(self, other: Self) -> bool { self.0 & other.0 == other.0 }
            /// Whether any bit of `other` is set.
            #[inline]
            pub const fn intersects(self, other: Self) -> bool { self.0 & other.0 != 0 }
            /// The bits of both.
            #[inline]
            pub const fn union(self, other: Self) -> Self { Self(self.0 | other.0) }
            /// The bits of `self` that are not in `other`.
            #[inline]
            pub const fn without(self, other: Self) -> Self { Self(self.0 & !other.0) }
            /// Whether no bit is set.
            #[inline]
            pub const fn is_empty(self) -> bool { self.0 == 0 }
            /// The names of the bits that are set.
            pub fn names(self) -> impl Iterator<Item = &'static str> {
                [$((stringify!($bit), $value as u32),)*].into_iter()
                    .filter(move |(_, value)| self.0 & value != 0)
                    .map(|(name, _)| name)
            }
        }
        impl core::ops::BitOr for $name {
            type Output = Self;
            #[inline]
            fn bitor(self, other: Self) -> Self { self.union(other) }
        }
        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($name), "("))?;
                for (i, name) in self.names().enumerate() {
                    if i > 0 { write!(f, "|")?; }
                    write!(f, "{name}")?;
                }
                write!(f, ")")
            }
        }
    };
}

c_enum! {
    /// The transport service of a queue pair (`enum ibv_qp_type`).
    QpType {
        /// Reliable connection.
        Rc = 2,
        /// Unreliable connection.
        Uc = 3,
        /// Unreliable datagram.
        Ud = 4,
    }
}

c_enum! {
    /// The state of a queue pair (`enum ibv_qp_state`; IBA vol. 1, 10.3.1).
    QpState {
        /// Created; nothing is posted or sent.
        Reset = 0,
        /// Receives may be posted; packets are dropped.
        Init = 1,
        /// Ready to receive.
        Rtr = 2,
        /// Ready to send.
        Rts = 3,
        /// The send queue drains: what was begun ends, nothing new starts.
        Sqd = 4,
        /// A send failed on UC or UD; receiving goes on.
        Sqe = 5,
        /// Everything posted is flushed.
        Err = 6,
    }
}

impl QpState {
    /// Whether requests from the network are accepted in this state.
    #[inline]
    pub const fn can_receive(self) -> bool {
        matches!(self, QpState::Rtr | QpState::Rts | QpState::Sqd | QpState::Sqe)
    }
}

c_enum! {
    /// The operation of a send work request (`enum ibv_wr_opcode`).
    WrOpcode {
        /// RDMA WRITE.
        Write = 0,
        /// RDMA WRITE that consumes a receive WQE and delivers 4 bytes with its completion.
        WriteImm = 1,
        /// SEND.
        Send = 2,
        /// SEND with 4 bytes in the completion.
        SendImm = 3,
        /// RDMA READ.
        Read = 4,
        /// Compare and swap of 8 bytes.
        CmpSwap = 5,
        /// Fetch and add of 8 bytes.
        FetchAdd = 6,
        /// Invalidate a local key (type 2 windows).
        LocalInv = 7,
        /// Bind a memory window.
        BindMw = 8,
        /// SEND that invalidates a key at the receiver.
        SendInv = 9,
    }
}

impl WrOpcode {
    /// Whether a response with data comes back (READ and the atomics).
    #[inline]
    pub const fn is_read_or_atomic(self) -> bool {
        matches!(self, WrOpcode::Read | WrOpcode::CmpSwap | WrOpcode::FetchAdd)
    }

    /// Whether the request is executed without the network (bind, local invalidate).
    #[inline]
    pub const fn is_local(self) -> bool {
        matches!(self, WrOpcode::LocalInv | WrOpcode::BindMw)
    }

    /// Whether the message consumes a receive WQE at its destination.
    #[inline]
    pub const fn consumes_receive(self) -> bool {
        matches!(self, WrOpcode::Send | WrOpcode::SendImm | WrOpcode::SendInv | WrOpcode::WriteImm)
    }

    /// The opcode of the completion that this request produces.
    #[inline]
    pub const fn completion(self) -> WcOpcode {
        use WcOpcode::{BindMw, CompSwap, FetchAdd, LocalInv, RdmaRead, RdmaWrite, Send};
        // By number: every completion needs it, and branches cost more.
        const BY_NUMBER: [WcOpcode; WrOpcode::ALL.len()] = [
            RdmaWrite, RdmaWrite, Send, Send, RdmaRead, CompSwap, FetchAdd, LocalInv, BindMw, Send,
        ];
        BY_NUMBER[self as usize]
    }
}

c_enum! {
    /// The operation that completed (`enum ibv_wc_opcode`).
    WcOpcode {
        /// A SEND of any kind left and, on RC, was acknowledged.
        Send = 0,
        /// An RDMA WRITE.
        RdmaWrite = 1,
        /// An RDMA READ.
        RdmaRead = 2,
        /// A compare and swap.
        CompSwap = 3,
        /// A fetch and add.
        FetchAdd = 4,
        /// A window was bound.
        BindMw = 5,
        /// A local key was invalidated.
        LocalInv = 6,
        /// A message arrived.
        Recv = 128,
        /// An RDMA WRITE with immediate arrived.
        RecvRdmaWithImm = 129,
    }
}

c_enum! {
    /// How a work request ended (`enum ibv_wc_status`; IBA vol. 1, 10.10.3).
    WcStatus {
        /// Done.
        Success = 0,
        /// A local buffer was too short, or a message exceeded the port's limit.
        LocLenErr = 1,
        /// An internal inconsistency of the local QP.
        LocQpOpErr = 2,
        /// Local end-to-end context error (no longer used).
        LocEecOpErr = 3,
        /// A local buffer is not covered by its MR, its rights, or is not mapped any more.
        LocProtErr = 4,
        /// The QP was in the error state; nothing was done.
        WrFlushErr = 5,
        /// A window could not be bound.
        MwBindErr = 6,
        /// The response could not be understood.
        BadRespErr = 7,
        /// Access to a local buffer failed while an RDMA WRITE with immediate was received.
        LocAccessErr = 8,
        /// The responder refused the form of the request.
        RemInvReqErr = 9,
        /// The responder refused the key, the range or the rights.
        RemAccessErr = 10,
        /// The responder could not complete the request.
        RemOpErr = 11,
        /// No answer after `retry_cnt` retries.
        RetryExcErr = 12,
        /// The receiver had no receive posted, `rnr_retry` times over.
        RnrRetryExcErr = 13,
        /// RDD violation (no longer used).
        LocRddViolErr = 14,
        /// Invalid RD request at the responder (no longer used).
        RemInvRdReqErr = 15,
        /// Aborted by the responder.
        RemAbortErr = 16,
        /// Invalid EE context number (no longer used).
        InvEecnErr = 17,
        /// Invalid EE context state (no longer used).
        InvEecStateErr = 18,
        /// A fatal error of the device.
        FatalErr = 19,
        /// Response time-out (no longer used).
        RespTimeoutErr = 20,
        /// Any other error.
        GeneralErr = 21,
    }
}

c_bits! {
    /// Rights of memory, or of a queue pair (`enum ibv_access_flags`).
    Access {
        /// The adapter may write there for its owner.
        LOCAL_WRITE = 1,
        /// Peers may RDMA WRITE.
        REMOTE_WRITE = 1 << 1,
        /// Peers may RDMA READ.
        REMOTE_READ = 1 << 2,
        /// Peers may execute atomics.
        REMOTE_ATOMIC = 1 << 3,
        /// Windows may be bound to it.
        MW_BIND = 1 << 4,
        /// Addresses start at 0.
        ZERO_BASED = 1 << 5,
        /// Pages are mapped on demand.
        ON_DEMAND = 1 << 6,
        /// Huge pages (for implicit regions).
        HUGETLB = 1 << 7,
    }
}

impl Access {
    /// The optional bits (`IBV_ACCESS_OPTIONAL_RANGE`): to be ignored when not supported.
    pub const OPTIONAL_RANGE: u32 = 0x3ff0_0000;
    /// Every mandatory bit that is defined.
    pub const KNOWN: u32 = 0xff;
    /// The rights that a peer can hold.
    pub const REMOTE: Access =
        Access(Access::REMOTE_WRITE.0 | Access::REMOTE_READ.0 | Access::REMOTE_ATOMIC.0);
}

c_bits! {
    /// Flags of a send work request (`enum ibv_send_flags`).
    SendFlags {
        /// Wait for earlier READs and atomics to complete first.
        FENCE = 1,
        /// Produce a completion.
        SIGNALED = 1 << 1,
        /// Raise a solicited event at the receiver.
        SOLICITED = 1 << 2,
        /// Copy the payload into the work queue now.
        INLINE = 1 << 3,
    }
}

c_bits! {
    /// Flags of a completion (`enum ibv_wc_flags`).
    WcFlags {
        /// The 40 bytes before the payload hold a routing header.
        GRH = 1,
        /// `imm_or_rkey` holds immediate data.
        WITH_IMM = 1 << 1,
        /// `imm_or_rkey` holds the key that was invalidated.
        WITH_INV = 1 << 3,
    }
}

/// A scatter/gather element, laid out as `struct ibv_sge`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct Sge {
    /// An address within the region of `lkey`.
    pub addr: u64,
    /// Length in bytes.
    pub length: u32,
    /// The region's local key.
    pub lkey: u32,
}

/// A work completion, laid out as `struct ibv_wc` (48 bytes).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Wc {
    /// The caller's number of the work request.
    pub wr_id: u64,
    /// How it ended.
    pub status: WcStatus,
    /// The operation; meaningful only with [`WcStatus::Success`].
    pub opcode: WcOpcode,
    /// Detail for people: see the book's chapter on errors.
    pub vendor_err: u32,
    /// Bytes received, or asked for by READ.
    pub byte_len: u32,
    /// Immediate data in network order, or the invalidated key.
    pub imm_or_rkey: u32,
    /// The local QP.
    pub qp_num: u32,
    /// The sender's QP (UD).
    pub src_qp: u32,
    /// Flags for the optional fields that are valid.
    pub wc_flags: WcFlags,
    /// Index of the partition key (UD).
    pub pkey_index: u16,
    /// The sender's LID (UD).
    pub slid: u16,
    /// Service level.
    pub sl: u8,
    /// Low bits of the destination LID (UD).
    pub dlid_path_bits: u8,
}

impl Wc {
    /// A SEND that succeeded; every number is 0.
    pub const BLANK: Wc = Wc {
        wr_id: 0,
        status: WcStatus::Success,
        opcode: WcOpcode::Send,
        vendor_err: 0,
        byte_len: 0,
        imm_or_rkey: 0,
        qp_num: 0,
        src_qp: 0,
        wc_flags: WcFlags::NONE,
        pkey_index: 0,
        slid: 0,
        sl: 0,
        dlid_path_bits: 0,
    };
}

/// An address vector, with the members of `struct ibv_ah_attr`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AhAttr {
    /// Destination GID, when `is_global`.
    pub dgid: Gid,
    /// IPv6 flow label (20 bits), when `is_global`.
    pub flow_label: u32,
    /// Index of the source GID, when `is_global`.
    pub sgid_index: u8,
    /// Hop limit, when `is_global`.
    pub hop_limit: u8,
    /// Traffic class, when `is_global`.
    pub traffic_class: u8,
    /// Destination LID.
    pub dlid: Lid,
    /// Service level, 0 ..= 15.
    pub sl: u8,
    /// Low bits of the source LID.
    pub src_path_bits: u8,
    /// Static rate.
    pub static_rate: u8,
    /// Whether the global members hold (a GRH is sent).
    pub is_global: bool,
    /// Local port, from 1.
    pub port_num: u8,
}

c_bits! {
    /// Which members of [`QpAttr`] a modify call carries (`enum ibv_qp_attr_mask`).
    QpAttrMask {
        /// `qp_state`.
        STATE = 1,
        /// `cur_qp_state`.
        CUR_STATE = 1 << 1,
        /// `en_sqd_async_notify`.
        EN_SQD_ASYNC_NOTIFY = 1 << 2,
        /// `qp_access_flags`.
        ACCESS_FLAGS = 1 << 3,
        /// `pkey_index`.
        PKEY_INDEX = 1 << 4,
        /// `port_num`.
        PORT = 1 << 5,
        /// `qkey`.
        QKEY = 1 << 6,
        /// `ah_attr`.
        AV = 1 << 7,
        /// `path_mtu`.
        PATH_MTU = 1 << 8,
        /// `timeout`.
        TIMEOUT = 1 << 9,
        /// `retry_cnt`.
        RETRY_CNT = 1 << 10,
        /// `rnr_retry`.
        RNR_RETRY = 1 << 11,
        /// `rq_psn`.
        RQ_PSN = 1 << 12,
        /// `max_rd_atomic`.
        MAX_QP_RD_ATOMIC = 1 << 13,
        /// The alternate path.
        ALT_PATH = 1 << 14,
        /// `min_rnr_timer`.
        MIN_RNR_TIMER = 1 << 15,
        /// `sq_psn`.
        SQ_PSN = 1 << 16,
        /// `max_dest_rd_atomic`.
        MAX_DEST_RD_ATOMIC = 1 << 17,
        /// `path_mig_state`.
        PATH_MIG_STATE = 1 << 18,
        /// `cap`.
        CAP = 1 << 19,
        /// `dest_qp_num`.
        DEST_QPN = 1 << 20,
        /// `rate_limit`.
        RATE_LIMIT = 1 << 25,
    }
}

/// Attributes of a queue pair as the caller gave them (`struct ibv_qp_attr`): raw numbers, which
/// `qp::attr::check_modify` checks before they are used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs)]
pub struct QpAttr {
    pub qp_state: QpState,
    pub cur_qp_state: QpState,
    /// As numbered by `enum ibv_mtu`.
    pub path_mtu: u32,
    pub path_mig_state: u32,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: Access,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: bool,
    pub sq_draining: bool,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    /// The code of IBA table 45, 0 ..= 31.
    pub min_rnr_timer: u8,
    pub port_num: u8,
    /// Local ACK time-out: 4.096 us x 2^timeout; 0 means none.
    pub timeout: u8,
    pub retry_cnt: u8,
    /// 7 means for ever.
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

impl Default for QpAttr {
    fn default() -> Self {
        QpAttr {
            qp_state: QpState::Reset,
            cur_qp_state: QpState::Reset,
            path_mtu: 0,
            path_mig_state: 0,
            qkey: 0,
            rq_psn: 0,
            sq_psn: 0,
            dest_qp_num: 0,
            qp_access_flags: Access::NONE,
            cap: QpCap::default(),
            ah_attr: AhAttr::default(),
            alt_ah_attr: AhAttr::default(),
            pkey_index: 0,
            alt_pkey_index: 0,
            en_sqd_async_notify: false,
            sq_draining: false,
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            port_num: 0,
            timeout: 0,
            retry_cnt: 0,
            rnr_retry: 0,
            alt_port_num: 0,
            alt_timeout: 0,
            rate_limit: 0,
        }
    }
}

/// A protection domain's number, unique on its device while it lives.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct PdId(pub u32);

/// An event of an object that no completion reports (`enum ibv_event_type`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u32)]
#[allow(missing_docs)]
pub enum AsyncEventType {
    CqErr = 0,
    QpFatal = 1,
    QpReqErr = 2,
    QpAccessErr = 3,
    CommEst = 4,
    SqDrained = 5,
    PathMig = 6,
    PathMigErr = 7,
    DeviceFatal = 8,
    PortActive = 9,
    PortErr = 10,
    LidChange = 11,
    PkeyChange = 12,
    SmChange = 13,
    SrqErr = 14,
    SrqLimitReached = 15,
    QpLastWqeReached = 16,
    ClientReregister = 17,
    GidChange = 18,
}

/// Which kind of object an [`AsyncEventType`] names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AsyncEventObject {
    /// The object is a CQ.
    Cq,
    /// The object is a QP.
    Qp,
    /// The object is an SRQ.
    Srq,
    /// A port number, or the device as a whole.
    Port,
}

impl AsyncEventType {
    /// The kind of object that the event carries.
    pub const fn object(self) -> AsyncEventObject {
        use AsyncEventType as E;
        match self {
            E::CqErr => AsyncEventObject::Cq,
            E::QpFatal | E::QpReqErr | E::QpAccessErr | E::CommEst | E::SqDrained => {
                AsyncEventObject::Qp
            }
            E::PathMig | E::PathMigErr | E::QpLastWqeReached => AsyncEventObject::Qp,
            E::SrqErr | E::SrqLimitReached => AsyncEventObject::Srq,
            _ => AsyncEventObject::Port,
        }
    }
}

/// The destination of a datagram: address vector, QP and queue key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UdAddress {
    /// The address vector.
    pub ah: AhAttr,
    /// The destination QP.
    pub remote_qpn: Qpn,
    /// The queue key; with its top bit set, the sender's QP's own key is used (IBA 10.2.5).
    pub remote_qkey: u32,
}

/// The partition table of a device: entry 0 is the default partition.
pub const PKEY_TABLE: [PKey; 1] = [PKey::DEFAULT];

#[cfg(test)]
mod tests;

//! Queue pairs.

use std::net::Ipv6Addr;
use std::ptr::{NonNull, null_mut};
use std::sync::{Arc, Mutex, PoisonError};

use rdmalab_abi as abi;
use rdmalab_abi::inline;

use crate::attr::Mtu;
use crate::cm::CmId;
use crate::cq::Cq;
use crate::domain::Pd;
use crate::endpoint::QpEndpoint;
use crate::error::{PostError, VerbsError};
use crate::flags::{Access, QpState, QpType};
use crate::list;
use crate::path::Path;
use crate::recv::{RecvBatch, RecvRequest};
use crate::send::{SendBatch, SendRequest};
use crate::srq::Srq;

/// The queue pair number that multicast datagrams are sent to (IBA vol. 1, 10.5.2).
pub const MULTICAST_QPN: u32 = 0xff_ffff;

/// Capacities of a queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QpCap {
    /// Most send requests.
    pub max_send_wr: u32,
    /// Most receive requests.
    pub max_recv_wr: u32,
    /// Most pieces of a send.
    pub max_send_sge: u32,
    /// Most pieces of a receive.
    pub max_recv_sge: u32,
    /// Most inline bytes of a send.
    pub max_inline_data: u32,
}

/// The settings for a new queue pair. The defaults are 16 sends, 16 receives, one piece each,
/// nothing inline, and completions only for signaled sends.
#[derive(Clone, Debug)]
#[must_use]
pub struct QpBuilder {
    qp_type: QpType,
    send_cq: Cq,
    recv_cq: Cq,
    srq: Option<Srq>,
    cap: QpCap,
    sq_sig_all: bool,
}

impl QpBuilder {
    /// Most send requests.
    pub fn max_send_wr(mut self, max_send_wr: u32) -> Self {
        self.cap.max_send_wr = max_send_wr;
        self
    }

    /// Most receive requests.
    pub fn max_recv_wr(mut self, max_recv_wr: u32) -> Self {
        self.cap.max_recv_wr = max_recv_wr;
        self
    }

    /// Most pieces of a send, and of a receive.
    pub fn max_sge(mut self, max_send_sge: u32, max_recv_sge: u32) -> Self {
        (self.cap.max_send_sge, self.cap.max_recv_sge) = (max_send_sge, max_recv_sge);
        self
    }

    /// Most inline bytes of a send.
    pub fn max_inline_data(mut self, max_inline_data: u32) -> Self {
        self.cap.max_inline_data = max_inline_data;
        self
    }

    /// Takes receives from this shared receive queue.
    pub fn srq(mut self, srq: &Srq) -> Self {
        self.srq = Some(srq.clone());
        self
    }

    /// Every send has a completion.
    pub fn signal_all(mut self) -> Self {
        self.sq_sig_all = true;
        self
    }

    /// Makes it.
    ///
    /// # Errors
    /// `EINVAL` beyond what the device can, `ENOMEM` when there is no room.
    pub fn build(self, pd: &Pd) -> Result<Qp, VerbsError> {
        let library = pd.context().library();
        let mut attr = self.attr();
        // SAFETY: all objects are alive, and the attributes are valid.
        let raw = unsafe { (library.table().create_qp)(pd.raw(), &raw mut attr) };
        let raw = library.not_null("ibv_create_qp", raw)?;
        Ok(self.made(raw, &attr, pd, None))
    }

    /// Creates it on an id of the connection manager, which brings it to INIT, and to RTS when the
    /// connection is established. The domain is one of the id's device ([`CmId::context`]).
    ///
    /// # Errors
    /// `EINVAL` beyond the device's limits, when the id has a queue pair already or no device yet,
    /// or the domain is another device's; `ENOMEM` without resources.
    pub fn build_on(self, id: &CmId, pd: &Pd) -> Result<Qp, VerbsError> {
        let mut attr = self.attr();
        // SAFETY: all objects are alive, and the attributes are valid.
        let raw = unsafe { id.create_qp(pd.raw(), &raw mut attr)? };
        Ok(self.made(raw, &attr, pd, Some(id.clone())))
    }

    fn attr(&self) -> abi::ibv_qp_init_attr {
        abi::ibv_qp_init_attr {
            qp_context: null_mut(),
            send_cq: self.send_cq.raw(),
            recv_cq: self.recv_cq.raw(),
            srq: self.srq.as_ref().map_or(null_mut(), Srq::raw),
            cap: abi::ibv_qp_cap {
                max_send_wr: self.cap.max_send_wr,
                max_recv_wr: self.cap.max_recv_wr,
                max_send_sge: self.cap.max_send_sge,
                max_recv_sge: self.cap.max_recv_sge,
                max_inline_data: self.cap.max_inline_data,
            },
            qp_type: self.qp_type.raw(),
            sq_sig_all: self.sq_sig_all.into(),
        }
    }

    fn made(
        self,
        raw: NonNull<abi::ibv_qp>,
        attr: &abi::ibv_qp_init_attr,
        pd: &Pd,
        id: Option<CmId>,
    ) -> Qp {
        let cap = QpCap {
            max_send_wr: attr.cap.max_send_wr,
            max_recv_wr: attr.cap.max_recv_wr,
            max_send_sge: attr.cap.max_send_sge,
            max_recv_sge: attr.cap.max_recv_sge,
            max_inline_data: attr.cap.max_inline_data,
        };
        let groups = Mutex::default();
        let inner = QpInner { raw, cap, pd: pd.clone(), made: self, groups, id };
        Qp { raw, inner: Arc::new(inner) }
    }
}

/// The attributes that a queue pair needs before it can receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToReceive {
    /// The peer.
    pub remote: QpEndpoint,
    /// The path to the peer.
    pub path: Path,
    /// Path MTU.
    pub mtu: Mtu,
    /// READs and atomics of the peer served at once; RC only.
    pub max_dest_rd_atomic: u8,
    /// How long the peer must wait when no receive is posted, as a code (IBA 9.7.5.2.8; 12 is 0.64
    /// ms); RC only.
    pub min_rnr_timer: u8,
}

impl ReadyToReceive {
    /// One READ at a time, RNR timer 12 (0.64 ms).
    #[must_use]
    pub const fn new(remote: QpEndpoint, path: Path, mtu: Mtu) -> Self {
        Self { remote, path, mtu, max_dest_rd_atomic: 1, min_rnr_timer: 12 }
    }
}

/// The attributes that a queue pair needs before it can send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyToSend {
    /// First PSN, which the peer must know.
    pub sq_psn: u32,
    /// Local ACK time-out, as 4.096 us x 2^n; 0 waits for ever; RC only.
    pub timeout: u8,
    /// Retries after time-outs and sequence errors, up to 7; RC only.
    pub retry_cnt: u8,
    /// Retries after RNR; 7 means for ever; RC only.
    pub rnr_retry: u8,
    /// READs and atomics in flight as requester; RC only.
    pub max_rd_atomic: u8,
}

impl ReadyToSend {
    /// Time-out 14 (67 ms), 7 retries, RNR for ever, one READ at a time.
    #[must_use]
    pub const fn new(sq_psn: u32) -> Self {
        Self { sq_psn, timeout: 14, retry_cnt: 7, rnr_retry: 7, max_rd_atomic: 1 }
    }
}

/// A queue pair. Cheap to clone; destroyed with the last handle.
#[derive(Clone, Debug)]
pub struct Qp {
    raw: NonNull<abi::ibv_qp>,
    inner: Arc<QpInner>,
}

#[derive(Debug)]
struct QpInner {
    raw: NonNull<abi::ibv_qp>,
    cap: QpCap,
    pd: Pd,
    /// Keeps its completion queues and its shared receive queue.
    made: QpBuilder,
    /// The multicast groups that it joined, and has to leave before it can be destroyed.
    groups: Mutex<Vec<(Ipv6Addr, u16)>>,
    /// The connection manager's id that it was made on.
    id: Option<CmId>,
}

// SAFETY: libibverbs may be called from any thread with any of its objects; `inner` keeps the queue
// pair alive.
unsafe impl Send for Qp {}
// SAFETY: as above.
unsafe impl Sync for Qp {}
// SAFETY: as above.
unsafe impl Send for QpInner {}
// SAFETY: as above.
unsafe impl Sync for QpInner {}

impl Drop for QpInner {
    fn drop(&mut self) {
        let table = self.pd.context().library().table();
        let groups = self.groups.get_mut().unwrap_or_else(PoisonError::into_inner);
        for (group, lid) in groups {
            let gid = abi::ibv_gid { raw: group.octets() };
            // SAFETY: it is still there, and the address is read before the call returns.
            let _ = unsafe { (table.detach_mcast)(self.raw.as_ptr(), &raw const gid, *lid) };
        }
        match &self.id {
            // SAFETY: it was made on that id, and is destroyed once.
            Some(id) => unsafe { id.destroy_qp() },
            // SAFETY: made by this library, and destroyed once.
            None => drop(unsafe { (table.destroy_qp)(self.raw.as_ptr()) }),
        }
    }
}

impl Qp {
    /// A builder for a queue pair whose sends and receives complete in these queues.
    pub fn builder(qp_type: QpType, send_cq: &Cq, recv_cq: &Cq) -> QpBuilder {
        QpBuilder {
            qp_type,
            send_cq: send_cq.clone(),
            recv_cq: recv_cq.clone(),
            srq: None,
            cap: QpCap {
                max_send_wr: 16,
                max_recv_wr: 16,
                max_send_sge: 1,
                max_recv_sge: 1,
                max_inline_data: 0,
            },
            sq_sig_all: false,
        }
    }

    /// Its number.
    #[must_use]
    pub fn qp_num(&self) -> u32 {
        // SAFETY: the queue pair is alive; its number does not change.
        unsafe { (*self.raw.as_ptr()).qp_num }
    }

    /// Its transport.
    #[must_use]
    pub fn qp_type(&self) -> QpType {
        self.inner.made.qp_type
    }

    /// Its capacities: at least those requested.
    #[must_use]
    pub fn cap(&self) -> QpCap {
        self.inner.cap
    }

    /// The endpoint by which a peer addresses it through this port. `psn` is the first PSN that it
    /// will send, see [`ReadyToSend::sq_psn`].
    ///
    /// # Errors
    /// When there is no such port or GID.
    pub fn endpoint(&self, path: &Path, psn: u32) -> Result<QpEndpoint, VerbsError> {
        let context = self.inner.pd.context();
        let lid = context.query_port(path.port_num)?.lid;
        let index = path.sgid_index.map_or(0, u32::from);
        let gid = match context.query_gid(path.port_num, index) {
            Ok(gid) => gid,
            Err(error) if path.sgid_index.is_some() => return Err(error),
            Err(_) => Ipv6Addr::UNSPECIFIED,
        };
        Ok(QpEndpoint { lid, qpn: self.qp_num(), psn: psn & 0xff_ffff, gid })
    }

    fn modify(&self, attr: &mut abi::ibv_qp_attr, mask: u32) -> Result<(), VerbsError> {
        let library = self.inner.pd.context().library();
        let modify_qp = library.table().modify_qp;
        // SAFETY: the queue pair is alive, and the attributes are valid.
        let result = unsafe { modify_qp(self.raw.as_ptr(), &raw mut *attr, mask as i32) };
        library.zero("ibv_modify_qp", result)
    }

    /// To INIT: receives can be posted. `access` (of peers) is for RC and UC, `qkey` for UD; the
    /// other one is not used. P_Key index 0.
    ///
    /// # Errors
    /// `EINVAL` when it is not in RESET, or there is no such port.
    pub fn to_init(&self, port_num: u8, access: Access, qkey: u32) -> Result<(), VerbsError> {
        let mut attr = abi::ibv_qp_attr::zeroed();
        attr.qp_state = abi::IBV_QPS_INIT;
        attr.port_num = port_num;
        attr.qp_access_flags = access.bits();
        attr.qkey = qkey;
        let own = match self.qp_type() {
            QpType::Ud => abi::IBV_QP_QKEY,
            QpType::Rc | QpType::Uc => abi::IBV_QP_ACCESS_FLAGS,
        };
        self.modify(&mut attr, abi::IBV_QP_STATE | abi::IBV_QP_PKEY_INDEX | abi::IBV_QP_PORT | own)
    }

    /// Joins a multicast group; UD only. It then receives datagrams to the group and
    /// [`MULTICAST_QPN`], and leaves when it is destroyed. On InfiniBand the port must have joined
    /// too, which the subnet manager has to grant.
    ///
    /// # Errors
    /// `EINVAL` if it is not a multicast group, `ENOMEM` beyond the device's limits.
    pub fn join(&self, group: Ipv6Addr, lid: u16) -> Result<(), VerbsError> {
        let library = self.inner.pd.context().library();
        let gid = abi::ibv_gid { raw: group.octets() };
        let attach_mcast = library.table().attach_mcast;
        // SAFETY: the queue pair is alive, and the address is read before the call returns.
        let result = unsafe { attach_mcast(self.raw.as_ptr(), &raw const gid, lid) };
        library.zero("ibv_attach_mcast", result)?;
        self.inner.groups.lock().unwrap_or_else(PoisonError::into_inner).push((group, lid));
        Ok(())
    }

    /// To RTR: it receives. UD uses nothing of the attributes.
    ///
    /// # Errors
    /// `EINVAL` when it is not in INIT, or the peer cannot be reached that way.
    pub fn to_rtr(&self, to: &ReadyToReceive) -> Result<(), VerbsError> {
        let mut attr = abi::ibv_qp_attr::zeroed();
        attr.qp_state = abi::IBV_QPS_RTR;
        attr.ah_attr = to.path.to_raw(&to.remote);
        attr.path_mtu = to.mtu.raw();
        attr.dest_qp_num = to.remote.qpn;
        attr.rq_psn = to.remote.psn;
        attr.max_dest_rd_atomic = to.max_dest_rd_atomic;
        attr.min_rnr_timer = to.min_rnr_timer;
        let connected =
            abi::IBV_QP_AV | abi::IBV_QP_PATH_MTU | abi::IBV_QP_DEST_QPN | abi::IBV_QP_RQ_PSN;
        let own = match self.qp_type() {
            QpType::Ud => 0,
            QpType::Uc => connected,
            QpType::Rc => connected | abi::IBV_QP_MAX_DEST_RD_ATOMIC | abi::IBV_QP_MIN_RNR_TIMER,
        };
        self.modify(&mut attr, abi::IBV_QP_STATE | own)
    }

    /// To RTS: it sends.
    ///
    /// # Errors
    /// `EINVAL` when it is not in RTR, or a value is out of its range.
    pub fn to_rts(&self, with: &ReadyToSend) -> Result<(), VerbsError> {
        let mut attr = abi::ibv_qp_attr::zeroed();
        attr.qp_state = abi::IBV_QPS_RTS;
        attr.sq_psn = with.sq_psn;
        attr.timeout = with.timeout;
        attr.retry_cnt = with.retry_cnt;
        attr.rnr_retry = with.rnr_retry;
        attr.max_rd_atomic = with.max_rd_atomic;
        let own = match self.qp_type() {
            QpType::Ud | QpType::Uc => 0,
            QpType::Rc => {
                abi::IBV_QP_TIMEOUT
                    | abi::IBV_QP_RETRY_CNT
                    | abi::IBV_QP_RNR_RETRY
                    | abi::IBV_QP_MAX_QP_RD_ATOMIC
            }
        };
        self.modify(&mut attr, abi::IBV_QP_STATE | abi::IBV_QP_SQ_PSN | own)
    }

    /// To another state that needs no attributes: RESET or ERR.
    ///
    /// # Errors
    /// `EINVAL` for other states.
    pub fn to_state(&self, state: QpState) -> Result<(), VerbsError> {
        let mut attr = abi::ibv_qp_attr::zeroed();
        attr.qp_state = state.raw();
        self.modify(&mut attr, abi::IBV_QP_STATE)
    }

    /// The state that it is in.
    ///
    /// # Errors
    /// The library's error.
    pub fn state(&self) -> Result<QpState, VerbsError> {
        self.query(abi::IBV_QP_STATE).map(|attr| QpState::from_raw(attr.qp_state))
    }

    fn query(&self, mask: u32) -> Result<abi::ibv_qp_attr, VerbsError> {
        let library = self.inner.pd.context().library();
        let mut attr = abi::ibv_qp_attr::zeroed();
        let mut init = abi::ibv_qp_init_attr::zeroed();
        let mask = mask as i32;
        // SAFETY: the queue pair is alive, and both answers are valid for writes.
        let result = unsafe {
            (library.table().query_qp)(self.raw.as_ptr(), &raw mut attr, mask, &raw mut init)
        };
        library.zero("ibv_query_qp", result)?;
        Ok(attr)
    }

    /// How long a peer must wait when no receive is posted, as a code; RC only.
    ///
    /// # Errors
    /// The library's error.
    pub fn min_rnr_timer(&self) -> Result<u8, VerbsError> {
        self.query(abi::IBV_QP_MIN_RNR_TIMER).map(|attr| attr.min_rnr_timer)
    }

    /// Sets the value of [`Qp::min_rnr_timer`]. For queue pairs that the connection manager brought
    /// to RTS: it leaves 0, which is 655 ms (IBA 9.7.5.2.8).
    ///
    /// # Errors
    /// `EINVAL` before RTR, or above 31.
    pub fn set_min_rnr_timer(&self, code: u8) -> Result<(), VerbsError> {
        let mut attr = abi::ibv_qp_attr::zeroed();
        attr.min_rnr_timer = code;
        self.modify(&mut attr, abi::IBV_QP_MIN_RNR_TIMER)
    }

    /// Posts sends, in order. Allocates nothing.
    ///
    /// # Errors
    /// How many were posted, and why the next one was not.
    #[inline]
    pub fn post_send(&self, requests: &[SendRequest<'_, '_>]) -> Result<(), PostError> {
        // SAFETY: the queue pair is alive; the requests borrow their memory, and posting copies the
        // needed parts of the list.
        let result = unsafe {
            list::post(requests, SendRequest::raw, |wr, bad| {
                inline::ibv_post_send(self.raw.as_ptr(), wr, bad)
            })
        };
        result.map_err(|(posted, errno)| self.refused("ibv_post_send", posted, errno))
    }

    /// Posts receives, in order. Allocates nothing.
    ///
    /// # Errors
    /// How many were posted, and why the next one was not.
    #[inline]
    pub fn post_recv(&self, requests: &[RecvRequest<'_, '_>]) -> Result<(), PostError> {
        // SAFETY: as in `post_send`.
        let result = unsafe {
            list::post(requests, RecvRequest::raw, |wr, bad| {
                inline::ibv_post_recv(self.raw.as_ptr(), wr, bad)
            })
        };
        result.map_err(|(posted, errno)| self.refused("ibv_post_recv", posted, errno))
    }

    /// Posts a prepared list as a whole.
    ///
    /// # Errors
    /// How many were posted, and why the next one was not.
    #[inline]
    pub fn post_send_batch(&self, batch: &mut SendBatch<'_>) -> Result<(), PostError> {
        let (head, mut bad) = (batch.head(), null_mut());
        // SAFETY: the queue pair is alive; the list is whole, and what it names is borrowed.
        let result = unsafe { inline::ibv_post_send(self.raw.as_ptr(), head, &raw mut bad) };
        if result == 0 {
            return Ok(());
        }
        Err(self.refused("ibv_post_send", list::place(head, bad, batch.len()), result))
    }

    /// Posts `count` requests of a prepared list, from `first` on, as one list.
    ///
    /// # Errors
    /// How many were posted, and why the next one was not.
    ///
    /// # Panics
    /// When the list has fewer requests, or `count` is 0.
    #[inline]
    pub fn post_send_part(
        &self,
        batch: &mut SendBatch<'_>,
        first: usize,
        count: usize,
    ) -> Result<(), PostError> {
        let mut bad = null_mut();
        batch.with_part(first, count, |head| {
            // SAFETY: the queue pair is alive; the part is a list of its own, and what it names is
            // borrowed.
            let result = unsafe { inline::ibv_post_send(self.raw.as_ptr(), head, &raw mut bad) };
            if result == 0 {
                return Ok(());
            }
            Err(self.refused("ibv_post_send", list::place(head, bad, count), result))
        })
    }

    /// Posts a prepared list as a whole.
    ///
    /// # Errors
    /// How many were posted, and why the next one was not.
    #[inline]
    pub fn post_recv_batch(&self, batch: &mut RecvBatch<'_>) -> Result<(), PostError> {
        let (head, mut bad) = (batch.head(), null_mut());
        // SAFETY: as in `post_send_batch`.
        let result = unsafe { inline::ibv_post_recv(self.raw.as_ptr(), head, &raw mut bad) };
        if result == 0 {
            return Ok(());
        }
        Err(self.refused("ibv_post_recv", list::place(head, bad, batch.len()), result))
    }

    #[cold]
    fn refused(&self, verb: &'static str, posted: usize, errno: i32) -> PostError {
        let errno = if errno == -1 { crate::library::last_errno() } else { errno.abs() };
        PostError { posted, error: self.inner.pd.context().library().error(verb, errno) }
    }
}

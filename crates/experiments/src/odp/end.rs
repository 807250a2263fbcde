//! The resources of one trial at one end. Each trial has new ones, so that no page is known to an
//! adapter, and no queue pair has been used.

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{
    Access, Context, Cq, Mr, Path, Pd, Qp, QpEndpoint, QpType, RecvRequest, RemoteBuffer,
};

use crate::common::completions::failed;
use crate::common::connection::{mtu_of, path_of, psn, rights, to_rts};
use crate::common::handshake::{self, Handshake};
use crate::common::limits::Limits;
use crate::common::local_end;
use crate::common::params::{Common, Op};
use crate::odp::layout::Plan;
use crate::odp::options::WorkAround;

/// What is the same in all trials of an end.
pub(super) struct Setting<'a> {
    pub context: &'a Context,
    pub limits: &'a Limits,
    /// With the operation that decides how many READs may be under way.
    pub common: Common,
    pub plan: Plan,
    /// Whether the memory of this end is registered for on-demand paging.
    pub is_paged: bool,
    path: Path,
}

impl<'a> Setting<'a> {
    pub fn new(
        context: &'a Context,
        limits: &'a Limits,
        common: &Common,
        plan: Plan,
        is_paged: bool,
    ) -> Self {
        let op = if plan.reads() { Op::Read } else { common.op };
        let common = Common { op, ..common.clone() };
        let path = path_of(&common, limits);
        Self { context, limits, common, plan, is_paged, path }
    }
}

/// One end of a trial.
pub(super) struct TrialEnd {
    pub qps: Vec<Qp>,
    pub cq: Cq,
    pub mr: Mr,
    pub peer: RemoteBuffer,
    // Completions of receives, which nobody looks at.
    _received: Cq,
    _pd: Pd,
}

impl TrialEnd {
    /// Makes an end and connects it; `None` where an end was asked to stop.
    pub fn connect<R: Rank>(rank: &R, setting: &Setting) -> Result<Option<Self>, Stopped> {
        let Setting { context, common, plan, path, .. } = setting;
        let pd = context.alloc_pd().map_err(failed)?;
        let buffer = local_end::memory(rank, context, common, plan.bytes())?;
        let paged = if setting.is_paged { Access::ON_DEMAND } else { Access::LOCAL_READ };
        let mr = pd.register(&buffer, rights(common.op) | paged).map_err(failed)?;
        if setting.is_paged && plan.work_around == WorkAround::Prefetch {
            pd.prefetch(&mr, 0, buffer.len(), true).map_err(failed)?;
        }
        let depth = plan.depth() as u32;
        let all = depth.saturating_mul(common.qps).min(setting.limits.max_cqe);
        let cq = context.create_cq(all, None).map_err(failed)?;
        let received = context.create_cq(all, None).map_err(failed)?;
        let qp = || {
            let builder = Qp::builder(QpType::Rc, &cq, &received);
            builder.max_send_wr(depth).max_recv_wr(depth).build(&pd)
        };
        let qps: Result<Vec<Qp>, _> = (0..common.qps).map(|_| qp()).collect();
        let qps = qps.map_err(failed)?;
        let endpoint = |qp: &Qp| {
            qp.to_init(common.port, rights(common.op), 0)?;
            qp.endpoint(path, psn(common.seed, rank.index(), qp))
        };
        let ours: Result<Vec<QpEndpoint>, _> = qps.iter().map(endpoint).collect();
        let ours = ours.map_err(failed)?;
        let mtu_bytes = mtu_of(common.packet_bytes(setting.limits)).bytes() as u32;
        let said = match rank.is_asked_to_stop() {
            true => String::new(),
            false => handshake::write(mtu_bytes, mr.remote(), buffer.backing(), &ours),
        };
        let all = rank.exchange_to_end(said.as_bytes())?;
        if all.iter().any(Vec::is_empty) {
            return Ok(None);
        }
        let other = all
            .get(1 - rank.index())
            .and_then(|bytes| Handshake::<QpEndpoint>::read(bytes, |line| line.parse().ok()))
            .filter(|other| other.endpoints.len() == qps.len())
            .ok_or_else(|| failed("the handshake of the other end is not understood"))?;
        let mtu = mtu_of(other.mtu_bytes.min(mtu_bytes));
        for (qp, remote) in qps.iter().zip(&other.endpoints) {
            to_rts(qp, rank.index(), common, path, mtu, remote)?;
        }
        Ok(Some(Self { qps, cq, mr, peer: other.memory, _received: received, _pd: pd }))
    }

    /// Posts the receives of all SENDs that will come.
    pub fn post_receives(&self, plan: &Plan) -> Result<(), Stopped> {
        for (number, qp) in self.qps.iter().enumerate() {
            for one in plan.receives(number) {
                let sges = [self.mr.sge(one.at, one.bytes)];
                qp.post_recv(&[RecvRequest::new(&sges)]).map_err(failed)?;
            }
        }
        Ok(())
    }
}

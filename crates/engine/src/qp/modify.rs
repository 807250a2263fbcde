//! `ibv_modify_qp`: applying checked attributes, and what each change of state does.

use super::attr::{self, Limits};
use super::requester_state::{Requester, Timer, TimerKind};
use super::{Env, Qp};
use crate::backend::{VerbsError, VerbsResult};
use crate::vocab::*;
use rdmalab_wire::ids::{MASK_24, PathMtu, Psn, Qpn};

impl Qp {
    /// Checks and applies `wanted`; returns the state afterwards. Nothing changes on an error.
    pub fn modify<E: Env>(
        &mut self,
        wanted: &QpAttr,
        mask: QpAttrMask,
        limits: &Limits,
        env: &mut E,
    ) -> VerbsResult<QpState> {
        // As in the kernel, only the low 24 bits of a PSN count: programs pass any random number.
        let wanted =
            &QpAttr { rq_psn: wanted.rq_psn & MASK_24, sq_psn: wanted.sq_psn & MASK_24, ..*wanted };
        let next = attr::check_modify(self.qp_type, self.state, mask, wanted, limits)
            .map_err(VerbsError::from)?;
        attr::check_path_port(self.state, self.attr.port_num, mask, wanted)
            .map_err(VerbsError::from)?;
        let from = self.state;
        if next == QpState::Err {
            self.enter_error(env);
            self.state = QpState::Err;
            self.attr.qp_state = QpState::Err;
            return Ok(next);
        }
        if next == QpState::Reset {
            self.reset();
            return Ok(next);
        }
        self.apply(wanted, mask);
        self.state = next;
        self.attr.qp_state = next;
        self.entered(from, env);
        Ok(next)
    }

    fn apply(&mut self, wanted: &QpAttr, mask: QpAttrMask) {
        let attr = &mut self.attr;
        macro_rules! take {
            ($($bit:ident => $($member:ident),+;)*) => {
                $(if mask.contains(QpAttrMask::$bit) { $(attr.$member = wanted.$member;)+ })*
            };
        }
        take! {
            EN_SQD_ASYNC_NOTIFY => en_sqd_async_notify;
            ACCESS_FLAGS => qp_access_flags;
            PKEY_INDEX => pkey_index;
            PORT => port_num;
            QKEY => qkey;
            AV => ah_attr;
            PATH_MTU => path_mtu;
            TIMEOUT => timeout;
            RETRY_CNT => retry_cnt;
            RNR_RETRY => rnr_retry;
            RQ_PSN => rq_psn;
            MAX_QP_RD_ATOMIC => max_rd_atomic;
            MIN_RNR_TIMER => min_rnr_timer;
            SQ_PSN => sq_psn;
            MAX_DEST_RD_ATOMIC => max_dest_rd_atomic;
            DEST_QPN => dest_qp_num;
        }
        if mask.contains(QpAttrMask::AV) && self.state == QpState::Sqd {
            attr.port_num = wanted.ah_attr.port_num;
        }
        if mask.contains(QpAttrMask::PATH_MTU)
            && let Some(mtu) = PathMtu::from_ibv(wanted.path_mtu)
        {
            self.mtu = mtu;
        }
        if mask.contains(QpAttrMask::DEST_QPN) {
            self.remote_qpn = Qpn::new(wanted.dest_qp_num);
        }
    }

    fn entered<E: Env>(&mut self, from: QpState, env: &mut E) {
        match (from, self.state) {
            (QpState::Init, QpState::Rtr) => self.start_responder(),
            (QpState::Rtr, QpState::Rts) => {
                debug_assert!(self.send_idle(), "a send was posted before RTS");
                let psn = Psn::new(self.attr.sq_psn);
                self.established = true;
                self.req.start(psn, self.attr.retry_cnt, self.attr.rnr_retry);
            }
            (QpState::Rts, QpState::Sqd) => {
                self.drain_reported = false;
                self.ask_while_draining();
                self.report_drained(env);
            }
            _ => {}
        }
        self.assert_requester();
    }

    /// Discards everything that was posted, without completions (IBA vol. 1, 10.3.1.2).
    fn reset(&mut self) {
        let cap = self.attr.cap;
        self.generation = self.generation.wrapping_add(1);
        self.counted.reset(self.sq.oldest);
        self.sq.reset();
        if let Some(rq) = &mut self.rq {
            rq.reset();
        }
        self.req = Requester { packets: self.req.packets, ..Requester::default() };
        self.resp.start(Psn::new(0));
        self.attr = QpAttr { cap, ..QpAttr::default() };
        self.state = QpState::Reset;
        self.established = false;
        self.remote_qpn = Qpn::new(0);
    }

    /// All attributes as they are now.
    pub fn query(&self) -> QpAttr {
        let mut attr = self.attr;
        attr.qp_state = self.state;
        attr.cur_qp_state = self.state;
        attr.sq_draining = self.state == QpState::Sqd && self.sq.oldest != self.sq.begun;
        if matches!(self.state, QpState::Rts | QpState::Sqd | QpState::Sqe) {
            attr.sq_psn = self.next_new_psn().get();
        }
        if self.state.can_receive() && self.qp_type != QpType::Ud {
            attr.rq_psn = self.expected_psn().get();
        }
        attr
    }

    /// Restarts the ACK timer, which the driver had stopped, if a request is outstanding.
    pub fn want_timer(&mut self) {
        if self.req.timer == Timer::Idle && self.sq.oldest != self.sq.begun {
            self.req.timer = Timer::Wanted(TimerKind::Ack);
        }
    }
}

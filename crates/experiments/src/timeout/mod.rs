//! `timeout`: how long a request to nobody takes to fail, as in fukuoka2021.
//!
//! IBA 9.7.6.1.3: with the code C_ACK, T_tr is 4.096 us x 2^C_ACK, and an adapter sends a request
//! again after T_o, between T_tr and 4 T_tr; each adapter has a smallest C_ACK, below which nothing
//! gets faster. A request that is never answered fails after `retry_cnt` + 1 times T_o.
//!
//! Rank 1 makes a queue pair, says where, and destroys it: what comes for it is dropped without an
//! answer. Rank 0 sends there, or, as the study did, to a LID that nobody has: then it is the
//! network that drops.

mod options;

use rdmalab_measure::{Outcome, Quantity};
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{
    Access, Context, Cq, Pd, Qp, QpEndpoint, QpState, QpType, SendRequest, Wc, WcStatus,
};

use crate::common::completions::failed;
use crate::common::connection::{mtu_of, path_of, psn, to_rts};
use crate::common::effort::{Begin, Effort};
use crate::common::limits::Limits;
use crate::common::local_end::device_facts;
use crate::common::lockstep::cut_short;
use crate::common::option::{Choice, choices};
use crate::common::options::*;
use crate::common::params::Common;
use crate::common::rules::{Fault, must};
use crate::common::samples::parts;
use crate::workload::{ResultKind, ResultShape, Workload};
pub(crate) use options::Timeout;
use options::{ABSENT, Absent, LIMIT};

impl Workload for Timeout {
    const NAME: &'static str = "timeout";
    const SUMMARY: &'static str = "a request to a queue pair that is gone, until it fails: the \
        time-out that a C_ACK really gives";
    const OPTIONS: &'static [Choice<Self>] = choices! {
        Common [MESSAGES RUNS MTU SL PORT GID_INDEX TIMEOUT RETRY_CNT]
        Own [LIMIT ABSENT]
        Common [SEED LINK SIM]
    };
    const COMMON: Common =
        Common { messages: 20, warm_up: 0, timeout: 10, retry_cnt: 1, ..Common::DEFAULT };
    const OWN: Self = Self { limit_ns: 0, absent: Absent::QueuePair };
    const WAITS: bool = false;

    fn check(&self, common: &Common, limits: &Limits) -> Result<(), Fault> {
        must(common.timeout > 0, "timeout", || {
            "0 disables the time-out: choose 1 to 31".to_owned()
        })?;
        let by_gid = limits.needs_gid || common.gid_index.is_some();
        must(self.absent != Absent::Lid || !by_gid, "absent", || {
            format!("{NO_LIDS}: choose queue_pair")
        })?;
        let attempts = u64::from(common.retry_cnt) + 1;
        let least_ns = least_ns(common);
        must(least_ns <= limit_ns(common, self), "timeout", || {
            format!(
                "a sample takes {attempts} x {:.1} s or more: choose fewer --retry-cnt, or a \
                 --limit above {:.0}s",
                least_ns as f64 / attempts as f64 / 1e9,
                (least_ns as f64 / 1e9).ceil()
            )
        })
    }

    fn series(&self, _: &Common) -> u64 {
        2
    }

    fn quantities(&self, _: &Common) -> Vec<Quantity> {
        vec![Quantity::CompletionTime, Quantity::Timeout]
    }

    fn results(&self, _: &Common) -> &'static [ResultShape] {
        &[
            (Quantity::CompletionTime, "until it fails", ResultKind::OfMessages),
            (Quantity::Timeout, "T_o", ResultKind::OfMessages),
            (Quantity::Timeout, "T_tr", ResultKind::Figure),
        ]
    }

    fn message_ns(&self, common: &Common) -> f64 {
        least_ns(common) as f64
    }

    fn run<R: Rank + Sync>(
        &self,
        common: &Common,
        rank: &R,
        context: &Context,
        limits: &Limits,
    ) -> Result<Outcome, Stopped> {
        let path = path_of(common, limits);
        let lone = Lone::new(context)?;
        lone.init(common)?;
        let psn = psn(common.seed, rank.index(), &lone.qp);
        let endpoint = lone.qp.endpoint(&path, psn).map_err(failed)?;
        let active = (rank.index() == 0).then_some(lone);
        // Whoever reads this knows that the other end's is gone.
        let all = rank.exchange(endpoint.to_string().as_bytes())?;
        let text = all.get(1).map(|bytes| String::from_utf8_lossy(bytes).into_owned());
        let gone = text.and_then(|text| text.parse().ok());
        let gone: QpEndpoint =
            gone.ok_or_else(|| failed("the handshake of the other end is not understood"))?;
        let gone = match self.absent {
            Absent::QueuePair => gone,
            Absent::Lid => nowhere(&gone, endpoint.lid, path.sgid_index.is_none())?,
        };
        let mut outcome = Outcome::default();
        device_facts(context, &mut outcome);
        match &active {
            Some(lone) => {
                let mtu = mtu_of(common.packet_bytes(limits));
                let to = |qp: &Qp| to_rts(qp, rank.index(), common, &path, mtu, &gone);
                active_end((common, self), rank, lone, &to, &mut outcome)?;
            }
            None => outcome.cut_short = cut_short(wait_until_done(rank))?,
        }
        Ok(outcome)
    }
}

/// The largest LID of a port (IBA 4.1.3), which subnet managers give last.
const NOBODYS_LID: u16 = 0xbfff;

/// T_tr of a code.
const fn nominal_ns(code: u8) -> u64 {
    4096 << (code & 31)
}

/// The least that a sample takes: T_tr for each attempt.
const fn least_ns(common: &Common) -> u64 {
    nominal_ns(common.timeout).saturating_mul(common.retry_cnt as u64 + 1)
}

/// The longest that a sample may take where nobody says so: what an adapter may take by IBA, and
/// some more for what is not the adapter; of that not less, and not more than this.
const LIMIT_NS: std::ops::RangeInclusive<u64> = 20_000_000_000..=600_000_000_000;

/// The longest that a sample of a point may take.
fn limit_ns(common: &Common, own: &Timeout) -> u64 {
    match own.limit_ns {
        0 => least_ns(common).saturating_mul(5).clamp(*LIMIT_NS.start(), *LIMIT_NS.end()),
        given => given,
    }
}

/// A queue pair, and what it hangs on.
struct Lone {
    qp: Qp,
    cq: Cq,
    _pd: Pd,
}

impl Lone {
    fn new(context: &Context) -> Result<Self, Stopped> {
        let pd = context.alloc_pd().map_err(failed)?;
        let cq = context.create_cq(4, None).map_err(failed)?;
        let builder = Qp::builder(QpType::Rc, &cq, &cq).max_send_wr(2).max_recv_wr(1);
        let qp = builder.build(&pd).map_err(failed)?;
        Ok(Self { qp, cq, _pd: pd })
    }

    fn init(&self, common: &Common) -> Result<(), Stopped> {
        self.qp.to_init(common.port, Access::REMOTE_WRITE | Access::LOCAL_WRITE, 0).map_err(failed)
    }
}

/// Why `--absent lid` is impossible.
const NO_LIDS: &str = "without LIDs (RoCE, or with --gid-index) an unknown address is rejected \
                       before anything is sent, so no time-out can be measured";

/// The endpoint with a LID that nobody has.
fn nowhere(gone: &QpEndpoint, own_lid: u16, by_lid: bool) -> Result<QpEndpoint, Stopped> {
    if !by_lid || gone.lid == 0 {
        return Err(failed(format!("--absent lid: {NO_LIDS}: choose --absent queue_pair")));
    }
    let is_taken = |lid: &u16| *lid == gone.lid || *lid == own_lid;
    let lid = (1..=NOBODYS_LID).rev().find(|lid| !is_taken(lid)).unwrap_or(NOBODYS_LID);
    Ok(QpEndpoint { lid, ..*gone })
}

/// What rank 0 says while it goes on.
const GOES_ON: [u8; 1] = [1];
const IS_OVER: [u8; 1] = [0];

/// How long rank 1 is left alone: two of these are half of its patience.
fn slice_ns<R: Rank>(rank: &R) -> u64 {
    (rank.patience_ns() / 4).max(1)
}

/// Meets rank 0 now and then until it is through: nobody waits for longer than his patience.
fn wait_until_done<R: Rank>(rank: &R) -> Result<(), Stopped> {
    loop {
        let all = rank.exchange_to_end(&GOES_ON)?;
        if all.first().is_none_or(|bytes| bytes[..] != GOES_ON) {
            return Ok(());
        }
    }
}

fn active_end<R: Rank>(
    (common, own): (&Common, &Timeout),
    rank: &R,
    lone: &Lone,
    connect: &dyn Fn(&Qp) -> Result<(), Stopped>,
    outcome: &mut Outcome,
) -> Result<(), Stopped> {
    let mut samples = Vec::new();
    let mut effort = Effort::default();
    let begin = Begin::now(rank);
    let mut met = rank.now();
    let mut is_longer = false;
    let mut all = || {
        for _ in 0..parts(common).sum() {
            if rank.clock().ns_between(met, rank.now()) > slice_ns(rank) as f64 {
                rank.exchange(&GOES_ON)?;
                met = rank.now();
            }
            lone.qp.to_state(QpState::Reset).map_err(failed)?;
            lone.init(common)?;
            connect(&lone.qp)?;
            let Some(ns) = sample((common, own), rank, lone)? else {
                is_longer = true;
                break;
            };
            samples.push(ns);
        }
        Ok(())
    };
    let result = all();
    begin.end(rank, &mut effort);
    outcome.cut_short = match result {
        // Of the other end, which did not come to be met.
        Err(Stopped::TimedOut(why)) => Some(why),
        other => cut_short(other)?,
    };
    let over = rank.exchange_to_end(&IS_OVER);
    if outcome.cut_short.is_none() {
        over?;
    }
    let attempts = f64::from(common.retry_cnt) + 1.0;
    let each = samples.iter().map(|ns| ns / attempts).collect();
    outcome.push_count("failed", samples.len() as u64);
    // A finding: it takes longer than that. So would each further sample, and another run.
    outcome.push_count("longer_than_limit", is_longer.into());
    if is_longer {
        outcome.warnings.push(longer_than_limit(common, own, samples.len()));
    }
    outcome.push_series(Quantity::CompletionTime, "until it fails", 0, samples);
    outcome.push_series(Quantity::Timeout, "T_o", 0, each);
    let nominal_ns = nominal_ns(common.timeout) as f64;
    outcome.push_figure(Quantity::Timeout, "T_tr", nominal_ns);
    effort.push(outcome, "rank 0");
    Ok(())
}

/// What a request that did not fail within the limit says.
fn longer_than_limit(common: &Common, own: &Timeout, samples: usize) -> String {
    format!(
        "--limit: after {samples} samples a request did not fail within {:.3} s, so T_o is longer \
         than the samples show; at C_ACK {} and {} retries a request may take four times {:.3} s: \
         choose a larger --limit, or fewer retries",
        limit_ns(common, own) as f64 / 1e9,
        common.timeout,
        common.retry_cnt,
        least_ns(common) as f64 / 1e9
    )
}

/// Posts, and waits until it fails; `None` when it does not within the limit.
fn sample<R: Rank>(
    (common, own): (&Common, &Timeout),
    rank: &R,
    lone: &Lone,
) -> Result<Option<f64>, Stopped> {
    let slice_ns = slice_ns(rank);
    let begin = rank.now();
    lone.qp.post_send(&[SendRequest::send(&[]).signaled()]).map_err(failed)?;
    let mut wcs = [Wc::default()];
    loop {
        let waited_ns = rank.clock().ns_between(begin, rank.now());
        let left_ns = limit_ns(common, own).saturating_sub(waited_ns as u64);
        if left_ns == 0 {
            return Ok(None);
        }
        let found = rank.spin_for(left_ns.min(slice_ns), || match lone.cq.poll(&mut wcs) {
            Ok(0) => None,
            other => Some(other),
        })?;
        let end = rank.now();
        match found {
            Some(result) => {
                result.map_err(failed)?;
                return match wcs[0].status() {
                    Err(WcStatus::RetryExceeded) => Ok(Some(rank.clock().ns_between(begin, end))),
                    Err(other) => Err(failed(format!(
                        "the request to the absent peer ended with another status: {other}"
                    ))),
                    Ok(()) => Err(failed("the request to the absent peer was answered")),
                };
            }
            None if left_ns > slice_ns => drop(rank.exchange(&GOES_ON)?),
            None => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Common, QpEndpoint, Timeout, nominal_ns};
    use crate::workload::Workload;

    #[test]
    fn a_code_is_a_time() {
        assert_eq!((nominal_ns(0), nominal_ns(1), nominal_ns(14)), (4096, 8192, 67_108_864));
        assert_eq!(nominal_ns(31), 8_796_093_022_208);
    }

    #[test]
    fn a_limit_grows_with_what_there_is_to_wait_for() {
        let of = |timeout, retry_cnt, limit_ns| {
            let common = Common { timeout, retry_cnt, ..Timeout::COMMON };
            super::limit_ns(&common, &Timeout { limit_ns, ..Timeout::OWN }) / 1_000_000_000
        };
        // As fukuoka2021 has them: 8 x 4.3 s at the least, and four times that at the most.
        assert_eq!((of(1, 7, 0), of(18, 7, 0), of(20, 7, 0)), (20, 42, 171));
        assert_eq!((of(31, 7, 0), of(20, 7, 5_000_000_000)), (600, 5));
    }

    #[test]
    fn nobody_has_that_lid() {
        let gone = |lid| QpEndpoint { lid, qpn: 2, psn: 3, gid: "::".parse().unwrap() };
        let lid = |of, own| super::nowhere(&gone(of), own, true).map(|there| there.lid);
        assert_eq!(lid(1, 1), Ok(0xbfff));
        assert_eq!(lid(0xbfff, 0xbffe), Ok(0xbffd));
        assert!(lid(0, 0).unwrap_err().to_string().contains("choose --absent queue_pair"));
        assert!(super::nowhere(&gone(1), 1, false).is_err());
    }
}

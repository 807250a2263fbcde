//! The resources of an end of an experiment: queue pairs, memory, and values that the device
//! granted.

use std::sync::atomic::Ordering;

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{
    Backing, Buffer, Context, Kind, Mr, Mtu, Path, Pd, Qp, QpState, QpType, Wc, WcStatus,
};

use crate::common::completions::{Completions, failed};
use crate::common::connection::{QKEY, mtu_of, path_of, qp_type, rights};
use crate::common::limits::Limits;
use crate::common::params::{Common, Memory};

/// The resources of an end; see the module's text.
pub(crate) struct LocalEnd {
    pub qps: Vec<Qp>,
    pub send: Completions,
    pub recv: Completions,
    pub pd: Pd,
    pub mr: Mr,
    /// Inline bytes granted.
    pub inline_bytes: u32,
    pub path: Path,
    pub mtu: Mtu,
    pub transport: QpType,
    pub kind: Kind,
    pub device: String,
    pub gid: String,
    pub link_layer: String,
}

impl LocalEnd {
    /// The end with these resources, whose queue pairs are brought to INIT.
    ///
    /// # Errors
    /// If the device refuses.
    pub fn new(
        context: &Context,
        common: &Common,
        limits: &Limits,
        (pd, mr): (Pd, Mr),
        (send, recv): (Completions, Completions),
        qps: Vec<Qp>,
    ) -> Result<Self, Stopped> {
        for qp in &qps {
            qp.to_init(common.port, rights(common.op), QKEY).map_err(failed)?;
        }
        let inline_bytes = qps.iter().map(|qp| qp.cap().max_inline_data).min().unwrap_or(0);
        Ok(Self {
            qps,
            send,
            recv,
            pd,
            mr,
            inline_bytes,
            path: path_of(common, limits),
            mtu: mtu_of(common.packet_bytes(limits)),
            transport: qp_type(common.transport),
            kind: context.kind(),
            device: context.device_name().to_owned(),
            gid: "none".to_owned(),
            link_layer: limits.link_layer.clone(),
        })
    }

    /// The memory.
    #[inline]
    pub fn memory(&self) -> &Buffer {
        self.mr.buffer()
    }

    /// Which queue pair a completion belongs to.
    pub fn index_of(&self, qp_num: u32) -> Option<usize> {
        self.qps.iter().position(|qp| qp.qp_num() == qp_num)
    }

    /// Adds the negotiated and granted values to the facts. `inline`: whether messages of this
    /// point go inline; `far`: what kind of memory backs the memory of the other ends.
    pub fn facts<'a>(
        &self,
        outcome: &mut Outcome,
        inline: bool,
        mut far: impl Iterator<Item = &'a str>,
    ) {
        let (own, shared) = (self.memory().backing(), Backing::Shared.to_string());
        let other = far.find(|backing| *backing != shared);
        let placement = match (self.kind, other) {
            (Kind::System, _) => "adapter".to_owned(),
            (_, None) if own == Backing::Shared => "memfd-backed at both ends".to_owned(),
            (_, other) => format!("{own} here, {} there", other.unwrap_or(&shared)),
        };
        outcome.push_fact("device_kind", self.kind);
        outcome.push_fact("device", &self.device);
        outcome.push_fact("transport", self.transport);
        outcome.push_fact("placement", placement);
        outcome.push_fact("inline_granted_bytes", self.inline_bytes);
        outcome.push_fact("inline", if inline { "yes" } else { "no" });
        outcome.push_fact("mtu_bytes", self.mtu.bytes());
        outcome.push_fact("port", self.path.port_num);
        outcome.push_fact("link_layer", &self.link_layer);
        outcome.push_fact("gid", &self.gid);
    }

    /// The failure that a failed completion means, with its likely causes.
    #[cold]
    pub fn explain(&self, wc: &Wc, what: &str) -> Stopped {
        let transport = self.transport;
        match wc.status() {
            // A flushed request gives no reason; the request that failed first does.
            Err(WcStatus::WorkRequestFlushed) => self.cause().unwrap_or_else(|| {
                failed(format!("{transport} {what}: {}", WcStatus::WorkRequestFlushed))
            }),
            Err(status) => failed(format!("{transport} {what}: {status}")),
            Ok(()) => failed(format!("{transport} {what}: no failure")),
        }
    }

    /// The failure of the first request that failed without being flushed, if there is one.
    pub fn cause(&self) -> Option<Stopped> {
        for (queue, what) in [(&self.send, "send"), (&self.recv, "receive")] {
            while let Ok(Some(wc)) = queue.cq().poll_one() {
                match wc.status() {
                    Ok(()) | Err(WcStatus::WorkRequestFlushed) => {}
                    Err(status) => {
                        return Some(failed(format!("{} {what}: {status}", self.transport)));
                    }
                }
            }
        }
        None
    }

    /// Replaces the reason of a failed wait by a better one, if a queue pair has one.
    #[cold]
    pub fn diagnose(&self, stopped: Stopped) -> Stopped {
        if stopped == Stopped::Asked {
            return stopped;
        }
        let is_broken =
            |qp: &Qp| matches!(qp.state(), Ok(QpState::Error | QpState::SendQueueError));
        let broken = self.qps.iter().any(is_broken);
        let Some(cause) = broken.then(|| self.cause()).flatten() else { return stopped };
        match stopped {
            Stopped::Other(why) => Stopped::Other(format!("{why}; {cause}")),
            _ => cause,
        }
    }
}

/// Bytes of a page; some systems have larger ones.
const PAGE: usize = 4096;

/// Memory is prepared in pieces of this size, with a look at the clock after each, bytes.
const PIECE: usize = 64 << 20;
/// The user is told of memory that takes longer to prepare, and again after the same time, ns.
const SILENT_NS: f64 = 1e9;

/// Memory of the kind that a point asks for, with all its pages present.
pub(crate) fn memory<R: Rank>(
    rank: &R,
    context: &Context,
    common: &Common,
    bytes: usize,
) -> Result<Buffer, Stopped> {
    // A look at the clock takes virtual time.
    let began = (bytes > PIECE).then(|| rank.now());
    let buffer = match common.memory {
        Memory::Device => context.alloc_buffer(bytes),
        Memory::Private => Buffer::private(bytes),
    };
    let buffer =
        buffer.map_err(|e| failed(format!("cannot allocate {bytes} bytes for messages: {e}")))?;
    let mut told_ns = 0.0;
    for piece in (0..bytes).step_by(PIECE) {
        let end = bytes.min(piece + PIECE);
        for page in (piece..end).step_by(PAGE) {
            buffer.byte(page).store(0, Ordering::Relaxed);
        }
        let passed_ns = began.map_or(0.0, |began| rank.clock().ns_between(began, rank.now()));
        if let Some(line) = news(passed_ns, &mut told_ns, (end, bytes)) {
            rank.tell(&line);
        }
    }
    Ok(buffer)
}

/// What the user is told after some time about memory of which a part is prepared.
fn news(passed_ns: f64, told_ns: &mut f64, (done, bytes): (usize, usize)) -> Option<String> {
    if passed_ns < *told_ns + SILENT_NS || done == bytes {
        return None;
    }
    *told_ns = passed_ns;
    let percent = done as f64 / bytes as f64 * 100.0;
    let gib = bytes as f64 / f64::from(1 << 30);
    Some(format!("prepares {gib:.1} GiB of memory: {percent:.0} % done"))
}

/// Adds the facts that are known without a connection.
pub(crate) fn device_facts(context: &Context, outcome: &mut Outcome) {
    outcome.push_fact("device_kind", context.kind());
    outcome.push_fact("device", context.device_name());
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_that_takes_long_is_told_of_each_second() {
        let mut told_ns = 0.0;
        let mut after = |seconds: f64, gib: usize| {
            news(seconds * 1e9, &mut told_ns, (gib << 30, 4 << 30)).unwrap_or_default()
        };
        assert_eq!(after(0.9, 1), "");
        assert_eq!(after(1.5, 1), "prepares 4.0 GiB of memory: 25 % done");
        assert_eq!(after(2.4, 2), "");
        assert_eq!(after(2.5, 3), "prepares 4.0 GiB of memory: 75 % done");
        assert_eq!(after(9.0, 4), "", "it is ready");
    }
}

//! Why something failed, as far as queue pairs and their completions tell.

use rdmalab_rank::Stopped;
use rdmalab_verbs::{Qp, QpState, QpType, Wc, WcStatus};

use crate::common::completions::{Completions, failed};

/// Has queue pairs, and so can tell why something failed.
pub(crate) trait Diagnose {
    /// Its queue pairs.
    fn qps(&self) -> &[Qp];

    /// Its completion queues, and what completes there.
    fn queues(&self) -> [(&Completions, &'static str); 2];

    /// The transport of the queue pairs.
    fn transport(&self) -> QpType;

    /// A completion that is no success, as a failure with its likely causes.
    #[cold]
    fn explain(&self, wc: &Wc, what: &str) -> Stopped {
        let transport = self.transport();
        match wc.status() {
            // A flush says nothing; the request that failed does.
            Err(WcStatus::WorkRequestFlushed) => self.cause().unwrap_or_else(|| {
                failed(format!("{transport} {what}: {}", WcStatus::WorkRequestFlushed))
            }),
            Err(status) => failed(format!("{transport} {what}: {status}")),
            Ok(()) => failed(format!("{transport} {what}: no failure")),
        }
    }

    /// The first failed request that is not a mere flush, where there is one.
    fn cause(&self) -> Option<Stopped> {
        for (queue, what) in self.queues() {
            while let Ok(Some(wc)) = queue.cq().poll_one() {
                match wc.status() {
                    Ok(()) | Err(WcStatus::WorkRequestFlushed) => {}
                    Err(status) => {
                        return Some(failed(format!("{} {what}: {status}", self.transport())));
                    }
                }
            }
        }
        None
    }

    /// Says why a wait was in vain, where a queue pair knows more.
    #[cold]
    fn diagnose(&self, stopped: Stopped) -> Stopped {
        if stopped == Stopped::Asked {
            return stopped;
        }
        let is_broken =
            |qp: &Qp| matches!(qp.state(), Ok(QpState::Error | QpState::SendQueueError));
        let broken = self.qps().iter().any(is_broken);
        let Some(cause) = broken.then(|| self.cause()).flatten() else { return stopped };
        match stopped {
            Stopped::Other(why) => Stopped::Other(format!("{why}; {cause}")),
            _ => cause,
        }
    }
}

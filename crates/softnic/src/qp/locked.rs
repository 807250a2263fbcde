//! The queue pair that a thread has locked while it handles what arrives.

use rdmalab_ring::biased::BiasedGuard;

use super::QpInner;

/// The queue pair, with its index in this process.
pub(crate) type LockedQp = Option<(usize, BiasedGuard<'static, Option<QpInner>>)>;

/// Sends the responses to a batch of trains, and unlocks the QP.
#[inline]
pub(crate) fn finish(current: LockedQp) {
    if let Some((_, mut guard)) = current
        && let Some(inner) = guard.as_mut()
    {
        inner.transmit();
    }
}

//! How many objects of a kind a process has, and may have.

use std::sync::atomic::{AtomicU32, Ordering};

use rdmalab_engine::backend::{VerbsError, VerbsResult};

/// The objects of a process, as counted against the device's attributes.
#[derive(Default)]
pub(crate) struct Quotas {
    /// `max_pd`.
    pub(crate) pds: Quota,
    /// `max_cq`.
    pub(crate) cqs: Quota,
    /// `max_srq`.
    pub(crate) srqs: Quota,
}

/// The objects of one kind.
#[derive(Default)]
pub(crate) struct Quota(AtomicU32);

impl Quota {
    /// Counts a new object.
    ///
    /// # Errors
    /// `ENOMEM` if there are `most` already.
    pub(crate) fn take(&self, most: u32, what: &str) -> VerbsResult<()> {
        if self.0.fetch_add(1, Ordering::Relaxed) < most {
            return Ok(());
        }
        self.give_back();
        Err(VerbsError::no_room(format!("a process can have {most} {what}: destroy some first")))
    }

    /// An object is gone.
    pub(crate) fn give_back(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_more_than_the_limit_is_refused_and_does_not_count() {
        let quota = Quota::default();
        for _ in 0..2 {
            assert!(quota.take(1, "things").is_ok());
            let error = quota.take(1, "things").expect_err("the limit");
            assert_eq!(error.errno, libc::ENOMEM);
            quota.give_back();
        }
    }
}

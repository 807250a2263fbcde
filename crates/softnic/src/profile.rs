//! The profile of this process's devices (`RDMALAB_PROFILE`): the limits that they report and
//! enforce. The delays of a profile are fault rules, in `hooks/faults`.

use std::sync::OnceLock;

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::qp::Adapter;
pub(crate) use rdmalab_profile::Limits;
pub use rdmalab_profile::{Optimum, Profile, SHIPPED, is_path as is_profile_path};

use crate::limits;

/// The limits of the soft devices without a profile.
pub(crate) const OWN: Limits = Limits {
    max_qp: crate::layout::QPS_PER_PROCESS as u32,
    max_qp_wr: limits::MAX_WR,
    max_sge: limits::MAX_SGE,
    max_cqe: limits::MAX_CQE,
    max_mr: limits::MAX_KEYS,
    max_srq_wr: limits::MAX_WR,
    max_srq_sge: limits::MAX_SGE,
    max_qp_rd_atom: limits::MAX_RD_ATOMIC as u32,
    max_qp_init_rd_atom: limits::MAX_RD_ATOMIC as u32,
    max_inline_data: limits::MAX_INLINE,
    active_mtu: limits::PORT_MTU.bytes(),
};

/// The environment variable that selects the profile.
const VARIABLE: &str = "RDMALAB_PROFILE";

/// The argument of [`choose_profile`].
static CHOSEN: OnceLock<String> = OnceLock::new();
static NAMED: OnceLock<VerbsResult<Option<Profile>>> = OnceLock::new();

/// Finds a shipped profile by its name, or another one by the path of its file.
///
/// # Errors
/// There is no such profile, or the profile is wrong: one line.
pub fn find_profile(asked: &str) -> Result<Profile, String> {
    rdmalab_profile::find(asked, &OWN).map_err(|error| error.to_string())
}

/// Selects the profile of this process in place of `RDMALAB_PROFILE`, for a program that must not
/// change its environment. Must be called once, before any other use of the device.
///
/// # Errors
/// There is no such profile, the profile is wrong, or the device is in use already: one line.
pub fn choose_profile(asked: &str) -> Result<(), String> {
    if NAMED.get().is_some() && CHOSEN.get().is_none_or(|chosen| chosen != asked) {
        return Err("the profile is chosen too late: the device is in use".to_owned());
    }
    if CHOSEN.get_or_init(|| asked.to_owned()) != asked {
        return Err("a device can be under one profile only".to_owned());
    }
    named().map(drop).map_err(|error| error.message)
}

/// The profile of this process's devices; `None` for one that changes nothing.
pub fn profile() -> Option<&'static Profile> {
    named().ok().flatten()
}

/// The same, with the error. The profile is read once.
///
/// # Errors
/// There is no profile of that name, or the profile is wrong.
pub(crate) fn named() -> VerbsResult<Option<&'static Profile>> {
    let named = NAMED.get_or_init(|| {
        if let Some(chosen) = CHOSEN.get() {
            return read("--profile", chosen);
        }
        let Some(asked) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        read(VARIABLE, &asked.to_string_lossy()).inspect_err(|error| {
            // The verb's error may not reach the user, so print it as well.
            crate::warn(&error.to_string());
        })
    });
    named.as_ref().map(Option::as_ref).map_err(Clone::clone)
}

fn read(by: &str, asked: &str) -> VerbsResult<Option<Profile>> {
    let found = find_profile(asked).map_err(|why| VerbsError::invalid(format!("{by}: {why}")))?;
    Ok((!found.is_ideal()).then_some(found))
}

/// The limits that devices of this process report and enforce.
pub(crate) fn limits() -> &'static Limits {
    profile().map_or(&OWN, |profile| &profile.limits)
}

/// What the devices of this process do around time-outs and page faults.
pub(crate) fn adapter_values() -> rdmalab_profile::Adapter {
    profile().map(|profile| profile.adapter).unwrap_or_default()
}

/// The same, as far as the engine acts on it.
pub(crate) fn engine_adapter() -> Adapter {
    let all = adapter_values();
    Adapter {
        ack_timeout_min_code: all.ack_timeout_min_code as u8,
        rnr_wait_percent: all.rnr_wait_percent as u32,
        discards_while_paused: all.rnr_discards_responses == 1,
        serves_faulted_reads: all.odp_serves_faulted_reads == 1,
        page_fault_pause_ns: all.odp_repeat_ns,
    }
}

/// Whether pages of on-demand regions may be missing.
pub(crate) fn pages_may_be_missing() -> bool {
    adapter_values().odp_resolve_ns > 0
}

/// Text for an error message: the profile that lowered the limit.
pub(crate) fn whose() -> String {
    let lowers = |profile: &&Profile| !profile.lowered.is_empty();
    profile().filter(lowers).map_or(String::new(), |it| format!(" under the profile {}", it.name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_shipped_one_is_one_of_this_device() {
        for (name, _) in SHIPPED {
            assert_eq!(find_profile(name).map(|found| found.name).as_deref(), Ok(*name));
        }
        // Tests of this crate run without a profile.
        assert_eq!((profile(), limits()), (None, &OWN));
    }
}

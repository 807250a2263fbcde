//! The profile that devices of this process are under (`RDMALAB_PROFILE`): what they report and
//! enforce. What it makes packets cost is armed as rules, in `hooks/faults`.

use std::sync::OnceLock;

use rdmalab_engine::backend::{VerbsError, VerbsResult};
pub(crate) use rdmalab_profile::Limits;
pub use rdmalab_profile::{Optimum, Profile, SHIPPED, is_path as is_profile_path};

use crate::device;

/// What the soft devices have by themselves.
pub(crate) const OWN: Limits = Limits {
    max_qp: crate::layout::QPS_PER_PROCESS as u32,
    max_qp_wr: device::MAX_WR,
    max_sge: device::MAX_SGE,
    max_cqe: device::MAX_CQE,
    max_mr: device::MAX_KEYS,
    max_srq_wr: device::MAX_WR,
    max_srq_sge: device::MAX_SGE,
    max_qp_rd_atom: device::MAX_RD_ATOMIC as u32,
    max_qp_init_rd_atom: device::MAX_RD_ATOMIC as u32,
    max_inline_data: device::MAX_INLINE,
    active_mtu: device::PORT_MTU.bytes(),
};

/// Names it to a process.
const VARIABLE: &str = "RDMALAB_PROFILE";

/// What [`choose_profile`] was told.
static CHOSEN: OnceLock<String> = OnceLock::new();
static NAMED: OnceLock<VerbsResult<Option<Profile>>> = OnceLock::new();

/// A shipped profile by its name, or one by its file's path.
///
/// # Errors
/// That there is none, or what is wrong with it: one line.
pub fn find_profile(asked: &str) -> Result<Profile, String> {
    rdmalab_profile::find(asked, &OWN).map_err(|error| error.to_string())
}

/// Chooses the profile of this process, where `RDMALAB_PROFILE` would otherwise: for a program that
/// must not change its environment. To be called once, before anything else of the device.
///
/// # Errors
/// That there is no such profile, what is wrong with it, or that the device is in use already: one
/// line.
pub fn choose_profile(asked: &str) -> Result<(), String> {
    if NAMED.get().is_some() && CHOSEN.get().is_none_or(|chosen| chosen != asked) {
        return Err("the profile is chosen too late: the device is in use".to_owned());
    }
    if CHOSEN.get_or_init(|| asked.to_owned()) != asked {
        return Err("a device can be under one profile only".to_owned());
    }
    named().map(drop).map_err(|error| error.message)
}

/// The profile that devices of this process are under; `None` for one that changes nothing.
pub fn profile() -> Option<&'static Profile> {
    named().ok().flatten()
}

/// The same, read once.
///
/// # Errors
/// That there is none of that name, or what is wrong with it.
pub(crate) fn named() -> VerbsResult<Option<&'static Profile>> {
    let named = NAMED.get_or_init(|| {
        if let Some(chosen) = CHOSEN.get() {
            return read("--profile", chosen);
        }
        let Some(asked) = std::env::var_os(VARIABLE).filter(|value| !value.is_empty()) else {
            return Ok(None);
        };
        read(VARIABLE, &asked.to_string_lossy()).inspect_err(|error| {
            // Whoever asked for a profile is to know why there is no device: a library is silent.
            crate::warn(&error.to_string());
        })
    });
    named.as_ref().map(Option::as_ref).map_err(Clone::clone)
}

fn read(by: &str, asked: &str) -> VerbsResult<Option<Profile>> {
    let found = find_profile(asked).map_err(|why| VerbsError::invalid(format!("{by}: {why}")))?;
    Ok((!found.is_ideal()).then_some(found))
}

/// What devices of this process report and enforce.
pub(crate) fn limits() -> &'static Limits {
    profile().map_or(&OWN, |profile| &profile.limits)
}

/// Behind a limit, whose it is.
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
        // Tests of this crate run without one.
        assert_eq!((profile(), limits()), (None, &OWN));
    }
}

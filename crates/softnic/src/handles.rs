//! The handles that programs hold on objects of a soft device, and the checks that verbs share.

use std::sync::Arc;

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_wire::ids::Qpn;

use crate::context::ContextShared;
use crate::cq::{ChannelObject, CqObject};
use crate::mr::{MrObject, MwObject};
use crate::pd::PdObject;
use crate::process::Process;
use crate::profile;
use crate::qp::{QpInner, QpObject};
use crate::srq::SrqObject;

macro_rules! handle {
    ($(#[$doc:meta])* $name:ident, $object:ty) => {
        $(#[$doc])*
        #[derive(Clone)]
        pub struct $name(pub(crate) Arc<$object>);
    };
}

/// An open soft device.
#[derive(Clone)]
pub struct Context {
    pub(crate) process: &'static Process,
    pub(crate) shared: Arc<ContextShared>,
}

handle! {
    /// A memory region of a soft device.
    Mr, MrObject
}
handle! {
    /// A memory window of a soft device.
    Mw, MwObject
}
handle! {
    /// A completion channel of a soft device.
    Channel, ChannelHandle
}
handle! {
    /// A completion queue of a soft device.
    Cq, CqHandle
}

/// A protection domain of a soft device.
#[derive(Clone)]
pub struct Pd(pub(crate) Arc<PdObject>, pub(crate) &'static Process);

/// A shared receive queue of a soft device.
#[derive(Clone)]
pub struct Srq(pub(crate) Arc<SrqObject>, pub(crate) &'static Process);

/// A queue pair of a soft device.
#[derive(Clone, Copy)]
pub struct SoftQp(pub(crate) &'static QpObject, pub(crate) Qpn);

/// A channel, its context, and the process that makes progress for it.
pub(crate) struct ChannelHandle {
    pub(crate) channel: Arc<ChannelObject>,
    pub(crate) process: &'static Process,
    pub(crate) context: Arc<ContextShared>,
}

/// A CQ and the process that makes progress for it.
pub(crate) struct CqHandle {
    pub(crate) cq: Arc<CqObject>,
    pub(crate) process: &'static Process,
    pub(crate) context: Arc<ContextShared>,
}

/// The error for a value beyond the limit of the device.
pub(crate) fn limit_error(what: &str, asked: u64, limit: u64) -> VerbsError {
    let whose = profile::whose();
    VerbsError::invalid(format!("{what} {asked}: soft devices allow up to {limit}{whose}"))
}

/// Refuses a value beyond the limit of the device.
pub(crate) fn check_limit(what: &str, asked: u32, limit: u32) -> VerbsResult<()> {
    if asked > limit {
        return Err(limit_error(what, asked as u64, limit as u64));
    }
    Ok(())
}

/// The queue pair of a handle, unless it was destroyed.
#[inline(always)]
pub(crate) fn alive(guard: &mut Option<QpInner>, qpn: Qpn) -> VerbsResult<&mut QpInner> {
    match guard {
        Some(inner) if inner.qp.qpn == qpn => Ok(inner),
        _ => Err(VerbsError::invalid("the QP was destroyed")),
    }
}

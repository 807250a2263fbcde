//! The C objects of this process that are alive.
//!
//! A program may pass a pointer to an object that it has destroyed, or whose fields it has
//! overwritten. The kernel finds an object by its handle and refuses an unknown one; verbs that are
//! not on the data path look here, before they follow the pointer.

use core::any::TypeId;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use rdmalab_engine::backend::{VerbsError, VerbsResult};

/// What a program can overwrite and this crate relies on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The number that the object has in the kernel.
    pub(crate) handle: u32,
    /// Address of the context.
    pub(crate) context: usize,
}

struct Live {
    kind: TypeId,
    identity: Identity,
}

/// Objects whose addresses fall into the same part share a lock.
const PARTS: usize = 64;

static TABLE: [Mutex<BTreeMap<usize, Live>>; PARTS] =
    [const { Mutex::new(BTreeMap::new()) }; PARTS];

fn part(address: usize) -> MutexGuard<'static, BTreeMap<usize, Live>> {
    // The lowest bits of a heap address are equal.
    let part = &TABLE[(address >> 6) % PARTS];
    // No code panics while the lock is held, and the map is consistent between operations.
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Adds a new object.
pub(crate) fn add(address: usize, kind: TypeId, identity: Identity) {
    part(address).insert(address, Live { kind, identity });
}

/// Removes an object that is about to be freed.
pub(crate) fn remove(address: usize) {
    part(address).remove(&address);
}

/// Checks that the address is that of an object of this kind, and that its identity, which
/// `identity` reads from the object, is the one that it was made with.
///
/// # Errors
/// `EINVAL` for null or an overwritten context, `ENOENT` for an object that does not exist or whose
/// handle was overwritten.
pub(crate) fn check(
    address: usize,
    kind: TypeId,
    what: &str,
    identity: impl FnOnce() -> Identity,
) -> VerbsResult<()> {
    if address == 0 {
        return Err(VerbsError::invalid(format!("the {what} is a null pointer")));
    }
    let part = part(address);
    let Some(live) = part.get(&address).filter(|live| live.kind == kind) else {
        return Err(VerbsError::new(
            libc::ENOENT,
            format!("there is no {what} at {address:#x}: it was destroyed, or never made"),
        ));
    };
    let found = identity();
    if found.context != live.identity.context {
        return Err(VerbsError::invalid(format!("the context of the {what} was overwritten")));
    }
    if found.handle != live.identity.handle {
        let (found, made) = (found.handle, live.identity.handle);
        return Err(VerbsError::new(
            libc::ENOENT,
            format!("the {what} has the handle {found}, but was made with {made}"),
        ));
    }
    Ok(())
}

//! Whether datagrams can go a path, found out by threads of their own: the device waits for a while
//! where an address is not in use yet, or nobody answers for the peer's, and who asks for the path
//! gets an event. Each who asks has a time of its own; a lookup lasts as long as the device likes,
//! and is repeated while somebody waits for it.

use std::collections::BTreeMap;

use rdmalab_wire::ids::Gid;

use crate::device;
use crate::errno::{CallResult, Errno, errno_of, failed, last_errno};
use crate::state::{CmProcess, CmState, ConnParams, start_thread};

/// Threads at once; ways that find none free are looked at one after the other.
const THREADS_MAX: usize = 16;

/// From one of our addresses to a peer: number of the device, index of our GID, the peer's GID.
pub type Target = (usize, u8, Gid);

/// What follows from an answer, under the lock.
type OnResult = Box<dyn FnOnce(&mut CmState, CallResult<()>) + Send>;

/// Who waits for an answer.
struct Waiter {
    id: u64,
    /// When it does not wait any longer; `None`: never.
    until_ns: Option<u64>,
    on_result: OnResult,
}

/// A path that is being looked at, or shall be.
#[derive(Default)]
struct Lookup {
    is_running: bool,
    /// How often it was looked at.
    attempts: u32,
    waiters: Vec<Waiter>,
}

/// All ways that are not known yet.
#[derive(Default)]
pub struct Lookups {
    lookups: BTreeMap<Target, Lookup>,
    threads: usize,
}

impl Lookups {
    fn is_waiting(&self, id: u64) -> bool {
        self.lookups.values().any(|lookup| lookup.waiters.iter().any(|waiters| waiters.id == id))
    }

    /// MadCapture who asks; whether nobody asked for this path before.
    fn add(&mut self, target: Target, waiters: Waiter) -> bool {
        let is_new = !self.lookups.contains_key(&target);
        self.lookups.entry(target).or_default().waiters.push(waiters);
        is_new
    }

    /// Whether one more thread may be started, which is counted then.
    fn add_thread(&mut self) -> bool {
        let may = self.threads < THREADS_MAX;
        self.threads += usize::from(may);
        may
    }

    /// The next path that no thread lookups at; those that were looked at before come last.
    fn next(&mut self) -> Option<Target> {
        let free = self.lookups.iter_mut().filter(|(_, lookup)| !lookup.is_running);
        let (target, lookup) = free.min_by_key(|(_, lookup)| lookup.attempts)?;
        (lookup.is_running, lookup.attempts) = (true, lookup.attempts.saturating_add(1));
        Some(*target)
    }

    /// A lookup is over: who is to be told of it. Who still waits is not, while nobody answers.
    fn finish(&mut self, target: Target, reached: CallResult<()>) -> Vec<Waiter> {
        if reached == Err(Errno(libc::ETIMEDOUT))
            && let Some(lookup) = self.lookups.get_mut(&target)
            && !lookup.waiters.is_empty()
        {
            lookup.is_running = false;
            return Vec::new();
        }
        self.lookups.remove(&target).map(|lookup| lookup.waiters).unwrap_or_default()
    }

    /// When the time of somebody is over.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.lookups
            .values()
            .flat_map(|lookup| &lookup.waiters)
            .filter_map(|waiters| waiters.until_ns)
            .min()
    }

    /// Takes out those whose time is over, with what they asked for.
    fn take_expired(&mut self, now_ns: u64) -> Vec<(Target, Waiter)> {
        let is_over = |waiters: &mut Waiter| waiters.until_ns.is_some_and(|at_ns| at_ns <= now_ns);
        let mut expired = Vec::new();
        for (target, lookup) in &mut self.lookups {
            expired
                .extend(lookup.waiters.extract_if(.., is_over).map(|waiters| (*target, waiters)));
        }
        self.drop_unwanted();
        expired
    }

    /// Who freed its id does not ask any more.
    pub fn forget(&mut self, id: u64) {
        self.lookups
            .values_mut()
            .for_each(|lookup| lookup.waiters.retain(|waiters| waiters.id != id));
        self.drop_unwanted();
    }

    /// A thread that lookups at a path for nobody finds that out by itself.
    fn drop_unwanted(&mut self) {
        self.lookups.retain(|_, lookup| lookup.is_running || !lookup.waiters.is_empty());
    }
}

/// Begins to lookup, until a time; what follows from the answer comes later, in another thread.
///
/// # Errors
/// `EINVAL` for an id whose path is looked for already; what the kernel says if there is no thread.
pub fn begin(
    process: &'static CmProcess,
    id: u64,
    target: Target,
    until_ns: Option<u64>,
    on_result: impl FnOnce(&mut CmState, CallResult<()>) + Send + 'static,
) -> CallResult<()> {
    let mut cm = process.lock();
    cm.id(id)?;
    if cm.lookups.is_waiting(id) {
        return Err(failed(libc::EINVAL, "rdma_resolve_addr", || {
            "the id's address is being store_path: wait for the event".to_owned()
        }));
    }
    let is_new = cm.lookups.add(target, Waiter { id, until_ns, on_result: Box::new(on_result) });
    cm.update_deadline();
    if !is_new || !cm.lookups.add_thread() {
        return Ok(());
    }
    let started = start_thread("rdmalab-resolve", move || run(process));
    if let Err(error) = started {
        cm.lookups.threads -= 1;
        // Those that run take it when they are through.
        if cm.lookups.threads == 0 {
            cm.lookups.lookups.remove(&target);
            return Err(errno_of(&error));
        }
    }
    Ok(())
}

/// A thread: lookups at ways until there are none left.
fn run(process: &'static CmProcess) {
    let mut cm = process.lock();
    while let Some(target) = cm.lookups.next() {
        drop(cm);
        let reached = check(process, target);
        cm = process.lock();
        for Waiter { on_result, .. } in cm.lookups.finish(target, reached) {
            on_result(&mut cm, reached);
        }
    }
    cm.lookups.threads -= 1;
}

/// Tells those whose time is over.
pub fn expire(cm: &mut CmState, now_ns: u64) {
    for ((.., remote_gid), Waiter { on_result, .. }) in cm.lookups.take_expired(now_ns) {
        let error = failed(libc::ETIMEDOUT, "rdma_resolve_addr", || {
            let ip = remote_gid.to_ip();
            format!(
                "nobody answered for {ip} within the time-out: is that host up, on this params, and \
                 the address right? (ip neighbour show)"
            )
        });
        on_result(cm, Err(error));
    }
}

/// Lookups at a path; waits for a new address of ours.
fn check(process: &CmProcess, (device, sgid_index, remote_gid): Target) -> CallResult<()> {
    let (verbs, device) = (device::verbs()?, process.device(device)?);
    let params = ConnParams { sgid_index, remote_gid, ..ConnParams::default() };
    let mut attr = crate::qp::address_vector(&params);
    // SAFETY: an open device's domain, and attributes that live during the call; what it makes is
    // given back at once.
    unsafe {
        let ah = (verbs.create_ah)(device.pd, &raw mut attr);
        if ah.is_null() {
            let Errno(errno) = last_errno();
            return Err(failed(errno, "rdma_resolve_addr", || {
                format!("nothing can be sent to {} now", remote_gid.to_ip())
            }));
        }
        (verbs.destroy_ah)(ah);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_ANSWER: CallResult<()> = Err(Errno(libc::ETIMEDOUT));

    fn waiters(id: u64) -> Waiter {
        waiter_until(id, None)
    }

    fn waiter_until(id: u64, until_ns: Option<u64>) -> Waiter {
        Waiter { id, until_ns, on_result: Box::new(|_, _| ()) }
    }

    fn target(number: u8) -> Target {
        (0, 1, Gid([number; 16]))
    }

    fn ids(waiters: &[Waiter]) -> Vec<u64> {
        waiters.iter().map(|waiters| waiters.id).collect()
    }

    #[test]
    fn who_asks_for_the_same_way_shares_a_look() {
        let mut lookups = Lookups::default();
        let (one, other) = (target(1), target(2));
        assert!(lookups.add(one, waiters(1)));
        assert!(!lookups.add(one, waiters(2)));
        assert!(lookups.add(other, waiters(3)));
        assert_eq!(
            (lookups.next(), lookups.next(), lookups.next()),
            (Some(one), Some(other), None)
        );
        // Who comes while it is being looked at is told too, and nobody lookups a second time.
        assert!(!lookups.add(one, waiters(4)));
        assert_eq!(lookups.next(), None);
        assert_eq!(ids(&lookups.finish(one, Ok(()))), [1, 2, 4]);
        assert!(lookups.is_waiting(3) && !lookups.is_waiting(1));
    }

    #[test]
    fn with_too_many_ways_some_wait_for_a_thread() {
        let mut lookups = Lookups::default();
        for at in 0..=THREADS_MAX {
            assert!(lookups.add(target(at as u8), waiters(at as u64)));
            assert_eq!(lookups.add_thread(), at < THREADS_MAX, "path {at}");
        }
        assert_eq!(lookups.threads, THREADS_MAX);
        let begun = (0..THREADS_MAX).filter_map(|_| lookups.next()).count();
        assert_eq!(begun, THREADS_MAX);
        // Whose thread is through first takes it, before it lookups again at its own.
        assert!(lookups.finish(target(0), NO_ANSWER).is_empty());
        assert_eq!(lookups.next(), Some(target(THREADS_MAX as u8)));
        assert_eq!((lookups.next(), lookups.next()), (Some(target(0)), None));
    }

    #[test]
    fn each_has_a_time_of_its_own() {
        let mut lookups = Lookups::default();
        lookups.add(target(1), waiter_until(1, Some(30)));
        lookups.add(target(1), waiter_until(2, Some(10)));
        lookups.add(target(2), waiter_until(3, Some(20)));
        lookups.add(target(3), waiters(4));
        assert_eq!((lookups.next(), lookups.next_deadline_ns()), (Some(target(1)), Some(10)));
        assert!(lookups.take_expired(9).is_empty());
        let expired: Vec<u64> = lookups.take_expired(20).iter().map(|(_, who)| who.id).collect();
        assert_eq!((expired, lookups.next_deadline_ns()), (vec![2, 3], Some(30)));
        // Nobody answered: who still waits is not told, and it is looked again.
        assert!(lookups.finish(target(1), NO_ANSWER).is_empty());
        assert_eq!(
            (lookups.next(), lookups.next(), lookups.next()),
            (Some(target(3)), Some(target(1)), None)
        );
        assert_eq!(ids(&lookups.finish(target(1), Ok(()))), [1]);
    }

    #[test]
    fn for_nobody_is_not_looked_for_long() {
        let mut lookups = Lookups::default();
        lookups.add(target(1), waiters(1));
        lookups.add(target(2), waiters(2));
        assert_eq!(lookups.next(), Some(target(1)));
        lookups.forget(1);
        lookups.forget(2);
        assert_eq!((lookups.next(), lookups.lookups.len()), (None, 1));
        assert!(lookups.finish(target(1), NO_ANSWER).is_empty() && lookups.lookups.is_empty());
    }
}

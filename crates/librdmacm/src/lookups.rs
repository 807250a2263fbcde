//! The table of address resolutions that wait for an answer from the network.
//!
//! `rdma_resolve_addr` checks that a peer on another host answers. Lookup threads do this
//! (`resolve`), because the device may block: while one of our addresses is tentative, and while
//! the peer's link-layer address is unknown. Requests for the same peer share one lookup, and each
//! request has its own deadline. A lookup is repeated while a request waits for it.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};

use rdmalab_wire::ids::Gid;

use crate::errno::{CallResult, Errno};

/// At most this many lookup threads run at once. Further lookups wait for a free thread.
pub const THREADS_MAX: usize = 16;

/// The path to a peer.
#[derive(Clone, Copy)]
pub struct Path {
    /// The device's place in the list of devices.
    pub device: usize,
    pub sgid_index: u8,
    pub local_gid: Gid,
    pub remote_gid: Gid,
    pub remote_lid: u16,
    /// The peer is on this host.
    pub is_local: bool,
    /// Our address, for an id that is not bound.
    pub source: IpAddr,
}

/// The peer of a lookup: device, index of our GID, and the peer's GID.
pub type Target = (usize, u8, Gid);

/// A request that waits for a lookup.
pub struct Request {
    /// The number of the id.
    pub id: u64,
    /// `None` waits for ever.
    pub deadline_ns: Option<u64>,
    pub destination: SocketAddr,
    pub path: Path,
}

impl Request {
    /// The peer that the request needs.
    pub fn target(&self) -> Target {
        (self.path.device, self.path.sgid_index, self.path.remote_gid)
    }
}

#[derive(Default)]
struct Lookup {
    is_running: bool,
    attempts: u32,
    requests: Vec<Request>,
}

/// All lookups that have no answer yet.
#[derive(Default)]
pub struct Lookups {
    lookups: BTreeMap<Target, Lookup>,
    threads: usize,
}

impl Lookups {
    /// Whether an id has a request.
    pub fn has(&self, id: u64) -> bool {
        self.lookups.values().any(|lookup| lookup.requests.iter().any(|request| request.id == id))
    }

    /// Adds a request; returns whether it is the first one for its peer.
    pub fn add(&mut self, request: Request) -> bool {
        let target = request.target();
        let is_new = !self.lookups.contains_key(&target);
        self.lookups.entry(target).or_default().requests.push(request);
        is_new
    }

    /// Counts one more thread, if fewer than [`THREADS_MAX`] run; returns whether it may start.
    pub fn add_thread(&mut self) -> bool {
        let may = self.threads < THREADS_MAX;
        self.threads += usize::from(may);
        may
    }

    /// Counts one thread less: it ended, or did not start.
    pub fn remove_thread(&mut self) {
        self.threads -= 1;
    }

    /// Whether any thread runs.
    pub fn has_threads(&self) -> bool {
        self.threads > 0
    }

    /// The next lookup for a thread. Lookups that were tried less often come first.
    pub fn next(&mut self) -> Option<Target> {
        let free = self.lookups.iter_mut().filter(|(_, lookup)| !lookup.is_running);
        let (target, lookup) = free.min_by_key(|(_, lookup)| lookup.attempts)?;
        (lookup.is_running, lookup.attempts) = (true, lookup.attempts.saturating_add(1));
        Some(*target)
    }

    /// Ends an attempt; returns the requests that it answers. After a time-out of the device it
    /// answers none: the requests stay until their deadlines, and the lookup is repeated.
    pub fn finish(&mut self, target: Target, reached: CallResult<()>) -> Vec<Request> {
        if reached == Err(Errno(libc::ETIMEDOUT))
            && let Some(lookup) = self.lookups.get_mut(&target)
            && !lookup.requests.is_empty()
        {
            lookup.is_running = false;
            return Vec::new();
        }
        self.remove(target)
    }

    /// Removes a lookup with its requests.
    pub fn remove(&mut self, target: Target) -> Vec<Request> {
        self.lookups.remove(&target).map(|lookup| lookup.requests).unwrap_or_default()
    }

    /// The first deadline of all requests.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        let requests = self.lookups.values().flat_map(|lookup| &lookup.requests);
        requests.filter_map(|request| request.deadline_ns).min()
    }

    /// Removes and returns the requests whose deadline has passed.
    pub fn take_expired(&mut self, now_ns: u64) -> Vec<Request> {
        let is_over = |request: &mut Request| request.deadline_ns.is_some_and(|at| at <= now_ns);
        let mut expired = Vec::new();
        for lookup in self.lookups.values_mut() {
            expired.extend(lookup.requests.extract_if(.., is_over));
        }
        self.remove_unused();
        expired
    }

    /// Removes the request of an id that is destroyed.
    pub fn cancel(&mut self, id: u64) {
        for lookup in self.lookups.values_mut() {
            lookup.requests.retain(|request| request.id != id);
        }
        self.remove_unused();
    }

    /// Removes lookups without requests. Those that run are removed when their thread finishes.
    fn remove_unused(&mut self) {
        self.lookups.retain(|_, lookup| lookup.is_running || !lookup.requests.is_empty());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NO_ANSWER: CallResult<()> = Err(Errno(libc::ETIMEDOUT));

    fn request_until(id: u64, target: Target, deadline_ns: Option<u64>) -> Request {
        let source = IpAddr::from([127, 0, 0, 1]);
        let (device, sgid_index, remote_gid) = target;
        let path = Path {
            device,
            sgid_index,
            local_gid: Gid::default(),
            remote_gid,
            remote_lid: 0xffff,
            is_local: false,
            source,
        };
        Request { id, deadline_ns, destination: SocketAddr::new(source, 7), path }
    }

    fn request(id: u64, target: Target) -> Request {
        request_until(id, target, None)
    }

    fn target(number: u8) -> Target {
        (0, 1, Gid([number; 16]))
    }

    fn ids(requests: &[Request]) -> Vec<u64> {
        requests.iter().map(|request| request.id).collect()
    }

    #[test]
    fn requests_for_one_peer_share_a_lookup() {
        let mut lookups = Lookups::default();
        let (one, other) = (target(1), target(2));
        assert!(lookups.add(request(1, one)));
        assert!(!lookups.add(request(2, one)));
        assert!(lookups.add(request(3, other)));
        assert_eq!(
            (lookups.next(), lookups.next(), lookups.next()),
            (Some(one), Some(other), None)
        );
        // A request that comes during the lookup gets its answer too.
        assert!(!lookups.add(request(4, one)));
        assert_eq!(lookups.next(), None);
        assert_eq!(ids(&lookups.finish(one, Ok(()))), [1, 2, 4]);
        assert!(lookups.has(3) && !lookups.has(1));
    }

    #[test]
    fn lookups_beyond_the_limit_wait_for_a_thread() {
        let mut lookups = Lookups::default();
        for at in 0..=THREADS_MAX {
            assert!(lookups.add(request(at as u64, target(at as u8))));
            assert_eq!(lookups.add_thread(), at < THREADS_MAX, "lookup {at}");
        }
        assert_eq!(lookups.threads, THREADS_MAX);
        let begun = (0..THREADS_MAX).filter_map(|_| lookups.next()).count();
        assert_eq!(begun, THREADS_MAX);
        // The first thread that is free takes the waiting lookup before it repeats its own.
        assert!(lookups.finish(target(0), NO_ANSWER).is_empty());
        assert_eq!(lookups.next(), Some(target(THREADS_MAX as u8)));
        assert_eq!((lookups.next(), lookups.next()), (Some(target(0)), None));
    }

    #[test]
    fn each_request_has_a_deadline_of_its_own() {
        let mut lookups = Lookups::default();
        lookups.add(request_until(1, target(1), Some(30)));
        lookups.add(request_until(2, target(1), Some(10)));
        lookups.add(request_until(3, target(2), Some(20)));
        lookups.add(request(4, target(3)));
        assert_eq!((lookups.next(), lookups.next_deadline_ns()), (Some(target(1)), Some(10)));
        assert!(lookups.take_expired(9).is_empty());
        let expired = ids(&lookups.take_expired(20));
        assert_eq!((expired, lookups.next_deadline_ns()), (vec![2, 3], Some(30)));
        // Without an answer the request that still has time stays, and its lookup is repeated.
        assert!(lookups.finish(target(1), NO_ANSWER).is_empty());
        assert_eq!(
            (lookups.next(), lookups.next(), lookups.next()),
            (Some(target(3)), Some(target(1)), None)
        );
        assert_eq!(ids(&lookups.finish(target(1), Ok(()))), [1]);
    }

    #[test]
    fn a_lookup_without_requests_is_not_repeated() {
        let mut lookups = Lookups::default();
        lookups.add(request(1, target(1)));
        lookups.add(request(2, target(2)));
        assert_eq!(lookups.next(), Some(target(1)));
        lookups.cancel(1);
        lookups.cancel(2);
        assert_eq!((lookups.next(), lookups.lookups.len()), (None, 1));
        assert!(lookups.finish(target(1), NO_ANSWER).is_empty() && lookups.lookups.is_empty());
    }
}

//! Whether datagrams can go a way, found out by threads of their own: the device waits for a while
//! where an address is not in use yet, and who asks for the way gets an event.

use std::collections::BTreeMap;

use rdmalab_wire::ids::Gid;

use crate::debug::{CallResult, Errno, errno_of, failed, last_errno};
use crate::device;
use crate::world::{Inner, Link, World, start_thread};

/// Threads at once; ways that find none free are looked at one after the other.
const THREADS_MAX: usize = 16;

/// From one of our addresses to a peer: number of the device, index of our GID, the peer's GID.
pub type Pair = (usize, u8, Gid);

/// What follows from an answer, under the lock.
type Tell = Box<dyn FnOnce(&mut Inner, CallResult<()>) + Send>;

/// Who waits for an answer.
struct Asking {
    id: u64,
    tell: Tell,
}

/// A way that is being looked at, or shall be.
#[derive(Default)]
struct Look {
    has_begun: bool,
    asking: Vec<Asking>,
}

/// All ways that are not known yet.
#[derive(Default)]
pub struct Looks {
    pairs: BTreeMap<Pair, Look>,
    threads: usize,
}

impl Looks {
    fn is_asking(&self, id: u64) -> bool {
        self.pairs.values().any(|look| look.asking.iter().any(|asking| asking.id == id))
    }

    /// Notes who asks; whether nobody asked for this way before.
    fn add(&mut self, pair: Pair, asking: Asking) -> bool {
        let look = self.pairs.entry(pair).or_default();
        look.asking.push(asking);
        look.asking.len() == 1
    }

    /// Whether one more thread may be started, which is counted then.
    fn enlist(&mut self) -> bool {
        let may = self.threads < THREADS_MAX;
        self.threads += usize::from(may);
        may
    }

    /// The next way that no thread looks at.
    fn next(&mut self) -> Option<Pair> {
        let (pair, look) = self.pairs.iter_mut().find(|(_, look)| !look.has_begun)?;
        look.has_begun = true;
        Some(*pair)
    }
}

/// Begins to look; what follows from the answer comes later, in another thread.
///
/// # Errors
/// `EINVAL` for an id whose way is looked for already; what the kernel says if there is no thread.
pub fn begin(
    world: &'static World,
    id: u64,
    pair: Pair,
    tell: impl FnOnce(&mut Inner, CallResult<()>) + Send + 'static,
) -> CallResult<()> {
    let mut inner = world.lock();
    inner.id(id)?;
    if inner.looks.is_asking(id) {
        return Err(failed(libc::EINVAL, "rdma_resolve_addr", || {
            "the id's address is being resolved: wait for the event".to_owned()
        }));
    }
    let is_new = inner.looks.add(pair, Asking { id, tell: Box::new(tell) });
    if !is_new || !inner.looks.enlist() {
        return Ok(());
    }
    let started = start_thread("rdmalab-resolve", move || run(world));
    if let Err(error) = started {
        inner.looks.threads -= 1;
        // Those that run take it when they are through.
        if inner.looks.threads == 0 {
            inner.looks.pairs.remove(&pair);
            return Err(errno_of(&error));
        }
    }
    Ok(())
}

/// A thread: looks at ways until there are none left.
fn run(world: &'static World) {
    let mut inner = world.lock();
    while let Some(pair) = inner.looks.next() {
        drop(inner);
        let reached = check(world, pair);
        inner = world.lock();
        tell(&mut inner, pair, reached);
    }
    inner.looks.threads -= 1;
}

/// Tells those who asked for a way.
fn tell(inner: &mut Inner, pair: Pair, reached: CallResult<()>) {
    let asking = inner.looks.pairs.remove(&pair).map(|look| look.asking).unwrap_or_default();
    for Asking { tell, .. } in asking {
        tell(inner, reached);
    }
}

/// Looks at a way; waits for a new address of ours.
fn check(world: &World, (device, sgid_index, remote_gid): Pair) -> CallResult<()> {
    let (verbs, device) = (device::verbs()?, world.device(device)?);
    let link = Link { sgid_index, remote_gid, ..Link::default() };
    let mut attr = crate::qp::address_vector(&link);
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

    fn asking(id: u64) -> Asking {
        Asking { id, tell: Box::new(|_, _| ()) }
    }

    #[test]
    fn who_asks_for_the_same_way_shares_a_look() {
        let mut looks = Looks::default();
        let (one, other) = ((0, 1, Gid([1; 16])), (0, 1, Gid([2; 16])));
        assert!(looks.add(one, asking(1)));
        assert!(!looks.add(one, asking(2)));
        assert!(looks.add(other, asking(3)));
        assert_eq!((looks.next(), looks.next(), looks.next()), (Some(one), Some(other), None));
        // Who comes while it is being looked at is told too, and nobody looks a second time.
        assert!(!looks.add(one, asking(4)));
        assert_eq!(looks.next(), None);
        assert_eq!(looks.pairs.remove(&one).map(|look| look.asking.len()), Some(3));
        assert!(looks.is_asking(3) && !looks.is_asking(1));
    }
    #[test]
    fn with_too_many_ways_some_wait_for_a_thread() {
        let mut looks = Looks::default();
        for at in 0..=THREADS_MAX {
            assert!(looks.add((0, 1, Gid([at as u8; 16])), asking(at as u64)));
            assert_eq!(looks.enlist(), at < THREADS_MAX, "way {at}");
        }
        assert_eq!(looks.threads, THREADS_MAX);
        let begun = (0..THREADS_MAX).filter_map(|_| looks.next()).count();
        assert_eq!(begun, THREADS_MAX);
        // Whose thread is through first takes it.
        assert_eq!(looks.next(), Some((0, 1, Gid([THREADS_MAX as u8; 16]))));
        assert_eq!(looks.next(), None);
    }
}

//! Whether datagrams can go a way, found out by threads of their own: the device waits for a while
//! where an address is not in use yet, or nobody answers for the peer's, and who asks for the way
//! gets an event. Each who asks has a time of its own; a look lasts as long as the device likes,
//! and is repeated while somebody waits for it.

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
    /// When it does not wait any longer; `None`: never.
    until_ns: Option<u64>,
    tell: Tell,
}

/// A way that is being looked at, or shall be.
#[derive(Default)]
struct Look {
    is_under_way: bool,
    /// How often it was looked at.
    turns: u32,
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
        let is_new = !self.pairs.contains_key(&pair);
        self.pairs.entry(pair).or_default().asking.push(asking);
        is_new
    }

    /// Whether one more thread may be started, which is counted then.
    fn enlist(&mut self) -> bool {
        let may = self.threads < THREADS_MAX;
        self.threads += usize::from(may);
        may
    }

    /// The next way that no thread looks at; those that were looked at before come last.
    fn next(&mut self) -> Option<Pair> {
        let free = self.pairs.iter_mut().filter(|(_, look)| !look.is_under_way);
        let (pair, look) = free.min_by_key(|(_, look)| look.turns)?;
        (look.is_under_way, look.turns) = (true, look.turns.saturating_add(1));
        Some(*pair)
    }

    /// A look is over: who is to be told of it. Who still waits is not, while nobody answers.
    fn finish(&mut self, pair: Pair, reached: CallResult<()>) -> Vec<Asking> {
        if reached == Err(Errno(libc::ETIMEDOUT))
            && let Some(look) = self.pairs.get_mut(&pair)
            && !look.asking.is_empty()
        {
            look.is_under_way = false;
            return Vec::new();
        }
        self.pairs.remove(&pair).map(|look| look.asking).unwrap_or_default()
    }

    /// When the time of somebody is over.
    pub fn next_deadline_ns(&self) -> Option<u64> {
        self.pairs.values().flat_map(|look| &look.asking).filter_map(|asking| asking.until_ns).min()
    }

    /// Takes out those whose time is over, with what they asked for.
    fn take_overdue(&mut self, now_ns: u64) -> Vec<(Pair, Asking)> {
        let is_over = |asking: &mut Asking| asking.until_ns.is_some_and(|at_ns| at_ns <= now_ns);
        let mut overdue = Vec::new();
        for (pair, look) in &mut self.pairs {
            overdue.extend(look.asking.extract_if(.., is_over).map(|asking| (*pair, asking)));
        }
        self.drop_the_unasked();
        overdue
    }

    /// Who freed its id does not ask any more.
    pub fn forget(&mut self, id: u64) {
        self.pairs.values_mut().for_each(|look| look.asking.retain(|asking| asking.id != id));
        self.drop_the_unasked();
    }

    /// A thread that looks at a way for nobody finds that out by itself.
    fn drop_the_unasked(&mut self) {
        self.pairs.retain(|_, look| look.is_under_way || !look.asking.is_empty());
    }
}

/// Begins to look, until a time; what follows from the answer comes later, in another thread.
///
/// # Errors
/// `EINVAL` for an id whose way is looked for already; what the kernel says if there is no thread.
pub fn begin(
    world: &'static World,
    id: u64,
    pair: Pair,
    until_ns: Option<u64>,
    tell: impl FnOnce(&mut Inner, CallResult<()>) + Send + 'static,
) -> CallResult<()> {
    let mut inner = world.lock();
    inner.id(id)?;
    if inner.looks.is_asking(id) {
        return Err(failed(libc::EINVAL, "rdma_resolve_addr", || {
            "the id's address is being resolved: wait for the event".to_owned()
        }));
    }
    let is_new = inner.looks.add(pair, Asking { id, until_ns, tell: Box::new(tell) });
    inner.keep_deadline();
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
        for Asking { tell, .. } in inner.looks.finish(pair, reached) {
            tell(&mut inner, reached);
        }
    }
    inner.looks.threads -= 1;
}

/// Tells those whose time is over.
pub fn end_overdue(inner: &mut Inner, now_ns: u64) {
    for ((.., remote_gid), Asking { tell, .. }) in inner.looks.take_overdue(now_ns) {
        let error = failed(libc::ETIMEDOUT, "rdma_resolve_addr", || {
            let ip = remote_gid.to_ip();
            format!(
                "nobody answered for {ip} within the time-out: is that host up, on this link, and \
                 the address right? (ip neighbour show)"
            )
        });
        tell(inner, Err(error));
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

    const NOBODY: CallResult<()> = Err(Errno(libc::ETIMEDOUT));

    fn asking(id: u64) -> Asking {
        asking_until(id, None)
    }

    fn asking_until(id: u64, until_ns: Option<u64>) -> Asking {
        Asking { id, until_ns, tell: Box::new(|_, _| ()) }
    }

    fn pair(number: u8) -> Pair {
        (0, 1, Gid([number; 16]))
    }

    fn ids(asking: &[Asking]) -> Vec<u64> {
        asking.iter().map(|asking| asking.id).collect()
    }

    #[test]
    fn who_asks_for_the_same_way_shares_a_look() {
        let mut looks = Looks::default();
        let (one, other) = (pair(1), pair(2));
        assert!(looks.add(one, asking(1)));
        assert!(!looks.add(one, asking(2)));
        assert!(looks.add(other, asking(3)));
        assert_eq!((looks.next(), looks.next(), looks.next()), (Some(one), Some(other), None));
        // Who comes while it is being looked at is told too, and nobody looks a second time.
        assert!(!looks.add(one, asking(4)));
        assert_eq!(looks.next(), None);
        assert_eq!(ids(&looks.finish(one, Ok(()))), [1, 2, 4]);
        assert!(looks.is_asking(3) && !looks.is_asking(1));
    }

    #[test]
    fn with_too_many_ways_some_wait_for_a_thread() {
        let mut looks = Looks::default();
        for at in 0..=THREADS_MAX {
            assert!(looks.add(pair(at as u8), asking(at as u64)));
            assert_eq!(looks.enlist(), at < THREADS_MAX, "way {at}");
        }
        assert_eq!(looks.threads, THREADS_MAX);
        let begun = (0..THREADS_MAX).filter_map(|_| looks.next()).count();
        assert_eq!(begun, THREADS_MAX);
        // Whose thread is through first takes it, before it looks again at its own.
        assert!(looks.finish(pair(0), NOBODY).is_empty());
        assert_eq!(looks.next(), Some(pair(THREADS_MAX as u8)));
        assert_eq!((looks.next(), looks.next()), (Some(pair(0)), None));
    }

    #[test]
    fn each_has_a_time_of_its_own() {
        let mut looks = Looks::default();
        looks.add(pair(1), asking_until(1, Some(30)));
        looks.add(pair(1), asking_until(2, Some(10)));
        looks.add(pair(2), asking_until(3, Some(20)));
        looks.add(pair(3), asking(4));
        assert_eq!((looks.next(), looks.next_deadline_ns()), (Some(pair(1)), Some(10)));
        assert!(looks.take_overdue(9).is_empty());
        let overdue: Vec<u64> = looks.take_overdue(20).iter().map(|(_, who)| who.id).collect();
        assert_eq!((overdue, looks.next_deadline_ns()), (vec![2, 3], Some(30)));
        // Nobody answered: who still waits is not told, and it is looked again.
        assert!(looks.finish(pair(1), NOBODY).is_empty());
        assert_eq!(
            (looks.next(), looks.next(), looks.next()),
            (Some(pair(3)), Some(pair(1)), None)
        );
        assert_eq!(ids(&looks.finish(pair(1), Ok(()))), [1]);
    }

    #[test]
    fn for_nobody_is_not_looked_for_long() {
        let mut looks = Looks::default();
        looks.add(pair(1), asking(1));
        looks.add(pair(2), asking(2));
        assert_eq!(looks.next(), Some(pair(1)));
        looks.forget(1);
        looks.forget(2);
        assert_eq!((looks.next(), looks.pairs.len()), (None, 1));
        assert!(looks.finish(pair(1), NOBODY).is_empty() && looks.pairs.is_empty());
    }
}

//! Two ranks as threads of the test; each opens the soft device for itself.

use std::cell::Cell;
use std::ffi::CString;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rdmalab_experiments::{Experiment, Limits, Point, check, option, run, sweep};
use rdmalab_measure::{Clock, Outcome, Stamp};
use rdmalab_rank::{CpuTime, Locks, Rank, Stopped};
use rdmalab_softnic::{SoftNic, management_c};
use rdmalab_testkit::programs::{WaitLimit, library_dir};
use rdmalab_verbs::{CmLoan, CmTable, Device, Kind, Library, LoadError, MadPort, SoftHooks};

/// A limit that no wait of a test reaches unless something is broken.
const PATIENCE_NS: u64 = 60_000_000_000;

/// The experiments that send messages between the ranks all the time, by any number of threads.
pub fn traffic() -> impl Iterator<Item = Experiment> {
    Experiment::all().filter(|experiment| is_traffic(*experiment))
}

/// Whether an experiment is one of [`traffic`].
pub fn is_traffic(experiment: Experiment) -> bool {
    option(experiment, "threads").is_ok()
}

/// The state that the two ranks share, and the test's settings.
#[derive(Default)]
pub struct Table {
    /// The data given in each round of exchange.
    pub rounds: Mutex<Rounds>,
    /// Signalled when data were given.
    pub changed: Condvar,
    /// Both are asked to stop.
    pub stop: AtomicBool,
    /// Both are asked to stop in their n-th round of exchange; 0: never.
    pub stop_in_round: u64,
    /// How often each thread of rank 0 may ask whether to stop before it is told to, together with
    /// the same thread of rank 1; empty: never.
    pub stop_threads_after: Vec<u64>,
    /// Threads that have been told to stop.
    pub stopped_threads: [AtomicBool; 4],
    /// Waits of rank 0 with a limit end without what they wait for.
    pub is_slow: bool,
    /// How much later than it happens rank 1 sees each thing that it waits for.
    pub delay_ns: u64,
    /// The delay applies only to one wait in this many; 0: to each.
    pub delay_every: u64,
}

thread_local! {
    /// The index of this thread within its rank, and how often it has asked whether to stop.
    static THREAD: Cell<usize> = const { Cell::new(usize::MAX) };
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// The data given in each round, by rank.
#[derive(Default)]
pub struct Rounds {
    given: [Vec<Vec<u8>>; 2],
    gone: Option<String>,
}

/// A rank that is a thread.
pub struct ThreadRank<'a> {
    index: usize,
    table: &'a Table,
    clock: Clock,
    round: AtomicU64,
    /// How many waits of this rank have succeeded.
    seen: AtomicU64,
}

impl ThreadRank<'_> {
    /// Whether the delay applies to this wait.
    fn is_late(&self) -> bool {
        if self.index != 1 || self.table.delay_ns == 0 {
            return false;
        }
        let seen = self.seen.fetch_add(1, Ordering::Relaxed) + 1;
        seen.is_multiple_of(self.table.delay_every.max(1))
    }

    fn is_thread_stopped(&self) -> bool {
        let thread = self.table.stopped_threads.get(THREAD.get());
        thread.is_some_and(|stopped| stopped.load(Ordering::Relaxed))
    }

    fn check(&self) -> Result<(), Stopped> {
        if self.table.stop.load(Ordering::Relaxed) || self.is_thread_stopped() {
            return Err(Stopped::Asked);
        }
        let rounds = self.table.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.gone.clone().map_or(Ok(()), |why| Err(Stopped::Other(why)))
    }
}

impl Locks for ThreadRank<'_> {}

impl Rank for ThreadRank<'_> {
    fn index(&self) -> usize {
        self.index
    }

    fn count(&self) -> usize {
        2
    }

    fn now(&self) -> Stamp {
        self.clock.now()
    }

    fn clock(&self) -> &Clock {
        &self.clock
    }

    fn clock_error_ns(&self, _other: usize) -> Option<f64> {
        Some(0.0)
    }

    fn sleep(&self, ns: u64) -> Result<(), Stopped> {
        std::thread::sleep(Duration::from_nanos(ns));
        self.check()
    }

    fn think(&self, ns: u64) -> Result<(), Stopped> {
        let until = self.clock.after_ns(self.now(), ns as f64);
        while self.now() < until {}
        self.check()
    }

    fn spin<T>(&self, look: impl FnMut() -> Option<T>) -> Result<T, Stopped> {
        let found = self.spin_for(PATIENCE_NS, look)?;
        found.ok_or_else(|| Stopped::TimedOut("nothing arrived".to_owned()))
    }

    fn spin_for<T>(
        &self,
        limit_ns: u64,
        mut look: impl FnMut() -> Option<T>,
    ) -> Result<Option<T>, Stopped> {
        if self.table.is_slow && self.index == 0 && limit_ns < PATIENCE_NS {
            std::thread::sleep(Duration::from_nanos(limit_ns));
            return self.check().map(|()| None);
        }
        let start = Instant::now();
        loop {
            for _ in 0..100 {
                if let Some(found) = look() {
                    if self.is_late() {
                        self.think(self.table.delay_ns)?;
                    }
                    return Ok(Some(found));
                }
            }
            self.check()?;
            if start.elapsed() >= Duration::from_nanos(limit_ns) {
                return Ok(None);
            }
            // The other rank may need the same core.
            std::thread::yield_now();
        }
    }

    fn poll_memory(&self, word: &AtomicU64, old: u64) -> Result<u64, Stopped> {
        self.spin(|| Some(word.load(Ordering::Acquire)).filter(|value| *value != old))
    }

    fn restamping<T>(&self, word: &AtomicU64, body: impl FnOnce() -> T) -> Result<T, Stopped> {
        let ended = AtomicBool::new(false);
        word.store(self.now().0, Ordering::Release);
        Ok(std::thread::scope(|scope| {
            scope.spawn(|| {
                while !ended.load(Ordering::Relaxed) {
                    word.store(self.clock.now().0, Ordering::Release);
                    std::thread::yield_now();
                }
            });
            let result = catch_unwind(AssertUnwindSafe(body));
            ended.store(true, Ordering::Relaxed);
            result.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        }))
    }

    fn spawn<T: Send>(
        &self,
        bodies: Vec<Box<dyn FnOnce() -> T + Send + '_>>,
    ) -> Result<Vec<T>, Stopped> {
        Ok(std::thread::scope(|scope| {
            let numbered = bodies.into_iter().enumerate().map(|(index, body)| {
                move || {
                    THREAD.set(index);
                    body()
                }
            });
            let threads: Vec<_> = numbered.map(|body| scope.spawn(body)).collect();
            threads.into_iter().map(|t| t.join().expect("a thread does not panic")).collect()
        }))
    }

    fn patience_ns(&self) -> u64 {
        PATIENCE_NS
    }

    fn is_asked_to_stop(&self) -> bool {
        ASKED.set(ASKED.get() + 1);
        let most = self.table.stop_threads_after.get(THREAD.get());
        if self.index == 0 && most.is_some_and(|most| ASKED.get() > *most) {
            self.table.stopped_threads[THREAD.get()].store(true, Ordering::Relaxed);
        }
        self.table.stop.load(Ordering::Relaxed) || self.is_thread_stopped()
    }

    fn exchange(&self, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Stopped> {
        let round = self.round.fetch_add(1, Ordering::Relaxed) as usize;
        let mut rounds = self.table.rounds.lock().unwrap_or_else(PoisonError::into_inner);
        rounds.given[self.index].push(bytes.to_vec());
        self.table.changed.notify_all();
        let mut wait_limit = WaitLimit::of(Duration::from_nanos(PATIENCE_NS));
        while rounds.given[1 - self.index].len() <= round {
            if let Some(why) = &rounds.gone {
                return Err(Stopped::Other(why.clone()));
            }
            if !wait_limit.is_left() {
                return Err(Stopped::TimedOut("waited for an exchange".to_owned()));
            }
            let waited = self.table.changed.wait_timeout(rounds, Duration::from_millis(100));
            rounds = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let all = (0..2).map(|i| rounds.given[i][round].clone()).collect();
        if self.table.stop_in_round == round as u64 + 1 {
            self.table.stop.store(true, Ordering::Relaxed);
        }
        Ok(all)
    }

    fn cpu_time(&self) -> CpuTime {
        // Both ranks are threads of one process; the tests only need a time that grows.
        CpuTime { user_ns: self.clock.ns_between(Stamp(0), self.now()) as u64, system_ns: 0 }
    }
}

/// Our connection manager, with the soft device of this process.
fn load_cm() -> Result<CmTable, LoadError> {
    let path = library_dir().join("librdmacm.so.1").into_os_string().into_encoded_bytes();
    let mads = MadPort {
        open: management_c::open,
        send: management_c::send,
        receive: management_c::receive,
        note: management_c::note,
    };
    let loan = CmLoan::new(rdmalab_provider::table::table::<SoftNic>(), mads);
    CmTable::load_with(&CString::new(path).expect("a path without zeros"), &loan)
}

/// The soft device.
pub fn device() -> Device {
    static LIBRARY: OnceLock<Library> = OnceLock::new();
    let library = LIBRARY.get_or_init(|| {
        let hooks = SoftHooks {
            alloc_shared: |bytes| {
                let start = rdmalab_softnic::alloc_shared(bytes).map_err(io::Error::other)?;
                NonNull::new(start).ok_or_else(|| io::ErrorKind::OutOfMemory.into())
            },
            free_shared: rdmalab_softnic::free_shared,
            last_error: rdmalab_provider::diag::last_error,
            load_cm,
        };
        Library::new(rdmalab_provider::table::table::<SoftNic>(), Kind::Soft, Some(hooks))
    });
    library.devices().expect("a soft device").remove(0)
}

/// Runs two points, one on each rank.
pub fn at_both(table: &Table, points: [&Point; 2]) -> [Result<Outcome, Stopped>; 2] {
    let clock = Clock::new();
    let device = device();
    let one = |index: usize| {
        let rank =
            ThreadRank { index, table, clock, round: AtomicU64::new(0), seen: AtomicU64::new(0) };
        let result = run(&rank, &device, points[index]);
        if let Err(why) = &result {
            let mut rounds = table.rounds.lock().unwrap_or_else(PoisonError::into_inner);
            rounds.gone.get_or_insert(format!("rank {index}: {why}"));
            table.changed.notify_all();
        }
        result
    };
    std::thread::scope(|scope| {
        let there = scope.spawn(|| one(1));
        let here = one(0);
        [here, there.join().expect("rank 1 does not panic")]
    })
}

/// Runs a point that must succeed.
pub fn measure(point: &Point) -> Outcome {
    let [here, there] = at_both(&Table::default(), [point, point]);
    let outcome = here.unwrap_or_else(|e| panic!("rank 0: {e}\n{point:?}"));
    there.unwrap_or_else(|e| panic!("rank 1: {e}\n{point:?}"));
    assert_eq!(outcome.cut_short, None);
    outcome
}

/// The single point for these options (`name=value`, separated by blanks).
pub fn point(experiment: Experiment, options: &str) -> Point {
    let pairs: Vec<_> =
        options.split_whitespace().map(|o| o.split_once('=').expect("name=value")).collect();
    let mut points = sweep(experiment, &pairs).expect("options that exist");
    assert_eq!(points.len(), 1, "{options}");
    points.remove(0)
}

/// Checks each point against the soft device. The refusal must contain the third string; an empty
/// string means that the point must not be refused.
pub fn refused(cases: &[(Experiment, &str, &str)]) {
    let context = device().open().expect("the soft device opens");
    let limits = Limits::query(&context, 1).expect("limits");
    for (experiment, options, says) in cases {
        let result = check(&point(*experiment, options), &limits);
        let why = result.err().map_or(String::new(), |e| e.to_string());
        assert_eq!(why.is_empty(), says.is_empty(), "{experiment} {options}: {why}");
        assert!(why.contains(says), "{experiment} {options}: {why}");
    }
}

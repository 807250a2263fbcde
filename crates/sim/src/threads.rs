//! Threads of a rank.

use std::sync::Arc;

use parking_lot::Mutex;
use rdmalab_rank::Stopped;

use crate::kernel::Sim;
use crate::task::{Body, caught};

/// The results of threads, by index; a panic is its text.
type Results<T> = Arc<Mutex<Vec<Option<Result<T, String>>>>>;

/// Runs bodies as threads of a rank, and waits for all of them.
///
/// # Errors
/// One of them panicked.
pub(crate) fn run<T: Send>(
    sim: &Arc<Sim>,
    node: usize,
    bodies: Vec<Box<dyn FnOnce() -> T + Send + '_>>,
) -> Result<Vec<T>, Stopped> {
    let Some(parent) = sim.running() else {
        return Err(Stopped::Failed("threads need a rank that runs".to_owned()));
    };
    let results: Results<T> = Arc::new(Mutex::new(bodies.iter().map(|_| None).collect()));
    for (index, body) in bodies.into_iter().enumerate() {
        let results = results.clone();
        let whole: Box<dyn FnOnce() + '_> = Box::new(move || {
            let result = caught(body);
            results.lock()[index] = Some(result);
        });
        // SAFETY: this function returns only after the last of them has ended: below it waits, and
        // the scheduler drops a rank's stack after those of its threads, which have higher numbers.
        let whole = unsafe { Body::outliving(whole) };
        sim.add_thread(node, parent, whole);
    }
    while sim.with(|world| world.tasks[parent.0].children > 0) {
        sim.block("the end of its threads");
    }
    let results = std::mem::take(&mut *results.lock());
    let each = results.into_iter().map(|result| match result {
        Some(Ok(value)) => Ok(value),
        Some(Err(panic)) => Err(Stopped::Failed(format!("a thread panicked: {panic}"))),
        None => Err(Stopped::Failed("a thread did not start".to_owned())),
    });
    each.collect()
}

//! Threads of a rank.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use rdmalab_rank::Stopped;

use crate::kernel::Sim;
use crate::task::{Body, caught};

/// The results of threads, by index; a panic is its text.
type Results<T> = Rc<RefCell<Vec<Option<Result<T, String>>>>>;

/// Extends the life of what a body borrows.
///
/// # Safety
/// The body has ended, or is dropped, before anything that it borrows is gone.
pub(crate) unsafe fn outliving<'a>(body: Box<dyn FnOnce() + 'a>) -> Body {
    // SAFETY: only the lifetime changes, and the caller promises that it is kept.
    unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'a>, Body>(body) }
}

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
    let results: Results<T> = Rc::new(RefCell::new(bodies.iter().map(|_| None).collect()));
    for (index, body) in bodies.into_iter().enumerate() {
        let results = results.clone();
        let whole: Box<dyn FnOnce() + '_> = Box::new(move || {
            let result = caught(body);
            results.borrow_mut()[index] = Some(result);
        });
        // SAFETY: this function returns only after the last of them has ended: below it waits, and
        // the scheduler drops a rank's stack after those of its threads, which have higher numbers.
        let whole = unsafe { outliving(whole) };
        sim.with(|world| world.add_task(node, Some(parent), whole));
    }
    while sim.with(|world| world.tasks[parent.0].children > 0) {
        sim.block("the end of its threads");
    }
    let results = std::mem::take(&mut *results.borrow_mut());
    let each = results.into_iter().map(|result| match result {
        Some(Ok(value)) => Ok(value),
        Some(Err(panic)) => Err(Stopped::Failed(format!("a thread panicked: {panic}"))),
        None => Err(Stopped::Failed("a thread did not begin".to_owned())),
    });
    each.collect()
}

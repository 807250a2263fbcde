//! Tasks: the ranks and their threads, as coroutines of one thread of the processor.
//!
//! A task runs until it waits; then the scheduler runs the task whose time comes next. A task that
//! is dropped before its end, because the scheduler itself panicked, is unwound; the unwinding
//! never waits, since [`suspend`] then returns at once.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

/// Which task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId(pub(crate) usize);

/// Stack of a task. Only the pages that are touched take memory.
const STACK_BYTES: usize = 512 << 10;

/// What a task runs.
pub(crate) type Body = Box<dyn FnOnce()>;

type TaskYielder = Yielder<(), ()>;

/// The task that a thread runs now.
#[derive(Clone, Copy)]
struct Running {
    task: TaskId,
    /// Which simulation it belongs to: the address of its state, which is only compared.
    of: usize,
    yielder: NonNull<TaskYielder>,
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
    /// The tasks of this thread that were added, and not begun.
    static ADDED: RefCell<Vec<(TaskId, Body)>> = const { RefCell::new(Vec::new()) };
}

/// Adds a task, which the scheduler of this thread will begin.
pub(crate) fn add(task: TaskId, body: Body) {
    ADDED.with_borrow_mut(|added| added.push((task, body)));
}

/// Takes the tasks that were added.
pub(crate) fn take_added() -> Vec<(TaskId, Body)> {
    ADDED.take()
}

/// The task of the simulation `of` that runs on this thread now; `None` outside of its tasks.
pub(crate) fn running(of: usize) -> Option<TaskId> {
    RUNNING.get().filter(|running| running.of == of).map(|running| running.task)
}

/// Lets the scheduler run other tasks, until it resumes this one. Returns at once while the stack
/// is being unwound, and outside of tasks.
pub(crate) fn suspend() {
    let Some(running) = RUNNING.get() else { return };
    if std::thread::panicking() {
        return;
    }
    // SAFETY: the yielder lives on the stack of the running task, below this frame.
    unsafe { running.yielder.as_ref() }.suspend(());
    RUNNING.set(Some(running));
}

/// A task that was started.
pub(crate) struct TaskStack(Coroutine<(), (), ()>);

impl TaskStack {
    /// Prepares a task of the simulation `of`; it begins when it is resumed first.
    ///
    /// # Errors
    /// There is no memory for its stack.
    pub(crate) fn new(task: TaskId, of: usize, body: Body) -> std::io::Result<TaskStack> {
        let stack = DefaultStack::new(STACK_BYTES)?;
        Ok(TaskStack(Coroutine::with_stack(stack, move |yielder: &TaskYielder, ()| {
            RUNNING.set(Some(Running { task, of, yielder: NonNull::from(yielder) }));
            body();
        })))
    }

    /// Runs the task until it waits or ends. Returns whether it has ended.
    pub(crate) fn resume(&mut self) -> bool {
        /// Restores the task that ran before, also if a panic passes.
        struct Before(Option<Running>);
        impl Drop for Before {
            fn drop(&mut self) {
                RUNNING.set(self.0);
            }
        }
        let _before = Before(RUNNING.get());
        matches!(self.0.resume(()), CoroutineResult::Return(()))
    }
}

/// Runs a body; a panic in it becomes its text.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        text.unwrap_or_else(|| "a panic without a text".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn tasks_take_turns_and_keep_their_identity() {
        let trace = Rc::new(std::cell::RefCell::new(Vec::new()));
        let mut stacks: Vec<TaskStack> = (0..2)
            .map(|index| {
                let trace = trace.clone();
                let body = move || {
                    for turn in 0..2 {
                        assert_eq!((running(7), running(8)), (Some(TaskId(index)), None));
                        trace.borrow_mut().push((index, turn));
                        suspend();
                    }
                };
                TaskStack::new(TaskId(index), 7, Box::new(body)).unwrap()
            })
            .collect();
        let ended: Vec<bool> = [0, 1, 1, 0, 0, 1].map(|index: usize| stacks[index].resume()).into();
        assert_eq!(ended, [false, false, false, false, true, true]);
        assert_eq!(*trace.borrow(), [(0, 0), (1, 0), (1, 1), (0, 1)]);
        assert_eq!(running(7), None);
    }

    #[test]
    fn a_task_that_is_dropped_is_unwound() {
        struct Told(Rc<Cell<bool>>);
        impl Drop for Told {
            fn drop(&mut self) {
                suspend();
                self.0.set(true);
            }
        }
        let gone = Rc::new(Cell::new(false));
        let told = Told(gone.clone());
        let body = move || {
            let _told = told;
            suspend();
        };
        let mut stack = TaskStack::new(TaskId(0), 7, Box::new(body)).unwrap();
        assert!(!stack.resume());
        drop(stack);
        assert!(gone.get());
    }

    #[test]
    fn a_panic_becomes_its_text() {
        assert_eq!(caught(|| 7), Ok(7));
        assert_eq!(caught(|| -> u8 { panic!("{} wrong", 3) }), Err("3 wrong".to_owned()));
    }
}

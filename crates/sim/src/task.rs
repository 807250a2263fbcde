//! Tasks: the ranks and their threads, as coroutines of one thread of the processor.
//!
//! A task runs until it waits; then the scheduler runs the task whose time comes next. A task that
//! is dropped before its end, because the scheduler itself panicked, is unwound; the unwinding
//! never waits, since [`suspend`] then returns at once.
//!
//! [`OsThread`]s can take the place of coroutines: a proof that nothing depends on which stack or
//! thread a task runs on.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;

use corosensei::stack::DefaultStack;
use corosensei::{Coroutine, CoroutineResult, Yielder};

use crate::os_thread::{OsThread, Turn};

/// Which task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId(pub(crate) usize);

/// Stack of a task. Only the pages that are touched take memory.
const STACK_BYTES: usize = 512 << 10;

/// What a task runs.
pub(crate) struct Body(Box<dyn FnOnce()>);

// SAFETY: of all tasks one runs at a time, and each resumption happens after what ran before it:
// on the same thread, or by the lock of a `Turn`.
unsafe impl Send for Body {}

impl Body {
    /// A body that borrows.
    ///
    /// # Safety
    /// It has ended, or is dropped, before anything that it borrows is gone.
    pub(crate) unsafe fn outliving<'a>(body: Box<dyn FnOnce() + 'a>) -> Body {
        // SAFETY: only the lifetime changes, and the caller promises that it is kept.
        Body(unsafe { std::mem::transmute::<Box<dyn FnOnce() + 'a>, Box<dyn FnOnce()>>(body) })
    }
}

type TaskYielder = Yielder<(), ()>;

/// How a running task gives way to the scheduler.
#[derive(Clone, Copy)]
enum Way {
    Coroutine(NonNull<TaskYielder>),
    Thread(NonNull<Turn>),
}

/// The task that a thread runs now.
#[derive(Clone, Copy)]
struct Running {
    task: TaskId,
    /// Which simulation it belongs to: the address of its state, which is only compared.
    of: usize,
    way: Way,
}

thread_local! {
    static RUNNING: Cell<Option<Running>> = const { Cell::new(None) };
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
    match running.way {
        // SAFETY: the yielder lives on the stack of the running task, below this frame.
        Way::Coroutine(yielder) => unsafe { yielder.as_ref() }.suspend(()),
        // SAFETY: the thread of the running task, which is this one, owns a share of the turn.
        Way::Thread(turn) => unsafe { turn.as_ref() }.give_way(),
    }
    RUNNING.set(Some(running));
}

/// A task that was started.
pub(crate) enum TaskStack {
    /// It runs on the thread of the scheduler.
    Coroutine(Coroutine<(), (), ()>),
    /// It runs on a thread of its own.
    Thread(OsThread),
}

impl TaskStack {
    /// Prepares a task of the simulation `of`; it begins when it is resumed first.
    ///
    /// # Errors
    /// There is no memory for its stack, or no thread.
    pub(crate) fn new(
        task: TaskId,
        of: usize,
        body: Body,
        on_thread: bool,
    ) -> std::io::Result<TaskStack> {
        if on_thread {
            let begin = move |turn: &Turn| {
                let way = Way::Thread(NonNull::from(turn));
                RUNNING.set(Some(Running { task, of, way }));
                // The whole is captured, which may be sent, and not its field.
                let Body(body) = { body };
                body();
            };
            return OsThread::new(STACK_BYTES, begin).map(TaskStack::Thread);
        }
        let stack = DefaultStack::new(STACK_BYTES)?;
        let begin = move |yielder: &TaskYielder, ()| {
            let way = Way::Coroutine(NonNull::from(yielder));
            RUNNING.set(Some(Running { task, of, way }));
            (body.0)();
        };
        Ok(TaskStack::Coroutine(Coroutine::with_stack(stack, begin)))
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
        match self {
            TaskStack::Coroutine(task) => {
                matches!(task.resume(()), CoroutineResult::Return(()))
            }
            TaskStack::Thread(task) => task.resume(),
        }
    }
}

/// Runs a body; a panic in it becomes its text.
pub(crate) fn caught<T>(body: impl FnOnce() -> T) -> Result<T, String> {
    catch_unwind(AssertUnwindSafe(body)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
        text.unwrap_or_else(|| "a panic without a message".to_owned())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::rc::Rc;

    fn start(task: usize, body: impl FnOnce() + 'static) -> TaskStack {
        TaskStack::new(TaskId(task), 7, Body(Box::new(body)), false).unwrap()
    }

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
                start(index, body)
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
        let mut stack = start(0, body);
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

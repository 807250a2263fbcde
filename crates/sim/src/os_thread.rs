//! A task on a thread of its own. It and the scheduler take turns: one of them runs, the other
//! waits.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::thread::JoinHandle;

use parking_lot::{Condvar, Mutex};

/// Who runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Whose {
    Scheduler,
    Task,
    /// The task has ended.
    Nobodys,
}

/// Whose turn it is, of a task and the scheduler.
#[derive(Debug)]
pub(crate) struct Turn {
    whose: Mutex<Whose>,
    changed: Condvar,
    /// The task is dropped before its end: it must unwind.
    is_dropped: Mutex<bool>,
}

impl Turn {
    fn pass(&self, to: Whose) {
        *self.whose.lock() = to;
        self.changed.notify_all();
    }

    fn wait_while(&self, other: Whose) -> Whose {
        let mut whose = self.whose.lock();
        self.changed.wait_while(&mut whose, |whose| *whose == other);
        *whose
    }

    /// The task lets the scheduler run, until it is resumed.
    pub(crate) fn give_way(&self) {
        self.pass(Whose::Scheduler);
        self.wait_while(Whose::Scheduler);
        if *self.is_dropped.lock() {
            resume_unwind(Box::new("the task was dropped"));
        }
    }
}

/// A task on a thread of its own.
pub(crate) struct OsThread {
    turn: Arc<Turn>,
    thread: Option<JoinHandle<()>>,
}

impl OsThread {
    /// Starts a thread, which begins to run `body` when it is resumed first.
    ///
    /// # Errors
    /// There is no thread.
    pub(crate) fn new(
        stack_bytes: usize,
        body: impl FnOnce(&Turn) + Send + 'static,
    ) -> std::io::Result<OsThread> {
        let turn = Arc::new(Turn {
            whose: Mutex::new(Whose::Scheduler),
            changed: Condvar::new(),
            is_dropped: Mutex::new(false),
        });
        let own = turn.clone();
        let run = move || {
            own.wait_while(Whose::Scheduler);
            if !*own.is_dropped.lock() {
                // Bodies catch panics; what is left is the unwinding of a task that was dropped.
                let _ = catch_unwind(AssertUnwindSafe(|| body(&own)));
            }
            own.pass(Whose::Nobodys);
        };
        let builder = std::thread::Builder::new().name("task".to_owned()).stack_size(stack_bytes);
        Ok(OsThread { turn, thread: Some(builder.spawn(run)?) })
    }

    /// Runs the task until it waits or ends. Returns whether it has ended.
    pub(crate) fn resume(&mut self) -> bool {
        self.turn.pass(Whose::Task);
        self.turn.wait_while(Whose::Task) == Whose::Nobodys
    }
}

impl Drop for OsThread {
    fn drop(&mut self) {
        if *self.turn.whose.lock() != Whose::Nobodys {
            *self.turn.is_dropped.lock() = true;
            self.resume();
        }
        if let Some(thread) = self.thread.take() {
            // It catches its panics.
            let _ = thread.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_and_the_scheduler_take_turns() {
        let steps = Arc::new(Mutex::new(Vec::new()));
        let own = steps.clone();
        let mut task = OsThread::new(1 << 16, move |turn| {
            for step in 0..2 {
                own.lock().push(step);
                turn.give_way();
            }
        })
        .unwrap();
        assert!(steps.lock().is_empty(), "it begins when it is resumed");
        for (seen, ended) in [(1, false), (2, false), (2, true)] {
            assert_eq!((task.resume(), steps.lock().len()), (ended, seen));
        }
    }

    #[test]
    fn a_task_that_is_dropped_is_unwound() {
        struct Told(Arc<Mutex<bool>>);
        impl Drop for Told {
            fn drop(&mut self) {
                *self.0.lock() = true;
            }
        }
        let gone = Arc::new(Mutex::new(false));
        let told = Told(gone.clone());
        let mut task = OsThread::new(1 << 16, move |turn| {
            let _told = told;
            turn.give_way();
            unreachable!("it is not resumed");
        })
        .unwrap();
        assert!(!task.resume());
        drop(task);
        assert!(*gone.lock());
        // One that has not begun drops its body.
        let gone = Arc::new(Mutex::new(false));
        let told = Told(gone.clone());
        drop(OsThread::new(1 << 16, move |_| drop(told)).unwrap());
        assert!(*gone.lock());
    }
}

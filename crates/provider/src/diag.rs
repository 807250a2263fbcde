//! The messages for error numbers.
//!
//! C callers get only `errno`. A message with the cause, the limit and what to do is kept per
//! thread, and printed if `RDMALAB_DEBUG=1` is set.

use std::cell::RefCell;
use std::io::Write;
use std::sync::OnceLock;

thread_local! {
    static LAST: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// The message of the last failed verb of this thread, as `verb: sentence`; `None` when none has
/// failed yet. A later success does not clear it.
pub fn last_error() -> Option<String> {
    // The message is gone while the thread is being torn down.
    LAST.try_with(|last| last.borrow().clone()).ok().flatten()
}

/// Keeps the message of a verb that failed, and prints it if requested.
#[cold]
pub(crate) fn note(verb: &str, sentence: &str) {
    if is_wanted() {
        // Standard error may be closed; that must not cause a panic in a C program.
        let _ = writeln!(std::io::stderr(), "rdmalab: {verb}: {sentence}");
    }
    let _ = LAST.try_with(|last| {
        if let Ok(mut last) = last.try_borrow_mut() {
            *last = Some(format!("{verb}: {sentence}"));
        }
    });
}

/// Whether `RDMALAB_DEBUG=1` is in the environment; read once.
fn is_wanted() -> bool {
    static WANTED: OnceLock<bool> = OnceLock::new();
    *WANTED.get_or_init(|| std::env::var_os("RDMALAB_DEBUG").is_some_and(|value| value == "1"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_thread_keeps_its_own_sentence() {
        note("ibv_reg_mr", "no");
        assert_eq!(last_error().as_deref(), Some("ibv_reg_mr: no"));
        let other = std::thread::spawn(last_error).join().expect("it does not panic");
        assert_eq!(other, None);
    }
}

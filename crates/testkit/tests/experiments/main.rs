//! Experiments on the soft device: each option once at least, and whether what they say is true.

mod calls;
mod fan;
mod loads;
mod manager;
mod options;
mod process;
mod recvq;
mod truth;
mod two;
mod waits;

/// The turn of a test that needs the processors in time, or takes one for milliseconds without
/// letting others have it; kept until it is dropped. More spinning ranks than that at once, and
/// pauses of the scheduler are all that there is to be found.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

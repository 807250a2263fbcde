//! Experiments on the soft device: each option at least once, and whether the times are true.

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

/// The turn of a test that depends on prompt scheduling or keeps a processor busy for milliseconds;
/// the turn lasts until it is dropped. With more spinning ranks at once, pauses of the scheduler
/// would hide everything that the tests look for.
fn turn() -> std::sync::MutexGuard<'static, ()> {
    static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
    TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

//! The message and the place of the last panic. Its payload does not tell the place.

use std::any::Any;
use std::sync::Mutex;

use super::control::lock;
use super::handshake::printable;

static PANIC: Mutex<Option<String>> = Mutex::new(None);

/// Records panics from now on, instead of printing them.
pub fn record() {
    std::panic::set_hook(Box::new(|info| *lock(&PANIC) = Some(info.to_string())));
}

/// Takes the recorded panic.
pub fn take() -> Option<String> {
    lock(&PANIC).take()
}

/// The message of a panic and its place, as far as they are known.
pub fn text(panic: &(dyn Any + Send)) -> String {
    if let Some(text) = take() {
        return printable(&text);
    }
    let text = panic.downcast_ref::<&str>().map(|s| (*s).to_owned());
    let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
    printable(&text.unwrap_or_else(|| "panicked".to_owned()))
}

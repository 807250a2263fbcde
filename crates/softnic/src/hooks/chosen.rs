//! The capture and the fault rules that the program chose in place of the environment's.

use std::path::PathBuf;
use std::sync::OnceLock;

/// The arguments of [`super::choice::choose_hooks`].
pub(super) static CHOSEN: OnceLock<(Option<PathBuf>, Option<String>)> = OnceLock::new();

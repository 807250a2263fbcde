//! The corrected text of a file.

use std::sync::Arc;

use crate::error::{ConfigError, Fix};
use crate::position::Source;

/// The text of the file with the changes that the errors propose for it. What else stands there,
/// comments too, stays as it is.
#[must_use]
pub fn fixed(source: &Arc<Source>, errors: &[ConfigError]) -> String {
    let mut fixes: Vec<&Fix> = errors
        .iter()
        .filter_map(|error| error.fix.as_ref())
        .filter(|fix| Arc::ptr_eq(fix.at.source(), source))
        .collect();
    fixes.sort_by_key(|fix| fix.at.bytes().start);
    let mut text = source.text.clone();
    for fix in fixes.into_iter().rev() {
        text.replace_range(fix.at.bytes(), &fix.text);
    }
    text
}

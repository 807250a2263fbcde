//! Functions that the header calls through `ibv_context.ops`, among them the hot paths.

pub(crate) mod poll;
pub(crate) mod post;
pub(crate) mod window;

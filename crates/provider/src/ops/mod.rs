//! What the header calls through `ibv_context.ops`: the paths that every message takes.

pub(crate) mod poll;
pub(crate) mod post;
pub(crate) mod window;

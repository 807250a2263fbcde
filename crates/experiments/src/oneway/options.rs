//! The options that only `oneway` has.

use crate::common::option::{COUNT_MAX, Field, Opt, number_field};
use crate::common::params::{Common, Op};
use crate::common::rules::{Fault, NUMBER_BYTES, must};
use crate::common::words::words;

/// Its options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Oneway {
    /// Messages posted one after the other before everything is waited for; 0: the whole run.
    pub burst: u64,
    /// Which stamps are taken.
    pub stamps: Stamps,
}

words! {
    /// A stamp that is taken, or a time that is given.
    StampOf, "stamp" {
        /// Before the post: always.
        Subm = "subm",
        /// When the adapter copies the message: a thread keeps writing the time into it.
        Send = "send",
        /// After the arrival was noticed.
        Recv = "recv",
        /// After the sender's completion was polled.
        Comp = "comp",
        /// After the post returned.
        Post = "post",
    }
}

/// Which stamps are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamps {
    /// When the adapter copies the message, by a thread that keeps writing the time into it.
    pub send: bool,
    /// Arrivals.
    pub recv: bool,
    /// Completions at the sender.
    pub comp: bool,
    /// The end of the post.
    pub post: bool,
}

impl Stamps {
    /// What cannot be taken.
    pub fn check(&self, common: &Common) -> Result<(), Fault> {
        let s = self;
        must(!s.send || common.threads == 1, "stamps", || {
            "the stamp send needs a thread of its own beside the sending one: choose --threads 1"
                .to_owned()
        })?;
        must(s.recv || s.comp || s.post, "stamps", || {
            "the stamp send alone measures nothing: add recv, comp or post".to_owned()
        })?;
        must(!s.send || s.recv, "stamps", || {
            "the stamp send measures until the arrival: add recv".to_owned()
        })?;
        must(!s.send || common.op.has_imm(), "stamps", || {
            format!(
                "the stamp send fills the payload with times, so the message's number must be \
                 immediate data: choose --op {}_imm",
                if common.op == Op::Write { "write" } else { "send" }
            )
        })?;
        must(!s.send || common.size_bytes >= NUMBER_BYTES, "stamps", || {
            format!(
                "the stamp send needs {NUMBER_BYTES} bytes of payload: choose --size \
                 {NUMBER_BYTES} or more"
            )
        })
    }

    /// Whether a stamp is among them; the one before the post always is.
    #[must_use]
    pub const fn has(self, stamp: StampOf) -> bool {
        match stamp {
            StampOf::Subm => true,
            StampOf::Send => self.send,
            StampOf::Recv => self.recv,
            StampOf::Comp => self.comp,
            StampOf::Post => self.post,
        }
    }
}

pub(super) const BURST: Field<Oneway> = number_field!(
    "burst", None, burst: u64, 0..=COUNT_MAX, "N", "",
    "messages posted one after the other before everything is waited for; 0: the whole run"
);
pub(super) const STAMPS: Field<Oneway> = Field {
    opt: Opt {
        name: "stamps",
        letter: None,
        value_name: "LIST",
        unit: "",
        help: "stamps to take, separated by commas: recv, comp, send (when the adapter copies the \
               message), post (the end of the post call); subm, before the post, always is",
        is_number: false,
        words: &[
            "subm",
            "subm,recv",
            "subm,recv,comp",
            "subm,send,recv",
            "subm,send,recv,comp,post",
        ],
        bare: None,
    },
    get: |p| {
        let names: Vec<&str> =
            StampOf::ALL.iter().filter(|s| p.stamps.has(**s)).map(|s| s.name()).collect();
        names.join(",")
    },
    set: |p, text| {
        let mut stamps = Stamps { send: false, recv: false, comp: false, post: false };
        for word in text.split(',') {
            match word.trim().parse()? {
                StampOf::Subm => {}
                StampOf::Send => stamps.send = true,
                StampOf::Recv => stamps.recv = true,
                StampOf::Comp => stamps.comp = true,
                StampOf::Post => stamps.post = true,
            }
        }
        p.stamps = stamps;
        Ok(())
    },
};

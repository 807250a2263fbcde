//! The parts of a model to which the time of a message is attributed.

use serde::{Deserialize, Serialize};

macro_rules! components {
    ($($(#[doc = $doc:literal])+ $name:ident = $word:literal;)+) => {
        /// A part of the model.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
        pub enum Component {
            $($(#[doc = $doc])+ $name,)+
        }

        impl Component {
            /// All of them, in the order in which a message meets them.
            pub const ALL: &[Component] = &[$(Component::$name,)+];

            /// Its name, for people.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Component::$name => $word,)+
                }
            }
        }
    };
}

components! {
    /// The processor besides posts and polls: time stamps, copies, other verbs, the program.
    Program = "program";
    /// A verb that posts.
    Post = "post";
    /// The processor's write on its way to the adapter, with or without the WQE.
    Doorbell = "write to the adapter";
    /// The read of send WQEs over the bus.
    WqeRead = "WQE read";
    /// The send engine: the wait for its turn, the context of the queue pair, its delay.
    SendEngine = "send engine";
    /// The read of the payload over the bus.
    PayloadRead = "payload read";
    /// The wait for a link, the bytes on it, and the cable.
    Link = "link";
    /// A switch, and the wait for the link behind it.
    Switch = "switch";
    /// The receive engine: the wait for it, the context of the queue pair, its delay.
    ReceiveEngine = "receive engine";
    /// The read of receive WQEs.
    ReceiveWqe = "receive WQE read";
    /// The write of the payload over the bus.
    MemoryWrite = "memory write";
    /// The write of a completion over the bus, until it is visible.
    Completion = "completion";
    /// The look that finds a completion or a write to memory, and what a poll takes.
    Poll = "poll";
    /// A processor that sleeps needs time to wake up.
    WakeUp = "wake-up";
    /// A time-out, or the wait after an RNR NAK.
    Timer = "timer";
    /// A page that the adapter found missing.
    Page = "page fault";
    /// A fault rule that defers packets.
    Rule = "fault rule";
    /// A lock that another thread of the rank holds.
    Lock = "lock";
    /// The other ranks, where all exchange what they know.
    Ranks = "other ranks";
    /// A pause of the program.
    Pause = "pause";
}

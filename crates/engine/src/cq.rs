//! The rules of a completion queue: when an event is due, and what overflow means.

use crate::vocab::WcStatus;

/// Which completions raise an event (`ibv_req_notify_cq`; IBA vol. 1, 11.4.2.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(u8)]
pub enum Notify {
    /// Nothing.
    #[default]
    Disarmed = 0,
    /// The next solicited completion, or the next that failed.
    Solicited = 1,
    /// The next completion.
    Any = 2,
}

impl Notify {
    /// The stronger of two requests: asking for solicited events does not take back an earlier
    /// request for any.
    #[inline]
    pub fn strengthen(self, other: Notify) -> Notify {
        if self as u8 >= other as u8 { self } else { other }
    }

    /// Whether a completion raises the event.
    #[inline]
    pub fn is_due(self, solicited: bool, status: WcStatus) -> bool {
        match self {
            Notify::Disarmed => false,
            Notify::Solicited => solicited || status != WcStatus::Success,
            Notify::Any => true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_count_as_solicited() {
        assert!(!Notify::Solicited.is_due(false, WcStatus::Success));
        assert!(Notify::Solicited.is_due(false, WcStatus::WrFlushErr));
        assert!(Notify::Solicited.is_due(true, WcStatus::Success));
        assert_eq!(Notify::Any.strengthen(Notify::Solicited), Notify::Any);
    }
}

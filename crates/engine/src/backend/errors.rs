//! Errors of verbs and of posts.

/// An error of a verb: the number that C callers get in `errno`, and a sentence for people that
/// says what was wrong, the limit, and what to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerbsError {
    /// A Linux error number.
    pub errno: i32,
    /// The sentence.
    pub message: String,
}

impl VerbsError {
    /// `EPERM` on Linux.
    pub const EPERM: i32 = 1;
    /// `EINVAL` on Linux.
    pub const EINVAL: i32 = 22;
    /// `ENOMEM` on Linux.
    pub const ENOMEM: i32 = 12;
    /// `EBUSY` on Linux.
    pub const EBUSY: i32 = 16;
    /// `EAGAIN` on Linux.
    pub const EAGAIN: i32 = 11;
    /// `EFAULT` on Linux.
    pub const EFAULT: i32 = 14;
    /// `ENODEV` on Linux.
    pub const ENODEV: i32 = 19;
    /// `EOPNOTSUPP` on Linux.
    pub const EOPNOTSUPP: i32 = 95;

    /// An error with its number and sentence.
    pub fn new(errno: i32, message: impl Into<String>) -> Self {
        VerbsError { errno, message: message.into() }
    }

    /// An argument was wrong (`EINVAL`).
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Self::EINVAL, message)
    }

    /// The object is in use (`EBUSY`).
    pub fn busy(message: impl Into<String>) -> Self {
        Self::new(Self::EBUSY, message)
    }

    /// The device cannot do this (`EOPNOTSUPP`).
    pub fn unsupported(message: impl Into<String>) -> Self {
        Self::new(Self::EOPNOTSUPP, message)
    }

    /// A table or queue is full (`ENOMEM`).
    pub fn no_room(message: impl Into<String>) -> Self {
        Self::new(Self::ENOMEM, message)
    }
}

impl core::fmt::Display for VerbsError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for VerbsError {}

/// The result of a verb, or its error number and why.
pub type VerbsResult<T> = Result<T, VerbsError>;

/// Why a work request was refused when it was posted; nothing of it was queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue is full: poll completions first (`ENOMEM`).
    QueueFull,
    /// The QP is in a state that takes no such request (`EINVAL`).
    BadState,
    /// The opcode does not exist on this transport (`EINVAL`).
    BadOpcode,
    /// More scatter/gather elements than the QP was created with (`EINVAL`).
    TooManySges,
    /// More inline bytes than the QP was created with (`EINVAL`).
    InlineTooLong,
    /// READ and atomics return data, so they cannot be inline (`EINVAL`).
    InlineAnswer,
    /// READ or an atomic on a QP whose `max_rd_atomic` is 0 (`EINVAL`).
    NoRdAtomic,
    /// Longer than the path MTU (UD) or 2^31 bytes (`EINVAL`).
    TooLong,
    /// An inline source address cannot be read (`EFAULT`).
    Fault,
    /// A UD request without an address handle, or an unusable key or window (`EINVAL`).
    BadAddress,
}

impl PostError {
    /// The Linux error number of this refusal.
    pub const fn errno(self) -> i32 {
        match self {
            PostError::QueueFull => VerbsError::ENOMEM,
            PostError::Fault => VerbsError::EFAULT,
            _ => VerbsError::EINVAL,
        }
    }
}

use std::fmt;
use std::ops::{BitOr, BitOrAssign};

/// Which parts of a sample are known, and what is special about it. The bits are those of
/// VILLASnode, because its `compare` prints them.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Flags(u32);

impl Flags {
    /// No flag.
    pub const NONE: Self = Self(0);
    /// The time of origin is known.
    pub const ORIGIN: Self = Self(1);
    /// The time of arrival here is known.
    pub const RECEIVED: Self = Self(1 << 1);
    /// The sequence number is known.
    pub const SEQUENCE: Self = Self(1 << 3);
    /// There are values.
    pub const DATA: Self = Self(1 << 4);
    /// The sample is the first one of a frame.
    pub const NEW_FRAME: Self = Self(1 << 16);
    /// The sample is the first one of a simulation.
    pub const NEW_SIMULATION: Self = Self(1 << 17);

    /// Every flag, with a letter for it.
    const LETTERS: [(Self, char); 6] = [
        (Self::ORIGIN, 'o'),
        (Self::RECEIVED, 'r'),
        (Self::SEQUENCE, 's'),
        (Self::DATA, 'd'),
        (Self::NEW_FRAME, 'F'),
        (Self::NEW_SIMULATION, 'S'),
    ];

    /// The flags as a number.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `others` are set.
    #[inline]
    #[must_use]
    pub const fn has(self, others: Self) -> bool {
        self.0 & others.0 == others.0
    }

    /// These flags and `others`.
    #[inline]
    #[must_use]
    pub const fn with(self, others: Self) -> Self {
        Self(self.0 | others.0)
    }

    /// These flags but not `others`.
    #[inline]
    #[must_use]
    pub const fn without(self, others: Self) -> Self {
        Self(self.0 & !others.0)
    }

    /// The flags that are also in `others`.
    #[must_use]
    pub const fn and(self, others: Self) -> Self {
        Self(self.0 & others.0)
    }
}

impl BitOr for Flags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        self.with(other)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Self) {
        *self = self.with(other);
    }
}

/// A letter for each flag: `o`rigin, `r`eceived, `s`equence, `d`ata, new `F`rame, new `S`imulation;
/// `-` for none.
impl fmt::Display for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NONE {
            return f.write_str("-");
        }
        let set = Self::LETTERS.iter().filter(|(flag, _)| self.has(*flag));
        set.map(|(_, letter)| *letter).try_for_each(|letter| fmt::Write::write_char(f, letter))
    }
}

impl fmt::Debug for Flags {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_join_and_part() {
        let flags = Flags::ORIGIN | Flags::DATA;
        assert!(flags.has(Flags::ORIGIN) && !flags.has(Flags::ORIGIN | Flags::SEQUENCE));
        assert_eq!(flags.without(Flags::ORIGIN), Flags::DATA);
        assert_eq!((flags | Flags::NEW_FRAME).to_string(), "odF");
        assert_eq!((flags.and(Flags::SEQUENCE).to_string(), flags.bits()), ("-".to_owned(), 0x11));
    }
}

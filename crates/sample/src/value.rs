use crate::kind::Kind;

/// A complex number of two single-precision numbers.
#[derive(Clone, Copy, PartialEq, Default, Debug)]
pub struct Complex {
    /// The real part.
    pub real: f32,
    /// The imaginary part.
    pub imaginary: f32,
}

/// The value of a signal: 8 bytes, whose meaning is the [`Kind`] of the signal. In memory it is
/// laid out as C's union of `double`, `int64_t`, `bool` and `complex float`.
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Value(u64);

impl Value {
    /// A value with these 8 bytes, in the order of this machine.
    #[inline]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The 8 bytes, in the order of this machine.
    #[inline]
    #[must_use]
    pub const fn bits(self) -> u64 {
        self.0
    }

    /// A value of [`Kind::Float`].
    #[inline]
    #[must_use]
    pub const fn from_float(value: f64) -> Self {
        Self(value.to_bits())
    }

    /// A value of [`Kind::Integer`].
    #[inline]
    #[must_use]
    pub const fn from_integer(value: i64) -> Self {
        Self(value.cast_unsigned())
    }

    /// A value of [`Kind::Boolean`].
    #[inline]
    #[must_use]
    pub const fn from_boolean(value: bool) -> Self {
        Self(u64::from_ne_bytes([value as u8, 0, 0, 0, 0, 0, 0, 0]))
    }

    /// A value of [`Kind::Complex`].
    #[inline]
    #[must_use]
    pub const fn from_complex(value: Complex) -> Self {
        let (r, i) = (value.real.to_ne_bytes(), value.imaginary.to_ne_bytes());
        Self(u64::from_ne_bytes([r[0], r[1], r[2], r[3], i[0], i[1], i[2], i[3]]))
    }

    /// The value of a signal of [`Kind::Float`].
    #[inline]
    #[must_use]
    pub const fn float(self) -> f64 {
        f64::from_bits(self.0)
    }

    /// The value of a signal of [`Kind::Integer`].
    #[inline]
    #[must_use]
    pub const fn integer(self) -> i64 {
        self.0.cast_signed()
    }

    /// The value of a signal of [`Kind::Boolean`]. Only the first byte counts, as in C.
    #[inline]
    #[must_use]
    pub const fn boolean(self) -> bool {
        self.0.to_ne_bytes()[0] != 0
    }

    /// The value of a signal of [`Kind::Complex`].
    #[inline]
    #[must_use]
    pub const fn complex(self) -> Complex {
        let b = self.0.to_ne_bytes();
        Complex {
            real: f32::from_ne_bytes([b[0], b[1], b[2], b[3]]),
            imaginary: f32::from_ne_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    /// The value as a number: integers are rounded to a float, booleans are 0 or 1, and of a
    /// complex number it is the real part.
    #[inline]
    #[must_use]
    pub const fn to_float(self, kind: Kind) -> f64 {
        match kind {
            Kind::Float => self.float(),
            Kind::Integer => self.integer() as f64,
            Kind::Boolean => self.boolean() as u8 as f64,
            Kind::Complex => self.complex().real as f64,
        }
    }

    /// The value of a signal of kind `from` as one of kind `to`. Floats are cut towards zero to
    /// integers, and to the nearest one that fits; not-a-number becomes 0. Everything but zero is
    /// true. Complex numbers lose their imaginary part, except that they are true if either part is
    /// not zero.
    #[must_use]
    pub const fn cast(self, from: Kind, to: Kind) -> Self {
        match (from, to) {
            (Kind::Float, Kind::Float)
            | (Kind::Integer, Kind::Integer)
            | (Kind::Boolean, Kind::Boolean)
            | (Kind::Complex, Kind::Complex) => self,
            (Kind::Boolean, Kind::Integer) => Self::from_integer(self.boolean() as i64),
            (Kind::Integer, Kind::Boolean) => Self::from_boolean(self.integer() != 0),
            (Kind::Complex, Kind::Boolean) => {
                let value = self.complex();
                Self::from_boolean(value.real != 0.0 || value.imaginary != 0.0)
            }
            (_, Kind::Float) => Self::from_float(self.to_float(from)),
            (_, Kind::Integer) => Self::from_integer(self.to_float(from) as i64),
            (_, Kind::Boolean) => Self::from_boolean(self.to_float(from) != 0.0),
            (_, Kind::Complex) => {
                let real = self.to_float(from) as f32;
                Self::from_complex(Complex { real, imaginary: 0.0 })
            }
        }
    }
}

impl std::fmt::Debug for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Value({:#x})", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_comes_back() {
        assert_eq!(Value::from_float(-0.0).float().to_bits(), (-0.0_f64).to_bits());
        assert_eq!(Value::from_integer(i64::MIN).integer(), i64::MIN);
        assert!(Value::from_boolean(true).boolean() && !Value::from_boolean(false).boolean());
        let complex = Complex { real: 1.5, imaginary: -2.0 };
        assert_eq!(Value::from_complex(complex).complex(), complex);
    }

    #[test]
    fn only_the_first_byte_of_a_boolean_counts() {
        let dirty = u64::from_ne_bytes([0, 1, 2, 3, 4, 5, 6, 7]);
        assert!(!Value::from_bits(dirty).boolean());
    }

    #[test]
    fn casts_cut_and_saturate() {
        let float = |v| Value::from_float(v);
        let to = |v: Value, kind| v.cast(Kind::Float, kind);
        assert_eq!(to(float(-1.9), Kind::Integer).integer(), -1);
        assert_eq!(to(float(1e300), Kind::Integer).integer(), i64::MAX);
        assert_eq!(to(float(f64::NAN), Kind::Integer).integer(), 0);
        assert!(to(float(f64::NAN), Kind::Boolean).boolean());
        assert_eq!(to(float(2.5), Kind::Complex).complex(), Complex { real: 2.5, imaginary: 0.0 });
        let imaginary = Value::from_complex(Complex { real: 0.0, imaginary: 1.0 });
        assert!(imaginary.cast(Kind::Complex, Kind::Boolean).boolean());
        assert_eq!(imaginary.cast(Kind::Complex, Kind::Float).float(), 0.0);
        let yes = Value::from_boolean(true);
        assert_eq!(yes.cast(Kind::Boolean, Kind::Float).float(), 1.0);
        assert_eq!(yes.cast(Kind::Boolean, Kind::Integer).integer(), 1);
    }
}

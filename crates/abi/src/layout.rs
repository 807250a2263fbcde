//! The macros that declare layouts and constants, and the descriptions that they generate.
//!
//! A layout is written once, with its offsets. The macro generates the type, the compile-time
//! assertions and the description for the comparison with the C header.

/// One field of a C structure or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// The C name (`r#` stripped where Rust needs it).
    pub name: &'static str,
    /// Distance from the start of the structure, in bytes.
    pub offset: usize,
    /// Size of the field, in bytes.
    pub size: usize,
}

/// The description of one C structure or union.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// The name of the type, as in C.
    pub name: &'static str,
    /// `struct` or `union`.
    pub kind: &'static str,
    /// `sizeof`, in bytes.
    pub size: usize,
    /// The fields in declaration order.
    pub fields: &'static [Field],
}

/// A type whose memory layout is that of a C type.
pub trait CLayout: Sized {
    /// The description of the layout.
    const LAYOUT: Layout;
}

/// Strips the prefix of a raw identifier: C has `priv` where Rust has `r#priv`.
///
/// # Panics
/// At compile time, when the prefix is not followed by valid UTF-8 (it always is).
pub const fn c_name(name: &'static str) -> &'static str {
    match name.as_bytes() {
        [b'r', b'#', rest @ ..] => match core::str::from_utf8(rest) {
            Ok(stripped) => stripped,
            Err(_) => panic!("an identifier is UTF-8"),
        },
        _ => name,
    }
}

/// A slot of a table of C functions: nullable, and allowed to unwind (dropping a simulated rank
/// that waits unwinds through the table).
macro_rules! op {
    (($($arg:ident: $ty:ty),* $(,)?) $(-> $ret:ty)?) => {
        Option<unsafe extern "C-unwind" fn($($arg: $ty),*) $(-> $ret)?>
    };
}

/// Declares C structures and unions: `offset name: type, "meaning";` for each field.
macro_rules! layout {
    ($(
        $(#[$meta:meta])*
        $kind:ident $name:ident: $size:literal {
            $($offset:literal $field:ident: $ty:ty, $doc:literal;)*
        }
    )*) => {$(
        $(#[$meta])*
        #[repr(C)]
        pub $kind $name {
            $(#[doc = $doc] pub $field: $ty,)*
        }

        const _: () = {
            assert!(size_of::<$name>() == $size);
            $(assert!(core::mem::offset_of!($name, $field) == $offset);)*
        };

        impl $name {
            /// The value whose bytes are all zero, as `calloc` or `memset` would leave it.
            pub const fn zeroed() -> Self {
                // SAFETY: every field in this crate is an integer, a raw pointer, an `Option`
                // of a function pointer, a pthread object that glibc allows to be all zero, or
                // an array, structure or union of those: zero is a valid value of each.
                unsafe { core::mem::zeroed() }
            }
        }

        impl $crate::layout::CLayout for $name {
            const LAYOUT: $crate::layout::Layout = $crate::layout::Layout {
                name: stringify!($name),
                kind: stringify!($kind),
                size: $size,
                fields: &[$($crate::layout::Field {
                    name: $crate::layout::c_name(stringify!($field)),
                    offset: $offset,
                    size: size_of::<$ty>(),
                }),*],
            };
        }
    )*};
}

/// Declares opaque types, which are only used behind a pointer.
macro_rules! opaque {
    ($($name:ident, $doc:literal;)*) => {$(
        #[doc = $doc]
        #[repr(C)]
        pub struct $name {
            _opaque: [u8; 0],
        }
    )*};
}

/// Declares C enumerations as integers: `NAME = value, "meaning";` for each, and a table of all
/// of them for the comparison with the header.
macro_rules! consts {
    ($table:ident; $(
        $(#[$meta:meta])*
        $group:ident: $repr:ty {
            $($name:ident = $value:expr, $doc:literal;)*
        }
    )*) => {
        $(
            $(#[$meta])*
            pub type $group = $repr;
            $(#[doc = $doc] pub const $name: $group = $value;)*
        )*

        /// Every constant of this file by name, for the comparison with the C header.
        pub const $table: &[(&str, i64)] = &[$($((stringify!($name), $name as i64),)*)*];
    };
}

//! Enumerations that are written as words, on a command line and in a record.

/// The error that a text is none of the words.
#[must_use]
pub fn no_such(what: &str, text: &str, words: &[&str]) -> String {
    format!("{text:?} is not a valid {what}: choose one of {}", words.join(", "))
}

/// Declares an enumeration with its words: `ALL`, `WORDS`, `name()`, `Display` and `FromStr`. The
/// crate that uses it needs `serde`, with its derive macros.
#[macro_export]
macro_rules! words {
    (
        $(#[$meta:meta])*
        $name:ident, $what:literal { $( $(#[$doc:meta])* $variant:ident = $word:literal, )+ }
    ) => {
        $(#[$meta])*
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord,
            serde::Serialize, serde::Deserialize,
        )]
        pub enum $name { $( $(#[$doc])* #[serde(rename = $word)] $variant, )+ }

        impl $name {
            /// All of them, in the order of declaration.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
            /// Their words, in the same order.
            pub const WORDS: &[&str] = &[$($word),+];

            /// Its word.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self { $(Self::$variant => $word),+ }
            }
        }

        impl std::fmt::Display for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl std::str::FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<Self, String> {
                let lower = text.to_ascii_lowercase().replace('-', "_");
                let found = Self::ALL.iter().find(|v| v.name() == lower);
                found.copied().ok_or_else(|| {
                    $crate::no_such($what, text, Self::WORDS)
                })
            }
        }
    };
}

pub(crate) use words;

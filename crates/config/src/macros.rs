//! Types that are declared once: what they hold, how they are read, and their schema.

/// The first of at most one value, for a part of a declaration that may lack.
#[doc(hidden)]
pub fn first<T, const N: usize>(all: [T; N]) -> Option<T> {
    all.into_iter().next()
}

/// The key of a field: `in` of `r#in`.
#[doc(hidden)]
#[must_use]
pub fn key_name(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// Declares a group of keys.
///
/// A field is `name: Type = default, in least..=greatest;`, with the default and the bounds left
/// out where there are none. A key without default must stand in the file, unless its type is an
/// `Option` or a group whose keys all may lack. `with (base: Type)` takes in the keys of another
/// group. `stale`, `ignored` and `refused` name keys of others: those that have another name now,
/// that change nothing here, and that we lack.
///
/// ```
/// rdmalab_config::group! {
///     /// Where results go.
///     pub struct Output {
///         /// The file.
///         uri: String;
///         /// Bytes that are kept until they are written.
///         buffer_size: u64 = 0, in 0..=1_000_000;
///     }
///     stale { filename => uri; }
///     ignored { color: "files have no colours"; }
///     refused { compress: "compress the file after the run"; }
/// }
/// ```
#[macro_export]
macro_rules! group {
    (
        $(#[doc = $about:literal])+
        $vis:vis struct $name:ident $(with ( $($base:ident : $base_type:ty),+ $(,)? ))? {
            $(
                $(#[doc = $doc:literal])+
                $field:ident : $type:ty $(= $default:expr)? $(, in $bounds:expr)?;
            )*
        }
        $(stale { $($old:ident => $new:ident $({ $($from:literal => $to:literal),+ $(,)? })?;)* })?
        $(ignored { $($ignored:ident : $ignored_why:expr;)* })?
        $(refused { $($refused:ident : $refused_why:expr;)* })?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        $vis struct $name {
            $($(
                #[doc = concat!("Keys of [`", stringify!($base_type), "`].")]
                pub $base: $base_type,
            )+)?
            $($(#[doc = $doc])+ pub $field: $type,)*
        }

        impl $crate::Group for $name {
            fn read(reader: &mut $crate::Reader<'_>) -> Option<Self> {
                // A group without keys reads nothing.
                let _ = &reader;
                $(reader.stale(&[$($crate::Stale {
                    key: stringify!($old),
                    now: stringify!($new),
                    values: &[$($(($from, $to)),+)?],
                }),*]);)?
                $(reader.ignored(&[$($crate::Ignored {
                    key: stringify!($ignored),
                    why: $ignored_why,
                }),*]);)?
                $(reader.refused(&[$($crate::Refused {
                    key: stringify!($refused),
                    why: $refused_why,
                }),*]);)?
                $($(let $base = <$base_type as $crate::Group>::read(reader);)+)?
                $(let $field = reader.key::<$type>(
                    $crate::key_name(stringify!($field)),
                    $crate::first([$($crate::Bounds::from($bounds))?]),
                    $crate::first([$($default)?]),
                );)*
                Some(Self { $($($base: $base?,)+)? $($field: $field?,)* })
            }

            fn describe(described: &mut $crate::Described) {
                let _ = &described;
                $($(<$base_type as $crate::Group>::describe(described);)+)?
                $(described.key::<$type>(
                    $crate::key_name(stringify!($field)),
                    &[$($doc),+],
                    $crate::first([$($crate::Bounds::from($bounds))?]),
                    $crate::first([$($default)?]),
                );)*
                $(described.ignored(&[$($crate::Ignored {
                    key: stringify!($ignored),
                    why: $ignored_why,
                }),*]);)?
            }
        }

        $crate::group!(@value $name [$($about),+]);
    };
    (@value $name:ident $about:expr) => {
        impl $crate::FromValue for $name {
            fn from_value(
                value: &$crate::Value,
                key: &str,
                findings: &mut $crate::Findings,
            ) -> Option<Self> {
                $crate::read_group(value, key, findings)
            }

            fn expected() -> String {
                "a group".to_owned()
            }

            fn schema() -> $crate::serde_json::Value {
                $crate::group_schema::<Self>(&$about)
            }

            fn missing() -> Option<Self> {
                $crate::absent()
            }
        }
    };
}

/// Declares a group that is one of several types, as one of its keys says. Where it has no other
/// keys, that name may stand in the place of the group. `refused` names types that we lack.
///
/// ```
/// # rdmalab_config::group! { /// A.
/// #     pub struct Circle { /// R.
/// #         radius: f64; } }
/// # rdmalab_config::group! { /// A.
/// #     pub struct Square { /// S.
/// #         side: f64; } }
/// rdmalab_config::tagged! {
///     /// A shape.
///     pub enum Shape by "type" {
///         /// All points at one distance.
///         Circle(Circle) = "circle";
///         /// Four equal sides.
///         Square(Square) = "square";
///     }
///     refused { "cube" => "shapes are flat"; }
/// }
/// ```
#[macro_export]
macro_rules! tagged {
    (
        $(#[doc = $about:literal])+
        $vis:vis enum $name:ident by $key:literal {
            $(
                $(#[doc = $doc:literal])+
                $variant:ident ( $type:ty ) = $tag:literal;
            )+
        }
        $(refused { $($refused:literal => $refused_why:expr;)* })?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone)]
        $vis enum $name {
            $($(#[doc = $doc])+ $variant($type),)+
        }

        impl $name {
            /// The name of the type in the file.
            #[must_use]
            $vis fn name(&self) -> &'static str {
                match self { $(Self::$variant(_) => $tag,)+ }
            }
        }

        impl $crate::Group for $name {
            const TAG: Option<&'static str> = Some($key);

            fn read(reader: &mut $crate::Reader<'_>) -> Option<Self> {
                let name = reader.variant($key, &[$($tag),+], &[$($($crate::Refused {
                    key: $refused,
                    why: $refused_why,
                }),*)?])?;
                match name {
                    $($tag => <$type as $crate::Group>::read(reader).map(Self::$variant),)+
                    _ => None,
                }
            }

            fn describe(described: &mut $crate::Described) {
                $(described.variant::<$type>($key, $tag, &[$($doc),+]);)+
            }
        }

        $crate::group!(@value $name [$($about),+]);
    };
}

/// Declares an enumeration whose values have names. The first name is the one that is printed.
/// `refused` names values that we lack.
///
/// ```
/// rdmalab_config::one_of! {
///     /// Who comes first.
///     pub enum Order {
///         /// The oldest.
///         Oldest = "oldest" | "fifo";
///         /// The newest.
///         Newest = "newest";
///     }
/// }
/// assert_eq!(Order::Oldest.name(), "oldest");
/// ```
#[macro_export]
macro_rules! one_of {
    (
        $(#[doc = $about:literal])+
        $vis:vis enum $name:ident {
            $(
                $(#[doc = $doc:literal])+
                $variant:ident = $word:literal $(| $other:literal)*;
            )+
        }
        $(refused { $($refused:literal => $refused_why:expr;)* })?
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
        $vis enum $name {
            $($(#[doc = $doc])+ $variant,)+
        }

        impl $name {
            /// All values, with each of their names.
            $vis const NAMES: &'static [(&'static str, Self)] =
                &[$(($word, Self::$variant), $(($other, Self::$variant),)*)+];

            /// The name of the value.
            #[must_use]
            $vis fn name(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }
        }

        impl $crate::FromValue for $name {
            fn from_value(
                value: &$crate::Value,
                key: &str,
                findings: &mut $crate::Findings,
            ) -> Option<Self> {
                $crate::choice_of(value, key, Self::NAMES, &[$($($crate::Refused {
                    key: $refused,
                    why: $refused_why,
                }),*)?], findings)
            }

            fn expected() -> String {
                $crate::alternatives(&[$($word),+])
            }

            fn schema() -> $crate::serde_json::Value {
                $crate::serde_json::json!({ "enum": [$($word, $($other,)*)+] })
            }

            fn shown(&self) -> $crate::serde_json::Value {
                self.name().into()
            }
        }
    };
}

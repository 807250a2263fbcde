//! What is printed is read again as the same tree, and no text makes the reader panic.

use proptest::prelude::*;
use rdmalab_config::{Entry, Kind, Position, Value, parse};

/// A position for values that come from no file.
fn nowhere() -> Position {
    parse("", "").expect("an empty file is right").at
}

fn value(kind: Kind) -> Value {
    Value { kind, at: nowhere() }
}

fn scalars() -> impl Strategy<Value = Kind> {
    let float = any::<f64>().prop_filter("finite", |f| f.is_finite());
    prop_oneof![
        any::<bool>().prop_map(Kind::Bool),
        any::<i64>().prop_map(Kind::Int),
        float.prop_map(Kind::Float),
        // Without `${` and `@include`, which stand for something else.
        "[^$@]{0,12}".prop_map(Kind::Text),
    ]
}

fn arrays() -> impl Strategy<Value = Kind> {
    let of_texts = prop::collection::vec("[a-z \"\\\\]{0,4}".prop_map(Kind::Text), 0..4);
    let of_numbers = prop::collection::vec(any::<i64>().prop_map(Kind::Int), 0..4);
    prop_oneof![of_texts, of_numbers]
        .prop_map(|kinds| Kind::Array(kinds.into_iter().map(value).collect()))
}

fn group(entries: Vec<(String, Kind)>) -> Kind {
    let mut all: Vec<Entry> = Vec::new();
    for (key, kind) in entries {
        let is_word = ["true", "false"].iter().any(|w| key.eq_ignore_ascii_case(w));
        if !is_word && all.iter().all(|e| e.key != key) {
            all.push(Entry { key, key_at: nowhere(), value: value(kind) });
        }
    }
    Kind::Group(all)
}

fn groups() -> impl Strategy<Value = Kind> {
    let inner = prop_oneof![scalars(), arrays()].prop_recursive(4, 32, 4, |inner| {
        let list = prop::collection::vec(inner.clone(), 0..4);
        let entries = prop::collection::vec(("[a-zA-Z*][-a-zA-Z0-9_*]{0,6}", inner), 0..4);
        prop_oneof![
            list.prop_map(|kinds| Kind::List(kinds.into_iter().map(value).collect())),
            entries.prop_map(group),
        ]
    });
    prop::collection::vec(("[a-zA-Z*][-a-zA-Z0-9_*]{0,6}", inner), 0..5).prop_map(group)
}

proptest! {
    #[test]
    fn what_is_printed_is_read_again(kind in groups()) {
        let tree = value(kind);
        let text = tree.to_string();
        let again = parse("a.conf", &text);
        prop_assert_eq!(again.map_err(|e| e[0].to_string()), Ok(tree), "{}", text);
    }

    #[test]
    fn no_text_makes_it_panic(text in "[-a-z0-9 \n\"=:;,{}()\\[\\]#/*@\\\\.xLä]{0,60}") {
        for name in ["a.conf", "a.json"] {
            if let Err(errors) = parse(name, &text) {
                for error in errors {
                    prop_assert!(!error.to_string().is_empty());
                }
            }
        }
    }
}

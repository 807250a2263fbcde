//! Keys that a node has for both of its halves, as in VILLASnode: what stands at the node holds for
//! `in` and `out`, unless they have it themselves. Signals hold for `in`, if it is there.

use rdmalab_config::{Entry, Kind, Value};

/// The keys.
const KEYS: [&str; 3] = ["signals", "hooks", "vectorize"];

/// The same configuration with these keys in the halves that are there, and not at the node. A node
/// without a half keeps them, so that they are reported there.
pub fn inherited(tree: &Value) -> Value {
    let mut tree = tree.clone();
    if let Some(nodes) = entry(&mut tree, "nodes")
        && let Kind::Group(nodes) = &mut nodes.value.kind
    {
        nodes.iter_mut().for_each(|node| move_down(&mut node.value));
    }
    tree
}

fn entry<'a>(group: &'a mut Value, key: &str) -> Option<&'a mut Entry> {
    match &mut group.kind {
        Kind::Group(entries) => entries.iter_mut().find(|entry| entry.key == key),
        _ => None,
    }
}

fn move_down(node: &mut Value) {
    for key in KEYS {
        let Some(own) = entry(node, key).cloned() else { continue };
        let mut is_moved = false;
        for half in ["in", "out"] {
            let half = entry(node, half).map(|half| &mut half.value.kind);
            let Some(Kind::Group(entries)) = half else { continue };
            if entries.iter().all(|entry| entry.key != key) {
                entries.push(own.clone());
            }
            is_moved = true;
            // Those of written samples follow from the path.
            if key == "signals" {
                break;
            }
        }
        if let (true, Kind::Group(entries)) = (is_moved, &mut node.kind) {
            entries.retain(|entry| entry.key != key);
        }
    }
}

#[cfg(test)]
mod tests {
    use rdmalab_config::parse;

    use super::*;

    #[test]
    fn halves_have_the_keys_of_their_node() {
        for (written, meant) in [
            (
                "{ vectorize = 4, in = { a = 1 }, out = { vectorize = 2 } }",
                "{ in = { a = 1, vectorize = 4 }, out = { vectorize = 2 } }",
            ),
            ("{ signals = \"3f\", in = {}, out = {} }", "{ in = { signals = \"3f\" }, out = {} }"),
            // Reported where it stands.
            ("{ hooks = () }", "{ hooks = () }"),
        ] {
            let tree = |node: &str| parse("a.conf", &format!("nodes = {{ n = {node} }}")).unwrap();
            assert_eq!(inherited(&tree(written)), tree(meant), "{written}");
        }
    }
}

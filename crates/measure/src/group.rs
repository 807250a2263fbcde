//! Groups of things that share a key, in the order in which the keys first appear. Keys need not be
//! hashed or ordered: JSON values are not.

/// Adds a value to those of its key.
pub fn gather<K: PartialEq, V>(groups: &mut Vec<(K, Vec<V>)>, key: K, value: V) {
    match groups.iter_mut().find(|(known, _)| *known == key) {
        Some((_, values)) => values.push(value),
        None => groups.push((key, vec![value])),
    }
}

/// The values of each key.
pub fn by_key<K: PartialEq, V>(pairs: impl IntoIterator<Item = (K, V)>) -> Vec<(K, Vec<V>)> {
    let mut groups = Vec::new();
    pairs.into_iter().for_each(|(key, value)| gather(&mut groups, key, value));
    groups
}

/// The values of each key, each value once.
pub fn distinct_by_key<K: PartialEq, V: PartialEq>(
    pairs: impl IntoIterator<Item = (K, V)>,
) -> Vec<(K, Vec<V>)> {
    let mut groups: Vec<(K, Vec<V>)> = Vec::new();
    for (key, value) in pairs {
        if !groups.iter().any(|(known, values)| *known == key && values.contains(&value)) {
            gather(&mut groups, key, value);
        }
    }
    groups
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_and_their_members_keep_their_order() {
        let groups = by_key([("b", 1), ("a", 2), ("b", 3)]);
        assert_eq!(groups, [("b", vec![1, 3]), ("a", vec![2])]);
        let distinct = distinct_by_key([("b", 1), ("a", 1), ("b", 3), ("b", 1)]);
        assert_eq!(distinct, [("b", vec![1, 3]), ("a", vec![1])]);
    }
}

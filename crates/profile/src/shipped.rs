//! The profiles that are part of the program: `profiles/` at the root of the repository.

macro_rules! shipped {
    ($($name:literal),+) => {
        /// Name and text of each profile, the default first.
        pub const SHIPPED: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../../../profiles/", $name, ".toml")))),+];
    };
}

/// The profile that changes nothing.
pub const IDEAL: &str = "ideal";

shipped!(
    "ideal",
    "connectx3",
    "connectx4",
    "connectx5",
    "connectx6",
    "late-ack",
    "long-line",
    "small-inline",
    "uneven-write"
);

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Profile;
    use crate::limits::tests::MOST;

    #[test]
    fn each_is_whole_and_makes_something_the_best() {
        for (name, text) in SHIPPED {
            let profile = Profile::parse(name, text, &MOST).unwrap();
            assert_eq!(profile.name, *name);
            assert_eq!(profile.is_ideal(), *name == IDEAL);
            // Profiles of adapters say nothing of the best way to send: their speeds are missing.
            let has_none = *name == IDEAL || name.starts_with("connectx");
            assert_eq!(profile.optima.is_empty(), has_none, "{name}");
            // A profile that imitates something has to name its source.
            let is_made_up = profile.imitates.starts_with("nothing");
            assert_eq!(is_made_up, profile.source.is_empty(), "{name}");
            assert!(profile.title.len() <= 80, "{name}: {}", profile.title);
        }
        assert_eq!(SHIPPED[0].0, IDEAL);
        assert!(SHIPPED[1..].windows(2).all(|pair| pair[0].0 < pair[1].0), "in order");
    }
}

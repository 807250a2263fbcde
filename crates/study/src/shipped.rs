//! The studies that are part of the program: `studies/` at the root of the repository.

macro_rules! shipped {
    ($($key:literal),+) => {
        /// Key, plan, published values and claims of each study.
        pub const SHIPPED: &[(&str, &str, &str, &str)] = &[$((
            $key,
            include_str!(concat!("../../../studies/", $key, "/plan.toml")),
            include_str!(concat!("../../../studies/", $key, "/published.csv")),
            include_str!(concat!("../../../studies/", $key, "/claims.toml")),
        )),+];
    };
}

shipped!("fukuoka2021", "macarthur2012", "mordkovich2013", "potter2018", "viertel2006");

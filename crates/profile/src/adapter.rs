//! What an adapter does around time-outs and page faults, where IBA leaves it open.

use serde::Deserialize;
use toml::Spanned;

use crate::limits::shown;

macro_rules! adapter {
    ($($(#[$doc:meta])* $name:ident = $default:literal, $least:literal ..= $most:literal;)+) => {
        /// The behaviour of an adapter, under the names of the simulator's parameters.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Adapter {
            $($(#[$doc])* pub $name: u64,)+
        }

        impl Default for Adapter {
            fn default() -> Adapter {
                Adapter { $($name: $default,)+ }
            }
        }

        impl Adapter {
            /// All values with their names.
            #[must_use]
            pub fn values(&self) -> Vec<(&'static str, u64)> {
                vec![$((stringify!($name), self.$name),)+]
            }
        }

        /// The table `[adapter]` of a profile file.
        #[derive(Deserialize, Default)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Asked {
            $($name: Option<Spanned<toml::Value>>,)+
        }

        impl Asked {
            /// The error has the byte in the file and the reason.
            pub(crate) fn checked(self) -> Result<Adapter, (usize, String)> {
                let mut adapter = Adapter::default();
                $(if let Some(asked) = self.$name {
                    let (start, written) = (asked.span().start, asked.into_inner());
                    let value = written.as_integer().and_then(|value| u64::try_from(value).ok());
                    adapter.$name = match value {
                        Some(value) if ($least..=$most).contains(&value) => value,
                        _ => {
                            let name = stringify!($name);
                            let range = format!("choose {} to {}", $least, $most);
                            return Err((start, format!("{name} {}: {range}", shown(&written))));
                        }
                    };
                })+
                Ok(adapter)
            }
        }
    };
}

adapter! {
    /// The least code of a local ACK time-out; smaller ones are taken for it.
    ack_timeout_min_code = 0, 0..=31;
    /// 1: the adapter looks at all queue pairs once in the length of a time-out. The time-out of a
    /// request ends when the second look finds it, after one to two of its lengths. 0: after one.
    ack_timeout_scan = 0, 0..=1;
    /// The wait after an RNR NAK, in percent of the time that the NAK asks for.
    rnr_wait_percent = 100, 100..=10_000;
    /// 1: responses that arrive during that wait are discarded.
    rnr_discards_responses = 0, 0..=1;
    /// Least time until a page comes that the adapter found missing, ns; 0: at once, so that no
    /// access finds a page missing.
    odp_resolve_ns = 0, 0..=1_000_000_000;
    /// Mean of the random time that it takes beyond that, ns.
    odp_resolve_mean_ns = 0, 0..=1_000_000_000;
    /// Time until the RNR NAK leaves for a READ whose page is missing, ns.
    odp_read_nak_ns = 0, 0..=1_000_000_000;
    /// The same for other requests, ns.
    odp_nak_ns = 0, 0..=1_000_000_000;
    /// 1: a READ whose page was missing is served when the page has come. 0: when it is repeated.
    odp_serves_faulted_reads = 0, 0..=1;
    /// Time until a request is repeated whose response found a page missing, ns.
    odp_repeat_ns = 500_000, 1..=1_000_000_000;
    /// Queue pairs that may hold a fault context at a time; 0: they need none.
    odp_fault_contexts = 0, 0..=65_536;
    /// Time to tell one of them that its page has come, ns.
    odp_resume_ns = 0, 0..=1_000_000_000;
}

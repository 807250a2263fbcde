//! Limits that a device reports and enforces.

use rdmalab_wire::ids::PathMtu;
use serde::Deserialize;
use toml::Spanned;

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Limits of a device. They have the names of `ibv_device_attr` where it has such a limit.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Limits {
            $($(#[$doc])* pub $name: u32,)+
        }

        /// The limits in a profile file.
        #[derive(Deserialize, Default)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Asked {
            $($name: Option<Spanned<toml::Value>>,)+
        }

        impl Asked {
            /// `most`, the device's own limits, with these in their place; and the list of those.
            /// The error has the byte in the file and the reason.
            pub(crate) fn over(self, most: &Limits) -> Result<(Limits, Lowered), (usize, String)> {
                let (mut limits, mut lowered) = (*most, Lowered::new());
                $(if let Some(asked) = self.$name {
                    let at = asked.span().start;
                    let number = checked(stringify!($name), asked.as_ref(), most.$name);
                    let number = number.map_err(|why| (at, why))?;
                    limits.$name = number;
                    lowered.push((stringify!($name), number));
                })+
                Ok((limits, lowered))
            }
        }
    };
}

limits! {
    /// Queue pairs of a process.
    max_qp,
    /// Work requests in a send or receive queue.
    max_qp_wr,
    /// Scatter/gather entries of a work request.
    max_sge,
    /// Completions of a completion queue.
    max_cqe,
    /// Memory regions and windows of a process.
    max_mr,
    /// Work requests in a shared receive queue.
    max_srq_wr,
    /// Scatter/gather entries of a work request in a shared receive queue.
    max_srq_sge,
    /// READs and atomics that a queue pair serves at once as responder.
    max_qp_rd_atom,
    /// READs and atomics that a queue pair has outstanding at once as requester.
    max_qp_init_rd_atom,
    /// Bytes of an inline payload.
    max_inline_data,
    /// Bytes of a packet's payload on the port.
    active_mtu,
}

/// Limits that a profile sets: name and number.
pub(crate) type Lowered = Vec<(&'static str, u32)>;

/// A value of a profile that is wrong, for people.
pub(crate) fn shown(written: &toml::Value) -> String {
    let number = written.as_integer().map(|number| number.to_string());
    number.unwrap_or_else(|| format!("is a {}", written.type_str()))
}

fn checked(name: &str, written: &toml::Value, most: u32) -> Result<u32, String> {
    let least = u32::from(name != "max_inline_data");
    let number = written.as_integer().and_then(|number| u32::try_from(number).ok());
    let Some(number) = number.filter(|number| (least..=most).contains(number)) else {
        return Err(format!(
            "{name} {}: choose {least} to {most}; a profile can only lower the soft \
             device's limits",
            shown(written)
        ));
    };
    if name == "active_mtu" && PathMtu::from_bytes(number).is_none() {
        return Err(format!("active_mtu {number}: choose 256, 512, 1024, 2048 or 4096"));
    }
    Ok(number)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Limits;

    /// The limits of a device in tests.
    pub(crate) const MOST: Limits = Limits {
        max_qp: 100,
        max_qp_wr: 100,
        max_sge: 32,
        max_cqe: 100,
        max_mr: 100,
        max_srq_wr: 100,
        max_srq_sge: 32,
        max_qp_rd_atom: 16,
        max_qp_init_rd_atom: 16,
        max_inline_data: 1024,
        active_mtu: 4096,
    };
}

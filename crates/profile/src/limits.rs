//! What a device reports and enforces.

use rdmalab_wire::ids::PathMtu;
use serde::Deserialize;
use toml::Spanned;

macro_rules! limits {
    ($($(#[$doc:meta])* $name:ident),+ $(,)?) => {
        /// Limits of a device, named as `ibv_device_attr` names them where it has them.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub struct Limits {
            $($(#[$doc])* pub $name: u32,)+
        }

        /// What a file says of them.
        #[derive(Deserialize, Default)]
        #[serde(deny_unknown_fields)]
        pub(crate) struct Asked {
            $($name: Option<Spanned<u32>>,)+
        }

        impl Asked {
            /// These limits instead of the device's own, `most`; which ones, and what is wrong with
            /// any: where it stands, and why.
            pub(crate) fn over(self, most: &Limits) -> Result<(Limits, Lowered), (usize, String)> {
                let (mut limits, mut lowered) = (*most, Lowered::new());
                $(if let Some(asked) = self.$name {
                    let (at, number) = (asked.span().start, asked.into_inner());
                    check(stringify!($name), number, most.$name).map_err(|why| (at, why))?;
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
    /// Requests in a send or receive queue.
    max_qp_wr,
    /// Pieces of a request.
    max_sge,
    /// Completions of a completion queue.
    max_cqe,
    /// Memory regions and windows of a process.
    max_mr,
    /// Requests in a shared receive queue.
    max_srq_wr,
    /// Pieces of a request in it.
    max_srq_sge,
    /// READs and atomics of a peer that a queue pair serves at once.
    max_qp_rd_atom,
    /// READs and atomics that a queue pair has under way at once.
    max_qp_init_rd_atom,
    /// Bytes of an inline payload.
    max_inline_data,
    /// Bytes of a packet's payload on the port.
    active_mtu,
}

/// Limits that a profile sets: name and number.
pub(crate) type Lowered = Vec<(&'static str, u32)>;

fn check(name: &str, number: u32, most: u32) -> Result<(), String> {
    let least = u32::from(name != "max_inline_data");
    if !(least..=most).contains(&number) {
        return Err(format!(
            "{name} {number}: it may be {least} to {most}, since a profile takes from the soft \
             device and cannot add to it"
        ));
    }
    if name == "active_mtu" && PathMtu::from_bytes(number).is_none() {
        return Err(format!("active_mtu {number}: it may be 256, 512, 1024, 2048 or 4096"));
    }
    Ok(())
}

#[cfg(test)]
pub(crate) mod tests {
    use super::Limits;

    /// Those of a device for tests.
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

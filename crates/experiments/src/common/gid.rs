//! Chooses the entry of each end's GID table that a run uses, if the point names none.
//!
//! The ends exchange the kinds of address that they have, and take the best kind that all of them
//! have: an end on IPv4 cannot reach one on IPv6. Link-local addresses come last, since the table
//! may list one that the interface does not answer to: because none is configured, or because the
//! kernel still does duplicate address detection (RFC 4862, 5.4: over a second).

use core::net::Ipv6Addr;

use rdmalab_rank::{Rank, Stopped};
use rdmalab_verbs::{Context, GidEntry, GidType};

use crate::common::completions::failed;
use crate::common::limits::Limits;
use crate::common::params::Common;

/// A kind of address. Addresses of the same kind reach each other. The best kind comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
enum Reach {
    /// RoCEv2, IPv4.
    V2Ipv4,
    /// RoCEv2, IPv6 beyond the link.
    V2Ipv6,
    /// RoCEv2, IPv6 of this link only.
    V2Link,
    /// RoCEv1, or what has no name here.
    Other,
}

impl Reach {
    const ALL: [Reach; 4] = [Self::V2Ipv4, Self::V2Ipv6, Self::V2Link, Self::Other];

    fn of(entry: &GidEntry) -> Self {
        match entry.gid_type {
            GidType::RoceV2 if entry.gid.to_ipv4_mapped().is_some() => Self::V2Ipv4,
            GidType::RoceV2 if entry.gid.is_unicast_link_local() => Self::V2Link,
            GidType::RoceV2 => Self::V2Ipv6,
            _ => Self::Other,
        }
    }

    const fn text(self) -> &'static str {
        match self {
            Self::V2Ipv4 => "RoCEv2 over IPv4",
            Self::V2Ipv6 => "RoCEv2 over IPv6",
            Self::V2Link => "RoCEv2 over link-local IPv6",
            Self::Other => "RoCEv1",
        }
    }
}

/// What a table offers: the first entry of each kind.
fn offers(table: &[GidEntry]) -> Vec<(Reach, u8)> {
    let first = |reach| table.iter().find(|entry| Reach::of(entry) == reach);
    let offer = |reach| Some((reach, u8::try_from(first(reach)?.index).ok()?));
    Reach::ALL.into_iter().filter_map(offer).collect()
}

/// The best kind that is in the list of every end.
fn shared_kind(said: &[Vec<u8>]) -> Option<Reach> {
    let all_have = |reach: &Reach| said.iter().all(|kinds| kinds.contains(&(*reach as u8)));
    Reach::ALL.into_iter().find(all_have)
}

/// The point with the GID index that this end has to use. All ranks call this with the same point.
///
/// # Errors
/// The ends have no kind of address in common, or the other end is gone.
pub(crate) fn chosen<R: Rank>(
    rank: &R,
    context: &Context,
    limits: &Limits,
    common: &Common,
) -> Result<Common, Stopped> {
    let mut common = common.clone();
    // A port with LIDs needs no GID. There, or if the point names a GID, the offer is empty.
    let is_open = limits.needs_gid && common.gid_index.is_none();
    let offers = if is_open { offers(&table(context, limits, common.port)) } else { Vec::new() };
    let own: Vec<u8> = offers.iter().map(|(reach, _)| *reach as u8).collect();
    let said = rank.exchange(&own)?;
    if own.is_empty() {
        return Ok(common);
    }
    // An empty offer means that the rank already knows which address it uses.
    let said: Vec<Vec<u8>> = said.into_iter().filter(|kinds| !kinds.is_empty()).collect();
    let Some(reach) = shared_kind(&said) else {
        let kinds: Vec<&str> = offers.iter().map(|(reach, _)| reach.text()).collect();
        return Err(failed(format!(
            "the ranks have no kind of GID in common: rank {} of {} has {}: give their interfaces \
             addresses of one kind, or name one with --gid-index",
            rank.index(),
            limits.device,
            kinds.join(", ")
        )));
    };
    common.gid_index = offers.iter().find(|(kind, _)| *kind == reach).map(|(_, index)| *index);
    Ok(common)
}

/// The entries of a port's table that are set.
fn table(context: &Context, limits: &Limits, port: u8) -> Vec<GidEntry> {
    let entry = |index| context.query_gid_entry(port, index).ok();
    let is_set = |entry: &GidEntry| entry.gid != Ipv6Addr::UNSPECIFIED;
    (0..limits.gids.min(256)).filter_map(entry).filter(is_set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(index: u32, gid: &str, gid_type: GidType) -> GidEntry {
        GidEntry { gid: gid.parse().unwrap(), index, gid_type }
    }

    #[test]
    fn what_comes_first_in_the_table_is_not_what_is_best() {
        let mut table = vec![
            entry(0, "fe80::1", GidType::RoceV1),
            entry(1, "fe80::1", GidType::RoceV2),
            entry(2, "::ffff:10.0.0.1", GidType::RoceV1),
            entry(3, "::ffff:10.0.0.1", GidType::RoceV2),
            entry(4, "::ffff:10.0.0.2", GidType::RoceV2),
            entry(5, "fd91::1", GidType::RoceV2),
        ];
        let all = offers(&table);
        let expected =
            [(Reach::V2Ipv4, 3), (Reach::V2Ipv6, 5), (Reach::V2Link, 1), (Reach::Other, 0)];
        assert_eq!(all, expected);
        table.truncate(2);
        assert_eq!(offers(&table), [(Reach::V2Link, 1), (Reach::Other, 0)]);
    }

    #[test]
    fn the_best_of_all_ends_is_what_each_has() {
        let said = |kinds: &[Reach]| kinds.iter().map(|kind| *kind as u8).collect::<Vec<u8>>();
        let all = said(&Reach::ALL);
        let v6 = said(&[Reach::V2Ipv6, Reach::V2Link]);
        let link = said(&[Reach::V2Link]);
        assert_eq!(shared_kind(&[all.clone(), all.clone()]), Some(Reach::V2Ipv4));
        assert_eq!(shared_kind(&[all.clone(), v6.clone()]), Some(Reach::V2Ipv6));
        assert_eq!(shared_kind(&[all, v6, link]), Some(Reach::V2Link));
        assert_eq!(shared_kind(&[said(&[Reach::V2Ipv4]), said(&[Reach::V2Ipv6])]), None);
    }
}

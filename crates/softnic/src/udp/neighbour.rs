//! Resolves the link-layer address of the next hop to a peer.
//!
//! The first packet of a connection makes the kernel resolve it (ARP, or IPv6 neighbour discovery).
//! On an interface that came up a moment ago the solicitation may be lost. The kernel repeats it
//! after a second, which is longer than all retries of a queue pair with a usual time-out. So the
//! address is resolved before the queue pair may send, as Linux does for adapters
//! (`ib_resolve_eth_dmac`, when an address vector is given). An address that no host has is
//! reported there.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::time::Duration;

use netlink_packet_core::{
    NLM_F_REQUEST, NetlinkDeserializable, NetlinkMessage, NetlinkPayload, NetlinkSerializable,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::{RouteAddress, RouteAttribute, RouteMessage};
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, protocols::NETLINK_ROUTE};
use rdmalab_engine::backend::{VerbsError, VerbsResult};

use super::interface::Interface;
use super::socket;
use crate::cancel::NoCancel;
use crate::clock::now_ns;
use crate::poll::wait_readable;

/// The interval between two polls of the kernel's table, ms.
const POLL_MS: u64 = 5;
/// The least interval between two solicitations by this process, ns: the kernel repeats each by
/// itself, every second and three times.
const SOLICIT_PERIOD_NS: u64 = 200_000_000;
/// How long the kernel may take to answer a request, ms.
const ANSWER_MS: i32 = 100;

/// A resolved address is not checked again for this long, ns: the kernel's answer takes some
/// hundred microseconds, and a program often connects to the same host.
const FRESH_NS: u64 = 1_000_000_000;
/// At most this many destinations are remembered.
const CACHED_MAX: usize = 1024;

/// Destinations whose next hop was resolved lately.
#[derive(Default)]
pub(super) struct NeighbourCache {
    at_ns: BTreeMap<IpAddr, u64>,
}

impl NeighbourCache {
    /// Whether the destination was resolved less than [`FRESH_NS`] ago. It may be gone by now.
    pub(super) fn is_fresh(&self, destination: IpAddr, now_ns: u64) -> bool {
        let at_ns = self.at_ns.get(&destination);
        at_ns.is_some_and(|at_ns| now_ns.saturating_sub(*at_ns) < FRESH_NS)
    }

    pub(super) fn note(&mut self, destination: IpAddr, now_ns: u64) {
        self.at_ns.retain(|_, at_ns| now_ns.saturating_sub(*at_ns) < FRESH_NS);
        if self.at_ns.len() >= CACHED_MAX {
            self.at_ns.pop_first();
        }
        self.at_ns.insert(destination, now_ns);
    }
}

/// Waits up to `timeout_ns` until packets to `destination` can leave by an interface.
///
/// # Errors
/// No host answers for that address; the message says what to check.
pub(super) fn wait_until_resolved(
    interface: &Interface,
    destination: IpAddr,
    timeout_ns: u64,
) -> VerbsResult<()> {
    if destination.is_multicast() || !interface.asks_for_neighbours() {
        return Ok(());
    }
    let _no_cancel = NoCancel::new();
    // If the kernel does not answer, do not wait: a time-out will show an unreachable peer.
    let Ok(rtnetlink) = Rtnetlink::open() else { return Ok(()) };
    let Ok(next) = rtnetlink.next_hop(interface.index, destination) else { return Ok(()) };
    let give_up_ns = now_ns() + timeout_ns;
    let mut solicit_at_ns = 0;
    loop {
        let now_ns = now_ns();
        match rtnetlink.state_of(interface.index, next) {
            Ok(Resolution::Resolved) | Err(NoAnswer) => return Ok(()),
            Ok(Resolution::Incomplete) => {}
            // Without a carrier the solicitation would be lost.
            Ok(Resolution::Unresolved) if now_ns >= solicit_at_ns && interface.is_running() => {
                solicit_at_ns = now_ns + SOLICIT_PERIOD_NS;
                socket::solicit_neighbour(interface.index, destination);
            }
            Ok(Resolution::Unresolved) => {}
        }
        if now_ns >= give_up_ns {
            return Err(unreachable(interface, destination, next));
        }
        std::thread::sleep(Duration::from_millis(POLL_MS));
    }
}

fn unreachable(interface: &Interface, destination: IpAddr, next: IpAddr) -> VerbsError {
    let name = &interface.name;
    let way = match next == destination {
        true => String::new(),
        false => format!(", the gateway to {destination}"),
    };
    VerbsError::new(
        libc::ETIMEDOUT,
        format!(
            "no host on interface {name} has the address {next}{way}: check the address, and that \
             the host is up and on this link (ip neighbour show dev {name})"
        ),
    )
}

/// The state of a neighbour in the kernel's table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Resolution {
    /// The kernel knows its link-layer address, fresh or stale, or it needs none.
    Resolved,
    /// A solicitation was sent, and no answer has come yet.
    Incomplete,
    /// No solicitation was sent, or none was answered.
    Unresolved,
}

impl From<NeighbourState> for Resolution {
    fn from(state: NeighbourState) -> Resolution {
        match state {
            NeighbourState::Incomplete => Resolution::Incomplete,
            NeighbourState::None | NeighbourState::Failed => Resolution::Unresolved,
            _ => Resolution::Resolved,
        }
    }
}

/// The kernel gave no usable answer: a system call failed, or the answer is malformed.
struct NoAnswer;

/// A socket for questions about the kernel's tables (rtnetlink(7)).
struct Rtnetlink(Socket);

impl Rtnetlink {
    fn open() -> Result<Rtnetlink, NoAnswer> {
        Socket::new(NETLINK_ROUTE).map(Rtnetlink).map_err(|_| NoAnswer)
    }

    /// The gateway to an address, or the address itself if it is on the link.
    fn next_hop(&self, interface: u32, to: IpAddr) -> Result<IpAddr, NoAnswer> {
        let mut asked = RouteMessage::default();
        (asked.header.address_family, asked.header.destination_prefix_length) = match to {
            IpAddr::V4(_) => (AddressFamily::Inet, 32),
            IpAddr::V6(_) => (AddressFamily::Inet6, 128),
        };
        let to_attribute = RouteAttribute::Destination(RouteAddress::from(to));
        asked.attributes = vec![to_attribute, RouteAttribute::Oif(interface)];
        let Some(RouteNetlinkMessage::NewRoute(told)) =
            self.ask(RouteNetlinkMessage::GetRoute(asked))?
        else {
            return Err(NoAnswer);
        };
        let gateway = told.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
            _ => None,
        });
        Ok(gateway.unwrap_or(to))
    }

    fn state_of(&self, interface: u32, neighbour: IpAddr) -> Result<Resolution, NoAnswer> {
        let mut asked = NeighbourMessage::default();
        asked.header.ifindex = interface;
        asked.header.family = match neighbour {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        asked.attributes = vec![NeighbourAttribute::Destination(neighbour.into())];
        match self.ask(RouteNetlinkMessage::GetNeighbour(asked))? {
            Some(RouteNetlinkMessage::NewNeighbour(told)) => Ok(told.header.state.into()),
            Some(_) => Err(NoAnswer),
            None => Ok(Resolution::Unresolved),
        }
    }

    /// The kernel's answer; `None`: it has no such entry.
    fn ask(&self, request: RouteNetlinkMessage) -> Result<Option<RouteNetlinkMessage>, NoAnswer> {
        let mut message = NetlinkMessage::from(request);
        message.header.flags = NLM_F_REQUEST;
        let answer: NetlinkMessage<RouteNetlinkMessage> = self.exchange(&mut message)?;
        match answer.payload {
            NetlinkPayload::InnerMessage(told) => Ok(Some(told)),
            NetlinkPayload::Error(error) if error.raw_code() == -libc::ENOENT => Ok(None),
            _ => Err(NoAnswer),
        }
    }

    fn exchange<T: NetlinkSerializable + NetlinkDeserializable>(
        &self,
        message: &mut NetlinkMessage<T>,
    ) -> Result<NetlinkMessage<T>, NoAnswer> {
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0).map_err(|_| NoAnswer)?;
        wait_readable(&[self.0.as_raw_fd()], ANSWER_MS);
        let mut answer = Vec::with_capacity(4096);
        self.0.recv(&mut answer, libc::MSG_DONTWAIT).map_err(|_| NoAnswer)?;
        NetlinkMessage::deserialize(&answer).map_err(|_| NoAnswer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_it_knows() {
        let rtnetlink = Rtnetlink::open().ok().expect("a netlink socket");
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let lo = 1;
        assert_eq!(rtnetlink.next_hop(lo, here).ok(), Some(here));
        // The kernel knows nothing of a documentation address (RFC 5737).
        let nobody: IpAddr = "192.0.2.77".parse().unwrap();
        assert_eq!(rtnetlink.state_of(lo, nobody).ok(), Some(Resolution::Unresolved));
    }

    #[test]
    fn a_resolved_neighbour_is_checked_again_after_a_while() {
        let mut cache = NeighbourCache::default();
        let who: IpAddr = "192.0.2.77".parse().unwrap();
        assert!(!cache.is_fresh(who, 0));
        cache.note(who, 5);
        assert!(cache.is_fresh(who, 5 + FRESH_NS - 1));
        assert!(!cache.is_fresh(who, 5 + FRESH_NS), "it may have gone since");
    }

    #[test]
    fn a_bounded_number_is_remembered() {
        let mut cache = NeighbourCache::default();
        for number in 0..2 * CACHED_MAX as u32 {
            cache.note(std::net::Ipv4Addr::from_bits(number).into(), 0);
        }
        assert_eq!(cache.at_ns.len(), CACHED_MAX);
        cache.note("192.0.2.77".parse().unwrap(), FRESH_NS);
        assert_eq!(cache.at_ns.len(), 1, "those of long ago are forgotten");
    }

    #[test]
    fn states_are_told_apart() {
        for (state, expected) in [
            (NeighbourState::Incomplete, Resolution::Incomplete),
            (NeighbourState::Failed, Resolution::Unresolved),
            (NeighbourState::None, Resolution::Unresolved),
            (NeighbourState::Stale, Resolution::Resolved),
            (NeighbourState::Noarp, Resolution::Resolved),
            (NeighbourState::Permanent, Resolution::Resolved),
        ] {
            assert_eq!(Resolution::from(state), expected, "{state:?}");
        }
    }
}

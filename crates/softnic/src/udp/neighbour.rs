//! The link address of whoever is next on the way to a peer.
//!
//! A connection's first packet makes the kernel ask the link for it (ARP, or neighbour discovery).
//! Where the interface came up a moment ago that question may be lost, and is asked again after a
//! second: longer than all retries of a queue pair with a common time-out. So it is waited for
//! before the queue pair can send, as Linux does for adapters (`ib_resolve_eth_dmac`, when an
//! address vector is given), and whoever names an address that nobody has learns it there.

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
use crate::helper::wait_readable;

/// How often to look, ms.
const LOOK_MS: u64 = 5;
/// The kernel is not made to ask anew more often, ns: it asks by itself, each second and three
/// times.
const ASK_NS: u64 = 200_000_000;
/// How long the kernel may take to tell what it knows, ms.
const TELL_MS: i32 = 100;

/// Who answered is not asked about again for so long, ns: the kernel's answer takes some hundred
/// microseconds, and a program that connects to a host connects often.
const FRESH_NS: u64 = 1_000_000_000;
/// So many are remembered.
const ANSWERED_MAX: usize = 1024;

/// To whom packets could leave lately.
#[derive(Default)]
pub(super) struct Answered {
    at_ns: BTreeMap<IpAddr, u64>,
}

impl Answered {
    /// Whether that one answered a moment ago. It may have gone since, and have to be waited for.
    pub(super) fn knows(&self, destination: IpAddr, now_ns: u64) -> bool {
        let at_ns = self.at_ns.get(&destination);
        at_ns.is_some_and(|at_ns| now_ns.saturating_sub(*at_ns) < FRESH_NS)
    }

    pub(super) fn note(&mut self, destination: IpAddr, now_ns: u64) {
        self.at_ns.retain(|_, at_ns| now_ns.saturating_sub(*at_ns) < FRESH_NS);
        if self.at_ns.len() >= ANSWERED_MAX {
            self.at_ns.pop_first();
        }
        self.at_ns.insert(destination, now_ns);
    }
}

/// Waits up to `patience_ns` until packets to `destination` can leave by an interface.
///
/// # Errors
/// That nobody answers for that address, and what that may mean.
pub(super) fn wait_for(
    interface: &Interface,
    destination: IpAddr,
    patience_ns: u64,
) -> VerbsResult<()> {
    if destination.is_multicast() || !interface.asks_for_neighbours() {
        return Ok(());
    }
    let _calm = NoCancel::new();
    // What the kernel does not tell is not waited for: then a time-out says the rest.
    let Ok(kernel) = Kernel::open() else { return Ok(()) };
    let Ok(next) = kernel.next_on_the_way(interface.index, destination) else { return Ok(()) };
    let give_up_ns = now_ns() + patience_ns;
    let mut ask_at_ns = 0;
    loop {
        let now_ns = now_ns();
        match kernel.state_of(interface.index, next) {
            Ok(State::Known) | Err(Silent) => return Ok(()),
            Ok(State::Asked) => {}
            // Without a carrier the question would be lost.
            Ok(State::Unknown) if now_ns >= ask_at_ns && interface.is_running() => {
                ask_at_ns = now_ns + ASK_NS;
                socket::make_kernel_ask(interface.index, destination);
            }
            Ok(State::Unknown) => {}
        }
        if now_ns >= give_up_ns {
            return Err(nobody(interface, destination, next));
        }
        std::thread::sleep(Duration::from_millis(LOOK_MS));
    }
}

fn nobody(interface: &Interface, destination: IpAddr, next: IpAddr) -> VerbsError {
    let name = &interface.name;
    let way = match next == destination {
        true => String::new(),
        false => format!(", the gateway to {destination}"),
    };
    VerbsError::new(
        libc::ETIMEDOUT,
        format!(
            "nobody on interface {name} answers for {next}{way}: is that host up, on this link, \
             and the address right? (ip neighbour show dev {name})"
        ),
    )
}

/// What the kernel knows of a neighbour.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Its link address, fresh or not, or that it needs none.
    Known,
    /// It was asked for, and has not answered yet.
    Asked,
    /// Nobody asked, or nobody answered.
    Unknown,
}

impl From<NeighbourState> for State {
    fn from(state: NeighbourState) -> State {
        match state {
            NeighbourState::Incomplete => State::Asked,
            NeighbourState::None | NeighbourState::Failed => State::Unknown,
            _ => State::Known,
        }
    }
}

/// Why the kernel does not tell: a system call failed, or its answer makes no sense.
struct Silent;

/// A conversation with the kernel about its tables (rtnetlink(7)).
struct Kernel(Socket);

impl Kernel {
    fn open() -> Result<Kernel, Silent> {
        Socket::new(NETLINK_ROUTE).map(Kernel).map_err(|_| Silent)
    }

    /// The gateway to an address, or the address itself.
    fn next_on_the_way(&self, interface: u32, to: IpAddr) -> Result<IpAddr, Silent> {
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
            return Err(Silent);
        };
        let gateway = told.attributes.iter().find_map(|attribute| match attribute {
            RouteAttribute::Gateway(RouteAddress::Inet(v4)) => Some(IpAddr::V4(*v4)),
            RouteAttribute::Gateway(RouteAddress::Inet6(v6)) => Some(IpAddr::V6(*v6)),
            _ => None,
        });
        Ok(gateway.unwrap_or(to))
    }

    fn state_of(&self, interface: u32, neighbour: IpAddr) -> Result<State, Silent> {
        let mut asked = NeighbourMessage::default();
        asked.header.ifindex = interface;
        asked.header.family = match neighbour {
            IpAddr::V4(_) => AddressFamily::Inet,
            IpAddr::V6(_) => AddressFamily::Inet6,
        };
        asked.attributes = vec![NeighbourAttribute::Destination(neighbour.into())];
        match self.ask(RouteNetlinkMessage::GetNeighbour(asked))? {
            Some(RouteNetlinkMessage::NewNeighbour(told)) => Ok(told.header.state.into()),
            Some(_) => Err(Silent),
            None => Ok(State::Unknown),
        }
    }

    /// The kernel's answer; `None`: it has no such entry.
    fn ask(&self, request: RouteNetlinkMessage) -> Result<Option<RouteNetlinkMessage>, Silent> {
        let mut message = NetlinkMessage::from(request);
        message.header.flags = NLM_F_REQUEST;
        let answer: NetlinkMessage<RouteNetlinkMessage> = self.exchange(&mut message)?;
        match answer.payload {
            NetlinkPayload::InnerMessage(told) => Ok(Some(told)),
            NetlinkPayload::Error(error) if error.raw_code() == -libc::ENOENT => Ok(None),
            _ => Err(Silent),
        }
    }

    fn exchange<T: NetlinkSerializable + NetlinkDeserializable>(
        &self,
        message: &mut NetlinkMessage<T>,
    ) -> Result<NetlinkMessage<T>, Silent> {
        message.finalize();
        let mut bytes = vec![0; message.buffer_len()];
        message.serialize(&mut bytes);
        self.0.send(&bytes, 0).map_err(|_| Silent)?;
        wait_readable(&[self.0.as_raw_fd()], TELL_MS);
        let mut answer = Vec::with_capacity(4096);
        self.0.recv(&mut answer, libc::MSG_DONTWAIT).map_err(|_| Silent)?;
        NetlinkMessage::deserialize(&answer).map_err(|_| Silent)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernel_tells_what_it_knows() {
        let kernel = Kernel::open().ok().expect("a netlink socket");
        let here: IpAddr = "127.0.0.1".parse().unwrap();
        let lo = 1;
        assert_eq!(kernel.next_on_the_way(lo, here).ok(), Some(here));
        // Of an address of documentation (RFC 5737) it knows nothing.
        let nobody: IpAddr = "192.0.2.77".parse().unwrap();
        assert_eq!(kernel.state_of(lo, nobody).ok(), Some(State::Unknown));
    }

    #[test]
    fn who_answered_is_asked_about_again_after_a_while() {
        let mut answered = Answered::default();
        let who: IpAddr = "192.0.2.77".parse().unwrap();
        assert!(!answered.knows(who, 0));
        answered.note(who, 5);
        assert!(answered.knows(who, 5 + FRESH_NS - 1));
        assert!(!answered.knows(who, 5 + FRESH_NS), "it may have gone since");
    }

    #[test]
    fn a_bounded_number_is_remembered() {
        let mut answered = Answered::default();
        for number in 0..2 * ANSWERED_MAX as u32 {
            answered.note(std::net::Ipv4Addr::from_bits(number).into(), 0);
        }
        assert_eq!(answered.at_ns.len(), ANSWERED_MAX);
        answered.note("192.0.2.77".parse().unwrap(), FRESH_NS);
        assert_eq!(answered.at_ns.len(), 1, "those of long ago are forgotten");
    }

    #[test]
    fn states_are_told_apart() {
        for (state, expected) in [
            (NeighbourState::Incomplete, State::Asked),
            (NeighbourState::Failed, State::Unknown),
            (NeighbourState::None, State::Unknown),
            (NeighbourState::Stale, State::Known),
            (NeighbourState::Noarp, State::Known),
            (NeighbourState::Permanent, State::Known),
        ] {
            assert_eq!(State::from(state), expected, "{state:?}");
        }
    }
}

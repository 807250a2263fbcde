//! The network interface that `RDMALAB_INTERFACE` names: its addresses as GIDs, its MTU, its state.

use std::ffi::CStr;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::OnceLock;

use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_link::address::{LINK_LOCAL, gid_of};
use rdmalab_wire::ids::{Gid, PathMtu};
use rdmalab_wire::ip::ROCE_V2_PORT;

use crate::error::os_error;

/// At most this many entries in the GID table: an address vector has 8 bits for the index.
const MAX_GIDS: usize = 256;
/// Bytes of the longest headers, as the kernel's drivers count them (Linux, `rxe_param.h`). The
/// path MTU is the largest that fits into the interface's MTU beside them.
const HEADERS_BYTES: u32 = 80;

/// An interface as it was when the device was first used.
#[derive(Debug)]
pub(crate) struct Interface {
    pub(crate) name: String,
    pub(crate) index: u32,
    /// The GID table: 0 link-local, then IPv4, then the other IPv6 addresses.
    pub(crate) gids: Vec<Gid>,
    /// Addresses that the kernel chooses as source by itself, except to destinations on the link:
    /// each is the only one of its IP version and scope.
    sole: Vec<IpAddr>,
    /// The longest payload of a packet.
    pub(crate) mtu: PathMtu,
    /// The UDP port of both ends.
    pub(crate) port: u16,
    /// The kernel's default time to live (IPv4) and hop limit (IPv6); 0: unknown.
    usual_hops: [u8; 2],
}

/// The arguments of [`choose_interface`].
static CHOSEN: OnceLock<(Option<String>, Option<u16>)> = OnceLock::new();
static NAMED: OnceLock<VerbsResult<Option<Interface>>> = OnceLock::new();

/// Chooses the network interface and the UDP port of this process instead of `RDMALAB_INTERFACE`
/// and `RDMALAB_PORT`, for a program that must not change its environment. Call this once, before
/// any other use of the device. `None` leaves the choice to the environment.
///
/// # Errors
/// One line: there is no such interface, it carries no packets, or the device is in use already.
pub fn choose_interface(name: Option<&str>, port: Option<u16>) -> Result<(), String> {
    if name.is_none() && port.is_none() {
        return Ok(());
    }
    let chosen = (name.map(str::to_owned), port);
    if NAMED.get().is_some() || CHOSEN.get_or_init(|| chosen.clone()) != &chosen {
        return Err("the interface is chosen too late: the device is in use".to_owned());
    }
    named().map(drop).map_err(|error| error.message)
}

/// The interface that was named, looked up once.
///
/// # Errors
/// There is no such interface, or it cannot carry packets.
pub(crate) fn named() -> VerbsResult<Option<&'static Interface>> {
    let named = NAMED.get_or_init(|| {
        if let Some((Some(name), _)) = CHOSEN.get() {
            return find("--interface", name, port()?).map(Some);
        }
        match std::env::var("RDMALAB_INTERFACE") {
            Ok(name) if !name.is_empty() => find("RDMALAB_INTERFACE", &name, port()?).map(Some),
            _ => Ok(None),
        }
    });
    named.as_ref().map(Option::as_ref).map_err(Clone::clone)
}

/// The interface, if one is named and usable.
pub(crate) fn usable() -> Option<&'static Interface> {
    named().ok().flatten()
}

fn port() -> VerbsResult<u16> {
    if let Some((_, Some(port))) = CHOSEN.get() {
        return Ok(*port);
    }
    let Ok(text) = std::env::var("RDMALAB_PORT") else { return Ok(ROCE_V2_PORT) };
    if text.is_empty() {
        return Ok(ROCE_V2_PORT);
    }
    text.parse().ok().filter(|port| *port != 0).ok_or_else(|| {
        VerbsError::invalid(format!("RDMALAB_PORT is {text:?}: it must be a UDP port, 1 to 65535"))
    })
}

/// An entry of the kernel's list of interfaces.
struct Listed {
    name: String,
    address: Option<IpAddr>,
    hardware: Option<[u8; 6]>,
}

fn list() -> VerbsResult<Vec<Listed>> {
    let mut head: *mut libc::ifaddrs = std::ptr::null_mut();
    // SAFETY: the call stores the head of a list that we free below.
    if unsafe { libc::getifaddrs(&raw mut head) } != 0 {
        let error = std::io::Error::last_os_error();
        return Err(os_error("cannot list the network interfaces", &error));
    }
    let mut listed = Vec::new();
    let mut next = head;
    // SAFETY: the kernel's list: each entry is valid until freeifaddrs, its name a C string.
    while let Some(entry) = unsafe { next.as_ref() } {
        // SAFETY: as above.
        let name = unsafe { CStr::from_ptr(entry.ifa_name) }.to_string_lossy().into_owned();
        let (address, hardware) = address_of(entry.ifa_addr);
        listed.push(Listed { name, address, hardware });
        next = entry.ifa_next;
    }
    // SAFETY: the head that getifaddrs gave, once.
    unsafe { libc::freeifaddrs(head) };
    Ok(listed)
}

/// An IP address, or the hardware address of a packet socket.
fn address_of(address: *const libc::sockaddr) -> (Option<IpAddr>, Option<[u8; 6]>) {
    if address.is_null() {
        return (None, None);
    }
    // SAFETY: a whole structure of the family lies there.
    unsafe {
        match i32::from((*address).sa_family) {
            libc::AF_INET => {
                let v4 = &*address.cast::<libc::sockaddr_in>();
                (Some(IpAddr::V4(Ipv4Addr::from_bits(u32::from_be(v4.sin_addr.s_addr)))), None)
            }
            libc::AF_INET6 => {
                let v6 = &*address.cast::<libc::sockaddr_in6>();
                (Some(IpAddr::V6(Ipv6Addr::from(v6.sin6_addr.s6_addr))), None)
            }
            libc::AF_PACKET => {
                let packet = &*address.cast::<libc::sockaddr_ll>();
                let [a, b, c, d, e, f, ..] = packet.sll_addr;
                (None, (packet.sll_halen == 6).then_some([a, b, c, d, e, f]))
            }
            _ => (None, None),
        }
    }
}

/// Looks up an interface; `said_by` is the option or variable that names it, for messages.
fn find(said_by: &str, name: &str, port: u16) -> VerbsResult<Interface> {
    let listed = list()?;
    if listed.iter().all(|entry| entry.name != name) {
        let mut names: Vec<&str> = listed.iter().map(|entry| entry.name.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        return Err(VerbsError::new(
            VerbsError::ENODEV,
            format!(
                "{said_by} is {name:?}: there is no such network interface; there are: {}",
                names.join(", ")
            ),
        ));
    }
    let own = || listed.iter().filter(|entry| entry.name == name);
    let addresses: Vec<IpAddr> = own().filter_map(|entry| entry.address).collect();
    let hardware = own().find_map(|entry| entry.hardware).unwrap_or_default();
    if addresses.is_empty() {
        return Err(VerbsError::new(
            VerbsError::ENODEV,
            format!("interface {name} has no IP address: give it one (`ip address add ... dev`)"),
        ));
    }
    let mtu_bytes = interface_mtu(name)?;
    let mtu = path_mtu(mtu_bytes).ok_or_else(|| {
        VerbsError::invalid(format!(
            "interface {name} has an MTU of {mtu_bytes}: RoCEv2 needs at least {}",
            PathMtu::Mtu256.bytes() + HEADERS_BYTES
        ))
    })?;
    let gids = gid_table(&addresses, hardware);
    let (index, sole, usual_hops) = (index_of(name)?, sole_of(&addresses), usual_hops(name));
    Ok(Interface { name: name.to_owned(), index, gids, sole, mtu, port, usual_hops })
}

fn usual_hops(name: &str) -> [u8; 2] {
    ["ipv4/ip_default_ttl".to_owned(), format!("ipv6/conf/{name}/hop_limit")].map(|setting| {
        let text = std::fs::read_to_string(format!("/proc/sys/net/{setting}"));
        text.ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    })
}

fn is_link_local(address: &IpAddr) -> bool {
    matches!(address, IpAddr::V6(v6) if v6.segments()[0] & 0xffc0 == 0xfe80)
}

/// Whether an IPv6 address or group has link-local scope or a narrower one.
fn stays_on_link(address: &IpAddr) -> bool {
    let small_group = matches!(address, IpAddr::V6(v6)
        if v6.is_multicast() && v6.octets()[1] & 0xf <= LINK_LOCAL);
    small_group || is_link_local(address)
}

/// The addresses that are the only ones of their IP version and scope, without link-local ones:
/// during duplicate address detection packets to the link leave from another address.
fn sole_of(addresses: &[IpAddr]) -> Vec<IpAddr> {
    let kind = |a: &IpAddr| (a.is_ipv4(), is_link_local(a));
    let alone = |a: &&IpAddr| {
        !is_link_local(a) && addresses.iter().filter(|b| kind(a) == kind(b)).count() == 1
    };
    addresses.iter().filter(alone).copied().collect()
}

/// The order of the kernel's table: the default GID, which is link-local, then IPv4, then IPv6.
fn gid_table(addresses: &[IpAddr], hardware: [u8; 6]) -> Vec<Gid> {
    let default = match addresses.iter().find(|a| is_link_local(a)) {
        Some(address) => gid_of(*address),
        None => default_gid(hardware),
    };
    let mut gids = vec![default];
    gids.extend(addresses.iter().filter(|a| a.is_ipv4()).map(|a| gid_of(*a)));
    let v6 = addresses.iter().filter(|a| a.is_ipv6() && !is_link_local(a));
    gids.extend(v6.map(|a| gid_of(*a)));
    gids.dedup();
    gids.truncate(MAX_GIDS);
    gids
}

/// fe80:: with the modified EUI-64 of a hardware address: GID 0 if no link-local address exists.
fn default_gid(hardware: [u8; 6]) -> Gid {
    let [a, b, c, d, e, f] = hardware;
    Gid([0xfe, 0x80, 0, 0, 0, 0, 0, 0, a ^ 2, b, c, 0xff, 0xfe, d, e, f])
}

/// The largest path MTU that fits into the interface's MTU.
fn path_mtu(interface_bytes: u32) -> Option<PathMtu> {
    (1..=5)
        .rev()
        .filter_map(PathMtu::from_ibv)
        .find(|mtu| mtu.bytes() + HEADERS_BYTES <= interface_bytes)
}

/// Makes an `ioctl` about an interface.
fn ask(name: &str, what: libc::c_ulong) -> VerbsResult<libc::ifreq> {
    // SAFETY: all-zero is a valid value of this plain C structure.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    let room = request.ifr_name.len() - 1;
    for (to, from) in request.ifr_name.iter_mut().zip(name.bytes().take(room)) {
        *to = from as libc::c_char;
    }
    let failed = || {
        let error = std::io::Error::last_os_error();
        os_error(&format!("cannot ask the kernel about interface {name}"), &error)
    };
    // SAFETY: takes integers; the descriptor is closed below.
    let socket = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    if socket < 0 {
        return Err(failed());
    }
    // SAFETY: the request is a live structure of the kind that these requests fill; the descriptor
    // is ours, and closed once.
    let asked = unsafe { libc::ioctl(socket, what as _, &raw mut request) };
    let result = if asked < 0 { Err(failed()) } else { Ok(request) };
    // SAFETY: as above.
    unsafe { libc::close(socket) };
    result
}

fn interface_mtu(name: &str) -> VerbsResult<u32> {
    let answer = ask(name, libc::SIOCGIFMTU as libc::c_ulong)?;
    // SAFETY: SIOCGIFMTU fills this member.
    Ok(unsafe { answer.ifr_ifru.ifru_mtu } as u32)
}

fn index_of(name: &str) -> VerbsResult<u32> {
    let answer = ask(name, libc::SIOCGIFINDEX as libc::c_ulong)?;
    // SAFETY: SIOCGIFINDEX fills this member.
    Ok(unsafe { answer.ifr_ifru.ifru_ifindex } as u32)
}

impl Interface {
    /// Whether the kernel chooses `source` by itself for packets to `destination`. Packets that
    /// stay on the link leave from a link-local address (RFC 6724, rule 2).
    pub(crate) fn is_usual_source(&self, source: IpAddr, destination: IpAddr) -> bool {
        self.sole.contains(&source) && !stays_on_link(&destination)
    }

    /// Whether the kernel sets this hop limit by itself for packets to `destination`. Packets to a
    /// group have 1, whatever the default for other packets is.
    pub(crate) fn is_usual(&self, destination: IpAddr, hop_limit: u8) -> bool {
        let usual = self.usual_hops[usize::from(destination.is_ipv6())];
        hop_limit == 0 || !destination.is_multicast() && hop_limit == usual
    }

    /// Whether the interface is up and has a carrier now.
    pub(crate) fn is_running(&self) -> bool {
        let flags = self.flags();
        flags & libc::IFF_UP != 0 && flags & libc::IFF_RUNNING != 0
    }

    /// Whether the kernel resolves link-layer addresses on this interface.
    pub(crate) fn asks_for_neighbours(&self) -> bool {
        self.flags() & (libc::IFF_LOOPBACK | libc::IFF_NOARP | libc::IFF_POINTOPOINT) == 0
    }

    /// The flags of SIOCGIFFLAGS now; 0: unknown.
    fn flags(&self) -> i32 {
        let Ok(answer) = ask(&self.name, libc::SIOCGIFFLAGS as libc::c_ulong) else { return 0 };
        // SAFETY: SIOCGIFFLAGS fills this member.
        i32::from(unsafe { answer.ifr_ifru.ifru_flags })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn path_mtus_are_the_kernels() {
        let cases = [(1500, 1024), (4176, 4096), (4175, 2048), (9000, 4096), (336, 256)];
        for (interface, path) in cases {
            assert_eq!(path_mtu(interface).unwrap().bytes(), path, "{interface}");
        }
        assert_eq!(path_mtu(335), None);
    }

    #[test]
    fn gids_are_in_the_kernels_order() {
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let all = ["2001:db8::2", "10.0.0.1", "fe80::5", "10.0.0.2"].map(address);
        let table = gid_table(&all, [0; 6]);
        let expected = ["fe80::5", "10.0.0.1", "10.0.0.2", "2001:db8::2"].map(address).map(gid_of);
        assert_eq!(table, expected);
        let table = gid_table(&all[1..2], [2, 0x42, 0, 0, 0, 1]);
        assert_eq!(table, [gid_of(address("fe80::42:ff:fe00:1")), gid_of(all[1])]);
    }

    #[test]
    fn an_address_may_be_the_only_one_of_its_kind() {
        let all = ["10.0.0.1", "fe80::1", "2001:db8::1", "2001:db8::2"];
        let all = all.map(|text| text.parse::<IpAddr>().unwrap());
        assert_eq!(sole_of(&all), all[..1], "a link-local one is said always");
    }

    #[test]
    fn packets_that_stay_on_the_link_say_their_source() {
        let mut interface = find("RDMALAB_INTERFACE", "lo", 4791).unwrap();
        let sources = ["10.0.0.1", "2001:db8::1"].map(|text| text.parse().unwrap());
        interface.sole = sources.to_vec();
        let is_usual =
            |index: usize, to: &str| interface.is_usual_source(sources[index], to.parse().unwrap());
        assert!(is_usual(0, "10.0.0.2") && is_usual(0, "224.0.0.5"));
        for to in ["2001:db8::2", "ff05::1", "ff0e::1"] {
            assert!(is_usual(1, to), "{to}");
        }
        for to in ["fe80::2", "ff02::1", "ff12::1", "ff01::1"] {
            assert!(!is_usual(1, to), "{to}");
        }
        interface.sole.clear();
        assert!(!interface.is_usual_source(sources[0], sources[0]));
    }

    #[test]
    fn the_loopback_interface_is_found_and_others_are_named() {
        let found = find("RDMALAB_INTERFACE", "lo", 4791).unwrap();
        assert!(found.gids.contains(&gid_of("127.0.0.1".parse().unwrap())), "{found:?}");
        assert_eq!((found.mtu, found.index > 0), (PathMtu::Mtu4096, true));
        assert!(found.is_running());
        let is_usual = |to: &str, hops| found.is_usual(to.parse().unwrap(), hops);
        for (host, group, usual) in [
            ("10.0.0.1", "239.1.2.3", found.usual_hops[0]),
            ("fd00::1", "ff15::1", found.usual_hops[1]),
        ] {
            assert!(is_usual(host, usual) && is_usual(host, 0) && is_usual(group, 0));
            assert!(!is_usual(group, usual), "{group}");
        }
        let error = find("--interface", "no-such-if", 4791).unwrap_err();
        assert!(error.message.contains("there are: ") && error.message.contains("lo"), "{error}");
    }
}

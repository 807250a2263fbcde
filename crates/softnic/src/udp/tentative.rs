//! Tentative addresses: they exist and cannot be used yet.
//!
//! For a second or two after an IPv6 address was added, the kernel asks the link whether another
//! host has it (duplicate address detection, RFC 4862, 5.4). Until then nobody can resolve it, and
//! packets leave from another address, which the peer rejects.

use std::net::{IpAddr, Ipv6Addr};

use rdmalab_engine::backend::{VerbsError, VerbsResult};

use crate::clock::now_ns;

/// How long this may take, ns: a random second, and one more for the answer.
pub(super) const DAD_NS: u64 = 3_000_000_000;
/// The interval between two polls, ms.
const POLL_MS: u64 = 20;
/// `IFA_F_TENTATIVE` (linux/if_addr.h).
const TENTATIVE: u32 = 0x40;
/// `IFA_F_DADFAILED`: another host has the address.
const DAD_FAILED: u32 = 0x08;

/// Waits up to `timeout_ns` until an address of this host may be used.
///
/// # Errors
/// The address did not become usable; the message says how to see why.
pub(super) fn wait_until_usable(
    interface: &str,
    address: IpAddr,
    timeout_ns: u64,
) -> VerbsResult<()> {
    let IpAddr::V6(address) = address else { return Ok(()) };
    let give_up_ns = now_ns() + timeout_ns;
    loop {
        // If the file cannot be read, do not wait: the kernel reports a bad address later.
        let Ok(table) = std::fs::read_to_string("/proc/net/if_inet6") else { return Ok(()) };
        let flags = flags_of(&table, interface, address);
        if flags & (TENTATIVE | DAD_FAILED) == 0 {
            return Ok(());
        }
        if flags & DAD_FAILED != 0 || now_ns() >= give_up_ns {
            return Err(not_usable(interface, address));
        }
        std::thread::sleep(std::time::Duration::from_millis(POLL_MS));
    }
}

fn not_usable(interface: &str, address: Ipv6Addr) -> VerbsError {
    VerbsError::new(
        libc::EADDRNOTAVAIL,
        format!(
            "the address {address} of interface {interface} is not in use: it is new, or another \
             host has it (ip -6 address show dev {interface}); choose another sgid_index"
        ),
    )
}

/// The flags of an address in the kernel's table: lines of address, index, prefix length, scope and
/// flags in hexadecimal, and name.
fn flags_of(table: &str, interface: &str, address: Ipv6Addr) -> u32 {
    let wanted = format!("{:032x}", address.to_bits());
    let mut lines = table.lines().map(str::split_ascii_whitespace);
    lines
        .find_map(|mut words| {
            let is_it = words.next()? == wanted;
            let flags = words.nth(3)?;
            let name = words.next()?;
            (is_it && name == interface).then(|| u32::from_str_radix(flags, 16).ok())?
        })
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let table = "\
00000000000000000000000000000001 01 80 10 80       lo
fe8000000000000000fc4efffe29aaf0 02 40 20 c0     eth0
fe8000000000000000fc4efffe29aaf0 03 40 20 80     eth1
fd910000000000000000000000000002 02 40 00 88     eth0
";
        let of = |name, text: &str| flags_of(table, name, text.parse().unwrap());
        let link_local = "fe80::fc:4eff:fe29:aaf0";
        assert_eq!(of("eth0", link_local), 0x80 | TENTATIVE);
        assert_eq!(of("eth1", link_local), 0x80);
        assert_eq!(of("eth0", "fd91::2"), 0x80 | DAD_FAILED);
        assert_eq!(of("eth0", "fd91::3"), 0);
    }

    #[test]
    fn an_address_in_use_is_not_waited_for() {
        for address in ["::1", "127.0.0.1"] {
            wait_until_usable("lo", address.parse().unwrap(), 0).unwrap();
        }
    }
}

//! The data that two ends exchange before they connect.

use std::fmt;
use std::net::Ipv6Addr;
use std::str::FromStr;

/// The address of a queue pair, and its first PSN. Its text form, for any way of exchanging it, is
/// `lid,qpn,psn,gid` in decimal numbers and an IPv6 address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpEndpoint {
    /// LID of the port; 0 on Ethernet.
    pub lid: u16,
    /// Number of the queue pair, 24 bits.
    pub qpn: u32,
    /// First packet sequence number that it sends, 24 bits.
    pub psn: u32,
    /// GID of the port; unspecified where none is used.
    pub gid: Ipv6Addr,
}

impl fmt::Display for QpEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{},{}", self.lid, self.qpn, self.psn, self.gid)
    }
}

/// A text that is no endpoint.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndpointParseError(String);

impl fmt::Display for EndpointParseError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?} is no endpoint: expected lid,qpn,psn,gid", self.0)
    }
}

impl std::error::Error for EndpointParseError {}

impl FromStr for QpEndpoint {
    type Err = EndpointParseError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        parse(text.trim()).ok_or_else(|| EndpointParseError(text.to_owned()))
    }
}

fn parse(text: &str) -> Option<QpEndpoint> {
    let mut parts = text.split(',');
    let endpoint = QpEndpoint {
        lid: parts.next()?.parse().ok()?,
        qpn: parts.next()?.parse().ok().filter(|n: &u32| n >> 24 == 0)?,
        psn: parts.next()?.parse().ok().filter(|n: &u32| n >> 24 == 0)?,
        gid: parts.next()?.parse().ok()?,
    };
    parts.next().is_none().then_some(endpoint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_form_comes_back() {
        let gid = "fe80::2:c903:0:1".parse().unwrap();
        let endpoint = QpEndpoint { lid: 0xffff, qpn: 0xff_ffff, psn: 0, gid };
        assert_eq!(endpoint.to_string().parse(), Ok(endpoint));
        for wrong in ["", "1,2,3", "1,2,3,::,4", "1,16777216,3,::", "65536,2,3,::", "1,2,3,x"] {
            assert!(wrong.parse::<QpEndpoint>().is_err(), "{wrong}");
        }
    }
}

//! What ranks exchange before they are connected: lines of words.

use std::fmt::Display;

use rdmalab_verbs::RemoteBuffer;

/// The handshake of another rank; `E` is the data about each of its queue pairs.
pub(crate) struct Handshake<E> {
    pub mtu_bytes: u32,
    pub memory: RemoteBuffer,
    /// What kind of memory backs it.
    pub backing: String,
    pub endpoints: Vec<E>,
}

impl<E> Handshake<E> {
    /// Reads what [`write`] wrote; `read_endpoint` reads a line of it.
    pub fn read(bytes: &[u8], read_endpoint: impl Fn(&str) -> Option<E>) -> Option<Self> {
        let text = std::str::from_utf8(bytes).ok()?;
        let mut lines = text.lines();
        let words: Vec<&str> = lines.next()?.split(' ').collect();
        let [mtu, addr, length, rkey, backing] = words[..] else { return None };
        let memory = RemoteBuffer {
            addr: addr.parse().ok()?,
            bytes: length.parse().ok()?,
            rkey: rkey.parse().ok()?,
        };
        let endpoints = lines.map(read_endpoint).collect::<Option<Vec<E>>>()?;
        Some(Self { mtu_bytes: mtu.parse().ok()?, memory, backing: backing.to_owned(), endpoints })
    }
}

/// The handshake of this rank: a line about its memory, and one for each endpoint.
pub(crate) fn write<E: Display>(
    mtu_bytes: u32,
    memory: RemoteBuffer,
    backing: impl Display,
    endpoints: impl IntoIterator<Item = E>,
) -> String {
    let RemoteBuffer { addr, bytes, rkey } = memory;
    let mut text = format!("{mtu_bytes} {addr} {bytes} {rkey} {backing}\n");
    for endpoint in endpoints {
        text.push_str(&format!("{endpoint}\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use rdmalab_verbs::QpEndpoint;

    use super::*;

    fn read(text: &str) -> Option<Handshake<QpEndpoint>> {
        Handshake::read(text.as_bytes(), |line| line.parse().ok())
    }

    #[test]
    fn a_handshake_comes_back() {
        let endpoint: QpEndpoint = "1,2,3,fe80::1".parse().unwrap();
        let memory = RemoteBuffer { addr: 1 << 40, bytes: 4096, rkey: 7 };
        let back = read(&write(1024, memory, "memfd-backed", [endpoint, endpoint])).unwrap();
        let said = (back.mtu_bytes, back.memory, back.backing.as_str());
        assert_eq!(said, (1024, memory, "memfd-backed"));
        assert_eq!(back.endpoints, [endpoint, endpoint]);
        for wrong in ["", "1 2 3", "1 2 3 4 x\nno endpoint", "x 2 3 4 y"] {
            assert!(read(wrong).is_none(), "{wrong}");
        }
    }
}

//! The counters of an adapter in `/sys`: what its port counted during a point.

use std::collections::BTreeMap;
use std::path::Path;

use rdmalab_measure::{Outcome, at_rank};

/// Where Linux shows devices with verbs.
pub const DEVICES: &str = "/sys/class/infiniband";
/// The directories of a port with counters: those of the adapter's kind, and those of InfiniBand.
const COUNTERS: [&str; 2] = ["hw_counters", "counters"];
/// Files among them that are settings, and no counters.
const SETTINGS: [&str; 1] = ["lifespan"];

/// The counters of a port at some time, by name; none if the system shows none.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HwCounters(BTreeMap<String, u64>);

impl HwCounters {
    /// Reads the counters of a port of a device. `devices`: the directory of devices.
    pub fn of(devices: &Path, device: &str, port: u8) -> Self {
        let port = devices.join(device).join("ports").join(port.to_string());
        let dirs = COUNTERS.iter().filter_map(|dir| std::fs::read_dir(port.join(dir)).ok());
        let read = |entry: std::fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let text = std::fs::read_to_string(entry.path()).ok()?;
            let value = text.trim().parse().ok()?;
            (!SETTINGS.contains(&name.as_str())).then_some((name, value))
        };
        Self(dirs.flatten().flatten().filter_map(read).collect())
    }

    /// Adds the counters that have grown since, as counts `hw_NAME` of a rank.
    pub fn push_since(&self, before: &Self, measured: &mut Outcome, rank: usize) {
        for (name, now) in &self.0 {
            let grown = before.0.get(name).and_then(|then| now.checked_sub(*then));
            if let Some(count) = grown.filter(|count| *count > 0) {
                measured.push_count(&at_rank(&format!("hw_{name}"), rank), count);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_has_grown_is_counted_and_settings_are_not() {
        let dir = tempfile::tempdir().unwrap();
        let port = dir.path().join("mlx5_0/ports/1");
        let write = |name: &str, text: &str| {
            let path = port.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let read = || HwCounters::of(dir.path(), "mlx5_0", 1);
        assert_eq!(read(), HwCounters::default());
        write("hw_counters/out_of_sequence", "7\n");
        write("hw_counters/lifespan", "10\n");
        write("hw_counters/local_ack_timeout_err", "3\n");
        write("counters/port_xmit_packets", "100\n");
        write("counters/unreadable", "N/A\n");
        let before = read();
        write("hw_counters/out_of_sequence", "9\n");
        write("hw_counters/lifespan", "12\n");
        // A counter that was reset meanwhile says nothing.
        write("hw_counters/local_ack_timeout_err", "1\n");
        write("counters/port_xmit_packets", "150\n");
        let mut measured = Outcome::default();
        read().push_since(&before, &mut measured, 1);
        let found: Vec<_> = measured.counts.iter().map(|c| (c.name.as_str(), c.value)).collect();
        assert_eq!(
            found,
            [("hw_out_of_sequence_at_rank_1", 2), ("hw_port_xmit_packets_at_rank_1", 50)]
        );
    }
}

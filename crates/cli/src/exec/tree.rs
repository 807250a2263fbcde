//! The sysfs files that a kernel driver would show for rdmalab's devices, in a private directory:
//! `librdmalab-paths.so` answers with them. Names and formats are those of the kernel
//! (`Documentation/ABI/stable/sysfs-class-infiniband`); the values are those of the verbs.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use rdmalab_engine::backend::{
    Backend, DeviceCaps, DeviceInfo, GidEntry, GidType, LinkLayer, PortInfo, VerbsResult,
};
use rdmalab_softnic::SoftNic;

/// The one port of a device.
const PORT: u8 = 1;
/// `IB_USER_VERBS_ABI_VERSION` of every kernel since 2.6.14.
const VERBS_ABI: u32 = 6;
/// Stands for a device file. It can be opened and does nothing.
const DEVICE_FILE: &str = "/dev/null";
/// Its numbers, as `uverbs0/dev` has them.
const DEVICE_NUMBERS: &str = "1:3";

/// An entry of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Item {
    /// A file with one line.
    Line(String),
    /// A symbolic link.
    Link(String),
}

/// A tree that is not on the disk yet: paths relative to its root, and their entries.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree(Vec<(String, Item)>);

/// A device, with all its values in the tree.
struct Device {
    info: DeviceInfo,
    caps: DeviceCaps,
    port: PortInfo,
    gids: Vec<GidEntry>,
    pkeys: Vec<u16>,
}

impl Device {
    fn ask(info: DeviceInfo) -> VerbsResult<Device> {
        let context = SoftNic.open(info.index)?;
        let port = SoftNic::query_port(&context, PORT)?;
        let gids = (0..port.gid_tbl_len).map(|at| SoftNic::query_gid(&context, PORT, at));
        let gids = gids.collect::<VerbsResult<_>>()?;
        let pkeys = (0..u32::from(port.pkey_tbl_len))
            .map(|at| SoftNic::query_pkey(&context, PORT, at).map(|key| key.0));
        let pkeys = pkeys.collect::<VerbsResult<_>>()?;
        let caps = SoftNic::query_device(&context);
        SoftNic::close(&context)?;
        Ok(Device { info, caps, port, gids, pkeys })
    }
}

impl Tree {
    /// The tree of our devices.
    ///
    /// # Errors
    /// The devices cannot be opened; with the reason.
    pub fn of_devices() -> Result<Tree, String> {
        let ask = || {
            let devices = SoftNic.devices()?.into_iter().map(Device::ask);
            devices.collect::<VerbsResult<Vec<_>>>()
        };
        let devices = ask().map_err(|error| error.to_string())?;
        let mut tree = Tree::default();
        tree.line("sys/class/infiniband_verbs/abi_version", VERBS_ABI);
        for device in &devices {
            tree.device(device, &processors());
        }
        Ok(tree)
    }

    fn line(&mut self, path: impl Into<String>, text: impl ToString) {
        self.0.push((path.into(), Item::Line(text.to_string())));
    }

    fn link(&mut self, path: impl Into<String>, to: impl Into<String>) {
        self.0.push((path.into(), Item::Link(to.into())));
    }

    fn device(&mut self, device: &Device, processors: &str) {
        let (name, dev_name, caps) = (&device.info.name, &device.info.dev_name, &device.caps);
        let at = format!("sys/class/infiniband/{name}");
        self.line(format!("{at}/node_type"), "1: CA");
        self.line(format!("{at}/node_desc"), name);
        self.line(format!("{at}/node_guid"), guid(caps.node_guid));
        self.line(format!("{at}/sys_image_guid"), guid(caps.sys_image_guid));
        self.line(format!("{at}/fw_ver"), &caps.fw_ver);
        self.line(format!("{at}/hw_rev"), format!("{:x}", caps.hw_ver));
        self.line(format!("{at}/board_id"), "rdmalab soft RNIC");
        self.port(&format!("{at}/ports/{PORT}"), device);
        // A PCI function's identifiers have 16 bits.
        let below = format!("{at}/device");
        self.line(format!("{below}/vendor"), format!("{:#06x}", caps.vendor_id & 0xffff));
        self.line(format!("{below}/device"), format!("{:#06x}", caps.vendor_part_id & 0xffff));
        // The device consists of memory and threads, so no NUMA node is nearer than another.
        self.line(format!("{below}/numa_node"), -1);
        self.line(format!("{below}/local_cpulist"), processors);
        self.line(format!("{below}/local_cpus"), mask(processors));
        self.link(format!("{below}/infiniband/{name}"), "../..");
        let verbs = format!("sys/class/infiniband_verbs/{dev_name}");
        self.link(
            format!("{below}/infiniband_verbs/{dev_name}"),
            format!("../../../../../../{verbs}"),
        );
        self.line(format!("{verbs}/ibdev"), name);
        self.line(format!("{verbs}/abi_version"), 1);
        self.line(format!("{verbs}/dev"), DEVICE_NUMBERS);
        self.link(format!("{verbs}/device"), format!("../../infiniband/{name}/device"));
        self.link(format!("dev/infiniband/{dev_name}"), DEVICE_FILE);
    }

    fn port(&mut self, at: &str, device: &Device) {
        let port = &device.port;
        self.line(format!("{at}/state"), if port.active { "4: ACTIVE" } else { "1: DOWN" });
        self.line(format!("{at}/phys_state"), phys_state(port.phys_state));
        self.line(format!("{at}/lid"), format!("{:#x}", port.lid));
        self.line(format!("{at}/lid_mask_count"), port.lmc);
        self.line(format!("{at}/sm_lid"), format!("{:#x}", port.sm_lid));
        self.line(format!("{at}/sm_sl"), 0);
        self.line(format!("{at}/cap_mask"), format!("{:#010x}", port.port_cap_flags));
        self.line(format!("{at}/rate"), rate(port.active_width, port.active_speed));
        let layer = match port.link_layer {
            LinkLayer::InfiniBand => "InfiniBand",
            LinkLayer::Ethernet => "Ethernet",
        };
        self.line(format!("{at}/link_layer"), layer);
        for (index, entry) in device.gids.iter().enumerate() {
            self.line(format!("{at}/gids/{index}"), gid(entry.gid.0));
            let kind = match entry.gid_type {
                GidType::RoceV2 => "RoCE v2",
                _ => "IB/RoCE v1",
            };
            self.line(format!("{at}/gid_attrs/types/{index}"), kind);
            if let Some(interface) = interface(entry.ifindex) {
                self.link(
                    format!("sys/class/infiniband/{}/device/net/{interface}", device.info.name),
                    format!("/sys/class/net/{interface}"),
                );
                self.line(format!("{at}/gid_attrs/ndevs/{index}"), interface);
            }
        }
        for (index, key) in device.pkeys.iter().enumerate() {
            self.line(format!("{at}/pkeys/{index}"), format!("{key:#06x}"));
        }
    }

    /// A hash of the tree (FNV-1a).
    #[must_use]
    pub fn fingerprint(&self) -> u64 {
        format!("{:?}", self.0).bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }

    /// Writes the tree below an existing directory.
    ///
    /// # Errors
    /// A file cannot be written; with its path.
    pub fn write(&self, root: &Path) -> Result<(), String> {
        for (path, item) in &self.0 {
            let path = root.join(path);
            put(&path, item).map_err(|error| format!("{}: {error}", path.display()))?;
        }
        Ok(())
    }
}

fn put(path: &PathBuf, item: &Item) -> std::io::Result<()> {
    std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/")))?;
    match item {
        Item::Line(text) => std::fs::write(path, format!("{text}\n")),
        // Two GIDs of one interface have the same link.
        Item::Link(_) if path.symlink_metadata().is_ok() => Ok(()),
        Item::Link(to) => std::os::unix::fs::symlink(to, path),
    }
}

/// Groups of four digits, as the kernel writes them.
fn groups(bytes: &[u8]) -> String {
    let words = bytes.chunks(2).map(|pair| {
        pair.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        })
    });
    words.collect::<Vec<_>>().join(":")
}

fn guid(guid: u64) -> String {
    groups(&guid.to_be_bytes())
}

fn gid(gid: [u8; 16]) -> String {
    groups(&gid)
}

/// `enum ib_port_phys_state`, as the kernel names it.
fn phys_state(state: u8) -> String {
    let name = match state {
        1 => "Sleep",
        2 => "Polling",
        3 => "Disabled",
        4 => "PortConfigurationTraining",
        5 => "LinkUp",
        6 => "LinkErrorRecovery",
        7 => "Phy Test",
        _ => "<unknown>",
    };
    format!("{state}: {name}")
}

/// The rate of a port, from the codes of `ibv_port_attr`.
fn rate(width: u8, speed: u8) -> String {
    let lanes = match width {
        1 => 1,
        2 => 4,
        4 => 8,
        8 => 12,
        16 => 2,
        _ => 1,
    };
    // Tenths of Gbit/s of a lane, and the name that the kernel adds.
    let (tenths, name) = match speed {
        2 => (50, " DDR"),
        4 => (100, " QDR"),
        8 => (100, " FDR10"),
        16 => (140, " FDR"),
        32 => (250, " EDR"),
        64 => (500, " HDR"),
        128 => (1000, " NDR"),
        _ => (25, ""),
    };
    let all = tenths * lanes;
    let rest = if all % 10 == 0 { String::new() } else { format!(".{}", all % 10) };
    format!("{}{rest} Gb/sec ({lanes}X{name})", all / 10)
}

/// The name of a network interface; `None` if no interface has this index.
fn interface(index: u32) -> Option<String> {
    let wanted = index.to_string();
    let entries = std::fs::read_dir("/sys/class/net").ok().filter(|_| index > 0)?;
    let named = entries.flatten().find(|entry| {
        std::fs::read_to_string(entry.path().join("ifindex"))
            .is_ok_and(|text| text.trim() == wanted)
    })?;
    named.file_name().into_string().ok()
}

/// The processors of the machine, as a list of ranges.
fn processors() -> String {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    if list.trim().is_empty() { "0".to_owned() } else { list.trim().to_owned() }
}

/// A list of processors as a mask: words of 32 bits, the last processors first.
fn mask(list: &str) -> String {
    let mut words: Vec<u32> = vec![0];
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (Ok(first), Ok(last)) = (first.parse::<usize>(), last.parse::<usize>()) else {
            continue;
        };
        for processor in first..=last {
            let word = processor / 32;
            if words.len() <= word {
                words.resize(word + 1, 0);
            }
            words[word] |= 1 << (processor % 32);
        }
    }
    words.iter().rev().map(|word| format!("{word:08x}")).collect::<Vec<_>>().join(",")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn formats_are_the_kernels() {
        assert_eq!(guid(0x0200_1234_5678_9abc), "0200:1234:5678:9abc");
        assert_eq!(rate(2, 32), "100 Gb/sec (4X EDR)");
        assert_eq!(rate(1, 1), "2.5 Gb/sec (1X)");
        assert_eq!(rate(2, 16), "56 Gb/sec (4X FDR)");
        assert_eq!(phys_state(5), "5: LinkUp");
        assert_eq!(mask("0-1"), "00000003");
        assert_eq!(mask("0,33-34"), "00000006,00000001");
    }

    #[test]
    fn a_tree_says_what_the_devices_say() {
        let tree = Tree::of_devices().unwrap();
        let home = tempfile::tempdir().unwrap();
        tree.write(home.path()).unwrap();
        let read = |path: &str| std::fs::read_to_string(home.path().join(path)).unwrap();
        for (index, info) in SoftNic.devices().unwrap().into_iter().enumerate() {
            let at = format!("sys/class/infiniband/soft{index}");
            assert_eq!(read(&format!("{at}/node_guid")).trim(), guid(info.guid));
            assert_eq!(read(&format!("{at}/ports/1/state")), "4: ACTIVE\n");
            assert_eq!(read(&format!("{at}/ports/1/pkeys/0")), "0xffff\n");
            // Follows the links in both directions.
            let verbs = format!("sys/class/infiniband_verbs/uverbs{index}");
            assert_eq!(read(&format!("{verbs}/ibdev")), format!("soft{index}\n"));
            assert_eq!(read(&format!("{verbs}/device/numa_node")), "-1\n");
            assert_eq!(
                read(&format!("{at}/device/infiniband_verbs/uverbs{index}/ibdev")),
                format!("soft{index}\n")
            );
            assert_eq!(read(&format!("{at}/device/infiniband/soft{index}/node_type")), "1: CA\n");
            let file = home.path().join(format!("dev/infiniband/uverbs{index}"));
            assert_eq!(std::fs::read_link(file).unwrap(), Path::new("/dev/null"));
        }
        assert_eq!(tree.fingerprint(), Tree::of_devices().unwrap().fingerprint());
        assert_ne!(tree.fingerprint(), Tree::default().fingerprint());
    }
}

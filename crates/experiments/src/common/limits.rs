//! The limits of a device that a point may exceed.

use std::borrow::Cow;

use rdmalab_verbs::{Context, Kind, Qp, QpType, VerbsError};
use serde::{Deserialize, Serialize};

use crate::common::model::Model;

/// The kind of simulated devices.
pub const SIMULATED: &str = "sim";
/// The path MTUs, in bytes.
const MTUS: [u32; 5] = [256, 512, 1024, 2048, 4096];

/// Limits of a device and one of its ports.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Kind of device: `system`, `soft` or `sim`.
    pub kind: String,
    /// Name of the device.
    pub device: String,
    /// How peers are addressed on the port: `InfiniBand` or `Ethernet`.
    pub link_layer: String,
    /// The profile that is applied to the device, and what it does, if the caller of
    /// [`Limits::query`] knows it: the device cannot be asked for it.
    pub profile: Option<(String, String)>,
    /// Most queue pairs.
    pub max_qp: u32,
    /// Most requests in a queue.
    pub max_qp_wr: u32,
    /// Most completions in a completion queue.
    pub max_cqe: u32,
    /// Longest memory region, in bytes.
    pub max_mr_bytes: u64,
    /// Whether it has atomics.
    pub has_atomics: bool,
    /// READs and atomics that a queue pair may have under way, and serves: the smaller number.
    pub max_rd_atomic: u32,
    /// Most inline bytes of a queue pair; found by trial, since devices do not report it.
    pub max_inline_bytes: u32,
    /// Most pieces of a request.
    pub max_sge: u32,
    /// Most pieces of a receive in a shared receive queue.
    pub max_srq_sge: u32,
    /// Number of ports.
    pub ports: u8,
    /// The largest payload of a packet in use on the port.
    pub active_mtu_bytes: u32,
    /// Longest message, in bytes.
    pub max_msg_bytes: u64,
    /// Entries of the port's GID table.
    pub gids: u32,
    /// Whether peers are reached by GID only.
    pub needs_gid: bool,
    /// Whether memory may be registered for on-demand paging, and accesses to it fault.
    pub has_on_demand_paging: bool,
    /// The smallest time-out code that the device minds, as far as it says: its local ACK delay.
    pub ack_delay_code: u8,
}

impl Limits {
    /// Queries the device. If the port does not exist, the values are those of port 1, and
    /// [`crate::check`] reports the missing port.
    ///
    /// # Errors
    /// The error of the device.
    pub fn query(context: &Context, port: u8) -> Result<Self, VerbsError> {
        let device = context.query_device()?;
        let port = if (1..=device.phys_port_cnt).contains(&port) { port } else { 1 };
        let port = context.query_port(port)?;
        Ok(Self {
            kind: kind_name(context.kind()),
            device: context.device_name().to_owned(),
            link_layer: port.link_layer.to_string(),
            profile: None,
            max_qp: device.max_qp,
            max_qp_wr: device.max_qp_wr,
            max_cqe: device.max_cqe,
            max_mr_bytes: device.max_mr_bytes,
            has_atomics: device.has_atomics,
            max_rd_atomic: device.max_qp_rd_atom.min(device.max_qp_init_rd_atom),
            max_inline_bytes: max_inline_bytes(context)?,
            max_sge: device.max_sge,
            max_srq_sge: device.max_srq_sge,
            ports: device.phys_port_cnt,
            active_mtu_bytes: port.active_mtu.bytes() as u32,
            max_msg_bytes: port.max_msg_bytes.into(),
            gids: port.gid_tbl_len,
            needs_gid: port.needs_gid(),
            has_on_demand_paging: device.has_on_demand_paging && faults(context, &device.fw_ver),
            ack_delay_code: device.local_ca_ack_delay,
        })
    }

    /// The limits of a simulated device with the changes of a point's model. Each change has the
    /// name and the unit of a parameter of the simulator. Other devices stay as they are.
    #[must_use]
    pub fn of_model(&self, model: &Model) -> Cow<'_, Limits> {
        let mut limits = Cow::Borrowed(self);
        if self.kind != SIMULATED {
            return limits;
        }
        for (name, value) in model.changes() {
            let number = value as u32;
            match name {
                "max_wr" => limits.to_mut().max_qp_wr = number,
                "max_sge" => {
                    let limits = limits.to_mut();
                    (limits.max_sge, limits.max_srq_sge) = (number, number);
                }
                "max_inline_bytes" => limits.to_mut().max_inline_bytes = number,
                "max_rd_atomic" => limits.to_mut().max_rd_atomic = number,
                "mtu_bytes" => {
                    let fitting = MTUS.iter().rfind(|mtu| **mtu <= number);
                    limits.to_mut().active_mtu_bytes = *fitting.unwrap_or(&MTUS[0]);
                }
                "odp_resolve_ns" => limits.to_mut().has_on_demand_paging = value > 0.0,
                "ack_timeout_min_code" => limits.to_mut().ack_delay_code = number as u8,
                _ => {}
            }
        }
        limits
    }
}

/// Whether a device that takes memory for on-demand paging can miss a page of it. A soft device
/// can only under a profile, whose name follows its version.
fn faults(context: &Context, firmware: &str) -> bool {
    context.kind() != Kind::Soft || firmware.contains('+')
}

fn kind_name(kind: Kind) -> String {
    kind.to_string()
}

/// Beyond any adapter's limit.
const INLINE_TRIED: u32 = 4096;

/// The most inline bytes that the device grants to a queue pair, by binary search between granted
/// and refused values.
fn max_inline_bytes(context: &Context) -> Result<u32, VerbsError> {
    let pd = context.alloc_pd()?;
    let cq = context.create_cq(1, None)?;
    let granted = |bytes| {
        let builder = Qp::builder(QpType::Rc, &cq, &cq).max_send_wr(1).max_recv_wr(1);
        builder.max_inline_data(bytes).build(&pd).ok().map(|qp| qp.cap().max_inline_data)
    };
    let Some(mut yes) = granted(0) else { return Ok(0) };
    let mut no = INLINE_TRIED;
    while yes + 1 < no {
        let middle = yes.midpoint(no);
        match granted(middle) {
            // A device may grant more than was asked for.
            Some(bytes) => yes = bytes.max(middle).min(no - 1),
            None => no = middle,
        }
    }
    Ok(yes)
}

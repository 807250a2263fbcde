//! What a device granted and both ends agreed on, as facts of an outcome.

use rdmalab_measure::Outcome;
use rdmalab_verbs::{Backing, Context, Kind, Mtu, Path, QpType};

/// See the module's text.
pub(crate) struct Granted<'a> {
    pub kind: Kind,
    pub device: &'a str,
    pub transport: QpType,
    pub link_layer: &'a str,
    pub inline_bytes: u32,
    /// Whether messages of this point go inline.
    pub inline: bool,
    pub mtu: Mtu,
    pub path: &'a Path,
    pub gid: &'a str,
}

impl Granted<'_> {
    /// Adds the facts; `own` is what our memory is backed by, `far` what that of the others is.
    pub fn push<'a>(
        &self,
        outcome: &mut Outcome,
        own: Backing,
        mut far: impl Iterator<Item = &'a str>,
    ) {
        let shared = Backing::Shared.to_string();
        let other = far.find(|backing| *backing != shared);
        let placement = match (self.kind, other) {
            (Kind::System, _) => "adapter".to_owned(),
            (_, None) if own == Backing::Shared => "memfd-backed at both ends".to_owned(),
            (_, other) => format!("{own} here, {} there", other.unwrap_or(&shared)),
        };
        outcome.push_fact("device_kind", self.kind);
        outcome.push_fact("device", self.device);
        outcome.push_fact("transport", self.transport);
        outcome.push_fact("placement", placement);
        outcome.push_fact("inline_granted_bytes", self.inline_bytes);
        outcome.push_fact("inline", if self.inline { "yes" } else { "no" });
        outcome.push_fact("mtu_bytes", self.mtu.bytes());
        outcome.push_fact("port", self.path.port_num);
        outcome.push_fact("link_layer", self.link_layer);
        outcome.push_fact("gid", self.gid);
    }
}

/// What is known without a connection.
pub(crate) fn device_facts(context: &Context, outcome: &mut Outcome) {
    outcome.push_fact("device_kind", context.kind());
    outcome.push_fact("device", context.device_name());
}

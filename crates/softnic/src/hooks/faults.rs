//! Applies the fault rules to the packets of this process. The rules of the profile come before the
//! user's rules; both apply. Packets that a rule delays wait in [`super::deferred`].

use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use parking_lot::Mutex;
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::qp::TimerKind;
use rdmalab_link::packet::PacketInfo;
use rdmalab_link::quirk::{Chain, Completion, Fate, Reply};
use rdmalab_link::specification::Specification;
use rdmalab_wire::ids::Qpn;

use super::chosen::CHOSEN;
use crate::clock::now_ns;
use crate::layout::QP_INDEX_BITS;

/// The fault rules and quirks of this process.
pub(crate) struct Faults {
    /// The name of each rule or quirk.
    labels: Vec<String>,
    /// The labels of the user's rules, one bit each; the other labels are the profile's.
    of_user: u64,
    /// The user's rules as the user wrote them; `None` if there are none.
    text: Option<String>,
    /// Number of packets that one of the user's rules applied to.
    disturbed: AtomicU64,
    watches_arrivals: bool,
    watches_completions: bool,
    chain: Mutex<Chain>,
}

/// Checks a specification of faults.
///
/// # Errors
/// The error, its place, and what is allowed: one line.
pub fn check_faults(text: &str) -> Result<(), String> {
    Specification::parse(text).map(drop).map_err(|error| error.to_string())
}

/// The value of `RDMALAB_FAULTS`, or the rules that the program chose.
fn asked() -> VerbsResult<Option<String>> {
    let chosen = CHOSEN.get().and_then(|(_, faults)| faults.clone());
    let asked = chosen.map(Into::into).or_else(|| std::env::var_os("RDMALAB_FAULTS"));
    let asked = asked.filter(|text| !text.is_empty());
    let Some(text) = asked else { return Ok(None) };
    let text = text.to_string_lossy().trim().to_owned();
    let checked = check_faults(&text).map_err(|error| {
        let error = VerbsError::invalid(format!("RDMALAB_FAULTS, {error}"));
        // The verb's error may not reach the user, so print it as well.
        crate::warn(&error.to_string());
        error
    });
    checked.map(|()| Some(text))
}

/// The rules of the profile and of `RDMALAB_FAULTS`.
pub(super) fn from_environment() -> VerbsResult<Option<&'static Faults>> {
    let text = asked()?;
    let profile = crate::profile::named()?.map_or(&[][..], |profile| &profile.rules);
    let all = [profile, text.as_slice()].concat();
    if all.is_empty() {
        return Ok(None);
    }
    let asked = Specification::parse(&all.join(";")).map_err(|error| {
        let error = VerbsError::invalid(format!("RDMALAB_FAULTS behind the profile's: {error}"));
        crate::warn(&error.to_string());
        error
    })?;
    // The other bits of a QPN are the process slot, which differs from run to run.
    let asked = asked.with_qp_bits(QP_INDEX_BITS);
    let of_user = asked.labels_after(profile.len());
    let chain = asked.into_chain(now_ns());
    Ok(Some(Box::leak(Box::new(Faults {
        labels: chain.labels().to_vec(),
        of_user,
        text,
        disturbed: AtomicU64::new(0),
        watches_arrivals: chain.watches_arrivals(),
        watches_completions: chain.watches_completions(),
        chain: Mutex::new(chain),
    }))))
}

impl Faults {
    /// Asks the rules about a packet that is about to leave. Also returns the time of the decision
    /// for [`super::deferred::defer`]: delays count from it, so that packets of one flow stay in
    /// order.
    pub(super) fn packet_leaves(&self, packet: &PacketInfo) -> (Fate, u64) {
        let mut chain = self.chain.lock();
        let decided_ns = now_ns();
        let fate = chain.packet_leaves(packet, decided_ns);
        drop(chain);
        self.count_disturbed(fate.met);
        (fate, decided_ns)
    }

    /// Whether a rule needs to see arriving packets.
    pub(crate) fn watches_arrivals(&self) -> bool {
        self.watches_arrivals
    }

    /// Asks the rules about a packet that has arrived.
    pub(crate) fn packet_arrived(&self, packet: &PacketInfo) -> Reply {
        let reception = self.chain.lock().packet_arrived(packet, now_ns());
        self.count_disturbed(reception.met);
        reception.reply
    }

    fn count_disturbed(&self, met: u64) {
        if met & self.of_user != 0 {
            self.disturbed.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// A timer of a queue pair fired.
    pub(super) fn timer_fired(&self, qp: Qpn, kind: TimerKind) {
        self.chain.lock().timer_fired(qp, kind, now_ns());
    }

    /// A message completed.
    pub(super) fn message_completed(&self, completion: &Completion) {
        if self.watches_completions {
            self.chain.lock().message_completed(completion, now_ns());
        }
    }

    /// A queue pair was reset or destroyed.
    pub(super) fn queue_pair_reset(&self, qp: Qpn) {
        self.chain.lock().queue_pair_reset(qp);
    }

    /// The user's rules, as the user wrote them.
    pub(super) fn text(&self) -> Option<&str> {
        self.text.as_deref()
    }

    /// Who specified the rule of a label: the profile or the user.
    fn whose(&self, index: usize) -> &'static str {
        if self.of_user >> index & 1 == 0 { "profile" } else { "fault" }
    }

    /// Number of packets that one of the user's rules applied to so far.
    pub(super) fn disturbed(&self) -> u64 {
        self.disturbed.load(Ordering::Relaxed)
    }

    /// The comment in the capture on a packet with this fate.
    pub(super) fn comment(&self, fate: &Fate) -> String {
        let (mut text, mut last) = (String::new(), "");
        for (index, label) in self.labels.iter().enumerate() {
            if fate.met >> index & 1 != 0 {
                let whose = self.whose(index);
                let between = if text.is_empty() { "" } else { "; " };
                let whose_it_is = if whose == last { "" } else { &format!("{whose}: ") };
                let _ = write!(text, "{between}{whose_it_is}{label}");
                last = whose;
            }
        }
        text
    }

    /// Reports what each rule did, when the process exits.
    pub(super) fn report(&self) {
        for (index, (label, met)) in self.labels.iter().zip(self.chain.lock().met()).enumerate() {
            let whose = self.whose(index);
            crate::debug(&format!("{whose} \"{label}\" met {met} packets"));
        }
    }
}

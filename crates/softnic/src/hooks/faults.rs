//! Applies the fault rules to the packets of this process, and holds delayed packets. The rules of
//! the profile come before the user's rules; both apply.
//!
//! Callers inside verbs send the packets that are due, whenever they make progress. If no caller
//! comes, a thread sends them. It waits a little longer than a caller, because waking it would take
//! the processor from the caller. Packets that still wait when the process exits are sent then.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use rdmalab_engine::backend::{VerbsError, VerbsResult};
use rdmalab_engine::qp::TimerKind;
use rdmalab_engine::train::Train;
use rdmalab_link::deferred::Deferred;
use rdmalab_link::packet::{Flow, PacketInfo};
use rdmalab_link::quirk::{Chain, Completion, Fate, Reply};
use rdmalab_link::specification::Specification;

use rdmalab_wire::ids::Qpn;
use rdmalab_wire::opcode::Transport;

use crate::clock::now_ns;
use crate::copy;
use crate::error::os_error;
use crate::layout::QP_INDEX_BITS;
use crate::peer::Peer;
use crate::process::Process;
use crate::ring_push::{ANSWER_SLOTS, push, room_in};
use crate::signals::{block_signals, restore_signals};
use crate::udp::socket::Route;

/// How long callers have to send a due packet before the thread does, ns.
const GRACE_NS: u64 = 20_000;
/// After this time a packet that found the ring full is tried again, ns.
const FULL_AGAIN_NS: u64 = 50_000;
/// How long an exiting process waits for its deferred packets, ns.
const EXIT_WAIT_NS: u64 = 500_000_000;
/// The longest payload of a packet.
const PACKET_BYTES: u32 = 4096;

/// A deferred packet.
pub(super) enum DeferredPacket {
    /// For a process of this host.
    Ring { peer: Arc<Peer>, train: Train, service: Transport, payload: Box<[u8]> },
    /// For another host. If `intact`, it is sent with a correct invariant CRC.
    Network { route: Route, packet: Box<[u8]>, intact: bool },
}

impl DeferredPacket {
    fn bytes(&self) -> usize {
        match self {
            DeferredPacket::Ring { payload, .. } => payload.len() + size_of::<Train>(),
            DeferredPacket::Network { packet, .. } => packet.len(),
        }
    }
}

/// The state that decisions need, under one lock.
struct State {
    chain: Chain,
    deferred: Deferred<DeferredPacket>,
    /// The flow of the deferred packet that is being sent now.
    sending: Option<Flow>,
}

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
    state: Mutex<State>,
    news: Condvar,
    /// Held by the thread that sends due packets, so that they leave in order.
    releasing: Mutex<()>,
    /// Number of packets that were lost because too many waited.
    overflowed: AtomicU64,
}

/// The faults of this process, for the exit handler.
static FAULTS: AtomicPtr<Faults> = AtomicPtr::new(std::ptr::null_mut());

/// Checks a specification of faults.
///
/// # Errors
/// The error, its place, and what is allowed: one line.
pub fn check_faults(text: &str) -> Result<(), String> {
    Specification::parse(text).map(drop).map_err(|error| error.to_string())
}

/// The value of `RDMALAB_FAULTS`, or the rules that the program chose.
fn asked() -> VerbsResult<Option<String>> {
    let chosen = super::CHOSEN.get().and_then(|(_, faults)| faults.clone());
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
    let faults: &'static Faults = Box::leak(Box::new(Faults {
        labels: chain.labels().to_vec(),
        of_user,
        text,
        disturbed: AtomicU64::new(0),
        watches_arrivals: chain.watches_arrivals(),
        watches_completions: chain.watches_completions(),
        state: Mutex::new(State { chain, deferred: Deferred::default(), sending: None }),
        news: Condvar::new(),
        releasing: Mutex::new(()),
        overflowed: AtomicU64::new(0),
    }));
    faults.start()?;
    Ok(Some(faults))
}

impl Faults {
    fn start(&'static self) -> VerbsResult<()> {
        FAULTS.store(std::ptr::from_ref(self).cast_mut(), Ordering::Release);
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(|| {
            // SAFETY: the handler touches the leaked faults only.
            unsafe { libc::atexit(at_exit) };
        });
        let before = block_signals();
        let spawned = std::thread::Builder::new()
            .name("rdmalab-faults".into())
            .stack_size(256 * 1024)
            .spawn(move || self.serve());
        restore_signals(&before);
        spawned.map(drop).map_err(|error| os_error("cannot start the thread for faults", &error))
    }

    /// Asks the rules about a packet that is about to leave. Also returns the time of the decision
    /// for [`Faults::defer`]: delays count from it, so that packets of one flow stay in order.
    pub(super) fn packet_leaves(&self, packet: &PacketInfo) -> (Fate, u64) {
        let mut state = self.state.lock();
        let decided_ns = now_ns();
        let fate = state.chain.packet_leaves(packet, decided_ns);
        drop(state);
        self.count_disturbed(fate.met);
        (fate, decided_ns)
    }

    /// Whether a rule needs to see arriving packets.
    pub(crate) fn watches_arrivals(&self) -> bool {
        self.watches_arrivals
    }

    /// Asks the rules about a packet that has arrived.
    pub(crate) fn packet_arrived(&self, packet: &PacketInfo) -> Reply {
        let reception = self.state.lock().chain.packet_arrived(packet, now_ns());
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
        self.state.lock().chain.timer_fired(qp, kind, now_ns());
    }

    /// A message completed.
    pub(super) fn message_completed(&self, completion: &Completion) {
        if self.watches_completions {
            self.state.lock().chain.message_completed(completion, now_ns());
        }
    }

    /// A queue pair was reset or destroyed.
    pub(super) fn queue_pair_reset(&self, qp: Qpn) {
        self.state.lock().chain.queue_pair_reset(qp);
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

    /// Defers the packet or copies of it. Returns whether the caller sends the packet itself now.
    pub(super) fn defer(
        &self,
        flow: &Flow,
        (fate, decided_ns): (&Fate, u64),
        mut packet: impl FnMut() -> DeferredPacket,
    ) -> bool {
        let mut state = self.state.lock();
        let before_ns = state.deferred.next_ns();
        let is_busy = state.sending == Some(*flow);
        let deferral = state.deferred.defer(flow, fate, decided_ns, is_busy, || {
            let packet = packet();
            (packet.bytes(), packet)
        });
        let next_ns = state.deferred.next_ns();
        drop(state);
        self.overflowed.fetch_add(deferral.overflowed, Ordering::Relaxed);
        if let Some(next_ns) = next_ns
            && (deferral.released || before_ns.is_none_or(|before_ns| next_ns < before_ns))
        {
            self.news.notify_one();
            if let Some(process) = Process::existing() {
                process.set_deadline(next_ns);
            }
        }
        deferral.sends_now
    }

    fn serve(&self) {
        rdmalab_ring::biased::be_guest();
        // SAFETY: takes a number, for this thread only. The default slack of 50 us is too coarse.
        unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000) };
        loop {
            let mut state = self.state.lock();
            let Some(next_ns) = state.deferred.next_ns() else {
                self.news.wait(&mut state);
                continue;
            };
            let left_ns = next_ns.saturating_add(GRACE_NS).saturating_sub(now_ns());
            if left_ns > 0 {
                self.news.wait_for(&mut state, Duration::from_nanos(left_ns));
                continue;
            }
            drop(state);
            match Process::existing() {
                Some(process) => drop(self.release(process, now_ns())),
                None => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    /// Sends the packets that are due. Returns the time when the next one is due, ns.
    fn release(&self, process: &Process, now: u64) -> Option<u64> {
        let Some(_one) = self.releasing.try_lock() else { return Some(now + GRACE_NS) };
        loop {
            let mut state = self.state.lock();
            let due = state.deferred.take_due(now);
            state.sending = due.as_ref().map(|(flow, _)| *flow);
            let Some((flow, packet)) = due else { return state.deferred.next_ns() };
            drop(state);
            if let Some(packet) = send(process, packet) {
                let mut state = self.state.lock();
                let bytes = packet.bytes();
                if state.deferred.until(flow, now + FULL_AGAIN_NS, bytes, packet).is_err() {
                    self.overflowed.fetch_add(1, Ordering::Relaxed);
                }
            }
        }
    }

    /// Sends the packets that still wait, for a limited time, and reports what each rule did.
    fn close(&self, process: &Process) {
        let give_up_ns = now_ns() + EXIT_WAIT_NS;
        while let Some(next_ns) = self.release(process, now_ns()) {
            let now = now_ns();
            if now >= give_up_ns {
                break;
            }
            std::thread::sleep(Duration::from_nanos(next_ns.min(give_up_ns).saturating_sub(now)));
        }
        let state = self.state.lock();
        for (index, (label, met)) in self.labels.iter().zip(state.chain.met()).enumerate() {
            let whose = self.whose(index);
            crate::debug(&format!("{whose} \"{label}\" met {met} packets"));
        }
        let overflowed = self.overflowed.load(Ordering::Relaxed);
        if overflowed > 0 {
            crate::debug(&format!(
                "{overflowed} packets were lost beyond what the faults ask for: too many waited"
            ));
        }
    }

    pub(super) fn close_in_child(&self) {
        FAULTS.store(std::ptr::null_mut(), Ordering::Release);
    }
}

/// Sends a deferred packet; returns it if there is no room.
fn send(process: &Process, packet: DeferredPacket) -> Option<DeferredPacket> {
    match &packet {
        DeferredPacket::Ring { peer, train, service, payload } => {
            if peer.is_unreachable() {
                return None;
            }
            let mut out = peer.out.lock();
            if room_in(&mut out, PACKET_BYTES, 1 + ANSWER_SLOTS).is_none() {
                drop(out);
                return peer.check_ring(crate::clock::now_ns()).then_some(packet);
            }
            push(&mut out, train, *service, |to| {
                // SAFETY: the ring has room for the payload of the train, which is ours.
                unsafe { copy::copy(to, payload.as_ptr(), payload.len()) }
                    .map_err(|_| rdmalab_engine::qp::CopyError::Fault)
            });
            drop(out);
            peer.ring_bell();
        }
        DeferredPacket::Network { route, packet, intact } => {
            if let Some(network) = process.network() {
                network.send_deferred(route, packet, *intact);
            }
        }
    }
    None
}

impl Process {
    /// Whether fault rules are active in this process. (Its peer probably has the same rules.)
    pub(crate) fn has_faults(&self) -> bool {
        self.hooks.is_some_and(|hooks| hooks.faults.is_some())
    }

    /// Sends the deferred packets that are due, and sets a deadline for the next one.
    #[inline]
    pub(crate) fn release_deferred(&self, now: u64) {
        let faults = self.hooks.and_then(|hooks| hooks.faults);
        if let Some(faults) = faults
            && let Some(next_ns) = faults.release(self, now)
        {
            self.set_deadline(next_ns);
        }
    }
}

extern "C" fn at_exit() {
    // SAFETY: null, or leaked.
    let faults = unsafe { FAULTS.load(Ordering::Acquire).as_ref() };
    if let (Some(faults), Some(process)) = (faults, Process::existing()) {
        faults.close(process);
    }
}

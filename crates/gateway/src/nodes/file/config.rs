//! The keys of a file.

use rdmalab_config::{group, one_of};

use crate::format::FormatChoice;
use crate::keys::{InCommon, NodeCommon, OutCommon};

one_of! {
    /// When the samples of a file are due.
    pub enum EpochMode {
        /// The first one at once, after `epoch`; the others with their distance to it.
        Direct = "direct";
        /// Each one its own time, as a time after now and `epoch`.
        Wait = "wait";
        /// Each one at its time and `epoch`.
        Relative = "relative";
        /// The first one at `epoch`, the others with their distance to it.
        Absolute = "absolute";
        /// All at once, with their times as they are.
        Original = "original";
    }
}

one_of! {
    /// What happens at the end of a file.
    pub enum Eof {
        /// The node ends.
        Stop = "stop" | "exit";
        /// It begins anew.
        Rewind = "rewind";
        /// It waits for more.
        Wait = "wait" | "suspend";
    }
}

group! {
    /// The reading half.
    pub struct In with (common: InCommon) {
        /// When samples are due.
        epoch_mode: EpochMode = EpochMode::Direct;
        /// A time for the mode [s].
        epoch: f64 = 0.0;
        /// One sample each period of this rate [Hz] instead, with the time of its tick; 0 goes by
        /// their times, and so does the mode `original`.
        rate: f64 = 0.0, in 0.0..=1e9;
        /// What happens at the end.
        eof: Eof = Eof::Stop;
        /// Samples that are left out at the beginning.
        skip: u64 = 0, in 0.0..=1e15;
    }
    ignored {
        buffer_size: "the node chooses how much it reads at a time";
    }
}

group! {
    /// The writing half.
    pub struct Out with (common: OutCommon) {
        /// Writes each sample to the file at once.
        flush: bool = false;
        /// Bytes of samples that wait for the writer at most; 0 lets the node choose.
        buffer_size: u64 = 0, in 0.0..=1e12;
    }
}

group! {
    /// A file.
    pub struct Config with (common: NodeCommon) {
        /// Its path; %F, %T and others stand for the time at which it is opened, in UTC.
        uri: String;
        /// Its format.
        format: FormatChoice = FormatChoice::named("villas.human");
        /// The reading half.
        r#in: Option<In>;
        /// The writing half.
        out: Option<Out>;
    }
}

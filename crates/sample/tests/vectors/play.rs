//! Encodes and decodes with our formats.

use rdmalab_sample::{
    Collector, DecodeError, Form, Format, FormatOptions, Handle, Pool, SampleRef, Signal,
};

/// Samples in a pool.
pub struct Samples {
    pub pool: Pool,
    pub handles: Vec<Handle>,
}

impl Samples {
    pub fn refs(&self) -> Vec<SampleRef<'_>> {
        self.handles.iter().map(|handle| self.pool.get(handle)).collect()
    }
}

pub fn villas_human() -> Box<dyn Format> {
    FormatOptions::named("villas.human").unwrap().build().unwrap()
}

/// The samples of `bytes`, at most `room`, and what the decoder says.
pub fn decode(
    format: &dyn Format,
    form: Form,
    bytes: &[u8],
    signals: &[Signal],
    room: usize,
) -> (Samples, Result<usize, DecodeError>) {
    let mut samples = Samples { pool: Pool::new(512, 80), handles: Vec::new() };
    let mut sink = Collector::new(&mut samples.pool, &mut samples.handles, room);
    let used = match form {
        Form::Message | Form::MessageRest => sink.message(format, form, bytes, signals),
        _ => format.decode(form, bytes, signals, &mut sink),
    };
    drop(sink);
    (samples, used)
}

/// All samples of a file; what is no sample is skipped. Also the first error.
pub fn decode_file(
    format: &dyn Format,
    bytes: &[u8],
    signals: &[Signal],
) -> (Samples, Option<DecodeError>) {
    let mut samples = Samples { pool: Pool::new(512, 80), handles: Vec::new() };
    let mut sink = Collector::new(&mut samples.pool, &mut samples.handles, 512);
    let (mut at, mut first_error) = (0, None);
    loop {
        let form = if at == 0 { Form::FileStart } else { Form::File };
        match format.decode(form, &bytes[at..], signals, &mut sink) {
            Ok(_) => break,
            Err(error) => {
                let resume = error.resume();
                first_error.get_or_insert(error);
                let Some(resume) = resume else { break };
                assert!(resume > 0, "a file must be left behind");
                at += resume;
            }
        }
    }
    drop(sink);
    (samples, first_error)
}

/// The samples of an input, and which of its samples are none, from 0.
pub fn read_input(text: &str, signals: &[Signal]) -> (Samples, bool) {
    let (samples, error) = decode_file(&*villas_human(), text.as_bytes(), signals);
    (samples, error.is_some())
}

/// Each sample as a line of villas.human.
pub fn lines(samples: &Samples, signals: &[Signal]) -> Vec<String> {
    let mut out = Vec::new();
    villas_human().encode(Form::File, signals, &samples.refs(), &mut out).unwrap();
    String::from_utf8(out).unwrap().lines().map(super::parse::cut_zeros).collect()
}

/// Each sample as the recorded messages show it: `osd n=1 | 1.000000000(1)\t1.0`.
pub fn flagged_lines(samples: &Samples, signals: &[Signal]) -> Vec<String> {
    let flagged = |(line, sample): (String, SampleRef<'_>)| {
        format!("{} n={} | {line}", sample.flags(), sample.len())
    };
    lines(samples, signals).into_iter().zip(samples.refs()).map(flagged).collect()
}

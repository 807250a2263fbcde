//! Any bytes as samples. The fuzz target `sample_decode` uses this file too.

use rdmalab_sample::{Collector, Form, FormatOptions, Handle, Pool, SampleRef, Signal};

/// Takes any bytes as samples of a format: the first two say which one, and of which signals.
/// Nothing may panic, what was used and where reading may go on lie within the bytes, and what was
/// read can be written and read without loss.
pub fn decode(bytes: &[u8]) {
    let [how, what, bytes @ ..] = bytes else { return };
    let names = FormatOptions::NAMES;
    let format = FormatOptions::named(names[usize::from(*how) % names.len()]);
    let format = format.expect("a format").build().expect("usual options");
    let form = [Form::Message, Form::File, Form::FileStart][usize::from(*how) / names.len() % 3];
    let types = ["3f", "2i", "fibc", "40c"][usize::from(*what) % 4];
    let signals = Signal::list(types).expect("types");
    let room = usize::from(*what) / 4;
    let mut pool = Pool::new(64, 40);
    let mut samples = Vec::new();
    let mut sink = Collector::new(&mut pool, &mut samples, room);
    match format.decode(form, bytes, &signals, &mut sink) {
        Ok(used) => assert!(used <= bytes.len()),
        Err(error) => {
            assert!(error.at() <= bytes.len());
            assert!(error.resume().is_none_or(|at| at > 0 && at <= bytes.len()));
        }
    }
    drop(sink);
    assert!(samples.len() <= room && samples.len() + pool.free() == 64);
    keeps_all(&mut pool, &samples, &signals);
}

/// Checks that `rdmalab.binary` keeps every bit of the samples.
pub fn keeps_all(pool: &mut Pool, samples: &[Handle], signals: &[Signal]) {
    let format = FormatOptions::RdmalabBinary {}.build().expect("no options");
    let refs: Vec<SampleRef<'_>> = samples.iter().map(|handle| pool.get(handle)).collect();
    let mut out = Vec::new();
    format.encode(Form::Message, signals, &refs, &mut out).expect("any sample");
    let (mut copies, mut handles) = (Pool::new(samples.len(), pool.values()), Vec::new());
    let mut sink = Collector::new(&mut copies, &mut handles, samples.len());
    assert_eq!(sink.message(&*format, Form::Message, &out, signals), Ok(out.len()));
    drop(sink);
    for (sample, copy) in refs.iter().zip(&handles) {
        assert_equal(sample, &copies.get(copy), signals);
    }
}

/// Checks that two samples are equal, bit by bit.
pub fn assert_equal(a: &SampleRef<'_>, b: &SampleRef<'_>, signals: &[Signal]) {
    assert_eq!((a.flags(), a.sequence(), a.len()), (b.flags(), b.sequence(), b.len()));
    assert_eq!((a.origin(), a.received()), (b.origin(), b.received()));
    for (i, (a, b)) in a.values().zip(b.values()).enumerate() {
        assert_eq!(a, b, "value {i}, {}", signals[i].kind);
    }
}

//! Random samples through every format, and random bytes.

mod hostile;

use rdmalab_random::Random;
use rdmalab_sample::{
    Collector, Complex, Flags, Form, Format, FormatOptions, Handle, Kind, Pool, SampleRef, Signal,
    Timestamp, Value, formats,
};

/// What a format can represent.
#[derive(Clone, Copy, Default)]
struct Limits {
    /// Whether floats are finite.
    finite: bool,
    /// Whether numbers have 32 bits, and there are floats and integers only.
    short: bool,
    /// Whether sequence numbers are below 2^63.
    signed_sequence: bool,
    /// Whether every sample has the parts `osd` and no other.
    plain: bool,
    /// Whether the time of arrival is unknown.
    not_received: bool,
    /// Whether there are no flags of frames.
    no_frames: bool,
    /// Whether the time of origin is known.
    has_origin: bool,
}

struct Drawn {
    signals: Vec<Signal>,
    pool: Pool,
    handles: Vec<Handle>,
}

impl Drawn {
    fn new(random: &mut Random, limits: Limits) -> Self {
        let kinds = if limits.short { &Kind::ALL[..2] } else { &Kind::ALL[..] };
        let count = random.below(70) as usize;
        let mut signals = Signal::numbered(count, Kind::Float);
        signals.iter_mut().for_each(|signal| signal.kind = random.pick(kinds));
        let mut pool = Pool::new(4, count);
        let samples = random.between(1, 4);
        let handles = (0..samples).map(|_| fill(random, limits, &signals, &mut pool)).collect();
        Self { signals, pool, handles }
    }

    fn refs(&self) -> Vec<SampleRef<'_>> {
        self.handles.iter().map(|handle| self.pool.get(handle)).collect()
    }

    fn encode(&self, format: &dyn Format, form: Form) -> Vec<u8> {
        let mut out = Vec::new();
        format.encode(form, &self.signals, &self.refs(), &mut out).expect("samples of the limits");
        out
    }

    /// The samples of `pieces`, which are a file or, if there is one piece, perhaps a message.
    fn decode(&self, format: &dyn Format, form: Form, pieces: &[&[u8]]) -> (Pool, Vec<Handle>) {
        let (mut pool, mut handles) = (Pool::new(4, self.signals.len()), Vec::new());
        let mut sink = Collector::new(&mut pool, &mut handles, 4);
        let (mut rest, mut form) = (Vec::new(), form);
        for piece in pieces {
            rest.extend_from_slice(piece);
            let used = format.decode(form, &rest, &self.signals, &mut sink).expect("our own bytes");
            rest.drain(..used);
            if used > 0 && form == Form::FileStart {
                form = Form::File;
            }
        }
        assert!(rest.is_empty());
        drop(sink);
        (pool, handles)
    }

    fn assert_equal(&self, pool: &Pool, handles: &[Handle]) {
        assert_eq!(handles.len(), self.handles.len());
        for (a, b) in self.refs().iter().zip(handles) {
            hostile::assert_equal(a, &pool.get(b), &self.signals);
        }
    }
}

fn fill(random: &mut Random, limits: Limits, signals: &[Signal], pool: &mut Pool) -> Handle {
    let mut handle = pool.take().expect("a free sample");
    let mut sample = pool.get_mut(&mut handle);
    let cut = |bits: u64| bits >> if limits.short { 32 } else { 0 };
    if limits.plain || random.chance(700) {
        let sequence = cut(random.next_u64()) >> u32::from(limits.signed_sequence);
        sample.set_sequence(sequence);
    }
    let nanoseconds = |random: &mut Random| random.below(1_000_000_000) as i64;
    if limits.plain || limits.has_origin || random.chance(700) {
        let seconds = random.next_u32();
        sample.set_origin(Timestamp::new(seconds.into(), nanoseconds(random)));
    }
    if !limits.plain && !limits.not_received && random.chance(500) {
        // villas.human has an offset from the origin, in single precision: a sixteenth of a second
        // is exact.
        let origin = sample.as_ref().origin().unwrap_or_default();
        sample.set_received(origin.plus_ns(i128::from(random.below(160)) * 62_500_000));
    }
    for flag in [Flags::NEW_FRAME, Flags::NEW_SIMULATION] {
        if !limits.plain && !limits.no_frames && random.chance(200) {
            sample.add_flags(flag);
        }
    }
    let values = random.below(signals.len() as u64 + 1) as usize;
    for signal in &signals[..values] {
        assert!(sample.push(value(random, limits, signal.kind)));
    }
    if limits.plain {
        sample.add_flags(Flags::DATA);
    }
    handle
}

fn value(random: &mut Random, limits: Limits, kind: Kind) -> Value {
    let is_usable = |number: f64| !limits.finite || number.is_finite();
    let bits = random.next_u64();
    match kind {
        Kind::Float if limits.short => {
            let number = f64::from(f32::from_bits(bits as u32));
            Value::from_float(if number.is_nan() { 0.5 } else { number })
        }
        Kind::Float => {
            let any = f64::from_bits(bits);
            let usual = (random.unit() - 0.5) * 10_f64.powi(random.below(12) as i32);
            Value::from_float(if is_usable(any) && random.chance(300) { any } else { usual })
        }
        Kind::Integer if limits.short => Value::from_integer((bits >> 32) as i64),
        Kind::Integer => Value::from_bits(bits),
        Kind::Boolean => Value::from_boolean(bits & 1 == 1),
        Kind::Complex => {
            let part = |bits: u32| {
                let part = f32::from_bits(bits);
                // A conversion to double precision and back may change a NaN.
                if part.is_nan() || !is_usable(part.into()) { 0.25 } else { part }
            };
            let (real, imaginary) = (part(bits as u32), part((bits >> 32) as u32));
            Value::from_complex(Complex { real, imaginary })
        }
    }
}

fn named(name: &str) -> Box<dyn Format> {
    FormatOptions::named(name).unwrap().build().unwrap()
}

#[test]
fn formats_without_loss_bring_back_every_sample() {
    let json = formats::json::Options { ts_received: true, ..Default::default() };
    let with_json = Limits { finite: true, signed_sequence: true, ..Limits::default() };
    let short = Limits { short: true, plain: true, ..Limits::default() };
    let formats: [(Box<dyn Format>, Limits); 3] = [
        (named("rdmalab.binary"), Limits::default()),
        (FormatOptions::Json(json).build().unwrap(), with_json),
        (named("villas.binary"), short),
    ];
    for seed in rdmalab_testing::seeds(300) {
        let mut random = Random::new(seed);
        for (format, limits) in &formats {
            println!("seed {seed}, {}", format.name());
            let drawn = Drawn::new(&mut random, *limits);
            let message = drawn.encode(&**format, Form::Message);
            let (pool, handles) = drawn.decode(&**format, Form::Message, &[&message]);
            drawn.assert_equal(&pool, &handles);
            // A file may be read in pieces.
            let file = drawn.encode(&**format, Form::FileStart);
            let (first, second) = file.split_at(random.below(file.len() as u64 + 1) as usize);
            let (pool, handles) = drawn.decode(&**format, Form::FileStart, &[first, second]);
            drawn.assert_equal(&pool, &handles);
        }
    }
}

#[test]
fn text_stays_as_it_is_when_it_is_read_and_written_again() {
    for seed in rdmalab_testing::seeds(300) {
        let mut random = Random::new(seed);
        // villas.human writes 0.0 for an unknown origin, which it reads as the start of 1970.
        let human = Limits { has_origin: true, ..Limits::default() };
        let csv = Limits { no_frames: true, ..Limits::default() };
        for (name, limits) in [("villas.human", human), ("csv", csv), ("tsv", csv)] {
            println!("seed {seed}, {name}");
            let format = named(name);
            let drawn = Drawn::new(&mut random, limits);
            for form in [Form::Message, Form::FileStart] {
                let text = drawn.encode(&*format, form);
                let (first, second) = match form {
                    Form::Message => (&text[..], &[][..]),
                    _ => text.split_at(random.below(text.len() as u64 + 1) as usize),
                };
                let (pool, handles) = drawn.decode(&*format, form, &[first, second]);
                let again = Drawn { signals: drawn.signals.clone(), pool, handles };
                let again = again.encode(&*format, form);
                assert_eq!(String::from_utf8_lossy(&again), String::from_utf8_lossy(&text));
            }
        }
    }
}

#[test]
fn raw_messages_bring_back_the_values() {
    let options = formats::raw::Options { bits: 64, fake: true, ..Default::default() };
    for format in [FormatOptions::Raw(options), FormatOptions::Gtnet(options)] {
        let format = format.build().unwrap();
        for seed in rdmalab_testing::seeds(100) {
            println!("seed {seed}, {}", format.name());
            let limits = Limits { not_received: true, ..Limits::default() };
            let drawn = Drawn::new(&mut Random::new(seed), limits);
            for sample in drawn.refs() {
                let mut message = Vec::new();
                format.encode(Form::Message, &drawn.signals, &[sample], &mut message).unwrap();
                let (pool, handles) = drawn.decode(&*format, Form::Message, &[&message]);
                let copy = pool.get(&handles[0]);
                assert_eq!(copy.sequence(), Some(sample.sequence().unwrap_or_default()));
                assert_eq!(copy.origin(), Some(sample.origin().unwrap_or_default()));
                assert!(copy.values().eq(sample.values()));
            }
        }
    }
}

#[test]
fn changed_bytes_are_refused_or_read() {
    for seed in rdmalab_testing::seeds(2_000) {
        let mut random = Random::new(seed);
        println!("seed {seed}");
        let how = random.next_u64() as u8;
        let name = FormatOptions::NAMES[usize::from(how) % FormatOptions::NAMES.len()];
        let limits = Limits { short: true, ..Limits::default() };
        let drawn = Drawn::new(&mut random, limits);
        let mut bytes = vec![how, random.next_u64() as u8];
        bytes.extend(drawn.encode(&*named(name), Form::Message));
        for _ in 0..random.below(4) {
            let at = random.between(2, bytes.len() as u64) as usize;
            match random.below(3) {
                0 if at < bytes.len() => bytes[at] = random.next_u64() as u8,
                1 => bytes.truncate(at),
                _ => bytes.insert(at, random.pick(b"0-.,\t\n\"[]{}nif\0\xff")),
            }
        }
        hostile::decode(&bytes);
    }
}

#[test]
fn what_cannot_be_written_leaves_the_output_as_it_was() {
    let mut pool = Pool::new(1, 2);
    let mut handle = pool.take().unwrap();
    let mut sample = pool.get_mut(&mut handle);
    assert!(sample.push(Value::from_float(1.0)) && sample.push(Value::from_boolean(true)));
    let sample = pool.get(&handle);
    let (one, both) = (Signal::list("f").unwrap(), Signal::list("fb").unwrap());
    for name in FormatOptions::NAMES {
        let mut out = b"before".to_vec();
        let error = named(name).encode(Form::FileStart, &one, &[sample], &mut out).unwrap_err();
        assert_eq!((error.to_string().contains("2 values"), &out[..]), (true, &b"before"[..]));
    }
    let mut out = b"before".to_vec();
    let error = named("villas.binary").encode(Form::Message, &both, &[sample], &mut out);
    assert!(error.unwrap_err().to_string().contains("no boolean values"));
    assert_eq!(out, b"before");
}

#[test]
fn a_header_names_signals_and_units() {
    let mut signals = Signal::list("fi").unwrap();
    (signals[0].name, signals[0].unit) = ("u".into(), "V".into());
    signals[1].name.clear();
    let mut pool = Pool::new(1, 2);
    let handle = pool.take().unwrap();
    for (name, header) in [
        ("villas.human", "# seconds.nanoseconds+offset(sequence)\tu[V]\tsignal1\n"),
        ("csv", "# secs,nsecs,offset,sequence,u[V],signal1\n"),
    ] {
        let mut out = Vec::new();
        named(name).encode(Form::FileStart, &signals, &[], &mut out).unwrap();
        assert!(out.is_empty(), "no sample, no header");
        named(name).encode(Form::FileStart, &signals, &[pool.get(&handle)], &mut out).unwrap();
        assert!(out.starts_with(header.as_bytes()), "{name}");
    }
}

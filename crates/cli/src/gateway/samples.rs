//! Samples on standard input, on standard output and in files.

use std::io::{self, ErrorKind, Read, Write};

use rdmalab_sample::{
    Collector, DecodeError, Form, Format, FormatOptions, Handle, Pool, SampleRef, Signal,
};

use crate::failure::{Outcome, run as failed};

/// Samples that are decoded at a time.
const BATCH: usize = 256;
/// Bytes that are read at a time.
const PIECE_BYTES: usize = 1 << 16;
/// Bytes without a sample after which they are none.
const UNDECODED_BYTES: usize = 1 << 20;

/// The help of options that name a format.
pub const FORMAT_HELP: &str = "The format: a name (villas.human, villas.binary, csv, tsv, json, \
    raw, gtnet, rdmalab.binary), or a JSON object with `type` and options";

/// A format as the command line names it.
pub fn format_options(text: &str) -> Result<FormatOptions, String> {
    if text.trim_start().starts_with('{') {
        return serde_json::from_str(text).map_err(|why| why.to_string());
    }
    let known =
        || format!("there is no such format; there are {}", FormatOptions::NAMES.join(", "));
    FormatOptions::named(text).ok_or_else(known)
}

/// The signals of a list of types.
pub fn signals(types: &str) -> Result<Vec<Signal>, String> {
    Signal::list(types).map_err(|why| why.to_string())
}

/// Reads samples of a file in pieces.
pub struct Reader<'a, R> {
    from: R,
    format: &'a dyn Format,
    signals: &'a [Signal],
    pub pool: Pool,
    bytes: Vec<u8>,
    form: Form,
    /// The number of the first of `bytes` in the file.
    at: usize,
    is_over: bool,
    /// Whether what is there has no whole sample.
    is_short: bool,
    /// What a read fills.
    piece: Vec<u8>,
}

/// What a read has found besides samples.
pub enum ReadResult {
    /// Samples, or none, and more may follow.
    More,
    /// The end.
    End,
    /// Bytes that are no sample. The next read goes on behind them, if that is possible.
    Wrong(String),
}

impl<'a, R: Read> Reader<'a, R> {
    /// A reader at the start of a file.
    pub fn new(from: R, format: &'a dyn Format, signals: &'a [Signal]) -> Self {
        Self::with_room(from, format, signals, signals.len())
    }

    /// The same, with room for more values in each sample.
    pub fn with_room(
        from: R,
        format: &'a dyn Format,
        signals: &'a [Signal],
        values: usize,
    ) -> Self {
        let pool = Pool::new(BATCH, values);
        let (bytes, form) = (Vec::new(), Form::FileStart);
        let piece = vec![0; PIECE_BYTES];
        let (at, is_over, is_short) = (0, false, false);
        Self { from, format, signals, pool, bytes, form, at, is_over, is_short, piece }
    }

    /// Appends samples to `to`, which must not hold handles of the pool.
    pub fn read(&mut self, to: &mut Vec<Handle>) -> io::Result<ReadResult> {
        while !self.is_over && (self.is_short || self.bytes.len() < PIECE_BYTES) {
            match self.from.read(&mut self.piece) {
                Ok(0) => self.is_over = true,
                Ok(count) => {
                    self.bytes.extend_from_slice(&self.piece[..count]);
                    break;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        if self.bytes.is_empty() {
            return Ok(if self.is_over { ReadResult::End } else { ReadResult::More });
        }
        let decoded = {
            let free = self.pool.free();
            let mut sink = Collector::new(&mut self.pool, to, free);
            self.format.decode(self.form, &self.bytes, self.signals, &mut sink)
        };
        Ok(match decoded {
            Ok(used) => self.used(used, to.is_empty()),
            Err(error) => self.wrong(&error),
        })
    }

    /// The pool with what was taken from it, and a new one for the next reads.
    pub fn take_pool(&mut self) -> Pool {
        let next = Pool::new(BATCH, self.pool.values());
        std::mem::replace(&mut self.pool, next)
    }

    fn used(&mut self, used: usize, is_empty: bool) -> ReadResult {
        if used > 0 {
            self.form = Form::File;
        }
        self.bytes.drain(..used);
        self.at += used;
        self.is_short = used == 0 && is_empty;
        let left = self.bytes.len();
        if self.is_short && (self.is_over || left >= UNDECODED_BYTES) {
            let said =
                ReadResult::Wrong(format!("byte {}: {left} bytes are not a sample", self.at));
            self.bytes.clear();
            self.at += left;
            return said;
        }
        ReadResult::More
    }

    fn wrong(&mut self, error: &DecodeError) -> ReadResult {
        let what = error.to_string();
        let what = what.split_once(": ").map_or(what.as_str(), |(_, what)| what);
        let said = ReadResult::Wrong(format!("byte {}: {what}", self.at + error.at()));
        let resume = error.resume().unwrap_or_else(|| {
            // Nothing more can be read.
            self.is_over = true;
            self.bytes.len()
        });
        (self.form, self.is_short) = (Form::File, false);
        self.bytes.drain(..resume);
        self.at += resume;
        said
    }
}

/// Writes samples to standard output.
pub struct Writer<'a> {
    format: &'a dyn Format,
    signals: &'a [Signal],
    form: Form,
    bytes: Vec<u8>,
}

impl<'a> Writer<'a> {
    /// A writer at the start of the output.
    pub fn new(format: &'a dyn Format, signals: &'a [Signal]) -> Self {
        Self { format, signals, form: Form::FileStart, bytes: Vec::new() }
    }

    /// Writes samples. Returns whether somebody still reads the output.
    pub fn write(&mut self, samples: &[SampleRef<'_>]) -> Result<bool, String> {
        if samples.is_empty() {
            return Ok(true);
        }
        self.bytes.clear();
        let encoded = self.format.encode(self.form, self.signals, samples, &mut self.bytes);
        encoded.map_err(|why| why.to_string())?;
        self.form = Form::File;
        let mut out = io::stdout().lock();
        match out.write_all(&self.bytes).and_then(|()| out.flush()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(false),
            Err(error) => Err(error.to_string()),
        }
    }
}

/// Copies all samples of `reader`, after `treat` has changed or dropped those of a read and counted
/// what it could not treat. Bytes that are no sample are told. Gives the number of both.
pub fn copy<R: Read>(
    reader: &mut Reader<'_, R>,
    writer: &mut Writer<'_>,
    mut treat: impl FnMut(&mut Pool, &mut Vec<Handle>) -> u64,
) -> Outcome<u64> {
    let (mut handles, mut wrong) = (Vec::new(), 0);
    loop {
        let result = reader.read(&mut handles).map_err(|why| failed(format!("input: {why}")))?;
        wrong += treat(&mut reader.pool, &mut handles);
        let samples: Vec<SampleRef<'_>> = handles.iter().map(|h| reader.pool.get(h)).collect();
        let is_read = writer.write(&samples).map_err(|why| failed(format!("output: {why}")))?;
        handles.drain(..).for_each(|handle| reader.pool.give(handle));
        match result {
            ReadResult::More if is_read => {}
            ReadResult::Wrong(what) if is_read => {
                errln!("input: {what}");
                wrong += 1;
            }
            _ => return Ok(wrong),
        }
    }
}

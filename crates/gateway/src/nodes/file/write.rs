//! Writes samples to a file, in a thread of its own.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdmalab_sample::{Form, Format, Handle, Pool, Signal, record_bytes};

use crate::node::{Log, Sink};
use crate::queue::{self, Overflow, queue};

/// Samples that wait at least and at most.
const WAITING: std::ops::RangeInclusive<usize> = 8192..=65_536;
/// Bytes that are written to the file at a time.
const CHUNK_BYTES: usize = 256 << 10;
/// The longest sleep of the writer.
const NAP: Duration = Duration::from_millis(20);

/// Makes the file and its writer.
///
/// # Errors
/// Why the file cannot be made, in one line.
pub fn open(
    path: PathBuf,
    format: Box<dyn Format>,
    signals: &[Signal],
    flush: bool,
    buffer_bytes: u64,
    log: &Log,
) -> Result<Box<dyn Sink>, String> {
    let failed = |error| format!("{}: {error}", path.display());
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let file = File::create(&path).map_err(failed)?;
    let bytes = usize::try_from(buffer_bytes).unwrap_or(usize::MAX);
    let samples = (bytes / record_bytes(signals.len())).clamp(*WAITING.start(), *WAITING.end());
    let (writer, reader) = queue(samples, signals.len(), Overflow::Newest);
    let trouble = Arc::new(Mutex::new(None));
    let work = Work {
        reader,
        format,
        signals: signals.to_vec(),
        file: BufWriter::with_capacity(CHUNK_BYTES, file),
        flush,
        trouble: trouble.clone(),
        path,
        log: log.clone(),
    };
    let thread = std::thread::Builder::new().name("file".to_owned()).spawn(move || work.run());
    let thread = thread.map_err(|error| error.to_string())?;
    Ok(Box::new(Writing { queue: Some(writer), thread: Some(thread), trouble }))
}

/// The thread.
struct Work {
    reader: queue::Reader,
    format: Box<dyn Format>,
    signals: Vec<Signal>,
    file: BufWriter<File>,
    flush: bool,
    trouble: Arc<Mutex<Option<String>>>,
    path: PathBuf,
    log: Log,
}

impl Work {
    fn run(mut self) {
        if let Err(why) = self.write_all() {
            let why = format!("{}: {why}; nothing more is written", Path::display(&self.path));
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
    }

    fn write_all(&mut self) -> std::io::Result<()> {
        let mut pool = Pool::new(1, self.signals.len());
        let Some(mut one) = pool.take() else { return Ok(()) };
        let (mut text, mut form, mut has_told) = (Vec::new(), Form::FileStart, false);
        loop {
            let mut any = false;
            while self.reader.pop(&mut pool.get_mut(&mut one), true) {
                any = true;
                text.clear();
                let sample = [pool.get(&one)];
                match self.format.encode(form, &self.signals, &sample, &mut text) {
                    Ok(()) => form = Form::File,
                    Err(why) if !has_told => {
                        self.log.say(format_args!("{}: {why}", self.path.display()));
                        has_told = true;
                    }
                    Err(_) => {}
                }
                self.file.write_all(&text)?;
                if self.flush {
                    self.file.flush()?;
                }
            }
            if self.reader.is_over() {
                return self.file.flush();
            }
            if !any {
                self.reader.sleep(NAP);
            }
        }
    }
}

/// The path's end.
struct Writing {
    queue: Option<queue::Writer>,
    thread: Option<JoinHandle<()>>,
    trouble: Arc<Mutex<Option<String>>>,
}

impl Writing {
    fn trouble(&self) -> Option<String> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner).take()
    }
}

impl Sink for Writing {
    fn write(&mut self, pool: &Pool, sample: &Handle) -> Result<bool, String> {
        let Some(queue) = &mut self.queue else { return Ok(false) };
        if queue.is_deaf() {
            return Err(self.trouble().unwrap_or_else(|| "the writer has ended".to_owned()));
        }
        Ok(queue.push(pool.get(sample)) == 0)
    }

    fn close(&mut self, limit: Duration) -> Result<u64, String> {
        let until = Instant::now() + limit;
        let waiting = |queue: &Option<queue::Writer>| queue.as_ref().map_or(0, |q| q.waiting());
        while waiting(&self.queue) > 0 && Instant::now() < until {
            if self.queue.as_ref().is_some_and(queue::Writer::is_deaf) {
                break;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let lost = waiting(&self.queue);
        self.queue = None;
        // A disk that hangs must not keep the gateway.
        let thread = self.thread.take();
        while lost == 0
            && thread.as_ref().is_some_and(|thread| !thread.is_finished())
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        match self.trouble() {
            Some(why) => Err(format!("{why}; {lost} samples are lost")),
            None => Ok(lost),
        }
    }
}

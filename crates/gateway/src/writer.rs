//! Writes samples to a file, in a thread of its own.

use std::fs::{self, File};
use std::io::{ErrorKind, Write};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdmalab_sample::{Form, Format, Handle, Pool, Signal, record_bytes};

use crate::node::{Count, Sink, World};
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
    world: &World,
) -> Result<Box<dyn Sink>, String> {
    let failed = |error| format!("{}: {error}", path.display());
    if let Some(parent) = path.parent().filter(|parent| !parent.as_os_str().is_empty()) {
        fs::create_dir_all(parent).map_err(failed)?;
    }
    let is_stdout = path == Path::new("/dev/stdout");
    let file = match is_stdout {
        // Opened anew, it would be written from its start, and a socket could not be opened.
        true => std::io::stdout().as_fd().try_clone_to_owned().map(File::from),
        false => File::options().append(true).create(true).open(&path),
    };
    let file = file.map_err(failed)?;
    let had_samples = !is_stdout && file.metadata().is_ok_and(|data| data.len() > 0);
    let bytes = usize::try_from(buffer_bytes).unwrap_or(usize::MAX);
    let samples = (bytes / record_bytes(signals.len())).clamp(*WAITING.start(), *WAITING.end());
    let (writer, reader) = queue(samples, signals.len(), Overflow::Newest);
    let writer = if flush { writer } else { writer.waking_from(samples / 2) };
    let (trouble, settled) = (Arc::new(Mutex::new(None)), Count::default());
    let work = Work {
        reader,
        format,
        signals: signals.to_vec(),
        file,
        flush,
        trouble: trouble.clone(),
        settled: settled.clone(),
        form: if had_samples { Form::File } else { Form::FileStart },
        path,
        is_stdout,
        world: world.clone(),
    };
    let thread = std::thread::Builder::new().name("file".to_owned()).spawn(move || work.run());
    let thread = thread.map_err(|error| error.to_string())?;
    let thread = Some(thread);
    Ok(Box::new(Writing { queue: Some(writer), thread, trouble, pushed: 0, settled }))
}

/// The thread.
struct Work {
    reader: queue::Reader,
    format: Box<dyn Format>,
    signals: Vec<Signal>,
    file: File,
    flush: bool,
    trouble: Arc<Mutex<Option<String>>>,
    settled: Count,
    form: Form,
    path: PathBuf,
    is_stdout: bool,
    world: World,
}

impl Work {
    fn run(mut self) {
        let ended = self.write_all();
        if self.is_stdout && ended.as_ref().is_err_and(|e| e.kind() == ErrorKind::BrokenPipe) {
            // As SIGPIPE ends other programs.
            return self.world.stop.set();
        }
        if let Err(why) = ended {
            let why = format!("{}: {why}; nothing more is written", Path::display(&self.path));
            *self.trouble.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
        }
    }

    fn write_all(&mut self) -> std::io::Result<()> {
        let mut pool = Pool::new(1, self.signals.len());
        let Some(mut one) = pool.take() else { return Ok(()) };
        let mut text = Vec::with_capacity(2 * CHUNK_BYTES);
        let (mut has_told, mut samples) = (false, 0);
        loop {
            let mut any = false;
            while self.reader.pop(&mut pool.get_mut(&mut one), true) {
                any = true;
                let (before, sample) = (text.len(), [pool.get(&one)]);
                match self.format.encode(self.form, &self.signals, &sample, &mut text) {
                    Ok(()) => (self.form, samples) = (Form::File, samples + 1),
                    Err(why) => {
                        text.truncate(before);
                        if !std::mem::replace(&mut has_told, true) {
                            self.world.log.say(format_args!("{}: {why}", self.path.display()));
                        }
                    }
                }
                if self.flush || text.len() >= CHUNK_BYTES {
                    self.settle(&mut text, &mut samples)?;
                }
            }
            if self.reader.is_over() {
                return self.settle(&mut text, &mut samples);
            }
            if !any {
                self.reader.sleep(NAP);
            }
        }
    }

    /// Writes the text of so many samples.
    fn settle(&mut self, text: &mut Vec<u8>, samples: &mut u64) -> std::io::Result<()> {
        self.file.write_all(text)?;
        text.clear();
        self.settled.add(std::mem::take(samples));
        Ok(())
    }
}

/// The path's end.
struct Writing {
    queue: Option<queue::Writer>,
    thread: Option<JoinHandle<()>>,
    trouble: Arc<Mutex<Option<String>>>,
    /// Samples that the queue took.
    pushed: u64,
    /// Those that were written.
    settled: Count,
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
            return self.trouble().map_or(Ok(false), Err);
        }
        let taken = queue.push(pool.get(sample)) == 0;
        self.pushed += u64::from(taken);
        Ok(taken)
    }

    fn may_retry(&self) -> bool {
        self.queue.as_ref().is_some_and(|queue| !queue.is_deaf())
    }

    fn lost(&self) -> u64 {
        self.pushed - self.settled.get()
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
        let is_late = waiting(&self.queue) > 0;
        self.queue = None;
        // A disk that hangs must not keep the gateway.
        let thread = self.thread.take();
        while !is_late
            && thread.as_ref().is_some_and(|thread| !thread.is_finished())
            && Instant::now() < until
        {
            std::thread::sleep(Duration::from_millis(1));
        }
        self.trouble().map_or_else(|| Ok(self.lost()), Err)
    }
}

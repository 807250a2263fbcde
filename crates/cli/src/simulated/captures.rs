//! The capture files of simulated ranks.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::sync::Arc;

use rdmalab_sim::{CaptureFile, Ps, Simulation, capture_head};

/// A file for each rank. Points are captured one after the other: each begins at the time at which
/// the one before ended.
pub struct Captures {
    paths: Vec<PathBuf>,
    files: Vec<Arc<File>>,
    begin_ns: u64,
}

impl Captures {
    /// Captures in these files, by rank.
    pub fn new(paths: Vec<PathBuf>) -> Captures {
        Captures { paths, files: Vec::new(), begin_ns: 0 }
    }

    /// The simulation, with its packets captured.
    ///
    /// # Errors
    /// A file cannot be made: one line.
    pub fn of(&mut self, simulation: Simulation) -> Result<Simulation, String> {
        if self.files.is_empty() {
            self.files = self.made(simulation.device_name())?;
        }
        let file = |file: &Arc<File>| -> CaptureFile { Box::new(BufWriter::new(file.clone())) };
        let files = self.files.iter().map(file).collect();
        Ok(simulation.with_capture(files, self.begin_ns))
    }

    fn made(&self, device: &str) -> Result<Vec<Arc<File>>, String> {
        let made = |(rank, path): (usize, &PathBuf)| {
            let mut file = File::create(path)?;
            file.write_all(&capture_head(device, rank))?;
            Ok(Arc::new(file))
        };
        let named = |(rank, path): (usize, &PathBuf)| {
            let failed = |error: io::Error| format!("--capture {}: {error}", path.display());
            made((rank, path)).map_err(failed)
        };
        self.paths.iter().enumerate().map(named).collect()
    }

    /// The name of the file of a rank.
    pub fn name(&self, rank: usize) -> String {
        self.paths[rank].file_name().unwrap_or_default().to_string_lossy().into_owned()
    }

    /// A simulation has taken so long.
    pub fn pass(&mut self, time: Ps) {
        self.begin_ns += time.whole_ns();
    }
}

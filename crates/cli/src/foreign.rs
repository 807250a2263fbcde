//! Programs of others, which we start and whose output we read.

use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

/// The file of a program, as a shell finds it; `None` if it is not installed.
pub fn installed(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|dir| dir.join(program)).find(|file| file.is_file())
}

/// A TCP port of this host that nobody uses now.
///
/// # Errors
/// The kernel's error.
pub fn free_port() -> std::io::Result<u16> {
    Ok(TcpListener::bind(("127.0.0.1", 0))?.local_addr()?.port())
}

/// A child that is killed when this is dropped.
pub struct KillOnDrop(pub Child);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl KillOnDrop {
    /// Waits for the end of the process. Returns whether it succeeded.
    ///
    /// # Errors
    /// It runs longer than `limit`, or the kernel's error.
    pub fn succeeds_within(&mut self, limit: Duration) -> Result<bool, String> {
        let began = Instant::now();
        while began.elapsed() < limit {
            if let Some(status) = self.0.try_wait().map_err(|e| e.to_string())? {
                return Ok(status.success());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Err(format!("the program did not end within {} s", limit.as_secs()))
    }

    /// Whether the process has ended.
    pub fn has_ended(&mut self) -> bool {
        self.0.try_wait().ok().flatten().is_some()
    }
}

/// The text in a file.
///
/// # Errors
/// The kernel's error.
pub fn read(path: &Path) -> Result<String, String> {
    let bytes = std::fs::read(path).map_err(|e| e.to_string())?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last line that is not empty: mostly the reason of a failure.
pub fn last_words(text: &str) -> Option<String> {
    text.lines().map(str::trim).rfind(|line| !line.is_empty()).map(str::to_owned)
}

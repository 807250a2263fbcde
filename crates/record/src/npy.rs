//! NumPy arrays of `f64`, one dimension, little endian: format version 1.0 of numpy.lib.format.

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

const MAGIC: &[u8] = b"\x93NUMPY\x01\x00";

/// Data begins at a multiple of this.
const ALIGNMENT: usize = 64;

/// The longest header that is read.
const MAX_HEADER: usize = 4096;

/// Writes `samples` as an array to `to`.
///
/// # Errors
/// Errors of writing.
pub fn write_npy(to: impl Write, samples: &[f64]) -> io::Result<()> {
    let mut to = BufWriter::new(to);
    let mut header =
        format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({},), }}", samples.len());
    while !(MAGIC.len() + 2 + header.len() + 1).is_multiple_of(ALIGNMENT) {
        header.push(' ');
    }
    header.push('\n');
    to.write_all(MAGIC)?;
    to.write_all(&(header.len() as u16).to_le_bytes())?;
    to.write_all(header.as_bytes())?;
    for sample in samples {
        to.write_all(&sample.to_le_bytes())?;
    }
    to.flush()
}

/// Reads an array that [`write_npy`] or NumPy wrote.
///
/// # Errors
/// Errors of reading; `InvalidData` if the file is no one-dimensional array of `<f8`, or has a
/// wrong length.
pub fn read_npy(path: &Path) -> io::Result<Vec<f64>> {
    let mut bytes = Vec::new();
    regular(path)?.read_to_end(&mut bytes)?;
    parse(&bytes).map_err(|what| io::Error::new(io::ErrorKind::InvalidData, what))
}

/// Checks that an array is complete, by its header and its length alone.
///
/// # Errors
/// As [`read_npy`].
pub(crate) fn check(path: &Path) -> io::Result<()> {
    let invalid = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    let file = regular(path)?;
    let bytes = file.metadata()?.len();
    let mut start = Vec::new();
    file.take((MAGIC.len() + 2 + MAX_HEADER) as u64).read_to_end(&mut start)?;
    let (at, n) = header(&start).map_err(invalid)?;
    fits(bytes.saturating_sub(at as u64), n).map_err(invalid)
}

/// Opens a file of a record. Records may come from strangers, so only regular files are opened: a
/// link may lead elsewhere, and reading a device or a pipe may never end.
///
/// # Errors
/// Errors of opening; `InvalidData` for anything but a regular file.
pub(crate) fn regular(path: &Path) -> io::Result<File> {
    let wrong = |what| io::Error::new(io::ErrorKind::InvalidData, what);
    // This check is before the open, since opening a pipe without a writer would block.
    if !std::fs::symlink_metadata(path)?.is_file() {
        return Err(wrong("it is not a regular file"));
    }
    File::open(path)
}

fn parse(bytes: &[u8]) -> Result<Vec<f64>, String> {
    let (at, n) = header(bytes)?;
    let data = &bytes[at..];
    fits(data.len() as u64, n)?;
    let (samples, _) = data.as_chunks::<8>();
    Ok(samples.iter().map(|s| f64::from_le_bytes(*s)).collect())
}

/// Where the samples begin, and how many there should be.
fn header(bytes: &[u8]) -> Result<(usize, usize), String> {
    let rest = bytes.strip_prefix(MAGIC).ok_or("not a NumPy array of version 1.0")?;
    let (length, rest) = rest.split_first_chunk::<2>().ok_or("a header without an end")?;
    let length = usize::from(u16::from_le_bytes(*length));
    if length > MAX_HEADER || length > rest.len() {
        return Err("a header without an end".to_owned());
    }
    let header = std::str::from_utf8(&rest[..length]).map_err(|_| "its header is not text")?;
    if !header.contains("'descr': '<f8'") {
        return Err("not an array of little-endian f64".to_owned());
    }
    let shape = header.split_once("'shape': (").and_then(|(_, s)| s.split_once(",)"));
    let n: usize =
        shape.and_then(|(n, _)| n.parse().ok()).ok_or("it does not have one dimension")?;
    Ok((bytes.len() - rest.len() + length, n))
}

fn fits(data_bytes: u64, n: usize) -> Result<(), String> {
    match (n as u64).checked_mul(8) == Some(data_bytes) {
        true => Ok(()),
        false => Err(format!("it has {data_bytes} bytes for {n} samples")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes(samples: &[f64]) -> Vec<u8> {
        let mut out = Vec::new();
        write_npy(&mut out, samples).unwrap();
        out
    }

    #[test]
    fn arrays_come_back_and_cost_eight_bytes_a_sample() {
        let samples = [1.5, -0.0, f64::NAN, f64::MAX, 1e-300];
        let written = bytes(&samples);
        assert_eq!((written.len() - 8 * samples.len()) % ALIGNMENT, 0);
        let back = parse(&written).unwrap();
        assert!(samples.iter().zip(&back).all(|(a, b)| a.to_bits() == b.to_bits()));
        assert_eq!(back.len(), samples.len());
        assert!(parse(&bytes(&[])).unwrap().is_empty());
    }

    #[test]
    fn whatever_else_is_refused() {
        let whole = bytes(&[1.0, 2.0]);
        for cut in 0..whole.len() {
            assert!(parse(&whole[..cut]).is_err(), "{cut}");
        }
        let swapped = |from: &str, to: &str| {
            let at = whole.windows(from.len()).position(|w| w == from.as_bytes()).unwrap();
            let mut other = whole.clone();
            other[at..at + to.len()].copy_from_slice(to.as_bytes());
            parse(&other).unwrap_err()
        };
        assert!(swapped("<f8", ">f8").contains("little-endian"));
        assert!(swapped("(2,)", "(3,)").contains("16 bytes for 3 samples"));
        assert!(swapped("(2,)", "2,1)").contains("dimension"));
    }
}

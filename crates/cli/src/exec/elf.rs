//! Reads from an executable file how its libraries are found (System V ABI, gABI chapters 4 and 5).

use std::io;
use std::path::Path;

/// How a program finds its libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Linkage {
    /// By the dynamic linker.
    Dynamic {
        /// `DT_RPATH` precedes `LD_LIBRARY_PATH` (`DT_RUNPATH` does not).
        has_rpath: bool,
    },
    /// Without an interpreter: no libraries are loaded.
    Static,
    /// No ELF file: the kernel reads its first line.
    Script,
    /// For another machine or word size.
    Foreign(&'static str),
}

const PT_DYNAMIC: u32 = 2;
const PT_INTERP: u32 = 3;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// The number of this machine in ELF headers.
const MACHINE: u16 = if cfg!(target_arch = "aarch64") { 183 } else { 62 };

/// How the program finds its libraries.
///
/// # Errors
/// The file cannot be read, or its tables are outside of it.
pub fn linkage(program: &Path) -> io::Result<Linkage> {
    parse(&std::fs::read(program)?)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "its ELF header is broken"))
}

/// A little-endian number at an offset; `None` beyond the end.
fn number<const N: usize>(image: &[u8], at: u64) -> Option<u64> {
    let at = usize::try_from(at).ok()?;
    let mut bytes = [0; 8];
    bytes[..N].copy_from_slice(image.get(at..at.checked_add(N)?)?);
    Some(u64::from_le_bytes(bytes))
}

fn parse(image: &[u8]) -> Option<Linkage> {
    if !image.starts_with(b"\x7fELF") {
        return Some(Linkage::Script);
    }
    if *image.get(4)? != 2 {
        return Some(Linkage::Foreign("32-bit systems"));
    }
    if *image.get(5)? != 1 || number::<2>(image, 18)? != u64::from(MACHINE) {
        return Some(Linkage::Foreign("another processor"));
    }
    let (start, size, count) =
        (number::<8>(image, 32)?, number::<2>(image, 54)?, number::<2>(image, 56)?);
    let (mut has_interpreter, mut has_rpath) = (false, false);
    for i in 0..count {
        let header = start.checked_add(i.checked_mul(size)?)?;
        match number::<4>(image, header)? as u32 {
            PT_INTERP => has_interpreter = true,
            PT_DYNAMIC => {
                let at = number::<8>(image, header.checked_add(8)?)?;
                let bytes = number::<8>(image, header.checked_add(32)?)?;
                has_rpath = rpath(image, at, bytes)?;
            }
            _ => {}
        }
    }
    Some(if has_interpreter { Linkage::Dynamic { has_rpath } } else { Linkage::Static })
}

/// Whether the dynamic section has an effective rpath: a runpath beside it overrides it.
fn rpath(image: &[u8], at: u64, bytes: u64) -> Option<bool> {
    let (mut rpath, mut runpath) = (false, false);
    for i in 0..bytes / 16 {
        match number::<8>(image, at.checked_add(i * 16)?)? {
            0 => break,
            DT_RPATH => rpath = true,
            DT_RUNPATH => runpath = true,
            _ => {}
        }
    }
    Some(rpath && !runpath)
}

#[cfg(test)]
pub mod tests {
    // Named in full, since other tests import this module.
    use crate::exec::elf::*;

    /// A file with these program headers, as (type, dynamic tags).
    pub fn image(headers: &[(u32, &[u64])]) -> Vec<u8> {
        let mut file = vec![0; 64];
        file[..6].copy_from_slice(b"\x7fELF\x02\x01");
        file[18..20].copy_from_slice(&MACHINE.to_le_bytes());
        file[32..40].copy_from_slice(&64u64.to_le_bytes());
        file[54..56].copy_from_slice(&56u16.to_le_bytes());
        file[56..58].copy_from_slice(&(headers.len() as u16).to_le_bytes());
        let mut at = 64 + 56 * headers.len();
        for (kind, tags) in headers {
            let mut header = [0; 56];
            header[..4].copy_from_slice(&kind.to_le_bytes());
            header[8..16].copy_from_slice(&(at as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(tags.len() as u64 * 16).to_le_bytes());
            file.extend_from_slice(&header);
            at += tags.len() * 16;
        }
        for tag in headers.iter().flat_map(|(_, tags)| tags.iter()) {
            file.extend_from_slice(&tag.to_le_bytes());
            file.extend_from_slice(&[0; 8]);
        }
        file
    }

    #[test]
    fn an_interpreter_makes_it_dynamic() {
        let dynamic = |tags: &[u64]| parse(&image(&[(PT_INTERP, &[]), (PT_DYNAMIC, tags)]));
        assert_eq!(dynamic(&[1, 0]), Some(Linkage::Dynamic { has_rpath: false }));
        assert_eq!(dynamic(&[1, DT_RPATH]), Some(Linkage::Dynamic { has_rpath: true }));
        assert_eq!(dynamic(&[DT_RPATH, DT_RUNPATH]), Some(Linkage::Dynamic { has_rpath: false }));
        assert_eq!(dynamic(&[0, DT_RPATH]), Some(Linkage::Dynamic { has_rpath: false }));
        // A static position-independent program has a dynamic section too.
        assert_eq!(parse(&image(&[(PT_DYNAMIC, &[])])), Some(Linkage::Static));
    }

    #[test]
    fn what_is_for_others_is_told() {
        assert_eq!(parse(b"#!/bin/sh\n"), Some(Linkage::Script));
        assert_eq!(parse(b""), Some(Linkage::Script));
        let mut file = image(&[(PT_INTERP, &[])]);
        file[4] = 1;
        assert_eq!(parse(&file), Some(Linkage::Foreign("32-bit systems")));
        file[4] = 2;
        file[18] ^= 1;
        assert_eq!(parse(&file), Some(Linkage::Foreign("another processor")));
    }

    #[test]
    fn a_broken_file_is_no_crash() {
        let file = image(&[(PT_INTERP, &[]), (PT_DYNAMIC, &[1, 2, 3])]);
        for length in 4..file.len() {
            let _ = parse(&file[..length]);
        }
        for at in 20..file.len() {
            let mut broken = file.clone();
            broken[at] = 0xff;
            let _ = parse(&broken);
        }
        assert_eq!(parse(b"\x7fELF"), None);
    }

    #[test]
    fn this_test_is_a_dynamic_program() {
        let own = linkage(&std::env::current_exe().unwrap()).unwrap();
        assert!(matches!(own, Linkage::Dynamic { .. }), "{own:?}");
    }
}

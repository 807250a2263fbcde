//! Sends the findings of rank 1 to rank 0 at the end.

use rdmalab_measure::Outcome;
use rdmalab_rank::{Rank, Stopped};

/// Bytes of one exchange of findings.
const CHUNK: usize = 1 << 20;

/// Returns the words of rank 1 at rank 0, and nothing at rank 1.
pub(crate) fn gather<R: Rank>(rank: &R, words: &[u64]) -> Result<Vec<u64>, Stopped> {
    let is_giver = rank.index() == 1;
    let bytes: Vec<u8> =
        if is_giver { words.iter().flat_map(|w| w.to_le_bytes()).collect() } else { Vec::new() };
    // All threads take part in as many rounds as the thread with the most bytes needs.
    let (_, most) = rank.agree(bytes.len() as u64)?;
    let mut got = Vec::new();
    for at in (0..most as usize).step_by(CHUNK) {
        let (from, to) = (at.min(bytes.len()), (at + CHUNK).min(bytes.len()));
        let all = rank.exchange_to_end(&bytes[from..to])?;
        if !is_giver {
            got.extend_from_slice(all.get(1).map_or(&[][..], |b| b));
        }
    }
    let word = |bytes: &[u8]| bytes.try_into().map(u64::from_le_bytes).unwrap_or(0);
    Ok(got.chunks_exact(8).map(word).collect())
}

/// As [`gather`], but if the point was cut short, a failure does not discard the findings of rank
/// 0: the result is empty, and `missing`, if given, becomes a warning with the reason.
pub(crate) fn gather_or_keep<R: Rank>(
    rank: &R,
    outcome: &mut Outcome,
    missing: Option<&str>,
) -> Result<Vec<u64>, Stopped> {
    let error = match gather(rank, &[]) {
        Err(error) if outcome.cut_short.is_some() => error,
        result => return result,
    };
    outcome.warnings.extend(missing.map(|words| format!("{words}: {error}")));
    Ok(Vec::new())
}

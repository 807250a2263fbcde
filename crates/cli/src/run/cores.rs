//! The CPUs that `--cores` names.

/// The numbers of `count` CPUs.
///
/// # Errors
/// The text is something else, with an example of what it could be.
pub fn numbers(text: &str, count: usize) -> Result<Vec<usize>, String> {
    let numbers: Option<Vec<usize>> = text.split(',').map(|n| n.trim().parse().ok()).collect();
    numbers.filter(|numbers| numbers.len() == count).ok_or_else(|| {
        let like: Vec<String> = (0..count).map(|rank| rank.to_string()).collect();
        let words = if count == 2 { "two".to_owned() } else { count.to_string() };
        format!("it takes {words} numbers, such as {}, or none", like.join(","))
    })
}

/// A sentence about two ranks of this machine that share a CPU.
pub fn shared(text: &str, is_here: impl Fn(usize) -> bool) -> Option<String> {
    let cores: Vec<(usize, &str)> =
        text.split(',').map(str::trim).enumerate().filter(|(rank, _)| is_here(*rank)).collect();
    let (second, core) = cores.iter().enumerate().find_map(|(at, (rank, core))| {
        cores[..at].iter().any(|(_, other)| other == core).then_some((*rank, *core))
    })?;
    let (first, _) = cores.iter().find(|(_, other)| *other == core)?;
    Some(format!(
        "ranks {first} and {second} share core {core}: times include the waits until the scheduler \
         lets the other run; choose a core for each rank, as in --cores 0,1"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_of_this_machine_that_share_a_core_are_named() {
        let all = |_| true;
        assert!(shared("4, 4", all).unwrap().starts_with("ranks 0 and 1 share core 4:"));
        assert!(shared("1,4,2,4", all).unwrap().starts_with("ranks 1 and 3 share core 4:"));
        assert_eq!((shared("4,5", all), shared("none", all)), (None, None));
        assert_eq!(shared("4,4", |rank| rank == 0), None, "the other is elsewhere");
    }
}

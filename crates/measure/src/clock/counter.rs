//! The two things a clock is made of: the processor's counter and the kernel's raw clock.

/// Reads the processor's counter, fenced on both sides.
///
/// x86-64: `lfence; rdtsc; lfence`. The first fence waits until every earlier instruction has
/// finished and every earlier load has its value; the second keeps later instructions from starting
/// before the counter is read, which `rdtscp` alone does not (Intel SDM vol. 2, RDTSC and RDTSCP;
/// AMD64 APM vol. 3, LFENCE is dispatch serialising since Linux sets it so). Measured, the pair
/// costs no more than `rdtscp; lfence`. Earlier *stores* may still sit in the store buffer.
///
/// aarch64: `isb; mrs cntvct_el0; isb`, for the same two reasons.
///
/// The block may touch memory as far as the compiler knows, so that no access moves across it.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub fn read() -> u64 {
    let (low, high): (u32, u32);
    // SAFETY: the three instructions exist on every x86-64, write eax and edx only, both declared,
    // and touch neither stack nor flags. CR4.TSD, which would forbid rdtsc, is off under Linux
    // unless the process itself asks for it by prctl(PR_SET_TSC).
    unsafe {
        core::arch::asm!(
            "lfence", "rdtsc", "lfence",
            out("eax") low, out("edx") high,
            options(nostack, preserves_flags),
        );
    }
    u64::from(high) << 32 | u64::from(low)
}

/// Reads the virtual counter, fenced on both sides; see the x86-64 form.
#[cfg(target_arch = "aarch64")]
#[inline(always)]
pub fn read() -> u64 {
    let ticks: u64;
    // SAFETY: Linux lets user space read cntvct_el0; the block writes the one declared register.
    unsafe {
        core::arch::asm!(
            "isb", "mrs {t}, cntvct_el0", "isb",
            t = out(reg) ticks,
            options(nostack, preserves_flags),
        );
    }
    ticks
}

/// Elsewhere there is no counter; [`invariant`] says so and nobody calls this.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
#[inline(always)]
pub fn read() -> u64 {
    raw_ns()
}

/// Whether the counter runs at one rate in every power state, or why it cannot be relied upon.
#[cfg(target_arch = "x86_64")]
pub fn invariant() -> Result<(), &'static str> {
    const ADVANCED_POWER: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    let last = cpuid(0x8000_0000).eax;
    if last < ADVANCED_POWER || cpuid(ADVANCED_POWER).edx & INVARIANT_TSC == 0 {
        return Err(
            "the processor does not promise an invariant TSC (CPUID 0x80000007, EDX bit 8)",
        );
    }
    // The kernel watches the counter against another clock and drops it when the two disagree.
    let list = "/sys/devices/system/clocksource/clocksource0/available_clocksource";
    match std::fs::read_to_string(list) {
        Ok(names) if !names.split_whitespace().any(|n| n == "tsc") => {
            Err("the kernel has found the TSC unstable and does not list it as a clock source")
        }
        _ => Ok(()),
    }
}

#[cfg(target_arch = "x86_64")]
#[allow(unused_unsafe)] // newer standard libraries declare it safe
fn cpuid(leaf: u32) -> core::arch::x86_64::CpuidResult {
    // SAFETY: every x86-64 has CPUID; a leaf that it does not know gives values without meaning.
    unsafe { core::arch::x86_64::__cpuid(leaf) }
}

/// The generic timer is invariant by architecture (Arm ARM, D12.1: constant frequency).
#[cfg(target_arch = "aarch64")]
pub fn invariant() -> Result<(), &'static str> {
    Ok(())
}

/// No counter is known for this processor.
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub fn invariant() -> Result<(), &'static str> {
    Err("rdmalab knows no counter of this processor")
}

/// `CLOCK_MONOTONIC_RAW` in nanoseconds: not steered by NTP, so that a rate measured against it
/// does not depend on the minute it was measured in.
#[inline]
pub fn raw_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec to write to. The call cannot fail: Linux has had this clock
    // since 2.6.28.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC_RAW, &mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

//! The machine code that accesses memory which may fault: one copy and two atomics.
//!
//! Each routine is a leaf that pushes nothing. It fills a slot of fixed size, whose last
//! [`FIXUP_BYTES`] are its *fixup*. After a fault inside the slot, the handler sets the instruction
//! pointer to the fixup, which returns to the caller with the values that the handler put in RAX
//! and RDX. `.org` enforces the slot's size: code that is too long does not assemble.

use std::arch::naked_asm;
use std::mem::offset_of;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// The result of a guarded routine, in RAX and RDX.
#[repr(C)]
pub(super) struct Outcome {
    /// The former value of an atomic; after a fault the faulting address; otherwise meaningless.
    pub value: u64,
    /// 0, or [`FAULTED`].
    pub status: u64,
}

/// [`Outcome::status`] after a fault.
pub(super) const FAULTED: u64 = 1;

/// Bytes at the end of each slot that hold its fixup.
const FIXUP_BYTES: usize = 32;
const COPY_SLOT: usize = 1792;
const ATOMIC_SLOT: usize = 64;

/// Which instructions copy a body of more than 128 bytes. The assembly reads this.
#[repr(C)]
struct Plan {
    /// The least body, in bytes, that is copied by `rep movsb`; `usize::MAX` for never.
    rep_min: AtomicUsize,
    /// 0: SSE2, 1: AVX2, 2: AVX-512VL.
    vector: AtomicU8,
}

const SSE2: u8 = 0;
const AVX2: u8 = 1;
const AVX512: u8 = 2;

/// Starts with the instructions that every x86-64 has; [`choose_instructions`] selects faster ones.
static PLAN: Plan = Plan { rep_min: AtomicUsize::new(usize::MAX), vector: AtomicU8::new(SSE2) };

/// Selects the instructions that are fastest on this processor. Idempotent; a copy at the same time
/// is right with either selection.
///
/// Measured on a Zen 5 core: vectors are faster while source and destination fit the first-level
/// cache. From 24 KiB on `rep movsb` is faster by a third, and needs no non-temporal stores up to 4
/// MiB. If only SSE2 is available, it is faster from 1.25 KiB on. The C library's `memcpy` in a
/// warm first-level cache is as fast or slower up to 256 B and from 2 KiB on. At 512 B and 1 KiB
/// this copy reaches 0.7 and 0.85 of its speed, because no vector may cover the tail.
pub(super) fn choose_instructions() {
    let vector = if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
        AVX512
    } else if is_x86_feature_detected!("avx2") {
        AVX2
    } else {
        SSE2
    };
    let rep_min = match (has_erms(), vector) {
        (false, _) => usize::MAX,
        (true, SSE2) => 1280,
        (true, _) => 24 << 10,
    };
    use_instructions(vector, rep_min);
}

fn use_instructions(vector: u8, rep_min: usize) {
    PLAN.vector.store(vector, Ordering::Relaxed);
    PLAN.rep_min.store(rep_min, Ordering::Relaxed);
}

/// Whether `rep movsb` is fast: CPUID leaf 7, EBX bit 9 (ERMS) or EDX bit 4 (FSRM).
fn has_erms() -> bool {
    if std::arch::x86_64::__cpuid(0).eax < 7 {
        return false;
    }
    let leaf = std::arch::x86_64::__cpuid_count(7, 0);
    leaf.ebx & (1 << 9) != 0 || leaf.edx & (1 << 4) != 0
}

/// Where to continue after a fault at `rip`, if `rip` lies in a guarded routine.
/// Async-signal-safe: compares constants.
pub(super) fn fixup_of(rip: usize) -> Option<usize> {
    let slots = [
        (copy as *const () as usize, COPY_SLOT),
        (compare_swap as *const () as usize, ATOMIC_SLOT),
        (fetch_add as *const () as usize, ATOMIC_SLOT),
    ];
    slots
        .iter()
        .find(|(start, size)| rip.wrapping_sub(*start) < size - FIXUP_BYTES)
        .map(|(start, size)| start + size - FIXUP_BYTES)
}

/// Copies a body of more than 128 bytes by vectors of `$width` bytes: an unaligned vector at the
/// start, aligned stores (four, two, one at a time), and `$end` for the rest. If a store faults,
/// the bytes written before are a prefix.
///
/// In: RDI, RSI, RDX (bytes). Out: the body is copied. Clobbers RCX, RSI, RDI, R9 to R11.
#[rustfmt::skip] // one instruction a line
macro_rules! vector_body {
    ($load:literal, $store:literal, $aligned:literal, $reg:literal, [$a:literal $b:literal
     $c:literal $d:literal], $width:literal, $end:expr) => {
        concat!(
            $load, " ", $reg, $a, ", [rsi]\n",
            "lea r9, [rdi + rdx]\n",
            "lea r10, [rsi + rdx]\n",
            $store, " [rdi], ", $reg, $a, "\n",
            "mov rcx, rdi\n",
            "add rdi, ", $width, "\n",
            "and rdi, -", $width, "\n",
            "sub rcx, rdi\n",
            "sub rsi, rcx\n",
            "lea r11, [r9 - 4*", $width, "]\n",
            "cmp rdi, r11\n",
            "ja 3f\n",
            ".p2align 5\n",
            "2:\n",
            $load, " ", $reg, $a, ", [rsi]\n",
            $load, " ", $reg, $b, ", [rsi + ", $width, "]\n",
            $load, " ", $reg, $c, ", [rsi + 2*", $width, "]\n",
            $load, " ", $reg, $d, ", [rsi + 3*", $width, "]\n",
            $aligned, " [rdi], ", $reg, $a, "\n",
            $aligned, " [rdi + ", $width, "], ", $reg, $b, "\n",
            $aligned, " [rdi + 2*", $width, "], ", $reg, $c, "\n",
            $aligned, " [rdi + 3*", $width, "], ", $reg, $d, "\n",
            "add rsi, 4*", $width, "\n",
            "add rdi, 4*", $width, "\n",
            "cmp rdi, r11\n",
            "jbe 2b\n",
            "3:\n",
            "add r11, 2*", $width, "\n",
            "cmp rdi, r11\n",
            "ja 4f\n",
            $load, " ", $reg, $a, ", [rsi]\n",
            $load, " ", $reg, $b, ", [rsi + ", $width, "]\n",
            $aligned, " [rdi], ", $reg, $a, "\n",
            $aligned, " [rdi + ", $width, "], ", $reg, $b, "\n",
            "add rsi, 2*", $width, "\n",
            "add rdi, 2*", $width, "\n",
            "4:\n",
            "add r11, ", $width, "\n",
            "cmp rdi, r11\n",
            "ja 5f\n",
            $load, " ", $reg, $a, ", [rsi]\n",
            $aligned, " [rdi], ", $reg, $a, "\n",
            "add rsi, ", $width, "\n",
            "add rdi, ", $width, "\n",
            "5:\n",
            $end,
            "jmp 80b\n",
        )
    };
}

/// Copies the rest, fewer bytes than a vector, by one or two vectors of half the size, `$half`. If
/// the destination is aligned and there are two, neither crosses a cache line.
#[rustfmt::skip] // one instruction a line
macro_rules! end_of_body {
    ($move:literal, $reg:literal, $half:literal) => {
        concat!(
            "lea r11, [r9 - ", $half, "]\n",
            "cmp rdi, r11\n",
            "jae 6f\n",
            $move, " ", $reg, ", [rsi]\n",
            $move, " [rdi], ", $reg, "\n",
            "6:\n",
            $move, " ", $reg, ", [r10 - ", $half, "]\n",
            $move, " [r11], ", $reg, "\n",
        )
    };
}

/// Copies a body of at most 32 bytes, RDX of them, then the tail, R8, to the 8 bytes at RAX. Loads
/// come before stores, and pairs may overlap in the middle.
macro_rules! small_body_and_tail {
    () => {
        "
        cmp edx, 16
        jae 24f
        cmp edx, 8
        jae 23f
        cmp edx, 4
        jae 22f
        test edx, edx
        jz 80f
        movzx r9d, byte ptr [rsi]
        movzx r10d, byte ptr [rsi + rdx - 1]
        shr edx, 1  # the middle of 3, else one of the ends again
        movzx r11d, byte ptr [rsi + rdx]
        mov [rdi], r9b
        mov [rdi + rdx], r11b
        mov [rax - 1], r10b
        jmp 80f
    22: mov r9d, [rsi]
        mov r10d, [rsi + rdx - 4]
        mov [rdi], r9d
        mov [rdi + rdx - 4], r10d
        jmp 80f
    23: mov r9, [rsi]
        mov r10, [rsi + rdx - 8]
        mov [rdi], r9
        mov [rdi + rdx - 8], r10
        jmp 80f
    24: movups xmm0, [rsi]
        movups xmm1, [rsi + rdx - 16]
        movups [rdi], xmm0
        movups [rdi + rdx - 16], xmm1
    80: test al, 7
        jnz 85f
        mov [rax], r8
        xor edx, edx
        ret
        "
    };
}

/// Writes the tail in naturally aligned pieces: at 86, the ECX (1 to 8) low bytes of R8 go to RAX.
macro_rules! tail_in_pieces {
    () => {
        "
    85: mov ecx, 8
    86: test al, 1
        jz 6f
        mov [rax], r8b
        shr r8, 8
        inc rax
        dec ecx
    6:  test al, 2
        jz 6f
        cmp ecx, 2
        jb 6f
        mov [rax], r8w
        shr r8, 16
        add rax, 2
        sub ecx, 2
    6:  test al, 4
        jz 6f
        cmp ecx, 4
        jb 6f
        mov [rax], r8d
        shr r8, 32
        add rax, 4
        sub ecx, 4
    6:  test cl, 4
        jz 6f
        mov [rax], r8d
        shr r8, 32
        add rax, 4
    6:  test cl, 2
        jz 6f
        mov [rax], r8w
        shr r8, 16
        add rax, 2
    6:  test cl, 1
        jz 6f
        mov [rax], r8b
    6:  xor edx, edx
        ret
        "
    };
}

/// Copies fewer than 8 bytes, RDX of them: all are the tail. No byte is combined from two loads, so
/// that each byte is an old or a new one even if the source changes meanwhile.
macro_rules! tail_only {
    () => {
        "
    70: test edx, edx
        jz 6b
        mov rax, rdi
        mov ecx, 8
        sub ecx, edx
        shl ecx, 3
        cmp edx, 4
        jb 72f
        mov r8d, [rsi + rdx - 4]
        shr r8, cl
        shl r8, 32
        mov r9d, [rsi]
        or r8, r9
        mov ecx, edx
        jmp 86b
    72: mov ecx, edx
        cmp edx, 1
        je 73f
        movzx r8d, word ptr [rsi]
        cmp edx, 2
        je 86b
        movzx r9d, byte ptr [rsi + 2]
        shl r9d, 16
        or r8d, r9d
        jmp 86b
    73: movzx r8d, byte ptr [rsi]
        jmp 86b
        "
    };
}

/// Copies a body of 33 to 128 bytes: loads, then stores at rising addresses.
macro_rules! medium_body {
    () => {
        "
        .p2align 6
    30: cmp rdx, 64
        ja 31f
        movups xmm0, [rsi]
        movups xmm1, [rsi + 16]
        movups xmm2, [rsi + rdx - 32]
        movups xmm3, [rsi + rdx - 16]
        movups [rdi], xmm0
        movups [rdi + 16], xmm1
        movups [rdi + rdx - 32], xmm2
        movups [rdi + rdx - 16], xmm3
        jmp 80b
        .p2align 6
    31: mov r11, [rip + {plan}@GOTPCREL]
        cmp byte ptr [r11 + {vector}], 2
        je 50f
        cmp rdx, 128
        ja 40f
        movups xmm0, [rsi]
        movups xmm1, [rsi + 16]
        movups xmm2, [rsi + 32]
        movups xmm3, [rsi + 48]
        movups xmm4, [rsi + rdx - 64]
        movups xmm5, [rsi + rdx - 48]
        movups xmm6, [rsi + rdx - 32]
        movups xmm7, [rsi + rdx - 16]
        movups [rdi], xmm0
        movups [rdi + 16], xmm1
        movups [rdi + 32], xmm2
        movups [rdi + 48], xmm3
        movups [rdi + rdx - 64], xmm4
        movups [rdi + rdx - 48], xmm5
        movups [rdi + rdx - 32], xmm6
        movups [rdi + rdx - 16], xmm7
        jmp 80b
        "
    };
}

/// Copies a body of 65 to 512 bytes by 64-byte vectors from the start on, then one or two of 32
/// bytes, the last of which ends with the body. If the destination is aligned, no store crosses a
/// cache line. Uses registers 16 and up, so that the program's SSE code needs no `vzeroupper`.
macro_rules! medium_body_avx512 {
    () => {
        "
        .p2align 6
    50: cmp rdx, 512
        ja 40b
        vmovdqu64 zmm16, [rsi]
        vmovdqu64 ymm23, [rsi + rdx - 32]
        vmovdqu64 [rdi], zmm16
        mov ecx, 64
        cmp edx, 128
        jbe 58f
        vmovdqu64 zmm17, [rsi + 64]
        vmovdqu64 [rdi + 64], zmm17
        mov ecx, 128
        cmp edx, 192
        jbe 58f
        vmovdqu64 zmm18, [rsi + 128]
        vmovdqu64 [rdi + 128], zmm18
        mov ecx, 192
        cmp edx, 256
        jbe 58f
        vmovdqu64 zmm19, [rsi + 192]
        vmovdqu64 [rdi + 192], zmm19
        mov ecx, 256
        cmp edx, 320
        jbe 58f
        vmovdqu64 zmm20, [rsi + 256]
        vmovdqu64 [rdi + 256], zmm20
        mov ecx, 320
        cmp edx, 384
        jbe 58f
        vmovdqu64 zmm21, [rsi + 320]
        vmovdqu64 [rdi + 320], zmm21
        mov ecx, 384
        cmp edx, 448
        jbe 58f
        vmovdqu64 zmm22, [rsi + 384]
        vmovdqu64 [rdi + 384], zmm22
        mov ecx, 448
    58: lea r9d, [rcx + 32]
        cmp edx, r9d
        jbe 59f
        vmovdqu64 ymm16, [rsi + rcx]
        vmovdqu64 [rdi + rcx], ymm16
    59: vmovdqu64 [rdi + rdx - 32], ymm23
        jmp 80b
        "
    };
}

/// Copies a longer body by `rep movsb` or by vectors, as the plan at R11 says. If the destination
/// lies up to a cache line past the source, modulo a page, vectors are used: there `rep movsb` is
/// very slow on some cores (Zen 3) and not faster on others.
macro_rules! choose_long_body {
    () => {
        "
    40: cmp rdx, [r11 + {rep_min}]
        jb 41f
        mov ecx, edi
        sub ecx, esi
        and ecx, 4095
        dec ecx
        cmp ecx, 63
        jb 41f
        mov rcx, rdx
        rep movsb
        jmp 80b
    41: movzx ecx, byte ptr [r11 + {vector}]
        cmp ecx, 1
        ja 44f
        je 43f
        "
    };
}

/// Copies `len` bytes from `src` to `dst` in the order that the parent module promises: the *body*,
/// all but the last 8 bytes, then the *tail*.
///
/// The tail is read first and written last, in naturally aligned pieces at rising addresses. So
/// each piece is one indivisible store on every x86 (AMD promises that only within an aligned
/// 8-byte word), and TSO keeps the order of the pieces. If the end is 8-byte aligned, the tail is
/// one store. No store of the body touches the tail, not even with the right value: a program that
/// saw its last byte may already be writing the next one there.
///
/// `rep movsb` may make its own stores visible in any order, but all of them before any later store
/// (Intel SDM volume 3A, 8.2.4.1, principle 3: string operations are not reordered with other
/// stores). So it may copy the body, but not the tail.
///
/// # Safety
/// A fault must be harmless: the guard's handler is in place, or both ranges are mapped. `dst` must
/// be memory that the caller may overwrite.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn copy(dst: *mut u8, src: *const u8, len: usize) -> Outcome {
    naked_asm!(
        "90:",
        "cmp rdx, 8",
        "jb 70f",
        "mov r8, [rsi + rdx - 8]",
        "lea rax, [rdi + rdx - 8]",
        "sub rdx, 8",
        "cmp rdx, 32",
        "ja 30f",
        small_body_and_tail!(),
        tail_in_pieces!(),
        tail_only!(),
        medium_body!(),
        choose_long_body!(),
        vector_body!("movups", "movups", "movaps", "xmm", ["0" "1" "2" "3"], "16",
            "movups xmm0, [r10 - 16]\nmovups [r9 - 16], xmm0\n"),
        "43:",
        vector_body!(
            "vmovdqu", "vmovdqu", "vmovdqa", "ymm", ["0" "1" "2" "3"], "32",
            concat!(end_of_body!("vmovdqu", "xmm0", "16"), "vzeroupper\n")
        ),
        "44:",
        vector_body!(
            "vmovdqu64", "vmovdqu64", "vmovdqa64", "zmm", ["16" "17" "18" "19"], "64",
            end_of_body!("vmovdqu64", "ymm16", "32")
        ),
        medium_body_avx512!(),
        ".org 90b + {fixup}",
        "mov r11, [rip + {plan}@GOTPCREL]",
        "cmp byte ptr [r11 + {vector}], 1",
        "jne 6f",
        "vzeroupper",
        "6: ret",
        ".org 90b + {slot}",
        plan = sym PLAN,
        rep_min = const offset_of!(Plan, rep_min),
        vector = const offset_of!(Plan, vector),
        fixup = const COPY_SLOT - FIXUP_BYTES,
        slot = const COPY_SLOT,
    )
}

/// `lock cmpxchg`: stores `swap` at `addr` if it holds `compare`; returns the former value.
///
/// # Safety
/// As for [`copy`]; `addr` must be 8-byte aligned.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn compare_swap(addr: *mut u64, compare: u64, swap: u64) -> Outcome {
    naked_asm!(
        "90:",
        "mov rax, rsi",
        "lock cmpxchg [rdi], rdx",
        "xor edx, edx",
        "ret",
        ".org 90b + {fixup}",
        "ret",
        ".org 90b + {slot}",
        fixup = const ATOMIC_SLOT - FIXUP_BYTES,
        slot = const ATOMIC_SLOT,
    )
}

/// `lock xadd`: adds `add` to the value at `addr`, modulo 2^64; returns the former value.
///
/// # Safety
/// As for [`copy`]; `addr` must be 8-byte aligned.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn fetch_add(addr: *mut u64, add: u64) -> Outcome {
    naked_asm!(
        "90:",
        "mov rax, rsi",
        "lock xadd [rdi], rax",
        "xor edx, edx",
        "ret",
        ".org 90b + {fixup}",
        "ret",
        ".org 90b + {slot}",
        fixup = const ATOMIC_SLOT - FIXUP_BYTES,
        slot = const ATOMIC_SLOT,
    )
}

/// Runs `check` once with each choice of instructions that this processor has.
#[cfg(test)]
pub(super) fn with_each_choice(mut check: impl FnMut(&str)) {
    static ONE_AT_A_TIME: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _held = ONE_AT_A_TIME.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    use_instructions(SSE2, usize::MAX);
    check("sse2");
    if is_x86_feature_detected!("avx2") {
        use_instructions(AVX2, usize::MAX);
        check("avx2");
    }
    if is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl") {
        use_instructions(AVX512, usize::MAX);
        check("avx512");
    }
    use_instructions(SSE2, 129);
    check("rep movsb");
    choose_instructions();
}

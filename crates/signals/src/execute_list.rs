//! The functions of the C library that execute a program and get its words one by one. Rust has
//! no such functions, so they are in assembly, for `x86_64` alone: elsewhere those of the C library
//! are called.

use core::arch::naked_asm;
use core::ffi::{c_char, c_int};

use crate::execute::{execv, execve, execvp};
use crate::next::List;

/// `execle` with its words and, behind their null, the variables.
unsafe extern "C" fn execute_list_with(path: *const c_char, words: List) -> c_int {
    // SAFETY: the words end with a null, and a pointer to the variables follows.
    unsafe {
        let count = (0..).find(|at| (*words.add(*at)).is_null()).unwrap_or(0);
        execve(path, words, words.add(count + 1).cast::<List>().read())
    }
}

/// A function that gets the words one by one, which calls another one with their list. Five of them
/// are in registers; pushed where the return address was, they precede the others on the stack.
macro_rules! with_list {
    ($(#[$doc:meta])* $name:ident, $function:ident) => {
        $(#[$doc])*
        ///
        /// # Safety
        /// As for the C library's function. It has arguments that Rust cannot name.
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name(path: *const c_char) -> c_int {
            naked_asm!(
                "pop rax",
                "push r9",
                "push r8",
                "push rcx",
                "push rdx",
                "push rsi",
                "mov rsi, rsp",
                // The return address. The stack is aligned to 16 bytes with it.
                "push rax",
                "call {function}",
                "pop rcx",
                "add rsp, 40",
                "push rcx",
                "ret",
                function = sym $function,
            )
        }
    };
}

with_list!(
    /// `execl`.
    execl, execv
);
with_list!(
    /// `execlp`.
    execlp, execvp
);
with_list!(
    /// `execle`.
    execle, execute_list_with
);

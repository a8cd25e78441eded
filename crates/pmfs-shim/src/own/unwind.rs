//! The symbols of an unwinder, for Rust's standard library. This library never unwinds (a panic
//! ends the process), and must not load libgcc_s into programs that lack it
//! (docs/adr/0049-stack-and-thread-locals.md). So the symbols are here, do nothing, and are
//! invisible outside: a C++ program has its own unwinder.
//!
//! That unwinder may pass our frames, when a thread is cancelled in a handler that we have called.
//! For each frame it asks Rust's personality, which asks here for cleanups: there are none.

use std::arch::global_asm;

macro_rules! names {
    ($code:literal: $($name:literal)*) => {
        global_asm!(
            ".text",
            $(
                concat!(".globl _Unwind_", $name),
                concat!(".hidden _Unwind_", $name),
                concat!("_Unwind_", $name, ":"),
            )*
            $code,
        );
    };
}

names! {
    "ud2":
    "RaiseException" "Resume" "DeleteException" "SetGR" "SetIP"
}

names! {
    "xor eax, eax\nret":
    "GetLanguageSpecificData" "GetRegionStart" "GetTextRelBase" "GetDataRelBase" "GetIPInfo" "GetIP" "GetCFA"
    "FindEnclosingFunction" "Backtrace"
}

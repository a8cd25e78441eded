//! Rust's standard library asks for an unwinder; this library never unwinds (a panic ends the
//! process), and must not bring libgcc_s into programs that don't have it
//! (docs/adr/0049-stack-and-thread-locals.md). So the names are here, do nothing, and are not
//! visible outside: a C++ program has its own.
//!
//! That one may pass our frames, when a thread is cancelled in a handler that we have called. For
//! each it asks Rust's personality, which asks here for things to clean up: there are none.

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

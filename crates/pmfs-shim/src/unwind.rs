//! Rust's standard library asks for an unwinder; this library never unwinds (a panic ends the process), and must not bring
//! libgcc_s into programs that don't have it (DECISIONS 35). So the names are here, lead nowhere, and are seen by nobody else:
//! a C++ program has its own.

use std::arch::global_asm;

macro_rules! nowhere {
    ($($name:literal)*) => {
        global_asm!(
            ".text",
            $(
                concat!(".globl _Unwind_", $name),
                concat!(".hidden _Unwind_", $name),
                concat!("_Unwind_", $name, ":"),
            )*
            "ud2",
        );
    };
}

nowhere! {
    "RaiseException" "Resume" "DeleteException" "GetLanguageSpecificData" "GetRegionStart" "GetTextRelBase"
    "GetDataRelBase" "SetGR" "SetIP" "GetIPInfo" "GetIP" "GetCFA" "FindEnclosingFunction"
}

// A backtrace of nothing.
global_asm!(
    ".text",
    ".globl _Unwind_Backtrace",
    ".hidden _Unwind_Backtrace",
    "_Unwind_Backtrace:",
    "xor eax, eax",
    "ret",
);

//! Gives the shared library its name: programs that are linked to it ask for that.

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-soname,libpmkv.so.0");
    println!("cargo:rerun-if-changed=build.rs");
}

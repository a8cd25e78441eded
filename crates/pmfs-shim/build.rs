//! Before any other object's constructors, and without a library for unwinding
//! (`src/unwind.rs`). What a start needs lies together (`start.ld`).

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo tells");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{here}/start.ld");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=start.ld");
}

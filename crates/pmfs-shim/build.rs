//! The library's constructors run before any other object's, without a library for unwinding
//! (`src/unwind.rs`). The parts that a start needs lie together (`start.ld`).

fn main() {
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,initfirst");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,now");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-z,separate-loadable-segments");
    let here = std::env::var("CARGO_MANIFEST_DIR").expect("cargo tells");
    println!("cargo:rustc-cdylib-link-arg=-Wl,-T,{here}/start.ld");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=start.ld");
}

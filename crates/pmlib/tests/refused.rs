//! Goal: what can't be kept in a heap does not compile, and one line at the field says so. Method:
//! a crate with one wrong field in each struct, and one of things that are no struct of a fixed
//! layout, compiled as a user's are.

use std::fs;
use std::path::Path;
use std::process::Command;

const USED: &str = "#![forbid(unsafe_code)]\n#![allow(dead_code)]\nuse pmlib::PmSafe;\n\
                    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};\n";
const DERIVES: &str = "#[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]";

/// Types that no field may have.
const WRONG: [&str; 7] = [
    "*const u64",
    "&'static u64",
    "Box<u64>",
    "fn()",
    "usize",
    "Option<u64>",
    "std::sync::atomic::AtomicU64",
];

/// Types that are no struct of a fixed layout, and a part of each refusal's text.
const SHAPES: [(&str, &str); 3] = [
    ("#[derive(PmSafe)] struct A { a: u64 }", "add #[repr(C)]"),
    (
        "#[derive(PmSafe)] #[repr(u8)] enum B { A = 1 }",
        "keep a number",
    ),
    (
        "#[derive(PmSafe)] #[repr(C)] union C { a: u64, b: f64 }",
        "keep a struct",
    ),
];

/// The errors of the two programs, a line each: `file:line:column: error...`.
fn errors(types: &str, shapes: &str) -> Vec<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    // Kept from run to run, so that what they depend on is compiled once.
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join("refused");
    fs::create_dir_all(dir.join("src/bin")).expect("a directory");
    let manifest = format!(
        "[package]\nname = \"refused\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\n[workspace]\n\n\
         [dependencies]\npmlib.path = {root:?}\n\
         zerocopy = {{ version = \"0.8\", features = [\"derive\"] }}\n"
    );
    fs::write(dir.join("Cargo.toml"), manifest).expect("a manifest");
    fs::copy(root.join("../../Cargo.lock"), dir.join("Cargo.lock")).expect("a copy");
    fs::write(dir.join("src/bin/types.rs"), types).expect("a source");
    fs::write(dir.join("src/bin/shapes.rs"), shapes).expect("a source");
    let output = Command::new(env!("CARGO"))
        .args(["check", "--offline", "--bins", "--keep-going"])
        .args(["--message-format", "short"])
        .current_dir(&dir)
        .env("CARGO_TARGET_DIR", dir.join("target"))
        .output()
        .expect("cargo runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    println!("{said}");
    assert!(!output.status.success(), "it compiles");
    let of_sources = |line: &&str| line.starts_with("src/bin/") && line.contains(": error");
    said.lines().filter(of_sources).map(str::to_owned).collect()
}

#[test]
#[ignore = "builds a user's crate with all that it needs"]
fn wrong_types_are_refused_in_one_line_each() {
    let first_line = USED.lines().count() + 1;
    let mut types = USED.to_owned();
    for (number, wrong) in WRONG.iter().enumerate() {
        types += &format!("{DERIVES} #[repr(C)] struct Wrong{number} {{ field: {wrong} }}\n");
    }
    types += &format!("{DERIVES} #[repr(C)] struct Right {{ field: pmlib::P<u64> }}\n");
    types += "fn main() {}\n";
    let mut shapes = String::from("#![allow(dead_code)]\nuse pmlib::PmSafe;\n");
    for (source, _) in SHAPES {
        shapes += &format!("{source}\n");
    }
    shapes += "fn main() {}\n";
    let errors = errors(&types, &shapes);
    for (number, wrong) in WRONG.iter().enumerate() {
        let place = format!("src/bin/types.rs:{}:", first_line + number);
        let at_place = errors.iter().filter(|error| error.starts_with(&place));
        let ours: Vec<_> = at_place
            .filter(|error| error.contains("can't be kept in a heap"))
            .collect();
        assert_eq!(ours.len(), 1, "{wrong}: {ours:#?}");
        let name = wrong.rsplit("::").next().expect("a name");
        assert!(
            ours[0].contains(&format!("`{name}`")),
            "{wrong}: {}",
            ours[0]
        );
    }
    let right = format!("src/bin/types.rs:{}:", first_line + WRONG.len());
    assert!(!errors.iter().any(|error| error.starts_with(&right)));
    for (source, answer) in SHAPES {
        let ours = errors.iter().filter(|error| error.contains(answer)).count();
        assert_eq!(ours, 1, "{source}");
    }
}

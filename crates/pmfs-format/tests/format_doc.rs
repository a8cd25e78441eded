//! `docs/FORMAT.md` is generated from the structures; this test fails when it is out of date, and
//! writes it with `PMFS_WRITE_DOCS=1`. Its last part, on heaps, is that of `pmlib-format`.

use std::fmt::Write as _;

fn module_doc(source: &str) -> String {
    let lines = source.lines().take_while(|line| line.starts_with("//!"));
    let text: Vec<&str> = lines
        .map(|line| line.trim_start_matches("//!").trim())
        .collect();
    text.join("\n")
}

fn plain(text: &str) -> String {
    let mut out = String::new();
    for part in text.split('[') {
        out.push_str(&part.replace("`]", "`").replace("](", " ("));
    }
    out
}

fn render() -> String {
    let mut text = String::from(
        "# The on-media format\n\nGenerated from the structures in `crates/pmfs-format` by its test \
         `format_doc`; do not edit. Sizes and offsets are asserted by the compiler.\n\n",
    );
    let modules = [
        ("The pool", include_str!("../src/lib.rs")),
        ("File trees", include_str!("../src/tree.rs")),
        ("Directories", include_str!("../src/directory.rs")),
        ("Journal", include_str!("../src/journal.rs")),
        ("Runtime area", include_str!("../src/runtime.rs")),
    ];
    for (title, source) in modules {
        let _ = writeln!(text, "## {title}\n\n{}\n", plain(&module_doc(source)));
    }
    text.push_str("## Structures\n\nOffsets and sizes in bytes.\n\n");
    for structure in pmfs_format::structures() {
        let doc = plain(structure.doc.trim());
        let doc: Vec<&str> = doc.lines().map(str::trim).collect();
        let _ = writeln!(
            text,
            "### {}: {} bytes\n\n{}\n\n| offset | size | field | meaning |\n|---|---|---|---|",
            structure.name,
            structure.size,
            doc.join(" ")
        );
        for field in &structure.fields {
            let words: Vec<&str> = field.doc.split_whitespace().collect();
            let meaning = plain(&words.join(" ")).replace('|', "\\|");
            let _ = writeln!(
                text,
                "| {} | {} | `{}` | {meaning} |",
                field.offset, field.size, field.name
            );
        }
        text.push('\n');
    }
    text
}

#[test]
fn format_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FORMAT.md");
    let text = render();
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let end = found.find("# The format of a heap").unwrap_or(found.len());
    let (there, heaps) = found.split_at(end);
    if std::env::var_os("PMFS_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{text}{heaps}")).expect("docs/FORMAT.md is writable");
        return;
    }
    assert!(there == text, "PMFS_WRITE_DOCS=1 cargo test -p pmfs-format");
}

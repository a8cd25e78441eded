//! The part of `docs/FORMAT.md` on heaps is generated from the sources of this crate; this test
//! fails when it is out of date, and writes it with `PMFS_WRITE_DOCS=1`. The part before it is
//! `pmfs-format`'s.

use pmlib_format::container::{
    LogRaw, MAP_NEAR, MapEntryRaw, MapRaw, SegmentRaw, TREE_SLOTS_MAX, TextRaw, TreeNodeRaw,
    TreeRaw, VEC_NEAR, VecRaw,
};
use pmlib_format::kv::KvHeadRaw;
use pmlib_format::{HeaderRaw, NamedRaw};
use std::fmt::Write as _;

/// The line at which this part begins.
const TITLE: &str = "# The format of a heap";

/// The sources, each with its title.
const SOURCES: [(&str, &str); 9] = [
    ("The heap", include_str!("../src/lib.rs")),
    ("Header", include_str!("../src/header.rs")),
    ("Chunks", include_str!("../src/chunk.rs")),
    ("Lanes", include_str!("../src/lane.rs")),
    ("Redo records", include_str!("../src/record.rs")),
    ("Named roots", include_str!("../src/named.rs")),
    ("Containers", include_str!("../src/container.rs")),
    ("Key-value engines", include_str!("../src/kv.rs")),
    ("Volatile area", include_str!("../src/shared.rs")),
];

/// The size that each structure has, as the compiler says.
const SIZES: [(&str, usize); 11] = [
    ("HeaderRaw", size_of::<HeaderRaw>()),
    ("KvHeadRaw", size_of::<KvHeadRaw>()),
    ("NamedRaw", size_of::<NamedRaw>()),
    ("VecRaw", size_of::<VecRaw>()),
    ("TextRaw", size_of::<TextRaw>()),
    ("LogRaw", size_of::<LogRaw>()),
    ("SegmentRaw", size_of::<SegmentRaw>()),
    ("MapRaw", size_of::<MapRaw>()),
    ("MapEntryRaw", size_of::<MapEntryRaw>()),
    ("TreeRaw", size_of::<TreeRaw>()),
    ("TreeNodeRaw", size_of::<TreeNodeRaw>()),
];

/// Text without the marks of links.
fn plain(text: &str) -> String {
    let text = text.replace("[`", "`").replace("`]", "`");
    text.replace("crate::chunk::", "").replace("crate::", "")
}

fn module_doc(source: &str) -> String {
    let lines = source.lines().take_while(|line| line.starts_with("//!"));
    let text: Vec<&str> = lines
        .map(|line| line.trim_start_matches("//!").trim())
        .collect();
    plain(&text.join("\n"))
}

/// A cell of a table.
fn cell(words: &[&str]) -> String {
    plain(&words.join(" ")).replace('|', "\\|")
}

/// The size and the alignment of a field's type.
fn layout(of: &str) -> (usize, usize) {
    let one = |name: &str| match name {
        "u64" => 8,
        "u32" => 4,
        "u16" => 2,
        "u8" => 1,
        other => panic!("{other} has no known size"),
    };
    let Some(array) = of.strip_prefix('[') else {
        return (one(of), one(of));
    };
    let array = array.trim_end_matches(']').split_once("; ");
    let (each, count) = array.expect("an array");
    let count = match count {
        "VEC_NEAR" => VEC_NEAR,
        "MAP_NEAR" => MAP_NEAR,
        "TREE_SLOTS_MAX" => TREE_SLOTS_MAX,
        digits => digits.parse().expect("a number"),
    };
    (one(each) * count, one(each))
}

/// Constants and structures of a source, in their order.
fn parts(source: &str) -> String {
    let (mut constants, mut structures) = (String::new(), String::new());
    let mut doc: Vec<&str> = Vec::new();
    let mut lines = source.lines();
    while let Some(line) = lines.next() {
        if line.starts_with("#[cfg(test)]") {
            break;
        }
        if let Some(text) = line.strip_prefix("///") {
            doc.push(text.trim());
        } else if let Some(rest) = line.strip_prefix("pub const ")
            && let Some((name, rest)) = rest.split_once(": ")
            && let Some((_, value)) = rest.split_once(" = ")
        {
            let value = value.trim_end_matches(';');
            let _ = writeln!(constants, "| `{name}` | `{value}` | {} |", cell(&doc));
            doc.clear();
        } else if let Some(rest) = line.strip_prefix("pub struct ") {
            let name = rest.trim_end_matches(" {");
            structures += &structure(name, &doc, &mut lines);
            doc.clear();
        } else if !line.starts_with("#[") {
            doc.clear();
        }
    }
    if !constants.is_empty() {
        let heads = "| constant | value | meaning |\n|---|---|---|\n";
        constants = format!("{heads}{constants}\n");
    }
    constants + &structures
}

fn structure<'a>(name: &str, doc: &[&str], lines: &mut impl Iterator<Item = &'a str>) -> String {
    let (mut rows, mut offset, mut align) = (String::new(), 0, 1);
    let mut meaning: Vec<&str> = Vec::new();
    for line in lines.map(str::trim).take_while(|line| *line != "}") {
        if let Some(text) = line.strip_prefix("///") {
            meaning.push(text.trim());
        } else if let Some((field, of)) = line.trim_start_matches("pub ").split_once(": ") {
            let (size, own) = layout(of.trim_end_matches(','));
            align = align.max(own);
            offset = usize::next_multiple_of(offset, own);
            let meaning_is = cell(&std::mem::take(&mut meaning));
            let _ = writeln!(rows, "| {offset} | {size} | `{field}` | {meaning_is} |");
            offset += size;
        }
    }
    let size = offset.next_multiple_of(align);
    let is_known = SIZES.contains(&(name, size));
    assert!(is_known, "{name} has {size} bytes by its source");
    let heads = "| offset | size | field | meaning |\n|---|---|---|---|";
    format!(
        "### {name}: {size} bytes\n\n{}\n\n{heads}\n{rows}\n",
        cell(doc)
    )
}

fn render() -> String {
    let mut text = format!(
        "{TITLE}\n\nGenerated from the sources of `crates/pmlib-format` by its test `format_doc`; do \
         not edit. Offsets and sizes in bytes; the compiler knows the same sizes.\n\n"
    );
    for (title, source) in SOURCES {
        let _ = writeln!(text, "## {title}\n\n{}\n", module_doc(source));
        text += &parts(source);
    }
    text.truncate(text.trim_end().len());
    text + "\n"
}

#[test]
fn format_page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/FORMAT.md");
    let found = std::fs::read_to_string(path).unwrap_or_default();
    let start = found.find(TITLE).unwrap_or(found.len());
    let (before, there) = found.split_at(start);
    let text = render();
    if std::env::var_os("PMFS_WRITE_DOCS").is_some() {
        std::fs::write(path, format!("{before}{text}")).expect("docs/FORMAT.md is writable");
        return;
    }
    assert!(
        there == text,
        "PMFS_WRITE_DOCS=1 cargo test -p pmlib-format"
    );
}

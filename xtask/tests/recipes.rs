//! Goal: two recipes of `docs/dev/RECIPES.md` are true of the tree as it is. Method: each was done
//! once and kept as a patch. The patch has to apply, and to touch no more files than the recipe
//! allows.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Patches, and the most files that each may touch.
const PATCHES: [(&str, usize); 2] = [
    ("docs/dev/mount-option.patch", 5),
    ("docs/dev/field-on-the-medium.patch", 9),
];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

#[test]
fn the_recipes_patches_apply() {
    for (patch, files_max) in PATCHES {
        let text = fs::read_to_string(root().join(patch)).expect("a patch");
        let files = text
            .lines()
            .filter(|line| line.starts_with("diff --git "))
            .count();
        assert!((1..=files_max).contains(&files), "{patch}: {files} files");
        let mut git = Command::new("git");
        git.args(["apply", "--check", patch]).current_dir(root());
        let Ok(checked) = git.output() else {
            eprintln!("skipped: git is not there");
            return;
        };
        let why = String::from_utf8_lossy(&checked.stderr);
        assert!(checked.status.success(), "{patch}: {why}");
    }
}

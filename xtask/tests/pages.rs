//! Goal: manual pages and completions that hold all that can be typed, and that their readers take
//! without a word. Method: they are made, looked through for each command and argument, and given
//! to groff, to the shells, and (completion) to bash as if somebody had pressed the tabulator.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use tempfile::TempDir;

/// `None`, and a word on stderr, where the program isn't there.
fn tool(program: &str, arguments: &[&str], file: &Path) -> Option<Output> {
    let output = Command::new(program).args(arguments).arg(file).output();
    if output.is_err() {
        eprintln!("skipped: {program} is not there");
    }
    output.ok()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn pages() -> TempDir {
    let dir = TempDir::new().unwrap();
    xtask::man::write(dir.path()).unwrap();
    dir
}

fn completions() -> TempDir {
    let dir = TempDir::new().unwrap();
    xtask::completions::write(dir.path()).unwrap();
    dir
}

fn files(dir: &Path) -> BTreeSet<String> {
    fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect()
}

#[test]
fn each_command_has_a_page_with_its_arguments() {
    let dir = pages();
    let mut expected = BTreeSet::new();
    for root in xtask::programs() {
        let program = root.get_name();
        expected.insert(format!("{program}.1"));
        // A hidden one is another process's, and has none.
        for command in root.get_subcommands().filter(|it| !it.is_hide_set()) {
            let name = format!("{program}-{}.1", command.get_name());
            let page = fs::read_to_string(dir.path().join("man1").join(&name)).unwrap();
            let page = page.replace('\\', "");
            for argument in command.get_arguments() {
                let Some(long) = argument.get_long() else {
                    continue;
                };
                let is_there = page.contains(&format!("--{long}fR"));
                assert_eq!(is_there, !argument.is_hide_set(), "--{long} in {name}");
            }
            expected.insert(name);
        }
    }
    assert_eq!(files(&dir.path().join("man1")), expected);
    let eight = files(&dir.path().join("man8"));
    let named = [
        "fsck.pmfs.8",
        "mkfs.pmfs.8",
        "mount.pmfs.8",
        "umount.pmfs.8",
    ];
    assert_eq!(eight, named.map(str::to_owned).into());
    let mount = fs::read_to_string(dir.path().join("man1/pmfs-mount.1")).unwrap();
    assert!(
        mount.contains("relatime")
            && mount.contains("mount -o remount,ro /mnt/p".replace('-', "\\-").as_str())
    );
}

#[test]
fn groff_has_no_complaint() {
    let dir = pages();
    for section in ["man1", "man3", "man8"] {
        for name in files(&dir.path().join(section)) {
            let page = dir.path().join(section).join(&name);
            // -s follows .so, from the directory above man1, as man(1) does.
            let mut groff = Command::new("groff");
            groff
                .args(["-s", "-man", "-ww", "-b", "-Tutf8", "-P-cbou"])
                .arg(&page);
            let Ok(output) = groff.current_dir(dir.path()).output() else {
                eprintln!("skipped: groff is not there");
                return;
            };
            assert_eq!(text(&output.stderr), "", "{name}");
            let shown = text(&output.stdout);
            assert!(
                shown.contains("SYNOPSIS") && shown.contains("PMFS"),
                "{name}: {shown}"
            );
        }
    }
}

/// Goal: the page of a library has all of its functions, as they are declared. Method: the header's
/// declarations are looked for, with the spaces of both in one form.
#[test]
fn the_library_s_page_has_every_function() {
    let dir = pages();
    let form = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = fs::read_to_string(dir.path().join("man3/libpmkv.3")).unwrap();
    let page = form(&page);
    let header = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/pmkv-capi/include/pmkv.h");
    let header = fs::read_to_string(header).unwrap();
    let mut count = 0;
    for part in header.split(';') {
        // A declaration stands behind the last comment.
        let code = form(part.rsplit("*/").next().unwrap());
        let is_function = !code.starts_with("typedef") && code.ends_with(')');
        if is_function && (code.contains("pmheap_") || code.contains("pmkv_")) {
            assert!(page.contains(&format!("{code};")), "{code}");
            count += 1;
        }
    }
    assert_eq!(count, 112);
}

/// The name and the few words about it, which apropos(1) lists, have to stand in one line.
#[test]
fn pages_can_be_found() {
    let dir = pages();
    for name in files(&dir.path().join("man1")) {
        let page = dir.path().join("man1").join(&name);
        let Some(output) = tool("lexgrog", &[], &page) else {
            return;
        };
        let found = text(&output.stdout);
        let command = name.trim_end_matches(".1");
        assert!(
            found.contains(&format!("\"{command} - ")),
            "{name}: {found}"
        );
    }
}

#[test]
fn the_shells_take_their_completions() {
    let dir = completions();
    let pmfs = ["mkfs", "umount", "sparse"];
    let pmkv = ["create", "check", "lanes"];
    for (shell, name, words) in [
        ("bash", "pmfs", pmfs),
        ("zsh", "_pmfs", pmfs),
        ("fish", "pmfs.fish", pmfs),
        ("bash", "pmkv", pmkv),
        ("zsh", "_pmkv", pmkv),
        ("fish", "pmkv.fish", pmkv),
    ] {
        let file = dir.path().join(name);
        let content = fs::read_to_string(&file).unwrap();
        for word in words {
            assert!(content.contains(word), "{word} in {name}");
        }
        assert!(
            !content.contains("daemon") && !content.contains("--fake"),
            "{name} shows what is hidden"
        );
        // zsh and fish are checked where they are installed; bash is everywhere.
        if let Ok(output) = Command::new(shell).arg("-n").arg(&file).output() {
            assert!(output.status.success(), "{name}: {}", text(&output.stderr));
        } else {
            assert_ne!(shell, "bash");
        }
    }
}

#[test]
fn bash_completes() {
    let dir = completions();
    let script = "
        source pmfs
        COMP_WORDS=(pmfs m) COMP_CWORD=1 && _pmfs pmfs m pmfs && echo ${COMPREPLY[*]}
        COMP_WORDS=(pmfs mkfs --s) COMP_CWORD=2 && _pmfs pmfs --s mkfs && echo ${COMPREPLY[*]}";
    let output = Command::new("bash")
        .args(["-c", script])
        .current_dir(dir.path())
        .output()
        .unwrap();
    assert_eq!(
        text(&output.stdout),
        "mkfs mount\n--size --sparse\n",
        "{}",
        text(&output.stderr)
    );
}

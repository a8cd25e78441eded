//! Manual pages: pmfs(1), pmkv(1), pmep(1), pmmon(1), pmm-writer(1), one of each of their commands,
//! and in section 8 the names by which mount(8), umount(8), fsck(8) and mkfs(8) call `pmfs`, each
//! of which leads to a command's page; and libpmkv(3), which stands beside the library.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use clap::Command;
use clap_mangen::Man;

/// A command with another name, and the section of its page about that name.
struct Called {
    command: &'static str,
    name: &'static str,
    text: &'static str,
}

/// The page of the heap's library for C.
const LIBPMKV: &str = include_str!("../../crates/pmkv-capi/man/libpmkv.3");

const CALLED: &[Called] = &[
    Called {
        command: "mount",
        name: "mount.pmfs",
        text: "\
mount(8) calls it as mount.pmfs, so these work:

  mount -t pmfs /var/pmem/pool /mnt/p
  mount -o remount,ro /mnt/p

and, with this line in /etc/fstab, mount /mnt/p:

  /var/pmem/pool  /mnt/p  pmfs  defaults,noauto,nofail  0  2

As mount.pmfs it takes mount(8)'s -s (leave out unknown options), -f (check only, mount nothing), -n and
-v. It prints nothing unless -v is given, and ends with 0, 1 (wrong usage) or 32 (not mounted). The
kernel's name of the type is fuse.pmfs; findmnt -t and umount -t take that name.",
    },
    Called {
        command: "umount",
        name: "umount.pmfs",
        text: "\
As umount.pmfs it takes umount(8)'s -l; -f, -n, -r and -v have no effect. umount(8) itself works too, but
does not wait until the pool is closed, as this command does.",
    },
    Called {
        command: "fsck",
        name: "fsck.pmfs",
        text: "\
fsck(8) calls it as fsck.pmfs, so fsck -t pmfs POOL works, and fsck -A for a line in /etc/fstab. As
fsck.pmfs it takes -f, -r and -C FD as well, without effect: every check is a full one and asks nothing.
Wrong usage is exit code 16 then.",
    },
    Called {
        command: "mkfs",
        name: "mkfs.pmfs",
        text: "\
mkfs(8) calls it as mkfs.pmfs:

  mkfs -t pmfs /var/pmem/pool 1G

The size may follow the pool then. Without a unit it counts KiB, as with mkfs.ext4(8).",
    },
];

/// Writes the pages into `dir`/man1, `dir`/man3 and `dir`/man8, which are made if need be.
///
/// # Errors
/// Files that can't be written.
pub fn write(dir: &Path) -> Result<()> {
    let put = |section: &str, name: &str, text: &str| -> Result<()> {
        let dir = dir.join(format!("man{section}"));
        fs::create_dir_all(&dir)?;
        let path = dir.join(format!("{name}.{section}"));
        fs::write(&path, text).with_context(|| path.display().to_string())
    };
    for root in crate::programs() {
        let mut root = root.disable_help_subcommand(true);
        root.build();
        put("1", root.get_name(), &page(&root, &root)?)?;
        for command in root.get_subcommands().filter(|it| !it.is_hide_set()) {
            let name = format!("{}-{}", root.get_name(), command.get_name());
            put("1", &name, &page(&root, command)?)?;
        }
    }
    for called in CALLED {
        let target = format!(".so man1/pmfs-{}.1\n", called.command);
        put("8", called.name, &target)?;
    }
    put("3", "libpmkv", LIBPMKV)?;
    Ok(())
}

/// One page.
fn page(root: &Command, command: &Command) -> Result<String> {
    let is_root = root.get_name() == command.get_name();
    let program = root.get_name();
    let called = CALLED
        .iter()
        .find(|called| !is_root && program == "pmfs" && called.command == command.get_name());
    let name = match is_root {
        true => program.to_owned(),
        false => format!("{program}-{}", command.get_name()),
    };
    let about = command.get_about().map(ToString::to_string);
    let about = about.unwrap_or_default().replace('\n', " ");
    let (said, rest) = about.split_once(": ").unwrap_or(("", &about));
    let about = match said.eq_ignore_ascii_case(program) {
        true => rest,
        false => &about,
    };
    let about = about.trim_end_matches('.');
    let headed = command.clone().about(about.to_owned()).display_name(&name);
    let man = Man::new(headed);
    // A heading of our own: clap_mangen leaves an empty date out, and all behind it moves up.
    let version = root.get_version().unwrap_or_default();
    let mut out = format!(
        ".TH \"{}\" \"1\" \"\" \"pmfs {version}\" \"PMFS\"\n",
        name.to_uppercase()
    )
    .into_bytes();
    man.render_name_section(&mut out)?;
    man.render_synopsis_section(&mut out)?;
    if let Some(about) = command.get_long_about().or(command.get_about()) {
        section(&mut out, "DESCRIPTION", &about.to_string());
    }
    man.render_options_section(&mut out)?;
    if is_root {
        man.render_subcommands_section(&mut out)?;
    }
    if let Some(help) = command.get_after_help() {
        section(&mut out, "NOTES", &help.to_string());
    }
    if let Some(called) = called {
        section(&mut out, &called.name.to_uppercase(), called.text);
    }
    section(&mut out, "SEE ALSO", &see_also(root, &name));
    Ok(String::from_utf8(out)?)
}

fn see_also(root: &Command, but: &str) -> String {
    let program = root.get_name();
    let names = std::iter::once(program.to_owned()).chain(
        root.get_subcommands()
            .map(|command| format!("{program}-{}", command.get_name())),
    );
    // The load beside the monitor that it tries.
    let beside = match program {
        "pmm-writer" => Some("pmmon"),
        "pmmon" => Some("pmm-writer"),
        _ => None,
    };
    let names = names.chain(beside.map(str::to_owned));
    let pages: Vec<String> = names
        .filter(|name| name != but)
        .map(|name| format!("{name}(1)"))
        .collect();
    pages.join(", ")
}

/// A heading and its text. Lines that are indented, and those of a list, stay lines; the rest is
/// filled.
fn section(out: &mut Vec<u8>, heading: &str, text: &str) {
    let mut roff = format!(".SH \"{heading}\"\n");
    let mut is_literal = false;
    for line in text.lines() {
        let literal = line.starts_with("  ");
        if literal != is_literal {
            roff += if literal { ".PP\n.nf\n" } else { ".fi\n" };
            is_literal = literal;
        }
        match line.trim() {
            "" => roff += ".PP\n",
            _ => roff = roff + &escaped(line) + "\n",
        }
    }
    if is_literal {
        roff += ".fi\n";
    }
    out.extend(roff.replace(".PP\n.PP\n", ".PP\n").into_bytes());
}

/// A line of plain text: no escapes, no requests, and hyphens that can be searched for and copied.
fn escaped(line: &str) -> String {
    let line = line.replace('\\', "\\e").replace('-', "\\-");
    match line.starts_with(['.', '\'']) {
        true => format!("\\&{line}"),
        false => line,
    }
}

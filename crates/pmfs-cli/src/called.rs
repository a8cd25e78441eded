//! The names by which mount(8), umount(8), fsck(8) and mkfs(8) call a file system's own
//! program: `mount.pmfs`, `umount.pmfs`, `fsck.pmfs`, `mkfs.pmfs`, and `mount.fuse.pmfs` after
//! the kernel's name of the type. Links of those names lead to `pmfs`; the arguments are turned
//! into its own here, and nothing else differs but the exit codes, which are the callers'.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use pmfs_posix::mount_options::MountOptions;

use crate::failure::Failure;

/// Under which name the program was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Name {
    Pmfs,
    Mount,
    Umount,
    Fsck,
    Mkfs,
}

/// A command line in `pmfs`'s own words.
#[derive(Debug)]
pub struct Call {
    pub name: Name,
    /// The words from the program's name on.
    pub words: Vec<OsString>,
}

impl Name {
    fn of(program: &OsStr) -> Name {
        let program = Path::new(program).file_name().unwrap_or_default();
        let command = program.as_bytes().split(|byte| *byte == b'.').next();
        let is_helper = program.as_bytes().ends_with(b".pmfs");
        match command.filter(|_| is_helper) {
            Some(b"mount") => Name::Mount,
            Some(b"umount") => Name::Umount,
            Some(b"fsck") => Name::Fsck,
            Some(b"mkfs") => Name::Mkfs,
            _ => Name::Pmfs,
        }
    }

    /// The code that the caller expects for wrong usage: mount(8) 1, fsck(8) 16.
    pub fn usage_code(self) -> u8 {
        match self {
            Name::Pmfs => 2,
            Name::Mount | Name::Umount | Name::Mkfs => 1,
            Name::Fsck => 16,
        }
    }

    /// The failure with the code that the caller expects for "not done": mount(8) 32.
    pub fn failure(self, failure: Failure) -> Failure {
        match self {
            Name::Mount | Name::Umount => failure.with_code(32),
            Name::Pmfs | Name::Fsck | Name::Mkfs => failure,
        }
    }
}

/// Turns what was typed into `pmfs`'s own words, or says why not.
pub fn call(typed: Vec<OsString>) -> Result<Call, (Name, String)> {
    let name = typed
        .first()
        .map_or(Name::Pmfs, |program| Name::of(program));
    let words = match name {
        Name::Pmfs => Ok(own(typed)),
        Name::Mount => mount(&typed[1..]),
        Name::Umount => umount(&typed[1..]),
        Name::Fsck => Ok(fsck(&typed[1..])),
        Name::Mkfs => Ok(mkfs(&typed[1..])),
    };
    words
        .map(|words| Call { name, words })
        .map_err(|wrong| (name, wrong))
}

/// fuse3's own helper runs `pmfs POOL DIR -o ...`, which means `pmfs mount`.
fn own(mut typed: Vec<OsString>) -> Vec<OsString> {
    let is_path = typed
        .get(1)
        .is_some_and(|first| first.as_bytes().contains(&b'/'));
    if is_path {
        typed.insert(1, "mount".into());
    }
    typed
}

/// `mount.pmfs POOL DIR [-sfnv] [-N NAMESPACE] [-o OPTIONS] [-t TYPE]`
fn mount(typed: &[OsString]) -> Result<Vec<OsString>, String> {
    let mut words = own_words("mount");
    words.push("--by-mount8".into());
    let parts = parts(typed, "otN");
    let sloppy = parts.contains(&Part::Flag('s'));
    words.extend(quiet(&parts));
    for part in parts {
        match part {
            Part::Flag('f') => words.push("--fake".into()),
            Part::Flag('s' | 'n' | 'v') | Part::Value('t', _) => {}
            Part::Value('o', list) if sloppy => words.extend(["-o".into(), known_only(&list)]),
            Part::Value('N', _) => return Err(NO_NAMESPACES.to_owned()),
            other => other.spell(&mut words),
        }
    }
    Ok(words)
}

/// `umount.pmfs DIR [-flnrv] [-N NAMESPACE] [-t TYPE]`
fn umount(typed: &[OsString]) -> Result<Vec<OsString>, String> {
    let mut words = own_words("umount");
    let parts = parts(typed, "tN");
    words.extend(quiet(&parts));
    for part in parts {
        match part {
            Part::Flag('l') => words.push("--lazy".into()),
            // Force is for servers that don't answer, and remounting read-only for disks.
            Part::Flag('f' | 'n' | 'r' | 'v') | Part::Value('t', _) => {}
            Part::Value('N', _) => return Err(NO_NAMESPACES.to_owned()),
            other => other.spell(&mut words),
        }
    }
    Ok(words)
}

/// `fsck.pmfs [-apynfrv] [-C FD] POOL`
fn fsck(typed: &[OsString]) -> Vec<OsString> {
    let mut words = own_words("fsck");
    for part in parts(typed, "C") {
        match part {
            // Every check is a full one, nothing is asked back, and there is no progress to show.
            Part::Flag('f' | 'r' | 'v' | 'C') | Part::Value('C', _) => {}
            other => other.spell(&mut words),
        }
    }
    words
}

/// `mkfs.pmfs [-fv] [-s SIZE] POOL [SIZE]`; as mkfs(8) has it, a bare SIZE behind the
/// pool counts KiB.
fn mkfs(typed: &[OsString]) -> Vec<OsString> {
    let mut words = own_words("mkfs");
    let mut pool_is_named = false;
    for part in parts(typed, "s") {
        match part {
            Part::Flag('v') => {}
            Part::Plain(mut size) if pool_is_named => {
                if size.as_bytes().iter().all(u8::is_ascii_digit) {
                    size.push("K");
                }
                words.extend(["--size".into(), size]);
            }
            other => {
                pool_is_named |= matches!(other, Part::Plain(_));
                other.spell(&mut words);
            }
        }
    }
    words
}

const NO_NAMESPACES: &str = "-N is not supported; run it inside, with `nsenter --mount=NAMESPACE`";

fn own_words(command: &str) -> Vec<OsString> {
    vec!["pmfs".into(), command.into()]
}

/// mount(8) and umount(8) say nothing unless asked.
fn quiet(parts: &[Part]) -> Option<OsString> {
    (!parts.contains(&Part::Flag('v'))).then(|| "--quiet".into())
}

/// `-s`, sloppy: unknown options are left out.
fn known_only(list: &OsStr) -> OsString {
    let known = |item: &&[u8]| {
        str::from_utf8(item).is_ok_and(|item| MountOptions::new(true).parse(item).is_ok())
    };
    let items: Vec<&[u8]> = list
        .as_bytes()
        .split(|byte| *byte == b',')
        .filter(known)
        .collect();
    OsString::from_vec(items.join(&b','))
}

/// A word of a command line, or a letter of a bundle.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Flag(char),
    Value(char, OsString),
    /// An option that this module does not know: `--json`, `--inodes=9`.
    Long(OsString),
    Plain(OsString),
}

impl Part {
    fn spell(self, words: &mut Vec<OsString>) {
        match self {
            Part::Flag('V') => words.splice(1.., ["--version".into()]).for_each(drop),
            Part::Flag(letter) => words.push(format!("-{letter}").into()),
            Part::Value(letter, value) => words.extend([format!("-{letter}").into(), value]),
            Part::Long(word) | Part::Plain(word) => words.push(word),
        }
    }
}

/// Takes a command line apart. `valued`: the letters that take a value, in the same
/// word or the next.
fn parts(typed: &[OsString], valued: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut words = typed.iter().peekable();
    while let Some(word) = words.next() {
        let bundle = match word.as_bytes() {
            [b'-', b'-', ..] => {
                parts.push(Part::Long(word.clone()));
                continue;
            }
            [b'-', bundle @ ..] if !bundle.is_empty() => bundle,
            _ => {
                parts.push(Part::Plain(word.clone()));
                continue;
            }
        };
        for (at, letter) in bundle.iter().map(|byte| char::from(*byte)).enumerate() {
            if !valued.contains(letter) {
                parts.push(Part::Flag(letter));
                continue;
            }
            let rest = &bundle[at + 1..];
            // fsck(8)'s -C goes without its number, too.
            let takes = |next: &&OsString| letter != 'C' || is_number(next);
            let value = match rest {
                [] => words.next_if(takes).cloned(),
                rest => Some(OsStr::from_bytes(rest).to_owned()),
            };
            parts.push(value.map_or(Part::Flag(letter), |value| Part::Value(letter, value)));
            break;
        }
    }
    parts
}

fn is_number(word: &OsStr) -> bool {
    !word.is_empty() && word.as_bytes().iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The translation of a line, with blanks between; or the error.
    fn turned(line: &str) -> String {
        match call(line.split(' ').map(OsString::from).collect()) {
            Ok(call) => call.words.join(OsStr::new(" ")).into_string().unwrap(),
            Err((_, wrong)) => wrong,
        }
    }

    #[test]
    fn pmfs_itself_keeps_its_words() {
        assert_eq!(turned("/usr/bin/pmfs mkfs -f p"), "/usr/bin/pmfs mkfs -f p");
        assert_eq!(turned("pmfs /p /d -o rw"), "pmfs mount /p /d -o rw");
        assert_eq!(turned("pmfs"), "pmfs");
        // Called what it likes.
        assert_eq!(turned("pmfs-0.1 info p"), "pmfs-0.1 info p");
    }

    #[test]
    fn mount_as_mount_8_calls_it() {
        for name in ["/sbin/mount.pmfs", "mount.fuse.pmfs"] {
            assert_eq!(
                turned(&format!("{name} /p /d -o rw,noatime")),
                "pmfs mount --by-mount8 --quiet /p /d -o rw,noatime"
            );
        }
        assert_eq!(
            turned("mount.pmfs /p /d -s -f -n -v -o rw,lazytime,user -t fuse.pmfs"),
            "pmfs mount --by-mount8 /p /d --fake -o rw,user"
        );
        assert_eq!(
            turned("mount.pmfs -fno ro,nonsense /p /d"),
            "pmfs mount --by-mount8 --quiet --fake -o ro,nonsense /p /d"
        );
        assert!(turned("mount.pmfs /p /d -N /proc/1/ns/mnt").contains("nsenter"));
        assert_eq!(turned("mount.pmfs -V"), "pmfs --version");
        assert_eq!(
            turned("mount.pmfs --json /p /d -v"),
            "pmfs mount --by-mount8 --json /p /d"
        );
    }

    #[test]
    fn umount_as_umount_8_calls_it() {
        assert_eq!(
            turned("/sbin/umount.fuse.pmfs /d -l -n -r -t fuse.pmfs"),
            "pmfs umount --quiet /d --lazy"
        );
        assert_eq!(turned("umount.pmfs -v /d"), "pmfs umount /d");
    }

    #[test]
    fn fsck_as_fsck_8_calls_it() {
        assert_eq!(turned("fsck.pmfs -a -C0 /p"), "pmfs fsck -a /p");
        assert_eq!(turned("fsck.pmfs -y -f -r -C 3 /p"), "pmfs fsck -y /p");
        assert_eq!(turned("fsck.pmfs -pC /p"), "pmfs fsck -p /p");
        assert_eq!(turned("fsck.pmfs -n --json /p"), "pmfs fsck -n --json /p");
    }

    #[test]
    fn mkfs_as_mkfs_8_calls_it() {
        assert_eq!(turned("mkfs.pmfs -v -f /p"), "pmfs mkfs -f /p");
        assert_eq!(turned("mkfs.pmfs /p 65536"), "pmfs mkfs /p --size 65536K");
        assert_eq!(turned("mkfs.pmfs /p 1.5G"), "pmfs mkfs /p --size 1.5G");
        assert_eq!(turned("mkfs.pmfs -s 1G /p"), "pmfs mkfs -s 1G /p");
    }

    #[test]
    fn odd_lines_do_no_harm() {
        assert_eq!(turned("mount.pmfs"), "pmfs mount --by-mount8 --quiet");
        assert_eq!(turned("mount.pmfs -o"), "pmfs mount --by-mount8 --quiet -o");
        assert_eq!(turned("mkfs.pmfs - -"), "pmfs mkfs - --size -");
    }
}

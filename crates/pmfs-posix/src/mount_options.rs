//! The `-o` options of a mount, and of a run. Each is named once, in [`KNOWN`]; the parser, the
//! error for an unknown name and the help text all read that list.

use pmfs::{AtimeMode, DataMode, Emulation, FlushMode, LargePages};
use pmfs::{MapOptions, OpenOptions, ProtectMode, Stalled};
use thiserror::Error;

/// The errors of `-o`. Each message names the cause and a way out.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum OptionError {
    /// An unknown option.
    #[error("unknown mount option '{name}'; the options are {known}")]
    Unknown {
        /// The option that was given.
        name: String,
        /// All of them, for the message.
        known: String,
    },
    /// An option with a value that it can't take.
    #[error("mount option '{name}' can't be '{value}'; use {expected}")]
    Bad {
        /// The option.
        name: &'static str,
        /// The value that was given.
        value: String,
        /// The values that the option takes.
        expected: &'static str,
    },
    /// An option that `pmfs run` has no use for.
    #[error("option '{name}' is for mounts alone; leave it out, or give it to `pmfs mount`")]
    OfMountAlone {
        /// The option that was given.
        name: String,
    },
}

/// The options of a mount.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Refuse every change.
    pub read_only: bool,
    /// Let other users in; permissions are checked all the same.
    pub allow_other: bool,
    /// Honour set-user-id and set-group-id bits.
    pub suid: bool,
    /// Honour device nodes.
    pub dev: bool,
    /// Let programs be run from the mount.
    pub exec: bool,
    /// The reads that update atime.
    pub atime: AtimeMode,
    /// Reading a directory leaves its atime alone.
    pub nodiratime: bool,
    /// The promise of a write across a crash.
    pub data: DataMode,
    /// The files that take large pages.
    pub large: LargePages,
    /// The flush mode where the medium can't outlive power.
    pub flush: FlushMode,
    /// msync at each barrier, for a pool in a plain file.
    pub durable: bool,
    /// The slower medium to emulate.
    pub emulate: Emulation,
    /// The protection of the pool against stray stores of the daemon.
    pub protect: ProtectMode,
    /// When the kernel may remember names and attributes.
    pub remember: Remember,
    /// When files are read and written through the kernel's pages.
    pub paged: Paged,
    /// The treatment of a process that holds a lock of the pool and does not run.
    pub stalled: Stalled,
    /// Change the flags of a mount that is there.
    pub remount: bool,
}

/// When the kernel may remember names and attributes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Remember {
    /// For a moment, while no other process has the pool (`pmfs_fuse::lease`).
    #[default]
    Alone,
    /// Nothing is remembered.
    Never,
    /// For a second. Sound only while no other process changes the pool: no second mount, no
    /// program that uses the library.
    Always,
}

/// When files that may be mapped are read and written through the kernel's pages. Such a
/// write that crosses from one page to another may come in two parts, each atomic for itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Paged {
    /// Only where the kernel can't map them otherwise: before Linux 6.6.
    #[default]
    Auto,
    /// Never: there they can't be mapped.
    Never,
    /// Pages are used on any kernel.
    Always,
}

impl MountOptions {
    /// The defaults. `root`: root mounts, and `allow_other` is the default.
    #[must_use]
    pub fn new(root: bool) -> MountOptions {
        MountOptions {
            read_only: false,
            allow_other: root,
            suid: false,
            dev: false,
            exec: true,
            atime: AtimeMode::default(),
            nodiratime: false,
            data: DataMode::default(),
            large: LargePages::default(),
            flush: FlushMode::default(),
            durable: false,
            emulate: Emulation::OFF,
            protect: ProtectMode::default(),
            remember: Remember::default(),
            paged: Paged::default(),
            stalled: Stalled::default(),
            remount: false,
        }
    }

    /// Takes in one `-o` argument: names and `name=value` pairs with commas between; of two that
    /// contradict each other the later holds.
    ///
    /// # Errors
    /// [`OptionError::Unknown`], [`OptionError::Bad`].
    pub fn parse(&mut self, list: &str) -> Result<(), OptionError> {
        for item in list.split(',').filter(|item| !item.is_empty()) {
            if is_someone_elses(item) {
                continue;
            }
            let (name, value) = match item.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (item, None),
            };
            let known = KNOWN
                .iter()
                .find(|known| known.name == name && known.values.is_some() == value.is_some())
                .ok_or_else(|| OptionError::Unknown {
                    name: item.to_owned(),
                    known: known_names(),
                })?;
            if !(known.apply)(self, value.unwrap_or_default()) {
                return Err(OptionError::Bad {
                    name: known.name,
                    value: value.unwrap_or_default().to_owned(),
                    expected: known.values.unwrap_or_default(),
                });
            }
        }
        Ok(())
    }

    /// Parses as [`MountOptions::parse`] does, for a run: it changes no mount, and is in no table
    /// (fstab(5)).
    ///
    /// # Errors
    /// Those of [`MountOptions::parse`], and [`OptionError::OfMountAlone`].
    pub fn parse_for_run(&mut self, list: &str) -> Result<(), OptionError> {
        let mut items = list.split(',');
        match items.find(|item| *item == REMOUNT || is_someone_elses(item)) {
            Some(name) => Err(OptionError::OfMountAlone {
                name: name.to_owned(),
            }),
            None => self.parse(list),
        }
    }

    /// The engine's options. `ro` refuses changes; the pool is mapped for writing all the same,
    /// because recovery, and the table of open files, write to it.
    #[must_use]
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions {
            read_only: self.read_only,
            data: self.data,
            large: self.large,
            atime: self.atime,
            nodiratime: self.nodiratime,
            stalled: self.stalled,
            map: MapOptions {
                read_only: false,
                flush: self.flush,
                durable: self.durable,
                emulate: self.emulate,
                protect: self.protect,
                ..MapOptions::default()
            },
            ..OpenOptions::default()
        }
    }
}

const REMOUNT: &str = "remount";

/// Options that mount(8) adds by itself, from fstab and, at a remount, from the kernel's table:
/// words, and beginnings of words.
const SOMEONE_ELSES: &[&str] = &[
    "defaults",
    "auto",
    "noauto",
    "nofail",
    "_netdev",
    "user",
    "users",
    "nouser",
    "owner",
    "group",
    "user=",
    "uhelper=",
    "comment=",
    "x-",
    "X-",
    "user_id=",
    "group_id=",
];

/// An option: its name, its values (`None`: it takes none), its purpose and its effect.
pub struct Known {
    /// The name that is typed.
    pub name: &'static str,
    /// "a or b", for the ones of the form `name=value`.
    pub values: Option<&'static str>,
    /// A few words for the help text.
    pub about: &'static str,
    apply: fn(&mut MountOptions, &str) -> bool,
}

macro_rules! switch {
    ($name:expr, $about:literal, $field:ident = $value:expr) => {
        Known {
            name: $name,
            values: None,
            about: $about,
            apply: |options, _| {
                options.$field = $value;
                true
            },
        }
    };
}

/// Options that always hold, accepted because programs and tables give them.
macro_rules! always {
    ($name:literal, $about:literal) => {
        Known {
            name: $name,
            values: None,
            about: $about,
            apply: |_, _| true,
        }
    };
}

/// Every option there is.
pub const KNOWN: &[Known] = &[
    switch!("rw", "reading and writing (default)", read_only = false),
    switch!("ro", "refuse every change", read_only = true),
    switch!(
        "allow_other",
        "admit other users (root's default)",
        allow_other = true
    ),
    switch!(
        "noallow_other",
        "only the user who mounts",
        allow_other = false
    ),
    always!(
        "default_permissions",
        "the kernel checks permissions (always on)"
    ),
    switch!(
        "relatime",
        "update atime if older than mtime or a day (default)",
        atime = AtimeMode::Relatime
    ),
    switch!("noatime", "never update atime", atime = AtimeMode::Noatime),
    switch!(
        "strictatime",
        "update atime at each read",
        atime = AtimeMode::Strictatime
    ),
    switch!(
        "nodiratime",
        "leave the atime of directories alone",
        nodiratime = true
    ),
    switch!(
        "diratime",
        "treat directories as files (default)",
        nodiratime = false
    ),
    always!(
        "sync",
        "changes are durable when a call returns (always on)"
    ),
    always!("dirsync", "so are changes of directories (always on)"),
    always!(
        "async",
        "accepted, without effect: a call that returns is durable"
    ),
    Known {
        name: "data",
        values: Some("atomic or ordered"),
        about: "atomic: a write is all or nothing (default); ordered: faster",
        apply: |options, value| {
            options.data = match value {
                "atomic" => DataMode::Atomic,
                "ordered" => DataMode::Ordered,
                _ => return false,
            };
            true
        },
    },
    Known {
        name: "large",
        values: Some("never or grow or always"),
        about: "2 MiB pages: for files that grow beyond 16 MiB (grow, default); beyond 2 MiB, and in space that truncate adds (always)",
        apply: |options, value| {
            options.large = match value {
                "never" => LargePages::Never,
                "grow" => LargePages::Grow,
                "always" => LargePages::Always,
                _ => return false,
            };
            true
        },
    },
    Known {
        name: "stalled",
        values: Some("wait or kill"),
        about: "a process that is stopped in a call and holds up others: wait and name it (default); kill it",
        apply: |options, value| {
            options.stalled = match value {
                "wait" => Stalled::Wait,
                "kill" => Stalled::Kill,
                _ => return false,
            };
            true
        },
    },
    Known {
        name: "flush",
        values: Some("auto or always"),
        about: "auto: no flushes where the medium can't outlive power (default)",
        apply: |options, value| value.parse().map(|flush| options.flush = flush).is_ok(),
    },
    switch!(
        "durable",
        "plain files: msync at each barrier (slow)",
        durable = true
    ),
    Known {
        name: "emulate",
        values: Some(
            "pmep-2014 or optane-100 or cxl-nvcmm or read=300ns:barrier=100ns:write-bandwidth=9.5G or device:optane-100:dimms=6",
        ),
        about: "as --emulate, with colons in place of commas",
        apply: |options, value| value.parse().map(|medium| options.emulate = medium).is_ok(),
    },
    Known {
        name: "protect",
        values: Some("auto or none or keys or pages"),
        about: "as --protect",
        apply: |options, value| value.parse().map(|mode| options.protect = mode).is_ok(),
    },
    switch!(
        "cache",
        "cache names and attributes for a second; others' changes are seen late",
        remember = Remember::Always
    ),
    switch!(
        "nocache",
        "each lookup asks the daemon (default while others have the pool)",
        remember = Remember::Never
    ),
    Known {
        name: "paged",
        values: Some("auto or never or always"),
        about: "use the kernel's pages for files that need them to be mapped, before Linux 6.6 (auto, default); for none, and these can't be mapped (never); for all",
        apply: |options, value| {
            options.paged = match value {
                "auto" => Paged::Auto,
                "never" => Paged::Never,
                "always" => Paged::Always,
                _ => return false,
            };
            true
        },
    },
    switch!(
        "suid",
        "honour set-id bits (only a pool of root's)",
        suid = true
    ),
    switch!("nosuid", "ignore them (default)", suid = false),
    switch!(
        "dev",
        "honour device nodes (only a pool of root's)",
        dev = true
    ),
    switch!("nodev", "ignore them (default)", dev = false),
    switch!("exec", "programs may be run (default)", exec = true),
    switch!("noexec", "programs may not be run", exec = false),
    switch!(
        REMOUNT,
        "change ro, noatime, suid, dev or exec of an existing mount",
        remount = true
    ),
];

fn is_someone_elses(item: &str) -> bool {
    SOMEONE_ELSES
        .iter()
        .any(|known| match known.ends_with(['=', '-']) {
            true => item.starts_with(known),
            false => item == *known,
        })
}

fn known_names() -> String {
    let names: Vec<String> = KNOWN
        .iter()
        .map(|known| match known.values {
            Some(values) => format!("{}={}", known.name, values.replace(" or ", "|")),
            None => known.name.to_owned(),
        })
        .collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn later_wins_and_lists_add_up() {
        let mut options = MountOptions::new(true);
        options.parse("ro,noatime,data=ordered").unwrap();
        options
            .parse("defaults,rw,,noexec,flush=always,durable,user_id=0,x-mount.mkdir,user,nofail")
            .unwrap();
        assert!(!options.read_only && !options.exec && options.durable && options.allow_other);
        assert_eq!(options.atime, AtimeMode::Noatime);
        assert_eq!(options.data, DataMode::Ordered);
        assert_eq!(options.flush, FlushMode::Always);
    }

    #[test]
    fn unknown_names_are_answered_with_the_known() {
        for bad in ["nonsense", "ro=1", "data", "sync=1", "auto_unmount"] {
            let error = MountOptions::new(false).parse(bad).unwrap_err().to_string();
            assert!(
                error.contains(bad) && error.contains("data=atomic|ordered"),
                "{error}"
            );
        }
        let error = MountOptions::new(false)
            .parse("data=fast")
            .unwrap_err()
            .to_string();
        assert!(error.contains("atomic or ordered"), "{error}");
    }

    /// Goal: a run takes what a mount takes, but for remounts and what tables of mounts say.
    #[test]
    fn some_options_are_a_mounts_alone() {
        let alone = [
            "remount",
            "defaults",
            "nofail",
            "x-mount.mkdir",
            "user_id=0",
        ];
        for known in KNOWN {
            let value = known.values.map(|values| values.split(" or ").next());
            let item = match value.flatten() {
                Some(value) => format!("{}={value}", known.name),
                None => known.name.to_owned(),
            };
            let parsed = MountOptions::new(true).parse_for_run(&item);
            assert_eq!(parsed.is_ok(), !alone.contains(&known.name), "{item}");
        }
        for item in alone {
            let list = format!("ro,{item},noatime");
            MountOptions::new(true).parse(&list).unwrap();
            let error = MountOptions::new(true).parse_for_run(&list).unwrap_err();
            assert!(error.to_string().contains(&format!("'{item}'")), "{error}");
        }
    }

    #[test]
    fn what_holds_anyway_changes_nothing() {
        let mut options = MountOptions::new(false);
        let before = options.clone();
        options
            .parse("sync,dirsync,async,diratime,default_permissions,rw,relatime,nosuid,nodev,exec")
            .unwrap();
        assert_eq!(options, before);
        options.parse("noatime,strictatime,nodiratime").unwrap();
        assert!(options.open_options().nodiratime);
        assert_eq!(options.atime, AtimeMode::Strictatime);
        assert_eq!(options.open_options().atime, AtimeMode::Strictatime);
    }

    /// The engine's options, without those that no mount option changes.
    fn told(options: &OpenOptions) -> impl PartialEq + std::fmt::Debug + use<> {
        let how = (
            options.read_only,
            options.data,
            options.large,
            options.stalled,
        );
        (how, options.atime, options.nodiratime, options.map)
    }

    /// Goal: no option gets lost on its way to the library of `pmfs run`. Method: each
    /// value of each one goes there as words.
    #[test]
    fn options_reach_programs() {
        for known in KNOWN {
            for value in known
                .values
                .map_or(vec![""], |values| values.split(" or ").collect())
            {
                let mut options = MountOptions::new(true);
                assert!((known.apply)(&mut options, value), "{}={value}", known.name);
                let open = options.open_options();
                let words = crate::options::to_words(&open);
                let again = crate::options::from_words(&words).unwrap();
                assert_eq!(told(&open), told(&again), "{}={value}: {words}", known.name);
            }
        }
    }

    #[test]
    fn options_reach_the_engine() {
        let mut options = MountOptions::new(false);
        options
            .parse("ro,data=ordered,noatime,flush=always,durable,protect=pages")
            .unwrap();
        let open = options.open_options();
        assert!(open.read_only && open.map.durable);
        assert_eq!(open.map.flush, FlushMode::Always);
        assert_eq!(open.map.protect, ProtectMode::Pages);
        assert_eq!(open.data, DataMode::Ordered);
        assert_eq!(open.atime, AtimeMode::Noatime);
    }
}

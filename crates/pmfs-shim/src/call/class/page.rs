//! docs/CALLS.md, the list of every system call, generated from the lists here and compared with
//! them.

use super::*;

const HEAD: &str = "# Every system call, below `pmfs run`

Generated from the library's lists (`crates/pmfs-shim/src/call/class.rs`) by
`PMFS_WRITE_PAGE=1 cargo test -p pmfs-shim page`. [SEMANTICS](SEMANTICS.md#below-pmfs-run) describes how served calls
behave.

- *served*: the library handles the call if it concerns the pool: its paths, descriptors or mappings. Otherwise the kernel
  handles it.
- *passed*: the kernel handles the call, for the reason given.
- *promoted*: the kernel handles the call, on a descriptor of the mount in place of one of the pool's. Without a mount the
  call fails with ENOSYS (EOPNOTSUPP for file handles, `file_getattr` and `file_setattr`).
- *refused*: the call fails with the error given.
- Any other number, such as a call newer than this page, fails with ENOSYS if its first argument is a descriptor of the
  pool. Otherwise the kernel handles it.

The calls of each treatment, with their numbers:
";

/// Served calls that are always refused.
const REFUSED: &[(i64, &str)] = &[
    (libc::SYS_getdents, "ENOSYS for a directory of the pool"),
    (libc::SYS_io_uring_setup, "ENOSYS"),
];

/// Each call by its number, with its treatment.
fn all() -> Vec<(i64, &'static str, String)> {
    let mut all = Vec::new();
    let served = "served".to_owned();
    for (number, name) in SERVED.into_iter().flatten() {
        let refused = REFUSED.iter().find(|(other, _)| other == number);
        let words = refused.map_or(served.clone(), |(_, how)| format!("refused: {how}"));
        all.push((*number, *name, words));
    }
    let plain = [WITHOUT_DESCRIPTORS, WITH_MEMORY];
    for (number, name) in plain.into_iter().flatten() {
        all.push((*number, *name, "passed: does not concern files".to_owned()));
    }
    for passed in PASSED {
        for (number, name) in passed.calls {
            all.push((*number, *name, format!("passed: {}", passed.why)));
        }
    }
    for (number, name, which) in PROMOTED {
        let which: Vec<String> = which.iter().map(|at| format!("{}", at + 1)).collect();
        let words = format!("promoted: argument {}", which.join(" and "));
        all.push((*number, *name, words));
    }
    all.sort();
    all
}

fn page() -> String {
    let mut treatments: Vec<(String, Vec<String>)> = Vec::new();
    for (number, name, words) in all() {
        let name = match number {
            // This number is the library's own, for its work at a fault.
            libc::SYS_vserver => continue,
            _ => format!("{} {number}", name.trim_start_matches("SYS_")),
        };
        match treatments.iter_mut().find(|(other, _)| *other == words) {
            Some((_, names)) => names.push(name),
            None => treatments.push((words, vec![name])),
        }
    }
    let mut page = HEAD.to_owned();
    for (words, names) in treatments {
        let (treatment, why) = words.split_once(": ").unwrap_or((&words, ""));
        let why = match why {
            "" => String::new(),
            _ => format!(": {why}"),
        };
        page += &format!("\n**{treatment}**{why}\n\n{}.\n", names.join(", "));
    }
    page
}

/// Goal: no call is in two lists, of which the last would win.
#[test]
fn each_call_is_listed_once() {
    let all = all();
    for pair in all.windows(2) {
        assert_ne!(pair[0].0, pair[1].0, "{} and {}", pair[0].1, pair[1].1);
    }
}

#[test]
fn calls_have_names() {
    for (number, with_prefix, _) in all() {
        assert_eq!(name(number), &with_prefix[4..]);
    }
    for number in [-1, 400, 511, 512, i64::MAX] {
        assert_eq!(name(number), "?");
    }
}

/// Goal: each call listed as served has an arm; the calls about identity share one.
#[test]
fn served_calls_have_an_arm() {
    const IDENTITY: &str =
        "setuid setgid setreuid setregid setresuid setresgid setfsuid setfsgid setgroups capset";
    let arms = [
        include_str!("../../entry/dispatch.rs"),
        include_str!("../../process/mod.rs"),
    ]
    .concat();
    // These calls are handled at faults.
    let others = ["SYS_getdents", "SYS_vserver"];
    for (_, name) in SERVED.into_iter().flatten() {
        let has = |end: &str| arms.contains(&format!("{name}{end}"));
        let served = [" ", ")", ",", "\n"].into_iter().any(has)
            || IDENTITY.split(' ').any(|it| it == &name[4..])
            || others.contains(name);
        assert!(served, "{name}");
    }
}

#[test]
fn page_is_up_to_date() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/CALLS.md");
    if std::env::var_os("PMFS_WRITE_PAGE").is_some() {
        std::fs::write(path, page()).expect("the page is written");
    }
    let there = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        there == page(),
        "write it: PMFS_WRITE_PAGE=1 cargo test -p pmfs-shim page"
    );
}

/// Every call up to this number is known. A call that a later kernel adds is refused until it is
/// listed.
const KNOWN_MAX: i64 = 469;

/// Smaller numbers for which no kernel has a call.
fn is_no_call(number: i64) -> bool {
    (337..424).contains(&number)
}

#[test]
fn no_number_is_unknown() {
    let known: Vec<i64> = all().iter().map(|(number, ..)| *number).collect();
    let unknown = |number: &i64| !known.contains(number) && !is_no_call(*number);
    let unknown: Vec<i64> = (0..=KNOWN_MAX).filter(unknown).collect();
    assert_eq!(unknown, []);
}

/// Goal: the lists contain each call of the running kernel, by name.
#[test]
fn the_kernels_calls_are_known() {
    let symbols = std::fs::read_to_string("/proc/kallsyms").unwrap_or_default();
    let listed: Vec<&str> = all().iter().map(|(_, name, _)| &name[4..]).collect();
    let mut count = 0;
    for line in symbols.lines() {
        let Some(name) = line.split(" __x64_sys_").nth(1) else {
            continue;
        };
        let name = name.split(['.', '\t']).next().unwrap_or_default();
        count += 1;
        assert!(listed.contains(&name) || is_of_others(name), "{name}");
    }
    if count == 0 {
        eprintln!("skipped: /proc/kallsyms does not list the kernel's calls");
    }
}

/// Calls of 32-bit programs and other processors that the kernel names all the same, and calls with
/// another name here.
const OF_OTHERS: &str = "gethostname ipc llseek mmap_pgoff newfstat newlstat newstat newuname ni_syscall nice recv rtas send \
    sendfile64 sgetmask signal sigpending sigprocmask sigsuspend socketcall ssetmask stime subpage_prot sync_file_range2 umount \
    vm86 waitpid fadvise64_64 fstatfs64 statfs64";

fn is_of_others(name: &str) -> bool {
    let begins = ["ia32_", "old", "s390_", "pciconfig_", "spu_"];
    let ends = ["16", "32", "old"];
    OF_OTHERS.split(' ').any(|other| other == name)
        || begins.iter().any(|begin| name.starts_with(begin))
        || ends.iter().any(|end| name.ends_with(end))
}

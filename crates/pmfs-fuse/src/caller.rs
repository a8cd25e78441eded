//! The user behind a request, for the checks that the kernel leaves to the daemon.
//!
//! A request does not say whether the caller may list `trusted.` attributes, nor whether it is in
//! the group of a file. Groups and capabilities are therefore read from /proc: the caller waits for
//! the answer, so its thread is there. A caller that can't be read has no other groups, and
//! capabilities if it is root.
//!
//! Nor does a request have the flags of `pwritev2(2)`, which are arguments of the system call that
//! the caller waits in.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use linux_raw_sys::general::{
    __NR_pwrite64, __NR_pwritev, __NR_pwritev2, __NR_sendfile, __NR_splice, __NR_write,
    __NR_writev, RWF_APPEND,
};
use pmfs_posix::Subject;

pub use pmfs_posix::capability::SYS_ADMIN;

/// A flag of `linux/fs.h`, since Linux 6.9.
const RWF_NOAPPEND: u32 = 0x20;

/// The longest time for a caller to fall asleep in its system call on a busy machine, and the time
/// from one check to the next.
const PATIENCE: Duration = Duration::from_secs(1);
const NAP_MIN: Duration = Duration::from_micros(10);
const NAP_MAX: Duration = Duration::from_millis(2);

/// The thread behind a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// The caller's file system user.
    pub uid: u32,
    /// The caller's file system group.
    pub gid: u32,
    /// The caller's number, or 0 if it lives in a PID namespace that this process can't see.
    pub pid: u32,
}

impl Caller {
    /// Returns whether it has the capability in effect.
    #[must_use]
    pub fn has_capability(&self, capability: u32) -> bool {
        self.known().has(capability)
    }

    /// The facts about the caller, read once.
    #[must_use]
    pub fn known(&self) -> Known {
        Known {
            caller: *self,
            status: self.status(),
        }
    }

    /// Returns whether the caller's write, to a file opened with O_APPEND or not, is to go to the
    /// end. `None`: unknown, as of a caller that uses io_uring or libaio, or may not be inspected.
    #[must_use]
    pub fn appends(&self, is_opened_so: bool) -> Option<bool> {
        let began = Instant::now();
        let mut nap = NAP_MIN;
        loop {
            let syscall = self.read("syscall")?;
            if !syscall.starts_with("running") || began.elapsed() > PATIENCE {
                return appends(&syscall, is_opened_so);
            }
            // The caller has sent the request, and is about to sleep until the answer.
            thread::sleep(nap);
            nap = (nap * 2).min(NAP_MAX);
        }
    }

    fn status(&self) -> Option<String> {
        self.read("status")
    }

    fn read(&self, name: &str) -> Option<String> {
        if self.pid == 0 {
            return None;
        }
        fs::read_to_string(format!("/proc/{}/{name}", self.pid)).ok()
    }
}

/// `/proc/PID/syscall`, proc_pid_syscall(5): the number, and six arguments in hexadecimal.
fn appends(syscall: &str, is_opened_so: bool) -> Option<bool> {
    /// Without flags.
    const WRITES: [u32; 6] = [
        __NR_write,
        __NR_pwrite64,
        __NR_writev,
        __NR_pwritev,
        __NR_sendfile,
        __NR_splice,
    ];
    /// The number of the argument that has the flags.
    const FLAGS: usize = 5;
    let mut fields = syscall.split_whitespace();
    let number: u32 = fields.next()?.parse().ok()?;
    if WRITES.contains(&number) {
        return Some(is_opened_so);
    }
    if number != __NR_pwritev2 {
        return None;
    }
    let flags = fields.nth(FLAGS)?.strip_prefix("0x")?;
    let flags = u64::from_str_radix(flags, 16).ok()?;
    let has = |flag: u32| flags & u64::from(flag) != 0;
    Some(has(RWF_APPEND) || is_opened_so && !has(RWF_NOAPPEND))
}

/// A caller, with what /proc says of it.
pub struct Known {
    caller: Caller,
    status: Option<String>,
}

impl Subject for Known {
    fn user(&self) -> u32 {
        self.caller.uid
    }

    fn is_in(&self, group: u32) -> bool {
        let listed = |status: &String| groups(status, group);
        self.caller.gid == group || self.status.as_ref().is_some_and(listed)
    }

    fn has(&self, capability: u32) -> bool {
        let effective = self.status.as_deref().and_then(effective);
        effective.map_or(self.caller.uid == 0, |set| set >> capability & 1 != 0)
    }
}

/// The value of a line of proc_pid_status(5).
fn field<'a>(status: &'a str, name: &str) -> Option<&'a str> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    line?.strip_prefix(':')
}

fn groups(status: &str, gid: u32) -> bool {
    let list = field(status, "Groups").unwrap_or_default();
    list.split_whitespace()
        .any(|group| group.parse() == Ok(gid))
}

fn effective(status: &str) -> Option<u64> {
    u64::from_str_radix(field(status, "CapEff")?.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const STATUS: &str =
        "Name:\tcat\nGid:\t7\t7\t7\t7\nGroups:\t4 24 1000 \nCapEff:\t0000000000000010\n";

    #[test]
    fn what_the_kernel_writes_is_understood() {
        assert!(groups(STATUS, 24) && groups(STATUS, 1000));
        assert!(!groups(STATUS, 2) && !groups(STATUS, 7));
        assert_eq!(effective(STATUS), Some(1 << 4));
        assert_eq!(effective("Name:\tcat\n"), None);
    }

    #[test]
    fn what_a_writer_asks_for() {
        let write = |number: u32, flags: u32| {
            format!("{number} 0x3 0x7ff0 0x1 0x0 0x0 {flags:#x} 0x7fff 0x7f9a\n")
        };
        let both = |line: &str| [false, true].map(|opened| appends(line, opened));
        let as_opened = [Some(false), Some(true)];
        assert_eq!(both(&write(__NR_write, 0x10)), as_opened);
        assert_eq!(both(&write(__NR_pwritev2, 0)), as_opened);
        assert_eq!(both(&write(__NR_pwritev2, RWF_APPEND)), [Some(true); 2]);
        assert_eq!(both(&write(__NR_pwritev2, RWF_NOAPPEND)), [Some(false); 2]);
        // io_uring_enter; a thread of io_uring; one that runs.
        for other in [
            "426 0x3 0x1 0x1 0x1 0x0 0x8 0x7fff 0x7f9a",
            "-1 0x0 0x0",
            "running",
            "",
        ] {
            assert_eq!(both(other), [None; 2]);
        }
    }

    #[test]
    fn one_that_can_not_be_seen() {
        let hidden = |uid| Caller {
            uid,
            gid: 5,
            pid: 0,
        };
        assert!(hidden(1).known().is_in(5) && !hidden(1).known().is_in(6));
        assert!(!hidden(1).has_capability(SYS_ADMIN) && hidden(0).has_capability(SYS_ADMIN));
        let me = Caller {
            pid: std::process::id(),
            ..hidden(1)
        };
        assert!(
            me.status()
                .is_some_and(|status| effective(&status).is_some())
        );
    }
}

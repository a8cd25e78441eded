//! Who made a request, as far as the kernel leaves something to be judged here.
//!
//! It never says who may list `trusted.` attributes, nor who is in the group of a file that is written to.
//! Groups and capabilities are therefore read from /proc: the caller waits for the answer, so its thread is
//! there. Where it can't be read the caller has no other groups, and capabilities if it is root.

use std::fs;

/// CAP_SYS_ADMIN of capabilities(7).
pub const SYS_ADMIN: u32 = 21;

/// The thread behind a request.
#[derive(Clone, Copy, Debug)]
pub struct Caller {
    /// Its file system user.
    pub uid: u32,
    /// Its file system group.
    pub gid: u32,
    /// Its number, or 0 if it lives in a PID namespace that this process can't see.
    pub pid: u32,
}

impl Caller {
    /// Whether it is in the group.
    #[must_use]
    pub fn is_in_group(&self, gid: u32) -> bool {
        self.gid == gid || self.status().is_some_and(|status| groups(&status, gid))
    }

    /// Whether it has the capability in effect.
    #[must_use]
    pub fn has_capability(&self, capability: u32) -> bool {
        let status = self.status();
        let effective = status.as_deref().and_then(effective);
        effective.map_or(self.uid == 0, |set| set >> capability & 1 != 0)
    }

    fn status(&self) -> Option<String> {
        if self.pid == 0 {
            return None;
        }
        fs::read_to_string(format!("/proc/{}/status", self.pid)).ok()
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
    fn one_that_can_not_be_seen() {
        let hidden = |uid| Caller {
            uid,
            gid: 5,
            pid: 0,
        };
        assert!(hidden(1).is_in_group(5) && !hidden(1).is_in_group(6));
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

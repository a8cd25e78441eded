//! Properties of a program before it starts: whether it can load this library
//! (docs/adr/0046-exec-targets.md).

use libc::{AT_EMPTY_PATH, AT_FDCWD, O_CLOEXEC, O_RDONLY};

use crate::call::kernel_answer;
use crate::descriptors::spare;
use crate::loading;
use crate::loading::Loading;
use crate::names;
use crate::own::kernel::{self, PATH};
use crate::program::credentials;

/// The depth to which the kernel follows scripts run by scripts.
pub(crate) const SCRIPTS_MAX: u32 = 5;

/// A program.
pub(crate) struct Target {
    /// It loads this library: open files are handed over, not promoted.
    pub has_library: bool,
    /// Its environment may have the variables for this library: even if it does not load the
    /// library, programs that it starts may.
    pub takes_variables: bool,
    /// The library that it must load first.
    first: Option<Vec<u8>>,
    /// The reason for not loading the library.
    pub why: &'static str,
}

impl Target {
    pub const WITHOUT: Target = Target {
        has_library: false,
        takes_variables: false,
        first: None,
        why: "has another loader, or is Go's",
    };

    /// The program at a path, which ends with NUL; `None` if it can't be read.
    pub fn of(dirfd: u64, path: Option<&[u8]>, flags: u64) -> Target {
        if names::are_the_kernels() {
            // Under another root, or with other mounts, the library, the pool and its directory may
            // be other ones.
            return Target {
                why: "has another root, or other mounts",
                ..Target::WITHOUT
            };
        }
        // The loader ignores the variable where users differ, and removes it.
        let differ = !credentials::ids_agree();
        let mut next = open(dirfd, path, flags);
        let mut target = Target {
            has_library: !differ,
            takes_variables: true,
            first: None,
            why: "runs with other rights than its caller",
        };
        for _ in 0..SCRIPTS_MAX {
            let Some(file) = next.take() else {
                // The kernel gives the error.
                return target;
            };
            let changes_user = file.changes_user();
            match file.loading() {
                Loading::Preloads(first) => {
                    target.has_library &= !changes_user;
                    target.first = first;
                    return target;
                }
                Loading::Static => {
                    target.has_library = false;
                    target.why = "is linked statically";
                    return target;
                }
                Loading::Foreign => return Target::WITHOUT,
                Loading::Script(mut path, _) => {
                    path.push(0);
                    next = open(AT_FDCWD as u64, Some(&path), 0);
                }
            }
        }
        target
    }

    /// The start of its list of preloaded libraries.
    pub fn preload(&self, library: &[u8]) -> Vec<u8> {
        if !self.takes_variables {
            return Vec::new();
        }
        match &self.first {
            Some(first) => [first, &b":"[..], library].concat(),
            None => library.to_vec(),
        }
    }
}

/// An open program.
pub(crate) struct File(u64);

impl Drop for File {
    fn drop(&mut self) {
        kernel::plain(libc::SYS_close, &[self.0]);
    }
}

pub(crate) fn open(dirfd: u64, path: Option<&[u8]>, flags: u64) -> Option<File> {
    let path = path?;
    let how = (O_RDONLY | O_CLOEXEC) as u64;
    let own;
    let (dirfd, path) = if path == b"\0" && flags & AT_EMPTY_PATH as u64 != 0 {
        // This includes files opened with O_PATH.
        own = format!("/proc/self/fd/{}\0", dirfd as i32);
        (AT_FDCWD as u64, own.as_bytes())
    } else {
        (dirfd, path)
    };
    let args = [dirfd, PATH, how, 0, 0, 0];
    let open = || kernel_answer(kernel::with_path(libc::SYS_openat, args, path));
    spare::retry(open).ok().map(File)
}

impl File {
    /// Returns whether its file makes it run as another user, or with more rights. Whether the
    /// kernel respects that at its place is not checked: at worst the program gets the mount's
    /// descriptors.
    fn changes_user(&self) -> bool {
        // SAFETY: a structure of numbers.
        let mut stat: libc::stat = unsafe { std::mem::zeroed() };
        let to = (&raw mut stat).expose_provenance() as u64;
        // SAFETY: the kernel fills the structure.
        unsafe { kernel::call(libc::SYS_fstat, [self.0, to, 0, 0, 0, 0]) };
        let stat = std::hint::black_box(stat);
        if stat.st_mode & (libc::S_ISUID | libc::S_ISGID) != 0 {
            return true;
        }
        let args = [self.0, PATH, 0, 0, 0, 0];
        kernel::with_path(libc::SYS_fgetxattr, args, b"security.capability\0") > 0
    }

    pub fn loading(&self) -> Loading {
        loading::of(|at, bytes| {
            let to = bytes.as_mut_ptr().expose_provenance() as u64;
            let args = [self.0, to, bytes.len() as u64, at, 0, 0];
            // SAFETY: the kernel fills at most the buffer.
            let len = unsafe { kernel::call(libc::SYS_pread64, args) };
            usize::try_from(len).unwrap_or(0)
        })
    }
}

//! `enum fuse_opcode`.

/// Declares the operations once: variant, number, name for the log.
macro_rules! opcodes {
    ($($variant:ident = $number:literal, $name:literal;)+) => {
        /// The operation that the kernel asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u32)]
        pub(crate) enum Opcode {
            $($variant = $number,)+
        }

        impl Opcode {
            /// The operation of this number, if it is one that is known here.
            pub(crate) fn of(number: u32) -> Option<Opcode> {
                match number {
                    $($number => Some(Opcode::$variant),)+
                    _ => None,
                }
            }

            /// The name in the log.
            pub(crate) fn name(self) -> &'static str {
                match self {
                    $(Opcode::$variant => $name,)+
                }
            }
        }
    };
}

opcodes! {
    Lookup = 1, "lookup";
    Forget = 2, "forget";
    Getattr = 3, "getattr";
    Setattr = 4, "setattr";
    Readlink = 5, "readlink";
    Symlink = 6, "symlink";
    Mknod = 8, "mknod";
    Mkdir = 9, "mkdir";
    Unlink = 10, "unlink";
    Rmdir = 11, "rmdir";
    Rename = 12, "rename";
    Link = 13, "link";
    Open = 14, "open";
    Read = 15, "read";
    Write = 16, "write";
    Statfs = 17, "statfs";
    Release = 18, "release";
    Fsync = 20, "fsync";
    Setxattr = 21, "setxattr";
    Getxattr = 22, "getxattr";
    Listxattr = 23, "listxattr";
    Removexattr = 24, "removexattr";
    Flush = 25, "flush";
    Init = 26, "init";
    Opendir = 27, "opendir";
    Readdir = 28, "readdir";
    Releasedir = 29, "releasedir";
    Fsyncdir = 30, "fsyncdir";
    Getlk = 31, "getlk";
    Setlk = 32, "setlk";
    Setlkw = 33, "setlkw";
    Access = 34, "access";
    Create = 35, "create";
    Interrupt = 36, "interrupt";
    Bmap = 37, "bmap";
    Destroy = 38, "destroy";
    Ioctl = 39, "ioctl";
    Poll = 40, "poll";
    BatchForget = 42, "batch_forget";
    Fallocate = 43, "fallocate";
    Readdirplus = 44, "readdirplus";
    Rename2 = 45, "rename2";
    Lseek = 46, "lseek";
    CopyFileRange = 47, "copy_file_range";
    Syncfs = 50, "syncfs";
    Tmpfile = 51, "tmpfile";
    Statx = 52, "statx";
    CopyFileRange64 = 53, "copy_file_range_64";
}

impl Opcode {
    /// Returns whether the kernel wants no answer.
    pub(crate) fn is_silent(self) -> bool {
        matches!(
            self,
            Opcode::Forget | Opcode::BatchForget | Opcode::Interrupt
        )
    }

    /// Returns whether it changes anything that a copy of the pool would show. Reads store the time
    /// of reading: one word, which is whole at any instant. Locks and open files are of the running
    /// system; but the end of one may be the end of an inode.
    pub(crate) fn changes(self) -> bool {
        matches!(
            self,
            Opcode::Forget
                | Opcode::BatchForget
                | Opcode::Release
                | Opcode::Releasedir
                | Opcode::Setattr
                | Opcode::Symlink
                | Opcode::Mknod
                | Opcode::Mkdir
                | Opcode::Unlink
                | Opcode::Rmdir
                | Opcode::Rename
                | Opcode::Rename2
                | Opcode::Link
                | Opcode::Create
                | Opcode::Tmpfile
                | Opcode::Write
                | Opcode::Fallocate
                | Opcode::CopyFileRange
                | Opcode::CopyFileRange64
                | Opcode::Setxattr
                | Opcode::Removexattr
        )
    }
}

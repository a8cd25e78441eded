//! Goal: handles of files (`name_to_handle_at(2)`), by which NFS names them, hold exactly as long
//! as the file does, also over an unmount; lsattr(1) and chattr(1) get the flags that they ask for.

mod bench;

use std::fs;
use std::process::{Command, Stdio};

use bench::{Bench, text};

/// `take NAME...` prints a handle a line; `open DIR` reads such lines and prints, of
/// each, where it leads, or the error; `flags NAME` prints and sets the flags of a file.
const SCRIPT: &str = "
import ctypes, errno, fcntl, os, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
class Handle(ctypes.Structure):
    _fields_ = [('bytes', ctypes.c_uint), ('kind', ctypes.c_int), ('data', ctypes.c_ubyte * 128)]
def take(path):
    handle, mount = Handle(128), ctypes.c_int()
    if libc.name_to_handle_at(-100, path.encode(), ctypes.byref(handle), ctypes.byref(mount), 0):
        raise OSError(ctypes.get_errno(), path)
    return f'{handle.kind} {bytes(handle.data)[:handle.bytes].hex()}'
def opened(root, line):
    kind, data = line.split()
    data = bytes.fromhex(data)
    handle = Handle(len(data), int(kind))
    ctypes.memmove(handle.data, data, len(data))
    file = libc.open_by_handle_at(root, ctypes.byref(handle), os.O_RDONLY)
    if file < 0:
        return errno.errorcode[ctypes.get_errno()]
    return os.readlink(f'/proc/self/fd/{file}').removeprefix(os.getcwd())
word, *rest = sys.argv[1:]
if word == 'take':
    for path in rest: print(take(path))
elif word == 'open':
    root = os.open(rest[0], os.O_RDONLY)
    for line in sys.stdin: print(opened(root, line))
else:
    file = os.open(rest[0], os.O_RDONLY)
    get, set = 0x80086601, 0x40086602
    print(struct.unpack('i', fcntl.ioctl(file, get, b'\\0' * 4))[0])
    for flags in 0, 0x10:
        try:
            fcntl.ioctl(file, set, struct.pack('i', flags))
            print('set')
        except OSError as error:
            print(errno.errorcode[error.errno])
";

fn python(bench: &Bench, arguments: &[&str], input: &str) -> Vec<String> {
    fs::write(bench.path("input"), input).unwrap();
    let output = Command::new("python3")
        .args(["-c", SCRIPT])
        .args(arguments)
        .current_dir(bench.path("."))
        .stdin(Stdio::from(fs::File::open(bench.path("input")).unwrap()))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    text(&output.stdout).lines().map(str::to_owned).collect()
}

#[test]
fn handles_hold_as_long_as_their_file() {
    let Some(mut bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::create_dir_all(bench.file("a/b/c")).unwrap();
    for name in ["a/b/file", "a/b/gone", "top"] {
        fs::write(bench.file(name), name).unwrap();
    }
    let names = [
        "mnt",
        "mnt/a/b/c",
        "mnt/a/b/file",
        "mnt/a/b/gone",
        "mnt/top",
    ];
    let handles = python(&bench, &[&["take"][..], &names].concat(), "").join("\n");
    let open = |bench: &Bench| python(bench, &["open", "mnt"], &handles);
    assert_eq!(open(&bench), names.map(|name| format!("/{name}")));
    // A kernel that knows nothing of them any more.
    bench.umount();
    bench.mount(&[]);
    assert_eq!(open(&bench)[1], "/mnt/a/b/c");
    bench.umount();
    bench.mount(&[]);
    fs::remove_file(bench.file("a/b/gone")).unwrap();
    fs::rename(bench.file("a"), bench.file("moved")).unwrap();
    let is = [
        "/mnt",
        "/mnt/moved/b/c",
        "/mnt/moved/b/file",
        "ESTALE",
        "/mnt/top",
    ];
    let now = open(&bench);
    assert_eq!(
        (&now[..2], &now[3]),
        (&is.map(str::to_owned)[..2], &is[3].to_owned())
    );
    // Without their directories the kernel has no names for files.
    assert!(now[2].ends_with("file") || now[2] == "/", "{now:?}");
    // A number that is given out anew is another file's.
    bench.umount();
    bench.mount(&[]);
    for name in 0..200 {
        fs::write(bench.file(&format!("new{name}")), "").unwrap();
    }
    assert_eq!(open(&bench)[3], "ESTALE");
    bench.umount();
    bench.ok(&["fsck", "pool"]);
}

#[test]
fn no_file_has_flags() {
    let Some(bench) = Bench::mounted(&[]) else {
        return;
    };
    fs::write(bench.file("f"), "").unwrap();
    for name in ["mnt/f", "mnt"] {
        assert_eq!(
            python(&bench, &["flags", name], ""),
            ["0", "set", "ENOTSUP"]
        );
    }
    bench.umount();
}

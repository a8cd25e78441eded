//! A pool, a file in it, and the file again after the pool was opened anew.
//!
//!     cargo run -p pmfs --example hello -- /dev/shm/hello.pool

use pmfs::{Fs, NewNode, OpenOptions, ROOT_INO};
use pmfs_admin::MkfsOptions;
use std::path::PathBuf;

fn main() -> pmfs::Result<()> {
    let path = std::env::args_os()
        .nth(1)
        .map_or_else(|| "hello.pool".into(), PathBuf::from);
    let size = MkfsOptions {
        size: Some(64 << 20),
        ..MkfsOptions::default()
    };
    pmfs_admin::mkfs(&path, &size)?;

    let fs = Fs::open(&path, &OpenOptions::default())?;
    let owner = NewNode {
        umask: 0,
        mode: 0o644,
        uid: 0,
        gid: 0,
    };
    let file = fs.create(ROOT_INO, b"greeting", &owner)?;
    // Durable when it returns: there is no fsync to forget.
    fs.write(file.ino, 0, b"hello")?;
    fs.close()?;

    let fs = Fs::open(&path, &OpenOptions::default())?;
    let file = fs.lookup(ROOT_INO, b"greeting")?;
    let mut text = vec![0; file.size as usize];
    fs.read(file.ino, 0, &mut text)?;
    println!("{}", String::from_utf8_lossy(&text));
    fs.close()
}

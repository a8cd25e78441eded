//! A tree that is cloned while another process changes it.

use super::scenes::{BOTH, scene};
use super::{Answer, Scene, Wrong, must};
use crate::files::pool::NODE;
use pmfs::{Error, Fs, Ino, ROOT_INO, XattrFlags};
use pmfs_admin::Admin;

/// An attribute that says that a file is written.
const MARK: &[u8] = b"user.written";

pub(super) fn all() -> Vec<Scene> {
    vec![scene(
        "a tree cloned while two of its files change",
        BOTH,
        |stage| {
            stage.ino = stage.other.mkdir(ROOT_INO, b"tree", &NODE)?.ino;
            for name in [b"one", b"two"] {
                let file = stage.other.create(stage.ino, name, &NODE)?.ino;
                stage.other.write(file, 0, b"0")?;
            }
            Ok(())
        },
        (
            |stage| {
                let cloned = stage.first().clone_tree(stage.ino, ROOT_INO, b"copy");
                Ok(cloned.map(drop)?)
            },
            // The file that a clone comes to first is changed first; of a file, what the clone
            // takes first.
            |stage| {
                for file in files(&stage.other, stage.ino)? {
                    stage.other.write(file, 0, b"1")?;
                    let flags = XattrFlags::empty();
                    stage.other.setxattr(file, MARK, b"", flags)?;
                }
                Ok(())
            },
        ),
        |stage| {
            let fs = &stage.other;
            match fs.lookup(ROOT_INO, b"copy") {
                Ok(copy) => is_of_one_instant(fs, copy.ino)?,
                Err(Error::NotFound) => {}
                Err(error) => return Err(error.into()),
            }
            fs.clone_tree(stage.ino, ROOT_INO, b"later")?;
            let mut names = Vec::new();
            fs.readdir(ROOT_INO, 0, &mut |entry| {
                names.push(entry.name.to_vec());
                true
            })?;
            let is_left = names.iter().any(|name| name.starts_with(b".pmfs"));
            must(!is_left, "the next clone removes what one has left")
        },
    )]
}

/// The files of a directory, in the order in which it is listed.
fn files(fs: &Fs, dir: Ino) -> Result<Vec<Ino>, Wrong> {
    let mut files = Vec::new();
    fs.readdir(dir, 0, &mut |entry| {
        if entry.name != b"." && entry.name != b".." {
            files.push(entry.ino);
        }
        true
    })?;
    Ok(files)
}

fn is_of_one_instant(fs: &Fs, dir: Ino) -> Answer {
    let mut steps = Vec::new();
    for file in files(fs, dir)? {
        let mut byte = [b' '];
        fs.read(file, 0, &mut byte)?;
        steps.push(byte == *b"1");
        steps.push(!fs.listxattr(file)?.is_empty());
    }
    let is_in_order = steps.is_sorted_by(|before, after| before >= after);
    must(
        is_in_order && steps.len() == 4,
        "the clone is of one instant",
    )
}

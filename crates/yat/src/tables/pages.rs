//! Pages that the kernels of mounts hold.

use super::{Answer, Scene, Stage, Wrong, must, nothing};
use crate::files::pool::{POOL_BYTES, pattern};
use crate::stopper::Stop;
use pmfs::{Error, Fs, Ino};

pub(super) fn all() -> Vec<Scene> {
    let mut all = held();
    all.extend(strengthened());
    all
}

fn scene(
    name: &'static str,
    prepare: fn(&mut Stage) -> Answer,
    first: fn(&Stage) -> Answer,
    judge: fn(&Stage) -> Answer,
) -> Scene {
    Scene {
        name,
        pool_bytes: POOL_BYTES,
        stops: &[Stop::Kill],
        prepare,
        first,
        other: nothing,
        judge,
    }
}

fn held() -> Vec<Scene> {
    vec![
        scene(
            "pages served, strengthened, asked for, served again, given back",
            two_mounts,
            whole_life,
            |stage| {
                must(stage.other.kernel_copies().is_empty(), "nobody has pages")?;
                stage.other.write(stage.ino, 0, b"x")?;
                read(&stage.other, stage.ino).map_err(Wrong::from)
            },
        ),
        scene(
            "clean pages of two mounts, given back by one",
            |stage| {
                two_mounts(stage)?;
                Ok(stage.other.note_kernel_read(stage.ino, &|| false)?)
            },
            |stage| {
                let first = stage.first();
                first.note_kernel_read(stage.ino, &|| false)?;
                Ok(first.forget_kernel_copies(stage.ino, &|| false)?)
            },
            |stage| {
                let next = stage.come()?;
                next.tell_of_pages();
                read(&next, stage.ino)?;
                must(
                    is_refused(next.write(stage.ino, 0, b"x")),
                    "nobody writes over the other's pages",
                )?;
                stage.other.forget_kernel_copies(stage.ino, &|| false)?;
                next.write(stage.ino, 0, b"x")?;
                Ok(next.detach()?)
            },
        ),
        scene(
            "a file of which another mount's pages may be dirty",
            |stage| {
                two_mounts(stage)?;
                Ok(stage.other.note_kernel_read(stage.ino, &|| true)?)
            },
            |stage| {
                let (first, ino) = (stage.first(), stage.ino);
                must(
                    is_refused(read(first, ino)),
                    "nobody reads past newer pages",
                )?;
                must(
                    is_refused(first.write(ino, 0, b"x")),
                    "nobody writes past newer pages",
                )?;
                must(
                    is_refused(first.append(ino, b"x")),
                    "nobody appends past newer pages",
                )
            },
            |stage| Ok(stage.other.forget_kernel_copies(stage.ino, &|| false)?),
        ),
    ]
}

fn strengthened() -> Vec<Scene> {
    vec![
        scene(
            "a mount's file opened for writing, of which others have pages",
            |stage| {
                two_mounts(stage)?;
                stage.other.note_kernel_read(stage.ino, &|| false)?;
                Ok(stage.first().note_kernel_read(stage.ino, &|| false)?)
            },
            |stage| {
                let begun = stage.first().begin_kernel_writing(stage.ino, &|| ());
                must(is_refused(begun), "others' pages are asked for first")
            },
            |stage| Ok(stage.other.forget_kernel_copies(stage.ino, &|| false)?),
        ),
        Scene {
            stops: &[Stop::Pause],
            ..scene(
                "a mount's file opened for writing, which others then read",
                |stage| {
                    two_mounts(stage)?;
                    Ok(stage.first().note_kernel_read(stage.ino, &|| false)?)
                },
                |stage| Ok(stage.first().begin_kernel_writing(stage.ino, &|| ())?),
                |stage| {
                    must(
                        is_refused(read(&stage.other, stage.ino)),
                        "others ask before they read",
                    )?;
                    Ok(stage.first().forget_kernel_copies(stage.ino, &|| false)?)
                },
            )
        },
    ]
}

fn two_mounts(stage: &mut Stage) -> Answer {
    stage.file_of(&pattern(5000, 1))?;
    stage.first().tell_of_pages();
    stage.other.tell_of_pages();
    Ok(())
}

fn read(fs: &Fs, ino: Ino) -> pmfs::Result<()> {
    fs.read(ino, 0, &mut [0; 64]).map(drop)
}

fn is_refused<T>(answer: pmfs::Result<T>) -> bool {
    matches!(answer, Err(Error::PagesElsewhere(_)))
}

/// All that becomes of pages.
fn whole_life(stage: &Stage) -> Answer {
    let (fs, ino) = (stage.first(), stage.ino);
    fs.note_kernel_read(ino, &|| false)?;
    fs.begin_kernel_writing(ino, &|| ())?;
    fs.want_own_pages(ino)?;
    let asked = |fs: &Fs| -> Result<u64, Wrong> {
        let wanted = fs.wanted_pages()?;
        let first = wanted.first().ok_or("pages are asked for")?;
        Ok(first.generation)
    };
    let before = asked(fs)?;
    fs.note_kernel_read(ino, &|| true)?;
    must(
        !fs.give_pages_back(ino, before)?,
        "pages that were served meanwhile are not given back",
    )?;
    let now = asked(fs)?;
    must(fs.give_pages_back(ino, now)?, "pages are given back")?;
    fs.note_kernel_read(ino, &|| true)?;
    Ok(fs.forget_kernel_copies(ino, &|| false)?)
}

//! Maps the patched text of libc over its own (`pmfs-patch` made it), and knows what a place in a stub stands for.

use std::ffi::CStr;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{
    MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, O_CLOEXEC, O_NOFOLLOW, O_RDONLY, PROT_EXEC,
    PROT_READ, PROT_WRITE,
};
use zerocopy::FromBytes;

use crate::entry::pmfs_shim_entry;
use crate::header::{HeaderRaw, MAGIC, PAGE_BYTES, SiteRaw, VERSION};
use crate::kernel::{self, PATH};

/// libc, as the loader has it.
struct Library {
    base: usize,
    build_id: Vec<u8>,
}

/// Where things are; all 0 before.
static BASE: AtomicUsize = AtomicUsize::new(0);
static STUBS: AtomicUsize = AtomicUsize::new(0);
static STUBS_LEN: AtomicUsize = AtomicUsize::new(0);
static TABLE: AtomicUsize = AtomicUsize::new(0);
static ROWS: AtomicUsize = AtomicUsize::new(0);

/// Puts the image in place.
///
/// # Errors
/// Why not, in words: the mount serves this process then.
pub(crate) fn apply(image: &[u8]) -> Result<(), &'static str> {
    let path = [image, b"\0"].concat();
    let flags = (O_RDONLY | O_CLOEXEC | O_NOFOLLOW) as u64;
    let args = [libc::AT_FDCWD as u64, PATH, flags, 0, 0, 0];
    let file = kernel::with_path(libc::SYS_openat, args, &path);
    if file < 0 {
        return Err("the image can't be opened");
    }
    let done = map(file as u64);
    kernel::plain(libc::SYS_close, &[file as u64]);
    done
}

fn map(file: u64) -> Result<(), &'static str> {
    let mut bytes = [0u8; size_of::<HeaderRaw>()];
    let at = bytes.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the kernel fills the buffer.
    let read = unsafe { kernel::call(libc::SYS_pread64, [file, at, bytes.len() as u64, 0, 0, 0]) };
    let bytes = std::hint::black_box(bytes);
    let header = HeaderRaw::read_from_bytes(&bytes).map_err(|_| "the image has no header")?;
    if read != bytes.len() as i64 || header.magic != MAGIC || header.version != VERSION {
        return Err("the image is of another version");
    }
    let library = find_libc().ok_or("no libc.so.6 in this process")?;
    if header.build_id.get(..header.build_id_len as usize) != Some(&library.build_id) {
        return Err("the image is of another libc");
    }
    let stubs = library
        .base
        .wrapping_add_signed(header.stubs_vaddr as isize);
    map_stubs(file, &header, stubs)?;
    let table = place(
        file,
        0,
        header.table_len,
        PROT_READ,
        MAP_PRIVATE,
        header.table_offset,
    );
    if table < 0 {
        return Err("no room for the table of sites");
    }
    BASE.store(library.base, Ordering::Relaxed);
    STUBS.store(stubs, Ordering::Relaxed);
    STUBS_LEN.store(header.stubs_len as usize, Ordering::Relaxed);
    TABLE.store(table as usize, Ordering::Relaxed);
    ROWS.store(header.sites as usize, Ordering::Release);
    let text = library.base + header.text_vaddr as usize;
    // Not populated: that looks at all of its 342 pages, one by one, and was a third of what starting costs. What a program needs of
    // them comes sixteen at a time.
    let over = MAP_PRIVATE | MAP_FIXED;
    if place(file, text, header.text_len, CODE, over, header.text_offset) != text as i64 {
        return Err("the image can't be mapped over libc's text");
    }
    Ok(())
}

const CODE: i32 = PROT_READ | PROT_EXEC;
const FRESH: i32 = MAP_PRIVATE | MAP_FIXED_NOREPLACE;

/// Maps a part of the image.
fn place(file: u64, address: usize, len: u64, protection: i32, flags: i32, offset: u64) -> i64 {
    let args = [
        address as u64,
        len,
        protection as u64,
        flags as u64,
        file,
        offset,
    ];
    // SAFETY: addresses where nothing is (the kernel sees to that), or libc's text, which the image has as well, patched.
    unsafe { kernel::call(libc::SYS_mmap, args) }
}

/// The stubs, and behind them the page that tells them where the entry is.
fn map_stubs(file: u64, header: &HeaderRaw, stubs: usize) -> Result<(), &'static str> {
    let at = place(
        file,
        stubs,
        header.stubs_len,
        CODE,
        FRESH,
        header.stubs_offset,
    );
    if at != stubs as i64 {
        return Err("the place for the stubs is taken");
    }
    let slot = stubs + header.entry_slot as usize;
    let open = PROT_READ | PROT_WRITE;
    let at = place(
        u64::MAX,
        slot,
        PAGE_BYTES,
        open,
        FRESH | libc::MAP_ANONYMOUS,
        0,
    );
    if at != slot as i64 {
        return Err("the place for the entry's address is taken");
    }
    let entry = (&raw const pmfs_shim_entry).expose_provenance();
    // SAFETY: the page just made; the kernel closes it to stores.
    unsafe {
        std::ptr::with_exposed_provenance_mut::<usize>(slot).write(entry);
        kernel::call(
            libc::SYS_mprotect,
            [slot as u64, PAGE_BYTES, PROT_READ as u64, 0, 0, 0],
        );
    }
    Ok(())
}

/// The address in libc that one in a stub stands for.
pub(crate) fn place_in_libc(at: usize) -> Option<usize> {
    let stubs = STUBS.load(Ordering::Relaxed);
    let offset = at
        .checked_sub(stubs)
        .filter(|offset| *offset < STUBS_LEN.load(Ordering::Relaxed))?;
    let rows = ROWS.load(Ordering::Acquire);
    let table = std::ptr::with_exposed_provenance::<SiteRaw>(TABLE.load(Ordering::Relaxed));
    // SAFETY: so many rows were mapped, for good; the mapping begins on a page.
    let table = unsafe { std::slice::from_raw_parts(table, rows) };
    let row = &table[table
        .partition_point(|row| row.stub as usize <= offset)
        .checked_sub(1)?];
    let behind = offset - row.stub as usize > row.pass as usize;
    let site = if behind {
        row.resume_site
    } else {
        row.start_site
    };
    Some(BASE.load(Ordering::Relaxed) + site as usize)
}

fn find_libc() -> Option<Library> {
    let mut found: Option<Library> = None;
    // SAFETY: the loader calls back with valid structures, during this call alone.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut found).cast()) };
    found
}

/// Called for each object until one is libc.
unsafe extern "C" fn look(
    info: *mut libc::dl_phdr_info,
    _: usize,
    found: *mut libc::c_void,
) -> i32 {
    // SAFETY: the loader's structure and its C string.
    let (info, name) = unsafe { (&*info, CStr::from_ptr((*info).dlpi_name)) };
    if !name.to_bytes().ends_with(b"/libc.so.6") {
        return 0;
    }
    // SAFETY: as above; the notes are mapped with the object.
    let build_id = unsafe {
        let headers = std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into());
        let notes = headers
            .iter()
            .filter(|header| header.p_type == libc::PT_NOTE);
        notes
            .map(|header| {
                let at = (info.dlpi_addr + header.p_vaddr) as usize;
                std::slice::from_raw_parts(
                    std::ptr::with_exposed_provenance::<u8>(at),
                    header.p_memsz as usize,
                )
            })
            .find_map(build_id)
    };
    // SAFETY: what `find_libc` passed.
    unsafe {
        *found.cast::<Option<Library>>() = Some(Library {
            base: info.dlpi_addr as usize,
            build_id: build_id.unwrap_or_default(),
        });
    }
    1
}

/// The build-id among notes: sizes of name and text, kind, both padded to four.
fn build_id(mut notes: &[u8]) -> Option<Vec<u8>> {
    const KIND: u32 = 3;
    while notes.len() >= 12 {
        let word = |at: usize| {
            u32::from_le_bytes([notes[at], notes[at + 1], notes[at + 2], notes[at + 3]])
        };
        let (name, text, kind) = (word(0) as usize, word(4) as usize, word(8));
        let start = 12 + name.next_multiple_of(4);
        let end = start.checked_add(text)?;
        if kind == KIND && notes.get(12..16) == Some(b"GNU\0") {
            return notes.get(start..end).map(<[u8]>::to_vec);
        }
        notes = notes.get(start + text.next_multiple_of(4)..)?;
    }
    None
}

//! Maps the patched text of libc and of other libraries (made by `pmfs-patch`) over their own, and
//! translates a place in a stub to the one in the library.
//!
//! Where an image can't be mapped (its file system is noexec), or with `PMFS_PATCH_MODE=place`, the
//! sites themselves are overwritten. The touched pages are then private to the process, and memory
//! that was written to becomes executable, which a process under MDWE may not do.

use std::ffi::CStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use libc::{
    MAP_ANONYMOUS, MAP_FIXED, MAP_FIXED_NOREPLACE, MAP_PRIVATE, O_CLOEXEC, O_NOFOLLOW, O_RDONLY,
    PROT_EXEC, PROT_READ, PROT_WRITE,
};
use zerocopy::FromBytes;

use crate::header::{HeaderRaw, MAGIC, PAGE_BYTES, SiteRaw, VERSION};
use crate::own::config;
use crate::own::kernel::{self, PATH};
use crate::own::log;
use crate::stubs;
use crate::stubs::empty_name;

/// A library, from the loader.
struct Library {
    base: usize,
    /// The path of its file; ends with NUL.
    path: Vec<u8>,
    build_id: Vec<u8>,
    /// Its read-only data: address and bytes; zeros if there are none.
    constants: (usize, usize),
}

/// The patched libraries, in order; zeros behind the last.
static MODULES: [Module; MODULES_MAX] = [const { Module::new() }; MODULES_MAX];
static COUNT: AtomicUsize = AtomicUsize::new(0);
const MODULES_MAX: usize = 16;

/// A patched library.
struct Module {
    base: AtomicUsize,
    stubs: AtomicUsize,
    stubs_len: AtomicUsize,
    table: AtomicUsize,
    rows: AtomicUsize,
}

impl Module {
    const fn new() -> Module {
        Module {
            base: AtomicUsize::new(0),
            stubs: AtomicUsize::new(0),
            stubs_len: AtomicUsize::new(0),
            table: AtomicUsize::new(0),
            rows: AtomicUsize::new(0),
        }
    }

    fn sites(&self) -> &'static [SiteRaw] {
        let rows = self.rows.load(Ordering::Acquire);
        let table =
            std::ptr::with_exposed_provenance::<SiteRaw>(self.table.load(Ordering::Relaxed));
        // SAFETY: so many rows were mapped, for good; the mapping begins on a page.
        unsafe { std::slice::from_raw_parts(table, rows) }
    }
}

/// An open image.
struct Image {
    file: u64,
    /// Whether the descriptor is closed on drop.
    is_own: bool,
    header: HeaderRaw,
}

impl Drop for Image {
    fn drop(&mut self) {
        if self.is_own {
            kernel::plain(libc::SYS_close, &[self.file]);
        }
    }
}

impl Image {
    /// Opens an image by its path, or, for `fd:NUMBER`, takes a descriptor that `pmfs run` has left
    /// open.
    fn open(name: &[u8]) -> Result<Image, &'static str> {
        let (file, is_own) = match config::descriptor_of(name) {
            Some(number) => (i64::from(number), false),
            None => {
                let path = [name, b"\0"].concat();
                let flags = (O_RDONLY | O_CLOEXEC | O_NOFOLLOW) as u64;
                let args = [libc::AT_FDCWD as u64, PATH, flags, 0, 0, 0];
                (kernel::with_path(libc::SYS_openat, args, &path), true)
            }
        };
        let mut image = Image {
            file: u64::try_from(file).map_err(|_| "the image can't be opened")?,
            is_own,
            header: zerocopy::FromZeros::new_zeroed(),
        };
        let mut bytes = [0u8; size_of::<HeaderRaw>()];
        let read = read(image.file, 0, &mut bytes);
        let bytes = std::hint::black_box(bytes);
        image.header = HeaderRaw::read_from_bytes(&bytes).map_err(|_| "the image has no header")?;
        if !read || image.header.magic != MAGIC || image.header.version != VERSION {
            return Err("the image is of another version");
        }
        Ok(image)
    }

    fn is_of(&self, build_id: &[u8]) -> bool {
        let len = self.header.build_id_len as usize;
        self.header.build_id.get(..len) == Some(build_id)
    }

    /// Maps a part of the image.
    fn map(&self, address: usize, len: u64, protection: i32, flags: i32, offset: u64) -> i64 {
        map(self.file, (address, len), protection, flags, offset)
    }
}

/// Fills a buffer from a file.
fn read(file: u64, from: u64, bytes: &mut [u8]) -> bool {
    let at = bytes.as_mut_ptr().expose_provenance() as u64;
    // SAFETY: the kernel fills the buffer.
    let len = unsafe {
        kernel::call(
            libc::SYS_pread64,
            [file, at, bytes.len() as u64, from, 0, 0],
        )
    };
    len == bytes.len() as i64
}

/// Puts the image of libc in place, and those of the other libraries that are loaded.
///
/// # Errors
/// The reason in words why libc can't be patched: the mount then serves this process.
pub(crate) fn apply() -> Result<(), &'static str> {
    let config = config::get();
    let image = Image::open(&config.image)?;
    let library = find(b"libc.so.6").ok_or("no libc.so.6 in this process")?;
    put(&image, &library)?;
    empty_name::is_in(library.constants);
    for (soname, name) in &config.others {
        let Some(library) = find(soname) else {
            continue;
        };
        let applied = Image::open(name).and_then(|image| put(&image, &library));
        tell(soname, applied);
    }
    Ok(())
}

fn tell(soname: &[u8], applied: Result<(), &'static str>) {
    if let Err(why) = applied {
        let soname = String::from_utf8_lossy(soname);
        log::line(format_args!(
            "{soname}: {why}; its own system calls are not served"
        ));
    }
}

static LOADING: Mutex<()> = Mutex::new(());

/// Patches code of a file that the loader has mapped at this address from this offset on, if it is
/// one of the libraries.
pub(crate) fn loaded(file: u64, at: usize, offset: u64) {
    let others = &config::get().others;
    if others.is_empty() {
        return;
    }
    let Some(build_id) = build_id_of(file) else {
        return;
    };
    let _guard = LOADING.lock();
    for (soname, name) in others {
        let Ok(image) = Image::open(name) else {
            continue;
        };
        if image.is_of(&build_id) && image.header.library_offset == offset {
            let base = at.wrapping_sub(image.header.text_vaddr as usize);
            let path = format!("/proc/self/fd/{file}\0").into_bytes();
            let library = Library {
                base,
                path,
                build_id,
                constants: (0, 0),
            };
            tell(soname, put(&image, &library));
            return;
        }
    }
}

/// The build-id of an ELF file.
fn build_id_of(file: u64) -> Option<Vec<u8>> {
    let mut head = vec![0u8; PAGE_BYTES as usize];
    if !read(file, 0, &mut head) || !head.starts_with(b"\x7fELF\x02") {
        return None;
    }
    let word = |at: usize| Some(u64::from_le_bytes(head.get(at..at + 8)?.try_into().ok()?));
    let half = |at: usize| {
        Some(usize::from(u16::from_le_bytes(
            head.get(at..at + 2)?.try_into().ok()?,
        )))
    };
    let (table, size, count) = (word(32)? as usize, half(54)?, half(56)?);
    (0..count).find_map(|index| {
        let at = table.checked_add(index * size)?;
        let kind = u32::from_le_bytes(head.get(at..at + 4)?.try_into().ok()?);
        let (offset, bytes) = (word(at + 8)?, word(at + 32)?);
        if kind != libc::PT_NOTE || bytes > PAGE_BYTES {
            return None;
        }
        let mut notes = vec![0u8; bytes as usize];
        read(file, offset, &mut notes).then(|| self::build_id(&notes))?
    })
}

fn put(image: &Image, library: &Library) -> Result<(), &'static str> {
    let header = &image.header;
    if !image.is_of(&library.build_id) {
        return Err("the image is of another library");
    }
    let stubs = library
        .base
        .wrapping_add_signed(header.stubs_vaddr as isize);
    let in_place = config::get().patch_in_place;
    let known = MODULES[..COUNT.load(Ordering::Acquire)]
        .iter()
        .any(|module| {
            module.base.load(Ordering::Relaxed) == library.base
                && module.stubs_len.load(Ordering::Relaxed) as u64 == header.stubs_len
        });
    let mut in_place = in_place;
    if !known {
        // A library that was closed and is loaded again at the same place still has its stubs.
        in_place |= map_stubs(image, stubs, in_place)?;
        note(image, library, stubs)?;
    }
    let text = library.base + header.text_vaddr as usize;
    if !in_place {
        // The mapping is not populated: that visits all of its 342 pages, one by one, and was a
        // third of the cost of a start. The pages that a program needs come sixteen at a time.
        let over = MAP_PRIVATE | MAP_FIXED;
        let at = image.map(text, header.text_len, CODE, over, header.text_offset);
        if at == text as i64 {
            return Ok(());
        }
    }
    overwrite(image, library, text)
}

/// Notes a library whose stubs are in place.
fn note(image: &Image, library: &Library, stubs: usize) -> Result<(), &'static str> {
    let header = &image.header;
    let index = COUNT.load(Ordering::Relaxed);
    let module = MODULES.get(index).ok_or("too many libraries are patched")?;
    let table = image.map(
        0,
        header.table_len,
        PROT_READ,
        MAP_PRIVATE,
        header.table_offset,
    );
    if table < 0 {
        return Err("no room for the table of sites");
    }
    module.base.store(library.base, Ordering::Relaxed);
    module.stubs.store(stubs, Ordering::Relaxed);
    module
        .stubs_len
        .store(header.stubs_len as usize, Ordering::Relaxed);
    module.table.store(table as usize, Ordering::Relaxed);
    module.rows.store(header.sites as usize, Ordering::Release);
    COUNT.store(index + 1, Ordering::Release);
    Ok(())
}

const CODE: i32 = PROT_READ | PROT_EXEC;
const OPEN: i32 = PROT_READ | PROT_WRITE;
const FRESH: i32 = MAP_PRIVATE | MAP_FIXED_NOREPLACE;

fn map(file: u64, (address, len): (usize, u64), protection: i32, flags: i32, offset: u64) -> i64 {
    let args = [
        address as u64,
        len,
        protection as u64,
        flags as u64,
        file,
        offset,
    ];
    // SAFETY: addresses where nothing is (the kernel sees to that), or a library's
    // text, which the image has as well, patched.
    unsafe { kernel::call(libc::SYS_mmap, args) }
}

fn protect(at: usize, len: u64, protection: i32) -> bool {
    let args = [at as u64, len, protection as u64, 0, 0, 0];
    // SAFETY: pages of ours, or a library's text, which stays executable all the time.
    unsafe { kernel::call(libc::SYS_mprotect, args) == 0 }
}

/// Maps memory at an address where nothing is mapped yet.
fn fresh(at: usize, len: u64) -> Result<(), &'static str> {
    let made = map(u64::MAX, (at, len), OPEN, FRESH | MAP_ANONYMOUS, 0);
    if made == at as i64 {
        Ok(())
    } else {
        Err("the place for the stubs is taken")
    }
}

/// Maps the stubs, and behind them the page with the addresses of the entries. Returns whether they
/// were copied, because the image's own pages may not be executed.
fn map_stubs(image: &Image, stubs: usize, copied: bool) -> Result<bool, &'static str> {
    let header = &image.header;
    let mut copied = copied;
    if !copied {
        let at = image.map(stubs, header.stubs_len, CODE, FRESH, header.stubs_offset);
        if at != stubs as i64 && ![-i64::from(libc::EPERM), -i64::from(libc::EACCES)].contains(&at)
        {
            return Err("the place for the stubs is taken");
        }
        copied = at != stubs as i64;
    }
    if copied {
        allow_copies()?;
        fresh(stubs, header.stubs_len)?;
        // SAFETY: the memory just made.
        let to = unsafe {
            std::slice::from_raw_parts_mut(
                std::ptr::with_exposed_provenance_mut(stubs),
                header.stubs_len as usize,
            )
        };
        if !read(image.file, header.stubs_offset, to) || !protect(stubs, header.stubs_len, CODE) {
            return Err("the stubs can't be made executable");
        }
    }
    let slot = stubs + header.entry_slot as usize;
    fresh(slot, PAGE_BYTES)?;
    let entries = stubs::entries().map(|entry| entry.start);
    // SAFETY: the page just made.
    unsafe { std::ptr::with_exposed_provenance_mut::<[usize; 2]>(slot).write(entries) };
    protect(slot, PAGE_BYTES, PROT_READ);
    Ok(copied)
}

/// Checks that memory that was written to may be made executable.
fn allow_copies() -> Result<(), &'static str> {
    const PR_GET_MDWE: u64 = 66;
    if kernel::plain(libc::SYS_prctl, &[PR_GET_MDWE, 0, 0, 0, 0]) > 0 {
        return Err("the image can't be mapped, and memory can't be made executable here (MDWE)");
    }
    Ok(())
}

/// Overwrites each site. A site whose bytes are not those of the library's file was changed by
/// others already, and stays.
fn overwrite(image: &Image, library: &Library, text: usize) -> Result<(), &'static str> {
    allow_copies()?;
    let header = &image.header;
    let path = kernel::with_path(
        libc::SYS_openat,
        [
            libc::AT_FDCWD as u64,
            PATH,
            (O_RDONLY | O_CLOEXEC) as u64,
            0,
            0,
            0,
        ],
        &library.path,
    );
    let original = u64::try_from(path).map_err(|_| "its file can't be read")?;
    let modules = &MODULES[..COUNT.load(Ordering::Acquire)];
    let module = modules
        .iter()
        .find(|module| module.base.load(Ordering::Relaxed) == library.base);
    let sites = module.map_or(&[][..], Module::sites);
    // The memory stays executable, because this very thread may be running in it.
    if !protect(text, header.text_len, CODE | PROT_WRITE) {
        kernel::plain(libc::SYS_close, &[original]);
        return Err("its text can't be written to");
    }
    let mut others = 0;
    for site in sites {
        let from = u64::from(site.start_site) - header.text_vaddr;
        let len = (site.end_site - site.start_site) as usize;
        let (mut before, mut after) = ([0u8; SITE_MAX], [0u8; SITE_MAX]);
        let known = len <= SITE_MAX
            && read(original, header.library_offset + from, &mut before[..len])
            && read(image.file, header.text_offset + from, &mut after[..len]);
        // SAFETY: within the text, which is open to stores now; no other thread is
        // there yet, or none that knows the library.
        let there = unsafe {
            std::slice::from_raw_parts_mut(
                std::ptr::with_exposed_provenance_mut::<u8>(text + from as usize),
                len,
            )
        };
        if known && *there == before[..len] {
            there.copy_from_slice(&after[..len]);
        } else {
            others += 1;
        }
    }
    protect(text, header.text_len, CODE);
    kernel::plain(libc::SYS_close, &[original]);
    log::line(format_args!(
        "{} system calls were patched in place, {others} left alone",
        sites.len() - others
    ));
    Ok(())
}

/// More bytes than any site has.
const SITE_MAX: usize = 64;

/// The address in the library that an address in a stub stands for.
pub(crate) fn place_in_libc(at: usize) -> Option<usize> {
    let modules = &MODULES[..COUNT.load(Ordering::Acquire)];
    modules.iter().find_map(|module| {
        let stubs = module.stubs.load(Ordering::Relaxed);
        let offset = at
            .checked_sub(stubs)
            .filter(|offset| *offset < module.stubs_len.load(Ordering::Relaxed))?;
        let table = module.sites();
        let row = &table[table
            .partition_point(|row| row.stub as usize <= offset)
            .checked_sub(1)?];
        let behind = offset - row.stub as usize > row.pass as usize;
        let site = if behind {
            row.resume_site
        } else {
            row.start_site
        };
        Some(module.base.load(Ordering::Relaxed) + site as usize)
    })
}

/// The search of [`look`], with its result.
struct Search<'a> {
    soname: &'a [u8],
    found: Option<Library>,
}

/// The library of this name, if it is loaded.
fn find(soname: &[u8]) -> Option<Library> {
    let mut search = Search {
        soname,
        found: None,
    };
    // SAFETY: the loader calls back with valid structures, during this call alone.
    unsafe { libc::dl_iterate_phdr(Some(peek), (&raw mut search).cast()) };
    search.found
}

/// Called for each loaded object until one matches.
unsafe extern "C" fn peek(
    info: *mut libc::dl_phdr_info,
    _: usize,
    search: *mut libc::c_void,
) -> i32 {
    // SAFETY: the loader's structure and its C string; what `find` passed.
    let (info, name, search) = unsafe {
        (
            &*info,
            CStr::from_ptr((*info).dlpi_name),
            &mut *search.cast::<Search<'_>>(),
        )
    };
    let path = name.to_bytes();
    let above = path.strip_suffix(search.soname);
    if !above.is_some_and(|above| above.ends_with(b"/")) {
        return 0;
    }
    // SAFETY: as above.
    let headers = unsafe { std::slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let constants = headers
        .iter()
        .filter(|header| header.p_type == libc::PT_LOAD && header.p_flags == libc::PF_R)
        .max_by_key(|header| header.p_memsz)
        .map_or((0, 0), |header| {
            let at = (info.dlpi_addr + header.p_vaddr) as usize;
            (at, header.p_memsz as usize)
        });
    // SAFETY: the notes are mapped with the object.
    let build_id = unsafe {
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
    search.found = Some(Library {
        base: info.dlpi_addr as usize,
        path: name.to_bytes_with_nul().to_vec(),
        build_id: build_id.unwrap_or_default(),
        constants,
    });
    1
}

/// The build-id among ELF notes: sizes of name and text, kind, both padded to four bytes.
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

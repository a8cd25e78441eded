//! The process's sessions of readers, and the values that they get without a copy.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::Arc;
use std::time::Duration;

use pmkv::OwnedReader;

use crate::answer::{Code, Failure, answer, done};
use crate::engines::{EngineHandle, with as with_engine};
use crate::handles::{Kind, Table};
use crate::pointers::{put, values};

/// The type of handles. None is ever looked at: the pointer is a number.
#[repr(C)]
pub struct ReaderHandle {
    _nothing: [u8; 0],
}

static READERS: Table<OwnedReader> = Table::of(Kind {
    bits: 0x7,
    none: Failure::Wrong(Code::Handle, "no such reader: it was closed, or never open"),
    many: Failure::Wrong(
        Code::Engines,
        "256 readers are open in this process: close one",
    ),
    in_use: Failure::Wrong(Code::InUse, "a call on this reader goes on"),
});

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_reader_open(
    kv: *mut EngineHandle,
    milliseconds: u64,
) -> *mut ReaderHandle {
    answer(null_mut(), || {
        let limit = match milliseconds {
            u64::MAX => Duration::MAX,
            limit => Duration::from_millis(limit),
        };
        let engine = with_engine(kv, |engine| Ok(engine.clone()))?;
        READERS.keep(Arc::new(engine.read(limit)?))
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_reader_close(closed: *mut ReaderHandle) -> Code {
    done(|| READERS.take(closed).map(drop))
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_reader_get(
    reader: *mut ReaderHandle,
    key: *const c_void,
    key_size: usize,
    value: *mut *const c_void,
    value_size: *mut usize,
) -> Code {
    done(|| {
        // SAFETY: as the header says.
        let key = unsafe { values(key.cast::<u8>(), key_size) }?;
        READERS.with(reader, |reader| {
            let found = reader.reader().get(key)?;
            let found = found.ok_or(Failure::Plain(Code::NoKey))?;
            // SAFETY: as the header says.
            unsafe { put(value, found.as_ptr().cast()) }?;
            // SAFETY: as the header says.
            unsafe { put(value_size, found.len() as usize) }
        })
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmkv_reader_check(reader: *mut ReaderHandle) -> Code {
    done(|| READERS.with(reader, |reader| Ok(reader.reader().check()?)))
}

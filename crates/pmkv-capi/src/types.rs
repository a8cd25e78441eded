//! Fingerprints of types that C defines.

use std::ffi::c_char;

use pmlib::containers::{PBytes, PLog, PMap, PQueue, PStr, PString, PTree, PVec};
use pmlib::safe::{mix, of_text};
use pmlib::{P, PmSafe};

use crate::answer::{Answer, answer, wrong};
use crate::pointers::{name, values};

/// `struct pmheap_field`.
#[repr(C)]
pub struct FieldRaw {
    name: *const c_char,
    kind: *const c_char,
    of: u64,
    offset: u64,
    count: u64,
}

/// The fingerprint of a type that has a name in every program, and its bytes.
fn known(kind: &str) -> Answer<(u64, u64)> {
    fn of<T: PmSafe>() -> Answer<(u64, u64)> {
        Ok((T::FINGERPRINT, size_of::<T>() as u64))
    }
    match kind {
        "u8" => of::<u8>(),
        "u16" => of::<u16>(),
        "u32" => of::<u32>(),
        "u64" => of::<u64>(),
        "u128" => of::<u128>(),
        "i8" => of::<i8>(),
        "i16" => of::<i16>(),
        "i32" => of::<i32>(),
        "i64" => of::<i64>(),
        "i128" => of::<i128>(),
        "f32" => of::<f32>(),
        "f64" => of::<f64>(),
        "P" => of::<P<u8>>(),
        "PStr" => of::<PStr>(),
        "PString" => of::<PString>(),
        "PLog" => of::<PLog>(),
        "PBytes" => of::<PBytes>(),
        "PVec" => of::<PVec<PBytes>>(),
        "PQueue" => of::<PQueue<PBytes>>(),
        "PMap" => of::<PMap<PBytes, PBytes>>(),
        "PTree" => of::<PTree<PBytes, PBytes>>(),
        _ => wrong("a field has a type that is not known: its fingerprint can be given instead"),
    }
}

/// A field's fingerprint, and its bytes if they are known.
///
/// # Safety
/// Its texts end with a NUL.
unsafe fn field(field: &FieldRaw) -> Answer<(u64, Option<u64>)> {
    let (print, size) = match field.kind.is_null() {
        true if field.of == 0 => return wrong("a field has neither a type nor a fingerprint"),
        true => (field.of, None),
        false => {
            // SAFETY: the caller's promise.
            let (print, size) = known(unsafe { name(field.kind) }?)?;
            (print, Some(size))
        }
    };
    if field.count == 0 {
        return Ok((print, size));
    }
    let array = mix(mix(of_text("array"), print), field.count);
    Ok((array, size.map(|size| size.saturating_mul(field.count))))
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_type_struct(
    fields: *const FieldRaw,
    count: usize,
    size: u64,
) -> u64 {
    answer(0, || {
        // SAFETY: as the header says.
        let fields = unsafe { values(fields, count) }?;
        let mut print = of_text("struct");
        // The end of what came before, if it is known.
        let (mut end, mut last) = (Some(0), None);
        for raw in fields {
            let follows = end.is_none_or(|end| end == raw.offset);
            if !follows || last.is_some_and(|last| raw.offset <= last) {
                return wrong("a field does not begin where the one before it ends");
            }
            // SAFETY: as the header says.
            let ((kind, bytes), called) = unsafe { (field(raw)?, name(raw.name)?) };
            print = mix(print, of_text(called));
            print = mix(print, kind);
            print = mix(print, raw.offset);
            end = bytes.map(|bytes| raw.offset.saturating_add(bytes));
            last = Some(raw.offset);
        }
        if size == 0 || end.is_some_and(|end| end != size) || last.is_some_and(|at| at >= size) {
            return wrong("the fields do not end where the struct does");
        }
        Ok(mix(print, size))
    })
}

/// See `pmkv.h`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmheap_type_register(
    called: *const c_char,
    size: u64,
    pointer_offsets: *const u64,
    count: usize,
) -> u64 {
    answer(0, || {
        // SAFETY: as the header says.
        let (called, places) = unsafe { (name(called)?, values(pointer_offsets, count)?) };
        if called.is_empty() || size == 0 {
            return wrong("a type has a name, and a size");
        }
        let mut print = mix(mix(of_text("C struct"), of_text(called)), size);
        let mut free = 0;
        for &place in places {
            let end = place.saturating_add(8);
            if place < free || !place.is_multiple_of(8) || end > size {
                return wrong("an object's offset does not fit where it is said to be");
            }
            print = mix(print, place);
            free = end;
        }
        // 0 is the answer of a failure.
        Ok(print.max(1))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr::null;
    use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

    #[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    struct Inner {
        a: [u8; 4],
        b: f32,
    }

    #[derive(PmSafe, FromBytes, IntoBytes, Immutable, KnownLayout)]
    #[repr(C)]
    struct Outer {
        owner: PStr,
        inner: Inner,
        next: P<Outer>,
        each: [i64; 3],
    }

    fn of(fields: &[FieldRaw], size: usize) -> u64 {
        // SAFETY: the fields are there.
        unsafe { pmheap_type_struct(fields.as_ptr(), fields.len(), size as u64) }
    }

    fn field_of(name: &'static std::ffi::CStr, offset: u64) -> FieldRaw {
        FieldRaw {
            name: name.as_ptr(),
            kind: null(),
            of: 0,
            offset,
            count: 0,
        }
    }

    /// Goal: a struct has one fingerprint in C and in Rust. Method: structs of every kind of field.
    #[test]
    fn a_struct_is_the_same_in_both_languages() {
        let (u8s, f32s) = (c"u8".as_ptr(), c"f32".as_ptr());
        let inner = of(
            &[
                FieldRaw {
                    kind: u8s,
                    count: 4,
                    ..field_of(c"a", 0)
                },
                FieldRaw {
                    kind: f32s,
                    ..field_of(c"b", 4)
                },
            ],
            size_of::<Inner>(),
        );
        assert_eq!(inner, Inner::FINGERPRINT);
        let [text, pointer, number] = [c"PStr", c"P", c"i64"].map(|kind| kind.as_ptr());
        let mut fields = [
            FieldRaw {
                kind: text,
                ..field_of(c"owner", 0)
            },
            FieldRaw {
                of: inner,
                ..field_of(c"inner", 16)
            },
            FieldRaw {
                kind: pointer,
                ..field_of(c"next", 24)
            },
            FieldRaw {
                kind: number,
                count: 3,
                ..field_of(c"each", 32)
            },
        ];
        assert_eq!(of(&fields, size_of::<Outer>()), Outer::FINGERPRINT);
        // Another name, another type, another place.
        fields[2].name = c"last".as_ptr();
        assert_ne!(of(&fields, size_of::<Outer>()), Outer::FINGERPRINT);
        // Rust would refuse these: a gap, and a tail.
        fields[3].offset = 40;
        assert_eq!(of(&fields, 64), 0);
        fields[3].offset = 32;
        assert_eq!(of(&fields, 64), 0);
        fields[1].of = 0;
        assert_eq!(of(&fields, size_of::<Outer>()), 0);
    }
}

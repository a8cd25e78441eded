//! The settings that a program gives for a database before it opens it: items of five types, by
//! name.

use std::collections::HashMap;
use std::ffi::{CStr, CString, c_char, c_int, c_void};

use crate::pointers::{bytes, lend, put, take_back, text, there, there_mut};
use crate::status::{Answer, Status, fail, null, run, told};

type Getter = unsafe extern "C" fn(*mut c_void) -> *mut c_void;
type Deleter = Option<unsafe extern "C" fn(*mut c_void)>;

/// An item.
enum Item {
    Unsigned(u64),
    Signed(i64),
    Text(CString),
    Data(Vec<u8>),
    Object(Object),
}

/// Something of the program's.
struct Object {
    value: *mut c_void,
    getter: Option<Getter>,
    deleter: Deleter,
}

impl Drop for Object {
    fn drop(&mut self) {
        if let Some(deleter) = self.deleter {
            // SAFETY: the program gave it for this value, and it is called once.
            unsafe { deleter(self.value) };
        }
    }
}

/// `pmemkv_config`.
#[derive(Default)]
pub struct Config {
    items: HashMap<Vec<u8>, Item>,
}

impl Config {
    fn find(&self, key: &CStr) -> Answer<&Item> {
        match self.items.get(key.to_bytes()) {
            Some(item) => Ok(item),
            None => told(
                Status::NotFound,
                &format!("the configuration has no {}", key.to_string_lossy()),
            ),
        }
    }

    /// A number, of whatever sign it was put with; `None`: there is no such item.
    pub fn number(&self, key: &CStr) -> Answer<Option<u64>> {
        match self.items.get(key.to_bytes()) {
            None => Ok(None),
            Some(item) => unsigned(key, item).map(Some),
        }
    }

    /// A text; `None`: there is no such item.
    pub fn text(&self, key: &CStr) -> Answer<Option<&CStr>> {
        match self.items.get(key.to_bytes()) {
            None => Ok(None),
            Some(Item::Text(text)) => Ok(Some(text)),
            Some(_) => other_type(key),
        }
    }

    pub fn has(&self, key: &CStr) -> bool {
        self.items.contains_key(key.to_bytes())
    }
}

fn other_type<T>(key: &CStr) -> Answer<T> {
    let words = format!("{} is of another type", key.to_string_lossy());
    told(Status::ConfigTypeError, &words)
}

fn unsigned(key: &CStr, item: &Item) -> Answer<u64> {
    match item {
        Item::Unsigned(value) => Ok(*value),
        Item::Signed(value) => u64::try_from(*value).or_else(|_| other_type(key)),
        _ => other_type(key),
    }
}

/// Puts an item in the place of one of this name.
///
/// # Safety
/// The manual page's.
unsafe fn put_item(
    config: *mut Config,
    key: *const c_char,
    item: impl FnOnce() -> Answer<Item>,
) -> c_int {
    run(|| {
        // SAFETY: the caller's promise.
        let (config, key) = unsafe { (there_mut(config)?, text(key)?) };
        config.items.insert(key.to_bytes().to_vec(), item()?);
        Ok(())
    })
}

/// Reads an item.
///
/// # Safety
/// The manual page's.
unsafe fn get_item(
    config: *mut Config,
    key: *const c_char,
    read: impl FnOnce(&CStr, &Item) -> Answer<()>,
) -> c_int {
    run(|| {
        // SAFETY: the caller's promise.
        let (config, key) = unsafe { (there(config)?, text(key)?) };
        read(key, config.find(key)?)
    })
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub extern "C" fn pmemkv_config_new() -> *mut Config {
    lend(Config::default())
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_delete(config: *mut Config) {
    // SAFETY: as the page says.
    drop(unsafe { take_back(config) });
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_data(
    config: *mut Config,
    key: *const c_char,
    value: *const c_void,
    size: usize,
) -> c_int {
    // SAFETY: as the page says.
    unsafe {
        put_item(config, key, || {
            Ok(Item::Data(bytes(value.cast(), size)?.to_vec()))
        })
    }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_object(
    config: *mut Config,
    key: *const c_char,
    value: *mut c_void,
    deleter: Deleter,
) -> c_int {
    let object = || {
        Ok(Item::Object(Object {
            value,
            getter: None,
            deleter,
        }))
    };
    // SAFETY: as the page says.
    unsafe { put_item(config, key, object) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_object_cb(
    config: *mut Config,
    key: *const c_char,
    value: *mut c_void,
    getter: Option<Getter>,
    deleter: Deleter,
) -> c_int {
    let object = || match getter {
        None => null(),
        getter => Ok(Item::Object(Object {
            value,
            getter,
            deleter,
        })),
    };
    // SAFETY: as the page says.
    unsafe { put_item(config, key, object) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_uint64(
    config: *mut Config,
    key: *const c_char,
    value: u64,
) -> c_int {
    // SAFETY: as the page says.
    unsafe { put_item(config, key, || Ok(Item::Unsigned(value))) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_int64(
    config: *mut Config,
    key: *const c_char,
    value: i64,
) -> c_int {
    // SAFETY: as the page says.
    unsafe { put_item(config, key, || Ok(Item::Signed(value))) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_string(
    config: *mut Config,
    key: *const c_char,
    value: *const c_char,
) -> c_int {
    // SAFETY: as the page says.
    unsafe { put_item(config, key, || Ok(Item::Text(text(value)?.to_owned()))) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_get_data(
    config: *mut Config,
    key: *const c_char,
    value: *mut *const c_void,
    size: *mut usize,
) -> c_int {
    let read = |key: &CStr, item: &Item| match item {
        Item::Data(data) if !value.is_null() && !size.is_null() => {
            // SAFETY: as the page says.
            unsafe { put(value, data.as_ptr().cast()).and_then(|()| put(size, data.len())) }
        }
        Item::Data(_) => null(),
        _ => other_type(key),
    };
    // SAFETY: as the page says.
    unsafe { get_item(config, key, read) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_get_object(
    config: *mut Config,
    key: *const c_char,
    value: *mut *mut c_void,
) -> c_int {
    let read = |key: &CStr, item: &Item| match item {
        Item::Object(object) => {
            let shown = match object.getter {
                // SAFETY: the program gave it for this value.
                Some(getter) => unsafe { getter(object.value) },
                None => object.value,
            };
            // SAFETY: as the page says.
            unsafe { put(value, shown) }
        }
        _ => other_type(key),
    };
    // SAFETY: as the page says.
    unsafe { get_item(config, key, read) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_get_uint64(
    config: *mut Config,
    key: *const c_char,
    value: *mut u64,
) -> c_int {
    // SAFETY: as the page says.
    unsafe { get_item(config, key, |key, item| put(value, unsigned(key, item)?)) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_get_int64(
    config: *mut Config,
    key: *const c_char,
    value: *mut i64,
) -> c_int {
    let read = |key: &CStr, item: &Item| {
        let number = match item {
            Item::Signed(number) => *number,
            Item::Unsigned(number) => i64::try_from(*number).or_else(|_| other_type(key))?,
            _ => return other_type(key),
        };
        // SAFETY: as the page says.
        unsafe { put(value, number) }
    };
    // SAFETY: as the page says.
    unsafe { get_item(config, key, read) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_get_string(
    config: *mut Config,
    key: *const c_char,
    value: *mut *const c_char,
) -> c_int {
    let read = |key: &CStr, item: &Item| match item {
        // SAFETY: as the page says.
        Item::Text(text) => unsafe { put(value, text.as_ptr()) },
        _ => other_type(key),
    };
    // SAFETY: as the page says.
    unsafe { get_item(config, key, read) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_size(config: *mut Config, value: u64) -> c_int {
    // SAFETY: as the page says.
    unsafe { pmemkv_config_put_uint64(config, c"size".as_ptr(), value) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_path(
    config: *mut Config,
    value: *const c_char,
) -> c_int {
    // SAFETY: as the page says.
    unsafe { pmemkv_config_put_string(config, c"path".as_ptr(), value) }
}

/// See libpmemkv_config(3): the older name of the next one.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_force_create(config: *mut Config, value: u8) -> c_int {
    // SAFETY: as the page says.
    unsafe { pmemkv_config_put_create_or_error_if_exists(config, value) }
}

/// See libpmemkv_config(3). A `bool` of C is a byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_create_or_error_if_exists(
    config: *mut Config,
    value: u8,
) -> c_int {
    let (key, value) = (c"create_or_error_if_exists", u64::from(value != 0));
    // SAFETY: as the page says.
    unsafe { pmemkv_config_put_uint64(config, key.as_ptr(), value) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_create_if_missing(
    config: *mut Config,
    value: u8,
) -> c_int {
    let (key, value) = (c"create_if_missing", u64::from(value != 0));
    // SAFETY: as the page says.
    unsafe { pmemkv_config_put_uint64(config, key.as_ptr(), value) }
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_comparator(
    config: *mut Config,
    comparator: *mut Comparator,
) -> c_int {
    if comparator.is_null() {
        return run(null);
    }
    unsafe extern "C" fn delete(comparator: *mut c_void) {
        // SAFETY: `put_comparator` was given it, and with it the right to delete it.
        unsafe { pmemkv_comparator_delete(comparator.cast()) };
    }
    let key = c"comparator".as_ptr();
    // SAFETY: as the page says.
    unsafe { pmemkv_config_put_object(config, key, comparator.cast(), Some(delete)) }
}

/// See libpmemkv_config(3). No engine of this library can be in an object of a PMDK pool: a
/// database with an `oid` can't be opened.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_config_put_oid(config: *mut Config, oid: *mut c_void) -> c_int {
    if oid.is_null() {
        return run(null);
    }
    // SAFETY: as the page says.
    unsafe { pmemkv_config_put_object(config, c"oid".as_ptr(), oid, None) }
}

/// `pmemkv_compare_function`.
type Compare =
    unsafe extern "C" fn(*const c_char, usize, *const c_char, usize, *mut c_void) -> c_int;

/// `pmemkv_comparator`: an order of keys. A sorted engine has the order of bytes alone, and can't
/// be opened with one. Others pass it over, as the original's unsorted engines do.
pub struct Comparator {
    _compare: Compare,
    _name: CString,
    _argument: *mut c_void,
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_comparator_new(
    compare: Option<Compare>,
    name: *const c_char,
    argument: *mut c_void,
) -> *mut Comparator {
    let mut made = std::ptr::null_mut();
    run(|| {
        let Some(compare) = compare else {
            return fail(Status::InvalidArgument, c"a comparator has a function");
        };
        // SAFETY: as the page says.
        let name = unsafe { text(name) }?.to_owned();
        made = lend(Comparator {
            _compare: compare,
            _name: name,
            _argument: argument,
        });
        Ok(())
    });
    made
}

/// See libpmemkv_config(3).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn pmemkv_comparator_delete(comparator: *mut Comparator) {
    // SAFETY: as the page says.
    drop(unsafe { take_back(comparator) });
}

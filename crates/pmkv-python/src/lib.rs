//! The Python module `pmkv`: a mapping of bytes to bytes in a heap.
//!
//! [`views`] gives Python addresses in the heap, which is what this crate's `unsafe` is for.
#![deny(unsafe_code)]

mod views;

use std::cell::Cell;
use std::ops::Bound as End;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::Duration;

use pmkv::{Change, Expect, Expiry, Kind, Owned};
use pmlib::{Heap, Options};
use pyo3::create_exception;
use pyo3::exceptions::{PyException, PyKeyError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

/// Calls with more bytes than these let other threads of Python run.
const LONG_BYTES: usize = 4096;
/// The size of a heap that is made, bytes.
const SIZE: u64 = 64 << 20;

thread_local! {
    /// Whether the value that this thread read last was a long one.
    static WAS_LONG: Cell<bool> = const { Cell::new(false) };
}

create_exception!(
    pmkv,
    Error,
    PyException,
    "A call on a heap or an engine failed."
);

fn told(error: impl Into<pmkv::Error>) -> PyErr {
    Error::new_err(error.into().to_string())
}

/// A mapping of bytes to bytes. Each change is durable when its call returns.
#[pyclass(mapping, module = "pmkv")]
struct Db {
    engine: RwLock<Option<Arc<Owned>>>,
}

impl Db {
    fn engine(&self) -> PyResult<Arc<Owned>> {
        let engine = self.engine.read().unwrap_or_else(PoisonError::into_inner);
        engine
            .clone()
            .ok_or_else(|| PyValueError::new_err("the database is closed"))
    }

    fn store(
        &self,
        py: Python<'_>,
        key: &[u8],
        expected: Option<Expect<'_>>,
        value: &[u8],
    ) -> PyResult<bool> {
        let engine = self.engine()?;
        let put = || match expected {
            None => engine.store().put(key, value).map(|()| true),
            Some(expected) => engine.store().put_if(key, expected, value),
        };
        let done = if value.len() > LONG_BYTES {
            py.detach(put)
        } else {
            put()
        };
        done.map_err(told)
    }

    /// The value of a key. How long it is is not known beforehand: the last one that was read by
    /// this thread tells whether others run meanwhile.
    fn find(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        let engine = self.engine()?;
        let get = || engine.store().get(key);
        let found = if WAS_LONG.get() {
            py.detach(get)
        } else {
            get()
        };
        let found = found.map_err(told)?;
        WAS_LONG.set(found.as_ref().is_some_and(|value| value.len() > LONG_BYTES));
        Ok(found)
    }
}

#[pymethods]
impl Db {
    fn __getitem__<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        match self.find(py, key)? {
            Some(value) => Ok(PyBytes::new(py, &value)),
            None => Err(PyKeyError::new_err(PyBytes::new(py, key).unbind())),
        }
    }

    fn __setitem__(&self, py: Python<'_>, key: &[u8], value: &[u8]) -> PyResult<()> {
        self.store(py, key, None, value).map(drop)
    }

    fn __delitem__(&self, py: Python<'_>, key: &[u8]) -> PyResult<()> {
        match self.engine()?.store().delete(key).map_err(told)? {
            true => Ok(()),
            false => Err(PyKeyError::new_err(PyBytes::new(py, key).unbind())),
        }
    }

    fn __contains__(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        Ok(self.find(py, key)?.is_some())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.engine()?.store().stats().map_err(told)?.keys as usize)
    }

    fn __iter__(&self) -> PyResult<Walk> {
        self.keys()
    }

    /// The value of a key, or the default.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = self.find(py, key)?;
        Ok(found.map_or(default, |value| Some(PyBytes::new(py, &value).into_any())))
    }

    /// Puts a value if the key is not there; whether it was not.
    fn add(&self, py: Python<'_>, key: &[u8], value: &[u8]) -> PyResult<bool> {
        self.store(py, key, Some(Expect::Missing), value)
    }

    /// Puts a value if the key has the old one; whether it had.
    fn replace(&self, py: Python<'_>, key: &[u8], old: &[u8], value: &[u8]) -> PyResult<bool> {
        self.store(py, key, Some(Expect::Value(old)), value)
    }

    /// All keys, a hash's in no order.
    fn keys(&self) -> PyResult<Walk> {
        Ok(Walk::of(&self.engine()?, Part::Keys))
    }

    /// All values.
    fn values(&self) -> PyResult<Walk> {
        Ok(Walk::of(&self.engine()?, Part::Values))
    }

    /// All keys with their values.
    fn items(&self) -> PyResult<Walk> {
        Ok(Walk::of(&self.engine()?, Part::Both))
    }

    /// Puts a value for so many seconds, to the millisecond; then the key is missing.
    fn put_ttl(&self, py: Python<'_>, key: &[u8], value: &[u8], seconds: f64) -> PyResult<()> {
        let ttl = Duration::try_from_secs_f64(seconds);
        let ttl = ttl.map_err(|error| PyValueError::new_err(error.to_string()))?;
        let engine = self.engine()?;
        py.detach(|| engine.store().put_ttl(key, value, ttl))
            .map_err(told)
    }

    /// When a key expires, in seconds since 1970; None: it does not.
    fn expiry(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<f64>> {
        match self.engine()?.store().expiry(key).map_err(told)? {
            Some(Expiry::Never) => Ok(None),
            Some(Expiry::At(at)) => Ok(Some(at as f64 / 1000.0)),
            None => Err(PyKeyError::new_err(PyBytes::new(py, key).unbind())),
        }
    }

    /// Takes keys away that have expired, not as one change; how many they were.
    fn purge_expired(&self, py: Python<'_>) -> PyResult<u64> {
        let engine = self.engine()?;
        py.detach(|| engine.store().purge_expired()).map_err(told)
    }

    /// Makes several changes, all of them or none: pairs of a key and its value, or None to take
    /// the key away if it is there. The last one of several changes of one key counts.
    fn batch(&self, py: Python<'_>, changes: Vec<(Vec<u8>, Option<Vec<u8>>)>) -> PyResult<()> {
        let engine = self.engine()?;
        let each = changes.iter().map(|(key, value)| match value {
            Some(value) => Change::Put(key, value),
            None => Change::Delete(key),
        });
        let each: Vec<_> = each.collect();
        py.detach(|| engine.store().batch(&each)).map_err(told)
    }

    /// The keys from one on and before another one, with their values; a tree's in order. None: to
    /// that end.
    #[pyo3(signature = (start=None, end=None))]
    fn range(&self, start: Option<Vec<u8>>, end: Option<Vec<u8>>) -> PyResult<Walk> {
        let (start, end) = bounds(start, end);
        let entries = Mutex::new(self.engine()?.walk(start, end));
        let part = Part::Both;
        Ok(Walk { entries, part })
    }

    /// Begins a session, in which values are read without a copy, as memoryviews.
    fn reader(&self) -> PyResult<views::Reader> {
        let reader = self.engine()?.read(Duration::MAX).map_err(told)?;
        Ok(views::Reader::of(reader))
    }

    /// Takes a snapshot: the database as it is now, whatever is put and deleted later.
    fn snapshot(&self, py: Python<'_>) -> PyResult<views::Snapshot> {
        let engine = self.engine()?;
        let snapshot = py.detach(|| engine.snapshot(Duration::MAX));
        Ok(views::Snapshot::of(snapshot.map_err(told)?))
    }

    /// Takes all keys away, not as one change; how many they were.
    fn clear(&self) -> PyResult<u64> {
        self.engine()?.store().clear().map_err(told)
    }

    /// Leaves the heap, once no walk goes on, and no reader or snapshot is open.
    fn close(&self) -> PyResult<()> {
        let mut engine = self.engine.write().unwrap_or_else(PoisonError::into_inner);
        let Some(owned) = engine.take().and_then(Arc::into_inner) else {
            return Ok(());
        };
        match Arc::into_inner(owned.into_heap()).map(Heap::close) {
            Some(Err(error)) => Err(told(error)),
            _ => Ok(()),
        }
    }

    fn __enter__(this: Py<Db>) -> Py<Db> {
        this
    }

    fn __exit__(
        &self,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        self.close()
    }
}

/// The part of an entry that a walk gives.
#[derive(Clone, Copy)]
enum Part {
    Keys,
    Values,
    Both,
}

/// A walk over a database.
#[pyclass(module = "pmkv")]
struct Walk {
    entries: Mutex<pmkv::Walk>,
    part: Part,
}

impl Walk {
    fn of(engine: &Arc<Owned>, part: Part) -> Walk {
        let entries = Mutex::new(engine.walk(End::Unbounded, End::Unbounded));
        Walk { entries, part }
    }
}

#[pymethods]
impl Walk {
    fn __iter__(this: Py<Walk>) -> Py<Walk> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(entry) = entries.next() else {
            return Ok(None);
        };
        let entry = entry.map_err(told)?;
        entry_of(py, self.part, &entry).map(Some)
    }
}

/// The bounds of a range, as Python gives them: from one key on and before another one.
fn bounds(start: Option<Vec<u8>>, end: Option<Vec<u8>>) -> (End<Vec<u8>>, End<Vec<u8>>) {
    let start = start.map_or(End::Unbounded, End::Included);
    (start, end.map_or(End::Unbounded, End::Excluded))
}

/// A part of an entry, as Python has it.
fn entry_of<'py>(
    py: Python<'py>,
    part: Part,
    (key, value): &pmkv::Entry,
) -> PyResult<Bound<'py, PyAny>> {
    let (key, value) = (PyBytes::new(py, key), PyBytes::new(py, value));
    Ok(match part {
        Part::Keys => key.into_any(),
        Part::Values => value.into_any(),
        Part::Both => (key, value).into_pyobject(py)?.into_any(),
    })
}

/// Opens the engine of this name in the heap in a file; both are made, if they are missing. `size`
/// is the first size of a heap that is made, bytes. `kind` is "hash" or "tree", whose keys are in
/// the order of their bytes.
#[pyfunction]
#[pyo3(signature = (path, name="kv", size=SIZE, kind="hash"))]
fn open(path: PathBuf, name: &str, size: u64, kind: &str) -> PyResult<Db> {
    let kind = match kind {
        "hash" => Kind::Hash,
        "tree" => Kind::Tree,
        _ => {
            return Err(PyValueError::new_err(
                "a database is a \"hash\" or a \"tree\"",
            ));
        }
    };
    let options = Options::default();
    let heap = match path.symlink_metadata() {
        Ok(_) => Heap::open(&path, &options),
        Err(_) => Heap::create(&path, size, &options),
    };
    let heap = Arc::new(heap.map_err(told)?);
    let engine = Owned::open(heap, kind, name).map_err(told)?;
    let engine = RwLock::new(Some(Arc::new(engine)));
    Ok(Db { engine })
}

/// Keys and values in persistent memory.
#[pymodule(name = "pmkv")]
fn make(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("Error", module.py().get_type::<Error>())?;
    module.add_class::<Db>()?;
    module.add_class::<views::Reader>()?;
    module.add_class::<views::Snapshot>()?;
    let hook = wrap_pyfunction!(views::released_in_child, module)?;
    let words = PyDict::new(module.py());
    words.set_item("after_in_child", hook)?;
    let os = module.py().import("os")?;
    os.call_method("register_at_fork", (), Some(&words))?;
    module.add_function(wrap_pyfunction!(open, module)?)
}

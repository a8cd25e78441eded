//! Values without a copy: views of the heap's memory, as Python's memoryviews.
//!
//! - A view's memory is mapped and its bytes stay as they are while its session is open. A session
//!   here has no end that others may bring about, so no view is ever found to be of no use later.
//! - A view has a share of its session, by way of [`Value`]. So neither can go before it.
//! - [`Held::close`] releases the memoryviews that were given out, whose use is `ValueError` from
//!   then on. Where one of them was handed on, to a slice or an array, the session stays open and
//!   the call is `BufferError`, as with `mmap` and `bytearray`.
//! - In a child of a fork the memoryviews that its parent had given out are released at once
//!   ([`released_in_child`]), since the child has no session by which their bytes would stay.
//!   Slices of them are still mapped, and as they were for as long as the parent's session is open.

use std::ffi::c_int;
use std::ops::Bound as End;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use pmkv::{OwnedReader, OwnedSnapshot, SnapshotWalk, ValueRef};
use pyo3::exceptions::{PyBufferError, PyKeyError, PyValueError};
use pyo3::ffi;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyMemoryView, PyWeakrefMethods, PyWeakrefReference};

use crate::{Part, bounds, entry_of, told};

/// The least length of a list of views that is worth its cleaning.
const VIEWS_MIN: usize = 64;

/// The thing that keeps values as they are.
enum Keeper {
    Reader(OwnedReader),
    Snapshot(Arc<OwnedSnapshot>),
}

/// A session or snapshot with the views of its values.
struct Held {
    keeper: Keeper,
    /// Buffers that are in use.
    exports: AtomicUsize,
    /// The memoryviews that were given out.
    views: Mutex<Vec<Py<PyWeakrefReference>>>,
}

/// The sessions and snapshots of this process.
static ALL: Mutex<Vec<Weak<Held>>> = Mutex::new(Vec::new());

/// Releases the memoryviews that a parent had, in its child. With the interpreter's lock held, as
/// all that locks something here, so that no other thread has held it in the parent.
#[pyfunction]
pub fn released_in_child(py: Python<'_>) -> PyResult<()> {
    let all = match ALL.try_lock() {
        Ok(mut all) => std::mem::take(&mut *all),
        Err(_) => return Ok(()),
    };
    for held in all.iter().filter_map(Weak::upgrade) {
        held.release(py)?;
    }
    Ok(())
}

impl Held {
    fn of(keeper: Keeper) -> Arc<Held> {
        let held = Arc::new(Held {
            keeper,
            exports: AtomicUsize::new(0),
            views: Mutex::default(),
        });
        let mut all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|held| held.strong_count() > 0);
        all.push(Arc::downgrade(&held));
        held
    }

    fn check(&self) -> pmkv::Result<()> {
        match &self.keeper {
            Keeper::Reader(reader) => reader.reader().check(),
            Keeper::Snapshot(snapshot) => snapshot.snapshot().check(),
        }
    }

    /// A view of a key's value; `None`: the key is not there.
    fn view<'py>(
        self: &Arc<Self>,
        py: Python<'py>,
        key: &[u8],
    ) -> PyResult<Option<Bound<'py, PyMemoryView>>> {
        let found = match &self.keeper {
            Keeper::Reader(reader) => reader.reader().get(key),
            Keeper::Snapshot(snapshot) => snapshot.snapshot().get_ref(key),
        };
        let place = |value: ValueRef<'_>| (value.as_ptr().addr(), value.len() as usize);
        let Some((address, len)) = found.map_err(told)?.map(place) else {
            return Ok(None);
        };
        let held = self.clone();
        let value = Bound::new(py, Value { held, address, len })?;
        let view = PyMemoryView::from(value.as_any())?;
        self.note(py, &view)?;
        Ok(Some(view))
    }

    fn note(&self, py: Python<'_>, view: &Bound<'_, PyMemoryView>) -> PyResult<()> {
        let weak = PyWeakrefReference::new(view)?.unbind();
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if views.len() >= VIEWS_MIN && views.len() == views.capacity() {
            views.retain(|view| view.bind(py).upgrade().is_some());
            let room = views.len().max(VIEWS_MIN);
            views.reserve_exact(room);
        }
        views.push(weak);
        Ok(())
    }

    /// Releases the views that nothing else was made of.
    fn release(&self, py: Python<'_>) -> PyResult<()> {
        let views = || self.views.lock().unwrap_or_else(PoisonError::into_inner);
        let given = std::mem::take(&mut *views());
        for weak in given {
            let Some(view) = weak.bind(py).upgrade() else {
                continue;
            };
            match view.call_method0("release") {
                Ok(_) => {}
                Err(error) if error.is_instance_of::<PyBufferError>(py) => views().push(weak),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Releases all views, if nothing else was made of one.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        self.release(py)?;
        match self.exports.load(Ordering::Acquire) {
            0 => Ok(()),
            count => Err(PyBufferError::new_err(format!(
                "{count} views of values are in use: release them first"
            ))),
        }
    }
}

/// A value where it is: what a memoryview is made of.
#[pyclass(frozen, module = "pmkv")]
struct Value {
    held: Arc<Held>,
    address: usize,
    len: usize,
}

#[pymethods]
impl Value {
    fn __len__(&self) -> usize {
        self.len
    }

    #[allow(unsafe_code)]
    unsafe fn __getbuffer__(
        this: Bound<'_, Self>,
        view: *mut ffi::Py_buffer,
        flags: c_int,
    ) -> PyResult<()> {
        let value = this.get();
        // A child of a fork has no session.
        let checked = value.held.check();
        checked.map_err(|error| PyBufferError::new_err(error.to_string()))?;
        let address = std::ptr::with_exposed_provenance_mut(value.address);
        // SAFETY: Python gives a view to fill in. `len` bytes from `address` on are mapped, for as
        // long as the heap is, of which this object has a share, as the view has of this object.
        // Nobody stores there while the session is open. The view is one to read only.
        let filled = unsafe {
            ffi::PyBuffer_FillInfo(view, this.as_ptr(), address, value.len as isize, 1, flags)
        };
        if filled != 0 {
            return Err(PyErr::fetch(this.py()));
        }
        value.held.exports.fetch_add(1, Ordering::AcqRel);
        Ok(())
    }

    #[allow(unsafe_code)]
    unsafe fn __releasebuffer__(&self, _view: *mut ffi::Py_buffer) {
        self.held.exports.fetch_sub(1, Ordering::AcqRel);
    }
}

fn missing(py: Python<'_>, key: &[u8]) -> PyErr {
    PyKeyError::new_err(PyBytes::new(py, key).unbind())
}

/// A session in which values are read without a copy. No room of the heap is used again that is
/// freed while it is open.
#[pyclass(frozen, module = "pmkv")]
pub struct Reader {
    held: Mutex<Option<Arc<Held>>>,
}

/// Takes what is held, if no view of it is in use.
fn close(py: Python<'_>, held: &Mutex<Option<Arc<Held>>>) -> PyResult<()> {
    let open = held.lock().unwrap_or_else(PoisonError::into_inner).clone();
    if let Some(open) = open {
        open.close(py)?;
        held.lock().unwrap_or_else(PoisonError::into_inner).take();
    }
    Ok(())
}

fn open(held: &Mutex<Option<Arc<Held>>>, what: &str) -> PyResult<Arc<Held>> {
    let held = held.lock().unwrap_or_else(PoisonError::into_inner);
    let open = held.clone();
    open.ok_or_else(|| PyValueError::new_err(format!("the {what} is closed")))
}

impl Reader {
    pub fn of(reader: OwnedReader) -> Reader {
        let held = Mutex::new(Some(Held::of(Keeper::Reader(reader))));
        Reader { held }
    }
}

#[pymethods]
impl Reader {
    /// The value of a key as it is now, as a memoryview.
    fn __getitem__<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyMemoryView>> {
        let found = open(&self.held, "reader")?.view(py, key)?;
        found.ok_or_else(|| missing(py, key))
    }

    /// The same, or the default.
    #[pyo3(signature = (key, default=None))]
    fn get<'py>(
        &self,
        py: Python<'py>,
        key: &[u8],
        default: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Option<Bound<'py, PyAny>>> {
        let found = open(&self.held, "reader")?.view(py, key)?;
        Ok(found.map_or(default, |view| Some(view.into_any())))
    }

    /// Ends the session, and releases its memoryviews. BufferError: a slice of one, or something
    /// else that was made of one, is in use.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        close(py, &self.held)
    }

    fn __enter__(this: Py<Reader>) -> Py<Reader> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        close(py, &self.held)
    }
}

/// A database as it was at one instant.
#[pyclass(frozen, mapping, module = "pmkv")]
pub struct Snapshot {
    held: Mutex<Option<Arc<Held>>>,
}

impl Snapshot {
    pub fn of(snapshot: OwnedSnapshot) -> Snapshot {
        let held = Mutex::new(Some(Held::of(Keeper::Snapshot(Arc::new(snapshot)))));
        Snapshot { held }
    }

    fn snapshot(&self) -> PyResult<Arc<OwnedSnapshot>> {
        match &open(&self.held, "snapshot")?.keeper {
            Keeper::Snapshot(snapshot) => Ok(snapshot.clone()),
            Keeper::Reader(_) => Err(PyValueError::new_err("it is no snapshot")),
        }
    }

    fn find(&self, py: Python<'_>, key: &[u8]) -> PyResult<Option<Vec<u8>>> {
        let snapshot = self.snapshot()?;
        py.detach(|| snapshot.snapshot().get(key)).map_err(told)
    }

    fn walk(&self, part: Part, start: End<Vec<u8>>, end: End<Vec<u8>>) -> PyResult<Seen> {
        let entries = Mutex::new(self.snapshot()?.walk(start, end));
        Ok(Seen { entries, part })
    }
}

#[pymethods]
impl Snapshot {
    fn __getitem__<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
        let found = self.find(py, key)?;
        let value = found.ok_or_else(|| missing(py, key))?;
        Ok(PyBytes::new(py, &value))
    }

    fn __contains__(&self, py: Python<'_>, key: &[u8]) -> PyResult<bool> {
        Ok(self.find(py, key)?.is_some())
    }

    fn __len__(&self) -> PyResult<usize> {
        Ok(self.snapshot()?.snapshot().count().map_err(told)? as usize)
    }

    fn __iter__(&self) -> PyResult<Seen> {
        self.keys()
    }

    /// The value that a key had, or the default.
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

    /// The value that a key had, as a memoryview.
    fn view<'py>(&self, py: Python<'py>, key: &[u8]) -> PyResult<Bound<'py, PyMemoryView>> {
        let found = open(&self.held, "snapshot")?.view(py, key)?;
        found.ok_or_else(|| missing(py, key))
    }

    /// All keys, a hash's in no order.
    fn keys(&self) -> PyResult<Seen> {
        self.walk(Part::Keys, End::Unbounded, End::Unbounded)
    }

    /// All values.
    fn values(&self) -> PyResult<Seen> {
        self.walk(Part::Values, End::Unbounded, End::Unbounded)
    }

    /// All keys with their values.
    fn items(&self) -> PyResult<Seen> {
        self.walk(Part::Both, End::Unbounded, End::Unbounded)
    }

    /// The keys from one on and before another one, with their values; a tree's in order. None: to
    /// that end.
    #[pyo3(signature = (start=None, end=None))]
    fn range(&self, start: Option<Vec<u8>>, end: Option<Vec<u8>>) -> PyResult<Seen> {
        let (start, end) = bounds(start, end);
        self.walk(Part::Both, start, end)
    }

    /// Ends it, once no walk goes on, as a reader ends.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        close(py, &self.held)
    }

    fn __enter__(this: Py<Snapshot>) -> Py<Snapshot> {
        this
    }

    fn __exit__(
        &self,
        py: Python<'_>,
        _kind: &Bound<'_, PyAny>,
        _error: &Bound<'_, PyAny>,
        _trace: &Bound<'_, PyAny>,
    ) -> PyResult<()> {
        close(py, &self.held)
    }
}

/// A walk over a snapshot.
#[pyclass(module = "pmkv")]
pub struct Seen {
    entries: Mutex<SnapshotWalk>,
    part: Part,
}

#[pymethods]
impl Seen {
    fn __iter__(this: Py<Seen>) -> Py<Seen> {
        this
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.next().transpose().map_err(told)?;
        entry
            .map(|entry| entry_of(py, self.part, &entry))
            .transpose()
    }
}

//! Room that an engine has and does not need, given back to its heap.

use crate::engine::Index;
use crate::error::Result;
use crate::kv::Kv;

impl<I: Index> Kv<'_, I> {
    /// Gives chunks of records back to the heap that have no record any more, so that its other
    /// objects can have them; answers how many bytes. Records are not moved: a chunk with one
    /// stays. A tree's leaves with few keys are joined. Others may use the engine meanwhile. All
    /// records are looked at by the first call of a run, and the whole index is written back.
    ///
    /// # Errors
    /// `Damaged`; `Heap`.
    pub fn compact(&self) -> Result<u64> {
        self.ground.enter_to_change()?;
        let _window = self.ground.mem().window();
        I::compact(self)?;
        self.free_empty_chunks()
    }
}

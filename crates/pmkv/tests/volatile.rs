//! Volatile engines: they grow, flush nothing, and take all calls.

use pmkv::{Change, Kind, Owned};

/// Goal: an engine in memory takes more than it had at first, and never flushes. Method: both kinds
/// are filled past their first size, and the medium is asked for its flush.
#[test]
fn memory_alone() {
    for kind in [Kind::Hash, Kind::Tree] {
        let engine = Owned::volatile(kind, 2 << 20, 1 << 30).unwrap();
        let before = engine.heap().size();
        for nth in 0..20_000u64 {
            engine.store().put(&nth.to_be_bytes(), &[7; 200]).unwrap();
        }
        let gone = 5u64.to_be_bytes();
        engine.store().batch(&[Change::Delete(&gone)]).unwrap();
        assert!(engine.heap().size() > before);
        assert_eq!(engine.store().stats().unwrap().keys, 19_999);
        assert_eq!(engine.heap().medium().flush, pmem::FlushInstr::None);
    }
    assert!(Owned::volatile(Kind::Hash, u64::MAX / 2, u64::MAX).is_err());
}

//! What came of a run: medians and ratios (`summary`), as a table on a terminal, as one HTML page, and beside another run.

pub mod chart;
pub mod compare;
pub mod page;
pub mod summary;
pub mod table;

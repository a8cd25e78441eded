//! The report of a run: medians and ratios (`summary`), as a table on a terminal, as one HTML page,
//! its figures as files, in three small files for a tree, and beside another run.

pub mod chart;
pub mod compare;
pub mod condensed;
pub mod figures;
pub mod page;
pub mod summary;
pub mod table;

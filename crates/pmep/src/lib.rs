//! A fast model of Optane modules, fitted to published measurements.
//!
//! Two models share one set of numbers ([`device`]): closed forms ([`analytic`]) answer patterns,
//! and an event model ([`sim`]) answers single accesses and traces. One is the other's test.
#![forbid(unsafe_code)]

pub mod analytic;
pub mod buffer;
pub mod cache;
pub mod chain;
pub mod device;
mod error;
pub mod fit;
pub mod geometry;
pub mod observe;
pub mod pattern;
pub mod points;
pub mod score;
pub mod sim;
pub mod trace;

pub use device::Device;
pub use error::{BadInput, Result};
pub use geometry::Geometry;
pub use pattern::{Generation, Machine, Op, Order, Pattern};

//! Scripted programs around the product: clients that CONNECT, and targets. Each is a process of its own,
//! with a minimal edge-triggered loop over `Sys`, and reports what it saw.

pub(crate) mod client;
pub(crate) mod session;
pub(crate) mod target;

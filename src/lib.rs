//! Tautline: reach nodes behind NAT through agents that dial out.
//!
//! `wire` and [`core`] are pure; [`net`] is the loop over a small trait of system calls; [`app`] alone knows
//! both; [`cli`] turns flags into options. ARCHITECTURE.md is the map.

pub mod app;
pub mod cli;
pub mod core;
pub mod key;
pub mod kube;
pub mod limits;
pub mod net;
pub mod token;

//! Deterministic simulation: the shipped loop over a simulated kernel, one thread, one seed.
//!
//! `TAUTLINE_SIM_SEED=n` replays one seed, `TAUTLINE_SIM_SEEDS=n` sets how many a sweep runs,
//! `TAUTLINE_SIM_TRACE=1` prints every event.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "a simulator that finds its own state broken must stop the test at once"
)]
#![allow(dead_code, reason = "the kernel and its actors are whole; not every fault has its scenario yet")]

mod actors;
mod calls;
mod conn;
mod dns;
mod edges;
mod faults;
mod kernel;
mod marks;
mod net;
mod pattern;
mod pipe;
mod poll;
mod quirks;
mod rng;
mod seeds;
mod selftest;
mod sys;
mod tcp;
mod timers;
mod trace;
mod tunnel;
mod uds;
mod world;

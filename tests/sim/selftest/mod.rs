//! The simulator's own tests: a simulator needs tests too.

mod chaos;
mod client;
mod determinism;
mod edges;
mod faults;
mod pair;
mod semantics;
mod services;
mod transfer;

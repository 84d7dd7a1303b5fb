//! The pure half: bytes, events and `now` in; effects, bytes and a deadline out. No sockets, no clock.

pub mod http;
pub mod ids;
pub mod metrics;
pub mod mux;
#[cfg(test)]
pub(crate) mod testing;
pub mod timers;

//! The pure half: bytes, events and `now` in; effects, bytes and a deadline out. No sockets, no clock.

pub mod agent;
pub mod connect;
pub mod drain;
pub mod http;
pub mod ids;
pub mod json;
pub mod metrics;
pub mod mux;
pub mod note;
pub mod ratelimit;
pub mod rng;
pub mod role;
pub mod server;
#[cfg(test)]
pub(crate) mod testing;
pub mod timers;

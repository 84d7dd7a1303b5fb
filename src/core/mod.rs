//! The pure half: bytes, events and `now` in; effects, bytes and a deadline out. No sockets, no clock.

pub mod http;
pub mod metrics;
pub mod ratelimit;
pub mod rng;

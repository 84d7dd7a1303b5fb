//! The loop's lower half: sockets, TLS, helper threads. Knows nothing of streams or roles.

pub mod ffi;
pub mod logger;
pub mod outbuf;
pub mod process;
pub mod readiness;
pub mod signal;
pub mod sys;
pub mod tasks;
pub mod tls;
pub mod transport;
pub mod unix;
pub mod worker;

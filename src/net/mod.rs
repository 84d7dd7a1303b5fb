//! The loop's lower half: sockets, TLS, helper threads. Knows nothing of streams or roles.

pub mod ffi;
pub mod logger;
pub mod process;
pub mod signal;
pub mod sys;
pub mod tls;
pub mod unix;
pub mod worker;

//! Edge-triggered readiness of one registered socket.
//!
//! An edge is certain only when its direction is armed: from registration on, and again after the owner
//! saw `WouldBlock`. Everything else (`Kernel::raise_*`) is a gift that the quirks decide on.

use std::time::Duration;

use tautline::net::sys::Hints;

#[derive(Default)]
pub(crate) struct Edges {
    /// The next cause to read raises an edge for certain.
    pub(crate) read_armed: bool,
    pub(crate) write_armed: bool,
    /// Flags that are owed to the owner.
    pub(crate) due: Hints,
    /// When they may be delivered.
    pub(crate) due_at: Duration,
    /// Stands in its process's list of sockets with something due.
    pub(crate) listed: bool,
    /// The owner saw the end of the stream (EOF or an error): there is no more to read.
    pub(crate) read_ended: bool,
}

pub(crate) const fn any(hints: Hints) -> bool {
    hints.readable || hints.writable || hints.read_closed || hints.hup || hints.error
}

/// Flags as one number, for the trace.
pub(crate) fn bits(hints: Hints) -> u64 {
    u64::from(hints.readable)
        | u64::from(hints.writable) << 1
        | u64::from(hints.read_closed) << 2
        | u64::from(hints.hup) << 3
        | u64::from(hints.error) << 4
}

//! Shared by the unit tests of core: a point in time to count from.

use std::time::Instant;

/// The instant at which a test begins. Tests only add to it.
#[expect(clippy::disallowed_methods, reason = "a base for a virtual clock; nothing depends on its value")]
pub(crate) fn start() -> Instant {
    Instant::now()
}

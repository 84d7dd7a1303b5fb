//! The time between the first SIGTERM and the end: what lives goes on, within a limit.

use std::time::{Duration, Instant};

use crate::limits::{DRAIN_LINGER, DRAIN_LOOK};

/// Why a process that drains ends now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// Nothing was alive any more for a moment.
    Quiet,
    /// The limit is reached; what is alive is cut.
    Limit,
}

/// A process that drains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Drain {
    until: Instant,
    /// When something was alive last: who did not hear of the drain yet may still send a dial.
    busy_at: Instant,
}

impl Drain {
    /// Begins now and lasts `limit` at most.
    #[must_use]
    pub fn new(now: Instant, limit: Duration) -> Self {
        Self { until: now + limit, busy_at: now }
    }

    /// Looks whether it is over. `busy`: a dial or tunnel is alive.
    pub fn look(&mut self, now: Instant, busy: bool) -> Option<Over> {
        if busy {
            self.busy_at = now;
        }
        if now >= self.until {
            Some(Over::Limit)
        } else if now.saturating_duration_since(self.busy_at) >= DRAIN_LINGER {
            Some(Over::Quiet)
        } else {
            None
        }
    }

    /// When to look next.
    #[must_use]
    pub fn next_look(&self, now: Instant) -> Instant {
        self.until.min(now + DRAIN_LOOK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::core::testing::start;

    #[test]
    fn it_ends_a_moment_after_the_last_sign_of_life_or_at_the_limit() {
        let t = start();
        let limit = 10 * DRAIN_LINGER;
        let mut drain = Drain::new(t, limit);
        assert_eq!(drain.look(t, false), None, "a dial may be on its way");
        assert_eq!(drain.look(t + DRAIN_LINGER, true), None);
        assert_eq!(drain.look(t + 2 * DRAIN_LINGER - DRAIN_LOOK, false), None);
        assert_eq!(drain.look(t + 2 * DRAIN_LINGER, false), Some(Over::Quiet));
        assert_eq!(drain.look(t + limit, true), Some(Over::Limit));
        assert_eq!(drain.next_look(t + limit - DRAIN_LOOK / 2), t + limit);
    }
}

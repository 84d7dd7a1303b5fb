//! The link that an agent wants to its server: when to look the name up, connect, give up, try again.
//!
//! ```text
//!            due                    addresses          connected            WELCOME
//!  Waiting ──────▶ [ReadingToken ▶] Resolving ────▶ Connecting ────────▶ Greeting ─────────▶ Up
//!     ▲               │               │                    │                │
//!     └───────────────┴───────────────┴────────────────────┴────────────────┘  failed, refused, lost
//! ```

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::core::connect::Race;
use crate::core::ids::JobId;
use crate::core::rng::Rng;
use crate::key::Key;
use crate::limits::{REDIAL_DELAY_MAX, REDIAL_DELAY_MIN};

/// How far it is.
#[derive(Debug)]
pub(super) enum Uplink {
    /// Until it is time to try again.
    Waiting {
        /// Then.
        until: Instant,
    },
    /// The token is being read, anew at each try: the kubelet replaces it.
    ReadingToken {
        /// The task.
        job: JobId,
        /// Then the attempt ends.
        deadline: Instant,
    },
    /// The name is being looked up, anew at each try.
    Resolving {
        /// The look-up.
        job: JobId,
        /// Then the last good addresses are tried, or the attempt ends.
        deadline: Instant,
    },
    /// Addresses are being tried.
    Connecting(Race),
    /// TLS and HELLO are under way.
    Greeting {
        /// The connection.
        conn: Key,
        /// Its address, remembered if it is good.
        to: SocketAddr,
        /// Then the attempt ends.
        deadline: Instant,
    },
    /// WELCOME came.
    Up {
        /// The connection.
        conn: Key,
    },
}

impl Uplink {
    /// When it wants to be looked at.
    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Waiting { until } => Some(*until),
            Self::ReadingToken { deadline, .. }
            | Self::Resolving { deadline, .. }
            | Self::Greeting { deadline, .. } => Some(*deadline),
            Self::Connecting(race) => Some(race.poll_timeout()),
            Self::Up { .. } => None,
        }
    }

    /// The connection, if there is one.
    pub(super) fn conn(&self) -> Option<Key> {
        match self {
            Self::Greeting { conn, .. } | Self::Up { conn } => Some(*conn),
            Self::Waiting { .. }
            | Self::ReadingToken { .. }
            | Self::Resolving { .. }
            | Self::Connecting(_) => None,
        }
    }

    /// A word for `/status`.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Waiting { .. } => "waiting",
            Self::ReadingToken { .. } => "reading_token",
            Self::Resolving { .. } => "resolving",
            Self::Connecting(_) => "connecting",
            Self::Greeting { .. } => "greeting",
            Self::Up { .. } => "up",
        }
    }
}

/// Time until the next try. A server that does not answer is tried again soon, for ever: it may heal any moment.
/// One that answers and refuses is asked less and less often.
#[derive(Debug)]
pub(super) struct Backoff {
    base: Duration,
    cap: Duration,
    current: Duration,
}

impl Backoff {
    /// `--sync-interval` and `--sync-interval-cap`.
    pub(super) fn new(base: Duration, cap: Duration) -> Self {
        Self { base, cap, current: base }
    }

    /// The server was not reached, or the link was lost. Spread over more than a second from the first time on,
    /// so that a fleet that lost one server does not come back as one.
    pub(super) fn after_silence(rng: &mut Rng) -> Duration {
        rng.between(REDIAL_DELAY_MIN, REDIAL_DELAY_MAX)
    }

    /// The server answered no.
    pub(super) fn after_refusal(&mut self, rng: &mut Rng) -> Duration {
        let delay = self.current;
        self.current = (delay * 3 / 2).min(self.cap);
        delay + rng.between(Duration::ZERO, delay.max(REDIAL_DELAY_MIN))
    }

    /// The server took us.
    pub(super) fn reset(&mut self) {
        self.current = self.base;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_grow_to_the_cap_and_silence_does_not() {
        let mut rng = Rng::new(1);
        let mut backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(10));
        let delays: Vec<Duration> = (0..20).map(|_| backoff.after_refusal(&mut rng)).collect();
        assert!(delays[0] >= Duration::from_secs(1) && delays[0] <= Duration::from_secs(2));
        assert!(delays[19] >= Duration::from_secs(10) && delays[19] <= Duration::from_secs(20));
        for _ in 0..1000 {
            let delay = Backoff::after_silence(&mut rng);
            assert!(delay >= REDIAL_DELAY_MIN && delay <= REDIAL_DELAY_MAX);
        }
        backoff.reset();
        assert!(backoff.after_refusal(&mut rng) <= Duration::from_secs(2));
    }

    #[test]
    fn the_first_retry_of_a_fleet_is_spread_over_a_second() {
        let delays: Vec<Duration> =
            (0..200).map(|seed| Backoff::after_silence(&mut Rng::new(seed))).collect();
        let spread = *delays.iter().max().unwrap() - *delays.iter().min().unwrap();
        assert!(spread > Duration::from_secs(1), "{spread:?}");
    }
}

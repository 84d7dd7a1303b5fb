//! One dial at the agent: a look-up if the target is a name, a race over its addresses, one deadline for both.

use std::net::SocketAddr;
use std::time::Instant;

use tautline_wire::DialCode;

use crate::core::connect::{Failure, Race};
use crate::core::ids::{JobId, StreamKey};
use crate::core::timers::TimerSlot;
use crate::key::Key;

/// How far a dial is.
#[derive(Debug)]
pub(super) enum Progress {
    /// The name is being looked up.
    Resolving {
        /// The look-up.
        job: JobId,
    },
    /// Addresses are being tried.
    Connecting(Race),
}

/// A target that is not connected yet.
#[derive(Debug)]
pub(super) struct TargetDial {
    pub(super) link: Key,
    pub(super) stream: StreamKey,
    pub(super) target: String,
    pub(super) started: Instant,
    pub(super) deadline: Instant,
    pub(super) progress: Progress,
    pub(super) timer: TimerSlot,
}

impl TargetDial {
    /// The look-up gave addresses.
    pub(super) fn resolved(&mut self, now: Instant, addresses: Vec<SocketAddr>) {
        self.progress = Progress::Connecting(Race::new(now, addresses, self.deadline));
    }

    /// When it wants to be looked at.
    pub(super) fn poll_timeout(&self) -> Instant {
        match &self.progress {
            Progress::Resolving { .. } => self.deadline,
            Progress::Connecting(race) => race.poll_timeout(),
        }
    }

    /// What the server is told when the deadline passes during the look-up.
    pub(super) fn look_up_timed_out(&self) -> Failure {
        Failure::new(DialCode::TimedOut, format!("{}: the name was not resolved in time", self.target))
    }
}

//! What a link says to its role, and what it wants of its sockets.

use std::fmt;
use std::time::Duration;

use tautline_wire::{CloseCode, DecodeError, DialFailure, GoAway, GoAwayCode, Hello, Welcome};

use super::stream::Origin;
use crate::core::ids::StreamKey;
use crate::core::metrics::{FrameCounters, Histogram};
use crate::key::Key;

/// Why a link cannot go on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkError {
    /// The peer's bytes are not frames.
    Decode(DecodeError),
    /// The peer broke a rule of PROTOCOL.md.
    PeerMisbehaved(&'static str),
    /// Nothing was received for `--dead-after`.
    PeerSilent {
        /// For how long.
        silence: Duration,
    },
    /// The peer asks but does not read the answers.
    ControlBacklog,
}

impl LinkError {
    /// A word for metrics and logs.
    #[must_use]
    pub const fn label(&self) -> &'static str {
        match self {
            Self::Decode(_) | Self::PeerMisbehaved(_) => "protocol",
            Self::PeerSilent { .. } => "silent",
            Self::ControlBacklog => "backlog",
        }
    }

    /// What the peer is told, if it can still be told.
    #[must_use]
    pub fn go_away(&self) -> GoAway {
        let code = match self {
            Self::Decode(_) | Self::PeerMisbehaved(_) => GoAwayCode::Protocol,
            Self::PeerSilent { .. } => GoAwayCode::Other,
            Self::ControlBacklog => GoAwayCode::TooMany,
        };
        GoAway { code, text: self.to_string() }
    }
}

impl fmt::Display for LinkError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Decode(error) => error.fmt(f),
            Self::PeerMisbehaved(rule) => write!(f, "protocol violation: {rule}"),
            Self::PeerSilent { silence } => write!(f, "nothing received for {:.1} s", silence.as_secs_f64()),
            Self::ControlBacklog => f.write_str("the peer does not read"),
        }
    }
}

impl std::error::Error for LinkError {}

/// How a stream ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamEnd {
    /// FIN passed both ways.
    Finished {
        /// Who sent the first FIN.
        first: Origin,
    },
    /// This end closed it.
    ClosedHere(CloseCode),
    /// The peer closed it.
    ClosedThere(CloseCode),
}

/// What a role learns from a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LinkEvent {
    /// Server: an agent introduces itself.
    Hello(Hello),
    /// Agent: the server took us.
    Welcome(Welcome),
    /// Agent: connect to a target.
    DialRequested {
        /// The stream to answer for.
        stream: StreamKey,
        /// `host:port`.
        target: String,
        /// How long the server waits for the answer.
        time_left: Duration,
    },
    /// Server: the target is connected.
    Opened {
        /// The frontend.
        owner: Key,
        /// Its stream.
        stream: StreamKey,
    },
    /// Server: the agent could not connect.
    DialFailed {
        /// The frontend.
        owner: Key,
        /// Its stream, which is gone.
        stream: StreamKey,
        /// Why.
        failure: DialFailure,
    },
    /// A stream is gone.
    Ended {
        /// The connection of its socket; nobody if an agent was still dialling for it.
        owner: Key,
        /// The stream.
        stream: StreamKey,
        /// How.
        end: StreamEnd,
    },
    /// The peer wants no new dials.
    Drain,
    /// The peer ends the link.
    GoAway(GoAway),
    /// The peer became suspect, or (with `false_after`) turned out to be alive.
    HealthChanged {
        /// How long a suspicion lasted that was false.
        false_after: Option<Duration>,
    },
}

/// Where received payload goes.
pub trait DataSink {
    /// Takes all of `bytes` (the window bounds them), and the end of the direction with `fin`. Returns how many
    /// bytes the socket took at once; the rest is reported later by [`super::Link::consumed`].
    fn deliver(&mut self, owner: Key, bytes: &[u8], fin: bool) -> usize;
}

/// What a source had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pulled {
    /// So many bytes, never 0; there may be more.
    Bytes(usize),
    /// Nothing now; [`super::Link::source_ready`] follows.
    Blocked,
    /// End of the direction.
    Fin,
    /// Both directions are over.
    Closed(CloseCode),
}

/// Where payload comes from.
pub trait DataSource {
    /// Reads into `into`, which is not empty.
    fn pull(&mut self, owner: Key, into: &mut [u8]) -> Pulled;
}

/// What passed over a link.
#[derive(Debug, Clone)]
pub struct LinkStats {
    /// Frames by direction and type; a DATA frame that came in pieces counts once a piece.
    pub frames: FrameCounters,
    /// Payload bytes sent.
    pub bytes_sent: u64,
    /// Payload bytes received.
    pub bytes_received: u64,
    /// Frames for streams that were gone; they cross with CLOSE.
    pub frames_ignored: u64,
    /// From PING to PONG.
    pub round_trips: Histogram,
}

impl Default for LinkStats {
    fn default() -> Self {
        Self {
            frames: FrameCounters::default(),
            bytes_sent: 0,
            bytes_received: 0,
            frames_ignored: 0,
            round_trips: Histogram::of_round_trips(),
        }
    }
}

impl LinkStats {
    /// Adds `other` to the sums.
    pub fn add(&mut self, other: &Self) {
        self.frames.merge(&other.frames);
        self.bytes_sent += other.bytes_sent;
        self.bytes_received += other.bytes_received;
        self.frames_ignored += other.frames_ignored;
        self.round_trips.merge(&other.round_trips);
    }
}

//! The inner seam: what the driver tells a role, and what a role may ask of the world.
//!
//! Rule of use: after each call that may change the role, the driver drains [`Role::poll_effect`] to `None`.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

use tautline_wire::GoAway;

use super::connect::Failure;
use super::ids::{JobId, StreamKey};
use super::metrics::ProcessStats;
use super::mux::{Link, LinkError, WindowBudget};
use super::note::Note;
use crate::key::Key;
use crate::token::{Secret, Verdict};

/// What a listener is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Door {
    /// Agents' links.
    Agents,
    /// HTTP CONNECT clients.
    Frontends,
}

/// How a connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// Deliver what is queued, end our direction, read to the end within the linger limit.
    Flush,
    /// Deliver what is queued, then reset.
    FlushThenReset,
    /// Reset now (a Unix socket can only be closed).
    Abort,
}

impl Manner {
    /// How a link is closed after `error`: nobody waits for a peer that is silent to read its last words.
    #[must_use]
    pub const fn after(error: &LinkError) -> Self {
        match error {
            LinkError::PeerSilent { .. } => Self::Abort,
            _ => Self::Flush,
        }
    }
}

/// Everything that a role may ask of the world.
#[derive(Debug)]
pub enum Effect {
    /// Look a name up; the answer is [`Role::on_resolved`].
    Resolve {
        /// Comes back with the answer.
        job: JobId,
        /// A host name without brackets.
        host: String,
        /// Copied into each address.
        port: u16,
        /// For a link (else for a target): it goes first.
        link: bool,
    },
    /// Read the token file; the answer is [`Role::on_token`].
    ReadToken {
        /// Comes back with the answer.
        job: JobId,
    },
    /// Have an agent's token judged; the answer is [`Role::on_reviewed`].
    Review {
        /// Comes back with the answer.
        job: JobId,
        /// What the agent showed.
        token: Secret,
    },
    /// A look-up, a token or a verdict that is not wanted any more. An answer may come all the same.
    CancelJob {
        /// Which.
        job: JobId,
    },
    /// Connect; the answer is [`Role::on_connected`].
    Connect {
        /// Comes back with the answer.
        job: JobId,
        /// Where to.
        to: SocketAddr,
        /// For a link (else for a target).
        link: bool,
    },
    /// A connect that is not wanted any more. No answer comes.
    CancelConnect {
        /// Which.
        job: JobId,
    },
    /// A connection becomes the agent's end of a link; TLS first, if links use it.
    StartLink {
        /// The connection.
        conn: Key,
    },
    /// A connection becomes one end of a tunnel.
    Bridge {
        /// The connection.
        conn: Key,
        /// The connection of its link.
        link: Key,
        /// Its stream on that link.
        stream: StreamKey,
        /// Sent first, and apart from what the target says.
        answer: Option<&'static [u8]>,
    },
    /// The last words to a connection that becomes no tunnel; it is closed behind them.
    Answer {
        /// The connection.
        conn: Key,
        /// The whole answer.
        bytes: Cow<'static, [u8]>,
    },
    /// Close a connection.
    Close {
        /// Which.
        conn: Key,
        /// How.
        manner: Manner,
    },
    /// A link has something to send.
    Transmit {
        /// The connection of the link.
        link: Key,
    },
    /// Close a link that the role has dropped, after a last frame.
    EndLink {
        /// The connection of the link.
        link: Key,
        /// Tells the peer why.
        last_words: Option<GoAway>,
        /// How: a peer that is silent is not waited for.
        manner: Manner,
    },
    /// A line for the log.
    Note(Note),
}

/// Why a connection that was not a tunnel is gone, as its socket or TLS says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lost {
    /// For people.
    pub text: String,
    /// The other end answered, and refused us (TLS alert, wrong protocol).
    pub refused: bool,
}

/// What became of the bytes of a head.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeadStep {
    /// The head is not complete.
    More,
    /// The head was so many bytes; a dial began.
    Took(usize),
    /// An answer was given; the connection ends.
    Answered,
}

/// Figures that only the driver knows, for the health and admin ports.
#[derive(Debug, Clone, Default)]
pub struct ProcessReport {
    /// About the process.
    pub stats: ProcessStats,
    /// Connections in the driver's table, listeners included.
    pub connections: usize,
}

/// The server or the agent.
pub trait Role {
    /// The link of a connection.
    fn link(&mut self, conn: Key) -> Option<(&mut Link, &mut WindowBudget)>;

    /// Whoever connects here waits in the kernel's backlog for a moment: there is no room for one more stranger.
    fn is_full(&self, now: Instant, door: Door) -> bool;

    /// Somebody connected. False: the connection is closed at once (a bound is reached).
    fn on_accept(&mut self, now: Instant, door: Door, conn: Key, from: Option<SocketAddr>) -> bool;

    /// Bytes of a frontend before its tunnel: all that are there, from the first one on.
    fn on_head(&mut self, now: Instant, conn: Key, bytes: &[u8]) -> HeadStep;

    /// A link was given bytes, a timeout or the chance to send: fetch its events, look at its deadline.
    fn on_link_activity(&mut self, now: Instant, conn: Key);

    /// A link cannot go on.
    fn on_link_error(&mut self, now: Instant, conn: Key, error: LinkError);

    /// A link's connection, or a frontend that is not a tunnel yet, is gone. The driver closes it itself.
    fn on_lost(&mut self, now: Instant, conn: Key, lost: Lost);

    /// The end of [`Effect::Resolve`].
    fn on_resolved(&mut self, now: Instant, job: JobId, result: Result<Vec<SocketAddr>, Failure>);

    /// The end of [`Effect::ReadToken`], or why there is none.
    fn on_token(&mut self, now: Instant, job: JobId, result: Result<Secret, String>);

    /// The end of [`Effect::Review`].
    fn on_reviewed(&mut self, now: Instant, job: JobId, verdict: Verdict);

    /// The end of [`Effect::Connect`]: a connection, or why there is none.
    fn on_connected(&mut self, now: Instant, job: JobId, result: Result<Key, Failure>);

    /// Call it when [`Role::poll_timeout`] is due, after sockets were read.
    fn handle_timeout(&mut self, now: Instant);

    /// The next deadline.
    fn poll_timeout(&self) -> Option<Instant>;

    /// The next thing to do.
    fn poll_effect(&mut self) -> Option<Effect>;

    /// Our process stood still for `pause`: nobody is blamed for silence in it.
    fn forgive(&mut self, pause: Duration);

    /// SIGTERM. The second one ends the process at once.
    fn on_terminate(&mut self, now: Instant);

    /// True when the process shall end.
    fn is_finished(&self) -> bool;

    /// The answer of `/readyz`.
    fn is_ready(&self) -> bool;

    /// Books how late a turn of the loop was.
    fn on_turn(&mut self, lag: Duration);

    /// A connection waits at a listener and cannot be taken: `error` tells what the process is out of.
    fn on_accept_failed(&mut self, now: Instant, error: &str);

    /// A client of the health or admin port was cut, to make room for another.
    fn on_probe_evicted(&mut self);

    /// A client of the health or admin port did not speak HTTP but `text`.
    fn on_probe_refused(&mut self, now: Instant, from: Option<SocketAddr>, text: &str);

    /// A connection that was closing was cut, since descriptors are short.
    fn on_closing_evicted(&mut self);

    /// A connection had more work than its share of one turn.
    fn on_budget_exhausted(&mut self);

    /// The answer of a health or admin port to a whole request head.
    /// `process` is asked only if the answer needs it: it reads /proc.
    fn admin(&self, now: Instant, head: &[u8], process: &dyn Fn() -> ProcessReport) -> AdminStep;
}

/// What a health or admin port does with the bytes it has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminStep {
    /// The head is not complete.
    More,
    /// The answer; the connection ends.
    Answer(Vec<u8>),
    /// The same, to what is no request.
    Refuse {
        /// The answer.
        answer: Vec<u8>,
        /// What it was, for the log.
        text: &'static str,
    },
}

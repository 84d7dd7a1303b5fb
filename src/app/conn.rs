//! A connection of the driver: a socket, and what it is for.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use crate::core::ids::{JobId, StreamKey};
use crate::core::role::Door;
use crate::core::timers::TimerSlot;
use crate::key::Key;
use crate::net::sys::{Peer, Sock};
use crate::net::transport::Transport;

/// What a listener takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Connections of the role.
    Role(Door),
    /// Probes, metrics, status: through which of these doors.
    Http(usize),
}

/// One direction of a tunnel's socket.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    /// Bytes may follow.
    Open,
    /// The end was queued behind the bytes that wait (writing), or was passed on (reading).
    Finished,
    /// The end was sent (writing only).
    Sent,
    /// Nobody is there any more: bytes are dropped (writing only).
    Dead,
}

/// A connection that is one end of a tunnel.
#[derive(Debug)]
pub(super) struct Tunnel {
    pub(super) link: Key,
    pub(super) stream: StreamKey,
    pub(super) read: Half,
    pub(super) write: Half,
    /// What the target said while the 200 is on its way: it waits until the client has read that.
    pub(super) held: Option<Vec<u8>>,
    /// The socket said ECONNRESET or EPIPE while we wrote.
    pub(super) reset: bool,
    /// Is somebody there who acknowledges what is written?
    pub(super) watch: Watch,
}

/// Whether a tunnel's socket is looked at for a peer that vanished.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Watch {
    /// Nothing was written since the last look.
    Off,
    /// Something was: a timer is wanted.
    Wanted,
    /// The timer runs.
    On,
}

/// A connection on its way out.
#[derive(Debug)]
pub(super) struct Closing {
    /// As in [`Tunnel`]: the 200 is not read yet.
    pub(super) held: Option<Vec<u8>>,
    /// End with a reset.
    pub(super) reset: bool,
    /// Our FIN went out.
    pub(super) fin_sent: bool,
    /// Bytes that still waited when progress was seen last.
    pub(super) left: usize,
    /// When that was.
    pub(super) since: Instant,
    /// Until it is looked at again, if no edge comes before.
    pub(super) pause: Duration,
}

/// A client of the health or admin port.
#[derive(Debug)]
pub(super) struct Probe {
    /// What it sent.
    pub(super) head: Vec<u8>,
    pub(super) from: Option<SocketAddr>,
}

/// What a connection is for.
#[derive(Debug)]
pub(super) enum Mode {
    /// Accepts. Its timer runs while it rests.
    Listener(Purpose),
    /// Asked for by a role, not connected yet.
    Connecting {
        /// What the role asked for.
        job: JobId,
        /// Where to.
        to: SocketAddr,
    },
    /// Connected; the role is about to say what becomes of it.
    Idle,
    /// A link.
    Link,
    /// A frontend whose head is being read.
    Head(Vec<u8>),
    /// A frontend whose dial is pending, with the bytes that came behind its head.
    Pending(Vec<u8>),
    /// One end of a tunnel.
    Tunnel(Tunnel),
    /// A client of the health or admin port.
    Http(Probe),
    /// On its way out.
    Closing(Closing),
}

/// One connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub(super) transport: Transport,
    pub(super) mode: Mode,
    pub(super) unix: bool,
    /// It stands in the run queue.
    pub(super) queued: bool,
    /// It is a link with something to send, and stands in the list of those.
    pub(super) dirty: bool,
    pub(super) timer: TimerSlot,
}

impl Conn {
    pub(super) fn new(sock: Sock, mode: Mode, unix: bool) -> Self {
        Self {
            transport: Transport::new(sock),
            mode,
            unix,
            queued: false,
            dirty: false,
            timer: TimerSlot::default(),
        }
    }

    pub(super) fn accepted(sock: Sock, peer: &Peer, mode: Mode) -> Self {
        let mut conn = Self::new(sock, mode, *peer == Peer::Unix);
        // A fresh socket has room; the first edge may not tell.
        conn.transport.io.writable = true;
        conn
    }
}

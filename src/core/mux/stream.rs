//! One stream of a link: its two directions and their windows. All transitions are in this file.
//!
//! ```text
//!              DIAL_RSP ok                FIN sent / received
//!  Dialing ─────────────────▶ Open{send, recv} ──────────────▶ a direction is Finished
//!     │                          │                                  │ both
//!     │ DIAL_RSP error, DIAL_CLS │ CLOSE_REQ either way             ▼
//!     └──────────────────────────┴───────────────────────────────▶ gone
//! ```
//! "Gone" is removal from the link's table: a frame for a stream that is gone is ignored.

use std::time::Instant;

use super::flow::{RecvWindow, SendWindow};
use crate::key::Key;
use crate::limits::{HALF_CLOSED_IDLE_TIMEOUT, LINGER_TIMEOUT};

/// Whose act something was.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// This end of the link (its socket).
    Here,
    /// The other end.
    There,
}

/// One direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Half {
    /// Bytes may follow.
    Open,
    /// FIN passed.
    Finished,
}

/// How far a stream is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum StreamState {
    /// DIAL_REQ passed, DIAL_RSP did not.
    Dialing,
    /// Bytes flow.
    Open {
        /// From our socket to the peer.
        send: Half,
        /// From the peer to our socket.
        recv: Half,
        /// Who sent the first FIN.
        first_fin: Option<Origin>,
    },
}

/// One stream.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) id: u64,
    /// The connection of its socket; nobody while an agent still dials.
    pub(super) owner: Key,
    pub(super) state: StreamState,
    pub(super) send_window: SendWindow,
    pub(super) recv_window: RecvWindow,
    /// The source may have bytes (or FIN) for us.
    pub(super) source_ready: bool,
    /// It stands in the scheduler's ring.
    pub(super) scheduled: bool,
    /// It stands in the list of windows to grant.
    pub(super) grant_listed: bool,
    /// When a byte last passed, in either direction.
    pub(super) last_active: Instant,
    /// Its socket's peer is gone for good, and left bytes that the other end does not take: since when none of
    /// them moved.
    pub(super) orphaned: Option<Instant>,
}

impl Stream {
    /// A stream whose dial begins.
    pub(super) fn dialing(id: u64, owner: Key, credit: u32, recv_window: RecvWindow, now: Instant) -> Self {
        Self {
            id,
            owner,
            state: StreamState::Dialing,
            send_window: SendWindow::new(credit),
            recv_window,
            source_ready: false,
            scheduled: false,
            grant_listed: false,
            last_active: now,
            orphaned: None,
        }
    }

    /// The target is connected.
    pub(super) fn open(&mut self) {
        debug_assert_eq!(self.state, StreamState::Dialing);
        self.state = StreamState::Open { send: Half::Open, recv: Half::Open, first_fin: None };
    }

    /// True if bytes may be pulled from the source now.
    pub(super) fn may_send(&self) -> bool {
        self.source_ready
            && self.send_window.available() > 0
            && matches!(self.state, StreamState::Open { send: Half::Open, .. })
    }

    /// True if DATA of the peer is allowed.
    pub(super) fn may_receive(&self) -> bool {
        matches!(self.state, StreamState::Open { recv: Half::Open, .. })
    }

    /// True while exactly one direction is finished.
    pub(super) fn half_closed(&self) -> bool {
        matches!(self.state, StreamState::Open { send, recv, .. } if send != recv)
    }

    /// When it is given up if nothing moves until then.
    pub(super) fn idle_deadline(&self) -> Option<Instant> {
        let half_closed = self.half_closed().then(|| self.last_active + HALF_CLOSED_IDLE_TIMEOUT);
        let orphaned = self.orphaned.map(|since| since + LINGER_TIMEOUT);
        [half_closed, orphaned].into_iter().flatten().min()
    }

    /// Books a FIN. Returns who sent the first one if both directions are finished now.
    pub(super) fn finish(&mut self, origin: Origin) -> Option<Origin> {
        let StreamState::Open { send, recv, first_fin } = &mut self.state else { return None };
        match origin {
            Origin::Here => *send = Half::Finished,
            Origin::There => *recv = Half::Finished,
        }
        let first = *first_fin.get_or_insert(origin);
        (*send == Half::Finished && *recv == Half::Finished).then_some(first)
    }
}

//! Connections other than links: heads, pending dials, tunnels, connects, and those on their way out.

use std::time::Duration;

use super::App;
use super::bridge;
use super::conn::{Conn, Half, Mode, Watch};
use super::translate;
use crate::core::role::{HeadStep, Lost, Role};
use crate::key::Key;
use crate::limits::{
    CLOSING_POLL_MAX, EARLY_BYTES_MAX, HEAD_LEN_MAX, LINGER_TIMEOUT, VANISHED_AFTER, VANISHED_LOOK,
};
use crate::net::sys::{Sock, Sys};
use crate::net::transport::{Fill, TransportError};
use tautline_wire::CloseCode;

impl<S: Sys, R: Role> App<S, R> {
    /// Serves everything but links that has something to do.
    pub(super) fn serve_others(&mut self) {
        for _ in 0..self.others.len() {
            let Some(key) = self.others.pop_front() else { return };
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.queued = false;
            let handshaking = conn.transport.is_handshaking();
            if handshaking && self.handshakes_left == 0 {
                self.enqueue(key);
                continue;
            }
            self.handshakes_left -= usize::from(handshaking);
            self.serve(key);
        }
    }

    pub(super) fn serve(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        match conn.mode {
            Mode::Link | Mode::Listener(_) => self.enqueue(key),
            Mode::Connecting { .. } => self.serve_connecting(key),
            Mode::Idle => {}
            Mode::Head(_) => self.serve_head(key),
            Mode::Pending(_) => self.serve_pending(key),
            Mode::Tunnel(_) => self.serve_tunnel(key),
            Mode::Http(_) => self.serve_http(key),
            Mode::Closing(_) => self.serve_closing(key),
        }
    }

    pub(super) fn on_timer(&mut self, key: Key) {
        match self.conns.get(key).map(|conn| &conn.mode) {
            Some(Mode::Closing(_)) => self.serve_closing(key),
            Some(Mode::Http(_)) => self.discard(key),
            Some(Mode::Listener(_)) => self.accepting.push_back(key),
            Some(Mode::Tunnel(_)) => self.look_for_peer(key),
            _ => {}
        }
    }

    fn serve_connecting(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Mode::Connecting { job, to } = conn.mode else { return };
        match self.sys.connected(conn.transport.sock) {
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
            Err(error) => {
                self.connects.remove(&job);
                self.discard(key);
                self.role.on_connected(self.now, job, Err(translate::connect_failure(&error, to)));
                self.pump();
            }
            Ok(()) => {
                self.connects.remove(&job);
                conn.mode = Mode::Idle;
                conn.transport.io.writable = true;
                conn.transport.io.readable = true;
                self.role.on_connected(self.now, job, Ok(key));
                self.pump();
            }
        }
    }

    /// Reads a frontend's head as it comes.
    fn serve_head(&mut self, key: Key) {
        let mut chunk = [0; 4096];
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return };
            let Mode::Head(head) = &mut conn.mode else { return };
            match conn.transport.read(&mut self.sys, &mut self.tunnel_buffer, &mut chunk) {
                Ok((Fill::Progress, n)) => head.extend_from_slice(&chunk[..n]),
                Ok((Fill::Blocked, _)) => return self.flush_handshake(key),
                Ok((Fill::Eof, _)) => {
                    return self.frontend_gone(key, "the client left before its request was complete");
                }
                Err(error) => return self.frontend_refused(key, &error),
            }
            if head.is_empty() {
                continue;
            }
            let bytes = std::mem::take(head);
            let step = self.role.on_head(self.now, key, &bytes);
            let Some(conn) = self.conns.get_mut(key) else { return };
            match step {
                HeadStep::More if bytes.len() > HEAD_LEN_MAX + chunk.len() => {
                    debug_assert!(false, "the reader refuses a head that is too long");
                    return self.frontend_gone(key, "the head is too long");
                }
                HeadStep::More => conn.mode = Mode::Head(bytes),
                HeadStep::Took(n) => {
                    conn.mode = Mode::Pending(bytes[n..].to_vec());
                    self.pump();
                    return self.serve_pending(key);
                }
                HeadStep::Answered => return self.pump(),
            }
        }
    }

    /// Answers of a TLS handshake wait in the output.
    fn flush_handshake(&mut self, key: Key) {
        if let Some(conn) = self.conns.get_mut(key)
            && conn.transport.queued() > 0
            && let Err(error) = conn.transport.flush(&mut self.sys)
        {
            self.frontend_gone(key, &error.to_string());
        }
    }

    /// Watches a client whose dial is pending. On a Unix socket only HUP is an end: a bare FIN may be a half-close,
    /// and its bytes stay in the kernel. On TCP both look alike, so FIN cancels; early bytes are kept.
    fn serve_pending(&mut self, key: Key) {
        let mut chunk = [0; 4096];
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return };
            let Mode::Pending(early) = &mut conn.mode else { return };
            if conn.unix {
                if conn.transport.io.hup || conn.transport.io.error {
                    self.frontend_gone(key, "the client left while its dial was pending");
                }
                return;
            }
            if early.len() >= EARLY_BYTES_MAX {
                return;
            }
            match conn.transport.read(&mut self.sys, &mut self.tunnel_buffer, &mut chunk) {
                Ok((Fill::Progress, n)) => early.extend_from_slice(&chunk[..n]),
                Ok((Fill::Blocked, _)) => return,
                Ok((Fill::Eof, _)) => {
                    return self.frontend_gone(key, "the client left while its dial was pending");
                }
                Err(error) => return self.frontend_gone(key, &error.to_string()),
            }
        }
    }

    /// TLS failed: the alert goes out, and the log says what is wrong, since the client often does not.
    fn frontend_refused(&mut self, key: Key, error: &TransportError) {
        if let Some(conn) = self.conns.get_mut(key) {
            let _gone = conn.transport.flush(&mut self.sys);
        }
        self.discard(key);
        let lost = Lost { text: error.to_string(), refused: matches!(error, TransportError::Tls(_)) };
        self.role.on_lost(self.now, key, lost);
        self.pump();
    }

    fn frontend_gone(&mut self, key: Key, text: &str) {
        self.discard(key);
        self.role.on_lost(self.now, key, Lost { text: text.to_owned(), refused: false });
        self.pump();
    }

    /// Moves what can move of a tunnel's socket.
    fn serve_tunnel(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let taken = bridge::flush(&mut self.sys, conn);
        let Conn { transport, mode: Mode::Tunnel(tunnel), unix, timer, .. } = conn else { return };
        if tunnel.watch == Watch::Wanted {
            tunnel.watch = Watch::On;
            self.timers.set(key, timer, Some(self.now + VANISHED_LOOK));
        }
        // The peer closed its Unix socket: nothing that we write arrives, what it wrote is still there to read.
        if *unix && (transport.io.hup || transport.io.error) && tunnel.write != Half::Sent {
            tunnel.write = Half::Dead;
            tunnel.held = None;
            transport.drop_output();
        }
        let (link, stream) = (tunnel.link, tunnel.stream);
        let reading = tunnel.read == Half::Open;
        let gone = !reading && (transport.io.hup || transport.io.error || tunnel.write == Half::Dead);
        let code = if *unix && !transport.io.error { CloseCode::Normal } else { CloseCode::Reset };
        let has_input = transport.has_input();
        // A reset over TCP while the target takes nothing: no read would find it.
        let reset = !*unix && transport.io.error;
        let Some((mux, budget)) = self.role.link(link) else { return };
        let gone = gone || (reset && mux.is_stalled(stream));
        if taken > 0 {
            mux.consumed(self.now, stream, taken);
        }
        let orphaned = *unix && reading && tunnel.write == Half::Dead;
        if orphaned {
            mux.source_gone(stream, self.now);
        }
        if gone {
            // Both halves are over at this end, and no read will tell.
            mux.end_here(stream, budget, code);
        } else if reading && has_input {
            mux.source_ready(stream);
        }
        self.mark_dirty(link);
        if gone || orphaned {
            self.role.on_link_activity(self.now, link);
            self.pump();
        }
    }

    /// Ends a tunnel whose peer acknowledges nothing any more.
    fn look_for_peer(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Mode::Tunnel(tunnel) = &mut conn.mode else { return };
        tunnel.watch = Watch::Off;
        let sock = conn.transport.sock;
        if self.sys.unsent(sock).unwrap_or(0) == 0 {
            return;
        }
        let silent = self.sys.tcp_info(sock).map_or(Duration::ZERO, |info| info.last_ack_received);
        if silent < VANISHED_AFTER {
            tunnel.watch = Watch::On;
            return self.set_timer(key, Some(self.now + VANISHED_LOOK));
        }
        let (link, stream) = (tunnel.link, tunnel.stream);
        if let Some((mux, budget)) = self.role.link(link) {
            mux.end_here(stream, budget, CloseCode::TimedOut);
            self.mark_dirty(link);
            self.role.on_link_activity(self.now, link);
            self.pump();
        }
    }

    /// Lets a closing connection deliver what waits, then FIN, then its peer's end; within the linger limit.
    pub(super) fn serve_closing(&mut self, key: Key) {
        let now = self.now;
        let Some(conn) = self.conns.get_mut(key) else { return };
        let Mode::Closing(closing) = &mut conn.mode else { return };
        if conn.transport.flush(&mut self.sys).is_err() {
            return self.discard_with_reset(key);
        }
        let read = conn.transport.queued() == 0 && self.sys.unsent(conn.transport.sock).unwrap_or(0) == 0;
        if let Some(held) = closing.held.take_if(|_| read)
            && conn.transport.send_payload(&mut self.sys, &held).is_err()
        {
            return self.discard_with_reset(key);
        }
        let mut left = conn.transport.queued() + closing.held.as_ref().map_or(0, Vec::len);
        if left == 0 {
            if !closing.reset && !closing.fin_sent {
                closing.fin_sent = true;
                if conn.transport.finish(&mut self.sys).is_err() {
                    return self.discard(key);
                }
            }
            let ended =
                conn.unix && conn.transport.io.hup || discard_input(&mut self.sys, conn.transport.sock);
            left = self.sys.unsent(conn.transport.sock).unwrap_or(0);
            match (left == 0, closing.reset) {
                (true, true) => return self.discard_with_reset(key),
                (true, false) => return self.discard(key),
                (false, _) if ended => return self.discard(key),
                (false, _) => {}
            }
        }
        if left < closing.left {
            closing.since = now;
        }
        closing.left = left;
        if now.saturating_duration_since(closing.since) >= LINGER_TIMEOUT {
            return self.discard_with_reset(key);
        }
        let at = now + closing.pause;
        closing.pause = (closing.pause * 2).min(CLOSING_POLL_MAX);
        self.set_timer(key, Some(at));
    }
}

/// Reads and drops what a peer still says: a close with unread bytes would reset what it has not read yet. True at
/// the end of its bytes.
fn discard_input<S: Sys>(sys: &mut S, sock: Sock) -> bool {
    let mut chunk = [0; 16 * 1024];
    for _ in 0..16 {
        match sys.read(sock, &mut chunk) {
            Ok(0) => return true,
            Ok(_) => {}
            Err(error) => return error.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
    false
}

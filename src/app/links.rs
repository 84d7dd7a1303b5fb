//! Links: received bytes to the role's link, the link's bytes to the socket.

use std::ops::ControlFlow;

use super::bridge::Bridge;
use super::conn::{Conn, Mode};
use super::{App, LinkTls, translate};
use crate::core::role::{Lost, Role};
use crate::key::Key;
use crate::limits::{HANDSHAKES_PER_TURN, LINK_READ_PER_TURN, LINK_WRITE_PER_TURN};
use crate::net::sys::Sys;
use crate::net::tls::Tls;
use crate::net::transport::{Fill, TransportError};

impl<S: Sys, R: Role> App<S, R> {
    pub(super) fn start_server_tls(&mut self, key: Key) {
        if let LinkTls::Server(config) = &self.config.link_tls {
            let tls = Tls::server(config);
            self.put_tls(key, tls);
        }
    }

    pub(super) fn start_client_tls(&mut self, key: Key) {
        if let LinkTls::Client(config, name) = &self.config.link_tls {
            let tls = Tls::client(config, name);
            self.put_tls(key, tls);
        }
    }

    fn put_tls(&mut self, key: Key, tls: Result<Tls, crate::net::tls::TlsError>) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let started = tls.and_then(|tls| conn.transport.start_tls(tls));
        match started {
            Ok(()) => {
                // A failed write shows again when the socket is read.
                let _later = conn.transport.flush(&mut self.sys);
            }
            Err(error) => self.link_lost(key, &TransportError::Tls(error)),
        }
    }

    /// Reads the links that have something, each within its share.
    pub(super) fn read_links(&mut self) {
        self.handshakes_left = HANDSHAKES_PER_TURN;
        for _ in 0..self.links.len() {
            let Some(key) = self.links.pop_front() else { return };
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.queued = false;
            if !matches!(conn.mode, Mode::Link) {
                self.enqueue(key);
                continue;
            }
            if conn.transport.is_handshaking() {
                if self.handshakes_left == 0 {
                    self.enqueue(key);
                    continue;
                }
                self.handshakes_left -= 1;
            }
            if self.read_link(key) {
                self.enqueue(key);
            }
        }
    }

    /// Reads one link. True if it has more than its share.
    fn read_link(&mut self, key: Key) -> bool {
        let mut scratch = std::mem::take(&mut self.read_buffer);
        let more = self.read_link_into(key, &mut scratch);
        self.read_buffer = scratch;
        if self.conns.get(key).is_some_and(|conn| conn.transport.io.writable) {
            self.flush_link(key);
        }
        more
    }

    fn read_link_into(&mut self, key: Key, scratch: &mut [u8]) -> bool {
        let mut budget = LINK_READ_PER_TURN;
        let was_handshaking = self.conns.get(key).is_some_and(|conn| conn.transport.is_handshaking());
        while budget > 0 {
            // The transport leaves the table for the call, since its bytes go to other connections' sockets.
            let Some(conn) = self.conns.get_mut(key) else { return false };
            let sock = conn.transport.sock;
            let mut transport = std::mem::replace(&mut conn.transport, crate::net::transport::Transport::new(sock));
            let mut taken = 0;
            let fill = transport.fill_with(scratch, |sys_self: &mut Self, plain| sys_self.take_plain(key, plain, &mut taken), self);
            let Some(conn) = self.conns.get_mut(key) else {
                // The role closed it from within; the socket is gone.
                return false;
            };
            let fresh = std::mem::replace(&mut conn.transport, transport);
            debug_assert_eq!(fresh.queued(), 0, "nobody writes to a link while it is read");
            budget = budget.saturating_sub(taken.max(1));
            match fill {
                Ok(Fill::Progress) => {}
                Ok(Fill::Blocked | Fill::Stopped) => break,
                Ok(Fill::Eof) => {
                    self.link_gone(key, Lost { text: "the peer closed the connection".to_owned(), refused: false });
                    return false;
                }
                Err(error) => {
                    self.link_lost(key, &error);
                    return false;
                }
            }
        }
        if was_handshaking && self.conns.get(key).is_some_and(|conn| !conn.transport.is_handshaking()) {
            self.mark_dirty(key);
        }
        budget == 0
    }
}

//! Links: received bytes to the role's link, the link's bytes to the socket.

use super::bridge::Bridge;
use super::conn::Mode;
use super::{App, LinkTls};
use crate::core::role::{Door, Lost, Role};
use crate::key::Key;
use crate::limits::{LINK_READ_PER_TURN, LINK_WRITE_PER_TURN};
use crate::net::sys::Sys;
use crate::net::tls::{Tls, TlsError};
use crate::net::transport::{Fill, TransportError};

impl<S: Sys, R: Role> App<S, R> {
    /// Puts TLS on a connection that was accepted at `door`; a Unix socket needs none.
    pub(super) fn start_server_tls(&mut self, key: Key, door: Door, tcp: bool) {
        let config = match (door, &self.config.link_tls, &self.config.frontend_tls) {
            (Door::Agents, LinkTls::Server(config), _) => config,
            (Door::Frontends, _, Some(config)) if tcp => config,
            _ => return,
        };
        let tls = Tls::server(config);
        self.put_tls(key, tls);
    }

    pub(super) fn start_client_tls(&mut self, key: Key) {
        if let LinkTls::Client(config, name) = &self.config.link_tls {
            let tls = Tls::client(config, name.clone());
            self.put_tls(key, tls);
        }
    }

    fn put_tls(&mut self, key: Key, tls: Result<Tls, TlsError>) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        match tls.and_then(|tls| conn.transport.start_tls(tls)) {
            Ok(()) => {
                // A failed write shows again when the socket is read.
                let _later = conn.transport.flush(&mut self.sys);
            }
            Err(error) => self.link_broken(key, &TransportError::Tls(error)),
        }
    }

    /// Reads the links that have something, each within its share.
    pub(super) fn read_links(&mut self) {
        for _ in 0..self.links.len() {
            let Some(key) = self.links.pop_front() else { return };
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.queued = false;
            let handshaking = conn.transport.is_handshaking();
            if !matches!(conn.mode, Mode::Link) || (handshaking && self.handshakes_left == 0) {
                self.enqueue(key);
                continue;
            }
            self.handshakes_left -= usize::from(handshaking);
            let mut scratch = std::mem::take(&mut self.read_buffer);
            let mut opened = std::mem::take(&mut self.opened);
            let more = self.read_link(key, &mut scratch, &mut opened);
            self.read_buffer = scratch;
            self.opened = opened;
            if handshaking && self.conns.get(key).is_some_and(|conn| !conn.transport.is_handshaking()) {
                self.link_secured(key);
            }
            if more {
                self.enqueue(key);
            }
            // An edge says that there is room again; answers of a handshake wait in the output too.
            self.mark_dirty(key);
        }
    }

    /// Reads one link. True if it may have more than its share.
    fn read_link(&mut self, key: Key, scratch: &mut [u8], opened: &mut Vec<u8>) -> bool {
        let mut taken = 0;
        while taken < LINK_READ_PER_TURN {
            let Some(conn) = self.conns.get_mut(key) else { return false };
            let tls = conn.transport.is_tls();
            match conn.transport.fill(&mut self.sys, scratch, opened) {
                Ok((Fill::Progress, n)) => {
                    taken += n.max(1);
                    if !self.take_plain(key, if tls { opened } else { &scratch[..n] }) {
                        return false;
                    }
                }
                Ok((Fill::Blocked, _)) => return false,
                Ok((Fill::Eof, _)) => {
                    self.link_gone(
                        key,
                        Lost { text: "the peer closed the connection".to_owned(), refused: false },
                    );
                    return false;
                }
                Err(error) => {
                    self.link_broken(key, &error);
                    return false;
                }
            }
        }
        self.role.on_budget_exhausted();
        true
    }

    /// Gives plaintext to the link. False if the link is gone.
    fn take_plain(&mut self, key: Key, mut bytes: &[u8]) -> bool {
        while !bytes.is_empty() {
            let Some((link, budget)) = self.role.link(key) else { return false };
            let mut sink = Bridge {
                sys: &mut self.sys,
                conns: &mut self.conns,
                scratch: &mut self.tunnel_buffer,
                unserved: &mut self.unserved,
            };
            match link.handle_bytes(self.now, bytes, budget, &mut sink) {
                Ok(n) => bytes = &bytes[n..],
                Err(error) => {
                    self.role.on_link_error(self.now, key, error);
                    self.pump();
                    return false;
                }
            }
            self.role.on_link_activity(self.now, key);
            self.pump();
        }
        self.enqueue_unserved();
        true
    }

    fn enqueue_unserved(&mut self) {
        while let Some(key) = self.unserved.pop() {
            self.enqueue(key);
        }
    }

    fn link_secured(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if let Ok(info) = self.sys.tcp_info(conn.transport.sock)
            && let Some((link, _)) = self.role.link(key)
        {
            link.set_kernel_times(info.rtt, info.rto);
        }
        if let Some(tls) = conn.transport.tls() {
            let (name, parameters) = (tls.peer_name(), tls.parameters());
            log::debug!("msg=\"link secured\" peer_certificate={name:?} parameters={parameters:?}");
        }
    }

    /// The transport failed: say the alert, if TLS has one, and close.
    pub(super) fn link_broken(&mut self, key: Key, error: &TransportError) {
        if let Some(conn) = self.conns.get_mut(key) {
            let _gone = conn.transport.flush(&mut self.sys);
        }
        self.link_gone(
            key,
            Lost { text: error.to_string(), refused: matches!(error, TransportError::Tls(_)) },
        );
    }

    fn link_gone(&mut self, key: Key, lost: Lost) {
        self.discard(key);
        self.role.on_lost(self.now, key, lost);
        self.pump();
    }

    /// Writes the links that have something to send, each within its share.
    pub(super) fn write_links(&mut self) {
        for _ in 0..self.dirty.len() {
            let Some(key) = self.dirty.pop_front() else { return };
            let Some(conn) = self.conns.get_mut(key) else { continue };
            conn.dirty = false;
            if matches!(conn.mode, Mode::Link) && self.write_link(key) {
                self.mark_dirty(key);
            }
        }
    }

    /// Writes one link. True if it has more than its share.
    fn write_link(&mut self, key: Key) -> bool {
        let mut written = 0;
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return false };
            if let Err(error) = conn.transport.flush(&mut self.sys) {
                self.link_broken(key, &error);
                return false;
            }
            if conn.transport.queued() > 0 || !conn.transport.io.writable || conn.transport.is_handshaking() {
                return false;
            }
            let Some((link, budget)) = self.role.link(key) else { return false };
            if !link.wants_transmit() {
                return false;
            }
            if written >= LINK_WRITE_PER_TURN {
                self.role.on_budget_exhausted();
                return true;
            }
            self.transmit.clear();
            let mut source = Bridge {
                sys: &mut self.sys,
                conns: &mut self.conns,
                scratch: &mut self.tunnel_buffer,
                unserved: &mut self.unserved,
            };
            link.poll_transmit(self.now, budget, &mut source, &mut self.transmit);
            self.enqueue_unserved();
            written += self.transmit.filled().len();
            if let Some(conn) = self.conns.get_mut(key)
                && !self.transmit.filled().is_empty()
                && let Err(error) = conn.transport.send(&mut self.sys, self.transmit.filled())
            {
                self.link_broken(key, &error);
                return false;
            }
            self.role.on_link_activity(self.now, key);
            self.pump();
        }
    }
}

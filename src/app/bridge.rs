//! Tunnels' sockets as a link sees them: where payload comes from and goes to.

use std::io;

use super::conn::{Conn, Half, Mode, Tunnel, Watch};
use crate::core::mux::{DataSink, DataSource, Pulled};
use crate::key::{Key, Slots};
use crate::net::sys::Sys;
use crate::net::transport::{Fill, Transport, TransportError};
use tautline_wire::CloseCode;

/// Borrowed for one call of a link.
pub(super) struct Bridge<'a, S> {
    pub(super) sys: &'a mut S,
    pub(super) conns: &'a mut Slots<Conn>,
    /// For TLS frontends: where ciphertext is read to.
    pub(super) scratch: &'a mut [u8],
    /// Connections with something left to do; they are served when the link is free again.
    pub(super) unserved: &'a mut Vec<Key>,
}

impl<S: Sys> DataSink for Bridge<'_, S> {
    fn deliver(&mut self, owner: Key, bytes: &[u8], fin: bool) -> usize {
        let Some(conn) = self.conns.get_mut(owner) else { return bytes.len() };
        let (unix, transport) = (conn.unix, &mut conn.transport);
        let Mode::Tunnel(tunnel) = &mut conn.mode else { return bytes.len() };
        let taken = write_payload(self.sys, transport, tunnel, unix, bytes);
        if tunnel.watch == Watch::Off && !unix {
            tunnel.watch = Watch::Wanted;
            self.unserved.push(owner);
        }
        if fin && tunnel.write == Half::Open {
            tunnel.write = Half::Finished;
            // Behind the bytes that wait; under TLS nothing is held back, so nothing can come after it.
            transport.close_notify();
        }
        if tunnel.write == Half::Finished {
            return taken + flush(self.sys, conn);
        }
        if tunnel.write == Half::Dead {
            self.unserved.push(owner);
        }
        taken
    }
}

impl<S: Sys> DataSource for Bridge<'_, S> {
    fn pull(&mut self, owner: Key, into: &mut [u8]) -> Pulled {
        let Some(conn) = self.conns.get_mut(owner) else { return Pulled::Blocked };
        let Mode::Tunnel(tunnel) = &mut conn.mode else { return Pulled::Blocked };
        if tunnel.read != Half::Open {
            return Pulled::Blocked;
        }
        let result = conn.transport.read(self.sys, self.scratch, into);
        if conn.transport.is_tls() && conn.transport.queued() > 0 {
            // TLS may have something to answer. It is sent when the link is free: what the socket then takes of
            // payload must be counted, and only the owner of the link can.
            self.unserved.push(owner);
        }
        match result {
            Ok((Fill::Progress, 0) | (Fill::Blocked, _)) => {
                // Half a record: the latch still tells whether more is there.
                if conn.transport.has_input() { self.pull(owner, into) } else { Pulled::Blocked }
            }
            Ok((Fill::Progress, n)) => Pulled::Bytes(n),
            Ok((Fill::Eof, _)) => at_end(tunnel, conn.unix && conn.transport.io.hup),
            Err(error) => {
                tunnel.read = Half::Finished;
                Pulled::Closed(close_code(&error))
            }
        }
    }
}

/// What the end of a socket's bytes means.
fn at_end(tunnel: &mut Tunnel, gone: bool) -> Pulled {
    tunnel.read = Half::Finished;
    if tunnel.reset {
        Pulled::Closed(CloseCode::Reset)
    } else if gone || tunnel.write == Half::Dead {
        Pulled::Closed(CloseCode::Normal)
    } else {
        Pulled::Fin
    }
}

/// What a read error is called on the wire. On a Unix socket ECONNRESET says that its peer closed without reading
/// all: what TCP answers with a reset.
fn close_code(error: &TransportError) -> CloseCode {
    match error {
        TransportError::Io(error) if error.kind() == io::ErrorKind::TimedOut => CloseCode::TimedOut,
        _ => CloseCode::Reset,
    }
}

/// Writes payload to a tunnel's socket, or keeps it. Returns how many bytes of payload the socket took.
fn write_payload<S: Sys>(
    sys: &mut S,
    transport: &mut Transport,
    tunnel: &mut Tunnel,
    unix: bool,
    bytes: &[u8],
) -> usize {
    if tunnel.write == Half::Dead {
        return bytes.len();
    }
    let mut taken = release_held(sys, transport, tunnel, unix);
    if let Some(held) = &mut tunnel.held {
        held.extend_from_slice(bytes);
    } else {
        taken += send(sys, transport, tunnel, unix, bytes);
    }
    taken
}

fn send<S: Sys>(
    sys: &mut S,
    transport: &mut Transport,
    tunnel: &mut Tunnel,
    unix: bool,
    bytes: &[u8],
) -> usize {
    match transport.send_payload(sys, bytes) {
        Ok(taken) => taken,
        Err(_) => broken(transport, tunnel, unix),
    }
}

/// The socket takes nothing any more, so its stream is about to end: what waits is dropped.
fn broken(transport: &mut Transport, tunnel: &mut Tunnel, unix: bool) -> usize {
    tunnel.write = Half::Dead;
    tunnel.reset = !unix;
    tunnel.held = None;
    transport.drop_output()
}

/// Lets what the target said follow the 200, once the client has read that. kube-apiserver refuses a tunnel whose
/// first bytes come in one read with it; on a Unix socket the fall of SIOCOUTQ to 0 tells, and raises an edge.
fn release_held<S: Sys>(sys: &mut S, transport: &mut Transport, tunnel: &mut Tunnel, unix: bool) -> usize {
    if tunnel.held.is_none()
        || transport.queued() > 0
        || sys.unsent(transport.sock).is_ok_and(|bytes| bytes > 0)
    {
        return 0;
    }
    match tunnel.held.take() {
        Some(held) if !held.is_empty() => send(sys, transport, tunnel, unix, &held),
        _ => 0,
    }
}

/// Sends what waits for a tunnel's socket, and its FIN behind. Returns how many bytes of payload it took.
pub(super) fn flush<S: Sys>(sys: &mut S, conn: &mut Conn) -> usize {
    let unix = conn.unix;
    let Mode::Tunnel(tunnel) = &mut conn.mode else { return 0 };
    let transport = &mut conn.transport;
    let mut taken = match transport.flush(sys) {
        Ok(taken) => taken,
        Err(_) => broken(transport, tunnel, unix),
    };
    if tunnel.held.as_ref().is_some_and(|held| !held.is_empty() || tunnel.write == Half::Finished) {
        taken += release_held(sys, transport, tunnel, unix);
    }
    finish_writing(sys, transport, tunnel, unix);
    taken
}

/// If nothing waits, the FIN may go out. It too is kept apart from the 200.
fn finish_writing<S: Sys>(sys: &mut S, transport: &mut Transport, tunnel: &mut Tunnel, unix: bool) {
    if tunnel.write == Half::Finished && transport.queued() == 0 && tunnel.held.is_none() {
        tunnel.write = Half::Sent;
        if transport.finish(sys).is_err() {
            tunnel.write = Half::Dead;
            tunnel.reset = !unix;
        }
    }
}

//! Unix stream sockets, as Linux has them: no delay, no FIN, and `close` takes both directions at once.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::Path;

use tautline::key::Key;

use crate::conn::{Conn, End, Owner, Phase, Transport};
use crate::kernel::{Kernel, Kind, NodeId};

impl Kernel {
    /// connect(2) on a Unix socket: at once, or why not.
    pub(crate) fn unix_connect(&mut self, node: NodeId, path: &Path) -> Result<u32, i32> {
        if self.out_of_descriptors(node) {
            return Err(libc::EMFILE);
        }
        let host = self.processes[node.0].host;
        let file = self.hosts[host.0].files.get(path).copied().ok_or(libc::ENOENT)?;
        let listener = file.ok_or(libc::ECONNREFUSED)?;
        let entry = self.sockets.get(listener).ok_or(libc::ECONNREFUSED)?;
        let server = entry.process;
        if let Kind::UnixListener { queue, .. } = &entry.kind
            && queue.len() >= self.backlog
        {
            self.marks.hit("backlog full");
            return Err(libc::EAGAIN);
        }
        let nowhere = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
        let mut ends = [(); 2].map(|()| End::new(host, nowhere, Phase::Open, self.now));
        ends[0].send.capacity = self.draw_buffer(node);
        ends[1].send.capacity = self.draw_buffer(server);
        ends[1].owner = Owner::Queued(listener);
        let conn = Conn { transport: Transport::Unix, ends, forgotten: false, arrival: [self.now; 2] };
        let conn = self.conns.insert(conn);
        let (descriptor, socket) = self.open_socket(node, Kind::Stream { conn, side: 0 });
        if let Some(conn) = self.conns.get_mut(conn) {
            conn.ends[0].owner = Owner::Socket(socket);
        }
        if let Some(entry) = self.sockets.get_mut(listener)
            && let Kind::UnixListener { queue, .. } = &mut entry.kind
        {
            queue.push_back((conn, 1));
        }
        self.note("unix connect", [node.0 as u64, descriptor.into(), 0]);
        self.raise_read(listener);
        Ok(descriptor)
    }

    /// The bytes are in the peer's hands: its process is told.
    pub(crate) fn unix_written(&mut self, conn: Key, side: usize, bytes: &[u8]) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        entry.ends[1 - side].receive.bytes.extend(bytes);
        if let Some(peer) = self.socket_of(conn, 1 - side) {
            self.raise_read(peer);
        }
    }

    /// `side` took bytes: there may be room for its peer.
    pub(crate) fn unix_taken(&mut self, conn: Key, side: usize) {
        let Some(entry) = self.conns.get(conn) else { return };
        let peer = 1 - side;
        let (drained, writable) = (entry.untaken(peer) == 0, entry.hints(peer).writable);
        let Some(socket) = self.socket_of(conn, peer) else { return };
        if drained {
            self.raise_drained(socket);
        } else if writable {
            self.raise_write(socket);
        }
    }

    pub(crate) fn unix_shutdown(&mut self, conn: Key, side: usize) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        entry.ends[side].send.fin_wanted = true;
        entry.ends[1 - side].receive.fin = true;
        for each in [side, 1 - side] {
            let Some(entry) = self.conns.get(conn) else { return };
            let both = entry.hints(each).hup;
            let Some(socket) = self.socket_of(conn, each) else { continue };
            if both {
                self.raise_gone(socket);
            } else if each == side {
                self.raise_write(socket);
            } else {
                self.raise_read(socket);
            }
        }
    }

    /// close(2): the peer keeps what was written to it, and loses everything else.
    pub(crate) fn unix_close(&mut self, conn: Key, side: usize, never_accepted: bool) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let own = &mut entry.ends[side];
        own.owner = Owner::Nobody;
        own.phase = Phase::Dead;
        let unread = !own.receive.bytes.is_empty();
        own.receive.bytes.clear();
        let peer = &mut entry.ends[1 - side];
        if peer.phase != Phase::Dead {
            peer.phase = Phase::Dead;
            if unread || never_accepted {
                peer.error = Some(libc::ECONNRESET);
                self.marks.hit("reset by unread data");
            }
        }
        if let Some(socket) = self.socket_of(conn, 1 - side) {
            self.raise_gone(socket);
        }
        self.reap(conn);
    }
}

//! Raising edges and delivering events: the weakest epoll that still keeps its promises.

use std::time::Duration;

use tautline::key::Key;
use tautline::net::sys::{Hints, Ready};

use crate::edges::{any, bits};
use crate::kernel::{Kernel, NodeId};

impl Kernel {
    /// Something new to read: certain if armed, else as the quirks want.
    pub(crate) fn raise_read(&mut self, socket: Key) {
        self.raise(socket, Hints { readable: true, ..Hints::default() });
    }

    /// Something new to write into.
    pub(crate) fn raise_write(&mut self, socket: Key) {
        self.raise(socket, Hints { writable: true, ..Hints::default() });
    }

    /// Both directions are gone: always reported, and whoever waits for a direction is woken too.
    pub(crate) fn raise_gone(&mut self, socket: Key) {
        self.raise(socket, Hints { readable: true, writable: true, hup: true, ..Hints::default() });
    }

    /// The last written byte of a Unix socket was taken: certain, armed or not.
    pub(crate) fn raise_drained(&mut self, socket: Key) {
        if let Some(entry) = self.sockets.get_mut(socket) {
            entry.edges.write_armed = true;
        }
        self.raise_write(socket);
    }

    fn raise(&mut self, key: Key, cause: Hints) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        if socket.token.is_none() {
            return; // registration looks at the state itself
        }
        let node = socket.process;
        let process = &mut self.processes[node.0];
        let extra = process.rng.chance(process.quirks.extra_edge_chance);
        let late = process.rng.chance(process.quirks.late_chance);
        let delay = if late { process.rng.duration(process.quirks.late_max) } else { Duration::ZERO };
        let edges = &mut socket.edges;
        let had = any(edges.due);
        edges.due.readable |= cause.readable && (edges.read_armed || extra);
        edges.due.writable |= cause.writable && (edges.write_armed || extra);
        edges.due.hup |= cause.hup;
        if cause.readable && !edges.due.readable {
            self.marks.hit("new bytes without an edge");
        }
        if !any(edges.due) {
            return;
        }
        if had {
            self.marks.hit("edge merged");
            return;
        }
        if late {
            self.marks.hit("edge late");
        }
        edges.due_at = self.now + delay;
        let at = edges.due_at;
        if !std::mem::replace(&mut edges.listed, true) {
            process.pending.push(key);
        }
        self.wake(node, at);
    }

    /// The owner saw `WouldBlock`: the next cause raises an edge for certain.
    pub(crate) fn arm_edges(&mut self, key: Key, read: bool, write: bool) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        let edges = &mut socket.edges;
        let news = (read && !edges.read_armed) || (write && !edges.write_armed);
        edges.read_armed |= read;
        edges.write_armed |= write;
        self.processes[socket.process.0].activity += u64::from(news);
    }

    /// From now on edges are reported; what is true already is one.
    pub(crate) fn register_socket(&mut self, key: Key, token: u64) {
        let Some(socket) = self.sockets.get_mut(key) else { return };
        socket.token = Some(token);
        socket.edges.read_armed = true;
        socket.edges.write_armed = true;
        let Some(socket) = self.sockets.get(key) else { return };
        let state = self.hints(socket);
        if any(state) {
            self.raise(key, Hints { readable: state.readable, writable: state.writable, ..state });
        }
    }

    /// Reports what is due; never waits.
    pub(crate) fn collect(&mut self, node: NodeId, ready: &mut Vec<Ready>) {
        let process = &mut self.processes[node.0];
        let mut pending = std::mem::take(&mut process.pending);
        process.rng.shuffle(&mut pending);
        let most = process.rng.between(1, process.quirks.events_per_poll as u64) as usize;
        let start = ready.len();
        let mut kept = Vec::new();
        for key in pending {
            let Some(socket) = self.sockets.get(key) else { continue };
            if ready.len() - start >= most || socket.edges.due_at > self.now {
                kept.push(key);
                continue;
            }
            if let Some(event) = self.emit(node, key) {
                ready.push(event);
            }
            if let Some(socket) = self.sockets.get_mut(key) {
                socket.edges.listed = any(socket.edges.due);
                if socket.edges.listed {
                    kept.push(key);
                }
            }
        }
        self.processes[node.0].pending = kept;
        self.invent(node, ready);
        for event in &ready[start..] {
            let numbers = [node.0 as u64, event.token, bits(event.hints)];
            self.trace.note(self.now, "event", numbers);
        }
        self.processes[node.0].activity += (ready.len() - start) as u64;
    }

    /// The event of one socket: what is due, split or merged with what is true beside it.
    fn emit(&mut self, node: NodeId, key: Key) -> Option<Ready> {
        let socket = self.sockets.get(key)?;
        let token = socket.token?;
        let state = self.hints(socket);
        let process = &mut self.processes[node.0];
        let (rng, quirks) = (&mut process.rng, &process.quirks);
        let split = rng.chance(quirks.split_chance);
        let withhold = rng.chance(quirks.missing_hint_chance);
        let stale_too = rng.chance(quirks.spurious_chance);
        let write_first = rng.chance(500);
        let edges = &mut self.sockets.get_mut(key)?.edges;
        let due = edges.due;
        let mut wanted = due;
        if split && due.readable && due.writable {
            self.marks.hit("edge split");
            wanted.readable = !write_first;
            wanted.writable = write_first;
            wanted.hup &= write_first;
        }
        // Beside what is due, epoll reports all that is true; nobody may count on it.
        let beside = |flag: bool| flag && !withhold && !split;
        let hints = Hints {
            readable: (wanted.readable && (state.readable || stale_too)) || beside(state.readable),
            writable: (wanted.writable && (state.writable || stale_too)) || beside(state.writable),
            read_closed: state.read_closed && !withhold,
            hup: wanted.hup || beside(state.hup),
            error: state.error && !withhold,
        };
        if withhold && (state.read_closed || state.error) {
            self.marks.hit("hint withheld");
        }
        edges.due.readable &= !(wanted.readable || hints.readable);
        edges.due.writable &= !(wanted.writable || hints.writable);
        edges.due.hup &= !hints.hup;
        edges.due.read_closed = false;
        edges.due.error = false;
        // A false alarm uses no edge up.
        edges.read_armed &= !(hints.readable && state.readable);
        edges.write_armed &= !(hints.writable && state.writable);
        any(hints).then_some(Ready { token, hints })
    }

    /// A spurious event: some socket, readable or writable, true or not.
    fn invent(&mut self, node: NodeId, ready: &mut Vec<Ready>) {
        let process = &mut self.processes[node.0];
        if !process.rng.chance(process.quirks.spurious_chance) {
            return;
        }
        let count = process.descriptors.len() as u64;
        let nth = process.rng.below(count) as usize;
        let readable = process.rng.chance(500);
        let key = process.descriptors.values().nth(nth).copied().unwrap_or_default();
        let Some(token) = self.sockets.get(key).and_then(|socket| socket.token) else { return };
        self.marks.hit("edge spurious");
        ready.push(Ready { token, hints: Hints { readable, writable: !readable, ..Hints::default() } });
    }

    /// When the next event of `node` may be delivered.
    pub(crate) fn next_due_at(&self, node: NodeId) -> Option<Duration> {
        let process = &self.processes[node.0];
        process
            .pending
            .iter()
            .filter_map(|key| self.sockets.get(*key))
            .map(|socket| socket.edges.due_at)
            .min()
    }
}

//! TCP between the simulated kernels: handshake, segments, acknowledgements, FIN, RST.
//!
//! Go-back-N over paths that keep order but may lose. `timers` has what happens when nothing arrives.

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};

use tautline::key::Key;

use crate::conn::{Conn, End, Owner, Phase, Transport};
use crate::kernel::{Event, HostId, Kernel, Kind, NodeId};
use crate::net::Obstacle;
use crate::pipe::Segment;

/// Headers of a packet, for bandwidth and packet size.
const HEADERS_LEN: usize = 52;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Packet {
    Syn,
    SynAck {
        window_edge: u64,
    },
    Data(Segment),
    Ack {
        ack: u64,
        window_edge: u64,
    },
    /// Asks for an acknowledgement: keepalive, or a closed window.
    Probe,
    Rst,
}

impl Packet {
    const fn name(self) -> &'static str {
        match self {
            Self::Syn => "syn",
            Self::SynAck { .. } => "syn-ack",
            Self::Data(Segment { fin: false, .. }) => "data",
            Self::Data(_) => "data fin",
            Self::Ack { .. } => "ack",
            Self::Probe => "probe",
            Self::Rst => "rst",
        }
    }

    const fn len(self) -> usize {
        match self {
            Self::Data(segment) => HEADERS_LEN + segment.len,
            _ => HEADERS_LEN,
        }
    }
}

impl Kernel {
    pub(crate) fn tcp_connect(&mut self, node: NodeId, to: SocketAddr) -> Result<u32, i32> {
        if self.out_of_descriptors(node) {
            return Err(libc::EMFILE);
        }
        let host = self.processes[node.0].host;
        let obstacle = self.net.obstacles.get(&to).copied();
        if let Some(Obstacle::Refused(errno)) = obstacle {
            return Err(errno);
        }
        let source = if to.ip().is_loopback() {
            to.ip()
        } else {
            let same_family = |ip: &&IpAddr| ip.is_ipv4() == to.is_ipv4();
            *self.hosts[host.0].addresses.iter().find(same_family).ok_or(libc::ENETUNREACH)?
        };
        let port = self.free_port(host);
        let mut client = End::new(host, SocketAddr::new(source, port), Phase::SynSent, self.now);
        client.send.capacity = self.draw_buffer(node);
        client.receive.capacity = self.draw_buffer(node);
        // Which host answers is known when the SYN arrives.
        let server = End::new(host, to, Phase::Absent, self.now);
        let (transport, arrival) = (Transport::Tcp, [self.now; 2]);
        let conn = Conn { transport, ends: [client, server], forgotten: false, arrival };
        let conn = self.conns.insert(conn);
        let (descriptor, socket) = self.open_socket(node, Kind::Stream { conn, side: 0 });
        if let Some(entry) = self.conns.get_mut(conn) {
            entry.ends[0].owner = Owner::Socket(socket);
        }
        self.note("connect", [node.0 as u64, descriptor.into(), to.port().into()]);
        match obstacle {
            Some(Obstacle::FailsLate(after, errno)) => {
                self.schedule(self.now + after, Event::ConnectFails { conn, errno });
            }
            Some(Obstacle::BlackHole) => self.start_retransmission(conn, 0),
            _ => {
                self.send(conn, 0, Packet::Syn);
                self.start_retransmission(conn, 0);
            }
        }
        Ok(descriptor)
    }

    pub(crate) fn free_port(&mut self, host: HostId) -> u16 {
        let port = &mut self.hosts[host.0].next_port;
        *port = if *port >= 60_000 { 32_768 } else { *port + 1 };
        *port
    }

    /// Puts a packet of `from` on its path.
    pub(crate) fn send(&mut self, conn: Key, from: usize, packet: Packet) {
        let Some(entry) = self.conns.get(conn) else { return };
        let (host, source) = (entry.ends[from].host, entry.ends[from].address.ip());
        let here = &self.hosts[host.0];
        // A connection whose address left the host cannot send any more.
        if here.up && (source.is_loopback() || here.addresses.contains(&source)) {
            self.send_from(host, conn, from, packet);
        } else {
            self.marks.hit("packet dropped");
        }
    }

    fn send_from(&mut self, host: HostId, conn: Key, from: usize, packet: Packet) {
        let Some(entry) = self.conns.get(conn) else { return };
        let to = entry.ends[1 - from].address;
        if entry.forgotten {
            self.marks.hit("path forgot a flow");
            return;
        }
        let there = self.route(host, to.ip());
        let black = packet == Packet::Syn && matches!(self.net.obstacles.get(&to), Some(Obstacle::BlackHole));
        let arrives = match there {
            Some(there) if !black => self.net.carry((host, there), packet.len(), self.now, &mut self.rng),
            _ => None,
        };
        let number = u64::from(self.conns.get(conn).map_or(0, |entry| entry.ends[0].address.port()));
        let Some(at) = arrives else {
            self.marks.hit("packet dropped");
            self.note("lost", [number, from as u64, packet.len() as u64]);
            return;
        };
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let at = at.max(entry.arrival[from]);
        entry.arrival[from] = at;
        self.schedule(at, Event::Packet { conn, from, packet });
    }

    /// A packet reached the far end of its path.
    pub(crate) fn deliver(&mut self, conn: Key, from: usize, packet: Packet) {
        let Some(entry) = self.conns.get(conn) else { return };
        let to = 1 - from;
        let number = u64::from(entry.ends[0].address.port());
        let (forgotten, host) = (entry.forgotten, entry.ends[from].host);
        let (expected, absent) = (entry.ends[to].host, entry.ends[to].phase == Phase::Absent);
        let there = self.route(host, entry.ends[to].address.ip()).filter(|there| self.hosts[there.0].up);
        let Some(there) =
            there.filter(|there| !(forgotten || host != *there && self.net.path(host, *there).cut))
        else {
            self.marks.hit("packet dropped");
            self.note("lost late", [number, from as u64, packet.len() as u64]);
            return;
        };
        self.note(packet.name(), [number, from as u64, packet.len() as u64]);
        if there != expected && !absent {
            // The address moved to a host that knows nothing of this connection.
            if packet != Packet::Rst {
                self.send_from(there, conn, to, Packet::Rst);
            }
            return;
        }
        if packet == Packet::Rst {
            self.on_reset(conn, to);
            return;
        }
        self.heard(conn, to);
        match self.conns.get(conn).map(|entry| entry.ends[to].phase) {
            None => return,
            Some(Phase::Absent) if packet == Packet::Syn => self.on_syn(conn, there),
            Some(Phase::Absent | Phase::Dead) => self.send(conn, to, Packet::Rst),
            Some(Phase::TimeWait) => self.send_ack(conn, to),
            Some(Phase::SynSent) => self.on_syn_ack(conn, to, packet),
            Some(Phase::SynReceived) => self.on_third(conn, to, packet),
            Some(Phase::Open) => self.on_packet(conn, to, packet),
        }
        self.settle(conn, to);
    }

    fn heard(&mut self, conn: Key, side: usize) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let timers = &mut entry.ends[side].timers;
        timers.last_heard = self.now;
        timers.probes = 0;
        timers.retries = 0;
    }

    // ----- handshake

    fn listener_at(&self, host: HostId, address: SocketAddr) -> Option<Key> {
        let listeners = &self.hosts[host.0].listeners;
        let any_v4 = SocketAddr::new([0; 4].into(), address.port());
        let any_v6 = SocketAddr::new([0_u16; 8].into(), address.port());
        [address, any_v4, any_v6].iter().find_map(|at| listeners.get(at)).copied()
    }

    fn queue_of(&mut self, listener: Key) -> Option<&mut VecDeque<(Key, usize)>> {
        match &mut self.sockets.get_mut(listener)?.kind {
            Kind::TcpListener { queue, .. } => Some(queue),
            Kind::UnixListener { .. } | Kind::Stream { .. } => None,
        }
    }

    fn on_syn(&mut self, conn: Key, host: HostId) {
        let Some(address) = self.conns.get(conn).map(|entry| entry.ends[1].address) else { return };
        let listener = self.listener_at(host, address);
        if let Some(entry) = self.conns.get_mut(conn) {
            entry.ends[1].host = host; // whoever answers, answers from here
        }
        let Some(listener) = listener else {
            self.send(conn, 1, Packet::Rst);
            return;
        };
        let backlog = self.backlog;
        if self.queue_of(listener).is_none_or(|queue| queue.len() >= backlog) {
            self.marks.hit("backlog full");
            return;
        }
        let Some(owner) = self.sockets.get(listener).map(|socket| socket.process) else { return };
        let (send, receive) = (self.draw_buffer(owner), self.draw_buffer(owner));
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let end = &mut entry.ends[1];
        end.phase = Phase::SynReceived;
        end.send.capacity = send;
        end.receive.capacity = receive;
        self.send_syn_ack(conn);
        self.start_retransmission(conn, 1);
    }

    pub(crate) fn send_syn_ack(&mut self, conn: Key) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let window_edge = entry.ends[1].receive.window_edge();
        entry.ends[1].receive.advertised = window_edge;
        self.send(conn, 1, Packet::SynAck { window_edge });
    }

    fn on_syn_ack(&mut self, conn: Key, side: usize, packet: Packet) {
        let Packet::SynAck { window_edge } = packet else { return };
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let end = &mut entry.ends[side];
        end.phase = Phase::Open;
        end.send.window_edge = window_edge;
        end.timers.established(self.now);
        self.send_ack(conn, side);
        if let Some(socket) = self.socket_of(conn, side) {
            self.raise_write(socket);
        }
    }

    /// What makes a server's end complete: anything that shows that the client got the SYN-ACK.
    fn on_third(&mut self, conn: Key, side: usize, packet: Packet) {
        if packet == Packet::Syn {
            self.send_syn_ack(conn);
            return;
        }
        let Some(entry) = self.conns.get(conn) else { return };
        let (host, address) = (entry.ends[side].host, entry.ends[side].address);
        let backlog = self.backlog;
        let Some(listener) = self.listener_at(host, address) else {
            self.die(conn, side, libc::ECONNRESET);
            self.send(conn, side, Packet::Rst);
            return;
        };
        let Some(queue) = self.queue_of(listener) else { return };
        if queue.len() >= backlog {
            self.marks.hit("backlog full");
            return; // silence: the client believes that it is connected, and sends again
        }
        queue.push_back((conn, side));
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let end = &mut entry.ends[side];
        end.phase = Phase::Open;
        end.owner = Owner::Queued(listener);
        end.timers.established(self.now);
        self.raise_read(listener);
        self.on_packet(conn, side, packet);
    }

    // ----- established

    fn on_packet(&mut self, conn: Key, side: usize, packet: Packet) {
        match packet {
            Packet::Data(segment) => self.on_data(conn, side, segment),
            Packet::Ack { ack, window_edge } => self.on_ack(conn, side, ack, window_edge),
            Packet::Syn | Packet::SynAck { .. } | Packet::Probe => self.send_ack(conn, side),
            Packet::Rst => {}
        }
    }

    fn on_data(&mut self, conn: Key, side: usize, segment: Segment) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let [first, second] = &mut entry.ends;
        let (end, sender) = if side == 0 { (first, &second.send) } else { (second, &first.send) };
        let closed = end.owner == Owner::Nobody;
        if closed && segment.len > 0 && segment.sequence + segment.len as u64 > end.receive.next {
            // Nobody will read this: the sender must know, and what we still had to send is lost.
            self.marks.hit("reset by unread data");
            self.die(conn, side, libc::ECONNRESET);
            self.send(conn, side, Packet::Rst);
            return;
        }
        let (taken, fin) = end.receive.accept(segment, sender);
        let both = end.send.fin_wanted && end.receive.fin;
        self.send_ack(conn, side);
        if taken == 0 && !fin {
            return;
        }
        if let Some(socket) = self.socket_of(conn, side) {
            if fin && both {
                self.raise_gone(socket);
            } else {
                self.raise_read(socket);
            }
        }
    }

    fn on_ack(&mut self, conn: Key, side: usize, ack: u64, window_edge: u64) {
        let now = self.now;
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let end = &mut entry.ends[side];
        let progress = end.send.acknowledge(ack);
        end.send.window_edge = end.send.window_edge.max(window_edge);
        let timers = &mut end.timers;
        // A peer that answers but keeps its window shut is asked ever more rarely.
        if progress || !end.send.window_closed() {
            timers.backoff = 0;
        }
        if progress {
            timers.stalled_since = now;
            if let Some((_, sent)) = timers.sample.take_if(|(number, _)| *number <= ack) {
                timers.on_sample(now.saturating_sub(sent));
            }
        }
        timers.retransmit_at = end.send.outstanding().then(|| now + timers.rto_backed_off());
        if end.send.window_closed() {
            self.marks.hit("zero window");
        }
        let writable = self.conns.get(conn).is_some_and(|entry| entry.hints(side).writable);
        if progress
            && writable
            && let Some(socket) = self.socket_of(conn, side)
        {
            self.raise_write(socket);
        }
        self.pump(conn, side);
    }

    pub(crate) fn send_ack(&mut self, conn: Key, side: usize) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let receive = &mut entry.ends[side].receive;
        let window_edge = receive.window_edge();
        receive.advertised = window_edge;
        let ack = receive.next;
        self.send(conn, side, Packet::Ack { ack, window_edge });
    }

    /// The reader took bytes: tells the sender once the window grew by a good part.
    pub(crate) fn tcp_taken(&mut self, conn: Key, side: usize) {
        let segment_max = self.quirks.segment_max;
        let Some(entry) = self.conns.get(conn) else { return };
        let end = &entry.ends[side];
        let grown = end.receive.window_edge().saturating_sub(end.receive.advertised);
        let worth = (end.receive.capacity / 2).min(segment_max).max(1);
        if end.phase == Phase::Open && grown >= worth as u64 {
            self.send_ack(conn, side);
        }
    }

    /// Sends what buffer and window allow.
    pub(crate) fn pump(&mut self, conn: Key, side: usize) {
        let (now, segment_max) = (self.now, self.quirks.segment_max);
        loop {
            let Some(entry) = self.conns.get_mut(conn) else { return };
            let end = &mut entry.ends[side];
            if end.phase != Phase::Open {
                return;
            }
            let Some(segment) = end.send.next_segment(segment_max) else { break };
            let last = segment.sequence + segment.len as u64 + u64::from(segment.fin);
            if end.timers.sample.is_none() {
                end.timers.sample = Some((last, now));
            }
            self.send(conn, side, Packet::Data(segment));
        }
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let end = &mut entry.ends[side];
        if end.send.outstanding() && end.timers.retransmit_at.is_none() {
            end.timers.stalled_since = now;
            end.timers.retransmit_at = Some(now + end.timers.rto());
        }
        self.arm(conn, side);
    }

    /// After a packet: an end that its process closed may be through, and the timers may have moved.
    fn settle(&mut self, conn: Key, side: usize) {
        let now = self.now;
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let end = &mut entry.ends[side];
        if end.owner == Owner::Nobody && end.phase == Phase::Open && end.send.fin_acked {
            if end.receive.fin {
                end.phase = Phase::TimeWait;
            } else {
                end.timers.orphan_since.get_or_insert(now);
            }
        }
        self.arm(conn, side);
        self.reap(conn);
    }

    // ----- ends

    pub(crate) fn tcp_shutdown(&mut self, conn: Key, side: usize) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        entry.ends[side].send.fin_wanted = true;
        let both = entry.ends[side].receive.fin;
        self.pump(conn, side);
        if let Some(socket) = self.socket_of(conn, side) {
            if both { self.raise_gone(socket) } else { self.raise_write(socket) }
        }
    }

    /// close(2): a FIN behind what was written, or an RST if we leave bytes unread.
    pub(crate) fn tcp_close(&mut self, conn: Key, side: usize) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let end = &mut entry.ends[side];
        end.owner = Owner::Nobody;
        if end.phase == Phase::SynSent {
            end.phase = Phase::Dead;
        } else if end.phase == Phase::Open {
            if end.receive.bytes.is_empty() {
                end.send.fin_wanted = true;
                self.pump(conn, side);
            } else {
                self.marks.hit("reset by unread data");
                self.tcp_abort(conn, side);
            }
        }
        self.settle(conn, side);
    }

    /// An RST at once. Bytes on their way still arrive before it: the buffer stays until then.
    pub(crate) fn tcp_abort(&mut self, conn: Key, side: usize) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let end = &mut entry.ends[side];
        end.owner = Owner::Nobody;
        let open = end.phase == Phase::Open;
        end.phase = Phase::Dead;
        if open {
            self.send(conn, side, Packet::Rst);
        }
        self.reap(conn);
    }

    fn on_reset(&mut self, conn: Key, side: usize) {
        let Some(entry) = self.conns.get(conn) else { return };
        let end = &entry.ends[side];
        let errno = match end.phase {
            Phase::Dead | Phase::TimeWait | Phase::Absent => return self.reap(conn),
            Phase::SynSent => libc::ECONNREFUSED,
            Phase::SynReceived | Phase::Open if end.receive.fin => libc::EPIPE,
            Phase::SynReceived | Phase::Open => libc::ECONNRESET,
        };
        self.die(conn, side, errno);
        self.reap(conn);
    }

    /// The end is over, whatever the peer thinks.
    pub(crate) fn die(&mut self, conn: Key, side: usize, errno: i32) {
        let Some(entry) = self.conns.get_mut(conn) else { return };
        let number = u64::from(entry.ends[0].address.port());
        let end = &mut entry.ends[side];
        end.phase = Phase::Dead;
        end.error = Some(errno);
        end.send.purge();
        if matches!(end.owner, Owner::Queued(_)) {
            self.marks.hit("reset in the accept queue");
        }
        self.note("dead", [number, side as u64, errno as u64]);
        if let Some(socket) = self.socket_of(conn, side) {
            self.raise_gone(socket);
        }
    }

    /// Closes a listener's queue: who waits there is refused.
    pub(crate) fn drop_queue(&mut self, queue: VecDeque<(Key, usize)>) {
        for (conn, side) in queue {
            match self.conns.get(conn).map(|entry| entry.transport) {
                Some(Transport::Tcp) => self.tcp_abort(conn, side),
                Some(Transport::Unix) => self.unix_close(conn, side, true),
                None => {}
            }
        }
    }
}

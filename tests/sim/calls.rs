//! The system calls, as one process makes them. Errors are errno numbers.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;

use tautline::key::Key;
use tautline::net::sys::{Class, Job, ListenAddr, Peer, TcpInfo};

use crate::conn::{Owner, Phase, Transport};
use crate::kernel::{Event, HostId, Kernel, Kind, NodeId};
use crate::pipe;

impl Kernel {
    fn key(&self, node: NodeId, descriptor: u32) -> Key {
        // Using a socket after its close is a fault of the program; on a real system it may hit another one.
        *self.processes[node.0].descriptors.get(&descriptor).unwrap_or_else(|| {
            panic!("{} uses socket {descriptor}, which is not open", self.processes[node.0].name)
        })
    }

    fn stream(&self, key: Key) -> Result<(Key, usize), i32> {
        match self.sockets.get(key).map(|socket| &socket.kind) {
            Some(Kind::Stream { conn, side }) => Ok((*conn, *side)),
            _ => Err(libc::ENOTCONN),
        }
    }

    pub(crate) fn listen(&mut self, node: NodeId, at: &ListenAddr) -> Result<u32, i32> {
        if self.out_of_descriptors(node) {
            return Err(libc::EMFILE);
        }
        let host = self.processes[node.0].host;
        let kind = match at {
            ListenAddr::Tcp(address) => {
                let port = if address.port() == 0 { self.free_port(host) } else { address.port() };
                let address = SocketAddr::new(address.ip(), port);
                if self.hosts[host.0].listeners.contains_key(&address) {
                    return Err(libc::EADDRINUSE);
                }
                Kind::TcpListener { address, queue: VecDeque::new() }
            }
            ListenAddr::Unix(path) => {
                match self.hosts[host.0].files.get(path) {
                    Some(None) => return Err(libc::EEXIST),
                    Some(Some(listener)) if self.sockets.get(*listener).is_some() => {
                        return Err(libc::EADDRINUSE);
                    }
                    Some(Some(_)) | None => {} // a file that nobody listens on is replaced
                }
                Kind::UnixListener { path: path.clone(), queue: VecDeque::new() }
            }
        };
        let (descriptor, key) = self.open_socket(node, kind);
        let host = &mut self.hosts[host.0];
        match self.sockets.get(key).map(|socket| &socket.kind) {
            Some(Kind::TcpListener { address, .. }) => drop(host.listeners.insert(*address, key)),
            Some(Kind::UnixListener { path, .. }) => drop(host.files.insert(path.clone(), Some(key))),
            Some(Kind::Stream { .. }) | None => {}
        }
        self.note("listen", [node.0 as u64, descriptor.into(), 0]);
        Ok(descriptor)
    }

    pub(crate) fn local_addr(&self, node: NodeId, descriptor: u32) -> Result<SocketAddr, i32> {
        match self.sockets.get(self.key(node, descriptor)).map(|socket| &socket.kind) {
            Some(Kind::TcpListener { address, .. }) => Ok(*address),
            Some(Kind::Stream { conn, side }) => {
                Ok(self.conns.get(*conn).ok_or(libc::ENOTCONN)?.ends[*side].address)
            }
            Some(Kind::UnixListener { .. }) | None => Err(libc::EOPNOTSUPP),
        }
    }

    pub(crate) fn accept(&mut self, node: NodeId, descriptor: u32) -> Result<(u32, Peer), i32> {
        let listener = self.key(node, descriptor);
        let full = self.out_of_descriptors(node);
        let process = &mut self.processes[node.0];
        let abort = process.rng.chance(process.quirks.accept_abort_chance);
        let Some(socket) = self.sockets.get_mut(listener) else { return Err(libc::EBADF) };
        let (Kind::TcpListener { queue, .. } | Kind::UnixListener { queue, .. }) = &mut socket.kind else {
            return Err(libc::EINVAL);
        };
        if full {
            self.marks.hit("accept out of descriptors");
            return Err(libc::EMFILE); // the connection stays, and no edge will tell of it
        }
        let Some((conn, side)) = queue.pop_front() else {
            self.arm_edges(listener, true, false);
            return Err(libc::EAGAIN);
        };
        let Some(entry) = self.conns.get(conn) else { return Err(libc::ECONNABORTED) };
        let (transport, peer) = (entry.transport, entry.ends[1 - side].address);
        if abort && transport == Transport::Tcp {
            self.marks.hit("accept aborted");
            self.tcp_abort(conn, side);
            return Err(libc::ECONNABORTED);
        }
        let (number, key) = self.open_socket(node, Kind::Stream { conn, side });
        if let Some(entry) = self.conns.get_mut(conn) {
            entry.ends[side].owner = Owner::Socket(key);
        }
        self.note("accept", [node.0 as u64, number.into(), descriptor.into()]);
        Ok((number, if transport == Transport::Tcp { Peer::Tcp(peer) } else { Peer::Unix }))
    }

    pub(crate) fn connected(&mut self, node: NodeId, descriptor: u32) -> Result<(), i32> {
        let (conn, side) = self.stream(self.key(node, descriptor))?;
        let end = &mut self.conns.get_mut(conn).ok_or(libc::ENOTCONN)?.ends[side];
        if let Some(errno) = end.error.take() {
            return Err(errno);
        }
        match end.phase {
            Phase::SynSent => Err(libc::EAGAIN),
            Phase::Dead => Err(libc::ENOTCONN),
            _ => Ok(()),
        }
    }

    pub(crate) fn register(&mut self, node: NodeId, descriptor: u32, token: u64) -> Result<(), i32> {
        let key = self.key(node, descriptor);
        if self.sockets.get(key).is_some_and(|socket| socket.token.is_some()) {
            return Err(libc::EEXIST);
        }
        self.register_socket(key, token);
        Ok(())
    }

    pub(crate) fn configure(&mut self, node: NodeId, descriptor: u32, class: Class) -> Result<(), i32> {
        let (conn, side) = self.stream(self.key(node, descriptor))?;
        if let Some(entry) = self.conns.get_mut(conn)
            && entry.transport == Transport::Tcp
        {
            entry.ends[side].timers.configure(class);
            self.arm(conn, side);
        }
        Ok(())
    }

    pub(crate) fn read(&mut self, node: NodeId, descriptor: u32, into: &mut [u8]) -> Result<usize, i32> {
        let key = self.key(node, descriptor);
        let (conn, side) = self.stream(key)?;
        let process = &mut self.processes[node.0];
        let short = process.rng.chance(process.quirks.short_read_chance);
        let entry = self.conns.get_mut(conn).ok_or(libc::ENOTCONN)?;
        let transport = entry.transport;
        let end = &mut entry.ends[side];
        let waiting = end.receive.bytes.len();
        if waiting == 0 || into.is_empty() {
            let result = match end.error {
                _ if into.is_empty() => return Ok(0),
                // On TCP a FIN that came first hides the error from reads.
                Some(errno) if transport == Transport::Unix || !end.receive.fin => {
                    end.error = None;
                    Err(errno)
                }
                _ if end.receive.fin || end.phase == Phase::Dead => Ok(0),
                _ => Err(libc::EAGAIN),
            };
            if result == Err(libc::EAGAIN) {
                self.arm_edges(key, true, false);
            } else if let Some(socket) = self.sockets.get_mut(key) {
                socket.edges.read_ended = true;
            }
            self.note("read end", [node.0 as u64, descriptor.into(), result.err().unwrap_or(0) as u64]);
            return result;
        }
        let most = waiting.min(into.len());
        let len = if short { process.rng.between(1, most as u64) as usize } else { most };
        if len < most {
            self.marks.hit("short read");
        }
        pipe::take(&mut end.receive.bytes, &mut into[..len]);
        self.note("read", [node.0 as u64, descriptor.into(), len as u64]);
        match transport {
            Transport::Tcp => self.tcp_taken(conn, side),
            Transport::Unix => self.unix_taken(conn, side),
        }
        Ok(len)
    }

    pub(crate) fn write(
        &mut self,
        node: NodeId,
        descriptor: u32,
        from: &[IoSlice<'_>],
    ) -> Result<usize, i32> {
        let key = self.key(node, descriptor);
        let (conn, side) = self.stream(key)?;
        let process = &mut self.processes[node.0];
        let refuse = process.rng.chance(process.quirks.refused_write_chance);
        let short = process.rng.chance(process.quirks.short_write_chance);
        let entry = self.conns.get_mut(conn).ok_or(libc::ENOTCONN)?;
        let (transport, room) = (entry.transport, entry.room(side));
        let end = &mut entry.ends[side];
        if end.send.fin_wanted || end.phase == Phase::Dead {
            let error = if transport == Transport::Tcp { end.error.take() } else { None };
            return Err(error.unwrap_or(libc::EPIPE));
        }
        let offered: usize = from.iter().map(|slice| slice.len()).sum();
        let most = offered.min(room);
        if offered == 0 {
            return Ok(0);
        }
        if most == 0 || end.phase == Phase::SynSent || refuse {
            let writable = entry.hints(side).writable;
            self.arm_edges(key, false, true);
            if writable {
                self.marks.hit("write refused with room");
                self.raise_write(key);
            }
            self.note("write blocked", [node.0 as u64, descriptor.into(), room as u64]);
            return Err(libc::EAGAIN);
        }
        let len = if short { process.rng.between(1, most as u64) as usize } else { most };
        if len < offered {
            self.marks.hit("short write");
        }
        let mut bytes = Vec::with_capacity(len);
        for slice in from {
            bytes.extend_from_slice(&slice[..slice.len().min(len - bytes.len())]);
        }
        self.trace.note(self.now, "write", [node.0 as u64, descriptor.into(), len as u64]);
        match transport {
            Transport::Tcp => {
                end.send.bytes.extend(&bytes);
                self.pump(conn, side);
            }
            Transport::Unix => self.unix_written(conn, side, &bytes),
        }
        Ok(len)
    }

    pub(crate) fn shutdown_write(&mut self, node: NodeId, descriptor: u32) -> Result<(), i32> {
        let (conn, side) = self.stream(self.key(node, descriptor))?;
        let entry = self.conns.get_mut(conn).ok_or(libc::ENOTCONN)?;
        let (transport, phase) = (entry.transport, entry.ends[side].phase);
        self.note("shutdown", [node.0 as u64, descriptor.into(), 0]);
        match (transport, phase) {
            (Transport::Unix, Phase::Dead) => Ok(()), // Linux does not mind
            (Transport::Unix, _) => {
                self.unix_shutdown(conn, side);
                Ok(())
            }
            (Transport::Tcp, Phase::Open) => {
                self.tcp_shutdown(conn, side);
                Ok(())
            }
            (Transport::Tcp, _) => Err(libc::ENOTCONN),
        }
    }

    pub(crate) fn unsent(&self, node: NodeId, descriptor: u32) -> Result<usize, i32> {
        let (conn, side) = self.stream(self.key(node, descriptor))?;
        let entry = self.conns.get(conn).ok_or(libc::ENOTCONN)?;
        let untaken = entry.untaken(side);
        // A Unix socket counts the kernel's memory, not the bytes: more than was written, but 0 when empty.
        let overhead = if entry.transport == Transport::Unix && untaken > 0 { untaken / 2 + 512 } else { 0 };
        Ok(untaken + overhead)
    }

    pub(crate) fn tcp_info(&self, node: NodeId, descriptor: u32) -> Result<TcpInfo, i32> {
        let (conn, side) = self.stream(self.key(node, descriptor))?;
        let entry = self.conns.get(conn).ok_or(libc::ENOTCONN)?;
        if entry.transport == Transport::Unix {
            return Err(libc::EOPNOTSUPP);
        }
        let timers = &entry.ends[side].timers;
        Ok(TcpInfo {
            rtt: timers.smoothed_rtt.unwrap_or_default(),
            rtt_var: timers.rtt_variation,
            rto: timers.rto_backed_off(),
            last_ack_received: self.now.saturating_sub(timers.last_heard),
        })
    }

    /// close(2), or the same with SO_LINGER 0 (`abort`).
    pub(crate) fn close(&mut self, node: NodeId, descriptor: u32, abort: bool) {
        let key = self.key(node, descriptor);
        self.note(if abort { "abort" } else { "close" }, [node.0 as u64, descriptor.into(), 0]);
        self.processes[node.0].descriptors.remove(&descriptor);
        let host = self.processes[node.0].host;
        let Some(socket) = self.sockets.remove(key) else { return };
        match socket.kind {
            Kind::TcpListener { address, queue } => {
                self.hosts[host.0].listeners.remove(&address);
                self.drop_queue(queue);
            }
            Kind::UnixListener { path, queue } => {
                let files = &mut self.hosts[host.0].files;
                // A killed process does not tidy up; and another may have taken the name over.
                if self.processes[node.0].alive && files.get(&path) == Some(&Some(key)) {
                    files.remove(&path);
                }
                self.drop_queue(queue);
            }
            Kind::Stream { conn, side } => match self.conns.get(conn).map(|entry| entry.transport) {
                Some(Transport::Unix) => self.unix_close(conn, side, false),
                Some(Transport::Tcp) if abort => self.tcp_abort(conn, side),
                Some(Transport::Tcp) => self.tcp_close(conn, side),
                None => {}
            },
        }
    }

    pub(crate) fn submit(&mut self, node: NodeId, job: Job, id: u64) -> Result<(), i32> {
        let process = &mut self.processes[node.0];
        if process.jobs.len() >= process.jobs_max {
            self.marks.hit("job refused");
            return Err(libc::EAGAIN);
        }
        process.jobs.insert(id);
        let Job::Resolve { host, port, .. } = job;
        self.trace.say(self.now, || format!("job {id}: resolve {host}:{port}"));
        self.note("job", [node.0 as u64, id, port.into()]);
        if let Some((after, result)) = self.resolver.resolve(&host, port) {
            self.schedule(self.now + after, Event::Job { process: node, id, result });
        }
        Ok(())
    }

    /// The end of a job that was cancelled does not come.
    pub(crate) fn cancel(&mut self, node: NodeId, id: u64) {
        if self.processes[node.0].jobs.remove(&id) {
            self.marks.hit("job cancelled");
            self.note("job cancelled", [node.0 as u64, id, 0]);
        }
    }

    /// exit(2): the kernel closes what is open.
    pub(crate) fn exit(&mut self, node: NodeId) {
        self.sleep(node);
        self.processes[node.0].alive = false;
        while let Some((descriptor, _)) = self.processes[node.0].descriptors.first_key_value() {
            let descriptor = *descriptor;
            self.close(node, descriptor, false);
        }
    }

    /// The host loses power: its processes and connections are gone and no packet says so.
    pub(crate) fn power_off(&mut self, host: HostId) -> Vec<NodeId> {
        self.hosts[host.0].up = false;
        let on_host = |node: &NodeId| self.processes[node.0].host == host && self.processes[node.0].alive;
        let victims: Vec<_> = (0..self.processes.len()).map(NodeId).filter(on_host).collect();
        for node in &victims {
            self.exit(*node);
        }
        let conns: Vec<_> = self.conns.iter().map(|(key, _)| key).collect();
        for key in conns {
            let Some(conn) = self.conns.get_mut(key) else { continue };
            for end in &mut conn.ends {
                if end.host == host && end.phase != Phase::Absent {
                    end.phase = Phase::Dead;
                    end.send.purge();
                }
            }
            self.reap(key);
        }
        victims
    }
}

//! What a script can do to the world.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::Path as FilePath;
use std::time::Duration;

use tautline::key::Key;
use tautline::net::sys::Signal;

use crate::conn::{Phase, Transport};
use crate::dns::Answer;
use crate::kernel::{HostId, NodeId};
use crate::net::{Obstacle, Path};
use crate::world::World;

impl World {
    // ----- the network

    /// Replaces both directions between two hosts.
    pub(crate) fn set_path(&mut self, a: HostId, b: HostId, path: &Path) {
        let mut kernel = self.kernel();
        *kernel.net.path(a, b) = path.clone();
        *kernel.net.path(b, a) = path.clone();
    }

    /// Nothing passes in either direction, nobody is told.
    pub(crate) fn partition(&mut self, a: HostId, b: HostId) {
        self.cut_one_way(a, b);
        self.cut_one_way(b, a);
    }

    pub(crate) fn cut_one_way(&mut self, from: HostId, to: HostId) {
        let mut kernel = self.kernel();
        kernel.note("cut", [from.0 as u64, to.0 as u64, 0]);
        kernel.net.path(from, to).cut = true;
    }

    pub(crate) fn heal(&mut self, a: HostId, b: HostId) {
        let mut kernel = self.kernel();
        kernel.note("heal", [a.0 as u64, b.0 as u64, 0]);
        kernel.net.path(a, b).cut = false;
        kernel.net.path(b, a).cut = false;
    }

    /// Every path works again, without loss; delays stay.
    pub(crate) fn heal_all(&mut self) {
        let mut kernel = self.kernel();
        kernel.note("heal all", [0; 3]);
        for path in kernel.net.paths() {
            path.cut = false;
            path.loss = 0;
            path.packet_max = None;
        }
    }

    fn tcp_between(&self, a: HostId, b: HostId) -> Vec<Key> {
        let kernel = self.kernel();
        let between = |ends: [HostId; 2]| ends == [a, b] || ends == [b, a];
        let found = kernel.conns.iter().filter(|(_, conn)| {
            conn.transport == Transport::Tcp && between([conn.ends[0].host, conn.ends[1].host])
        });
        found.map(|(key, _)| key).collect()
    }

    /// A middlebox forgets the flows of now: their packets vanish, new connections work.
    pub(crate) fn forget_flows(&mut self, a: HostId, b: HostId) {
        for key in self.tcp_between(a, b) {
            let mut kernel = self.kernel();
            kernel.note("forget", [a.0 as u64, b.0 as u64, 0]);
            if let Some(conn) = kernel.conns.get_mut(key) {
                conn.forgotten = true;
            }
        }
    }

    /// A middlebox resets the flows of now, towards both ends.
    pub(crate) fn reset_connections(&mut self, a: HostId, b: HostId) {
        for key in self.tcp_between(a, b) {
            let mut kernel = self.kernel();
            kernel.note("reset", [a.0 as u64, b.0 as u64, 0]);
            for side in [0, 1] {
                if kernel.conns.get(key).is_some_and(|conn| conn.ends[side].phase == Phase::Open) {
                    kernel.die(key, side, libc::ECONNRESET);
                }
            }
            kernel.reap(key);
        }
    }

    /// The host has other addresses from now on; connections of the old ones are deaf and mute.
    pub(crate) fn change_addresses(&mut self, host: HostId, addresses: &[IpAddr]) {
        let mut kernel = self.kernel();
        kernel.note("addresses", [host.0 as u64, addresses.len() as u64, 0]);
        kernel.hosts[host.0].addresses = addresses.to_vec();
    }

    /// An address moves to another host, which answers strangers with RST.
    pub(crate) fn move_address(&mut self, address: IpAddr, to: HostId) {
        let mut kernel = self.kernel();
        kernel.note("move address", [to.0 as u64, 0, 0]);
        for host in &mut kernel.hosts {
            host.addresses.retain(|ip| *ip != address);
        }
        kernel.hosts[to.0].addresses.push(address);
    }

    /// What a connect to `address` meets; `None` takes it away.
    pub(crate) fn obstacle(&mut self, address: SocketAddr, obstacle: Option<Obstacle>) {
        let obstacles = &mut self.kernel().net.obstacles;
        match obstacle {
            Some(obstacle) => obstacles.insert(address, obstacle),
            None => obstacles.remove(&address),
        };
    }

    pub(crate) fn dns(&mut self, name: &str, after: Duration, answer: Answer) {
        self.kernel().resolver.set(name, after, answer);
    }

    /// Connections that wait for accept(2) at each listener, at most.
    pub(crate) fn set_backlog(&mut self, backlog: usize) {
        self.kernel().backlog = backlog;
    }

    // ----- hosts and processes

    /// The process gets no turns; its kernel still acknowledges (SIGSTOP, a starved container).
    pub(crate) fn freeze(&mut self, node: NodeId) {
        let mut kernel = self.kernel();
        kernel.note("freeze", [node.0 as u64, 0, 0]);
        kernel.marks.hit("process frozen");
        kernel.sleep(node);
        kernel.processes[node.0].frozen = true;
    }

    pub(crate) fn thaw(&mut self, node: NodeId) {
        let mut kernel = self.kernel();
        kernel.note("thaw", [node.0 as u64, 0, 0]);
        kernel.processes[node.0].frozen = false;
        kernel.processes[node.0].resting = false;
        let now = kernel.now;
        kernel.wake(node, now);
    }

    /// Freezes for a while.
    pub(crate) fn pause(&mut self, node: NodeId, time: Duration) {
        self.freeze(node);
        self.after(time, move |world| world.thaw(node));
    }

    /// SIGKILL: the kernel closes every socket, with RST where bytes were left unread.
    pub(crate) fn kill(&mut self, node: NodeId) {
        let mut kernel = self.kernel();
        kernel.note("kill", [node.0 as u64, 0, 0]);
        kernel.exit(node);
        drop(kernel);
        self.drop_driver(node);
    }

    /// Power cut: every process of the host is gone and no packet says so.
    pub(crate) fn vanish(&mut self, host: HostId) {
        let mut kernel = self.kernel();
        kernel.note("vanish", [host.0 as u64, 0, 0]);
        let victims = kernel.power_off(host);
        drop(kernel);
        for node in victims {
            self.drop_driver(node);
        }
    }

    /// The host is up again and knows nothing: old connections get RST.
    pub(crate) fn boot(&mut self, host: HostId) {
        let mut kernel = self.kernel();
        kernel.note("boot", [host.0 as u64, 0, 0]);
        kernel.hosts[host.0].up = true;
    }

    pub(crate) fn signal(&mut self, node: NodeId, signal: Signal) {
        let mut kernel = self.kernel();
        kernel.note("signal", [node.0 as u64, signal as u64, 0]);
        kernel.processes[node.0].signals.push_back(signal);
        let now = kernel.now;
        kernel.wake(node, now);
    }

    /// The wall clock is set; the monotonic one does not care.
    pub(crate) fn set_wall_clock(&mut self, unix_time: Duration) {
        let mut kernel = self.kernel();
        kernel.wall = unix_time.saturating_sub(kernel.now);
    }

    pub(crate) fn limit_descriptors(&mut self, node: NodeId, limit: usize) {
        self.kernel().processes[node.0].descriptor_limit = limit;
    }

    /// Lookups that a process may have running, at most.
    pub(crate) fn limit_jobs(&mut self, node: NodeId, limit: usize) {
        self.kernel().processes[node.0].jobs_max = limit;
    }

    /// Something that is not a socket lies at `path`.
    pub(crate) fn put_file(&mut self, host: HostId, path: &FilePath) {
        self.kernel().hosts[host.0].files.insert(path.to_owned(), None);
    }
}

/// The kind of an errno, as the programs see it.
pub(crate) fn kind(errno: i32) -> io::ErrorKind {
    io::Error::from_raw_os_error(errno).kind()
}

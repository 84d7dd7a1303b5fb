//! The simulated kernel: its tables, clock, queue of coming events, and who is woken when.
//!
//! `tcp`, `uds`, `poll` and `calls` are further parts of [`Kernel`], one subject each.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BTreeSet, BinaryHeap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use tautline::key::{Key, Slots};
use tautline::net::sys::{Hints, JobResult, Signal};

use crate::conn::{Conn, Owner};
use crate::dns::Resolver;
use crate::edges::Edges;
use crate::marks::Marks;
use crate::net::Net;
use crate::quirks::Quirks;
use crate::rng::Rng;
use crate::tcp::Packet;
use crate::trace::Trace;

/// A process. Numbers are not used again: a restarted program is another one.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct NodeId(pub(crate) usize);

/// A machine with its own kernel.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct HostId(pub(crate) usize);

pub(crate) struct Host {
    pub(crate) up: bool,
    pub(crate) addresses: Vec<IpAddr>,
    /// Unix socket files; `None` is something else than a socket. A socket file may have lost its listener.
    pub(crate) files: BTreeMap<PathBuf, Option<Key>>,
    pub(crate) listeners: BTreeMap<SocketAddr, Key>,
    pub(crate) next_port: u16,
}

pub(crate) struct Process {
    pub(crate) name: String,
    pub(crate) host: HostId,
    pub(crate) alive: bool,
    pub(crate) frozen: bool,
    /// The World runs its turns; else a test makes its calls by hand.
    pub(crate) driven: bool,
    pub(crate) descriptors: BTreeMap<u32, Key>,
    pub(crate) descriptor_limit: usize,
    pub(crate) last_descriptor: u32,
    pub(crate) quirks: Quirks,
    pub(crate) rng: Rng,
    /// Sockets with a flag that is due.
    pub(crate) pending: Vec<Key>,
    pub(crate) signals: VecDeque<Signal>,
    pub(crate) jobs_done: VecDeque<(u64, JobResult)>,
    pub(crate) jobs: BTreeSet<u64>,
    pub(crate) jobs_max: usize,
    /// The `until` of the last poll.
    pub(crate) until: Option<Duration>,
    /// Since that poll began: calls that may have changed the program's state, and what poll reported.
    pub(crate) activity: u64,
    /// The last turn did nothing and asked for sleep.
    pub(crate) resting: bool,
    /// Turns in a row that did nothing although the program asked not to sleep.
    pub(crate) idle_turns: u32,
    pub(crate) wake_at: Option<Duration>,
    /// A turn takes time; the next starts no earlier.
    pub(crate) busy_until: Duration,
}

pub(crate) enum Kind {
    TcpListener { address: SocketAddr, queue: VecDeque<(Key, usize)> },
    UnixListener { path: PathBuf, queue: VecDeque<(Key, usize)> },
    Stream { conn: Key, side: usize },
}

pub(crate) struct Socket {
    pub(crate) process: NodeId,
    pub(crate) descriptor: u32,
    pub(crate) token: Option<u64>,
    pub(crate) edges: Edges,
    pub(crate) kind: Kind,
}

pub(crate) enum Event {
    Packet { conn: Key, from: usize, packet: Packet },
    Tick { conn: Key, side: usize },
    ConnectFails { conn: Key, errno: i32 },
    Job { process: NodeId, id: u64, result: JobResult },
}

struct Scheduled {
    at: Duration,
    sequence: u64,
    event: Event,
}

impl PartialEq for Scheduled {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Scheduled {}

impl PartialOrd for Scheduled {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Scheduled {
    fn cmp(&self, other: &Self) -> Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

pub(crate) struct Kernel {
    pub(crate) now: Duration,
    base: Instant,
    pub(crate) wall: Duration,
    pub(crate) rng: Rng,
    pub(crate) quirks: Quirks,
    pub(crate) trace: Trace,
    pub(crate) marks: Marks,
    pub(crate) hosts: Vec<Host>,
    pub(crate) processes: Vec<Process>,
    pub(crate) sockets: Slots<Socket>,
    pub(crate) conns: Slots<Conn>,
    pub(crate) net: Net,
    pub(crate) resolver: Resolver,
    pub(crate) backlog: usize,
    queue: BinaryHeap<Reverse<Scheduled>>,
    sequence: u64,
    /// Packets and jobs on their way (ticks are not: they may come for ever).
    pub(crate) in_flight: usize,
    pub(crate) wakes: BTreeSet<(Duration, NodeId)>,
}

/// What the wall clock shows at virtual time 0: a round number in 2027.
const WALL_START: Duration = Duration::from_secs(1_800_000_000);

#[expect(clippy::disallowed_methods, reason = "an Instant cannot be made otherwise; only differences matter")]
fn any_instant() -> Instant {
    Instant::now()
}

impl Kernel {
    pub(crate) fn new(seed: u64, quirks: Quirks, rng: Rng) -> Self {
        let mut trace = Trace::new();
        trace.note(Duration::ZERO, "seed", [seed, 0, 0]);
        Self {
            now: Duration::ZERO,
            base: any_instant(),
            wall: WALL_START,
            rng,
            quirks,
            trace,
            marks: Marks::default(),
            hosts: Vec::new(),
            processes: Vec::new(),
            sockets: Slots::default(),
            conns: Slots::default(),
            net: Net::default(),
            resolver: Resolver::default(),
            backlog: 4096,
            queue: BinaryHeap::new(),
            sequence: 0,
            in_flight: 0,
            wakes: BTreeSet::new(),
        }
    }

    pub(crate) fn instant(&self) -> Instant {
        self.base + self.now
    }

    /// Virtual time of an instant; the past before the start counts as the start.
    pub(crate) fn offset(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.base)
    }

    pub(crate) fn note(&mut self, what: &'static str, numbers: [u64; 3]) {
        self.trace.note(self.now, what, numbers);
    }

    pub(crate) fn schedule(&mut self, at: Duration, event: Event) {
        self.in_flight += usize::from(!matches!(event, Event::Tick { .. }));
        self.sequence += 1;
        self.queue.push(Reverse(Scheduled { at: at.max(self.now), sequence: self.sequence, event }));
    }

    pub(crate) fn next_event_at(&self) -> Option<Duration> {
        self.queue.peek().map(|next| next.0.at)
    }

    /// Lets the next event happen; the caller saw that it is due.
    pub(crate) fn handle_event(&mut self) {
        let Some(Reverse(next)) = self.queue.pop() else { return };
        self.in_flight -= usize::from(!matches!(next.event, Event::Tick { .. }));
        match next.event {
            Event::Packet { conn, from, packet } => self.deliver(conn, from, packet),
            Event::Tick { conn, side } => self.tick(conn, side, next.at),
            Event::ConnectFails { conn, errno } => self.give_up(conn, 0, errno),
            Event::Job { process, id, result } => {
                let owner = &mut self.processes[process.0];
                if !owner.jobs.remove(&id) {
                    return;
                }
                owner.jobs_done.push_back((id, result));
                self.note("job ends", [process.0 as u64, id, 0]);
                self.wake(process, self.now);
            }
        }
    }

    // ----- who runs next

    /// The process must get a turn no later than `at` (or as soon as it may after that).
    pub(crate) fn wake(&mut self, node: NodeId, at: Duration) {
        let process = &mut self.processes[node.0];
        if !process.driven || !process.alive || process.frozen {
            return;
        }
        let at = at.max(process.busy_until);
        if process.wake_at.is_some_and(|before| before <= at) {
            return;
        }
        if let Some(before) = process.wake_at.replace(at) {
            self.wakes.remove(&(before, node));
        }
        self.wakes.insert((at, node));
    }

    pub(crate) fn sleep(&mut self, node: NodeId) {
        if let Some(at) = self.processes[node.0].wake_at.take() {
            self.wakes.remove(&(at, node));
        }
    }

    // ----- descriptors

    pub(crate) fn open_socket(&mut self, node: NodeId, kind: Kind) -> (u32, Key) {
        let process = &mut self.processes[node.0];
        let descriptor = if process.quirks.reuse_numbers {
            (0..).find(|number| !process.descriptors.contains_key(number)).unwrap_or_default()
        } else {
            process.last_descriptor + 1
        };
        process.last_descriptor = descriptor;
        let key = self.sockets.insert(Socket {
            process: node,
            descriptor,
            token: None,
            edges: Edges::default(),
            kind,
        });
        process.descriptors.insert(descriptor, key);
        (descriptor, key)
    }

    /// True if `node` may not open another descriptor.
    pub(crate) fn out_of_descriptors(&self, node: NodeId) -> bool {
        let process = &self.processes[node.0];
        process.descriptors.len() >= process.descriptor_limit
    }

    pub(crate) fn draw_buffer(&mut self, node: NodeId) -> usize {
        let quirks = &self.processes[node.0].quirks;
        self.rng.between(quirks.buffer_min as u64, quirks.buffer_max as u64) as usize
    }

    /// The socket that holds this end, if a process has it.
    pub(crate) fn socket_of(&self, conn: Key, side: usize) -> Option<Key> {
        match self.conns.get(conn)?.ends[side].owner {
            Owner::Socket(key) => Some(key),
            Owner::Queued(_) | Owner::Nobody => None,
        }
    }

    /// Every flag that is true of a socket now.
    pub(crate) fn hints(&self, socket: &Socket) -> Hints {
        match &socket.kind {
            Kind::TcpListener { queue, .. } | Kind::UnixListener { queue, .. } => {
                Hints { readable: !queue.is_empty(), ..Hints::default() }
            }
            Kind::Stream { conn, side } => {
                self.conns.get(*conn).map(|conn| conn.hints(*side)).unwrap_or_default()
            }
        }
    }

    /// Drops a connection that nobody will ask for again.
    pub(crate) fn reap(&mut self, conn: Key) {
        if self.conns.get(conn).is_some_and(|conn| conn.ends.iter().all(super::conn::End::gone)) {
            self.conns.remove(conn);
        }
    }

    /// The host that an address leads to, seen from `from`.
    pub(crate) fn route(&self, from: HostId, to: IpAddr) -> Option<HostId> {
        if to.is_loopback() {
            return Some(from);
        }
        self.hosts.iter().position(|host| host.addresses.contains(&to)).map(HostId)
    }
}

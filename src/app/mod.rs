//! The driver: the one place that knows both the pure core and the loop's lower half.
//!
//! One turn: poll, read the clock, latch, answers of helpers, read links, serve others, timers, effects, write
//! links, accept, reap. Timers come after reads, so that a process that was paused does not condemn its peers;
//! accepts come after everything that lives, so that a storm of newcomers starves nobody.

mod bridge;
mod conn;
mod descriptors;
mod effects;
mod http;
mod links;
mod roster;
mod serve;
mod start;
mod tokens;
mod translate;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::time::{Duration, Instant};

use self::conn::{Conn, Mode, Probe, Purpose};
use self::roster::Roster;
use crate::core::ids::JobId;
use crate::core::mux::TransmitBuf;
use crate::core::role::{Door, ProcessReport, Role};
use crate::core::timers::TimerQueue;
use crate::key::{Key, Slots};
use crate::limits::{
    ACCEPT_REST, ACCEPTS_PER_TURN, HANDSHAKES_PER_TURN, HEAD_TIMEOUT, PAUSE_MIN, READ_BUFFER_LEN,
    TRANSMIT_BUFFER_LEN, TUNNEL_BUFFER_LEN,
};
use crate::net::sys::{Class, JobResult, KernelLiveness, ListenAddr, Peer, Ready, Signal, Sock, Sys};
use crate::net::tls;

pub use self::descriptors::DescriptorShares;
pub use self::start::{StartError, agent_app, run_agent, run_server};
pub use self::tokens::{ReadToken, Review, Tokens};

/// How links are secured.
#[derive(Clone)]
pub enum LinkTls {
    /// In clear.
    None,
    /// We accept links.
    Server(tls::ServerTls),
    /// We dial links to this name.
    Client(tls::ClientTls, tls::ServerName<'static>),
}

/// What the driver needs to know.
pub struct AppConfig {
    /// How links are secured.
    pub link_tls: LinkTls,
    /// How frontends over TCP are secured.
    pub frontend_tls: Option<tls::ServerTls>,
    /// Kernel-side liveness of links.
    pub kernel_liveness: KernelLiveness,
    /// What certificates are judged by; set once a turn.
    pub clock: tls::WallClock,
    /// Tokens of agents.
    pub tokens: Tokens,
    /// Bounds of the tables.
    pub shares: DescriptorShares,
    /// Figures about the process, for metrics: reads /proc, so it is called only when somebody asks.
    pub process: fn() -> ProcessReport,
}

/// The driver of one role over one kernel.
pub struct App<S: Sys, R: Role> {
    sys: S,
    role: R,
    config: AppConfig,
    conns: Slots<Conn>,
    /// Links whose socket may have bytes.
    links: VecDeque<Key>,
    /// Other connections that have something to do.
    others: VecDeque<Key>,
    /// Links that have something to send.
    dirty: VecDeque<Key>,
    /// Listeners with connections waiting.
    accepting: VecDeque<Key>,
    /// Tunnels that a link left with something to do.
    unserved: Vec<Key>,
    /// Clients of each of the health and admin ports.
    probes: Vec<Roster>,
    /// Connections on their way out.
    closing: Roster,
    timers: TimerQueue<Key>,
    connects: HashMap<JobId, Key>,
    ready: Vec<Ready>,
    /// TLS handshakes that may be advanced in this turn.
    handshakes_left: usize,
    read_buffer: Vec<u8>,
    opened: Vec<u8>,
    tunnel_buffer: Vec<u8>,
    transmit: TransmitBuf,
    signals: u32,
    now: Instant,
    /// When the last turn ended, and waiting began.
    ended: Instant,
}

impl<S: Sys, R: Role> App<S, R> {
    /// A driver without listeners.
    pub fn new(mut sys: S, role: R, config: AppConfig) -> Self {
        let now = sys.now();
        Self {
            sys,
            role,
            config,
            conns: Slots::default(),
            links: VecDeque::new(),
            others: VecDeque::new(),
            dirty: VecDeque::new(),
            accepting: VecDeque::new(),
            unserved: Vec::new(),
            probes: Vec::new(),
            closing: Roster::default(),
            timers: TimerQueue::default(),
            connects: HashMap::new(),
            ready: Vec::new(),
            handshakes_left: 0,
            read_buffer: vec![0; READ_BUFFER_LEN],
            opened: Vec::new(),
            tunnel_buffer: vec![0; TUNNEL_BUFFER_LEN],
            transmit: TransmitBuf::new(TRANSMIT_BUFFER_LEN),
            signals: 0,
            now,
            ended: now,
        }
    }

    /// The role, for tests.
    pub fn role(&self) -> &R {
        &self.role
    }

    /// Connections in the table, listeners included.
    pub fn connections(&self) -> usize {
        self.conns.len()
    }

    /// Listens for the role. Returns the socket, for its address.
    ///
    /// # Errors
    /// As [`Sys::listen`].
    pub fn listen(&mut self, at: &ListenAddr, door: Door) -> io::Result<Sock> {
        self.add_listener(at, Purpose::Role(door))
    }

    /// Listens for probes and metrics.
    ///
    /// # Errors
    /// As [`Sys::listen`].
    pub fn listen_http(&mut self, at: &ListenAddr) -> io::Result<Sock> {
        self.probes.push(Roster::default());
        self.add_listener(at, Purpose::Http(self.probes.len() - 1))
    }

    fn add_listener(&mut self, at: &ListenAddr, purpose: Purpose) -> io::Result<Sock> {
        let sock = self.sys.listen(at)?;
        let conn = Conn::new(sock, Mode::Listener(purpose), matches!(at, ListenAddr::Unix(_)));
        let key = self.conns.insert(conn);
        self.sys.register(sock, key.to_bits())?;
        // Somebody may have come between listen and register.
        self.accepting.push_back(key);
        if let Some(conn) = self.conns.get_mut(key) {
            conn.queued = true;
        }
        Ok(sock)
    }

    /// The kernel, for the address of a listener.
    pub fn sys(&mut self) -> &mut S {
        &mut self.sys
    }

    /// Runs until the role is finished.
    ///
    /// # Errors
    /// The poller is broken.
    pub fn run(&mut self) -> io::Result<()> {
        while !self.turn()? {}
        Ok(())
    }

    /// One turn of the loop. True when the role is finished; then everything is closed.
    ///
    /// # Errors
    /// The poller is broken.
    pub fn turn(&mut self) -> io::Result<bool> {
        self.poll()?;
        self.handshakes_left = HANDSHAKES_PER_TURN;
        self.take_answers();
        self.read_links();
        self.serve_others();
        self.fire_timers();
        self.write_links();
        self.accept_all();
        if self.role.is_finished() || self.signals > 1 {
            self.end();
            return Ok(true);
        }
        self.ended = self.sys.now();
        Ok(false)
    }

    fn poll(&mut self) -> io::Result<()> {
        let until = self.next_deadline();
        let mut ready = std::mem::take(&mut self.ready);
        self.sys.poll(&mut ready, until)?;
        let now = self.sys.now();
        let late = until.map_or(Duration::ZERO, |until| now.saturating_duration_since(until.max(self.ended)));
        self.note_lag(self.ended.saturating_duration_since(self.now), late);
        self.now = now;
        self.config.clock.set(self.sys.unix_time());
        for event in ready.drain(..) {
            let key = Key::from_bits(event.token);
            if let Some(conn) = self.conns.get_mut(key) {
                conn.transport.io.latch(event.hints);
                self.enqueue(key);
            }
        }
        self.ready = ready;
        Ok(())
    }

    /// `busy` is how long the last turn took, `late` how much after its time this one began.
    fn note_lag(&mut self, busy: Duration, late: Duration) {
        self.role.on_turn(busy);
        let pause = busy + late;
        if pause > PAUSE_MIN {
            log::warn!("msg=\"the process stood still\" for={:.3}s", pause.as_secs_f64());
            self.role.forgive(pause);
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let queues = [&self.links, &self.others, &self.dirty, &self.accepting];
        if queues.iter().any(|queue| !queue.is_empty()) {
            return Some(self.ended);
        }
        [self.role.poll_timeout(), self.timers.next()].into_iter().flatten().min()
    }

    /// Puts a connection in the queue where it belongs, once.
    fn enqueue(&mut self, key: Key) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if std::mem::replace(&mut conn.queued, true) {
            return;
        }
        match conn.mode {
            Mode::Link => self.links.push_back(key),
            Mode::Listener(_) => self.accepting.push_back(key),
            _ => self.others.push_back(key),
        }
    }

    /// Notes that a link has something to send, once.
    fn mark_dirty(&mut self, key: Key) {
        if let Some(conn) = self.conns.get_mut(key)
            && !std::mem::replace(&mut conn.dirty, true)
        {
            self.dirty.push_back(key);
        }
    }

    /// Answers of helper threads, and signals.
    fn take_answers(&mut self) {
        while let Some((id, result)) = self.sys.next_job() {
            let (now, job) = (self.now, JobId(id));
            match result {
                JobResult::Resolved(result) => {
                    let result = result.map_err(|error| translate::resolve_failure(&error));
                    self.role.on_resolved(now, job, result);
                }
                JobResult::Token(result) => self.role.on_token(now, job, result),
                JobResult::Reviewed(verdict) => self.role.on_reviewed(now, job, verdict),
            }
            self.pump();
        }
        while let Some(signal) = self.sys.next_signal() {
            match signal {
                Signal::Terminate => {
                    self.signals += 1;
                    self.role.on_terminate(self.now);
                    self.pump();
                }
                Signal::Reload => log::info!("msg=\"SIGHUP: nothing to reload\""),
            }
        }
    }

    fn fire_timers(&mut self) {
        if self.role.poll_timeout().is_some_and(|at| at <= self.now) {
            self.role.handle_timeout(self.now);
            self.pump();
        }
        while let Some(key) = self.timers.pop_due(self.now) {
            if let Some(conn) = self.conns.get_mut(key) {
                TimerQueue::<Key>::fired(&mut conn.timer);
                self.on_timer(key);
            }
        }
    }

    /// Accepts what waits, some from each listener.
    fn accept_all(&mut self) {
        for _ in 0..self.accepting.len() {
            let Some(key) = self.accepting.pop_front() else { return };
            match self.accept_some(key) {
                Backlog::Waits => self.accepting.push_back(key),
                // It counts as queued: no edge wakes it.
                Backlog::Rests => self.set_timer(key, Some(self.now + ACCEPT_REST)),
                Backlog::Empty => {
                    if let Some(conn) = self.conns.get_mut(key) {
                        conn.queued = false;
                    }
                }
            }
        }
    }

    /// Accepts from one listener.
    fn accept_some(&mut self, listener: Key) -> Backlog {
        let Some(Conn { transport, mode: Mode::Listener(purpose), .. }) = self.conns.get(listener) else {
            return Backlog::Empty;
        };
        let (sock, purpose) = (transport.sock, *purpose);
        let most = match purpose {
            Purpose::Role(_) => ACCEPTS_PER_TURN,
            // Each is read once before it can be the oldest.
            Purpose::Http(_) => self.config.shares.probes,
        };
        for _ in 0..most {
            if let Purpose::Role(door) = purpose
                && self.role.is_full(self.now, door)
            {
                return Backlog::Rests;
            }
            match self.sys.accept(sock) {
                Ok((sock, peer)) => self.accepted(sock, &peer, purpose),
                Err(error) => match error.kind() {
                    io::ErrorKind::WouldBlock => return Backlog::Empty,
                    // The newcomer left again.
                    io::ErrorKind::ConnectionAborted | io::ErrorKind::ConnectionReset => {}
                    _ => {
                        // Out of descriptors or memory: the connection waits, and no edge will tell again.
                        self.role.on_accept_failed(self.now, &error.to_string());
                        self.pump();
                        return Backlog::Rests;
                    }
                },
            }
        }
        Backlog::Waits
    }

    fn accepted(&mut self, sock: Sock, peer: &Peer, purpose: Purpose) {
        let from = match peer {
            Peer::Tcp(address) => Some(*address),
            Peer::Unix => None,
        };
        let (mode, class) = match purpose {
            Purpose::Role(Door::Agents) => (Mode::Link, Class::Link(self.config.kernel_liveness)),
            Purpose::Role(Door::Frontends) => (Mode::Head(Vec::new()), Class::Tunnel),
            Purpose::Http(_) => (Mode::Http(Probe { head: Vec::new(), from }), Class::Http),
        };
        let key = self.conns.insert(Conn::accepted(sock, peer, mode));
        self.make_room();
        let ready = self.sys.configure(sock, class).and_then(|()| self.sys.register(sock, key.to_bits()));
        if ready.is_err() {
            return self.discard(key);
        }
        let taken = match purpose {
            Purpose::Role(door) => {
                let taken = self.role.on_accept(self.now, door, key, from);
                if taken {
                    self.start_server_tls(key, door, from.is_some());
                }
                taken
            }
            Purpose::Http(door) => {
                self.set_timer(key, Some(self.now + HEAD_TIMEOUT));
                self.add_probe(door, key);
                true
            }
        };
        if !taken {
            return self.discard(key);
        }
        self.pump();
        // What came before register raises no edge.
        if let Some(conn) = self.conns.get_mut(key) {
            conn.transport.io.readable = true;
            self.enqueue(key);
        }
    }

    /// Notes a client of the health or admin port. Those who say nothing, or do not read, make room for the next.
    fn add_probe(&mut self, door: usize, key: Key) {
        let conns = &self.conns;
        let lives = |key| conns.get(key).is_some();
        let roster = &mut self.probes[door];
        let full = roster.count(lives) >= self.config.shares.probes;
        let oldest = if full { roster.pop_oldest(lives) } else { None };
        roster.push(key, lives);
        if let Some(oldest) = oldest {
            self.role.on_probe_evicted();
            self.discard_with_reset(oldest);
        }
    }

    /// While descriptors are short, whoever closes slowly makes room.
    fn make_room(&mut self) {
        while self.conns.len() > self.config.shares.connections {
            let conns = &self.conns;
            let Some(oldest) = self.closing.pop_oldest(|key| is_closing(conns, key)) else { return };
            self.role.on_closing_evicted();
            self.discard_with_reset(oldest);
        }
    }

    fn set_timer(&mut self, key: Key, at: Option<Instant>) {
        if let Some(conn) = self.conns.get_mut(key) {
            self.timers.set(key, &mut conn.timer, at);
        }
    }

    /// Closes a socket that no role knows (any more), and frees its slot: its key names nobody from now on.
    fn discard(&mut self, key: Key) {
        self.set_timer(key, None);
        if let Some(conn) = self.conns.remove(key) {
            self.sys.close(conn.transport.sock);
        }
    }

    /// As `discard`, with a reset.
    fn discard_with_reset(&mut self, key: Key) {
        self.set_timer(key, None);
        if let Some(conn) = self.conns.remove(key) {
            self.sys.abort(conn.transport.sock);
        }
    }

    /// The role is finished: last words were queued, everything is closed.
    fn end(&mut self) {
        let keys: Vec<Key> = self.conns.iter().map(|(key, _)| key).collect();
        for key in keys {
            if let Some(conn) = self.conns.get_mut(key) {
                // One try: whoever does not read now is not waited for.
                let _gone = conn.transport.flush(&mut self.sys);
            }
            self.discard(key);
        }
    }
}

/// What a listener's backlog holds after a round of accepts.
enum Backlog {
    Empty,
    Waits,
    /// Something waits that cannot be taken now.
    Rests,
}

fn is_closing(conns: &Slots<Conn>, key: Key) -> bool {
    conns.get(key).is_some_and(|conn| matches!(conn.mode, Mode::Closing(_)))
}

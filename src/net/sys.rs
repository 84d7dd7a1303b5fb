//! The outer seam: what the loop asks of a kernel.
//!
//! [`Sys`] is small and never blocks except in [`Sys::poll`]. `net::unix` is the real one; the simulation
//! has another. Readiness is edge-triggered and only a hint, as `mio::Poll` documents it: after a
//! [`Ready`] the caller reads (or writes) until `WouldBlock` before it may count on another edge.

use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use crate::token::{Secret, Verdict};

/// A socket of a [`Sys`]. Valid from the call that returned it until `close` or `abort`.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Sock(pub u32);

/// Hints about one socket. Flags add up; a missing flag proves nothing.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Hints {
    /// A read may make progress (bytes, EOF, error, or a connection to accept).
    pub readable: bool,
    /// A write may make progress, or a connect ended.
    pub writable: bool,
    /// The peer will send no more (EPOLLRDHUP, or HUP): bytes may still wait before the EOF.
    pub read_closed: bool,
    /// Both directions are gone (EPOLLHUP). A Unix socket shows its peer's `close` this way, TCP a reset.
    pub hup: bool,
    /// EPOLLERR: `read` or `take_error` tells which.
    pub error: bool,
}

/// One event of [`Sys::poll`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ready {
    /// The number given to [`Sys::register`].
    pub token: u64,
    /// What to try.
    pub hints: Hints,
}

/// Where to listen.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ListenAddr {
    /// A TCP address. Dual stack for `[::]`.
    Tcp(SocketAddr),
    /// A Unix socket file.
    Unix(PathBuf),
}

/// Who connected.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Peer {
    /// A TCP address.
    Tcp(SocketAddr),
    /// Somebody on a Unix socket.
    Unix,
}

/// What a socket is for: decides its options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Class {
    /// A link: NODELAY, keepalive, TCP_USER_TIMEOUT, TCP_NOTSENT_LOWAT, bounded retransmission interval.
    Link(KernelLiveness),
    /// A TCP frontend or target: NODELAY, keepalive 30 s / 10 s / 3. Never TCP_USER_TIMEOUT: it kills a live
    /// peer that only advertises a zero window.
    Tunnel,
    /// A health or admin client: NODELAY.
    Http,
}

/// Kernel-side detection on a link, derived from one detection time by `core::liveness`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KernelLiveness {
    /// TCP_KEEPIDLE, whole seconds.
    pub keepalive_idle: Duration,
    /// TCP_KEEPINTVL, whole seconds.
    pub keepalive_interval: Duration,
    /// TCP_KEEPCNT.
    pub keepalive_count: u32,
    /// TCP_USER_TIMEOUT.
    pub user_timeout: Duration,
}

/// What the kernel knows about a TCP connection (`tcp_info`).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct TcpInfo {
    /// Smoothed round-trip time.
    pub rtt: Duration,
    /// Its variation.
    pub rtt_var: Duration,
    /// Retransmission timeout.
    pub rto: Duration,
    /// Time since the last ACK was received.
    pub last_ack_received: Duration,
}

/// Work that blocks, done on the helper pool.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Job {
    /// Look a host name up; every address, in resolver order, port filled in.
    Resolve {
        /// A host name without brackets (an IP literal works too).
        host: String,
        /// Copied into each address.
        port: u16,
        /// Our own link waits for it: it goes first.
        urgent: bool,
    },
}

/// The end of a [`Job`].
#[derive(Debug)]
pub enum JobResult {
    /// Addresses of [`Job::Resolve`], or why there are none (`NotFound`: the name does not exist).
    Resolved(io::Result<Vec<SocketAddr>>),
    /// A token was read, or why not.
    Token(Result<Secret, String>),
    /// A token was judged.
    Reviewed(Verdict),
}

/// Other work that blocks, and ends by itself.
pub type Task = Box<dyn FnOnce() -> JobResult + Send>;

/// A process signal, as a source of the loop.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signal {
    /// SIGTERM or SIGINT.
    Terminate,
    /// SIGHUP.
    Reload,
}

/// The kernel, as far as the loop needs it.
pub trait Sys {
    /// Monotonic time. Read once a turn.
    fn now(&mut self) -> Instant;

    /// Seconds since the Unix epoch: for certificates and people only.
    fn unix_time(&mut self) -> Duration;

    /// 64 bits that a peer cannot guess.
    fn random(&mut self) -> u64;

    /// Appends what is ready. Waits for it until `until` (`None` = for ever; a past instant = not at all).
    /// Also returns when a signal or a job's end is there to be fetched. EINTR is not an error.
    ///
    /// # Errors
    /// Only what ends the process: the poller itself is broken.
    fn poll(&mut self, ready: &mut Vec<Ready>, until: Option<Instant>) -> io::Result<()>;

    /// The next job that ended, with the id given to [`Sys::submit`].
    fn next_job(&mut self) -> Option<(u64, JobResult)>;

    /// The next signal.
    fn next_signal(&mut self) -> Option<Signal>;

    /// Listens, non-blocking, backlog 4096. A Unix socket gets mode 0770 from its first moment; a file that
    /// nobody listens on is replaced; anything else in its place is an error.
    ///
    /// # Errors
    /// With a text that says what to do (`AddrInUse`: who has it; `AlreadyExists`: not a socket; ...).
    fn listen(&mut self, at: &ListenAddr) -> io::Result<Sock>;

    /// The address that a TCP listener got (port 0 asks for any).
    ///
    /// # Errors
    /// As getsockname(2).
    fn local_addr(&mut self, sock: Sock) -> io::Result<SocketAddr>;

    /// The next waiting connection, non-blocking, close-on-exec.
    ///
    /// # Errors
    /// `WouldBlock`, or accept(2)'s (EMFILE and ENFILE leave the connection waiting, without another edge).
    fn accept(&mut self, listener: Sock) -> io::Result<(Sock, Peer)>;

    /// Starts a TCP connect. The end shows as writable; then ask [`Sys::connected`].
    ///
    /// # Errors
    /// What connect(2) or socket(2) reports at once.
    fn connect(&mut self, to: SocketAddr) -> io::Result<Sock>;

    /// How a connect stands.
    ///
    /// # Errors
    /// `WouldBlock` while pending; else why it failed.
    fn connected(&mut self, sock: Sock) -> io::Result<()>;

    /// Reports events of `sock` under `token` from now on, edge-triggered, both directions, once for its life.
    ///
    /// # Errors
    /// As epoll_ctl(2).
    fn register(&mut self, sock: Sock, token: u64) -> io::Result<()>;

    /// Sets the options of a class on a connected TCP socket; does nothing on a Unix socket.
    ///
    /// # Errors
    /// The first option that the kernel refused.
    fn configure(&mut self, sock: Sock, class: Class) -> io::Result<()>;

    /// Reads some bytes; 0 is EOF.
    ///
    /// # Errors
    /// `WouldBlock`, or read(2)'s. `Interrupted` is retried inside.
    fn read(&mut self, sock: Sock, into: &mut [u8]) -> io::Result<usize>;

    /// Writes some bytes. Never raises SIGPIPE.
    ///
    /// # Errors
    /// `WouldBlock`, or writev(2)'s. `Interrupted` is retried inside.
    fn write(&mut self, sock: Sock, from: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Ends our direction (FIN).
    ///
    /// # Errors
    /// As shutdown(2); `NotConnected` when the peer is gone already.
    fn shutdown_write(&mut self, sock: Sock) -> io::Result<()>;

    /// Bytes written that the peer's kernel (TCP) or the peer (Unix) has not taken yet (SIOCOUTQ).
    ///
    /// # Errors
    /// As ioctl(2).
    fn unsent(&mut self, sock: Sock) -> io::Result<usize>;

    /// What the kernel measured on a TCP connection.
    ///
    /// # Errors
    /// As getsockopt(2).
    fn tcp_info(&mut self, sock: Sock) -> io::Result<TcpInfo>;

    /// Closes; what was written is still delivered. A Unix listener's file goes too, if it is still ours.
    fn close(&mut self, sock: Sock);

    /// Closes with a reset (SO_LINGER 0) on TCP; as `close` on a Unix socket.
    fn abort(&mut self, sock: Sock);

    /// Gives a job to the helper pool.
    ///
    /// # Errors
    /// `WouldBlock` when the pool's queue is full.
    fn submit(&mut self, job: Job, id: u64) -> io::Result<()>;

    /// Gives a task to helper threads of its own kind. Its end comes as a job's.
    ///
    /// # Errors
    /// `WouldBlock` when too many wait.
    fn run(&mut self, task: Task, id: u64) -> io::Result<()>;

    /// Nobody waits for a job or task any more. Its end may come all the same.
    fn cancel(&mut self, id: u64);
}

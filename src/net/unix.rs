//! The real kernel: mio for epoll, socket2 and nix for the calls. The only place that holds descriptors of
//! the loop or reads a clock.

mod listen;
mod options;
mod table;

use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::io::{self, ErrorKind, IoSlice, Read};
use std::net::{Shutdown, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use mio::event::Event;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use socket2::{Domain, Socket, Type};

use self::listen::SocketFile;
use self::table::Table;
pub use super::signal::Signals;
use super::sys::{Class, Hints, Job, JobResult, ListenAddr, Peer, Ready, Signal, Sock, Sys, Task, TcpInfo};
use super::tasks::Tasks;
use super::worker::Pool;
use super::{ffi, signal};

/// Events of one epoll_wait(2); more come with the next.
const EVENTS_PER_POLL: usize = 1024;
/// Slices that sendmsg(2) takes (UIO_MAXIOV); more would be EMSGSIZE.
const SLICES_MAX: usize = 1024;
/// Tokens of our own. [`crate::key::Key`] never makes them: the generation would have to be the last.
const WAKER: Token = Token(usize::MAX);
const SIGNALS: Token = Token(usize::MAX - 1);

/// One open socket. Fields are dropped in order, the file first: its identity holds while the socket is open.
struct Entry {
    #[expect(dead_code, reason = "held for its drop")]
    file: Option<Box<SocketFile>>,
    socket: Socket,
    tcp: bool,
}

/// The kernel of a running process.
///
/// Dropping it closes every socket and removes the files of its Unix listeners.
pub struct UnixSys {
    poll: Poll,
    events: Events,
    sockets: Table<Entry>,
    pool: Pool,
    tasks: Tasks,
    /// A helper rang and was not read empty since.
    jobs_waiting: bool,
    signals: Option<signal::Source>,
    /// The signalfd was ready and was not read empty since.
    signals_waiting: bool,
    random: RandomState,
    random_count: u64,
}

/// Seconds since the Unix epoch; 0 for a clock before it.
#[expect(clippy::disallowed_methods, reason = "the one place that reads the wall clock")]
pub(super) fn wall_time() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

#[expect(clippy::disallowed_methods, reason = "the one place that reads the monotonic clock")]
fn monotonic_time() -> Instant {
    Instant::now()
}

impl UnixSys {
    /// Opens the poller and, for [`Signals::Process`], takes the process's signals: threads started before
    /// must come from [`signal::spawn`].
    ///
    /// # Errors
    /// `AlreadyExists` when another one has the signals; else as epoll_create(2), eventfd(2), signalfd(2).
    pub fn new(signals: Signals) -> io::Result<Self> {
        let poll = Poll::new()?;
        let signals = match signals {
            Signals::Process => Some(signal::Source::install()?),
            Signals::None => None,
        };
        if let Some(source) = &signals {
            poll.registry().register(&mut SourceFd(&source.raw_fd()), SIGNALS, Interest::READABLE)?;
        }
        let waker = Arc::new(Waker::new(poll.registry(), WAKER)?);
        Ok(Self {
            poll,
            events: Events::with_capacity(EVENTS_PER_POLL),
            sockets: Table::new(),
            pool: Pool::new(Arc::clone(&waker)),
            tasks: Tasks::new(waker),
            jobs_waiting: false,
            signals,
            signals_waiting: false,
            random: RandomState::new(),
            random_count: 0,
        })
    }

    fn socket(&self, sock: Sock) -> io::Result<&Socket> {
        self.sockets.get(sock).map(|entry| &entry.socket)
    }

    /// Waits, with what is left of the time after each EINTR.
    fn wait(&mut self, until: Option<Instant>) -> io::Result<()> {
        loop {
            let timeout = if self.jobs_waiting || self.signals_waiting {
                Some(Duration::ZERO)
            } else {
                // mio rounds up to milliseconds, so that a wait never ends early and spins.
                until.map(|until| until.saturating_duration_since(monotonic_time()))
            };
            match self.poll.poll(&mut self.events, timeout) {
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                result => return result,
            }
        }
    }
}

impl Sys for UnixSys {
    fn now(&mut self) -> Instant {
        monotonic_time()
    }

    fn unix_time(&mut self) -> Duration {
        wall_time()
    }

    fn random(&mut self) -> u64 {
        // A keyed hash of a counter: the 128 bit key comes from the system's random source, and nobody who
        // sees some values can tell the next.
        self.random_count = self.random_count.wrapping_add(1);
        self.random.hash_one(self.random_count)
    }

    fn poll(&mut self, ready: &mut Vec<Ready>, until: Option<Instant>) -> io::Result<()> {
        self.wait(until)?;
        for event in &self.events {
            match event.token() {
                WAKER => self.jobs_waiting = true,
                SIGNALS => self.signals_waiting = true,
                Token(token) => ready.push(Ready { token: token as u64, hints: hints(event) }),
            }
        }
        Ok(())
    }

    fn next_job(&mut self) -> Option<(u64, JobResult)> {
        let result = self.pool.next().or_else(|| self.tasks.next());
        self.jobs_waiting = result.is_some();
        result
    }

    fn next_signal(&mut self) -> Option<Signal> {
        if !self.signals_waiting {
            return None; // spares the system call of nearly every turn
        }
        let signal = self.signals.as_ref().and_then(signal::Source::next);
        self.signals_waiting = signal.is_some();
        signal
    }

    fn listen(&mut self, at: &ListenAddr) -> io::Result<Sock> {
        self.sockets.check_room()?;
        let entry = match at {
            ListenAddr::Tcp(address) => Entry { file: None, socket: listen::tcp(*address)?, tcp: true },
            ListenAddr::Unix(path) => {
                let (socket, file) = listen::unix(path)?;
                Entry { file: Some(Box::new(file)), socket, tcp: false }
            }
        };
        self.sockets.insert(entry)
    }

    fn local_addr(&mut self, sock: Sock) -> io::Result<SocketAddr> {
        let address = self.socket(sock)?.local_addr()?;
        address.as_socket().ok_or_else(|| ErrorKind::Unsupported.into())
    }

    fn accept(&mut self, listener: Sock) -> io::Result<(Sock, Peer)> {
        let listener = self.socket(listener)?;
        // Before the call: a connection without a number must stay in the backlog, as with EMFILE.
        self.sockets.check_room()?;
        let accept = || listener.accept4(libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC);
        let (socket, address) = retry(accept)?;
        let peer = address.as_socket().map_or(Peer::Unix, |address| Peer::Tcp(plain(address)));
        let entry = Entry { file: None, socket, tcp: peer != Peer::Unix };
        Ok((self.sockets.insert(entry)?, peer))
    }

    fn connect(&mut self, to: SocketAddr) -> io::Result<Sock> {
        let socket = Socket::new(Domain::for_address(to), Type::STREAM.nonblocking().cloexec(), None)?;
        match socket.connect(&to.into()) {
            // EINTR: the connect goes on, as with EINPROGRESS.
            Err(error) if !matches!(error.raw_os_error(), Some(libc::EINPROGRESS | libc::EINTR)) => {
                Err(error)
            }
            _ => self.sockets.insert(Entry { file: None, socket, tcp: true }),
        }
    }

    fn connected(&mut self, sock: Sock) -> io::Result<()> {
        let socket = self.socket(sock)?;
        if let Some(error) = socket.take_error()? {
            return Err(error);
        }
        match socket.peer_addr() {
            Ok(_) => Ok(()),
            // Not connected: still trying, or failed with an error that was taken before.
            Err(error) if error.kind() == ErrorKind::NotConnected => match ffi::tcp_info(socket) {
                Ok(info) if matches!(info.tcpi_state, TCP_SYN_SENT | TCP_SYN_RECV) => {
                    Err(ErrorKind::WouldBlock.into())
                }
                _ => Err(error),
            },
            Err(error) => Err(error),
        }
    }

    fn register(&mut self, sock: Sock, token: u64) -> io::Result<()> {
        let descriptor = self.socket(sock)?.as_raw_fd();
        let token = usize::try_from(token).map(Token).map_err(|_| ErrorKind::InvalidInput)?;
        if token == WAKER || token == SIGNALS {
            return Err(ErrorKind::InvalidInput.into());
        }
        let both = Interest::READABLE | Interest::WRITABLE;
        self.poll.registry().register(&mut SourceFd(&descriptor), token, both)
    }

    fn configure(&mut self, sock: Sock, class: Class) -> io::Result<()> {
        let entry = self.sockets.get(sock)?;
        if entry.tcp { options::apply(&entry.socket, class) } else { Ok(()) }
    }

    fn read(&mut self, sock: Sock, into: &mut [u8]) -> io::Result<usize> {
        let mut socket = self.socket(sock)?;
        retry(|| socket.read(into))
    }

    fn write(&mut self, sock: Sock, from: &[IoSlice<'_>]) -> io::Result<usize> {
        let socket = self.socket(sock)?;
        let from = &from[..from.len().min(SLICES_MAX)];
        // Rust's runtime ignores SIGPIPE too; the flag keeps that true inside another program.
        retry(|| socket.send_vectored_with_flags(from, libc::MSG_NOSIGNAL))
    }

    fn shutdown_write(&mut self, sock: Sock) -> io::Result<()> {
        self.socket(sock)?.shutdown(Shutdown::Write)
    }

    fn unsent(&mut self, sock: Sock) -> io::Result<usize> {
        let socket = self.socket(sock)?;
        let bytes = ffi::unsent(socket)?;
        // On a Unix socket the kernel holds one byte of the count back while it raises the writable edge (sock_wfree).
        // A loop that is quick reads 1 then, and no further edge would tell of the 0; a buffer never counts as 1.
        let all_taken = bytes == 1 && socket2::SockRef::from(socket).domain()? == socket2::Domain::UNIX;
        Ok(if all_taken { 0 } else { bytes })
    }

    fn tcp_info(&mut self, sock: Sock) -> io::Result<TcpInfo> {
        let info = ffi::tcp_info(self.socket(sock)?)?;
        Ok(TcpInfo {
            rtt: Duration::from_micros(info.tcpi_rtt.into()),
            rtt_var: Duration::from_micros(info.tcpi_rttvar.into()),
            rto: Duration::from_micros(info.tcpi_rto.into()),
            last_ack_received: Duration::from_millis(info.tcpi_last_ack_recv.into()),
        })
    }

    fn close(&mut self, sock: Sock) {
        // Its end takes it out of epoll: no other descriptor refers to it.
        drop(self.sockets.remove(sock));
    }

    fn abort(&mut self, sock: Sock) {
        let Some(entry) = self.sockets.remove(sock) else { return };
        if entry.tcp
            && let Err(error) = entry.socket.set_linger(Some(Duration::ZERO))
        {
            log::debug!("msg=\"a socket is closed without a reset\" error=\"{error}\"");
        }
    }

    fn submit(&mut self, job: Job, id: u64) -> io::Result<()> {
        self.pool.submit(job, id)
    }

    fn run(&mut self, task: Task, id: u64) -> io::Result<()> {
        self.tasks.submit(id, task)
    }

    fn cancel(&mut self, id: u64) {
        self.pool.cancel(id);
        self.tasks.cancel(id);
    }
}

/// Of `tcpi_state`; libc does not name them.
const TCP_SYN_SENT: u8 = 2;
const TCP_SYN_RECV: u8 = 3;

/// mio shows EPOLLHUP only as both directions closed. Whoever looks at one flag alone must not miss an end,
/// so the flags of reading and writing include it.
fn hints(event: &Event) -> Hints {
    let (read_closed, write_closed, error) =
        (event.is_read_closed(), event.is_write_closed(), event.is_error());
    Hints {
        readable: event.is_readable() || read_closed || error,
        writable: event.is_writable() || write_closed || error,
        read_closed,
        hup: read_closed && write_closed,
        error,
    }
}

/// An IPv4 peer of a dual-stack listener, as IPv4.
fn plain(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

fn retry<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

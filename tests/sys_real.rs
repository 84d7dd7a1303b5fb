//! `UnixSys` on real sockets: what the loop relies on, Unix sockets and TCP apart.
//!
//! What belongs to a whole process (umask, signals, descriptors, standard error) is tried in a child: an
//! ignored test of this file that another test starts.
#![expect(clippy::disallowed_methods, reason = "tests of the real clock and the real kernel")]
#![expect(clippy::unwrap_used, clippy::panic, reason = "the helpers of a test fail as the test does")]

use std::fs;
use std::io::{self, ErrorKind, IoSlice, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixDatagram, UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use nix::sys::signal::{SigSet, Signal as OsSignal, kill};
use nix::unistd::Pid;
use socket2::{Domain, SockRef, Socket, Type};
use tautline::net::sys::{
    Class, Hints, Job, JobResult, KernelLiveness, ListenAddr, Peer, Ready, Signal, Sock, Sys,
};
use tautline::net::unix::{Signals, UnixSys};
use tautline::net::{logger, process, signal};

/// Longer than anything here takes, on a busy machine as well.
const LONG: Duration = Duration::from_secs(30);
/// Long enough for an event that must not come.
const QUIET: Duration = Duration::from_millis(60);

fn seconds(count: u64) -> Duration {
    Duration::from_secs(count)
}

/// A folder that goes with the test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let name = format!("tautline-sys-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn join(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn new_sys() -> UnixSys {
    UnixSys::new(Signals::None).unwrap()
}

/// Every event of `token` within `limit`.
fn events_within(sys: &mut UnixSys, token: u64, limit: Duration) -> Vec<Hints> {
    let until = Instant::now() + limit;
    let mut ready = Vec::new();
    while Instant::now() < until {
        sys.poll(&mut ready, Some(until)).unwrap();
    }
    ready.into_iter().filter(|ready| ready.token == token).map(|ready| ready.hints).collect()
}

/// The first event of `token` that `wanted` likes.
fn event(sys: &mut UnixSys, token: u64, wanted: fn(Hints) -> bool) -> Hints {
    let until = Instant::now() + LONG;
    let mut ready: Vec<Ready> = Vec::new();
    loop {
        ready.clear();
        sys.poll(&mut ready, Some(until)).unwrap();
        let found = ready.iter().find(|ready| ready.token == token && wanted(ready.hints));
        if let Some(found) = found {
            return found.hints;
        }
        assert!(Instant::now() < until, "no such event of {token}");
    }
}

fn accept(sys: &mut UnixSys, listener: Sock) -> (Sock, Peer) {
    let until = Instant::now() + LONG;
    loop {
        match sys.accept(listener) {
            Err(error) if error.kind() == ErrorKind::WouldBlock && Instant::now() < until => {
                sys.poll(&mut Vec::new(), Some(Instant::now() + Duration::from_millis(1))).unwrap();
            }
            result => return result.unwrap(),
        }
    }
}

/// A TCP client and our end, registered as 1, with the first edges read.
fn tcp_pair(sys: &mut UnixSys) -> (TcpStream, Sock) {
    let listener = sys.listen(&ListenAddr::Tcp("127.0.0.1:0".parse().unwrap())).unwrap();
    let client = TcpStream::connect(sys.local_addr(listener).unwrap()).unwrap();
    let (ours, peer) = accept(sys, listener);
    assert_eq!(peer, Peer::Tcp(client.local_addr().unwrap()));
    sys.register(ours, 1).unwrap();
    event(sys, 1, |hints| hints.writable);
    (client, ours)
}

/// A Unix client and our end, registered as 1, with the first edges read.
fn unix_pair(sys: &mut UnixSys) -> (UnixStream, Sock) {
    let folder = Folder::new();
    let listener = sys.listen(&ListenAddr::Unix(folder.join("s"))).unwrap();
    let client = UnixStream::connect(folder.join("s")).unwrap();
    let (ours, peer) = accept(sys, listener);
    assert_eq!(peer, Peer::Unix);
    sys.register(ours, 1).unwrap();
    event(sys, 1, |hints| hints.writable);
    (client, ours)
}

fn write(sys: &mut UnixSys, sock: Sock, bytes: &[u8]) -> io::Result<usize> {
    sys.write(sock, &[IoSlice::new(bytes)])
}

/// Reads until the end or an error.
fn read_all(sys: &mut UnixSys, sock: Sock) -> (Vec<u8>, io::Result<()>) {
    let (mut all, mut piece) = (Vec::new(), [0; 4096]);
    loop {
        match sys.read(sock, &mut piece) {
            Ok(0) => return (all, Ok(())),
            Ok(len) => all.extend_from_slice(&piece[..len]),
            Err(error) => return (all, Err(error)),
        }
    }
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> ErrorKind {
    result.unwrap_err().kind()
}

fn would_block<T: std::fmt::Debug>(result: io::Result<T>) -> bool {
    kind(result) == ErrorKind::WouldBlock
}

// ---- time ----

#[test]
fn a_wait_lasts_until_its_instant_and_a_past_one_not_at_all() {
    let mut sys = new_sys();
    let mut ready = Vec::new();
    for wait in [1, 300, 999, 1001, 2500, 20_300].map(Duration::from_micros) {
        let until = sys.now() + wait;
        sys.poll(&mut ready, Some(until)).unwrap();
        assert!(Instant::now() >= until, "woke early from {wait:?}");
    }
    let start = Instant::now();
    for _ in 0..100 {
        sys.poll(&mut ready, Some(start)).unwrap();
    }
    assert!(start.elapsed() < seconds(5));
    assert!(ready.is_empty());
    let real = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    assert!(real.abs_diff(sys.unix_time()) < seconds(60));
}

#[test]
fn random_numbers_differ_within_and_between_kernels() {
    let numbers: Vec<u64> =
        (0..20).map(|_| new_sys()).flat_map(|mut sys| [sys.random(), sys.random()]).collect();
    let distinct: std::collections::HashSet<_> = numbers.iter().collect();
    assert_eq!(distinct.len(), numbers.len());
}

// ---- the two ends of a connection ----

#[test]
fn unix_half_close_is_a_read_end_without_hup_and_close_is_hup() {
    let mut sys = new_sys();
    let (mut client, ours) = unix_pair(&mut sys);
    client.write_all(b"last").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    let hints = event(&mut sys, 1, |hints| hints.read_closed);
    assert!(hints.readable && !hints.hup && !hints.error, "{hints:?}");
    assert_eq!(read_all(&mut sys, ours).0, b"last");
    // The other direction lives.
    assert_eq!(write(&mut sys, ours, b"answer").unwrap(), 6);
    sys.shutdown_write(ours).unwrap();
    let mut answer = Vec::new();
    client.read_to_end(&mut answer).unwrap();
    assert_eq!(answer, b"answer");

    let (client, ours) = unix_pair(&mut sys);
    drop(client);
    let hints = event(&mut sys, 1, |hints| hints.hup);
    assert!(hints.readable && hints.writable && hints.read_closed, "{hints:?}");
    assert_eq!(sys.read(ours, &mut [0; 8]).unwrap(), 0);
    // EPIPE, and no SIGPIPE: we are still here.
    assert_eq!(kind(write(&mut sys, ours, b"x")), ErrorKind::BrokenPipe);
}

#[test]
fn unix_half_close_then_close_gives_a_second_edge_with_hup() {
    let mut sys = new_sys();
    let (client, ours) = unix_pair(&mut sys);
    client.shutdown(Shutdown::Write).unwrap();
    event(&mut sys, 1, |hints| hints.read_closed && !hints.hup);
    assert_eq!(sys.read(ours, &mut [0; 8]).unwrap(), 0);
    drop(client);
    event(&mut sys, 1, |hints| hints.hup);
}

#[test]
fn unix_close_with_our_bytes_unread_is_a_reset() {
    let mut sys = new_sys();
    let (client, ours) = unix_pair(&mut sys);
    write(&mut sys, ours, b"nobody reads this").unwrap();
    drop(client);
    event(&mut sys, 1, |hints| hints.hup);
    assert_eq!(kind(sys.read(ours, &mut [0; 8])), ErrorKind::ConnectionReset);
    assert_eq!(sys.read(ours, &mut [0; 8]).unwrap(), 0);
}

#[test]
fn tcp_half_close_and_close_look_alike_until_we_end_too() {
    for close in [false, true] {
        let mut sys = new_sys();
        let (mut client, ours) = tcp_pair(&mut sys);
        client.write_all(b"last").unwrap();
        let client = if close {
            drop(client);
            None
        } else {
            client.shutdown(Shutdown::Write).unwrap();
            Some(client)
        };
        let hints = event(&mut sys, 1, |hints| hints.read_closed);
        assert!(hints.readable && !hints.hup && !hints.error, "{close}: {hints:?}");
        assert_eq!(read_all(&mut sys, ours).0, b"last");
        if let Some(mut client) = client {
            assert_eq!(write(&mut sys, ours, b"answer").unwrap(), 6);
            sys.shutdown_write(ours).unwrap();
            let mut answer = Vec::new();
            client.read_to_end(&mut answer).unwrap();
            assert_eq!(answer, b"answer");
        } else {
            sys.shutdown_write(ours).unwrap();
        }
        event(&mut sys, 1, |hints| hints.hup);
    }
}

#[test]
fn tcp_reset_by_the_peer_is_hup_and_an_error_once() {
    let mut sys = new_sys();
    let (client, ours) = tcp_pair(&mut sys);
    SockRef::from(&client).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    let hints = event(&mut sys, 1, |hints| hints.hup);
    assert!(hints.error && hints.readable && hints.writable, "{hints:?}");
    assert_eq!(kind(sys.read(ours, &mut [0; 8])), ErrorKind::ConnectionReset);
    assert_eq!(sys.read(ours, &mut [0; 8]).unwrap(), 0);
    assert_eq!(kind(sys.shutdown_write(ours)), ErrorKind::NotConnected);
}

#[test]
fn abort_resets_and_close_delivers() {
    let mut sys = new_sys();
    let (mut client, ours) = tcp_pair(&mut sys);
    write(&mut sys, ours, b"lost or not").unwrap();
    sys.abort(ours);
    let mut bytes = Vec::new();
    assert_eq!(kind(client.read_to_end(&mut bytes)), ErrorKind::ConnectionReset);

    let (mut client, ours) = tcp_pair(&mut sys);
    write(&mut sys, ours, b"all of it").unwrap();
    sys.close(ours);
    bytes.clear();
    client.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"all of it");

    let (mut client, ours) = unix_pair(&mut sys);
    write(&mut sys, ours, b"all of it").unwrap();
    sys.abort(ours);
    bytes.clear();
    client.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, b"all of it");
}

#[test]
fn many_slices_are_a_short_write_not_an_error() {
    let mut sys = new_sys();
    let (mut client, ours) = unix_pair(&mut sys);
    let slices = vec![IoSlice::new(b"x"); 3000];
    assert_eq!(sys.write(ours, &slices).unwrap(), 1024);
    assert_eq!(sys.write(ours, &[]).unwrap(), 0);
    sys.close(ours);
    let mut bytes = Vec::new();
    client.read_to_end(&mut bytes).unwrap();
    assert_eq!(bytes, [b'x'; 1024]);
}

// ---- edges ----

#[test]
fn an_edge_comes_once_and_again_only_for_something_new() {
    fn check(sys: &mut UnixSys, client: &mut dyn Write, ours: Sock) {
        client.write_all(b"one").unwrap();
        event(sys, 1, |hints| hints.readable);
        assert_eq!(events_within(sys, 1, QUIET), [], "an edge without news");
        assert_eq!(sys.read(ours, &mut [0; 2]).unwrap(), 2);
        assert_eq!(events_within(sys, 1, QUIET), [], "a partial read is no news");
        // New bytes are news even if the old ones are still there.
        client.write_all(b"two").unwrap();
        event(sys, 1, |hints| hints.readable);
        let (bytes, end) = read_all(sys, ours);
        assert_eq!(bytes, b"etwo");
        assert!(would_block(end));
        client.write_all(b"three").unwrap();
        event(sys, 1, |hints| hints.readable);
        assert_eq!(read_all(sys, ours).0, b"three");
    }
    let mut sys = new_sys();
    let (mut client, ours) = tcp_pair(&mut sys);
    check(&mut sys, &mut client, ours);
    let (mut client, ours) = unix_pair(&mut sys);
    check(&mut sys, &mut client, ours);
}

#[test]
fn bytes_and_end_can_share_one_edge() {
    fn check(sys: &mut UnixSys, ours: Sock) {
        std::thread::sleep(QUIET); // both are there before the first poll
        let events = events_within(sys, 1, QUIET);
        assert_eq!(events.len(), 1, "{events:?}");
        assert!(events[0].read_closed);
        let (bytes, end) = read_all(sys, ours);
        assert_eq!(bytes, b"bytes");
        end.unwrap();
        assert_eq!(events_within(sys, 1, QUIET), [], "the end has no edge of its own");
    }
    let mut sys = new_sys();
    let (mut client, ours) = tcp_pair(&mut sys);
    client.write_all(b"bytes").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    check(&mut sys, ours);
    let (mut client, ours) = unix_pair(&mut sys);
    client.write_all(b"bytes").unwrap();
    client.shutdown(Shutdown::Write).unwrap();
    check(&mut sys, ours);
}

#[test]
fn a_full_socket_is_writable_again_after_the_peer_read() {
    fn check(sys: &mut UnixSys, client: &mut dyn Read, ours: Sock) {
        let block = [b'w'; 65_536];
        let mut written = 0;
        loop {
            match write(sys, ours, &block) {
                Ok(len) => written += len,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    break;
                }
            }
        }
        assert!(sys.unsent(ours).unwrap() > 0);
        events_within(sys, 1, QUIET);
        let mut all = vec![0; written];
        client.read_exact(&mut all).unwrap();
        event(sys, 1, |hints| hints.writable && !hints.hup);
        assert!(write(sys, ours, b"more").unwrap() > 0);
    }
    let mut sys = new_sys();
    let (mut client, ours) = tcp_pair(&mut sys);
    check(&mut sys, &mut client, ours);
    let (mut client, ours) = unix_pair(&mut sys);
    check(&mut sys, &mut client, ours);
}

#[test]
fn unix_peer_that_reads_everything_raises_a_fresh_writable_edge() {
    // The 200 must not share a read with the target's bytes: after it we wait for this edge.
    let mut sys = new_sys();
    let (mut client, ours) = unix_pair(&mut sys);
    assert_eq!(sys.unsent(ours).unwrap(), 0);
    for round in 0..20 {
        write(&mut sys, ours, b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        assert!(sys.unsent(ours).unwrap() > 0, "round {round}");
        if round == 0 {
            assert_eq!(events_within(&mut sys, 1, QUIET), [], "our own write is no edge");
        }
        client.read_exact(&mut [0; 10]).unwrap();
        assert!(sys.unsent(ours).unwrap() > 0, "half read is not read");
        client.read_exact(&mut [0; 9]).unwrap();
        event(&mut sys, 1, |hints| hints.writable);
        assert_eq!(sys.unsent(ours).unwrap(), 0);
    }
}

#[test]
fn tcp_counts_what_the_peer_did_not_acknowledge() {
    let mut sys = new_sys();
    let (client, ours) = tcp_pair(&mut sys);
    assert_eq!(sys.unsent(ours).unwrap(), 0);
    write(&mut sys, ours, b"x").unwrap();
    // The peer's kernel takes it; the peer need not read.
    let until = Instant::now() + LONG;
    while sys.unsent(ours).unwrap() > 0 {
        assert!(Instant::now() < until);
        std::thread::yield_now();
    }
    let info = sys.tcp_info(ours).unwrap();
    assert!(info.rtt > Duration::ZERO && info.rtt < seconds(1), "{info:?}");
    assert!(info.rto >= info.rtt && info.rto < seconds(5), "{info:?}");
    assert!(info.last_ack_received < seconds(10), "{info:?}");
    drop(client);
    let (_client, ours) = unix_pair(&mut sys);
    assert!(sys.tcp_info(ours).is_err());
}

#[test]
fn every_class_can_be_set_on_both_families() {
    let liveness = KernelLiveness {
        keepalive_idle: seconds(3),
        keepalive_interval: seconds(1),
        keepalive_count: 7,
        user_timeout: seconds(20),
    };
    let mut sys = new_sys();
    for class in [Class::Link(liveness), Class::Tunnel, Class::Http] {
        let (_client, ours) = tcp_pair(&mut sys);
        sys.configure(ours, class).unwrap();
        let (_client, ours) = unix_pair(&mut sys);
        sys.configure(ours, class).unwrap();
    }
}

// ---- connecting ----

/// How a connect ended, as the loop asks: after each writable edge.
fn connect_end(sys: &mut UnixSys, sock: Sock) -> io::Result<()> {
    sys.register(sock, 9).unwrap();
    loop {
        match sys.connected(sock) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                event(sys, 9, |hints| hints.writable);
            }
            result => return result,
        }
    }
}

#[test]
fn a_connect_ends_connected_or_refused() {
    let mut sys = new_sys();
    for host in ["127.0.0.1:0", "[::1]:0"] {
        let listener = TcpListener::bind(host).unwrap();
        let address = listener.local_addr().unwrap();
        let ours = sys.connect(address).unwrap();
        connect_end(&mut sys, ours).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        write(&mut sys, ours, b"hello").unwrap();
        peer.read_exact(&mut [0; 5]).unwrap();
        sys.connected(ours).unwrap();
        drop((peer, listener));

        let refused = sys.connect(address).and_then(|ours| {
            let end = connect_end(&mut sys, ours);
            // The reason is told once; afterwards it is at least not "pending".
            assert_eq!(kind(sys.connected(ours)), ErrorKind::NotConnected);
            sys.close(ours);
            end
        });
        assert_eq!(kind(refused), ErrorKind::ConnectionRefused);
    }
}

#[test]
fn a_connect_that_nobody_answers_is_pending_without_events() {
    // A full accept queue makes the kernel drop SYNs: silence, as from a vanished host.
    let listener = Socket::new(Domain::IPV4, Type::STREAM, None).unwrap();
    listener.bind(&"127.0.0.1:0".parse::<SocketAddr>().unwrap().into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    let first = TcpStream::connect(address).unwrap();

    let mut sys = new_sys();
    let pending = sys.connect(address).unwrap();
    sys.register(pending, 1).unwrap();
    assert_eq!(events_within(&mut sys, 1, Duration::from_millis(200)), []);
    assert!(would_block(sys.connected(pending)));
    assert!(would_block(sys.read(pending, &mut [0; 8])));
    // Room in the queue: the next SYN (after a second) gets through.
    let _accepted = listener.accept().unwrap();
    event(&mut sys, 1, |hints| hints.writable && !hints.error);
    sys.connected(pending).unwrap();
    drop(first);
}

// ---- listeners ----

#[test]
fn an_unspecified_v6_listener_takes_both_families_and_names_v4_as_v4() {
    let mut sys = new_sys();
    let listener = sys.listen(&ListenAddr::Tcp("[::]:0".parse().unwrap())).unwrap();
    let port = sys.local_addr(listener).unwrap().port();
    for host in ["127.0.0.1", "::1"] {
        let client = TcpStream::connect((host, port)).unwrap();
        assert_eq!(accept(&mut sys, listener).1, Peer::Tcp(client.local_addr().unwrap()));
    }
    let taken = sys.listen(&ListenAddr::Tcp(SocketAddr::new("::".parse().unwrap(), port))).unwrap_err();
    assert_eq!(taken.kind(), ErrorKind::AddrInUse);
    assert!(taken.to_string().contains(&format!("[::]:{port}")), "{taken}");
}

#[test]
fn accept_says_would_block_and_the_next_connection_is_a_new_edge() {
    let mut sys = new_sys();
    let folder = Folder::new();
    let listener = sys.listen(&ListenAddr::Unix(folder.join("s"))).unwrap();
    sys.register(listener, 1).unwrap();
    assert!(would_block(sys.accept(listener)));
    for _ in 0..3 {
        let _client = UnixStream::connect(folder.join("s")).unwrap();
        event(&mut sys, 1, |hints| hints.readable);
        sys.accept(listener).unwrap();
        assert!(would_block(sys.accept(listener)));
    }
    assert!(sys.accept(Sock(0xdead)).is_err());
}

#[test]
fn a_burst_of_connects_on_a_unix_listener_loses_nobody() {
    const BURST: usize = 1000;
    process::raise_descriptor_limit().unwrap();
    let mut sys = new_sys();
    let folder = Folder::new();
    let listener = sys.listen(&ListenAddr::Unix(folder.join("s"))).unwrap();
    sys.register(listener, 1).unwrap();
    let connect = || {
        let client = Socket::new(Domain::UNIX, Type::STREAM.nonblocking(), None).unwrap();
        client.connect(&socket2::SockAddr::unix(folder.join("s")).unwrap()).unwrap(); // EAGAIN if there is no room
        client
    };
    let clients: Vec<Socket> = (0..BURST).map(|_| connect()).collect();
    event(&mut sys, 1, |hints| hints.readable);
    let accepted: Vec<Sock> =
        std::iter::from_fn(|| sys.accept(listener).ok()).map(|(sock, _)| sock).collect();
    assert_eq!(accepted.len(), BURST);
    assert!(would_block(sys.accept(listener)));
    for (number, (client, sock)) in clients.iter().zip(&accepted).enumerate() {
        (&*client).write_all(&number.to_be_bytes()).unwrap();
        let mut bytes = [0; 8];
        assert_eq!(sys.read(*sock, &mut bytes).unwrap(), 8);
        assert_eq!(usize::from_be_bytes(bytes), number);
    }
}

fn listen_error(sys: &mut UnixSys, path: &Path) -> (ErrorKind, String) {
    let error = sys.listen(&ListenAddr::Unix(path.to_owned())).unwrap_err();
    (error.kind(), error.to_string())
}

#[test]
fn a_stale_socket_file_is_replaced() {
    let folder = Folder::new();
    let path = folder.join("s");
    drop(UnixListener::bind(&path).unwrap()); // std leaves the file
    assert!(path.exists());
    let mut sys = new_sys();
    let listener = sys.listen(&ListenAddr::Unix(path.clone())).unwrap();
    let _client = UnixStream::connect(&path).unwrap();
    accept(&mut sys, listener);
}

#[test]
fn a_live_server_keeps_its_path() {
    let folder = Folder::new();
    let path = folder.join("s");
    let live = UnixListener::bind(&path).unwrap();
    let mut sys = new_sys();
    let (kind, text) = listen_error(&mut sys, &path);
    assert_eq!(kind, ErrorKind::AddrInUse);
    assert!(text.contains(path.to_str().unwrap()) && text.contains("live server holds it"), "{text}");
    UnixStream::connect(&path).unwrap();
    drop(live);

    // A full backlog is a live server too.
    let full = Socket::new(Domain::UNIX, Type::STREAM, None).unwrap();
    let path = folder.join("full");
    full.bind(&socket2::SockAddr::unix(&path).unwrap()).unwrap();
    full.listen(0).unwrap();
    let _client = UnixStream::connect(&path).unwrap();
    assert_eq!(listen_error(&mut sys, &path).0, ErrorKind::AddrInUse);
    assert!(path.exists());

    // And so is a socket of another type.
    let path = folder.join("datagram");
    let _other = UnixDatagram::bind(&path).unwrap();
    assert_eq!(listen_error(&mut sys, &path).0, ErrorKind::AddrInUse);
    assert!(path.exists());
}

#[test]
fn what_is_not_a_socket_is_never_removed() {
    let folder = Folder::new();
    let mut sys = new_sys();
    let file = folder.join("file");
    fs::write(&file, "precious").unwrap();
    let link = folder.join("link");
    std::os::unix::fs::symlink(&file, &link).unwrap();
    for path in [&file, &link, &folder.0] {
        let (kind, text) = listen_error(&mut sys, path);
        assert_eq!(kind, ErrorKind::AlreadyExists, "{text}");
        assert!(text.contains(path.to_str().unwrap()), "{text}");
    }
    assert_eq!(fs::read_to_string(&link).unwrap(), "precious");
}

#[test]
fn a_path_that_cannot_be_one_is_said_so() {
    let folder = Folder::new();
    let mut sys = new_sys();
    let room = 107 - folder.0.as_os_str().len() - 1;
    let longest = folder.join(&"x".repeat(room));
    let listener = sys.listen(&ListenAddr::Unix(longest.clone())).unwrap();
    assert!(longest.exists());
    sys.close(listener);
    let (kind, text) = listen_error(&mut sys, &folder.join(&"x".repeat(room + 1)));
    assert_eq!(kind, ErrorKind::InvalidInput);
    assert!(text.contains("108 bytes") && text.contains("107"), "{text}");
    assert_eq!(listen_error(&mut sys, Path::new("")).0, ErrorKind::InvalidInput);
    assert_eq!(listen_error(&mut sys, Path::new("\0abstract")).0, ErrorKind::InvalidInput);
    let (kind, text) = listen_error(&mut sys, &folder.join("none/s"));
    assert_eq!(kind, ErrorKind::NotFound);
    assert!(text.contains("folder does not exist"), "{text}");
}

#[test]
fn a_socket_file_goes_with_its_listener_unless_it_is_anothers() {
    let folder = Folder::new();
    let path = folder.join("s");
    let mut sys = new_sys();
    let listener = sys.listen(&ListenAddr::Unix(path.clone())).unwrap();
    // Changed rights do not make it another file.
    fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    sys.close(listener);
    assert!(!path.exists());

    let listener = sys.listen(&ListenAddr::Unix(path.clone())).unwrap();
    fs::remove_file(&path).unwrap();
    let another = UnixListener::bind(&path).unwrap();
    sys.close(listener);
    UnixStream::connect(&path).unwrap();
    drop(another);

    // The whole kernel's end removes the file as well.
    let listener = sys.listen(&ListenAddr::Unix(path.clone())).unwrap();
    assert!(fs::symlink_metadata(&path).unwrap().file_type().is_socket());
    drop(sys);
    assert!(!path.exists(), "{listener:?}");
}

// ---- numbers ----

#[test]
fn a_closed_number_is_dead_also_when_its_slot_is_used_again() {
    let mut sys = new_sys();
    let mut dead = Vec::new();
    for round in 0..600 {
        let (_client, ours) = unix_pair_unregistered(&mut sys);
        assert!(!dead.contains(&ours), "round {round}");
        if round % 2 == 0 {
            sys.close(ours)
        } else {
            sys.abort(ours)
        }
        dead.push(ours);
    }
    let (mut client, living) = unix_pair_unregistered(&mut sys);
    client.write_all(b"for the living").unwrap();
    for sock in dead {
        let bad = |error: io::Error| assert_eq!(error.raw_os_error(), Some(libc::EBADF));
        bad(sys.read(sock, &mut [0; 8]).unwrap_err());
        bad(write(&mut sys, sock, b"x").unwrap_err());
        bad(sys.register(sock, 1).unwrap_err());
        bad(sys.connected(sock).unwrap_err());
        bad(sys.configure(sock, Class::Http).unwrap_err());
        bad(sys.shutdown_write(sock).unwrap_err());
        bad(sys.unsent(sock).unwrap_err());
        bad(sys.tcp_info(sock).unwrap_err());
        bad(sys.local_addr(sock).unwrap_err());
        bad(sys.accept(sock).unwrap_err());
        sys.close(sock);
        sys.abort(sock);
    }
    assert_eq!(sys.read(living, &mut [0; 64]).unwrap(), 14);
}

fn unix_pair_unregistered(sys: &mut UnixSys) -> (UnixStream, Sock) {
    let folder = Folder::new();
    let listener = sys.listen(&ListenAddr::Unix(folder.join("s"))).unwrap();
    let client = UnixStream::connect(folder.join("s")).unwrap();
    let (ours, _) = accept(sys, listener);
    sys.close(listener);
    (client, ours)
}

#[test]
fn tokens_of_our_own_are_refused() {
    let mut sys = new_sys();
    let (_client, ours) = unix_pair_unregistered(&mut sys);
    assert_eq!(kind(sys.register(ours, u64::MAX)), ErrorKind::InvalidInput);
    assert_eq!(kind(sys.register(ours, u64::MAX - 1)), ErrorKind::InvalidInput);
    sys.register(ours, u64::MAX - 2).unwrap();
    event(&mut sys, u64::MAX - 2, |hints| hints.writable);
}

// ---- look-ups ----

fn resolve(sys: &mut UnixSys, host: &str, id: u64) -> io::Result<Vec<SocketAddr>> {
    sys.submit(Job::Resolve { host: host.to_owned(), port: 4711, urgent: false }, id).unwrap();
    let until = Instant::now() + LONG;
    loop {
        if let Some((got, JobResult::Resolved(result))) = sys.next_job() {
            assert_eq!(got, id);
            assert!(sys.next_job().is_none());
            return result;
        }
        assert!(Instant::now() < until);
        sys.poll(&mut Vec::new(), Some(until)).unwrap(); // the result ends the wait
    }
}

#[test]
fn names_are_looked_up_off_the_loop() {
    let mut sys = new_sys();
    let addresses = resolve(&mut sys, "localhost", 1).unwrap();
    assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 4711));
    assert!(!addresses.is_empty());
    assert_eq!(resolve(&mut sys, "::1", 2).unwrap(), ["[::1]:4711".parse().unwrap()]);
    // NotFound from a resolver that answers; another error where none can be asked.
    let error = resolve(&mut sys, "nosuch.invalid", 3).unwrap_err();
    assert!(matches!(error.kind(), ErrorKind::NotFound | ErrorKind::Other), "{error:?}");
    assert!(!error.to_string().is_empty());
}

#[test]
fn results_that_wait_do_not_let_the_loop_sleep() {
    let mut sys = new_sys();
    for id in 0..20 {
        sys.submit(Job::Resolve { host: "127.0.0.1".to_owned(), port: 1, urgent: false }, id).unwrap();
    }
    let mut ids = Vec::new();
    while ids.len() < 20 {
        let start = Instant::now();
        sys.poll(&mut Vec::new(), Some(start + LONG)).unwrap();
        assert!(start.elapsed() < LONG);
        ids.extend(sys.next_job().map(|(id, _)| id)); // one a turn, though several came with one wake-up
    }
    ids.sort_unstable();
    assert_eq!(ids, (0..20).collect::<Vec<_>>());
}

// ---- the whole process, in a child ----

/// Starts the ignored test `name` of this file as a process.
fn child(name: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--ignored", "--nocapture", "--test-threads=1"]).env_remove("RUST_LOG");
    command
}

fn run_child(name: &str) {
    let output = child(name).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && text.contains("1 passed"), "{text}\n{output:?}");
}

/// A child whose standard output is read line by line.
struct Talk {
    child: Child,
    lines: std::sync::mpsc::Receiver<String>,
}

impl Talk {
    fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let output = io::BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            for line in io::BufRead::lines(output).map_while(Result::ok) {
                let _ = sender.send(line);
            }
        });
        Self { child, lines }
    }

    /// The rest of the next line that contains `mark`.
    fn expect(&self, mark: &str) -> String {
        loop {
            let line = self.lines.recv_timeout(LONG).unwrap_or_else(|_| panic!("no line with {mark}"));
            if let Some((_, rest)) = line.split_once(mark) {
                return rest.to_owned();
            }
        }
    }

    fn signal(&self, signal: OsSignal) {
        kill(Pid::from_raw(self.child.id().try_into().unwrap()), signal).unwrap();
    }
}

impl Drop for Talk {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[expect(clippy::print_stdout, reason = "the child's only way to speak")]
fn tell(text: &str) {
    println!("{text}");
    io::stdout().flush().unwrap();
}

#[test]
fn a_unix_listener_has_mode_0770_whatever_the_umask() {
    run_child("child_umask");
}

#[test]
#[ignore = "changes the umask; run by a_unix_listener_has_mode_0770_whatever_the_umask"]
fn child_umask() {
    use nix::sys::stat::{Mode, umask};
    let folder = Folder::new();
    for mask in [0o077, 0o022, 0o000, 0o777] {
        umask(Mode::from_bits_truncate(mask));
        let path = folder.join(&format!("{mask:o}"));
        let mut sys = new_sys();
        let listener = sys.listen(&ListenAddr::Unix(path.clone())).unwrap();
        assert_eq!(fs::symlink_metadata(&path).unwrap().mode() & 0o7777, 0o770, "umask {mask:o}");
        assert!(sys.listen(&ListenAddr::Unix(path.clone())).is_err());
        sys.close(listener);
        assert_eq!(umask(Mode::empty()).bits(), mask, "the umask came back");
    }
}

#[test]
fn signals_arrive_as_events_and_an_interrupted_wait_goes_on() {
    // The child's main thread belongs to the test harness; it inherits the blocked signals from here.
    let start = || Talk::start(child("child_signals"));
    let talk = signal::spawn("parent", 1 << 20, start).unwrap().join().unwrap();
    talk.expect("waiting");
    // Stop and continue end epoll_wait with EINTR, without any handler.
    for _ in 0..3 {
        talk.signal(OsSignal::SIGSTOP);
        std::thread::sleep(Duration::from_millis(20));
        talk.signal(OsSignal::SIGCONT);
        std::thread::sleep(Duration::from_millis(20));
    }
    talk.expect("waited");
    talk.signal(OsSignal::SIGHUP);
    assert_eq!(talk.expect("signal "), "Reload");
    talk.signal(OsSignal::SIGTERM);
    assert_eq!(talk.expect("signal "), "Terminate");
    talk.signal(OsSignal::SIGINT);
    assert_eq!(talk.expect("signal "), "Terminate");
    talk.signal(OsSignal::SIGHUP);
    talk.signal(OsSignal::SIGTERM);
    let mut both = [talk.expect("signal "), talk.expect("signal ")];
    both.sort_unstable();
    assert_eq!(both, ["Reload", "Terminate"]);
    talk.expect("1 passed");
}

#[test]
#[ignore = "takes the process's signals; run by signals_arrive_as_events_and_an_interrupted_wait_goes_on"]
fn child_signals() {
    let signals: SigSet = [OsSignal::SIGTERM, OsSignal::SIGINT, OsSignal::SIGHUP].into_iter().collect();
    signals.thread_unblock().unwrap(); // from now on only UnixSys keeps them from ending us
    let mut sys = UnixSys::new(Signals::Process).unwrap();
    assert_eq!(kind(UnixSys::new(Signals::Process).map(drop)), ErrorKind::AlreadyExists);
    UnixSys::new(Signals::None).unwrap();
    tell("waiting");
    let until = sys.now() + Duration::from_millis(500);
    let mut ready = Vec::new();
    sys.poll(&mut ready, Some(until)).unwrap();
    assert!(Instant::now() >= until, "woke early");
    assert!(sys.next_signal().is_none());
    tell("waited");
    for _ in 0..5 {
        let signal = loop {
            sys.poll(&mut ready, Some(Instant::now() + LONG)).unwrap();
            if let Some(signal) = sys.next_signal() {
                break signal; // one a turn: a second that came with it must not be slept over
            }
        };
        let text = match signal {
            Signal::Terminate => "Terminate",
            Signal::Reload => "Reload",
        };
        tell(&format!("signal {text}"));
    }
    assert!(sys.next_signal().is_none());
    assert!(ready.is_empty());
    drop(sys);
    UnixSys::new(Signals::Process).unwrap();
}

#[test]
fn a_stuck_pipe_on_standard_error_does_not_stop_the_caller() {
    let (mut stuck, theirs) = io::pipe().unwrap();
    let mut command = child("child_stuck_log");
    command.stderr(theirs);
    let mut talk = Talk::start(command);
    // Said while nobody reads the pipe: the caller did not wait.
    let dropped: u64 = talk.expect("dropped ").parse().unwrap();
    assert!(dropped > 0);
    let reader = std::thread::spawn(move || {
        let mut text = String::new();
        stuck.read_to_string(&mut text).unwrap();
        text
    });
    talk.child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    talk.expect("flushed");
    talk.expect("1 passed");
    let text = reader.join().unwrap();
    let ours: Vec<&str> = text.lines().filter(|line| line.starts_with("ts=")).collect();
    let lines = ours.iter().filter(|line| line.contains(" level=info msg=\"line\" n=")).count() as u64;
    assert_eq!(lines, LINES - dropped);
    let note = format!(" level=warn msg=\"log lines were dropped\" count={dropped}");
    assert_eq!(ours.iter().filter(|line| line.ends_with(&note)).count(), 1);
    assert!(ours.last().unwrap().ends_with(" level=warn target=other msg=\"after it\""), "{:?}", ours.last());
}

/// More than the queue and a pipe (64 KiB) hold.
const LINES: u64 = 8000;

#[test]
#[ignore = "standard error is a pipe; run by a_stuck_pipe_on_standard_error_does_not_stop_the_caller"]
fn child_stuck_log() {
    logger::init(log::LevelFilter::Info).unwrap();
    assert_eq!(kind(logger::init(log::LevelFilter::Info)), ErrorKind::AlreadyExists);
    for number in 0..LINES {
        log::info!(target: "tautline", "msg=\"line\" n={number} pad={}", "x".repeat(100));
        log::debug!(target: "tautline", "msg=\"not at this level\"");
    }
    assert!(!logger::flush(Duration::from_millis(50)));
    let dropped = logger::dropped_lines();
    tell(&format!("dropped {dropped}"));
    io::stdin().read_line(&mut String::new()).unwrap();
    assert!(logger::flush(LONG));
    log::warn!(target: "other", "after it");
    assert!(logger::flush(LONG));
    assert_eq!(logger::dropped_lines(), dropped);
    tell("flushed");
}

#[test]
fn rust_log_changes_the_level_of_a_module() {
    let output = child("child_rust_log").env("RUST_LOG", "tautline::loud=debug").output().unwrap();
    let text = String::from_utf8(output.stderr).unwrap();
    let ends: Vec<&str> = text
        .lines()
        .filter(|line| line.starts_with("ts="))
        .filter_map(|line| line.split_once("Z "))
        .map(|line| line.1)
        .collect();
    assert_eq!(ends, ["level=debug target=tautline::loud msg=b", "level=warn msg=d"], "{text}");
}

#[test]
#[ignore = "needs a logger of its own; run by rust_log_changes_the_level_of_a_module"]
fn child_rust_log() {
    logger::init(log::LevelFilter::Warn).unwrap();
    log::trace!(target: "tautline::loud", "msg=a");
    log::debug!(target: "tautline::loud", "msg=b");
    log::info!(target: "tautline::quiet", "msg=c");
    log::warn!(target: "tautline::quiet", "msg=d");
    assert!(logger::flush(LONG));
}

#[test]
fn out_of_descriptors_leaves_the_connection_waiting_without_another_edge() {
    run_child("child_out_of_descriptors");
}

#[test]
#[ignore = "lowers the limit; run by out_of_descriptors_leaves_the_connection_waiting_without_another_edge"]
fn child_out_of_descriptors() {
    use nix::sys::resource::{Resource, getrlimit, setrlimit};
    let folder = Folder::new();
    let mut sys = new_sys();
    let listener = sys.listen(&ListenAddr::Unix(folder.join("s"))).unwrap();
    sys.register(listener, 1).unwrap();
    let mut client = UnixStream::connect(folder.join("s")).unwrap();
    event(&mut sys, 1, |hints| hints.readable);
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, 3, hard).unwrap();
    assert_eq!(sys.accept(listener).unwrap_err().raw_os_error(), Some(libc::EMFILE));
    assert_eq!(events_within(&mut sys, 1, QUIET), []);
    setrlimit(Resource::RLIMIT_NOFILE, soft, hard).unwrap();
    let (ours, _) = sys.accept(listener).unwrap();
    client.write_all(b"x").unwrap();
    assert_eq!(sys.read(ours, &mut [0; 8]).unwrap(), 1);
}

#[test]
fn process_figures_follow_the_process() {
    run_child("child_process_figures");
}

#[test]
#[ignore = "counts the process's descriptors; run by process_figures_follow_the_process"]
fn child_process_figures() {
    let limit = process::raise_descriptor_limit().unwrap();
    let before = process::process_stats().unwrap();
    assert_eq!(before.max_fds, limit);
    assert_eq!(process::raise_descriptor_limit().unwrap(), limit);
    let files: Vec<_> = (0..10).map(|_| fs::File::open("/dev/null").unwrap()).collect();
    let names = fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    let mut memory = vec![1_u8; 32 << 20];
    memory[1 << 20] = 2;
    let spin = Instant::now();
    while spin.elapsed() < Duration::from_millis(200) {}
    let after = process::process_stats().unwrap();
    assert_eq!(after.open_fds, before.open_fds + 10);
    assert_eq!(after.open_fds, names - 1); // the listing itself was one
    assert!(after.resident_bytes >= before.resident_bytes + (30 << 20));
    assert!(after.virtual_bytes > after.resident_bytes);
    assert!(after.cpu_seconds > before.cpu_seconds && after.cpu_seconds < 30.0);
    let now = new_sys().unix_time().as_secs_f64();
    assert!(after.start_time_seconds <= now + 2.0 && after.start_time_seconds > now - 60.0, "{after:?}");
    drop((files, memory));
}

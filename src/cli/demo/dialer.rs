//! Clients of the demo: many short tunnels, a few long ones, every byte compared.

use std::fmt;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::report::Stats;

const SHORT_THREADS: u64 = 4;
const LONG_THREADS: u64 = 6;
/// Between two dials of one thread: a demo leaves the machine usable.
const SHORT_PAUSE: Duration = Duration::from_millis(15);
const LONG_PAUSE: Duration = Duration::from_millis(50);
/// A short tunnel carries 1 KiB to this much, and it fits into the buffers of the way.
const PAYLOAD_LEN_MAX: u64 = 64 * 1024;
const LONG_MESSAGE_LEN: usize = 64;
/// No answer for this long is a failure. Above the server's own limit for a dial.
const ANSWER_LIMIT: Duration = Duration::from_secs(12);
const HEAD_LEN_MAX: usize = 4096;

/// Where to dial.
#[derive(Clone, Debug)]
pub(super) struct Route {
    /// The server's frontend.
    pub(super) socket: PathBuf,
    /// The target, as the agents see it.
    pub(super) target: SocketAddr,
}

/// Why a dial gave no tunnel.
#[derive(Debug)]
pub(super) enum DialError {
    /// The server's socket, or the way to its answer, broke.
    Io(&'static str, io::Error),
    /// Another answer than 200: its first line.
    Answer(String),
    /// The answer ended early, or had no end.
    Head,
    /// Bytes right behind the 200: kube-apiserver refuses that.
    EarlyBytes(usize),
}

impl fmt::Display for DialError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(what, error) => write!(f, "{what}: {error}"),
            Self::Answer(line) => write!(f, "answer: {line}"),
            Self::Head => f.write_str("no complete answer"),
            Self::EarlyBytes(count) => write!(f, "{count} bytes right behind the 200"),
        }
    }
}

/// Opens a tunnel; also says how long it took from the first call to the 200.
pub(super) fn dial(route: &Route) -> Result<(UnixStream, Duration), DialError> {
    let started = Instant::now();
    let io = |what| move |error| DialError::Io(what, error);
    let mut stream = UnixStream::connect(&route.socket).map_err(io("connect to the server"))?;
    stream.set_read_timeout(Some(ANSWER_LIMIT)).map_err(io("timeout"))?;
    stream.set_write_timeout(Some(ANSWER_LIMIT)).map_err(io("timeout"))?;
    let request = format!("CONNECT {} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", route.target);
    stream.write_all(request.as_bytes()).map_err(io("send CONNECT"))?;
    let mut head = Vec::new();
    let mut chunk = [0; 1024];
    let end = loop {
        if let Some(at) = head.windows(4).position(|bytes| bytes == b"\r\n\r\n") {
            break at + 4;
        }
        let length = stream.read(&mut chunk).map_err(io("read the answer"))?;
        if length == 0 || head.len() > HEAD_LEN_MAX {
            return Err(DialError::Head);
        }
        head.extend_from_slice(chunk.get(..length).unwrap_or_default());
    };
    let line =
        String::from_utf8_lossy(head.split(|byte| *byte == b'\r').next().unwrap_or_default()).into_owned();
    if line.split(' ').nth(1) != Some("200") {
        return Err(DialError::Answer(line));
    }
    if head.len() > end {
        return Err(DialError::EarlyBytes(head.len() - end));
    }
    Ok((stream, started.elapsed()))
}

/// Why a tunnel was not a good one.
#[derive(Debug)]
pub(super) enum TunnelError {
    /// It ended (or stood still) in the middle.
    Cut(io::Error),
    /// Other bytes came back than were sent.
    Wrong,
}

/// Sends `length` bytes that only tunnel `id` has at `offset`, and compares what comes back.
fn exchange(stream: &mut UnixStream, id: u64, offset: u64, length: usize) -> Result<(), TunnelError> {
    let sent: Vec<u8> = (offset..).take(length).map(|at| pattern(id, at)).collect();
    stream.write_all(&sent).map_err(TunnelError::Cut)?;
    let mut received = vec![0; length];
    stream.read_exact(&mut received).map_err(TunnelError::Cut)?;
    if received == sent { Ok(()) } else { Err(TunnelError::Wrong) }
}

/// The byte of tunnel `id` at `offset`: loss, reorder and cross-talk all show.
fn pattern(id: u64, offset: u64) -> u8 {
    let mixed = (id ^ (offset << 20)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed.to_be_bytes()[0]
}

/// Ends our direction and waits for the target's end.
fn close(stream: &mut UnixStream) -> Result<(), TunnelError> {
    stream.shutdown(Shutdown::Write).map_err(TunnelError::Cut)?;
    match stream.read(&mut [0]) {
        Ok(0) => Ok(()),
        Ok(_) => Err(TunnelError::Wrong),
        Err(error) => Err(TunnelError::Cut(error)),
    }
}

/// The threads that dial.
pub(super) struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// Starts all of them.
    pub(super) fn start(route: &Route, stats: &Arc<Stats>) -> io::Result<Self> {
        let mut load = Self { stop: Arc::default(), threads: Vec::new() };
        let ids = Arc::new(AtomicU64::new(0));
        for number in 0..SHORT_THREADS + LONG_THREADS {
            let client = Client {
                route: route.clone(),
                stats: Arc::clone(stats),
                stop: Arc::clone(&load.stop),
                ids: Arc::clone(&ids),
            };
            let role = if number < SHORT_THREADS { Client::short_tunnels } else { Client::long_tunnels };
            let thread = thread::Builder::new().name("dial".to_owned()).spawn(move || role(&client));
            match thread {
                Ok(thread) => load.threads.push(thread),
                Err(error) => {
                    load.finish();
                    return Err(error);
                }
            }
        }
        Ok(load)
    }

    /// Lets what is under way come to its end, then stops.
    pub(super) fn finish(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            // A thread that panicked has said so, and its dial is missing in the counts.
            let _ = thread.join();
        }
    }
}

struct Client {
    route: Route,
    stats: Arc<Stats>,
    stop: Arc<AtomicBool>,
    ids: Arc<AtomicU64>,
}

impl Client {
    fn short_tunnels(&self) {
        while !self.stopped() {
            if let Some((mut stream, id)) = self.open() {
                let length = 1024 + pattern_length(id);
                let ended = exchange(&mut stream, id, 0, length).and_then(|()| close(&mut stream));
                if ended.is_ok() {
                    self.stats.moved(length);
                }
                self.stats.closed(ended, Instant::now());
            }
            thread::sleep(SHORT_PAUSE);
        }
    }

    fn long_tunnels(&self) {
        while !self.stopped() {
            if let Some((mut stream, id)) = self.open() {
                let ended = self.keep_talking(&mut stream, id);
                self.stats.closed(ended, Instant::now());
            }
            thread::sleep(LONG_PAUSE);
        }
    }

    fn keep_talking(&self, stream: &mut UnixStream, id: u64) -> Result<(), TunnelError> {
        let mut offset = 0;
        while !self.stopped() {
            exchange(stream, id, offset, LONG_MESSAGE_LEN)?;
            self.stats.moved(LONG_MESSAGE_LEN);
            offset += LONG_MESSAGE_LEN as u64;
            thread::sleep(LONG_PAUSE);
        }
        close(stream)
    }

    fn open(&self) -> Option<(UnixStream, u64)> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        match dial(&self.route) {
            Ok((stream, took)) => {
                self.stats.opened(took);
                Some((stream, id))
            }
            Err(error) => {
                self.stats.dial_failed(&error);
                None
            }
        }
    }

    fn stopped(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Lengths spread over the range, the same in every run.
fn pattern_length(id: u64) -> usize {
    let length = id.wrapping_mul(7919 * 1021) % (PAYLOAD_LEN_MAX - 1024 + 1);
    usize::try_from(length).unwrap_or_default()
}

#[cfg(test)]
mod tests;

//! Log lines in logfmt on standard error, written by one thread.
//!
//! Callers put a line in a bounded queue and go on; a pipe that is full or stuck costs lines, never time.
//! What was dropped is counted, and a line says so once writing works again.

mod line;

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, ErrorKind, Write};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use log::{LevelFilter, Log, Metadata, Record};

pub use self::line::{Quoted, quote};
use super::{signal, unix};
use crate::limits::LOG_QUEUE_MAX;

const STACK_BYTES: usize = 64 * 1024;
/// A descriptor that somebody made non-blocking is tried again after this.
const RETRY_INTERVAL: Duration = Duration::from_millis(50);
/// How long [`Log::flush`] may wait.
const FLUSH_LIMIT: Duration = Duration::from_secs(1);

static LOGGER: OnceLock<Logger> = OnceLock::new();

/// Starts logging to standard error at `level`, changed by what `RUST_LOG` says (env_logger's syntax). Call
/// it once, early.
///
/// # Errors
/// `AlreadyExists` if a logger is set; else as dup(2) or the start of the writer's thread.
pub fn init(level: LevelFilter) -> io::Result<()> {
    // A descriptor of our own: a writer stuck in std's would keep a panic's message from its lock.
    let output = File::from(io::stderr().as_fd().try_clone_to_owned()?);
    let filter = env_logger::Builder::new().filter_level(level).parse_env("RUST_LOG").build();
    let logger = Logger::start(filter, Box::new(output), LOG_QUEUE_MAX)?;
    let already = |_| io::Error::new(ErrorKind::AlreadyExists, "a logger is set already");
    let max_level = logger.filter.filter();
    LOGGER.set(logger).map_err(|_| already(()))?;
    if let Some(logger) = LOGGER.get() {
        log::set_logger(logger).map_err(|_| already(()))?;
    }
    log::set_max_level(max_level);
    Ok(())
}

/// The level of klog's `-v`: 0 warnings, up to 4 (its default) info, 5 debug, above trace.
#[must_use]
pub const fn level_of_verbosity(verbosity: u8) -> LevelFilter {
    match verbosity {
        0 => LevelFilter::Warn,
        1..=4 => LevelFilter::Info,
        5 => LevelFilter::Debug,
        _ => LevelFilter::Trace,
    }
}

/// Lines that were not written since the start: the queue was full, or standard error broken.
#[must_use]
pub fn dropped_lines() -> u64 {
    LOGGER.get().map_or(0, |logger| logger.queue.dropped.load(Ordering::Relaxed))
}

/// Waits until every line is written, at most `limit`; false if some are not. For the end of the process,
/// not for the loop.
pub fn flush(limit: Duration) -> bool {
    LOGGER.get().is_none_or(|logger| logger.queue.flush(limit))
}

struct Logger {
    /// Of env_logger only the filter is used; it writes nothing.
    filter: env_logger::Logger,
    queue: Arc<Queue>,
}

impl Logger {
    fn start(
        filter: env_logger::Logger,
        mut output: Box<dyn Write + Send>,
        capacity: usize,
    ) -> io::Result<Self> {
        let queue = Arc::new(Queue {
            state: Mutex::default(),
            filled: Condvar::new(),
            emptied: Condvar::new(),
            dropped: AtomicU64::new(0),
            capacity,
        });
        let writer = Arc::clone(&queue);
        signal::spawn("log", STACK_BYTES, move || writer.write_all(&mut *output))?;
        Ok(Self { filter, queue })
    }
}

impl Log for Logger {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        self.filter.enabled(metadata)
    }

    fn log(&self, record: &Record<'_>) {
        if self.filter.matches(record) {
            self.queue.push(line::render(unix::wall_time(), record));
        }
    }

    fn flush(&self) {
        self.queue.flush(FLUSH_LIMIT);
    }
}

/// Between the callers and the writer.
struct Queue {
    state: Mutex<State>,
    filled: Condvar,
    emptied: Condvar,
    /// Since the start.
    dropped: AtomicU64,
    capacity: usize,
}

#[derive(Default)]
struct State {
    lines: VecDeque<String>,
    /// The writer holds a line.
    writing: bool,
    /// Dropped since the last line that said so.
    unreported: u64,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(&self, line: String) {
        let mut state = self.lock();
        if state.lines.len() >= self.capacity {
            state.unreported += 1;
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        state.lines.push_back(line);
        drop(state);
        self.filled.notify_one();
    }

    fn flush(&self, limit: Duration) -> bool {
        let unfinished = |state: &mut State| state.writing || !state.lines.is_empty();
        let (_state, waited) = self
            .emptied
            .wait_timeout_while(self.lock(), limit, unfinished)
            .unwrap_or_else(PoisonError::into_inner);
        !waited.timed_out()
    }

    /// The writer's thread. One write a line: a line fits in PIPE_BUF, so lines of processes that share a
    /// pipe do not mix.
    fn write_all(&self, output: &mut dyn Write) {
        // Under lasting overload the queue is never empty; then a note comes every second queue's length.
        let mut lines_since_note = 0;
        loop {
            let line = self.take();
            let written = write_line(output, line.as_bytes());
            lines_since_note += 1;
            let mut state = self.lock();
            if !written {
                state.unreported += 1;
                self.dropped.fetch_add(1, Ordering::Relaxed);
            } else if state.unreported > 0
                && (state.lines.is_empty() || lines_since_note >= 2 * self.capacity)
            {
                let count = state.unreported;
                drop(state);
                let note = line::dropped_note(unix::wall_time(), count);
                let noted = write_line(output, note.as_bytes());
                lines_since_note = 0;
                state = self.lock();
                if noted {
                    state.unreported -= count;
                }
            }
            state.writing = false;
            if state.lines.is_empty() {
                self.emptied.notify_all();
            }
        }
    }

    fn take(&self) -> String {
        let mut state = self.lock();
        loop {
            if let Some(line) = state.lines.pop_front() {
                state.writing = true;
                return line;
            }
            state = self.filled.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

/// Writes all of it; false if it cannot be.
fn write_line(output: &mut dyn Write, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match output.write(bytes) {
            Ok(0) => return false,
            Ok(written) => bytes = bytes.get(written..).unwrap_or_default(),
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) if error.kind() == ErrorKind::WouldBlock => std::thread::park_timeout(RETRY_INTERVAL),
            Err(_) => return false,
        }
    }
    true
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use super::*;

    /// A pipe whose reader takes one write per permit.
    struct Gated {
        permits: Receiver<io::Result<()>>,
        written: Sender<String>,
    }

    impl Write for Gated {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.permits.recv().unwrap_or_else(|_| Err(ErrorKind::BrokenPipe.into()))?;
            self.written.send(String::from_utf8(bytes.to_vec()).unwrap()).unwrap();
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn gated(capacity: usize) -> (Logger, Sender<io::Result<()>>, Receiver<String>) {
        let (permit, permits) = channel();
        let (written, lines) = channel();
        let filter = env_logger::Builder::new().filter_level(LevelFilter::Info).build();
        let logger = Logger::start(filter, Box::new(Gated { permits, written }), capacity).unwrap();
        (logger, permit, lines)
    }

    fn say(logger: &Logger, number: u32) {
        let args = format_args!("msg=line n={number}");
        logger.log(&Record::builder().args(args).target("tautline::x").level(log::Level::Info).build());
    }

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_stuck_pipe_costs_lines_not_time_and_is_told_later() {
        let (logger, permit, lines) = gated(10);
        say(&logger, 0);
        while !logger.queue.lock().writing {
            std::thread::yield_now();
        }
        for number in 1..=15 {
            say(&logger, number); // would hang the test if it waited
        }
        assert_eq!(logger.queue.dropped.load(Ordering::Relaxed), 5);
        assert!(!logger.queue.flush(Duration::from_millis(20)));
        for _ in 0..12 {
            permit.send(Ok(())).unwrap();
        }
        for number in 0..=10 {
            let line = lines.recv_timeout(LONG).unwrap();
            assert!(line.ends_with(&format!(" level=info msg=line n={number}\n")), "{line}");
        }
        let note = lines.recv_timeout(LONG).unwrap();
        assert!(note.ends_with(" level=warn msg=\"log lines were dropped\" count=5\n"), "{note}");
        assert!(logger.queue.flush(LONG));
        assert!(lines.try_recv().is_err());
    }

    #[test]
    fn a_broken_output_is_counted_and_does_not_spin() {
        let (logger, permit, lines) = gated(10);
        say(&logger, 1);
        permit.send(Err(ErrorKind::StorageFull.into())).unwrap();
        assert!(logger.queue.flush(LONG));
        assert_eq!(logger.queue.dropped.load(Ordering::Relaxed), 1);
        for _ in 0..2 {
            permit.send(Ok(())).unwrap();
        }
        say(&logger, 2);
        assert!(lines.recv_timeout(LONG).unwrap().ends_with("n=2\n"));
        assert!(lines.recv_timeout(LONG).unwrap().ends_with("count=1\n"));
    }

    #[test]
    fn would_block_and_interrupted_are_tried_again() {
        let (logger, permit, lines) = gated(10);
        for result in [Err(ErrorKind::Interrupted.into()), Err(ErrorKind::WouldBlock.into()), Ok(())] {
            permit.send(result).unwrap();
        }
        say(&logger, 3);
        assert!(lines.recv_timeout(LONG).unwrap().ends_with("n=3\n"));
        assert_eq!(logger.queue.dropped.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn the_filter_decides() {
        let (logger, permit, lines) = gated(10);
        let debug = Record::builder().args(format_args!("msg=x")).level(log::Level::Debug).build();
        logger.log(&debug);
        permit.send(Ok(())).unwrap();
        say(&logger, 4);
        assert!(lines.recv_timeout(LONG).unwrap().ends_with("n=4\n"));
        assert_eq!(level_of_verbosity(0), LevelFilter::Warn);
        assert_eq!((level_of_verbosity(1), level_of_verbosity(4)), (LevelFilter::Info, LevelFilter::Info));
        assert_eq!((level_of_verbosity(5), level_of_verbosity(10)), (LevelFilter::Debug, LevelFilter::Trace));
    }
}

//! What the demo counts and how it shows it.

use std::fmt::Write as _;
use std::io::{self, IsTerminal, Write};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::dialer::{DialError, TunnelError};

/// Reasons of failures that are kept; more are only counted.
const REASONS_MAX: usize = 10;
const ERASE_LINE: &str = "\r\x1b[K";
const GREEN: &str = "\x1b[32m";
const RED: &str = "\x1b[31m";
const PLAIN: &str = "\x1b[0m";

/// Counts of all dials, shared by the threads that dial.
#[derive(Debug)]
pub(super) struct Stats {
    started: Instant,
    counts: Mutex<Counts>,
}

#[derive(Default, Debug)]
struct Counts {
    dials: u64,
    failed: u64,
    broken: u64,
    slowest: Duration,
    bytes: u64,
    open: u64,
    /// Tunnels that ended because their agent did.
    ended_with_agent: u64,
    last_end_after_kill: Duration,
    /// When an agent was killed, and until when its tunnels may end for that reason.
    killed: Option<(Instant, Duration)>,
    reasons: Vec<String>,
}

impl Stats {
    pub(super) fn new(started: Instant) -> Self {
        Self { started, counts: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Counts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A dial got its 200.
    pub(super) fn opened(&self, took: Duration) {
        let mut counts = self.lock();
        counts.dials += 1;
        counts.open += 1;
        counts.slowest = counts.slowest.max(took);
    }

    /// A dial got none.
    pub(super) fn dial_failed(&self, error: &DialError) {
        let mut counts = self.lock();
        counts.dials += 1;
        counts.failed += 1;
        let at = self.started.elapsed();
        counts.keep_reason(|| format!("{:.1} s: dial: {error}", at.as_secs_f64()));
    }

    /// Bytes came back as they were sent.
    pub(super) fn moved(&self, length: usize) {
        // There and back.
        self.lock().bytes += 2 * length as u64;
    }

    /// A tunnel that was open is not any more, since `now`.
    pub(super) fn closed(&self, ended: Result<(), TunnelError>, now: Instant) {
        let mut counts = self.lock();
        counts.open = counts.open.saturating_sub(1);
        let text = match ended {
            Ok(()) => return,
            Err(TunnelError::Wrong) => "other bytes came back than were sent".to_owned(),
            Err(TunnelError::Cut(error)) => {
                let after_kill = counts.killed.map(|(at, grace)| (now.saturating_duration_since(at), grace));
                if let Some((after, _)) = after_kill.filter(|(after, grace)| after <= grace) {
                    counts.ended_with_agent += 1;
                    counts.last_end_after_kill = counts.last_end_after_kill.max(after);
                    return;
                }
                format!("ended though its agent lives: {error}")
            }
        };
        counts.broken += 1;
        let at = now.saturating_duration_since(self.started);
        counts.keep_reason(|| format!("{:.1} s: tunnel: {text}", at.as_secs_f64()));
    }

    /// An agent is killed now; its tunnels must end within `grace`.
    pub(super) fn agent_killed(&self, now: Instant, grace: Duration) {
        self.lock().killed = Some((now, grace));
    }

    /// Tunnels that ended because their agent did.
    pub(super) fn ended_with_agent(&self) -> u64 {
        self.lock().ended_with_agent
    }

    /// Dials without a tunnel, and tunnels that broke without a reason.
    pub(super) fn failed(&self) -> u64 {
        let counts = self.lock();
        counts.failed + counts.broken
    }

    #[cfg(test)]
    pub(super) fn dials(&self) -> u64 {
        self.lock().dials
    }

    #[cfg(test)]
    pub(super) fn open(&self) -> u64 {
        self.lock().open
    }

    /// One line about now.
    pub(super) fn line(&self, now: Instant) -> String {
        let counts = self.lock();
        format!(
            "{:5.1} s  dials {}  failed {}  slowest {}  open {}  moved {}",
            now.saturating_duration_since(self.started).as_secs_f64(),
            counts.dials,
            counts.failed + counts.broken,
            milliseconds(counts.slowest),
            counts.open,
            mebibytes(counts.bytes),
        )
    }

    /// The end of the show.
    pub(super) fn show_table(&self, console: &Console) {
        let counts = self.lock();
        let mut table = String::new();
        let mut row = |name: &str, value: String| {
            // Writing to a String cannot fail.
            let _ = writeln!(table, "  {name:<34} {value:>12}");
        };
        row("dials", counts.dials.to_string());
        row("failed dials", counts.failed.to_string());
        row("tunnels broken without a reason", counts.broken.to_string());
        row("slowest dial", milliseconds(counts.slowest));
        row("moved, both ways", mebibytes(counts.bytes));
        row("tunnels ended with their agent", counts.ended_with_agent.to_string());
        if counts.ended_with_agent > 0 {
            row("the last of them after", milliseconds(counts.last_end_after_kill));
        }
        console.text(&table);
    }

    /// Why dials failed, if any did.
    pub(super) fn show_reasons(&self, console: &Console) {
        let counts = self.lock();
        for reason in &counts.reasons {
            console.failure(reason);
        }
        let more = (counts.failed + counts.broken).saturating_sub(counts.reasons.len() as u64);
        if more > 0 {
            console.failure(&format!("... and {more} more"));
        }
    }
}

impl Counts {
    fn keep_reason(&mut self, reason: impl FnOnce() -> String) {
        if self.reasons.len() < REASONS_MAX {
            self.reasons.push(reason());
        }
    }
}

fn milliseconds(duration: Duration) -> String {
    format!("{:.1} ms", duration.as_secs_f64() * 1000.0)
}

#[expect(clippy::cast_precision_loss, reason = "one decimal for a person")]
fn mebibytes(bytes: u64) -> String {
    format!("{:.1} MiB", bytes as f64 / (1024.0 * 1024.0))
}

/// Standard output of a person, or of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Console {
    /// Lines can be rewritten.
    terminal: bool,
    colours: bool,
}

impl Console {
    pub(super) fn of_this_process() -> Self {
        let terminal = io::stdout().is_terminal();
        // As no-color.org asks: set and not empty.
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        Self { terminal, colours: terminal && !no_color }
    }

    pub(super) fn is_terminal(self) -> bool {
        self.terminal
    }

    /// What happens next.
    pub(super) fn step(self, text: &str) {
        self.coloured(GREEN, "==>", text);
    }

    /// Something that should not be.
    pub(super) fn failure(self, text: &str) {
        self.coloured(RED, "!!!", text);
    }

    /// Lines that are ready.
    pub(super) fn text(self, text: &str) {
        self.put(text);
    }

    /// A line that the next one replaces, where that can be done.
    pub(super) fn live(self, text: &str) {
        if self.terminal {
            self.put(&format!("{ERASE_LINE}    {text}"));
        } else {
            self.put(&format!("    {text}\n"));
        }
    }

    /// Keeps the last live line.
    pub(super) fn live_end(self) {
        if self.terminal {
            self.put("\n");
        }
    }

    fn coloured(self, colour: &str, mark: &str, text: &str) {
        let erase = if self.terminal { ERASE_LINE } else { "" };
        let (colour, plain) = if self.colours { (colour, PLAIN) } else { ("", "") };
        self.put(&format!("{erase}{colour}{mark}{plain} {text}\n"));
    }

    fn put(self, text: &str) {
        let mut output = io::stdout().lock();
        // Who closed the pipe does not want to know.
        let _ = output.write_all(text.as_bytes()).and_then(|()| output.flush());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut() -> Result<(), TunnelError> {
        Err(TunnelError::Cut(io::ErrorKind::UnexpectedEof.into()))
    }

    #[test]
    fn a_cut_counts_against_nobody_only_right_after_a_kill() {
        let start = Instant::now();
        let stats = Stats::new(start);
        let second = Duration::from_secs(1);
        for _ in 0..5 {
            stats.opened(Duration::from_millis(3));
        }
        stats.closed(cut(), start + second);
        assert_eq!((stats.failed(), stats.ended_with_agent()), (1, 0));
        stats.agent_killed(start + 2 * second, 3 * second);
        stats.closed(cut(), start + 3 * second);
        assert_eq!((stats.failed(), stats.ended_with_agent()), (1, 1));
        stats.closed(cut(), start + 6 * second);
        assert_eq!((stats.failed(), stats.ended_with_agent()), (2, 1));
        stats.closed(Err(TunnelError::Wrong), start + 3 * second);
        stats.closed(Ok(()), start + 3 * second);
        assert_eq!((stats.failed(), stats.ended_with_agent()), (3, 1));
        assert_eq!(stats.lock().open, 0);
    }

    #[test]
    fn reasons_are_bounded_and_the_line_tells_the_counts() {
        let start = Instant::now();
        let stats = Stats::new(start);
        for _ in 0..1000 {
            stats.dial_failed(&DialError::Head);
        }
        stats.opened(Duration::from_micros(1500));
        stats.moved(512 * 1024);
        assert_eq!(stats.lock().reasons.len(), REASONS_MAX);
        assert_eq!(
            stats.line(start + Duration::from_millis(2500)),
            "  2.5 s  dials 1001  failed 1000  slowest 1.5 ms  open 1  moved 1.0 MiB"
        );
    }
}

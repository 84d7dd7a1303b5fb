//! One socket of an actor: latched readiness, patterned payload both ways, and the pace of reading.

use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice};
use std::time::{Duration, Instant};

use tautline::net::sys::{Hints, Sock, Sys};

use crate::pattern::{Checker, Direction, fill};
use crate::sys::SimSys;

/// How fast an actor reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Pace {
    /// As fast as it can.
    Full,
    /// So many bytes, then a pause.
    Slow { bytes: usize, pause: Duration },
    /// Nothing more once so many bytes were read.
    Stop { after: u64 },
}

/// How the receiving side of a session ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Running,
    /// A clean end.
    Eof,
    /// Reset, timeout.
    Failed(ErrorKind),
}

/// What a session does. Defaults: sends nothing, reads all.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    /// Names the pattern.
    pub(crate) tunnel: u64,
    /// Of what this side sends.
    pub(crate) sends: Direction,
    pub(crate) send_total: u64,
    /// Of what this side receives (an echo's client receives what it sent).
    pub(crate) expects: Direction,
    /// Sends back what it receives, instead of a pattern.
    pub(crate) echo: bool,
    /// FIN behind the last byte (an echo: behind the last byte after the peer's FIN).
    pub(crate) fin_when_sent: bool,
    pub(crate) pace: Pace,
}

pub(crate) struct Session {
    pub(crate) sock: Sock,
    plan: Plan,
    readable: bool,
    writable: bool,
    gone: bool,
    echo: VecDeque<u8>,
    sent: u64,
    fin_sent: bool,
    write_error: Option<ErrorKind>,
    checker: Checker,
    end: End,
    next_read: Option<Instant>,
}

const CHUNK_LEN: usize = 4096;
/// An echo holds at most so much; then it stops reading.
const ECHO_MAX: usize = 16 * 1024;
/// Reads and writes of one turn.
const STEPS_PER_TURN: usize = 16;

impl Session {
    pub(crate) fn new(sock: Sock, plan: Plan) -> Self {
        let checker = Checker::new(plan.tunnel, plan.expects);
        Self {
            sock,
            plan,
            readable: false,
            writable: false,
            gone: false,
            echo: VecDeque::new(),
            sent: 0,
            fin_sent: false,
            write_error: None,
            checker,
            end: End::Running,
            next_read: None,
        }
    }

    pub(crate) const fn latch(&mut self, hints: Hints) {
        self.readable |= hints.readable || hints.read_closed || hints.hup || hints.error;
        self.writable |= hints.writable || hints.hup || hints.error;
        self.gone |= hints.hup;
    }

    /// The first bytes of what is to be sent went another way.
    pub(crate) const fn skip(&mut self, sent: u64) {
        self.sent = sent;
    }

    /// Takes bytes that came with something else (behind an answer's head).
    pub(crate) fn take(&mut self, bytes: &[u8]) {
        self.checker.check(bytes);
        if self.plan.echo {
            self.echo.extend(bytes);
        }
    }

    pub(crate) fn work(&mut self, sys: &mut SimSys, now: Instant) {
        for _ in 0..STEPS_PER_TURN {
            let reads = self.may_read(now) && self.read(sys, now);
            let writes = self.may_write() && self.write(sys);
            if !reads && !writes {
                break;
            }
        }
        self.finish(sys);
    }

    fn may_read(&self, now: Instant) -> bool {
        let room = !self.plan.echo || self.echo.len() < ECHO_MAX;
        let pace = match self.plan.pace {
            Pace::Full => true,
            Pace::Slow { .. } => self.next_read.is_none_or(|at| at <= now),
            Pace::Stop { after } => self.checker.received() < after,
        };
        self.readable && self.end == End::Running && room && pace
    }

    /// Reads once; true if that made progress.
    fn read(&mut self, sys: &mut SimSys, now: Instant) -> bool {
        let mut buffer = [0; CHUNK_LEN];
        let len = match self.plan.pace {
            Pace::Full => CHUNK_LEN,
            Pace::Slow { bytes, pause } => {
                self.next_read = Some(now + pause);
                bytes.min(CHUNK_LEN)
            }
            Pace::Stop { after } => (after - self.checker.received()).min(CHUNK_LEN as u64) as usize,
        };
        match sys.read(self.sock, &mut buffer[..len]) {
            Ok(0) => self.end = self.clean_or_reset(),
            Ok(len) => self.take(&buffer[..len]),
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                self.next_read = None;
                return false;
            }
            Err(error) => self.end = End::Failed(error.kind()),
        }
        true
    }

    /// A socket reports its error once. If a write took it, the reads that follow end like a clean EOF.
    const fn clean_or_reset(&self) -> End {
        match self.write_error {
            None | Some(ErrorKind::BrokenPipe) => End::Eof,
            Some(kind) => End::Failed(kind),
        }
    }

    fn may_write(&self) -> bool {
        self.writable && self.write_error.is_none() && self.to_send() > 0
    }

    fn to_send(&self) -> usize {
        if self.plan.echo {
            self.echo.len()
        } else {
            (self.plan.send_total - self.sent).min(CHUNK_LEN as u64) as usize
        }
    }

    /// Writes once; true if that made progress.
    fn write(&mut self, sys: &mut SimSys) -> bool {
        let mut buffer = [0; CHUNK_LEN];
        let result = if self.plan.echo {
            let (front, back) = self.echo.as_slices();
            sys.write(self.sock, &[IoSlice::new(front), IoSlice::new(back)])
        } else {
            let bytes = &mut buffer[..self.to_send()];
            fill(bytes, self.plan.tunnel, self.plan.sends, self.sent);
            sys.write(self.sock, &[IoSlice::new(bytes)])
        };
        match result {
            Ok(len) => {
                self.sent += len as u64;
                if self.plan.echo {
                    self.echo.drain(..len);
                }
                true
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.writable = false;
                false
            }
            Err(error) => {
                self.write_error = Some(error.kind());
                true
            }
        }
    }

    /// Sends the FIN when it is time.
    fn finish(&mut self, sys: &mut SimSys) {
        let whole = if self.plan.echo {
            self.echo.is_empty() && self.end == End::Eof
        } else {
            self.sent == self.plan.send_total
        };
        if self.plan.fin_when_sent && whole && !self.fin_sent && self.write_error.is_none() {
            self.fin_sent = true;
            if let Err(error) = sys.shutdown_write(self.sock) {
                self.write_error = Some(error.kind());
            }
        }
    }

    /// When this session wants its next turn without an event.
    pub(crate) fn deadline(&self, now: Instant) -> Option<Instant> {
        if self.may_read(now) || self.may_write() {
            return Some(now);
        }
        self.next_read.filter(|_| self.readable && self.end == End::Running)
    }

    pub(crate) const fn received(&self) -> u64 {
        self.checker.received()
    }

    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    pub(crate) const fn mismatch(&self) -> Option<u64> {
        self.checker.mismatch()
    }

    pub(crate) const fn end(&self) -> End {
        self.end
    }

    pub(crate) const fn write_error(&self) -> Option<ErrorKind> {
        self.write_error
    }

    /// The socket reported that both directions are gone.
    pub(crate) const fn gone(&self) -> bool {
        self.gone
    }

    /// Everything that was to be sent is with the kernel.
    pub(crate) const fn sent_all(&self) -> bool {
        !self.plan.echo && self.sent == self.plan.send_total
    }

    /// Nothing more can happen: the receiving side ended, and so did the sending side.
    pub(crate) fn over(&self) -> bool {
        match self.end {
            End::Running => false,
            End::Failed(_) => true,
            End::Eof => self.fin_sent || self.write_error.is_some() || (!self.plan.echo && self.sent_all()),
        }
    }
}

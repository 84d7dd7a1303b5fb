//! Clients of the frontend: CONNECT, read the answer, exchange bytes, end in a chosen manner.

use std::cell::RefCell;
use std::io::{ErrorKind, IoSlice};
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tautline::net::sys::{Class, Hints, Ready, Sock, Sys};

use super::session::{End, Pace, Plan, Session};
use crate::kernel::{HostId, NodeId};
use crate::pattern::{Direction, fill};
use crate::sys::SimSys;
use crate::world::{Node, World};

#[derive(Clone, Debug)]
pub(crate) enum Frontend {
    Unix(PathBuf),
    Tcp(SocketAddr),
}

/// When and how the client leaves.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Ending {
    /// FIN behind the upload, read to the end, close.
    HalfClose,
    /// close(2) as soon as the upload is with the kernel.
    CloseWhenSent,
    CloseWhenReceived(u64),
    AbortWhenReceived(u64),
    /// So long after the start, whatever happens then (also while the dial is pending).
    CloseAfter(Duration),
    /// Stays until the other side ends.
    Stay,
}

#[derive(Clone, Debug)]
pub(crate) struct ClientPlan {
    pub(crate) frontend: Frontend,
    /// `host:port` of the request line; without one the client speaks to a target directly.
    pub(crate) target: Option<String>,
    /// Names the pattern: the target's port.
    pub(crate) tunnel: u64,
    pub(crate) upload: u64,
    /// So many bytes of the upload ride right behind the head, before any answer.
    pub(crate) early: usize,
    pub(crate) expects: Direction,
    pub(crate) pace: Pace,
    pub(crate) ending: Ending,
}

/// How it ended for the client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    Running,
    /// The frontend took no connection.
    NotConnected(ErrorKind),
    /// The frontend ended before a whole head came.
    NoAnswer(End),
    /// Read to its end.
    Ended(End),
    /// We left first.
    Left,
}

#[derive(Clone, Debug)]
pub(crate) struct ClientReport {
    pub(crate) outcome: Outcome,
    pub(crate) status: Option<u16>,
    /// The answer's head, with its empty line.
    pub(crate) head: Vec<u8>,
    /// Bytes that came in the same read behind the head; kube-apiserver fails on any.
    pub(crate) bytes_with_head: usize,
    /// What follows an answer other than 200.
    pub(crate) body: Vec<u8>,
    pub(crate) sent: u64,
    pub(crate) received: u64,
    pub(crate) mismatch: Option<u64>,
    /// Times since the client's first turn.
    pub(crate) answered_after: Option<Duration>,
    pub(crate) ended_after: Option<Duration>,
}

enum Stage {
    Start,
    /// A TCP connect is under way.
    Connecting,
    /// The request waits to be written.
    Asking {
        request: Vec<u8>,
        written: usize,
    },
    Waiting,
    /// Another answer than 200.
    Refused,
    Tunnel(Session),
}

pub(crate) struct Client {
    sys: SimSys,
    plan: ClientPlan,
    sock: Option<Sock>,
    stage: Stage,
    started: Option<Instant>,
    readable: bool,
    writable: bool,
    report: Rc<RefCell<ClientReport>>,
}

const TOKEN: u64 = 1;
const HEAD_MAX: usize = 64 * 1024;

impl Client {
    pub(crate) fn spawn(
        world: &mut World,
        host: HostId,
        plan: ClientPlan,
    ) -> (NodeId, Rc<RefCell<ClientReport>>) {
        let report = Rc::new(RefCell::new(ClientReport {
            outcome: Outcome::Running,
            status: None,
            head: Vec::new(),
            bytes_with_head: 0,
            body: Vec::new(),
            sent: 0,
            received: 0,
            mismatch: None,
            answered_after: None,
            ended_after: None,
        }));
        let shared = Rc::clone(&report);
        let node = world.spawn(host, &format!("client {}", plan.tunnel), |sys| {
            Box::new(Self {
                sys,
                plan,
                sock: None,
                stage: Stage::Start,
                started: None,
                readable: false,
                writable: false,
                report: shared,
            })
        });
        (node, report)
    }

    fn since_start(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.started.unwrap_or(now))
    }

    fn end(&self, outcome: Outcome, now: Instant) -> ControlFlow<()> {
        let mut report = self.report.borrow_mut();
        report.outcome = outcome;
        report.ended_after = Some(self.since_start(now));
        ControlFlow::Break(())
    }

    /// Connects. A full backlog of a Unix socket ends the client, as it ends kube-apiserver's dial.
    fn start(&mut self) -> Result<(), ErrorKind> {
        let (sock, unix) = match &self.plan.frontend {
            Frontend::Unix(path) => (self.sys.connect_unix(path), true),
            Frontend::Tcp(address) => (self.sys.connect(*address), false),
        };
        let sock = sock.map_err(|error| error.kind())?;
        self.sys.register(sock, TOKEN).map_err(|error| error.kind())?;
        self.sock = Some(sock);
        self.stage = if unix { self.ask(sock) } else { Stage::Connecting };
        Ok(())
    }

    fn ask(&self, sock: Sock) -> Stage {
        let Some(target) = &self.plan.target else {
            let mut session = Session::new(sock, self.tunnel_plan());
            session.latch(Hints { readable: self.readable, writable: self.writable, ..Hints::default() });
            return Stage::Tunnel(session);
        };
        let mut request = format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").into_bytes();
        let head_len = request.len();
        request.resize(head_len + self.plan.early, 0);
        fill(&mut request[head_len..], self.plan.tunnel, Direction::Up, 0);
        Stage::Asking { request, written: 0 }
    }

    /// One step; `Ok(false)` when there is nothing to do now.
    fn step(&mut self, sock: Sock, now: Instant) -> Result<bool, Outcome> {
        match &mut self.stage {
            Stage::Start => Ok(false),
            Stage::Connecting => match self.sys.connected(sock) {
                Ok(()) => {
                    self.sys.configure(sock, Class::Tunnel).unwrap();
                    self.stage = self.ask(sock);
                    Ok(true)
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => Ok(false),
                Err(error) => Err(Outcome::NotConnected(error.kind())),
            },
            Stage::Asking { request, written } => {
                if !self.writable {
                    return Ok(false);
                }
                match self.sys.write(sock, &[IoSlice::new(&request[*written..])]) {
                    Ok(len) => *written += len,
                    Err(error) if error.kind() == ErrorKind::WouldBlock => self.writable = false,
                    Err(error) => return Err(Outcome::NoAnswer(End::Failed(error.kind()))),
                }
                if *written == request.len() {
                    self.stage = Stage::Waiting;
                }
                Ok(true)
            }
            Stage::Waiting | Stage::Refused => self.read_answer(sock, now),
            Stage::Tunnel(session) => {
                session.work(&mut self.sys, now);
                let mut report = self.report.borrow_mut();
                report.sent = session.sent();
                report.received = session.received();
                report.mismatch = session.mismatch();
                if session.over() { Err(Outcome::Ended(session.end())) } else { Ok(false) }
            }
        }
    }

    fn read_answer(&mut self, sock: Sock, now: Instant) -> Result<bool, Outcome> {
        if !self.readable {
            return Ok(false);
        }
        let refused = matches!(self.stage, Stage::Refused);
        let ended = |end| if refused { Outcome::Ended(end) } else { Outcome::NoAnswer(end) };
        let mut buffer = [0; 4096];
        let bytes = match self.sys.read(sock, &mut buffer) {
            Ok(0) => return Err(ended(End::Eof)),
            Ok(len) => &buffer[..len],
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.readable = false;
                return Ok(false);
            }
            Err(error) => return Err(ended(End::Failed(error.kind()))),
        };
        let mut report = self.report.borrow_mut();
        if refused {
            report.body.extend_from_slice(bytes);
            return Ok(true);
        }
        report.head.extend_from_slice(bytes);
        assert!(report.head.len() <= HEAD_MAX, "an answer without an end");
        let Some(at) = report.head.windows(4).position(|window| window == b"\r\n\r\n") else {
            return Ok(true);
        };
        let rest = report.head.split_off(at + 4);
        report.bytes_with_head = rest.len();
        report.status = status(&report.head);
        report.answered_after = Some(self.since_start(now));
        if report.status == Some(200) {
            let mut session = Session::new(sock, self.tunnel_plan());
            session.skip(self.plan.early as u64);
            session.take(&rest);
            session.latch(Hints { readable: self.readable, writable: self.writable, ..Hints::default() });
            self.stage = Stage::Tunnel(session);
        } else {
            report.body = rest;
            self.stage = Stage::Refused;
        }
        Ok(true)
    }

    fn tunnel_plan(&self) -> Plan {
        Plan {
            tunnel: self.plan.tunnel,
            sends: Direction::Up,
            send_total: self.plan.upload,
            expects: self.plan.expects,
            echo: false,
            fin_when_sent: self.plan.ending == Ending::HalfClose,
            pace: self.plan.pace,
        }
    }

    /// True if it is time to go; the second value says to go with a reset.
    fn leaves(&self, now: Instant) -> Option<bool> {
        let session = if let Stage::Tunnel(session) = &self.stage { Some(session) } else { None };
        let received = session.map_or(0, Session::received);
        match self.plan.ending {
            Ending::HalfClose | Ending::Stay => None,
            Ending::CloseWhenSent => session.is_some_and(Session::sent_all).then_some(false),
            Ending::CloseWhenReceived(len) => (session.is_some() && received >= len).then_some(false),
            Ending::AbortWhenReceived(len) => (session.is_some() && received >= len).then_some(true),
            Ending::CloseAfter(time) => (self.since_start(now) >= time).then_some(false),
        }
    }

    fn deadline(&self, now: Instant) -> Option<Instant> {
        let session = match &self.stage {
            Stage::Start => Some(now),
            Stage::Tunnel(session) => session.deadline(now),
            _ => None,
        };
        let leave = match (self.plan.ending, self.started) {
            (Ending::CloseAfter(time), Some(started)) => Some(started + time),
            _ => None,
        };
        [session, leave].into_iter().flatten().min()
    }
}

/// The number in `HTTP/1.1 200 ...`.
fn status(head: &[u8]) -> Option<u16> {
    let line = std::str::from_utf8(head).ok()?.lines().next()?;
    line.strip_prefix("HTTP/1.1 ")?.get(..3)?.parse().ok()
}

impl Node for Client {
    fn turn(&mut self) -> ControlFlow<()> {
        let now = self.sys.now();
        let mut ready: Vec<Ready> = Vec::new();
        self.sys.poll(&mut ready, self.deadline(now)).unwrap();
        if matches!(self.stage, Stage::Start) {
            self.started = Some(now);
            if let Err(kind) = self.start() {
                return self.end(Outcome::NotConnected(kind), now);
            }
        }
        for Ready { hints, .. } in ready {
            self.readable |= hints.readable || hints.read_closed || hints.hup || hints.error;
            self.writable |= hints.writable || hints.hup || hints.error;
            if let Stage::Tunnel(session) = &mut self.stage {
                session.latch(hints);
            }
        }
        let Some(sock) = self.sock else { return ControlFlow::Continue(()) };
        loop {
            match self.step(sock, now) {
                Ok(true) => {}
                Ok(false) => break,
                Err(outcome) => {
                    self.sys.close(sock);
                    return self.end(outcome, now);
                }
            }
        }
        match self.leaves(now) {
            None => ControlFlow::Continue(()),
            Some(abort) => {
                if abort {
                    self.sys.abort(sock)
                } else {
                    self.sys.close(sock)
                }
                self.end(Outcome::Left, now)
            }
        }
    }
}

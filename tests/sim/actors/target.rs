//! Targets: what an agent connects to. One listener each; the port names the tunnel's pattern.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::{Duration, Instant};

use tautline::net::sys::{Class, Hints, ListenAddr, Ready, Sock, Sys};

use super::session::{End, Pace, Plan, Session};
use crate::kernel::{HostId, NodeId};
use crate::pattern::Direction;
use crate::sys::SimSys;
use crate::world::{Node, World};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Behaviour {
    /// Sends back what it gets, and the FIN behind it.
    Echo,
    /// Reads all, closes at the end.
    Sink,
    /// The same with a pause behind each read.
    SlowSink { bytes: usize, pause: Duration },
    /// Accepts, never reads.
    Hole,
    /// Sends so much, then a FIN; reads meanwhile.
    Flood { bytes: u64 },
    /// Speaks first, then is a sink.
    Banner { bytes: u64 },
    /// Sends so much and closes at once, whatever comes.
    Closer { bytes: u64 },
    /// Sends an RST once it received so much.
    Resetter { after: u64 },
}

/// What one connection saw, in the order of their arrival.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    pub(crate) received: u64,
    pub(crate) sent: u64,
    /// Offset of the first wrong byte.
    pub(crate) mismatch: Option<u64>,
    pub(crate) end: End,
    pub(crate) closed: bool,
}

#[derive(Default, Debug)]
pub(crate) struct TargetReport {
    pub(crate) connections: Vec<Seen>,
    /// accept(2) calls that failed, `WouldBlock` apart.
    pub(crate) accept_errors: u64,
}

struct Accepted {
    session: Session,
    /// Place in the report.
    index: usize,
}

pub(crate) struct Target {
    sys: SimSys,
    listener: Sock,
    tunnel: u64,
    behaviour: Behaviour,
    accepting: bool,
    /// After EMFILE accepting rests until then.
    accept_at: Option<Instant>,
    next_token: u64,
    accepted: BTreeMap<u64, Accepted>,
    report: Rc<RefCell<TargetReport>>,
}

const LISTENER: u64 = 0;
const ACCEPT_REST: Duration = Duration::from_millis(100);

impl Target {
    /// Starts a target on `host`; the pattern of its tunnel is the port.
    pub(crate) fn spawn(
        world: &mut World,
        host: HostId,
        at: SocketAddr,
        behaviour: Behaviour,
    ) -> (NodeId, Rc<RefCell<TargetReport>>) {
        let tunnel = u64::from(at.port());
        Self::spawn_at(world, host, &ListenAddr::Tcp(at), tunnel, behaviour)
    }

    /// The same on any address.
    pub(crate) fn spawn_at(
        world: &mut World,
        host: HostId,
        at: &ListenAddr,
        tunnel: u64,
        behaviour: Behaviour,
    ) -> (NodeId, Rc<RefCell<TargetReport>>) {
        let report = Rc::new(RefCell::new(TargetReport::default()));
        let shared = Rc::clone(&report);
        let node = world.spawn(host, &format!("target {tunnel}"), |mut sys| {
            let listener = sys.listen(at).unwrap();
            sys.register(listener, LISTENER).unwrap();
            Box::new(Self {
                sys,
                listener,
                tunnel,
                behaviour,
                accepting: false,
                accept_at: None,
                next_token: LISTENER + 1,
                accepted: BTreeMap::new(),
                report: shared,
            })
        });
        (node, report)
    }

    fn plan(&self) -> Plan {
        let send_total = match self.behaviour {
            Behaviour::Flood { bytes } | Behaviour::Banner { bytes } | Behaviour::Closer { bytes } => bytes,
            _ => 0,
        };
        let pace = match self.behaviour {
            Behaviour::Hole => Pace::Stop { after: 0 },
            Behaviour::SlowSink { bytes, pause } => Pace::Slow { bytes, pause },
            _ => Pace::Full,
        };
        Plan {
            tunnel: self.tunnel,
            sends: Direction::Down,
            send_total,
            expects: Direction::Up,
            echo: self.behaviour == Behaviour::Echo,
            fin_when_sent: matches!(self.behaviour, Behaviour::Echo | Behaviour::Flood { .. }),
            pace,
        }
    }

    fn accept(&mut self, now: Instant) {
        while self.accepting {
            match self.sys.accept(self.listener) {
                Ok((sock, _)) => {
                    let token = self.next_token;
                    self.next_token += 1;
                    self.sys.register(sock, token).unwrap();
                    self.sys.configure(sock, Class::Tunnel).unwrap();
                    let session = Session::new(sock, self.plan());
                    let mut report = self.report.borrow_mut();
                    let index = report.connections.len();
                    report.connections.push(Seen {
                        received: 0,
                        sent: 0,
                        mismatch: None,
                        end: End::Running,
                        closed: false,
                    });
                    self.accepted.insert(token, Accepted { session, index });
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => self.accepting = false,
                Err(error) => {
                    self.report.borrow_mut().accept_errors += 1;
                    if error.kind() != ErrorKind::ConnectionAborted {
                        self.accept_at = Some(now + ACCEPT_REST); // the latch stays
                        return;
                    }
                }
            }
        }
    }

    fn closes(&self, session: &Session) -> bool {
        match self.behaviour {
            Behaviour::Closer { .. } => session.sent_all() || session.write_error().is_some(),
            Behaviour::Hole => session.gone(),
            _ => session.over(),
        }
    }

    fn serve(&mut self, token: u64, now: Instant) {
        let Some(accepted) = self.accepted.get_mut(&token) else { return };
        let session = &mut accepted.session;
        session.work(&mut self.sys, now);
        let resets = matches!(self.behaviour, Behaviour::Resetter { after } if session.received() >= after);
        let Some(accepted) = self.accepted.get(&token) else { return };
        let (session, index) = (&accepted.session, accepted.index);
        let closes = self.closes(session);
        self.report.borrow_mut().connections[index] = Seen {
            received: session.received(),
            sent: session.sent(),
            mismatch: session.mismatch(),
            end: session.end(),
            closed: closes || resets,
        };
        let sock = session.sock;
        if resets {
            self.sys.abort(sock);
        } else if closes {
            self.sys.close(sock);
        } else {
            return;
        }
        self.accepted.remove(&token);
    }
}

impl Node for Target {
    fn turn(&mut self) -> ControlFlow<()> {
        let now = self.sys.now();
        let wanted = self.accepted.values().filter_map(|accepted| accepted.session.deadline(now));
        let until = wanted.chain(self.accept_at).min();
        let mut ready: Vec<Ready> = Vec::new();
        self.sys.poll(&mut ready, until).unwrap();
        for Ready { token, hints } in ready {
            if token == LISTENER {
                self.accepting |= hints != Hints::default();
            } else if let Some(accepted) = self.accepted.get_mut(&token) {
                accepted.session.latch(hints);
            }
        }
        let tokens: Vec<u64> = self.accepted.keys().copied().collect();
        for token in tokens {
            self.serve(token, now);
        }
        if self.accept_at.is_none_or(|at| at <= now) {
            self.accept_at = None;
            self.accept(now);
        }
        ControlFlow::Continue(())
    }
}

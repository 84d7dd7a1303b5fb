//! The CONNECT client against a frontend of few lines: what it must notice.

use std::cell::RefCell;
use std::io::{ErrorKind, IoSlice};
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use tautline::net::sys::{Hints, ListenAddr, Ready, Sock, Sys};

use crate::actors::client::{Client, ClientPlan, ClientReport, Ending, Frontend, Outcome};
use crate::actors::session::{End, Pace, Plan, Session};
use crate::kernel::HostId;
use crate::pattern::Direction;
use crate::quirks::Quirks;
use crate::rng::Rng;
use crate::sys::SimSys;
use crate::world::{Node, World};

/// Answers one CONNECT with `answer`, then echoes; without an echo it closes.
struct FakeFrontend {
    sys: SimSys,
    listener: Sock,
    sock: Option<Sock>,
    request: Rc<RefCell<Vec<u8>>>,
    answer: &'static [u8],
    echoes: bool,
    session: Option<Session>,
}

impl FakeFrontend {
    /// Reads the head byte by byte, so that nothing behind it is lost.
    fn head(&mut self, sock: Sock) -> bool {
        let mut byte = [0];
        while !self.request.borrow().ends_with(b"\r\n\r\n") {
            match self.sys.read(sock, &mut byte) {
                Ok(1) => self.request.borrow_mut().push(byte[0]),
                Ok(_) => return false,
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return false;
                }
            }
        }
        true
    }

    fn answer(&mut self, sock: Sock) {
        while !self.answer.is_empty() {
            match self.sys.write(sock, &[IoSlice::new(self.answer)]) {
                Ok(len) => self.answer = &self.answer[len..],
                Err(error) => return assert_eq!(error.kind(), ErrorKind::WouldBlock),
            }
        }
        if !self.echoes {
            self.sys.close(sock);
            self.sock = None;
            return;
        }
        // No byte may ride with the head. When the client took it, an edge brings us back here.
        if self.sys.unsent(sock).unwrap() > 0 {
            return;
        }
        let (sends, expects) = (Direction::Down, Direction::Up);
        let plan = Plan {
            tunnel: 9,
            sends,
            send_total: 0,
            expects,
            echo: true,
            fin_when_sent: true,
            pace: Pace::Full,
        };
        let mut session = Session::new(sock, plan);
        session.latch(Hints { readable: true, writable: true, ..Hints::default() });
        self.session = Some(session);
    }
}

impl Node for FakeFrontend {
    fn turn(&mut self) -> ControlFlow<()> {
        let now = self.sys.now();
        let mut ready: Vec<Ready> = Vec::new();
        let until = self.session.as_ref().and_then(|session| session.deadline(now));
        self.sys.poll(&mut ready, until).unwrap();
        for event in ready {
            if let Some(session) = self.session.as_mut().filter(|_| event.token == 1) {
                session.latch(event.hints);
            }
        }
        if let Ok((sock, _)) = self.sys.accept(self.listener) {
            self.sys.register(sock, 1).unwrap();
            self.sock = Some(sock);
        }
        let Some(sock) = self.sock else { return ControlFlow::Continue(()) };
        if let Some(session) = &mut self.session {
            session.work(&mut self.sys, now);
            if session.over() {
                self.sys.close(sock);
                self.sock = None;
                self.session = None;
            }
        } else if self.head(sock) {
            self.answer(sock);
        }
        ControlFlow::Continue(())
    }
}

fn plan() -> ClientPlan {
    ClientPlan {
        frontend: Frontend::Unix("/run/f".into()),
        target: Some("node-1:10250".into()),
        tunnel: 9,
        upload: 5000,
        early: 0,
        expects: Direction::Up,
        pace: Pace::Full,
        ending: Ending::HalfClose,
    }
}

fn world_with(quirks: Quirks, answer: &'static [u8], echoes: bool) -> (World, HostId, Rc<RefCell<Vec<u8>>>) {
    let mut world = World::with_quirks(3, quirks);
    let host = world.host("cp", &[]);
    let request = Rc::new(RefCell::new(Vec::new()));
    let shared = Rc::clone(&request);
    world.spawn(host, "frontend", |mut sys| {
        let listener = sys.listen(&ListenAddr::Unix("/run/f".into())).unwrap();
        sys.register(listener, 0).unwrap();
        let (sock, session) = (None, None);
        Box::new(FakeFrontend { sys, listener, sock, request: shared, answer, echoes, session })
    });
    (world, host, request)
}

fn run(quirks: Quirks, answer: &'static [u8], echoes: bool, plan: ClientPlan) -> ClientReport {
    let (mut world, host, _) = world_with(quirks, answer, echoes);
    let (_, report) = Client::spawn(&mut world, host, plan);
    world.run_until(Duration::from_secs(100), |_| report.borrow().outcome != Outcome::Running);
    let report = report.borrow();
    report.clone()
}

const OK: &[u8] = b"HTTP/1.1 200 Connection Established\r\n\r\n";

#[test]
fn a_tunnel_carries_the_upload_and_back_early_bytes_included() {
    for seed in 0..30 {
        let plan = ClientPlan { early: 100, ..plan() };
        let report = run(Quirks::draw(&mut Rng::new(seed)), OK, true, plan);
        assert_eq!(report.outcome, Outcome::Ended(End::Eof), "seed {seed}");
        assert_eq!((report.status, report.bytes_with_head), (Some(200), 0));
        assert_eq!((report.sent, report.received, report.mismatch), (5000, 5000, None));
        assert!(report.answered_after <= report.ended_after);
    }
}

#[test]
fn the_request_is_what_kube_apiserver_writes() {
    let (mut world, host, request) = world_with(Quirks::none(), OK, true);
    let _client = Client::spawn(&mut world, host, plan());
    world.run_for(Duration::from_secs(1));
    assert_eq!(*request.borrow(), b"CONNECT node-1:10250 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
}

#[test]
fn another_answer_is_kept_with_its_body() {
    let answer = b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 4\r\n\r\nnone";
    let report = run(Quirks::none(), answer, false, plan());
    assert_eq!((report.status, report.outcome), (Some(503), Outcome::Ended(End::Eof)));
    assert!(report.head.ends_with(b"4\r\n\r\n"));
    assert_eq!(report.body, b"none");
}

#[test]
fn bytes_in_the_answers_segment_and_wrong_bytes_are_seen() {
    let report = run(Quirks::none(), b"HTTP/1.1 200 OK\r\n\r\nwrong", false, plan());
    assert_eq!((report.bytes_with_head, report.received, report.mismatch), (5, 5, Some(0)));
}

#[test]
fn an_end_without_a_head_is_no_answer() {
    let report = run(Quirks::none(), b"HTTP/1.1 200", false, plan());
    assert_eq!(report.outcome, Outcome::NoAnswer(End::Eof));
    let nobody = ClientPlan { frontend: Frontend::Unix("/run/other".into()), ..plan() };
    let report = run(Quirks::none(), OK, false, nobody);
    assert_eq!(report.outcome, Outcome::NotConnected(ErrorKind::NotFound));
}

#[test]
fn endings_leave_when_they_say() {
    let time = Duration::from_secs(2);
    let after = ClientPlan { ending: Ending::CloseAfter(time), ..plan() };
    let report = run(Quirks::none(), OK, true, after);
    assert_eq!((report.outcome, report.ended_after), (Outcome::Left, Some(time)));
    for ending in [Ending::CloseWhenReceived(1000), Ending::AbortWhenReceived(1000), Ending::CloseWhenSent] {
        let report = run(Quirks::none(), OK, true, ClientPlan { ending, ..plan() });
        assert_eq!(report.outcome, Outcome::Left);
        assert!(report.received >= 1000 || report.sent == 5000);
    }
    let report = run(Quirks::none(), OK, true, ClientPlan { ending: Ending::Stay, ..plan() });
    assert_eq!((report.outcome, report.received), (Outcome::Running, 5000));
}

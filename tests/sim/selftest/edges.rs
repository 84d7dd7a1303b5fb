//! Edges: who reads to `WouldBlock` never waits in vain; who stops early hangs, and the simulator sees it.

use std::io::ErrorKind;
use std::ops::ControlFlow;
use std::time::Duration;

use tautline::net::sys::{ListenAddr, Ready, Sock, Sys};

use crate::quirks::Quirks;
use crate::sys::SimSys;
use crate::world::{Node, World};
use std::cell::Cell;
use std::io::IoSlice;
use std::rc::Rc;

/// Reads what it is told of. The wrong one reads once an event.
struct Reader {
    sys: SimSys,
    listener: Sock,
    to_wouldblock: bool,
    received: Rc<Cell<usize>>,
}

impl Reader {
    fn read(&mut self, sock: Sock) {
        let mut buffer = [0; 64];
        loop {
            match self.sys.read(sock, &mut buffer) {
                Ok(0) => return,
                Ok(len) => self.received.set(self.received.get() + len),
                Err(error) => {
                    assert_eq!(error.kind(), ErrorKind::WouldBlock);
                    return;
                }
            }
            if !self.to_wouldblock {
                return;
            }
        }
    }
}

impl Node for Reader {
    fn turn(&mut self) -> ControlFlow<()> {
        let mut ready: Vec<Ready> = Vec::new();
        self.sys.poll(&mut ready, None).unwrap();
        for Ready { token, hints } in ready {
            if token != 0 && (hints.readable || hints.hup) {
                self.read(Sock(u32::try_from(token - 1).unwrap()));
            }
        }
        while let Ok((sock, _)) = self.sys.accept(self.listener) {
            self.sys.register(sock, u64::from(sock.0) + 1).unwrap();
        }
        ControlFlow::Continue(())
    }
}

/// Sends 1000 bytes in ten pieces. Returns what was read, and how many sockets are stalled at rest.
fn run(seed: u64, to_wouldblock: bool, quirks: Quirks) -> (usize, usize) {
    let mut world = World::with_quirks(seed, quirks);
    let host = world.host("one", &[]);
    let received = Rc::new(Cell::new(0));
    let count = Rc::clone(&received);
    world.spawn(host, "reader", |mut sys| {
        let listener = sys.listen(&ListenAddr::Unix("/r".into())).unwrap();
        sys.register(listener, 0).unwrap();
        Box::new(Reader { sys, listener, to_wouldblock, received: count })
    });
    let mut writer = world.process(host, "writer");
    let sock = writer.connect_unix("/r".as_ref()).unwrap();
    let mut left = 1000;
    for _ in 0..500 {
        // A write may be short or refused, so there are more attempts than pieces.
        let piece = 100.min(left);
        match writer.write(sock, &[IoSlice::new(&[7; 100][..piece])]) {
            Ok(len) => left -= len,
            Err(error) => assert_eq!(error.kind(), ErrorKind::WouldBlock),
        }
        world.run_for(Duration::from_millis(1));
    }
    assert!(world.run_to_rest(Duration::from_secs(10)));
    (received.get(), world.stalls().len())
}

#[test]
fn a_reader_that_obeys_the_rules_gets_everything_from_every_kernel() {
    for seed in 0..200 {
        let quirks = Quirks::draw(&mut crate::rng::Rng::new(seed));
        assert_eq!(run(seed, true, quirks), (1000, 0), "seed {seed}");
    }
}

#[test]
fn a_reader_that_stops_early_hangs_and_is_caught() {
    assert_eq!(run(1, false, Quirks::none()), (64, 1));
    let caught = (0..50).filter(|seed| {
        let quirks = Quirks::draw(&mut crate::rng::Rng::new(*seed));
        let (received, stalled) = run(*seed, false, quirks);
        assert_eq!(received < 1000, stalled == 1, "seed {seed}: hanging and stalled are the same");
        stalled == 1
    });
    assert!(caught.count() > 25, "a wrong reader must not get through");
}

#[test]
#[should_panic(expected = "spins")]
fn a_program_that_never_sleeps_is_caught() {
    let mut world = World::with_quirks(1, Quirks::none());
    let host = world.host("one", &[]);
    world.spawn(host, "spinner", |mut sys| {
        Box::new(move || {
            let now = sys.now();
            sys.poll(&mut Vec::new(), Some(now)).unwrap();
            ControlFlow::Continue(())
        })
    });
    world.run_for(Duration::from_secs(1));
}

#[test]
#[should_panic(expected = "not open")]
fn a_socket_used_after_its_close_is_caught() {
    let mut world = World::with_quirks(1, Quirks::none());
    let host = world.host("one", &[]);
    let mut sys = world.process(host, "wrong");
    let sock = sys.listen(&ListenAddr::Unix("/r".into())).unwrap();
    sys.close(sock);
    let _result = sys.accept(sock);
}

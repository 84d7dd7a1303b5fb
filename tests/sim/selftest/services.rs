//! What a process has beside sockets: time, randomness, jobs, signals, descriptors, names.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::ops::ControlFlow;
use std::rc::Rc;
use std::time::Duration;

use tautline::net::sys::{Job, JobResult, ListenAddr, Signal, Sys};

use super::pair::{CLIENT_IP, Pair, SERVER_IP, address, two_hosts};
use crate::dns::Answer;
use crate::faults::kind;
use crate::sys::SimSys;

fn lookup(sys: &mut SimSys, name: &str, id: u64) {
    sys.submit(Job::Resolve { host: name.into(), port: 443, urgent: false }, id).unwrap();
}

#[test]
fn lookups_answer_as_the_script_says() {
    let (mut world, hosts) = two_hosts();
    let mut sys = world.process(hosts[0], "user");
    let second = Duration::from_secs(1);
    let wrong = IpAddr::from([10, 9, 9, 9]);
    world.dns("slow.example", second * 3, Answer::Addresses(vec![SERVER_IP.into()]));
    world.dns("wrong.example", second, Answer::Addresses(vec![wrong]));
    world.dns("broken.example", second * 2, Answer::Fails(ErrorKind::TimedOut));
    world.dns("never.example", second, Answer::Never);
    for (id, name) in
        ["slow.example", "wrong.example", "broken.example", "never.example", "no.example", "::1"]
            .into_iter()
            .enumerate()
    {
        lookup(&mut sys, name, id as u64);
    }
    world.run_for(second * 1000);
    let mut results = Vec::new();
    while let Some((id, JobResult::Resolved(result))) = sys.next_job() {
        results.push((id, result.map(|found| found[0]).map_err(|error| error.kind())));
    }
    let expected = [
        (5, Ok("[::1]:443".parse().unwrap())),
        (4, Err(ErrorKind::NotFound)),
        (1, Ok((wrong, 443).into())),
        (2, Err(ErrorKind::TimedOut)),
        (0, Ok(address(SERVER_IP, 443))),
    ];
    assert_eq!(results, expected);
}

#[test]
fn time_is_virtual_and_the_wall_clock_may_jump() {
    let (mut world, hosts) = two_hosts();
    let mut sys = world.process(hosts[0], "user");
    let (start, wall) = (sys.now(), sys.unix_time());
    world.run_for(Duration::from_secs(3600));
    assert_eq!(sys.now() - start, Duration::from_secs(3600));
    assert_eq!(sys.unix_time() - wall, Duration::from_secs(3600));
    world.set_wall_clock(Duration::from_secs(4_000_000_000));
    assert_eq!(sys.unix_time(), Duration::from_secs(4_000_000_000));
    assert_eq!(sys.now() - start, Duration::from_secs(3600));
    assert_ne!(sys.random(), sys.random());
}

#[test]
fn a_turn_comes_when_the_deadline_is_due_or_a_signal_comes() {
    let (mut world, hosts) = two_hosts();
    let turns = Rc::new(RefCell::new(Vec::new()));
    let log = Rc::clone(&turns);
    let node = world.spawn(hosts[0], "timer", |mut sys| {
        let start = sys.now();
        let mut next = start + Duration::from_secs(10);
        Box::new(move || {
            sys.poll(&mut Vec::new(), Some(next)).unwrap();
            let now = sys.now();
            while now >= next {
                next += Duration::from_secs(10);
            }
            let signal = sys.next_signal();
            log.borrow_mut().push(((now - start).as_secs(), signal));
            if signal == Some(Signal::Terminate) { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })
    });
    world.after(Duration::from_secs(25), move |world| world.signal(node, Signal::Reload));
    world.after(Duration::from_secs(35), move |world| world.signal(node, Signal::Terminate));
    world.run_for(Duration::from_secs(100));
    assert!(!world.alive(node));
    let mut turns = turns.borrow().clone();
    turns.dedup();
    let expected = [
        (0, None),
        (10, None),
        (20, None),
        (25, Some(Signal::Reload)),
        (25, None),
        (30, None),
        (35, Some(Signal::Terminate)),
    ];
    assert_eq!(turns, expected);
}

#[test]
fn names_and_ports_are_taken_once() {
    let (mut world, hosts) = two_hosts();
    let (mut sys, mut other) = (world.process(hosts[0], "one"), world.process(hosts[0], "two"));
    let unix = ListenAddr::Unix("/run/x".into());
    let tcp = ListenAddr::Tcp(address(CLIENT_IP, 0));
    let listener = sys.listen(&tcp).unwrap();
    let at = sys.local_addr(listener).unwrap();
    assert_ne!(at.port(), 0);
    assert_eq!(other.listen(&ListenAddr::Tcp(at)).unwrap_err().kind(), ErrorKind::AddrInUse);
    sys.listen(&unix).unwrap();
    assert_eq!(other.listen(&unix).unwrap_err().kind(), ErrorKind::AddrInUse);
    world.kill(sys.node());
    let refused = other.connect_unix("/run/x".as_ref()).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused, "a file that nobody listens on");
    let again = other.listen(&unix).unwrap();
    other.close(again);
    assert_eq!(other.connect_unix("/run/x".as_ref()).unwrap_err().kind(), ErrorKind::NotFound);
    world.put_file(hosts[0], "/run/x".as_ref());
    assert_eq!(other.listen(&unix).unwrap_err().kind(), ErrorKind::AlreadyExists);
    assert!(other.listen(&ListenAddr::Tcp(at)).is_ok());
}

#[test]
fn without_a_descriptor_a_connection_waits() {
    for mut pair in [Pair::tcp(), Pair::unix()] {
        let node = pair.server.sys.node();
        pair.world.limit_descriptors(node, 2);
        if pair.client.sys.tcp_info(pair.client.sock).is_ok() {
            pair.client.sys.connect(address(SERVER_IP, 80)).unwrap();
        } else {
            pair.client.sys.connect_unix("/run/s".as_ref()).unwrap();
        }
        pair.pass();
        let full = pair.server.sys.accept(pair.listener).unwrap_err();
        assert_eq!(full.kind(), kind(libc::EMFILE));
        assert_eq!(full.raw_os_error(), Some(libc::EMFILE));
        pair.server.sys.close(pair.server.sock);
        assert!(pair.server.sys.accept(pair.listener).is_ok());
        assert_eq!(pair.world.open_sockets(node), 2);
    }
}

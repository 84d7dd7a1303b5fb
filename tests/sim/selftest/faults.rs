//! What each fault looks like to the programs, and how long it takes to show.

use std::io::ErrorKind;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tautline::net::sys::{Class, KernelLiveness, ListenAddr, Sys};

use super::pair::{Pair, SERVER_IP, address, outcome, two_hosts};
use crate::net::{Obstacle, Path};

const SECOND: Duration = Duration::from_secs(1);

fn link(user_timeout: u64) -> Class {
    Class::Link(KernelLiveness {
        keepalive_idle: SECOND * 3,
        keepalive_interval: SECOND,
        keepalive_count: 7,
        user_timeout: SECOND * user_timeout as u32,
    })
}

/// Seconds until the client learns that the connection is over, and what it learns.
fn seconds_to_end(pair: &mut Pair, limit: u64) -> (u64, Result<usize, ErrorKind>) {
    for second in 0..limit {
        if pair.client.events().hup {
            return (second, outcome(pair.client.read()));
        }
        pair.wait(1);
    }
    (limit, outcome(pair.client.read()))
}

#[test]
fn a_partition_delays_and_a_heal_brings_every_byte() {
    let mut pair = Pair::tcp();
    pair.world.partition(pair.hosts[0], pair.hosts[1]);
    pair.client.write(1000).unwrap();
    pair.wait(30);
    assert_eq!(outcome(pair.server.read()), Err(ErrorKind::WouldBlock));
    assert_eq!(pair.client.sys.unsent(pair.client.sock).unwrap(), 1000);
    pair.world.heal(pair.hosts[0], pair.hosts[1]);
    pair.wait(60);
    assert_eq!(pair.server.read().unwrap(), 1000);
    assert_eq!(pair.client.sys.unsent(pair.client.sock).unwrap(), 0);
}

#[test]
fn a_link_speaks_within_a_second_after_a_heal() {
    let mut pair = Pair::tcp();
    pair.client.sys.configure(pair.client.sock, link(120)).unwrap();
    pair.world.partition(pair.hosts[0], pair.hosts[1]);
    pair.client.write(1000).unwrap();
    pair.wait(60);
    pair.world.heal(pair.hosts[0], pair.hosts[1]);
    pair.world.run_for(SECOND + Duration::from_millis(10));
    assert_eq!(pair.server.read().unwrap(), 1000);
}

#[test]
fn one_way_loss_stops_both_the_bytes_and_their_acknowledgement() {
    let mut pair = Pair::tcp();
    pair.world.cut_one_way(pair.hosts[1], pair.hosts[0]);
    pair.client.write(1000).unwrap();
    pair.server.write(500).unwrap();
    pair.wait(10);
    assert_eq!(pair.server.read().unwrap(), 1000, "this direction works");
    assert_eq!(outcome(pair.client.read()), Err(ErrorKind::WouldBlock));
    assert_eq!(pair.client.sys.unsent(pair.client.sock).unwrap(), 1000);
    let info = pair.client.sys.tcp_info(pair.client.sock).unwrap();
    assert!(info.last_ack_received > SECOND * 9);
}

#[test]
fn a_frozen_process_still_acknowledges() {
    let mut pair = Pair::tcp();
    pair.client.sys.configure(pair.client.sock, link(6)).unwrap();
    // The server's process gets no turns: nobody reads. Its kernel answers, until its buffer is full.
    pair.client.write(1000).unwrap();
    pair.wait(100);
    assert_eq!(pair.client.sys.unsent(pair.client.sock).unwrap(), 0);
    assert!(!pair.client.events().hup, "keepalive cannot see a frozen process");
    while pair.client.write(100_000).is_ok() {
        pair.pass();
    }
    let (seconds, end) = seconds_to_end(&mut pair, 100);
    assert_eq!(end, Err(ErrorKind::TimedOut), "TCP_USER_TIMEOUT does not care why nothing is taken");
    assert!((5..=8).contains(&seconds), "{seconds}");
}

#[test]
fn keepalive_finds_a_vanished_host_on_an_idle_connection() {
    for (class, least, most) in [(Class::Tunnel, 60, 61), (link(6), 6, 7)] {
        let mut pair = Pair::tcp();
        pair.client.sys.configure(pair.client.sock, class).unwrap();
        pair.world.vanish(pair.hosts[1]);
        let (seconds, end) = seconds_to_end(&mut pair, 1000);
        assert_eq!(end, Err(ErrorKind::TimedOut));
        assert!((least..=most).contains(&seconds), "{class:?}: {seconds}");
    }
}

#[test]
fn unacknowledged_bytes_silence_keepalive_and_only_the_user_timeout_is_quick() {
    for (class, least, most) in [(Class::Tunnel, 900, 1000), (link(6), 6, 7)] {
        let mut pair = Pair::tcp();
        pair.client.sys.configure(pair.client.sock, class).unwrap();
        pair.world.vanish(pair.hosts[1]);
        pair.client.write(10).unwrap();
        let (seconds, end) = seconds_to_end(&mut pair, 2000);
        assert_eq!(end, Err(ErrorKind::TimedOut));
        assert!((least..=most).contains(&seconds), "{class:?}: {seconds}");
    }
}

#[test]
fn a_closed_window_kills_nobody_without_a_user_timeout() {
    let mut pair = Pair::tcp();
    pair.client.sys.configure(pair.client.sock, Class::Tunnel).unwrap();
    while pair.client.write(100_000).is_ok() {
        pair.pass();
    }
    pair.wait(7200);
    assert!(!pair.client.events().hup);
    while pair.server.read().is_ok() {
        pair.pass();
    }
    assert!(pair.client.events().writable);
}

#[test]
fn a_host_that_booted_answers_with_a_reset() {
    let mut pair = Pair::tcp();
    pair.world.vanish(pair.hosts[1]);
    pair.wait(10);
    pair.client.write(10).unwrap();
    pair.wait(10);
    assert!(!pair.client.events().hup);
    pair.world.boot(pair.hosts[1]);
    let (seconds, end) = seconds_to_end(&mut pair, 100);
    assert_eq!(end, Err(ErrorKind::ConnectionReset));
    assert!(seconds > 0, "with the next retransmission");
}

#[test]
fn a_forgotten_flow_is_silent_while_a_new_one_works() {
    let mut pair = Pair::tcp();
    pair.world.forget_flows(pair.hosts[0], pair.hosts[1]);
    pair.client.write(10).unwrap();
    pair.server.write(10).unwrap();
    let again = pair.client.sys.connect(address(SERVER_IP, 80)).unwrap();
    pair.wait(10);
    assert_eq!(outcome(pair.server.read()), Err(ErrorKind::WouldBlock));
    assert_eq!(outcome(pair.client.read()), Err(ErrorKind::WouldBlock));
    assert!(pair.client.sys.connected(again).is_ok());
}

#[test]
fn injected_resets_reach_both_ends() {
    let mut pair = Pair::tcp();
    pair.world.reset_connections(pair.hosts[0], pair.hosts[1]);
    assert_eq!(outcome(pair.client.read()), Err(ErrorKind::ConnectionReset));
    assert_eq!(outcome(pair.server.write(1)), Err(ErrorKind::ConnectionReset));
}

#[test]
fn a_changed_address_makes_old_connections_mute_and_a_moved_one_resets_them() {
    let mut pair = Pair::tcp();
    pair.world.change_addresses(pair.hosts[0], &[IpAddr::from([10, 0, 0, 77])]);
    pair.client.write(10).unwrap();
    pair.server.write(10).unwrap();
    let again = pair.client.sys.connect(address(SERVER_IP, 80)).unwrap();
    pair.wait(10);
    assert_eq!(outcome(pair.server.read()), Err(ErrorKind::WouldBlock));
    assert!(pair.client.sys.connected(again).is_ok());

    let mut pair = Pair::tcp();
    let other = pair.world.host("other", &[]);
    pair.world.move_address(SERVER_IP.into(), other);
    pair.client.write(10).unwrap();
    pair.pass();
    assert_eq!(outcome(pair.client.read()), Err(ErrorKind::ConnectionReset));
    pair.server.write(10).unwrap();
    pair.wait(10);
    assert!(!pair.server.events().hup, "the old place has no address to be reached or heard at");
}

#[test]
fn a_killed_process_says_goodbye_and_a_packet_too_big_does_not_arrive() {
    let mut pair = Pair::tcp();
    pair.server.write(10).unwrap();
    pair.world.kill(pair.server.sys.node());
    pair.pass();
    assert_eq!((pair.client.read().unwrap(), pair.client.read().unwrap()), (10, 0));
    assert_eq!(pair.server.read().unwrap_err().raw_os_error(), Some(libc::EBADF));

    let mut pair = Pair::tcp();
    let hole = Path { packet_max: Some(1000), ..Path::default() };
    pair.world.set_path(pair.hosts[0], pair.hosts[1], &hole);
    pair.client.write(100).unwrap();
    pair.pass();
    assert_eq!(pair.server.read().unwrap(), 100);
    pair.client.write(5000).unwrap();
    pair.wait(100);
    assert_eq!(outcome(pair.server.read()), Err(ErrorKind::WouldBlock));
    pair.world.heal_all();
    pair.wait(120);
    assert_eq!(pair.server.read().unwrap(), 5000);
}

#[test]
fn delay_and_bandwidth_take_their_time() {
    let mut pair = Pair::tcp();
    let modem = Path {
        bytes_per_second: Some(10_000),
        jitter: Duration::ZERO,
        ..Path::with_delay(Duration::from_millis(100))
    };
    pair.world.set_path(pair.hosts[0], pair.hosts[1], &modem);
    pair.client.write(20_000).unwrap();
    let mut received = 0;
    let mut tenths = 0;
    while received < 20_000 {
        pair.world.run_for(Duration::from_millis(100));
        received += pair.server.read().unwrap_or(0);
        tenths += 1;
    }
    assert!((20..25).contains(&tenths), "{tenths}");
}

/// Connects to `to` and waits: after how many seconds it ended, and how.
fn connect(obstacle: Option<Obstacle>, to: SocketAddr) -> (u64, Result<(), ErrorKind>) {
    let (mut world, hosts) = two_hosts();
    world.obstacle(to, obstacle);
    let mut sys = world.process(hosts[0], "client");
    let sock = match sys.connect(to) {
        Ok(sock) => sock,
        Err(error) => return (0, Err(error.kind())),
    };
    sys.register(sock, 1).unwrap();
    for second in 0..1000 {
        let mut ready = Vec::new();
        sys.poll(&mut ready, None).unwrap();
        let result = sys.connected(sock).map_err(|error| error.kind());
        if result != Err(ErrorKind::WouldBlock) {
            assert!(ready.iter().any(|event| event.hints.writable), "the end shows as writable");
            assert_eq!(sys.connected(sock).is_ok(), result.is_ok());
            return (second, result);
        }
        world.run_for(SECOND);
    }
    (1000, Ok(()))
}

#[test]
fn a_connect_is_refused_or_lost_or_fails_late() {
    let nobody = address(SERVER_IP, 81);
    assert_eq!(connect(None, nobody), (1, Err(ErrorKind::ConnectionRefused)));
    assert_eq!(connect(None, address([10, 0, 0, 99], 80)), (127, Err(ErrorKind::TimedOut)));
    assert_eq!(connect(Some(Obstacle::BlackHole), nobody), (127, Err(ErrorKind::TimedOut)));
    let unreachable = Obstacle::Refused(libc::ENETUNREACH);
    assert_eq!(connect(Some(unreachable), nobody), (0, Err(ErrorKind::NetworkUnreachable)));
    let late = Obstacle::FailsLate(SECOND * 3, libc::EHOSTUNREACH);
    assert_eq!(connect(Some(late), nobody), (3, Err(ErrorKind::HostUnreachable)));
    assert_eq!(connect(None, "[fd00::1]:80".parse().unwrap()), (0, Err(ErrorKind::NetworkUnreachable)));
}

#[test]
fn a_full_backlog_is_silence_on_tcp_and_wouldblock_on_a_unix_socket() {
    let (mut world, hosts) = two_hosts();
    world.set_backlog(1);
    let mut server = world.process(hosts[0], "server");
    server.listen(&ListenAddr::Unix("/run/s".into())).unwrap();
    let at = address([127, 0, 0, 1], 80);
    let listener = server.listen(&ListenAddr::Tcp("[::]:80".parse().unwrap())).unwrap();
    let mut client = world.process(hosts[0], "client");
    assert!(client.connect_unix("/run/s".as_ref()).is_ok());
    assert_eq!(client.connect_unix("/run/s".as_ref()).unwrap_err().kind(), ErrorKind::WouldBlock);

    let first = client.connect(at).unwrap();
    world.run_for(SECOND);
    assert!(client.connected(first).is_ok());
    let second = client.connect(at).unwrap();
    world.run_for(SECOND * 20);
    assert_eq!(client.connected(second).unwrap_err().kind(), ErrorKind::WouldBlock);
    server.accept(listener).unwrap();
    world.run_for(SECOND * 60);
    assert!(client.connected(second).is_ok(), "the SYN is repeated");
}

#[test]
fn a_frozen_node_gets_no_turn_until_it_thaws() {
    use crate::actors::client::{Client, ClientPlan, Ending, Frontend, Outcome};
    use crate::actors::session::{End, Pace};
    use crate::actors::target::{Behaviour, Target};
    use crate::pattern::Direction;

    let (mut world, hosts) = two_hosts();
    let at = address(SERVER_IP, 80);
    let (node, _) = Target::spawn(&mut world, hosts[1], at, Behaviour::Echo);
    world.run_for(SECOND);
    world.freeze(node);
    let plan = ClientPlan {
        frontend: Frontend::Tcp(at),
        target: None,
        tunnel: 80,
        upload: 100,
        early: 0,
        expects: Direction::Up,
        pace: Pace::Full,
        ending: Ending::HalfClose,
    };
    let (_, report) = Client::spawn(&mut world, hosts[0], plan);
    world.run_for(SECOND * 50);
    assert_eq!((report.borrow().outcome, report.borrow().sent), (Outcome::Running, 100));
    world.thaw(node);
    world.run_for(SECOND);
    assert_eq!(report.borrow().outcome, Outcome::Ended(End::Eof));
    assert_eq!(report.borrow().received, 100);
}

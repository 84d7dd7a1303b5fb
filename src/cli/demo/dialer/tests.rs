//! Against a tiny CONNECT proxy that answers as each test wants.

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixListener;

use super::super::room::Room;
use super::super::target;
use super::*;

/// What the proxy does with a CONNECT.
type Answer = fn(UnixStream, SocketAddr);

struct Proxy {
    route: Route,
    _room: Room,
}

fn proxy(answer: Answer) -> Proxy {
    let echo = TcpListener::bind(("127.0.0.1", 0)).unwrap();
    let target = echo.local_addr().unwrap();
    thread::spawn(move || target::serve(&echo));
    let room = Room::make().unwrap();
    let socket = room.path().join("s");
    let listener = UnixListener::bind(&socket).unwrap();
    thread::spawn(move || {
        for client in listener.incoming() {
            let mut client = client.unwrap();
            thread::spawn(move || {
                let mut head = Vec::new();
                let mut byte = [0];
                while !head.ends_with(b"\r\n\r\n") && client.read(&mut byte).unwrap() == 1 {
                    head.push(byte[0]);
                }
                assert_eq!(
                    String::from_utf8(head).unwrap(),
                    format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                );
                answer(client, target);
            });
        }
    });
    Proxy { route: Route { socket, target }, _room: room }
}

fn tunnel(mut client: UnixStream, target: SocketAddr) {
    client.write_all(b"HTTP/1.1 200 Connection Established\r\n\r\n").unwrap();
    let mut there = TcpStream::connect(target).unwrap();
    let mut back = there.try_clone().unwrap();
    let mut to_client = client.try_clone().unwrap();
    let way_back = thread::spawn(move || {
        let _ = io::copy(&mut back, &mut to_client);
        let _ = to_client.shutdown(Shutdown::Write);
    });
    let _ = io::copy(&mut client, &mut there);
    let _ = there.shutdown(Shutdown::Write);
    way_back.join().unwrap();
}

#[test]
fn a_tunnel_carries_bytes_and_closes() {
    let proxy = proxy(tunnel);
    let (mut stream, _) = dial(&proxy.route).unwrap();
    exchange(&mut stream, 7, 0, 64 * 1024).unwrap();
    exchange(&mut stream, 7, 64 * 1024, 1).unwrap();
    close(&mut stream).unwrap();
}

#[test]
fn wrong_bytes_and_cuts_are_told_apart() {
    let wrong = proxy(|mut client, _| {
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let mut bytes = [0; 100];
        client.read_exact(&mut bytes).unwrap();
        bytes[99] ^= 1;
        client.write_all(&bytes).unwrap();
    });
    let (mut stream, _) = dial(&wrong.route).unwrap();
    assert!(matches!(exchange(&mut stream, 1, 0, 100), Err(TunnelError::Wrong)));

    let cut = proxy(|mut client, _| {
        client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        client.read_exact(&mut [0; 50]).unwrap();
    });
    let (mut stream, _) = dial(&cut.route).unwrap();
    assert!(matches!(exchange(&mut stream, 1, 0, 100), Err(TunnelError::Cut(_))));
}

#[test]
fn bad_answers_are_named() {
    let answers: [(Answer, &str); 4] = [
        (
            |mut client, _| client.write_all(b"HTTP/1.1 503 No Agent\r\nX: 1\r\n\r\n").unwrap(),
            "answer: HTTP/1.1 503 No Agent",
        ),
        (
            |mut client, _| client.write_all(b"HTTP/1.1 200 OK\r\n\r\nearly").unwrap(),
            "5 bytes right behind the 200",
        ),
        (|mut client, _| client.write_all(b"HTTP/1.1 200 OK\r\n").unwrap(), "no complete answer"),
        (|mut client, _| drop(client.write_all(&[b'x'; 10_000])), "no complete answer"),
    ];
    for (answer, want) in answers {
        let proxy = proxy(answer);
        assert_eq!(dial(&proxy.route).unwrap_err().to_string(), want);
    }
    let nobody = Route { socket: "/nonexistent/s".into(), target: SocketAddr::from(([127, 0, 0, 1], 1)) };
    assert!(dial(&nobody).unwrap_err().to_string().starts_with("connect to the server: "));
}

#[test]
fn the_load_dials_until_it_is_told_to_stop() {
    let proxy = proxy(tunnel);
    let stats = Arc::new(Stats::new(Instant::now()));
    let load = Load::start(&proxy.route, &stats).unwrap();
    let end = Instant::now() + Duration::from_secs(30);
    while stats.dials() < 30 && Instant::now() < end {
        thread::sleep(Duration::from_millis(5));
    }
    load.finish();
    assert!(stats.dials() >= 30);
    assert_eq!((stats.failed(), stats.open()), (0, 0));
    let after = stats.dials();
    thread::sleep(SHORT_PAUSE * 3);
    assert_eq!(stats.dials(), after, "still dialling");
}

#[test]
fn lengths_are_spread_and_patterns_differ() {
    let lengths: Vec<usize> = (0..1000).map(|id| 1024 + pattern_length(id)).collect();
    assert!(lengths.iter().all(|length| (1024..=64 * 1024).contains(length)));
    assert!(lengths.iter().any(|length| *length < 8192) && lengths.iter().any(|length| *length > 56_000));
    let bytes = |id: u64| (0..64).map(|at| pattern(id, at)).collect::<Vec<_>>();
    assert!(bytes(1) != bytes(2));
    assert!((0..64).any(|at| pattern(1, at) != pattern(1, at + 1)));
}

//! The answers to CONNECT: Konnectivity's, and ours, on both frontends. Where they differ the row says why.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use crate::front::{Client, Front};
use crate::rig::{ESTABLISHED, Process, Rig, echo, wait_for};

/// A port that takes no SYN: nobody accepts, and its queue is full.
struct Black {
    port: u16,
    _listener: socket2::Socket,
    _queue: Vec<TcpStream>,
}

fn black() -> Black {
    let listener = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::STREAM, None).unwrap();
    listener.bind(&SocketAddr::from(([127, 0, 0, 1], 0)).into()).unwrap();
    listener.listen(0).unwrap();
    let address = listener.local_addr().unwrap().as_socket().unwrap();
    // The first that is not taken at once says that the queue is full.
    let mut queue = Vec::new();
    while let Ok(conn) = TcpStream::connect_timeout(&address, std::time::Duration::from_millis(300)) {
        queue.push(conn);
        assert!(queue.len() < 64, "a queue of length 0 ends somewhere");
    }
    Black { port: address.port(), _listener: listener, _queue: queue }
}

/// A port that refuses.
fn closed() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

struct Row {
    case: &'static str,
    /// `PORT` becomes a port that echoes, `CLOSED` one that refuses, `BLACK` one that is silent.
    request: &'static str,
    /// The status of Konnectivity.
    theirs: &'static str,
    /// The first line of ours.
    ours: &'static str,
    /// Somewhere behind it.
    text: &'static str,
}

const fn row(
    case: &'static str,
    request: &'static str,
    theirs: &'static str,
    ours: &'static str,
    text: &'static str,
) -> Row {
    Row { case, request, theirs, ours, text }
}

const OK: &str = "200 Connection Established";
const BAD: &str = "400 Bad Request";
const GATEWAY: &str = "502 Bad Gateway";

/// With one agent that is well.
const ROWS: &[Row] = &[
    row("connected", "CONNECT 127.0.0.1:PORT HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n", "200", OK, ""),
    row("by name", "CONNECT localhost:PORT HTTP/1.1\r\n\r\n", "200", OK, ""),
    row("HTTP/1.0", "CONNECT 127.0.0.1:PORT HTTP/1.0\r\n\r\n", "200", OK, ""),
    row("bytes behind the head", "CONNECT 127.0.0.1:PORT HTTP/1.1\r\n\r\nearly", "200", OK, "\r\n\r\nearly"),
    row("refused", "CONNECT 127.0.0.1:CLOSED HTTP/1.1\r\n\r\n", "502", GATEWAY, "onnection refused"),
    row("no such name", "CONNECT nosuch.invalid:80 HTTP/1.1\r\n\r\n", "502", GATEWAY, "name resolution"),
    row("no answer", "CONNECT 127.0.0.1:BLACK HTTP/1.1\r\n\r\n", "504", "504 Gateway Timeout", "no answer"),
    row("no CONNECT", "GET / HTTP/1.1\r\n\r\n", "405", "405 Method Not Allowed", "only supports CONNECT"),
    row("HTTP/2", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "405", BAD, "HTTP/2"), // it is another protocol
    row("not HTTP", "hello\r\n\r\n", "400", BAD, "text/plain; charset=utf-8"),
    row("no brackets", "CONNECT ::1:9999 HTTP/1.1\r\n\r\n", "400", BAD, "as in [2001:db8::1]:443"),
    row("colons", "CONNECT a:b:c:d HTTP/1.1\r\n\r\n", "400", BAD, ""),
    // Konnectivity lets these through to the agent, which fails: 502. What is wrong with them is known before.
    row("no port", "CONNECT host HTTP/1.1\r\n\r\n", "502", BAD, "port"),
    row("empty port", "CONNECT host: HTTP/1.1\r\n\r\n", "502", BAD, "port"),
    row("big port", "CONNECT host:65536 HTTP/1.1\r\n\r\n", "502", BAD, "port"),
    row("no host", "CONNECT :80 HTTP/1.1\r\n\r\n", "502", BAD, "host"),
    row("a path", "CONNECT /foo HTTP/1.1\r\n\r\n", "502", BAD, ""),
];

fn answer(rig: &Rig, request: &str) -> String {
    let mut client = Client::connect(rig);
    client.write_all(request.as_bytes()).unwrap();
    String::from_utf8_lossy(&client.read_to_the_end().0).into_owned()
}

fn check(front: Front, row: &Row, got: &str) {
    let Row { case, theirs, ours, text, .. } = row;
    let what = format!("{front:?}, {case} (Konnectivity: {theirs}): {got:?}");
    assert!(got.starts_with(&format!("HTTP/1.1 {ours}\r\n")), "{what}");
    assert!(got.contains(text), "{text:?} in {what}");
    if *ours == OK {
        assert_eq!(got.matches("\r\n").count(), 2, "no header: {what}");
    } else {
        assert!(got.contains("\r\nConnection: close\r\n"), "{what}");
    }
}

#[test]
fn answers_of_a_server_with_an_agent() {
    let (echo, closed, black) = (echo(), closed(), black());
    for front in Front::ALL {
        let rig = Rig::start_front("rows", front);
        let _agent = rig.agent_up("a1");
        let fill = |text: &str| {
            text.replace("PORT", &echo.to_string())
                .replace("CLOSED", &closed.to_string())
                .replace("BLACK", &black.port.to_string())
        };
        std::thread::scope(|scope| {
            for row in ROWS {
                let (rig, request) = (&rig, fill(row.request));
                scope.spawn(move || {
                    let mut client = Client::connect(rig);
                    client.write_all(request.as_bytes()).unwrap();
                    let mut got = Vec::new();
                    if row.ours == OK {
                        // Before the answer an end would be a client that left.
                        got = vec![0; ESTABLISHED.len()];
                        client.read_exact(&mut got).unwrap();
                        client.half_close();
                    }
                    let (rest, clean) = client.read_to_the_end();
                    assert!(clean, "{front:?}, {}: close_notify under TLS", row.case);
                    got.extend(rest);
                    check(front, row, &String::from_utf8_lossy(&got));
                });
            }
        });
        for (size, fields, status) in
            [(20_000, 1, "431"), (10, 65, "431"), (15_000, 1, "200"), (10, 64, "200")]
        {
            let field = format!("X: {}\r\n", "y".repeat(size));
            let request = format!("CONNECT 127.0.0.1:{echo} HTTP/1.1\r\n{}\r\n", field.repeat(fields));
            let mut client = Client::connect(&rig);
            client.write_all(request.as_bytes()).unwrap();
            let mut got = [0; 13];
            client.read_exact(&mut got).unwrap();
            assert_eq!(got, format!("HTTP/1.1 {status} ").as_bytes(), "{front:?}, {fields} x {size}");
        }
    }
}

/// What the agent is made to do while a dial is pending there.
type Deed = fn(&mut Process);

/// Konnectivity: no agent is 500 at once (ours waits a moment for one, then 503), a lost one 502, a silent one 504
/// if a limit is set (ours has one always), a client that does not finish its head is cut (ours: 408).
#[test]
fn answers_of_a_server_whose_agent_is_not_well() {
    std::thread::scope(|scope| {
        for front in Front::ALL {
            scope.spawn(move || answers_of_an_ill_agent(front));
        }
    });
}

fn answers_of_an_ill_agent(front: Front) {
    let black = black();
    let cases: [(&str, Deed, &str); 2] =
        [("lost", Process::kill, GATEWAY), ("frozen", Process::freeze, "504 Gateway Timeout")];
    let rig = Rig::start_front("ill", front);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let got = answer(&rig, "CONNECT 127.0.0.1:1 HTTP/1.1\r\n");
            assert!(got.starts_with("HTTP/1.1 408 Request Timeout\r\n"), "{front:?}: {got}");
        });
        scope.spawn(|| {
            let got = answer(&rig, "CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n");
            assert!(got.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{front:?}: {got}");
            assert!(got.contains("no agent is connected"), "{got}");
        });
    });
    for (case, deed, status) in cases {
        let mut agent = rig.agent_up(case);
        let mut client = Client::ask(&rig, &format!("127.0.0.1:{}", black.port));
        client.flush().unwrap();
        rig.wait_status("a pending dial", |status| status.contains("\"pending_dials\": 1,"));
        deed(&mut agent);
        let got = client.read_to_the_end().0;
        let got = String::from_utf8_lossy(&got);
        assert!(got.starts_with(&format!("HTTP/1.1 {status}\r\n")), "{front:?}, {case}: {got}");
        drop(agent);
        rig.wait_status("no link", |status| status.contains("\"links\": 0,"));
    }
}

/// The agent is out of room: 503, as Konnectivity says of "too many open files".
#[test]
fn an_agent_without_room_is_503() {
    let rig = Rig::start_front("room", Front::Unix);
    let _agent = rig.agent_with_args("a1", &["--max-tunnels=1"]);
    let port = echo();
    let _only = wait_for("a tunnel", || {
        let mut client = Client::ask(&rig, &format!("127.0.0.1:{port}"));
        let mut head = [0; 12];
        client.read_exact(&mut head).ok()?;
        (&head == b"HTTP/1.1 200").then_some(client)
    });
    let got = answer(&rig, &format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\n"));
    assert!(got.starts_with("HTTP/1.1 503 Service Unavailable\r\n"), "{got}");
}

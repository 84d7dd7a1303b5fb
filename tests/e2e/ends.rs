//! How a tunnel ends, on each frontend: who ends first, in which way, and what the other one sees.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{Receiver, channel};

use crate::front::{Client, Front};
use crate::rig::{Rig, target};

const BULK: usize = 300_000;

/// What a target did with its connection: how much it read, and whether the end of that was clean.
type Seen = Receiver<(usize, bool)>;

/// A target that runs `play` and tells what it returns.
fn actor(play: fn(&mut TcpStream) -> (usize, bool)) -> (u16, Seen) {
    let (tell, told) = channel();
    let port = target(move |mut conn| {
        let _nobody_asks = tell.send(play(&mut conn));
    });
    (port, told)
}

fn read_all(conn: &mut TcpStream) -> (usize, bool) {
    let mut all = Vec::new();
    let clean = conn.read_to_end(&mut all).is_ok();
    (all.len(), clean)
}

struct Case {
    name: &'static str,
    target: fn(&mut TcpStream) -> (usize, bool),
    /// Plays the client; returns what it read, and whether the end was clean.
    client: fn(Client) -> (Vec<u8>, bool),
    /// What the client must have seen, on the Unix socket and under TLS.
    client_sees: [(&'static [u8], bool); 2],
    /// What the target must have seen.
    target_sees: (usize, bool),
}

const CASES: &[Case] = &[
    Case {
        name: "the client ends first, the answer comes after it",
        target: |conn| {
            let seen = read_all(conn);
            conn.write_all(b"answer").unwrap();
            seen
        },
        client: |mut client| {
            client.write_all(&[1; BULK]).unwrap();
            client.half_close();
            client.read_to_the_end()
        },
        client_sees: [(b"answer", true); 2],
        target_sees: (BULK, true),
    },
    Case {
        name: "the target ends first, the upload goes on",
        target: |conn| {
            conn.write_all(b"hello").unwrap();
            conn.shutdown(Shutdown::Write).unwrap();
            read_all(conn)
        },
        client: |mut client| {
            let seen = client.read_to_the_end();
            client.write_all(&[2; BULK]).unwrap();
            client.half_close();
            seen
        },
        client_sees: [(b"hello", true); 2],
        target_sees: (BULK, true),
    },
    Case {
        name: "the client closes, all it sent arrives",
        target: read_all,
        client: |mut client| {
            client.write_all(&[3; BULK]).unwrap();
            client.half_close();
            (Vec::new(), true)
        },
        client_sees: [(b"", true); 2],
        target_sees: (BULK, true),
    },
    Case {
        name: "the target closes at once behind its last byte",
        target: |conn| {
            let _request = conn.read(&mut [0; 1]);
            conn.write_all(b"last").unwrap();
            (0, true)
        },
        client: |mut client| {
            client.write_all(b"x").unwrap();
            client.read_to_the_end()
        },
        client_sees: [(b"last", true); 2],
        target_sees: (0, true),
    },
    Case {
        name: "the target resets: under TLS that is no clean end, a Unix socket can only end",
        target: |conn| {
            let _request = conn.read(&mut [0; 1]);
            socket2::SockRef::from(&*conn).set_linger(Some(std::time::Duration::ZERO)).unwrap();
            (0, true)
        },
        client: |mut client| {
            client.write_all(b"x").unwrap();
            client.read_to_the_end()
        },
        client_sees: [(b"", true), (b"", false)],
        target_sees: (0, true),
    },
    Case {
        name: "the client resets, and leaves something unread: the target sees a reset",
        target: |conn| {
            conn.write_all(&[4; BULK]).unwrap();
            read_all(conn)
        },
        client: |mut client| {
            client.read_exact(&mut [0; 10]).unwrap();
            client.reset();
            (Vec::new(), true)
        },
        client_sees: [(b"", true); 2],
        target_sees: (0, false),
    },
    Case {
        name: "both end at the same time",
        target: |conn| {
            conn.write_all(b"bye").unwrap();
            conn.shutdown(Shutdown::Write).unwrap();
            read_all(conn)
        },
        client: |mut client| {
            client.write_all(b"bye!").unwrap();
            client.half_close();
            client.read_to_the_end()
        },
        client_sees: [(b"bye", true); 2],
        target_sees: (4, true),
    },
];

#[test]
fn every_end_is_passed_on_as_it_is_on_each_frontend() {
    for (column, front) in Front::ALL.into_iter().enumerate() {
        let rig = Rig::start_front("ends", front);
        let _agent = rig.agent_up("a1");
        for case in CASES {
            let (port, told) = actor(case.target);
            let (bytes, clean) = (case.client)(Client::dial(&rig, port));
            let (name, wanted) = (case.name, case.client_sees[column]);
            assert_eq!((&bytes[..], clean), wanted, "the client, {front:?}: {name}");
            assert_eq!(told.recv().unwrap(), case.target_sees, "the target, {front:?}: {name}");
        }
        rig.wait_status("an idle server", |status| status.contains("\"tunnels\": 0,"));
    }
}

#[test]
fn a_tls_client_that_ends_without_close_notify_was_cut() {
    let rig = Rig::start_front("cut", Front::Tls);
    let _agent = rig.agent_up("a1");
    let (port, told) = actor(read_all);
    let mut client = Client::dial(&rig, port);
    client.write_all(&[5; 1000]).unwrap();
    client.flush().unwrap();
    let Client::Tls(tls) = &client else { unreachable!() };
    tls.sock.shutdown(Shutdown::Both).unwrap();
    assert_eq!(told.recv().unwrap(), (1000, false), "what came is delivered, then the cut is passed on");
}

//! The real binary, real sockets, real TLS. Outcomes and order only, under generous bounds: figures are the
//! business of `scripts/check-tunnel`, which runs the same at full size.

#![expect(clippy::unwrap_used, reason = "a test says by panicking what failed")]

mod contract;
mod crowds;
mod drain;
mod ends;
mod front;
mod rig;
mod tls;
mod tokens;

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::mpsc;

use rig::{ESTABLISHED, Rig, echo, get, number, read_text, target, wait_for};

/// What `offset` of a pattern holds: a lost, doubled or moved byte shows.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|offset| (offset % 251) as u8).collect()
}

#[test]
fn the_tail_of_a_transfer_is_not_lost() {
    let rig = Rig::start("tail");
    let _agent = rig.agent_up("a1");
    // Upload, then close at once, to a reader that begins late.
    let (tell, told) = mpsc::channel();
    let (open, opened) = mpsc::channel::<()>();
    let opened = std::sync::Mutex::new(opened);
    let late = target(move |mut conn| {
        opened.lock().unwrap().recv().unwrap();
        let mut all = Vec::new();
        conn.read_to_end(&mut all).unwrap();
        tell.send(all).unwrap();
    });
    let mut client = rig.dial(late);
    let writer = std::thread::spawn(move || client.write_all(&pattern(4_000_000)).unwrap());
    open.send(()).unwrap();
    writer.join().unwrap();
    assert_eq!(told.recv().unwrap(), pattern(4_000_000));
    // Download from a target that closes at once.
    let burst = target(|mut conn| conn.write_all(&pattern(4_000_000)).unwrap());
    let mut client = rig.dial(burst);
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    assert_eq!(all, pattern(4_000_000));
}

#[test]
fn the_200_comes_first_and_alone() {
    let rig = Rig::start("first");
    let _agent = rig.agent_up("a1");
    let banner = target(|mut conn| {
        conn.write_all(b"220 banner\r\n").unwrap();
        let _gone = conn.read(&mut [0; 16]);
    });
    // One that is gone as soon as it has spoken.
    let hasty = target(|mut conn| {
        let _byte = conn.read(&mut [0; 1]);
        conn.write_all(b"220 banner\r\n").unwrap();
        socket2::SockRef::from(&conn).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    });
    for port in [banner, hasty].repeat(50) {
        let mut client = rig.ask(&format!("127.0.0.1:{port}"));
        client.write_all(b"x").unwrap();
        if port == hasty {
            // The whole answer and the end of the tunnel are there before the client looks.
            rig.wait_status("the tunnel is over", |status| number(status, "tunnels") == 0);
        }
        let mut bytes = [0; 4096];
        let n = client.read(&mut bytes).unwrap();
        assert_eq!(&bytes[..n], ESTABLISHED);
        let n = client.read(&mut bytes).unwrap();
        assert_eq!(&bytes[..n], b"220 banner\r\n");
    }
}

#[test]
fn resets_pass_and_early_bytes_are_kept() {
    let rig = Rig::start("reset");
    let _agent = rig.agent_up("a1");
    let resetter = target(|mut conn| {
        let _byte = conn.read(&mut [0; 1]);
        socket2::SockRef::from(&conn).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    });
    let mut client = rig.dial(resetter);
    client.write_all(b"x").unwrap();
    assert_eq!(read_text(&mut client), "", "the tunnel ends");
    // A client that closes without reading all is what TCP calls a reset.
    let (tell, told) = mpsc::channel();
    let talker = target(move |mut conn| {
        conn.write_all(&[1; 100_000]).unwrap();
        tell.send(conn.read(&mut [0; 16]).map_err(|error| error.kind())).unwrap();
    });
    let mut client = rig.dial(talker);
    client.read_exact(&mut [0; 10]).unwrap();
    drop(client);
    assert_eq!(told.recv().unwrap(), Err(std::io::ErrorKind::ConnectionReset));
    let port = echo();
    let request = format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nearly");
    let mut client = std::os::unix::net::UnixStream::connect(rig.dir.join("front.sock")).unwrap();
    client.write_all(request.as_bytes()).unwrap();
    let mut answer = vec![0; ESTABLISHED.len() + 5];
    client.read_exact(&mut answer).unwrap();
    assert!(answer.ends_with(b"early"));
}

#[test]
fn answers_and_health() {
    let rig = Rig::start("answers");
    assert!(get(rig.health, "/healthz").ends_with("\r\n\r\nok"));
    let unready = get(rig.health, "/readyz");
    assert!(
        unready.starts_with("HTTP/1.1 500 ") && unready.ends_with("no connection to any proxy agent"),
        "{unready}"
    );
    let no_agent = rig.say(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n");
    assert!(no_agent.starts_with("HTTP/1.1 503 "), "{no_agent}");
    let _agent = rig.agent_up("a1");
    assert!(get(rig.health, "/readyz").starts_with("HTTP/1.1 200 "));
    assert!(get(rig.admin, "/nothing").starts_with("HTTP/1.1 404 "));
    let closed = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    let refused = rig.say(format!("CONNECT 127.0.0.1:{closed} HTTP/1.1\r\n\r\n").as_bytes());
    assert!(refused.starts_with("HTTP/1.1 502 ") && refused.contains("refused"), "{refused}");
    for (request, status) in [
        ("CONNECT ::1:9999 HTTP/1.1\r\n\r\n", "400"),
        ("CONNECT nosuch.invalid:80 HTTP/1.1\r\n\r\n", "502"),
        ("GET / HTTP/1.1\r\n\r\n", "405"),
        ("\x16\x03\x01\x02\x00\x01\x00\x01", "400"),
    ] {
        let answer = rig.say(request.as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:?}: {answer}");
    }
    let long = format!("CONNECT x:1 HTTP/1.1\r\nX: {}\r\n\r\n", "y".repeat(20_000));
    assert!(rig.say(long.as_bytes()).starts_with("HTTP/1.1 431 "));
    let metrics = get(rig.admin, "/metrics");
    for name in ["ready_backends{proxy_strategy=\"default\"} 1", "dial_failure_count{reason=\"no_agent\"} 1"]
    {
        assert!(
            metrics.contains(&format!("konnectivity_network_proxy_server_{name}")),
            "{name} in {metrics}"
        );
    }
}

#[test]
fn after_many_dials_and_killed_clients_all_is_as_it_was() {
    let rig = Rig::start("many");
    let agent = rig.agent_up("a1");
    let port = echo();
    drop(rig.dial(port));
    let idle = |status: &str| {
        ["frontends", "pending_dials", "tunnels", "streams", "window_bytes"]
            .iter()
            .all(|name| number(status, name) == 0)
    };
    rig.wait_status("an idle server", idle);
    let descriptors =
        wait_for("settled descriptors", || Some((rig.server.descriptors(), agent.descriptors())));
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for _ in 0..50 {
                    let mut client = rig.dial(port);
                    client.write_all(b"ping").unwrap();
                    client.read_exact(&mut [0; 4]).unwrap();
                }
            });
        }
    });
    // Clients that leave while half-open, and while their dial is pending (nobody answers at TEST-NET-1, or the
    // network is unreachable: either way the client is gone first or answered).
    for _ in 0..100 {
        rig.dial(port).shutdown(Shutdown::Write).unwrap();
        drop(rig.ask("192.0.2.1:80"));
    }
    rig.wait_status("an idle server", idle);
    wait_for("the descriptors of before", || {
        (rig.server.descriptors() <= descriptors.0 && agent.descriptors() <= descriptors.1).then_some(())
    });
}

#[test]
fn an_agent_that_is_killed_costs_its_tunnels_and_nothing_else() {
    let rig = Rig::start("kill");
    let mut first = rig.agent_up("a1");
    let port = echo();
    let mut tunnels: Vec<_> = (0..10).map(|_| rig.dial(port)).collect();
    let _second = rig.agent_up("a2");
    first.kill();
    for tunnel in &mut tunnels {
        assert_eq!(read_text(tunnel), "");
    }
    for _ in 0..20 {
        rig.dial(port);
    }
}

#[test]
fn an_agent_comes_back_to_a_server_that_was_restarted() {
    let mut rig = Rig::start("restart");
    let _agent = rig.agent_up("a1");
    rig.restart_server();
    rig.wait_status("the agent is back", |status| number(status, "links") == 1 && status.contains("alive"));
    rig.dial(echo());
}

#[test]
fn one_stalled_stream_stops_nobody_else() {
    let rig = Rig::start("stall");
    let _agent = rig.agent_up("a1");
    let flood = target(|mut conn| while conn.write_all(&[7; 65536]).is_ok() {});
    let _stalled_reader = rig.dial(flood);
    let (hold, held) = mpsc::channel::<()>();
    let held = std::sync::Mutex::new(held);
    let deaf = target(move |_conn| {
        let _until_the_end = held.lock().unwrap().recv();
    });
    let mut uploader = rig.dial(deaf);
    uploader.set_nonblocking(true).unwrap();
    while uploader.write(&[8; 65536]).is_ok() {}
    let mut client = rig.dial(echo());
    for _ in 0..200 {
        client.write_all(b"0123456789").unwrap();
        client.read_exact(&mut [0; 10]).unwrap();
    }
    drop(hold);
}

#[test]
fn strangers_are_not_agents() {
    let rig = Rig::start("strangers");
    let other = rig.dir.join("other");
    tautline::cli::certs::write(&other, &tautline::cli::certs::CertOptions::default()).unwrap();
    let stranger = rig.agent_with("stranger", "other");
    stranger.logged("msg=\"no link to the server\"");
    rig.server.logged("msg=\"agent not taken\"");
    assert_eq!(number(&rig.status(), "links"), 0);
    let refused = std::process::Command::new(env!("CARGO_BIN_EXE_tautline"))
        .args(["server", "--uds-name=/tmp/tautline-never.sock", "--server-port=0"])
        .arg(format!("--cluster-cert={}", rig.dir.join("certs/server.crt").display()))
        .arg(format!("--cluster-key={}", rig.dir.join("certs/server.key").display()))
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&refused.stderr).contains("--insecure-agents"));
}

//! Many who say nothing, at each door: those who have something to say get in.

use std::io::{Read, Write};
use std::net::TcpStream;

use crate::front::{Client, Front};
use crate::rig::{Rig, echo, get, wait_for};

fn crowd(port: u16, count: usize) -> Vec<TcpStream> {
    (0..count).map(|_| TcpStream::connect(("127.0.0.1", port)).unwrap()).collect()
}

#[test]
fn silent_probes_and_strangers_keep_nobody_out() {
    let rig = Rig::start_front("crowd", Front::Tls);
    let _agent = rig.agent_up("a1");
    let before = rig.server.descriptors();
    let _silent = [rig.health, rig.admin, rig.agents_port].map(|port| crowd(port, 300));
    assert!(get(rig.health, "/readyz").ends_with("\r\n\r\nok"));
    assert!(rig.status().contains("\"agent\": \"a1\""));
    // Behind the same address as 300 silent ones.
    let _another = rig.agent_up("a2");
    let port = echo();
    let mut client = Client::dial(&rig, port);
    client.write_all(b"ping").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
    let held = rig.server.descriptors() - before;
    assert!(held < 256 + 2 * 32 + 10, "{held} descriptors for 900 silent connections");
    let metrics = get(rig.admin, "/metrics");
    for what in ["probes", "unauthenticated_links"] {
        assert!(metrics.contains(&format!("limit=\"{what}\"")), "{what} in {metrics}");
    }
}

/// 4 MiB of metrics that nobody reads cost their connection, and at most so many.
#[test]
fn scrapers_that_do_not_read_are_bounded() {
    let rig = Rig::start_front("scrape", Front::Unix);
    let mut deaf = crowd(rig.admin, 300);
    for client in &mut deaf {
        // It may be gone already.
        let _gone = client.write_all(b"GET /metrics HTTP/1.1\r\n\r\n");
    }
    wait_for("bounded connections", || (rig.server.descriptors() < 64 + 30).then_some(()));
    assert!(get(rig.health, "/healthz").ends_with("ok"));
}

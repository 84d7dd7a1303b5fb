//! SIGTERM: one is enough, and it costs nobody a dial or a tunnel.

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;

use crate::front::Front;
use crate::rig::{Rig, echo, get, number, wait_for};

fn says_hello(tunnel: &mut UnixStream) -> bool {
    let mut back = [0; 5];
    tunnel.write_all(b"hello").is_ok() && tunnel.read_exact(&mut back).is_ok() && &back == b"hello"
}

#[test]
fn agents_that_end_one_by_one_cost_no_dial_and_no_tunnel() {
    let rig = Rig::start("drain-agents");
    let port = echo();
    let mut agents: Vec<_> = ["a1", "a2", "a3"].into_iter().map(|id| rig.agent_up(id)).collect();
    let mut tunnels: Vec<_> = (0..12).map(|_| rig.dial(port)).collect();
    for mut agent in agents.drain(..2) {
        let health = agent.port("health");
        agent.terminate();
        agent.logged("msg=\"agent drains\"");
        assert!(!get(health, "/readyz").starts_with("HTTP/1.1 200"));
        for _ in 0..20 {
            assert!(says_hello(&mut rig.dial(port)));
        }
        assert!(tunnels.iter_mut().all(says_hello));
        tunnels = tunnels
            .drain(..)
            .map(|old| {
                drop(old);
                rig.dial(port)
            })
            .collect();
        assert_eq!(agent.wait_end(), Some(0));
    }
    assert_eq!(number(&rig.status(), "links"), 1);
    // The last one still serves.
    let mut last = agents.pop().unwrap();
    last.terminate();
    last.logged("msg=\"agent drains\"");
    assert!(says_hello(&mut rig.dial(port)));
    drop(tunnels);
    assert_eq!(last.wait_end(), Some(0));
}

#[test]
fn a_server_with_patience_keeps_its_tunnels_and_a_second_signal_ends_it() {
    for second_signal in [false, true] {
        let mut rig = Rig::start_with("drain-server", Front::Unix, &["--graceful-shutdown-timeout=60s"]);
        let _agent = rig.agent_up("a1");
        let mut tunnel = rig.dial(echo());
        assert!(get(rig.health, "/readyz").starts_with("HTTP/1.1 200"));
        rig.server.terminate();
        wait_for("not ready", || {
            Some(()).filter(|()| !get(rig.health, "/readyz").starts_with("HTTP/1.1 200"))
        });
        assert!(says_hello(&mut tunnel));
        if second_signal {
            rig.server.terminate();
            assert_eq!(tunnel.read(&mut [0; 8]).unwrap_or(0), 0);
        } else {
            drop(tunnel);
        }
        assert_eq!(rig.server.wait_end(), Some(0));
        assert!(!rig.dir.join("front.sock").exists());
    }
}

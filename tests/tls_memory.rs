//! What an idle TLS connection keeps on the heap: no record buffers, so a few KiB.
//!
//! Alone in its process, because it counts every allocation.
#![expect(clippy::unwrap_used, reason = "a test may panic")]
#![expect(unsafe_code, reason = "a global allocator that counts cannot be written without")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use tautline::net::tls::{
    ALPN_LINK, ClientTls, ClientTlsOptions, ServerTls, ServerTlsOptions, Tls, WallClock, server_name,
};

static LIVE: AtomicUsize = AtomicUsize::new(0);

struct Counting;

// SAFETY: every call goes to the system's allocator unchanged; the counter has no influence on it.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        LIVE.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller's contract is passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: as above.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

const CONNECTIONS: usize = 50;

/// Writes a CA and one certificate of it, for both sides.
fn write_certificates(folder: &Path) {
    let mut params = CertificateParams::new(Vec::new()).unwrap();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let ca_key = KeyPair::generate().unwrap();
    std::fs::write(folder.join("ca.pem"), params.self_signed(&ca_key).unwrap().pem()).unwrap();
    let ca = Issuer::new(params, ca_key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["server.example".to_owned()]).unwrap();
    std::fs::write(folder.join("leaf.pem"), leaf.signed_by(&key, &ca).unwrap().pem()).unwrap();
    std::fs::write(folder.join("leaf.key"), key.serialize_pem()).unwrap();
}

fn hear(tls: &mut Tls, input: &mut Vec<u8>, out: &mut Vec<u8>) -> usize {
    let mut plain_len = 0;
    let received = tls
        .receive(input, out, |chunk| {
            plain_len += chunk.len();
            ControlFlow::Continue(())
        })
        .unwrap();
    assert_eq!(received.consumed, input.len());
    input.clear();
    plain_len
}

/// A pair after the handshake and, if asked, 1 MiB each way. The queues are shared, as the loop's are.
fn idle_pair(client: &ClientTls, server: &ServerTls, queues: &mut [Vec<u8>; 2], traffic: bool) -> [Tls; 2] {
    let mut ends =
        [Tls::client(client, server_name("server.example").unwrap()).unwrap(), Tls::server(server).unwrap()];
    let [to_server, to_client] = queues;
    ends[0].start(to_server).unwrap();
    while !to_server.is_empty() || !to_client.is_empty() {
        hear(&mut ends[1], to_server, to_client);
        hear(&mut ends[0], to_client, to_server);
    }
    if traffic {
        for _ in 0..16 {
            ends[0].seal(&[1; 65536], to_server).unwrap();
            assert_eq!(hear(&mut ends[1], to_server, to_client), 65536);
            ends[1].seal(&[2; 65536], to_client).unwrap();
            assert_eq!(hear(&mut ends[0], to_client, to_server), 65536);
        }
    }
    assert!(ends.iter().all(|end| !end.is_handshaking()));
    ends
}

#[test]
fn an_idle_connection_keeps_no_record_buffers() {
    let folder = std::env::temp_dir().join(format!("tautline-tls-memory-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    write_certificates(&folder);
    let clock = WallClock::default();
    clock.set(Duration::from_secs(1_748_736_000));
    let path = |name: &str| folder.join(name);
    let server = ServerTlsOptions {
        cert_file: path("leaf.pem"),
        key_file: path("leaf.key"),
        client_ca_file: Some(path("ca.pem")),
        alpn: vec![ALPN_LINK.to_vec()],
        resumption: true,
        ..ServerTlsOptions::default()
    };
    let client = ClientTlsOptions {
        ca_file: path("ca.pem"),
        cert_file: Some(path("leaf.pem")),
        key_file: Some(path("leaf.key")),
        alpn: vec![ALPN_LINK.to_vec()],
        ..ClientTlsOptions::default()
    };
    let server = ServerTls::load(&server, &clock).unwrap();
    let client = ClientTls::load(&client, &clock).unwrap();
    std::fs::remove_dir_all(&folder).unwrap();

    let mut queues = [Vec::new(), Vec::new()];
    for traffic in [false, true] {
        // The first pairs fill what is shared: queues, and the client's sessions up to their bound.
        for _ in 0..12 {
            idle_pair(&client, &server, &mut queues, traffic);
        }
        let (mut clients, mut servers) = (Vec::with_capacity(CONNECTIONS), Vec::with_capacity(CONNECTIONS));
        let empty = LIVE.load(Ordering::Relaxed);
        for _ in 0..CONNECTIONS {
            let [client, server] = idle_pair(&client, &server, &mut queues, traffic);
            clients.push(client);
            servers.push(server);
        }
        let full = LIVE.load(Ordering::Relaxed);
        clients.clear();
        let half = LIVE.load(Ordering::Relaxed);
        let (client_len, server_len) = ((full - half) / CONNECTIONS, (half - empty) / CONNECTIONS);
        eprintln!(
            "heap of an idle connection (traffic before: {traffic}): client {client_len}, server {server_len} bytes"
        );
        assert!(client_len > 500 && server_len > 500, "the count itself is wrong");
        assert!(client_len < 12 * 1024 && server_len < 12 * 1024);
    }
}

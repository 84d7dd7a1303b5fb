//! Connections that work.

use std::io::{Read, Write};
use std::sync::Arc;

use rustls::version::TLS12;
use rustls::{ClientConfig, ServerConfig, ServerConnection};

use super::support::*;
use crate::net::tls::*;

/// A client that speaks TLS 1.2 only, without a certificate.
fn client_of_tls12(world: &World) -> ClientTls {
    let mut tls = world.client();
    let roots = crate::net::tls::pem::read_roots(&world.folder.path("ca.pem")).unwrap();
    let provider = Arc::new(crate::net::tls::suites::provider());
    let config = ClientConfig::builder_with_details(provider, Arc::new(world.clock.clone()))
        .with_protocol_versions(&[&TLS12])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.config = Arc::new(config);
    tls
}

#[test]
fn a_handshake_works_in_any_split() {
    let world = World::new();
    for seed in 0..12_u64 {
        let mut random = Random(seed + 1);
        let (mut client, mut server) = world.pair();
        let most = [1, 2, 7, 100, 2000][seed as usize % 5];
        settle(&mut client, &mut server, || 1 + random.below(most)).unwrap();
        for end in [&client, &server] {
            assert!(!end.tls.is_handshaking());
            assert_eq!((end.handshakes_done, end.unconsumed.len()), (1, 0));
            assert_eq!(end.tls.alpn(), Some(ALPN_LINK));
            assert!(end.tls.parameters().unwrap().starts_with("TLSv1_3 TLS13_"));
        }
        assert_eq!(client.tls.peer_name().as_deref(), Some("system:server.example"));
        assert_eq!(server.tls.peer_name().as_deref(), Some("system:agent.example"));
        assert_eq!(server.tls.peer_not_after_unix_s(), Some(1_893_456_000));
    }
}

#[test]
fn data_in_random_pieces_arrives_whole_both_ways_in_both_versions() {
    let world = World::new();
    let open = ServerTlsOptions { client_ca_file: None, ..world.server_options() };
    let open = ServerTls::load(&open, &world.clock).unwrap();
    for seed in 0..8_u64 {
        let mut random = Random(seed * 77 + 5);
        let old = seed % 2 == 1;
        let (mut client, mut server) = if old { pair(&client_of_tls12(&world), &open) } else { world.pair() };
        settle(&mut client, &mut server, whole).unwrap();
        let version = if old { "TLSv1_2" } else { "TLSv1_3" };
        assert!(server.tls.parameters().unwrap().starts_with(version));

        let (mut sent_up, mut sent_down) = (Vec::new(), Vec::new());
        for _ in 0..20 {
            client.records_per_call = [1, 2, usize::MAX][random.below(3)];
            server.records_per_call = [1, 2, usize::MAX][random.below(3)];
            client.tls.set_record_payload_max([1, 1000, usize::MAX][random.below(3)].max(100));
            let len = random.below(40_000);
            let (up, down) = (random.bytes(len), random.bytes(40_000 - len));
            client.say(&up);
            server.say(&down);
            sent_up.extend_from_slice(&up);
            sent_down.extend_from_slice(&down);
            let most = [50, 3000, 60_000][random.below(3)];
            for _ in 0..30 {
                carry(&mut client, &mut server, random.below(most)).unwrap();
                carry(&mut server, &mut client, random.below(most)).unwrap();
            }
        }
        client.records_per_call = usize::MAX;
        server.records_per_call = usize::MAX;
        settle(&mut client, &mut server, whole).unwrap();
        // What a break left behind is taken without new bytes.
        client.must_hear(&[]);
        server.must_hear(&[]);
        assert!(server.got == sent_up && client.got == sent_down, "seed {seed}");
        assert!(client.unconsumed.is_empty() && server.unconsumed.is_empty());
    }
}

#[test]
fn a_break_takes_one_record_and_leaves_the_rest() {
    let (mut client, mut server) = World::new().pair();
    settle(&mut client, &mut server, whole).unwrap();
    client.tls.set_record_payload_max(10);
    client.say(b"0123456789abcdefghijXYZ");
    server.records_per_call = 1;
    let bytes: Vec<u8> = client.outgoing.drain(..).collect();
    let first = server.hear(&bytes).unwrap();
    assert_eq!(server.got, b"0123456789");
    assert_eq!(first.consumed, 10 + 22);
    assert_eq!(server.unconsumed, bytes[first.consumed..]);
    server.must_hear(&[]);
    assert_eq!(server.got, b"0123456789abcdefghij");
    server.must_hear(&[]);
    assert_eq!(server.got, b"0123456789abcdefghijXYZ");
    assert_eq!(server.hear(&[]).unwrap().consumed, 0);
}

#[test]
fn records_are_as_long_as_asked() {
    let (mut client, mut server) = World::new().pair();
    settle(&mut client, &mut server, whole).unwrap();
    client.tls.set_record_payload_max(usize::MAX);
    client.say(&[7; 40_000]);
    assert_eq!(client.outgoing.len(), 40_000 + 3 * 22);
    client.outgoing.clear();
    client.outgoing.extend_from_slice(b"kept");
    client.tls.set_record_payload_max(4096);
    client.say(&[7; 8192]);
    assert!(client.outgoing.starts_with(b"kept\x17\x03\x03"));
    assert_eq!(client.outgoing.len(), 4 + 8192 + 2 * 22);
    client.outgoing.clear();
    client.say(b"");
    assert!(client.outgoing.is_empty());
}

#[test]
fn each_side_closes_its_own_direction() {
    let (mut client, mut server) = World::new().pair();
    settle(&mut client, &mut server, whole).unwrap();
    client.say(b"last words");
    client.tls.close_notify(&mut client.outgoing).unwrap();
    let closed_len = client.outgoing.len();
    client.tls.close_notify(&mut client.outgoing).unwrap();
    assert_eq!(client.outgoing.len(), closed_len, "a second close_notify was written");
    assert!(matches!(client.tls.seal(b"more", &mut client.outgoing), Err(TlsError::WriteClosed)));
    assert_eq!(client.outgoing.len(), closed_len);

    settle(&mut client, &mut server, || 1).unwrap();
    assert_eq!(server.got, b"last words");
    assert!(server.tls.peer_closed() && !client.tls.peer_closed());
    // Half-closed: the other direction goes on.
    server.say(b"an answer");
    server.say(b" in two parts");
    settle(&mut client, &mut server, || 3).unwrap();
    assert_eq!(client.got, b"an answer in two parts");

    server.tls.close_notify(&mut server.outgoing).unwrap();
    let bytes: Vec<u8> = server.outgoing.drain(..).collect();
    assert!(client.hear(&bytes).unwrap().peer_closed);
    assert!(client.tls.write_closed() && server.tls.write_closed());
}

#[test]
fn what_follows_a_close_notify_is_ignored() {
    let (mut client, mut server) = World::new().pair();
    settle(&mut client, &mut server, whole).unwrap();
    client.tls.close_notify(&mut client.outgoing).unwrap();
    client.outgoing.extend_from_slice(b"garbage that nobody sealed");
    let bytes: Vec<u8> = client.outgoing.drain(..).collect();
    let received = server.hear(&bytes).unwrap();
    assert_eq!((received.consumed, received.peer_closed), (bytes.len(), true));
    let received = server.hear(b"more").unwrap();
    assert_eq!((received.consumed, received.peer_closed), (4, true));
    assert!(server.got.is_empty());
    server.say(b"still sends");
    settle(&mut client, &mut server, whole).unwrap();
    assert_eq!(client.got, b"still sends");
}

#[test]
fn nothing_is_sealed_or_closed_before_the_handshake_ends() {
    let (mut client, mut server) = World::new().pair();
    let hello_len = client.outgoing.len();
    assert!(matches!(client.tls.seal(b"early", &mut client.outgoing), Err(TlsError::Handshaking)));
    client.tls.start(&mut client.outgoing).unwrap();
    assert_eq!(client.outgoing.len(), hello_len);
    // Not an end: the connection goes on.
    settle(&mut client, &mut server, whole).unwrap();
    client.say(b"now");
    settle(&mut client, &mut server, whole).unwrap();
    assert_eq!(server.got, b"now");

    let (mut client, _) = World::new().pair();
    client.outgoing.clear();
    client.tls.close_notify(&mut client.outgoing).unwrap();
    assert!(client.outgoing.is_empty());
}

#[test]
fn the_second_handshake_is_resumed() {
    let world = World::new();
    let (client_tls, server_tls) = (world.client(), world.server());
    for (attempt, resumed) in [false, true, true].into_iter().enumerate() {
        let (mut client, mut server) = pair(&client_tls, &server_tls);
        settle(&mut client, &mut server, whole).unwrap();
        assert_eq!(client.tls.is_resumed(), resumed, "attempt {attempt}");
        assert_eq!(server.tls.is_resumed(), resumed, "attempt {attempt}");
        assert_eq!(server.tls.peer_name().as_deref(), Some("system:agent.example"));
        client.say(b"ping");
        settle(&mut client, &mut server, whole).unwrap();
        assert_eq!(server.got, b"ping");
    }
    // Where resumption is off there are no tickets.
    let off = ServerTlsOptions { resumption: false, ..world.server_options() };
    let (client_tls, server_tls) = (world.client(), ServerTls::load(&off, &world.clock).unwrap());
    for _ in 0..2 {
        let (mut client, mut server) = pair(&client_tls, &server_tls);
        settle(&mut client, &mut server, whole).unwrap();
        assert!(!server.tls.is_resumed());
    }
}

/// A server of rustls's buffered kind, that can do what [`Tls`] never does by itself.
struct Buffered(ServerConnection);

impl Buffered {
    fn new(world: &World, edit: impl FnOnce(&mut ServerConfig)) -> Self {
        let mut config = (*world.server().config).clone();
        edit(&mut config);
        Self(ServerConnection::new(Arc::new(config)).unwrap())
    }

    fn hear(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut got = Vec::new();
        while !bytes.is_empty() {
            self.0.read_tls(&mut bytes).unwrap();
            self.0.process_new_packets().unwrap();
            let _ = self.0.reader().read_to_end(&mut got);
        }
        got
    }

    fn take(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut bytes).unwrap();
        }
        bytes
    }
}

#[test]
fn sealing_works_while_a_handshake_message_is_half_received() {
    let world = World::new();
    // Tickets come after the handshake, here in records of at most 64 bytes.
    let mut peer = Buffered::new(&world, |config| config.max_fragment_size = Some(64));
    let (mut client, _) = world.pair();
    let mut said = Vec::new();
    let mut heard = Vec::new();
    let mut seals_inside = 0;
    for _ in 0..4 {
        heard.extend(peer.hear(&std::mem::take(&mut client.outgoing)));
        for byte in peer.take() {
            client.must_hear(&[byte]);
            if !client.tls.is_handshaking() {
                client.say(&[byte]);
                said.push(byte);
                seals_inside += usize::from(client.unconsumed.len() > 100);
            }
        }
    }
    heard.extend(peer.hear(&std::mem::take(&mut client.outgoing)));
    assert_eq!(said, heard);
    assert!(seals_inside > 100, "only {seals_inside}: the tickets were not cut");
    // Closing is the other way to the same state; nothing is half received now.
    assert!(client.unconsumed.is_empty());
    client.tls.close_notify(&mut client.outgoing).unwrap();
}

#[test]
fn key_updates_are_followed_and_answered() {
    let world = World::new();
    let mut peer = Buffered::new(&world, |_| ());
    let (mut client, _) = world.pair();
    for _ in 0..3 {
        peer.hear(&std::mem::take(&mut client.outgoing));
        client.must_hear(&peer.take());
    }
    for round in 0..4_u8 {
        peer.0.refresh_traffic_keys().unwrap();
        peer.0.writer().write_all(&[round; 3]).unwrap();
        client.must_hear(&peer.take());
        client.say(&[round]);
        assert_eq!(peer.hear(&std::mem::take(&mut client.outgoing)), [round]);
    }
    assert_eq!(client.got, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]);
    client.tls.close_notify(&mut client.outgoing).unwrap();
    peer.hear(&std::mem::take(&mut client.outgoing));
}

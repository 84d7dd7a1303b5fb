//! Connections that must not work, and what they say.

use super::support::*;
use crate::net::tls::*;

/// Runs both ends dry and gives how each ended; alerts of a failed end still reach the other.
fn fates(client: &mut End, server: &mut End) -> [Option<TlsError>; 2] {
    let mut fates = [None, None];
    while !client.outgoing.is_empty() || !server.outgoing.is_empty() {
        if let Err(error) = carry(client, server, usize::MAX) {
            fates[1].get_or_insert(error);
        }
        if let Err(error) = carry(server, client, usize::MAX) {
            fates[0].get_or_insert(error);
        }
    }
    fates
}

fn expect_fates(client: &ClientTls, server: &ServerTls, wanted: [&str; 2], words: &str) {
    let (mut client, mut server) = pair(client, server);
    let fates = fates(&mut client, &mut server);
    let reasons = fates.each_ref().map(|fate| fate.as_ref().map_or("none", TlsError::reason));
    assert_eq!(reasons, wanted, "{fates:?}");
    let texts = fates.map(|fate| fate.map(|error| error.to_string()).unwrap_or_default());
    assert!(texts.iter().any(|text| text.contains(words)), "{texts:?}");
    assert!(client.got.is_empty() && server.got.is_empty());
}

#[test]
fn a_client_of_another_ca_is_refused() {
    let world = World::new();
    let other = world.folder.ca("other");
    world.folder.leaf(&other, "stranger.example");
    let options = ClientTlsOptions {
        cert_file: Some(world.folder.path("stranger.example.pem")),
        key_file: Some(world.folder.path("stranger.example.key")),
        ..world.client_options()
    };
    let client = ClientTls::load(&options, &world.clock).unwrap();
    let wanted = ["refused_by_peer", "unknown_issuer"];
    expect_fates(&client, &world.server(), wanted, "it does not know the CA of our certificate");
}

#[test]
fn a_client_without_a_certificate_is_refused_where_one_is_required() {
    let world = World::new();
    let options = ClientTlsOptions { cert_file: None, key_file: None, ..world.client_options() };
    let client = ClientTls::load(&options, &world.clock).unwrap();
    let wanted = ["refused_by_peer", "no_certificate"];
    expect_fates(&client, &world.server(), wanted, "it requires a certificate");

    let open = ServerTlsOptions { client_ca_file: None, ..world.server_options() };
    let open = ServerTls::load(&open, &world.clock).unwrap();
    let (mut client, mut server) = pair(&client, &open);
    settle(&mut client, &mut server, whole).unwrap();
    assert_eq!((server.handshakes_done, server.tls.peer_name()), (1, None));
}

#[test]
fn certificates_end_with_the_injected_time() {
    let world = World::new();
    let later = WallClock::default();
    later.set(LATER);
    let (client_now, server_now) = (world.client(), world.server());
    let client_later = ClientTls::load(&world.client_options(), &later).unwrap();
    let server_later = ServerTls::load(&world.server_options(), &later).unwrap();
    let wanted = ["refused_by_peer", "certificate_expired"];
    expect_fates(&client_now, &server_later, wanted, "valid until 2030-01-01 00:00:00 UTC, it is 2035");
    let wanted = ["certificate_expired", "refused_by_peer"];
    expect_fates(&client_later, &server_now, wanted, "our certificate is expired");
    let early = WallClock::default();
    early.set(std::time::Duration::from_secs(1_600_000_000));
    let client_early = ClientTls::load(&world.client_options(), &early).unwrap();
    let wanted = ["certificate_not_valid_yet", "refused_by_peer"];
    expect_fates(&client_early, &server_now, wanted, "check the clocks");
    let unset = ClientTls::load(&world.client_options(), &WallClock::default()).unwrap();
    let (mut client, mut server) = pair(&unset, &server_now);
    let [fate, _] = fates(&mut client, &mut server);
    assert!(fate.unwrap().to_string().contains("the wall clock was not set"));
}

#[test]
fn a_resumed_session_ends_with_its_certificate() {
    let world = World::new();
    let (client_tls, server_tls) = (world.client(), world.server());
    // 2029-12-31 20:00, tickets live for hours, the certificates end at midnight.
    world.clock.set(std::time::Duration::from_secs(1_893_456_000 - 4 * 3600));
    let (mut client, mut server) = pair(&client_tls, &server_tls);
    settle(&mut client, &mut server, whole).unwrap();
    let (mut client, mut server) = pair(&client_tls, &server_tls);
    settle(&mut client, &mut server, whole).unwrap();
    assert!(server.tls.is_resumed());

    world.clock.set(std::time::Duration::from_secs(1_893_456_000 + 3600));
    let (mut client, mut server) = pair(&client_tls, &server_tls);
    let [client_fate, _] = fates(&mut client, &mut server);
    assert!(client.tls.is_resumed());
    assert_eq!(client_fate.unwrap().reason(), "certificate_expired");
    assert_eq!(server.handshakes_done, 0);
}

#[test]
fn a_server_of_another_name_or_ca_is_refused() {
    let world = World::new();
    let other = world.folder.ca("other");
    let mut client = End::new(Tls::client(&world.client(), server_name("10.0.0.7").unwrap()).unwrap());
    client.tls.start(&mut client.outgoing).unwrap();
    let mut server = End::new(Tls::server(&world.server()).unwrap());
    let [client_fate, server_fate] = fates(&mut client, &mut server);
    let text = client_fate.unwrap().to_string();
    assert!(text.contains("wanted \"10.0.0.7\"") && text.contains(NAME), "{text}");
    assert_eq!(server_fate.unwrap().reason(), "refused_by_peer");

    world.folder.leaf(&other, NAME); // overwrites the server's files
    let wanted = ["unknown_issuer", "refused_by_peer"];
    expect_fates(&world.client(), &world.server(), wanted, "not signed by a CA of our CA file");
}

#[test]
fn alpn_may_be_absent_on_either_side_but_not_foreign() {
    let world = World::new();
    let client = |alpn: &[&[u8]]| {
        let alpn = alpn.iter().map(|name| name.to_vec()).collect();
        ClientTls::load(&ClientTlsOptions { alpn, ..world.client_options() }, &world.clock).unwrap()
    };
    let server = |alpn: &[&[u8]]| {
        let alpn = alpn.iter().map(|name| name.to_vec()).collect();
        ServerTls::load(&ServerTlsOptions { alpn, ..world.server_options() }, &world.clock).unwrap()
    };
    for (offered, taken, agreed) in [
        (&[][..], &[ALPN_LINK][..], None),
        (&[ALPN_LINK], &[], None),
        (&[b"x", ALPN_LINK], &[b"front", ALPN_LINK], Some(ALPN_LINK)),
        (&[b"h2", ALPN_HTTP], &[ALPN_HTTP], Some(ALPN_HTTP)),
    ] {
        let (mut client, mut server) = pair(&client(offered), &server(taken));
        settle(&mut client, &mut server, whole).unwrap();
        assert_eq!((client.tls.alpn(), server.tls.alpn()), (agreed, agreed));
    }
    let wanted = ["refused_by_peer", "alpn_mismatch"];
    expect_fates(&client(&[b"h2"]), &server(&[ALPN_LINK]), wanted, "ALPN mismatch");
}

#[test]
fn no_common_version_is_told_on_both_sides() {
    let world = World::new();
    let new = ServerTlsOptions { min_version: TlsVersion::Tls13, ..world.server_options() };
    let new = ServerTls::load(&new, &world.clock).unwrap();
    let mut server = End::new(Tls::server(&new).unwrap());
    // A ClientHello of TLS 1.2: one cipher suite, signature algorithms, no supported_versions.
    let mut body = vec![3, 3];
    body.extend([7; 32]);
    body.extend([0, 0, 2, 0xc0, 0x2f, 1, 0, 0, 8, 0, 13, 0, 4, 0, 2, 8, 7]);
    let mut hello = vec![22, 3, 1, 0, body.len() as u8 + 4, 1, 0, 0, body.len() as u8];
    hello.extend(body);
    let error = server.hear(&hello).unwrap_err();
    assert_eq!(error.reason(), "version_mismatch", "{error:?}");
    // The alert is protocol_version.
    assert_eq!(server.outgoing, [21, 3, 3, 0, 2, 2, 70]);
    let (mut client, _) = world.pair();
    let text = client.hear(&server.outgoing).unwrap_err().to_string();
    assert!(text.contains("no TLS version that is allowed here"), "{text}");
}

#[test]
fn plain_text_gets_a_name_in_any_split() {
    let world = World::new();
    let server_tls = world.server();
    let request = b"CONNECT node-1:10250 HTTP/1.1\r\nHost: node-1:10250\r\n\r\n";
    for step in [1, 5, 100] {
        let mut server = End::new(Tls::server(&server_tls).unwrap());
        let error = request.chunks(step).find_map(|piece| server.hear(piece).err()).unwrap();
        assert!(error.to_string().contains("does not speak TLS: looks like an HTTP request"), "{error}");
        assert_eq!(error.reason(), "not_tls");
        assert_eq!(server.outgoing.first(), Some(&21), "no alert");
        // The error stays, and nothing more is said.
        let said_len = server.outgoing.len();
        assert_eq!(server.hear(b"x").unwrap_err().reason(), "not_tls");
        assert!(server.tls.seal(b"x", &mut server.outgoing).is_err());
        server.tls.close_notify(&mut server.outgoing).unwrap();
        assert_eq!(server.outgoing.len(), said_len);
    }
    let (mut client, _) = world.pair();
    let error = client.hear(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap_err();
    assert!(error.to_string().contains("HTTP response"), "{error}");
}

#[test]
fn garbage_never_panics_and_always_ends() {
    let world = World::new();
    let (client_tls, server_tls) = (world.client(), world.server());
    for seed in 1..200_u64 {
        let mut random = Random(seed * 1_000_003);
        let (mut client, mut server) = pair(&client_tls, &server_tls);
        // The client's bytes with one changed, before or after the end of the handshake.
        let mut failed = false;
        let spoil_at = random.below(2500);
        let mut sent_len = 0;
        for _ in 0..6 {
            let mut bytes = std::mem::take(&mut client.outgoing);
            if let Some(byte) = spoil_at.checked_sub(sent_len).and_then(|at| bytes.get_mut(at)) {
                *byte ^= 1 << random.below(8);
            }
            sent_len += bytes.len();
            failed |= server.hear(&bytes).is_err();
            let bytes = std::mem::take(&mut server.outgoing);
            failed |= client.hear(&bytes).is_err();
            if !client.tls.is_handshaking() && !failed {
                client.say(&[1; 300]);
            }
            assert!(server.unconsumed.len() < UNCONSUMED_MAX && client.unconsumed.len() < UNCONSUMED_MAX);
        }
        assert!(server.got.iter().all(|byte| *byte == 1), "changed data came through");
        assert!(failed || spoil_at >= sent_len || server.unconsumed.len() > 5, "seed {seed}: not noticed");
    }
}

#[test]
fn a_changed_record_is_refused() {
    let (mut client, mut server) = World::new().pair();
    settle(&mut client, &mut server, whole).unwrap();
    client.say(b"attack at dawn");
    client.outgoing[9] ^= 1;
    let bytes = std::mem::take(&mut client.outgoing);
    let error = server.hear(&bytes).unwrap_err();
    assert_eq!(error.reason(), "protocol");
    assert!(server.got.is_empty());
    let alert = std::mem::take(&mut server.outgoing);
    assert_eq!(client.hear(&alert).unwrap_err().reason(), "refused_by_peer");
}

#[test]
fn a_handshake_message_in_tiny_records_meets_a_bound() {
    let mut server = End::new(Tls::server(&World::new().server()).unwrap());
    // A ClientHello of 60 000 bytes, one byte a record.
    let mut message = vec![1, 0, 0xea, 0x60];
    message.resize(60_000, 0);
    let mut error = None;
    for byte in message {
        match server.hear(&[22, 3, 1, 0, 1, byte]) {
            Ok(_) => assert!(server.unconsumed.len() < UNCONSUMED_MAX),
            Err(found) => {
                error = Some(found);
                break;
            }
        }
    }
    assert!(matches!(error, Some(TlsError::TooFragmented)), "{error:?}");
}

#[test]
fn oversized_and_empty_records_are_refused_by_their_header() {
    let world = World::new();
    for header in [[22, 3, 3, 0xff, 0xff], [22, 3, 3, 0, 0], [99, 3, 3, 0, 9], [22, 9, 3, 0, 9]] {
        let mut server = End::new(Tls::server(&world.server()).unwrap());
        server.hear(&header).unwrap_err();
        assert_eq!(server.outgoing.first(), Some(&21), "no alert for {header:?}");
    }
}

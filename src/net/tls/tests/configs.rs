//! Files that make a configuration, and those that do not.

use std::fs;

use super::support::*;
use crate::net::tls::*;

fn with_ca(world: &World, text: impl AsRef<[u8]>) -> Result<ClientTls, ConfigError> {
    let ca_file = world.folder.write("bundle.pem", text);
    ClientTls::load(&ClientTlsOptions { ca_file, ..world.client_options() }, &world.clock)
}

#[test]
fn bundles_may_have_several_cas_crlf_comments_and_no_last_newline() {
    let world = World::new();
    world.folder.ca("other");
    let (ca, other) = (world.folder.path("ca.pem"), world.folder.path("other.pem"));
    let (ca, other) = (fs::read_to_string(ca).unwrap(), fs::read_to_string(other).unwrap());
    let both = format!("# old\n{other}\n# new\nSubject: x\n{ca}");
    for text in [
        both.clone(),
        both.trim_end().to_owned(),
        both.replace('\n', "\r\n"),
        both.replace('\n', "\r\n").trim_end().to_owned(),
    ] {
        let client = with_ca(&world, text).unwrap();
        let (mut client, mut server) = pair(&client, &world.server());
        settle(&mut client, &mut server, whole).unwrap();
        assert_eq!(client.handshakes_done, 1);
    }
}

#[test]
fn a_bad_bundle_names_the_file_and_the_reason() {
    let world = World::new();
    let bundle = world.folder.path("bundle.pem");
    let ca = fs::read_to_string(world.folder.path("ca.pem")).unwrap();
    let key = fs::read_to_string(world.folder.path("agent.example.key")).unwrap();
    let lines: Vec<&str> = ca.lines().collect();
    let not_base64 = ca.replace(lines[1], "!!!!");
    let not_der = format!("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n{ca}");
    let cut = format!("{}\n{ca}", lines[..lines.len() - 1].join("\n"));
    let endless = lines[..lines.len() - 1].join("\n");
    let indented = format!("{ca}{}", ca.replace("-----BEGIN", "  -----BEGIN"));
    let trusted = ca.replace("CERTIFICATE", "TRUSTED CERTIFICATE");
    for (text, words) in [
        (String::new(), "the file is empty"),
        (" \n\r\n".to_owned(), "the file is empty"),
        ("hello\n".to_owned(), "no PEM block in it"),
        (format!("{ca}{key}"), "\"PRIVATE KEY\": a key does not belong here"),
        (format!("{ca}{not_base64}"), "bad PEM block number 2"),
        (not_der, "certificate number 1 in it is bad"),
        (cut, "PEM blocks begin"),
        (endless, "1 PEM blocks begin and 0 end"),
        (indented, "begins inside a line"),
        (format!("{ca}{trusted}"), "TRUSTED CERTIFICATE"),
    ] {
        let reason = refusal(with_ca(&world, &text), &bundle);
        assert!(reason.contains(words), "{reason}, wanted {words}");
    }
    let mut der = vec![0x30, 0x82];
    der.extend([0x11; 20]);
    assert!(refusal(with_ca(&world, der), &bundle).contains("looks like DER"));

    let missing = world.folder.path("missing.pem");
    let options = ClientTlsOptions { ca_file: missing.clone(), ..world.client_options() };
    assert!(refusal(ClientTls::load(&options, &world.clock), &missing).contains("No such file"));
    let options = ServerTlsOptions { client_ca_file: Some(bundle.clone()), ..world.server_options() };
    assert!(refusal(ServerTls::load(&options, &world.clock), &bundle).contains("no PEM block"));
}

#[test]
fn a_key_of_another_certificate_is_found_at_load() {
    let world = World::new();
    let other_key = world.folder.path("agent.example.key");
    let options = ServerTlsOptions { key_file: other_key.clone(), ..world.server_options() };
    let reason = refusal(ServerTls::load(&options, &world.clock), &other_key);
    assert!(reason.contains("does not belong to the certificate in") && reason.contains(NAME), "{reason}");
    let other_key = world.folder.path(&format!("{NAME}.key"));
    let options = ClientTlsOptions { key_file: Some(other_key.clone()), ..world.client_options() };
    let reason = refusal(ClientTls::load(&options, &world.clock), &other_key);
    assert!(reason.contains("does not belong to the certificate in"), "{reason}");
}

#[test]
fn half_an_identity_and_swapped_files_are_errors() {
    let world = World::new();
    let (cert, key) = (world.folder.path("agent.example.pem"), world.folder.path("agent.example.key"));
    let options = ClientTlsOptions { key_file: None, ..world.client_options() };
    assert!(refusal(ClientTls::load(&options, &world.clock), &cert).contains("without its key"));
    let options = ClientTlsOptions { cert_file: None, ..world.client_options() };
    assert!(refusal(ClientTls::load(&options, &world.clock), &key).contains("without its certificate"));
    let swapped = ClientTlsOptions {
        cert_file: Some(key.clone()),
        key_file: Some(cert.clone()),
        ..world.client_options()
    };
    assert!(refusal(ClientTls::load(&swapped, &world.clock), &key).contains("no certificate in it"));
    let encrypted = fs::read_to_string(&key).unwrap().replace("PRIVATE", "ENCRYPTED PRIVATE");
    let file = world.folder.write("encrypted.key", encrypted);
    let options = ClientTlsOptions { key_file: Some(file.clone()), ..world.client_options() };
    assert!(refusal(ClientTls::load(&options, &world.clock), &file).contains("without a passphrase"));
}

#[test]
fn one_file_may_hold_chain_and_key() {
    let world = World::new();
    let read = |name| fs::read_to_string(world.folder.path(name)).unwrap();
    let all = format!("{}{}", read("agent.example.key"), read("agent.example.pem"));
    let file = world.folder.write("all.pem", all);
    let options =
        ClientTlsOptions { cert_file: Some(file.clone()), key_file: Some(file), ..world.client_options() };
    let client = ClientTls::load(&options, &world.clock).unwrap();
    assert_eq!(client.not_after_unix_s, Some(1_893_456_000));
    assert_eq!(world.server().not_after_unix_s, Some(1_893_456_000));
    let (mut client, mut server) = pair(&client, &world.server());
    settle(&mut client, &mut server, whole).unwrap();
    assert_eq!(server.tls.peer_name().as_deref(), Some("system:agent.example"));
}

#[test]
fn names_of_servers_are_names_or_addresses() {
    for good in ["server.example", "10.0.0.1", "2001:db8::1"] {
        assert_eq!(server_name(good).unwrap().to_str(), good);
    }
    for bad in ["", "[2001:db8::1]", "a b", "host:8091"] {
        assert!(server_name(bad).is_err(), "{bad}");
    }
}

#[test]
fn notices_reach_the_caller() {
    let world = World::new();
    let options = ServerTlsOptions {
        min_version: TlsVersion::Tls10,
        cipher_suites: vec![
            "TLS_RSA_WITH_AES_128_CBC_SHA".to_owned(),
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256".to_owned(),
        ],
        ..world.server_options()
    };
    let server = ServerTls::load(&options, &world.clock).unwrap();
    assert_eq!(server.notices.len(), 2, "{:?}", server.notices);
    // TLS 1.3 is not touched by the list.
    let (mut client, mut server) = pair(&world.client(), &server);
    settle(&mut client, &mut server, whole).unwrap();
    assert!(server.tls.parameters().unwrap().starts_with("TLSv1_3"));
}

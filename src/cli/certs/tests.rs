use std::os::unix::fs::PermissionsExt;
use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

use super::*;
use crate::cli::demo::room::Room;

fn chain(path: &Path) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_file_iter(path).unwrap().collect::<Result<_, _>>().unwrap()
}

fn key(path: &Path) -> PrivateKeyDer<'static> {
    PrivateKeyDer::from_pem_file(path).unwrap()
}

fn roots(paths: &CertPaths) -> Arc<RootCertStore> {
    let mut roots = RootCertStore::empty();
    let (added, refused) = roots.add_parsable_certificates(chain(&paths.ca_cert));
    assert_eq!((added, refused), (1, 0));
    Arc::new(roots)
}

/// A handshake in memory with mutual TLS, as the link makes it.
fn handshake(
    (server_paths, server_pair): (&CertPaths, (&Path, &Path)),
    (client_paths, client_pair): (&CertPaths, (&Path, &Path)),
    server_name: &str,
) -> Result<(), rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let verifier = WebPkiClientVerifier::builder_with_provider(roots(server_paths), Arc::clone(&provider));
    let server = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()?
        .with_client_cert_verifier(verifier.build().unwrap())
        .with_single_cert(chain(server_pair.0), key(server_pair.1))?;
    let client = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots(client_paths))
        .with_client_auth_cert(chain(client_pair.0), key(client_pair.1))?;
    let name = ServerName::try_from(server_name.to_owned()).unwrap();
    let mut client = ClientConnection::new(Arc::new(client), name)?;
    let mut server = ServerConnection::new(Arc::new(server))?;
    for _ in 0..10 {
        let mut wire = Vec::new();
        while client.wants_write() {
            client.write_tls(&mut wire).unwrap();
        }
        let mut wire = &wire[..];
        while !wire.is_empty() {
            server.read_tls(&mut wire).unwrap();
            server.process_new_packets()?;
        }
        let mut wire = Vec::new();
        while server.wants_write() {
            server.write_tls(&mut wire).unwrap();
        }
        let mut wire = &wire[..];
        while !wire.is_empty() {
            client.read_tls(&mut wire).unwrap();
            client.process_new_packets()?;
        }
    }
    assert!(!client.is_handshaking() && !server.is_handshaking());
    Ok(())
}

fn server_pair(paths: &CertPaths) -> (&Path, &Path) {
    (&paths.server_cert, &paths.server_key)
}

fn agent_pair(paths: &CertPaths) -> (&Path, &Path) {
    (&paths.agent_cert, &paths.agent_key)
}

#[test]
fn they_work_for_mutual_tls_and_only_for_their_purpose_and_ca() {
    let (room, other_room) = (Room::make().unwrap(), Room::make().unwrap());
    let options =
        CertOptions { hosts: vec!["k8s.example.com".into(), "10.1.2.3".into()], ..CertOptions::default() };
    let paths = write(room.path(), &options).unwrap();
    let other = write(other_room.path(), &CertOptions::default()).unwrap();
    let good = (&paths, server_pair(&paths));
    let client_pair: (&Path, &Path) = (&paths.client_cert, &paths.client_key);

    for name in ["localhost", "127.0.0.1", "::1", "k8s.example.com", "10.1.2.3"] {
        handshake(good, (&paths, agent_pair(&paths)), name).unwrap();
    }
    handshake(good, (&paths, client_pair), "localhost").unwrap();
    assert!(handshake(good, (&paths, agent_pair(&paths)), "other.example.com").is_err(), "another name");
    assert!(handshake(good, (&paths, server_pair(&paths)), "localhost").is_err(), "a server is no client");
    let agent_as_server = (&paths, agent_pair(&paths));
    assert!(
        handshake(agent_as_server, (&paths, agent_pair(&paths)), "localhost").is_err(),
        "an agent is no server"
    );
    assert!(handshake(good, (&paths, agent_pair(&other)), "localhost").is_err(), "agent of another CA");
    assert!(handshake(good, (&other, agent_pair(&paths)), "localhost").is_err(), "server of another CA");
}

#[test]
fn keys_are_private_and_nothing_is_replaced_unasked() {
    let room = Room::make().unwrap();
    let directory = room.path().join("made/on the way");
    let paths = write(&directory, &CertOptions::default()).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().permissions().mode() & 0o777;
    let mut names: Vec<String> = fs::read_dir(&directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    assert_eq!(
        names,
        [
            "agent.crt",
            "agent.key",
            "ca.crt",
            "ca.key",
            "client.crt",
            "client.key",
            "server.crt",
            "server.key"
        ]
    );
    for name in names.iter().filter(|name| name.ends_with(".key")) {
        assert_eq!(mode(&directory.join(name)), 0o600, "{name}");
    }

    let before = fs::read(&paths.server_key).unwrap();
    fs::remove_file(&paths.ca_cert).unwrap();
    assert!(matches!(write(&directory, &CertOptions::default()), Err(CertError::Exists(_))));
    assert!(!paths.ca_cert.exists() && fs::read(&paths.server_key).unwrap() == before, "touched");

    fs::set_permissions(&paths.server_key, fs::Permissions::from_mode(0o644)).unwrap();
    write(&directory, &CertOptions { force: true, ..CertOptions::default() }).unwrap();
    assert!(fs::read(&paths.server_key).unwrap() != before);
    assert_eq!(mode(&paths.server_key), 0o600);
}

#[test]
fn what_cannot_be_made() {
    let room = Room::make().unwrap();
    for days in [0, 3651] {
        assert!(matches!(
            write(room.path(), &CertOptions { days, ..CertOptions::default() }),
            Err(CertError::Days(_))
        ));
    }
    let options = CertOptions { hosts: vec!["h\u{e9}".into()], ..CertOptions::default() };
    assert!(matches!(write(room.path(), &options), Err(CertError::Host(_))));
    assert_eq!(fs::read_dir(room.path()).unwrap().count(), 0, "nothing half done");
    let file = room.path().join("file");
    fs::write(&file, "").unwrap();
    assert!(matches!(write(&file, &CertOptions::default()), Err(CertError::Io(..))));
}

#[test]
fn the_longest_validity_can_be_written() {
    let room = Room::make().unwrap();
    let paths = write(room.path(), &CertOptions { days: 3650, ..CertOptions::default() }).unwrap();
    handshake((&paths, server_pair(&paths)), (&paths, agent_pair(&paths)), "localhost").unwrap();
}

#[test]
fn shell_quoting() {
    assert_eq!(shell_quoted("/a/b-c_1.crt"), "/a/b-c_1.crt");
    assert_eq!(shell_quoted("a b"), "'a b'");
    assert_eq!(shell_quoted("it's"), r"'it'\''s'");
    assert_eq!(shell_quoted(""), "''");
}

//! The same promises on the TCP frontend: mutual TLS, close_notify, half-close, reset.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, mpsc};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::rig::{ESTABLISHED, PATIENCE, Rig, echo, read_text, target};

type Client = StreamOwned<ClientConnection, TcpStream>;

fn connect(rig: &Rig) -> Client {
    let path = |name: &str| rig.dir.join("certs").join(name);
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(path("ca.crt")).unwrap()).unwrap();
    let chain = CertificateDer::pem_file_iter(path("client.crt")).unwrap().map(Result::unwrap).collect();
    let key = PrivateKeyDer::from_pem_file(path("client.key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key)
        .unwrap();
    let tcp = TcpStream::connect(("127.0.0.1", rig.frontend)).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    StreamOwned::new(ClientConnection::new(Arc::new(config), name).unwrap(), tcp)
}

fn dial(rig: &Rig, port: u16) -> Client {
    let mut client = connect(rig);
    client
        .write_all(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes())
        .unwrap();
    // This library may hand over several records in one read, so only the order can be seen here.
    let mut head = vec![0; ESTABLISHED.len()];
    client.read_exact(&mut head).unwrap();
    assert_eq!(head, ESTABLISHED);
    client
}

fn half_close(client: &mut Client) {
    client.conn.send_close_notify();
    client.flush().unwrap();
}

/// All bytes up to close_notify; an end without it is an error.
fn read_to_close_notify(client: &mut Client) -> Vec<u8> {
    let mut all = Vec::new();
    client.read_to_end(&mut all).unwrap();
    all
}

#[test]
fn tls_close_notify_is_a_half_close_both_ways() {
    let rig = Rig::start_tcp("tls-half");
    let _agent = rig.agent_up("a1");
    let counter = target(|mut conn| {
        let mut all = Vec::new();
        conn.read_to_end(&mut all).unwrap();
        conn.write_all(format!("got {}", all.len()).as_bytes()).unwrap();
    });
    let mut client = dial(&rig, counter);
    client.write_all(&[3; 300_000]).unwrap();
    half_close(&mut client);
    assert_eq!(read_to_close_notify(&mut client), b"got 300000");
    // The target ends first: close_notify comes, and the upload goes on.
    let (tell, told) = mpsc::channel();
    let first = target(move |mut conn| {
        conn.write_all(b"hello").unwrap();
        conn.shutdown(Shutdown::Write).unwrap();
        let mut all = Vec::new();
        conn.read_to_end(&mut all).unwrap();
        tell.send(all.len()).unwrap();
    });
    let mut client = dial(&rig, first);
    assert_eq!(read_to_close_notify(&mut client), b"hello");
    client.write_all(&[4; 300_000]).unwrap();
    half_close(&mut client);
    assert_eq!(told.recv().unwrap(), 300_000);
}

#[test]
fn tls_end_without_close_notify_is_a_reset() {
    let rig = Rig::start_tcp("tls-cut");
    let _agent = rig.agent_up("a1");
    let (tell, told) = mpsc::channel();
    let watcher = target(move |mut conn| {
        let mut all = Vec::new();
        let end = conn.read_to_end(&mut all).map_err(|error| error.kind());
        tell.send((all.len(), end.is_err())).unwrap();
    });
    let mut client = dial(&rig, watcher);
    client.write_all(&[5; 1000]).unwrap();
    client.flush().unwrap();
    client.sock.shutdown(Shutdown::Both).unwrap();
    assert_eq!(told.recv().unwrap(), (1000, true), "what came is delivered, then the cut is passed on");
    // And the other way: a target's reset is not a clean end for the client.
    let resetter = target(|mut conn| {
        let _byte = conn.read(&mut [0; 1]);
        socket2::SockRef::from(&conn).set_linger(Some(std::time::Duration::ZERO)).unwrap();
    });
    let mut client = dial(&rig, resetter);
    client.write_all(b"x").unwrap();
    assert!(client.read_to_end(&mut Vec::new()).is_err());
}

#[test]
fn tls_moves_megabytes_both_ways_and_keeps_the_tail() {
    let rig = Rig::start_tcp("tls-bulk");
    let _agent = rig.agent_up("a1");
    let bytes: Vec<u8> = (0..4_000_000u32).map(|offset| (offset % 251) as u8).collect();
    let burst = {
        let bytes = bytes.clone();
        target(move |mut conn| conn.write_all(&bytes).unwrap())
    };
    assert_eq!(read_to_close_notify(&mut dial(&rig, burst)), bytes);
    let (tell, told) = mpsc::channel();
    let sink = target(move |mut conn| {
        let mut all = Vec::new();
        conn.read_to_end(&mut all).unwrap();
        tell.send(all).unwrap();
    });
    let mut client = dial(&rig, sink);
    client.write_all(&bytes).unwrap();
    half_close(&mut client);
    assert_eq!(told.recv().unwrap(), bytes);
    let port = echo();
    let mut client = connect(&rig);
    client.write_all(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nearly").as_bytes()).unwrap();
    let mut answer = vec![0; ESTABLISHED.len() + 5];
    client.read_exact(&mut answer).unwrap();
    assert!(answer.ends_with(b"early"));
}

#[test]
fn tls_answers_are_those_of_the_unix_socket() {
    let rig = Rig::start_tcp("tls-answers");
    let ask = |request: &str| {
        let mut client = connect(&rig);
        client.write_all(request.as_bytes()).unwrap();
        read_text(&mut client)
    };
    assert!(ask("CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 503 "));
    assert!(ask("GET / HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405 "));
    assert!(ask("CONNECT host: HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
    // Plain text on the TLS port: closed, and said so.
    let mut plain = TcpStream::connect(("127.0.0.1", rig.frontend)).unwrap();
    plain.write_all(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n").unwrap();
    assert!(!read_text(&mut plain).contains("HTTP/1.1 200"));
    rig.server.logged("msg=\"client not taken\"");
}

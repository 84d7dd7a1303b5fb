//! What only the TCP frontend with mutual TLS has; what it shares with the Unix socket is in `ends` and `contract`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::mpsc;

use crate::front::{Client, Front};
use crate::rig::{ESTABLISHED, Rig, echo, read_text, target};

#[test]
fn tls_moves_megabytes_both_ways_and_keeps_the_tail() {
    let rig = Rig::start_front("tls-bulk", Front::Tls);
    let _agent = rig.agent_up("a1");
    let bytes: Vec<u8> = (0..4_000_000u32).map(|offset| (offset % 251) as u8).collect();
    let burst = {
        let bytes = bytes.clone();
        target(move |mut conn| conn.write_all(&bytes).unwrap())
    };
    assert_eq!(Client::dial(&rig, burst).read_to_the_end(), (bytes.clone(), true));
    let (tell, told) = mpsc::channel();
    let sink = target(move |mut conn| {
        let mut all = Vec::new();
        conn.read_to_end(&mut all).unwrap();
        tell.send(all).unwrap();
    });
    let mut client = Client::dial(&rig, sink);
    client.write_all(&bytes).unwrap();
    client.half_close();
    assert_eq!(told.recv().unwrap(), bytes);
    let port = echo();
    let mut client = Client::connect(&rig);
    client.write_all(format!("CONNECT 127.0.0.1:{port} HTTP/1.1\r\n\r\nearly").as_bytes()).unwrap();
    let mut answer = vec![0; ESTABLISHED.len() + 5];
    client.read_exact(&mut answer).unwrap();
    assert!(answer.ends_with(b"early"));
}

#[test]
fn plain_text_on_the_tls_port_is_closed_and_said_so() {
    let rig = Rig::start_front("tls-plain", Front::Tls);
    let mut plain = TcpStream::connect(("127.0.0.1", rig.frontend)).unwrap();
    plain.write_all(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n").unwrap();
    assert!(!read_text(&mut plain).contains("HTTP/1.1 200"));
    rig.server.logged("msg=\"client not taken\"");
}

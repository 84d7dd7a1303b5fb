//! A client of either frontend: the Unix socket, or TCP with mutual TLS.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use crate::rig::{ESTABLISHED, PATIENCE, Rig};

/// Where a server takes CONNECT.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Front {
    Unix,
    Tls,
}

impl Front {
    pub(crate) const ALL: [Self; 2] = [Self::Unix, Self::Tls];
}

/// One connection of a client.
pub(crate) enum Client {
    Unix(UnixStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

impl Client {
    pub(crate) fn connect(rig: &Rig) -> Self {
        match rig.front {
            Front::Unix => {
                let client = UnixStream::connect(rig.dir.join("front.sock")).unwrap();
                client.set_read_timeout(Some(PATIENCE)).unwrap();
                Self::Unix(client)
            }
            Front::Tls => Self::Tls(Box::new(connect_tls(rig))),
        }
    }

    /// A CONNECT whose answer was not read yet.
    pub(crate) fn ask(rig: &Rig, target: &str) -> Self {
        let mut client = Self::connect(rig);
        let request = format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
        client.write_all(request.as_bytes()).unwrap();
        client
    }

    /// An open tunnel.
    pub(crate) fn dial(rig: &Rig, port: u16) -> Self {
        let mut client = Self::ask(rig, &format!("127.0.0.1:{port}"));
        // A TLS library may hand over several records in one read, so only the order can be seen here.
        let mut head = vec![0; ESTABLISHED.len()];
        client.read_exact(&mut head).unwrap();
        assert_eq!(head, ESTABLISHED);
        client
    }

    /// No more bytes from us; the other direction stays.
    pub(crate) fn half_close(&mut self) {
        match self {
            Self::Unix(client) => client.shutdown(Shutdown::Write).unwrap(),
            Self::Tls(client) => {
                client.conn.send_close_notify();
                client.flush().unwrap();
            }
        }
    }

    /// Closes with a reset; a Unix socket says so only if something was left unread.
    pub(crate) fn reset(self) {
        if let Self::Tls(client) = &self {
            socket2::SockRef::from(&client.sock).set_linger(Some(Duration::ZERO)).unwrap();
        }
    }

    /// All up to the end, and whether the end was clean (close_notify under TLS).
    pub(crate) fn read_to_the_end(&mut self) -> (Vec<u8>, bool) {
        let mut all = Vec::new();
        let clean = self.read_to_end(&mut all).is_ok();
        (all, clean)
    }
}

impl Read for Client {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(client) => client.read(into),
            Self::Tls(client) => client.read(into),
        }
    }
}

impl Write for Client {
    fn write(&mut self, from: &[u8]) -> std::io::Result<usize> {
        match self {
            Self::Unix(client) => client.write(from),
            Self::Tls(client) => client.write(from),
        }
    }

    fn flush(&mut self) -> std::io::Result<()> {
        match self {
            Self::Unix(client) => client.flush(),
            Self::Tls(client) => client.flush(),
        }
    }
}

fn connect_tls(rig: &Rig) -> StreamOwned<ClientConnection, TcpStream> {
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

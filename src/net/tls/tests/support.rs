//! Certificates in a temporary folder, and two ends joined by byte queues.

use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rcgen::{
    BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, PKCS_ED25519, date_time_ymd,
};

use crate::net::tls::*;

/// 2025-06-01: between the dates of [`Folder::leaf`]'s certificates.
pub(super) const NOW: Duration = Duration::from_secs(1_748_736_000);
/// 2035-06-01: after them.
pub(super) const LATER: Duration = Duration::from_secs(2_064_268_800);
pub(super) const NAME: &str = "server.example";

/// A temporary folder, removed at the end.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("tautline-tls-{}-{count}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub(super) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.path(name)
    }

    /// Writes `<name>.pem` and gives the CA.
    pub(super) fn ca(&self, name: &str) -> Issuer<'static, KeyPair> {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        params.distinguished_name.push(DnType::CommonName, name);
        params.not_after = date_time_ymd(2040, 1, 1);
        let key = key();
        self.write(&format!("{name}.pem"), params.self_signed(&key).unwrap().pem());
        Issuer::new(params, key)
    }

    /// Writes `<name>.pem` and `<name>.key`, valid in 2024 to 2030.
    pub(super) fn leaf(&self, ca: &Issuer<'_, KeyPair>, name: &str) {
        let mut params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        params.distinguished_name.push(DnType::CommonName, format!("system:{name}"));
        params.not_before = date_time_ymd(2024, 1, 1);
        params.not_after = date_time_ymd(2030, 1, 1);
        let key = key();
        self.write(&format!("{name}.pem"), params.signed_by(&key, ca).unwrap().pem());
        self.write(&format!("{name}.key"), key.serialize_pem());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

pub(super) fn key() -> KeyPair {
    // Ed25519 signatures have one length, so the records do too.
    KeyPair::generate_for(&PKCS_ED25519).unwrap()
}

/// One CA, a server and an agent of it, and a clock.
pub(super) struct World {
    pub(super) folder: Folder,
    pub(super) clock: WallClock,
}

impl World {
    pub(super) fn new() -> Self {
        let folder = Folder::new();
        let ca = folder.ca("ca");
        folder.leaf(&ca, NAME);
        folder.leaf(&ca, "agent.example");
        let clock = WallClock::default();
        clock.set(NOW);
        Self { folder, clock }
    }

    pub(super) fn server_options(&self) -> ServerTlsOptions {
        ServerTlsOptions {
            cert_file: self.folder.path(&format!("{NAME}.pem")),
            key_file: self.folder.path(&format!("{NAME}.key")),
            client_ca_file: Some(self.folder.path("ca.pem")),
            alpn: vec![ALPN_LINK.to_vec()],
            resumption: true,
            ..ServerTlsOptions::default()
        }
    }

    pub(super) fn client_options(&self) -> ClientTlsOptions {
        ClientTlsOptions {
            ca_file: self.folder.path("ca.pem"),
            cert_file: Some(self.folder.path("agent.example.pem")),
            key_file: Some(self.folder.path("agent.example.key")),
            min_version: TlsVersion::Tls12,
            alpn: vec![ALPN_LINK.to_vec()],
        }
    }

    pub(super) fn server(&self) -> ServerTls {
        ServerTls::load(&self.server_options(), &self.clock).unwrap()
    }

    pub(super) fn client(&self) -> ClientTls {
        ClientTls::load(&self.client_options(), &self.clock).unwrap()
    }

    /// Both ends, the ClientHello waiting in the client's `outgoing`.
    pub(super) fn pair(&self) -> (End, End) {
        pair(&self.client(), &self.server())
    }
}

pub(super) fn pair(client: &ClientTls, server: &ServerTls) -> (End, End) {
    let mut client = End::new(Tls::client(client, server_name(NAME).unwrap()).unwrap());
    client.tls.start(&mut client.outgoing).unwrap();
    (client, End::new(Tls::server(server).unwrap()))
}

/// One end: its connection, the bytes it has to send, and those it could not consume yet.
pub(super) struct End {
    pub(super) tls: Tls,
    pub(super) outgoing: Vec<u8>,
    pub(super) unconsumed: Vec<u8>,
    pub(super) got: Vec<u8>,
    pub(super) handshakes_done: u32,
    /// Records taken before `plain` breaks.
    pub(super) records_per_call: usize,
}

impl End {
    pub(super) fn new(tls: Tls) -> Self {
        Self {
            tls,
            outgoing: Vec::new(),
            unconsumed: Vec::new(),
            got: Vec::new(),
            handshakes_done: 0,
            records_per_call: usize::MAX,
        }
    }

    pub(super) fn hear(&mut self, bytes: &[u8]) -> Result<Received, TlsError> {
        self.unconsumed.extend_from_slice(bytes);
        let mut records_left = self.records_per_call;
        let received = self.tls.receive(&mut self.unconsumed, &mut self.outgoing, |chunk| {
            assert!(!chunk.is_empty() && chunk.len() <= RECORD_PAYLOAD_MAX);
            assert!(records_left > 0, "plain was called after it broke");
            self.got.extend_from_slice(chunk);
            records_left -= 1;
            if records_left == 0 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        })?;
        self.unconsumed.drain(..received.consumed);
        self.handshakes_done += u32::from(received.handshake_done);
        Ok(received)
    }

    pub(super) fn must_hear(&mut self, bytes: &[u8]) {
        let _ = self.hear(bytes).unwrap();
    }

    pub(super) fn say(&mut self, plaintext: &[u8]) {
        self.tls.seal(plaintext, &mut self.outgoing).unwrap();
    }
}

/// Moves at most `len` bytes.
pub(super) fn carry(from: &mut End, to: &mut End, len: usize) -> Result<(), TlsError> {
    let len = len.min(from.outgoing.len());
    let bytes: Vec<u8> = from.outgoing.drain(..len).collect();
    to.hear(&bytes).map(|_| ())
}

/// Moves everything, in pieces of sizes that `size` gives, until nothing is left.
pub(super) fn settle(a: &mut End, b: &mut End, mut size: impl FnMut() -> usize) -> Result<(), TlsError> {
    while !a.outgoing.is_empty() || !b.outgoing.is_empty() {
        carry(a, b, size())?;
        carry(b, a, size())?;
    }
    Ok(())
}

pub(super) fn whole() -> usize {
    usize::MAX
}

/// A sequence of numbers from a seed (xorshift).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    pub(super) fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}

/// The text of an error of [`ServerTls::load`] or [`ClientTls::load`].
pub(super) fn refusal<T: std::fmt::Debug>(result: Result<T, ConfigError>, file: &Path) -> String {
    let text = result.unwrap_err().to_string();
    assert!(text.starts_with(&format!("{}: ", file.display())), "{text}");
    text
}

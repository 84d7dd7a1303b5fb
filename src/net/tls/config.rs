//! From files and flags to configurations.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustls::client::Resumption;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::{ClientConfig, Error, InconsistentKeys, ServerConfig};

use super::clock::WallClock;
use super::error::ConfigError;
use super::suites::{Choice, TlsVersion, choose, ticketer};
use super::{certificate, pem};

/// Tickets after a full handshake of TLS 1.3. An agent may hold two links to one server, and each ticket
/// serves once.
const TLS13_TICKETS: usize = 2;
/// Sessions an agent remembers; rustls keeps up to 8 for each server name.
const CLIENT_SESSIONS_MAX: usize = 64;

/// What a listener needs. Files are PEM.
#[derive(Clone, Debug, Default)]
pub struct ServerTlsOptions {
    /// Our chain, leaf first.
    pub cert_file: PathBuf,
    /// Its key.
    pub key_file: PathBuf,
    /// CAs of clients. If given, each client must present a certificate of one of them; else none is asked.
    pub client_ca_file: Option<PathBuf>,
    /// Lowest version.
    pub min_version: TlsVersion,
    /// Go's (IANA's) names; they rule TLS 1.2. Empty: all.
    pub cipher_suites: Vec<String>,
    /// Application protocols, best first. A client that offers none is welcome, one that offers only others
    /// is refused. Empty: whatever a client offers is ignored.
    pub alpn: Vec<Vec<u8>>,
    /// Whether clients may resume (links: yes; Go's clients as frontends do not, and each ticket costs).
    pub resumption: bool,
}

/// What an agent needs to reach a server. Files are PEM.
#[derive(Clone, Debug, Default)]
pub struct ClientTlsOptions {
    /// CAs of servers.
    pub ca_file: PathBuf,
    /// Our chain, leaf first; with [`ClientTlsOptions::key_file`] or not at all.
    pub cert_file: Option<PathBuf>,
    /// Its key.
    pub key_file: Option<PathBuf>,
    /// Lowest version.
    pub min_version: TlsVersion,
    /// Application protocols to offer. A server that selects none is accepted.
    pub alpn: Vec<Vec<u8>>,
}

/// A listener's side, ready for [`super::Tls::server`]. Clones share everything.
#[derive(Clone, Debug)]
pub struct ServerTls {
    pub(super) config: Arc<ServerConfig>,
    pub(super) clock: WallClock,
    /// What to tell the operator once.
    pub notices: Vec<String>,
    /// When our certificate ends, in seconds since the Unix epoch.
    pub not_after_unix_s: Option<u64>,
}

/// A client's side, ready for [`super::Tls::client`]. Clones share everything, also the sessions to resume.
#[derive(Clone, Debug)]
pub struct ClientTls {
    pub(super) config: Arc<ClientConfig>,
    pub(super) clock: WallClock,
    /// What to tell the operator once.
    pub notices: Vec<String>,
    /// When our certificate ends, in seconds since the Unix epoch; `None` without one.
    pub not_after_unix_s: Option<u64>,
}

impl ServerTls {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// Names the file and what is wrong with it, or the flag.
    pub fn load(options: &ServerTlsOptions, clock: &WallClock) -> Result<Self, ConfigError> {
        let Choice { provider, versions, notices } = choose(options.min_version, &options.cipher_suites)?;
        let provider = Arc::new(provider);
        let builder = ServerConfig::builder_with_details(Arc::clone(&provider), Arc::new(clock.clone()))
            .with_protocol_versions(&versions)
            .map_err(|error| ConfigError::new(error.to_string()))?;
        let builder = match &options.client_ca_file {
            None => builder.with_no_client_auth(),
            Some(file) => {
                let roots = Arc::new(pem::read_roots(file)?);
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(&provider))
                    .build()
                    .map_err(|error| ConfigError::in_file(file, error.to_string()))?;
                builder.with_client_cert_verifier(verifier)
            }
        };
        let own = Identity::read(&options.cert_file, &options.key_file)?;
        let not_after_unix_s = own.not_after_unix_s();
        let mut config = builder
            .with_single_cert(own.chain, own.key)
            .map_err(|error| unusable(&options.cert_file, &options.key_file, &error))?;
        config.alpn_protocols.clone_from(&options.alpn);
        // Sessions live in tickets at the client, not in a table here.
        config.session_storage = Arc::new(NoServerSessionStorage {});
        config.send_tls13_tickets = if options.resumption { TLS13_TICKETS } else { 0 };
        if options.resumption {
            config.ticketer = ticketer()
                .map_err(|error| ConfigError::new(format!("no key for session tickets: {error}")))?;
        }
        Ok(Self { config: Arc::new(config), clock: clock.clone(), notices, not_after_unix_s })
    }
}

impl ClientTls {
    /// Reads the files. Blocks.
    ///
    /// # Errors
    /// Names the file and what is wrong with it, or the flag.
    pub fn load(options: &ClientTlsOptions, clock: &WallClock) -> Result<Self, ConfigError> {
        let Choice { provider, versions, notices } = choose(options.min_version, &[])?;
        let roots = pem::read_roots(&options.ca_file)?;
        let builder = ClientConfig::builder_with_details(Arc::new(provider), Arc::new(clock.clone()))
            .with_protocol_versions(&versions)
            .map_err(|error| ConfigError::new(error.to_string()))?
            .with_root_certificates(roots);
        let (mut config, not_after_unix_s) = match (&options.cert_file, &options.key_file) {
            (None, None) => (builder.with_no_client_auth(), None),
            (Some(cert_file), Some(key_file)) => {
                let own = Identity::read(cert_file, key_file)?;
                let not_after_unix_s = own.not_after_unix_s();
                let config = builder
                    .with_client_auth_cert(own.chain, own.key)
                    .map_err(|error| unusable(cert_file, key_file, &error))?;
                (config, not_after_unix_s)
            }
            (Some(file), None) => {
                return Err(ConfigError::in_file(file, "a certificate without its key file"));
            }
            (None, Some(file)) => {
                return Err(ConfigError::in_file(file, "a key without its certificate file"));
            }
        };
        config.alpn_protocols.clone_from(&options.alpn);
        config.resumption = Resumption::in_memory_sessions(CLIENT_SESSIONS_MAX);
        Ok(Self { config: Arc::new(config), clock: clock.clone(), notices, not_after_unix_s })
    }
}

/// The name that a server's certificate must have: a DNS name or an IP address (without brackets).
///
/// # Errors
/// If it is neither.
pub fn server_name(host: &str) -> Result<ServerName<'static>, ConfigError> {
    ServerName::try_from(host.to_owned())
        .map_err(|_| ConfigError::new(format!("{host:?} is neither a DNS name nor an IP address")))
}

struct Identity {
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
}

impl Identity {
    fn read(cert_file: &Path, key_file: &Path) -> Result<Self, ConfigError> {
        Ok(Self { chain: pem::read_chain(cert_file)?, key: pem::read_key(key_file)? })
    }

    fn not_after_unix_s(&self) -> Option<u64> {
        self.chain.first().and_then(|leaf| certificate::not_after_unix_s(leaf))
    }
}

fn unusable(cert_file: &Path, key_file: &Path, error: &Error) -> ConfigError {
    match error {
        Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => ConfigError::in_file(
            key_file,
            format!("the key does not belong to the certificate in {}", cert_file.display()),
        ),
        Error::InvalidCertificate(why) => ConfigError::in_file(cert_file, format!("bad certificate: {why}")),
        other => ConfigError::in_file(key_file, format!("unusable key: {other}")),
    }
}

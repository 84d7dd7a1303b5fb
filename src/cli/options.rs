//! What the flags come to once they are checked: plain values, no texts to parse later.
//!
//! Whoever holds these may rely on: certificate and key files come in pairs and could be opened at start,
//! durations and ports are in range, and no option contradicts another.

use std::net::{IpAddr, SocketAddr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

pub use super::identifiers::AgentIdentifiers;
pub use super::tls_names::{CipherSuite, TlsVersion};

/// Options of `tautline server`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ServerOptions {
    /// Name of this server towards agents; a random UUID unless given.
    pub server_id: String,
    /// How many servers there are; only passed on to agents.
    pub server_count: NonZeroU32,
    /// Where clients come in; at least one.
    pub frontends: Vec<Frontend>,
    /// Where agents come in. Port 0: the kernel picks.
    pub agent_addr: SocketAddr,
    /// What an agent must show.
    pub agent_security: AgentSecurity,
    /// Probes and metrics, plain HTTP. Port 0: the kernel picks.
    pub health_addr: SocketAddr,
    /// Metrics for the local host, plain HTTP. Port 0: the kernel picks.
    pub admin_addr: SocketAddr,
    /// Lowest TLS version of both TLS listeners.
    pub tls_min_version: TlsVersion,
    /// TLS 1.2 suites of both TLS listeners; empty = all that there are.
    pub cipher_suites: Vec<CipherSuite>,
    /// How an agent is chosen, in this order; at least one.
    pub strategies: Vec<Strategy>,
    /// When a silent agent is dead.
    pub liveness: Liveness,
    /// A dial waits this long for an agent when there is none; not above `dial_timeout`.
    pub dial_wait: Duration,
    /// A dial ends with 504 after this.
    pub dial_timeout: Duration,
    /// After the first SIGTERM tunnels may go on this long; zero = stop at once.
    pub graceful_shutdown_timeout: Duration,
    /// Tunnels at most; `None` = as many as RLIMIT_NOFILE allows.
    pub max_tunnels: Option<NonZeroU32>,
    /// How much is logged.
    pub log: LogOptions,
    /// Lines to log once at start: flags that were accepted and do nothing.
    pub notices: Vec<String>,
}

/// Options of `tautline agent`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AgentOptions {
    /// Name of this agent; a random UUID unless given.
    pub agent_id: String,
    /// What this agent serves.
    pub identifiers: AgentIdentifiers,
    /// Name or address of the server (or of the balancer before several).
    pub server_host: Host,
    /// Its port; not 0.
    pub server_port: u16,
    /// How the server is recognised.
    pub server_security: ServerSecurity,
    /// Probes and metrics, plain HTTP. Port 0: the kernel picks.
    pub health_addr: SocketAddr,
    /// Metrics for the local host, plain HTTP. Port 0: the kernel picks.
    pub admin_addr: SocketAddr,
    /// Pause between two looks for servers that are not connected yet.
    pub sync_interval: Duration,
    /// Longest pause after attempts that were refused; not below `sync_interval`.
    pub sync_interval_cap: Duration,
    /// Look for further servers even when all are connected.
    pub sync_forever: bool,
    /// When a silent server is dead.
    pub liveness: Liveness,
    /// File whose content is sent as bearer token; read afresh for each link.
    pub token_file: Option<PathBuf>,
    /// After the first SIGTERM tunnels may go on this long; zero = stop at once.
    pub drain_timeout: Duration,
    /// Tunnels at most; `None` = as many as RLIMIT_NOFILE allows.
    pub max_tunnels: Option<NonZeroU32>,
    /// How much is logged.
    pub log: LogOptions,
    /// Lines to log once at start: flags that were accepted and do nothing.
    pub notices: Vec<String>,
}

/// A certificate chain and its key, both PEM files.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertificateFiles {
    /// Chain, leaf first.
    pub certificate: PathBuf,
    /// Private key.
    pub key: PathBuf,
}

/// Where clients of the server come in.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Frontend {
    /// Plain HTTP CONNECT on a Unix socket.
    Unix {
        /// The socket file; at most 107 bytes.
        path: PathBuf,
        /// Whether a file that is there already may be replaced.
        replace_existing: bool,
    },
    /// HTTP CONNECT on mutual TLS.
    TcpTls {
        /// Port 0: the kernel picks.
        addr: SocketAddr,
        /// What the server shows.
        files: CertificateFiles,
        /// Who may sign client certificates.
        client_ca: PathBuf,
    },
}

/// What an agent must show to a server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AgentSecurity {
    /// A certificate signed by this CA.
    MutualTls {
        /// What the server shows.
        files: CertificateFiles,
        /// Who may sign agent certificates.
        agent_ca: PathBuf,
    },
    /// A token of a service account, that the Kubernetes API judges.
    Token {
        /// What the server shows.
        files: CertificateFiles,
        /// Who judges, and by what.
        review: TokenReview,
    },
    /// Nothing, but the link is encrypted (`--insecure-agents`).
    TlsWithoutClientCertificate {
        /// What the server shows.
        files: CertificateFiles,
    },
    /// Nothing, and the link is plain TCP (`--insecure-agents` without a certificate).
    Plain,
}

/// Which tokens are agents'.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TokenReview {
    /// Namespace of the agents' account.
    pub namespace: String,
    /// Its name.
    pub service_account: String,
    /// Whom the tokens must be for.
    pub audience: String,
    /// Access to the API; `None` = from the pod we run in.
    pub kubeconfig: Option<PathBuf>,
}

/// How an agent recognises its server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ServerSecurity {
    /// TLS; the certificate must be valid for [`AgentOptions::server_host`].
    Tls {
        /// Who may sign the server's certificate.
        ca: PathBuf,
        /// What the agent shows.
        client: Option<CertificateFiles>,
        /// ALPN names offered before our own; each 1 to 255 bytes.
        alpn_before_ours: Vec<String>,
    },
    /// Not at all, and the link is plain TCP (`--insecure-server`).
    Plain,
}

/// A host that is still to be looked up, or not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Host {
    /// An address.
    Ip(IpAddr),
    /// A name for the resolver.
    Name(String),
}

/// One way of choosing an agent (`--proxy-strategies`).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Strategy {
    /// Any agent.
    Default,
    /// The agents that name the target host among their identifiers.
    DestHost,
    /// The agents that say `default-route=true`.
    DefaultRoute,
}

/// The clocks of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Liveness {
    /// A ping goes out after this much silence; `None` = no pings, the kernel alone finds dead peers.
    pub ping_interval: Option<Duration>,
    /// Without an answer for this long the peer is suspect. Below `dead_after`.
    pub ping_timeout: Duration,
    /// After this much silence the peer is dead. At least 4 s, at most a day.
    pub dead_after: Duration,
}

/// How much is logged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogOptions {
    /// As klog's `-v`: 4 is its default, 5 shows frames.
    pub verbosity: u8,
}

//! All knowledge of rustls: TLS without sockets, for links (both sides) and frontends (server side).
//!
//! [`Tls`] takes received bytes and gives plaintext and bytes to send. It owns no record buffer: a partial
//! record stays in the caller's buffer, records are written straight behind what the caller has to send. So
//! an idle connection costs what rustls keeps for keys and certificates, and no more.
//!
//! [`ServerTls`] and [`ClientTls`] are what the files and flags say, read once and cheap to clone. Reading
//! blocks: at start, or on a helper thread, never on the loop.

mod certificate;
mod clock;
mod config;
mod connection;
mod error;
mod pem;
mod suites;

#[cfg(test)]
mod tests;

pub use clock::WallClock;
pub use config::{ClientTls, ClientTlsOptions, ServerTls, ServerTlsOptions, server_name};
pub use connection::{RECORD_PAYLOAD_MAX, Received, Tls, UNCONSUMED_MAX};
pub use error::{ConfigError, TlsError};
pub use rustls::pki_types::ServerName;
pub use suites::TlsVersion;

/// What agents offer and the agent listener takes.
pub const ALPN_LINK: &[u8] = b"tautline/1";
/// What a frontend listener takes, if its client offers anything.
pub const ALPN_HTTP: &[u8] = b"http/1.1";

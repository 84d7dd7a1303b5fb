//! What can go wrong, in words that say what to do.

use std::borrow::Cow;
use std::fmt;
use std::path::{Path, PathBuf};

use rustls::{AlertDescription, CertificateError, Error, InvalidMessage, PeerIncompatible};

use super::clock::utc_text;

/// Why certificates, keys or flags do not make a configuration. Names the file, if one is to blame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ConfigError {
    file: Option<PathBuf>,
    reason: String,
}

impl ConfigError {
    pub(super) fn new(reason: impl Into<String>) -> Self {
        Self { file: None, reason: reason.into() }
    }

    pub(super) fn in_file(file: &Path, reason: impl Into<String>) -> Self {
        Self { file: Some(file.to_owned()), reason: reason.into() }
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(file) = &self.file {
            write!(f, "{}: ", file.display())?;
        }
        f.write_str(&self.reason)
    }
}

impl std::error::Error for ConfigError {}

/// Why a TLS connection ends. Its text is for people; [`TlsError::reason`] is for metrics.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// The handshake or a record failed, or the peer said so in an alert.
    Protocol(Error),
    /// The first bytes are not TLS. Holds what they look like.
    NotTls(Cow<'static, str>),
    /// The peer cut its handshake messages into so many records that they pass the bound.
    TooFragmented,
    /// Ours: data before the end of the handshake.
    Handshaking,
    /// Ours: data after our own close_notify.
    WriteClosed,
    /// TLS 1.2 only: the keys sealed as many records as is safe.
    KeysExhausted,
    /// rustls did what its documentation excludes.
    Unexpected(&'static str),
}

impl From<Error> for TlsError {
    fn from(error: Error) -> Self {
        Self::Protocol(error)
    }
}

impl TlsError {
    /// A label for metrics: few values, stable.
    #[must_use]
    pub fn reason(&self) -> &'static str {
        use CertificateError as Bad;
        match self {
            Self::NotTls(_) => "not_tls",
            Self::TooFragmented => "too_fragmented",
            Self::Handshaking | Self::WriteClosed | Self::Unexpected(_) => "internal",
            Self::KeysExhausted => "keys_exhausted",
            Self::Protocol(error) => match error {
                Error::InvalidCertificate(Bad::Expired | Bad::ExpiredContext { .. }) => "certificate_expired",
                Error::InvalidCertificate(Bad::NotValidYet | Bad::NotValidYetContext { .. }) => {
                    "certificate_not_valid_yet"
                }
                Error::InvalidCertificate(Bad::UnknownIssuer) => "unknown_issuer",
                Error::InvalidCertificate(Bad::NotValidForName | Bad::NotValidForNameContext { .. }) => {
                    "name_mismatch"
                }
                Error::InvalidCertificate(_) => "bad_certificate",
                Error::NoCertificatesPresented => "no_certificate",
                Error::NoApplicationProtocol => "alpn_mismatch",
                Error::PeerIncompatible(why) if is_about_version(why) => "version_mismatch",
                Error::PeerIncompatible(_) => "incompatible",
                Error::AlertReceived(_) => "refused_by_peer",
                _ => "protocol",
            },
        }
    }
}

fn is_about_version(why: &PeerIncompatible) -> bool {
    matches!(
        why,
        PeerIncompatible::ServerDoesNotSupportTls12Or13
            | PeerIncompatible::ServerTlsVersionIsDisabledByOurConfig
            | PeerIncompatible::SupportedVersionsExtensionRequired
            | PeerIncompatible::Tls12NotOffered
            | PeerIncompatible::Tls12NotOfferedOrEnabled
    )
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Protocol(error) => write_protocol(f, error),
            Self::NotTls(looks_like) => write!(f, "the peer does not speak TLS: {looks_like}"),
            Self::TooFragmented => f.write_str("the peer cut a handshake message into too many records"),
            Self::Handshaking => f.write_str("data before the end of the TLS handshake (a defect here)"),
            Self::WriteClosed => f.write_str("data after our own close_notify (a defect here)"),
            Self::KeysExhausted => f.write_str("TLS 1.2 keys are used up; TLS 1.3 renews them"),
            Self::Unexpected(what) => write!(f, "unexpected state of the TLS library: {what}"),
        }
    }
}

impl std::error::Error for TlsError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Protocol(error) => Some(error),
            _ => None,
        }
    }
}

fn write_protocol(f: &mut fmt::Formatter<'_>, error: &Error) -> fmt::Result {
    match error {
        Error::InvalidCertificate(why) => write_certificate(f, why),
        Error::NoCertificatesPresented => {
            f.write_str("the peer presented no certificate, and one is required here")
        }
        Error::NoApplicationProtocol => {
            f.write_str("ALPN mismatch: the peer offers only application protocols that are not spoken here")
        }
        Error::PeerIncompatible(why) if is_about_version(why) => {
            write!(f, "no TLS version in common ({why:?}): check --tls-min-version on both sides")
        }
        Error::PeerIncompatible(PeerIncompatible::NoCipherSuitesInCommon) => f.write_str(
            "no cipher suite in common: check --cipher-suites, and RSA against ECDSA certificates",
        ),
        Error::AlertReceived(alert) => write_alert(f, *alert),
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            f.write_str("bytes that are no TLS record in the middle of the connection")
        }
        Error::FailedToGetCurrentTime => f.write_str("the wall clock was not set (a defect here)"),
        other => write!(f, "TLS: {other}"),
    }
}

fn write_certificate(f: &mut fmt::Formatter<'_>, why: &CertificateError) -> fmt::Result {
    match why {
        CertificateError::ExpiredContext { time, not_after } => write!(
            f,
            "the peer's certificate, or one of its CAs, expired: valid until {}, it is {} here",
            utc_text(not_after.as_secs()),
            utc_text(time.as_secs())
        ),
        CertificateError::NotValidYetContext { time, not_before } => write!(
            f,
            "the peer's certificate is not valid before {}, it is {} here: check the clocks",
            utc_text(not_before.as_secs()),
            utc_text(time.as_secs())
        ),
        CertificateError::UnknownIssuer => f.write_str(
            "the peer's certificate is not signed by a CA of our CA file (an old or another CA, or a missing intermediate)",
        ),
        CertificateError::NotValidForNameContext { expected, presented } => {
            let names = if presented.is_empty() {
                "no names (the common name does not count)".to_owned()
            } else {
                presented.join(", ")
            };
            write!(f, "name mismatch: wanted {:?}, the peer's certificate has {names}", expected.to_str())
        }
        CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. } => {
            write!(f, "the peer's certificate is not for this side of TLS (extended key usage): {why}")
        }
        other => write!(f, "the peer's certificate is refused: {other}"),
    }
}

fn write_alert(f: &mut fmt::Formatter<'_>, alert: AlertDescription) -> fmt::Result {
    let text = match alert {
        AlertDescription::CertificateExpired => "our certificate is expired or not valid yet",
        AlertDescription::UnknownCA => "it does not know the CA of our certificate",
        AlertDescription::CertificateRequired => "it requires a certificate and we presented none",
        AlertDescription::BadCertificate
        | AlertDescription::CertificateUnknown
        | AlertDescription::UnsupportedCertificate
        | AlertDescription::CertificateRevoked => "it does not accept our certificate",
        AlertDescription::NoApplicationProtocol => {
            "it speaks none of the application protocols we offer (ALPN)"
        }
        AlertDescription::ProtocolVersion => "it speaks no TLS version that is allowed here",
        AlertDescription::UnrecognisedName => "it does not serve the name that we asked for",
        AlertDescription::HandshakeFailure => {
            "no parameters in common (cipher suites, or a missing certificate)"
        }
        AlertDescription::CloseNotify => "it closed in the middle of the handshake",
        _ => return write!(f, "the peer refused the connection: alert {alert:?}"),
    };
    write!(f, "the peer refused the connection: {text} (alert {alert:?})")
}

/// What the first bytes of a peer that does not speak TLS look like.
pub(super) fn looks_like(first: &[u8]) -> Cow<'static, str> {
    const METHODS: [&[u8]; 9] =
        [b"GET ", b"POST ", b"PUT ", b"HEAD ", b"CONNECT ", b"OPTIONS ", b"DELETE ", b"PATCH ", b"TRACE "];
    let begins = |prefix: &[u8]| first.starts_with(prefix);
    if METHODS.iter().any(|method| begins(&method[..method.len().min(first.len())])) {
        return "looks like an HTTP request".into();
    }
    for (prefix, text) in [
        (&b"PRI *"[..], "looks like HTTP/2 (gRPC) without TLS"),
        (b"HTTP/", "looks like an HTTP response"),
        (b"SSH-", "looks like SSH"),
        (b"PROXY", "looks like the PROXY protocol of a load balancer: turn it off there"),
        (b"\r\n\r\n\0", "looks like the PROXY protocol (version 2) of a load balancer: turn it off there"),
    ] {
        if begins(prefix) {
            return text.into();
        }
    }
    format!("it begins with \"{}\"", first[..first.len().min(16)].escape_ascii()).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_text_is_named() {
        for (bytes, part) in [
            (&b"GET / HTTP/1.1\r\n"[..], "HTTP request"),
            (b"CONNE", "HTTP request"),
            (b"PRI * HTTP/2.0\r\n", "gRPC"),
            (b"HTTP/1.1 400 Bad Request", "HTTP response"),
            (b"SSH-2.0-x", "SSH"),
            (b"PROXY TCP4 1.2.3.4", "PROXY"),
            (b"\r\n\r\n\0\r\nQUIT\n", "PROXY"),
            (b"\x00\x01abc\n", "\\x00\\x01abc\\n"),
        ] {
            assert!(looks_like(bytes).contains(part), "{}", looks_like(bytes));
        }
    }
}

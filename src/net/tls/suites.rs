//! Versions and cipher suites: what Go's names in flags mean here, and which suite goes first.

use std::str::FromStr;
use std::sync::Arc;

// The crypto library is named here and nowhere else.
use rustls::crypto::ring as library;

use rustls::crypto::CryptoProvider;
use rustls::server::ProducesTickets;
use rustls::{CipherSuite, Error, SupportedCipherSuite, SupportedProtocolVersion, version};

use super::error::ConfigError;

/// A lowest TLS version, as manifests name it (`VersionTLS12`).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum TlsVersion {
    /// Means 1.2 here, with a notice.
    Tls10,
    /// Means 1.2 here, with a notice.
    Tls11,
    /// RFC 5246.
    #[default]
    Tls12,
    /// RFC 8446.
    Tls13,
}

impl FromStr for TlsVersion {
    type Err = ConfigError;

    fn from_str(name: &str) -> Result<Self, ConfigError> {
        match name {
            "VersionTLS10" => Ok(Self::Tls10),
            "VersionTLS11" => Ok(Self::Tls11),
            "" | "VersionTLS12" => Ok(Self::Tls12),
            "VersionTLS13" => Ok(Self::Tls13),
            _ => Err(ConfigError::new(format!(
                "unknown TLS version {name:?}: use VersionTLS12 or VersionTLS13"
            ))),
        }
    }
}

/// Suites of TLS 1.2 and below that Go knows and that are not offered here: no forward secrecy, CBC, RC4, 3DES.
const KNOWN_BUT_ABSENT: [&str; 16] = [
    "TLS_RSA_WITH_RC4_128_SHA",
    "TLS_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA",
    "TLS_RSA_WITH_AES_256_CBC_SHA",
    "TLS_RSA_WITH_AES_128_CBC_SHA256",
    "TLS_RSA_WITH_AES_128_GCM_SHA256",
    "TLS_RSA_WITH_AES_256_GCM_SHA384",
    "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256",
    "TLS_ECDHE_RSA_WITH_RC4_128_SHA",
    "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA",
    "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256",
];

/// What flags chose: a provider with the suites left, the versions, and what to tell the operator.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) provider: CryptoProvider,
    pub(super) versions: Vec<&'static SupportedProtocolVersion>,
    pub(super) notices: Vec<String>,
}

/// Its algorithms, best suites first.
pub(super) fn provider() -> CryptoProvider {
    let mut provider = library::default_provider();
    let aes_is_fast = has_aes_instructions();
    provider.cipher_suites.sort_by_key(|suite| (suite.tls13().is_none(), rank(*suite, aes_is_fast)));
    provider
}

/// Seals sessions into tickets, with keys that change every six hours of real time.
pub(super) fn ticketer() -> Result<Arc<dyn ProducesTickets>, Error> {
    library::Ticketer::new()
}

/// AES-128-GCM first: the cheapest per byte, and the strongest part of the handshake anyhow. Without AES
/// instructions (small ARM boards) ChaCha20 is several times cheaper; listeners follow the client's order.
fn rank(suite: SupportedCipherSuite, aes_is_fast: bool) -> u8 {
    match suite.suite() {
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256
        | CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256 => {
            if aes_is_fast {
                3
            } else {
                0
            }
        }
        CipherSuite::TLS13_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384
        | CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384 => 2,
        _ => 1,
    }
}

#[cfg(any(target_arch = "x86", target_arch = "x86_64"))]
fn has_aes_instructions() -> bool {
    std::arch::is_x86_feature_detected!("aes")
}

#[cfg(target_arch = "aarch64")]
fn has_aes_instructions() -> bool {
    std::arch::is_aarch64_feature_detected!("aes")
}

#[cfg(not(any(target_arch = "x86", target_arch = "x86_64", target_arch = "aarch64")))]
fn has_aes_instructions() -> bool {
    false
}

/// Reads `--tls-min-version` and `--cipher-suites`. No names means every suite. The names rule TLS 1.2 only,
/// as in Go; names of TLS 1.3 are accepted and change nothing.
pub(super) fn choose(min_version: TlsVersion, names: &[String]) -> Result<Choice, ConfigError> {
    let mut provider = provider();
    let mut notices = Vec::new();
    if min_version < TlsVersion::Tls12 {
        notices.push("TLS 1.0 and 1.1 are not spoken here: the lowest TLS version is 1.2".to_owned());
    }
    if min_version == TlsVersion::Tls13 {
        if !names.is_empty() {
            notices
                .push("the list of cipher suites has no effect: it rules TLS 1.2, which is off".to_owned());
        }
        // A typing error is still an error.
        for name in names {
            find(&provider, name)?;
        }
        return Ok(Choice { provider, versions: vec![&version::TLS13], notices });
    }
    let mut kept = Vec::new();
    let mut names_tls13 = false;
    for name in names {
        match find(&provider, name)? {
            None => notices.push(format!("cipher suite {name} is not offered here and was skipped")),
            Some(suite) if suite.tls13().is_some() => names_tls13 = true,
            Some(suite) => kept.push(suite.suite()),
        }
    }
    let mut versions = vec![&version::TLS13, &version::TLS12];
    if kept.is_empty() && names_tls13 {
        notices.push("the list of cipher suites leaves none for TLS 1.2: only TLS 1.3 is spoken".to_owned());
        versions.truncate(1);
    } else if kept.is_empty() && !names.is_empty() {
        return Err(ConfigError::new(format!(
            "none of the cipher suites is offered here: {}; leave the list empty, or name {}",
            names.join(","),
            "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256 or TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256"
        )));
    }
    if !names.is_empty() {
        provider.cipher_suites.retain(|suite| suite.tls13().is_some() || kept.contains(&suite.suite()));
    }
    Ok(Choice { provider, versions, notices })
}

/// The suite of a Go name; `None` if Go knows it and we lack it.
fn find(provider: &CryptoProvider, name: &str) -> Result<Option<SupportedCipherSuite>, ConfigError> {
    // Go once named two suites without their hash.
    let full = if name.ends_with("_WITH_CHACHA20_POLY1305") { &format!("{name}_SHA256") } else { name };
    let found =
        provider.cipher_suites.iter().copied().find(|suite| {
            suite.suite().as_str().is_some_and(|own| own.replacen("TLS13_", "TLS_", 1) == full)
        });
    if found.is_none() && !KNOWN_BUT_ABSENT.contains(&name) {
        return Err(ConfigError::new(format!("unknown cipher suite {name:?}")));
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chosen(min: TlsVersion, names: &[&str]) -> Result<Choice, ConfigError> {
        choose(min, &names.iter().map(ToString::to_string).collect::<Vec<_>>())
    }

    fn tls12_names(choice: &Choice) -> Vec<String> {
        let tls12 = choice.provider.cipher_suites.iter().filter(|suite| suite.tls13().is_none());
        tls12.map(|suite| format!("{:?}", suite.suite())).collect()
    }

    #[test]
    fn aes_128_leads_where_the_processor_has_it() {
        let mut suites = provider().cipher_suites;
        suites.sort_by_key(|suite| rank(*suite, true));
        assert_eq!(suites[0].suite(), CipherSuite::TLS13_AES_128_GCM_SHA256);
        suites.sort_by_key(|suite| rank(*suite, false));
        assert_eq!(suites[0].suite(), CipherSuite::TLS13_CHACHA20_POLY1305_SHA256);
    }

    #[test]
    fn go_names_rule_tls_1_2_and_leave_1_3_alone() {
        let every = chosen(TlsVersion::Tls12, &[]).unwrap();
        assert_eq!((tls12_names(&every).len(), every.versions.len()), (6, 2));
        assert!(every.notices.is_empty());

        let some = chosen(
            TlsVersion::Tls12,
            &[
                "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
                "TLS_RSA_WITH_AES_128_CBC_SHA",
                "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305",
                "TLS_AES_128_GCM_SHA256",
            ],
        )
        .unwrap();
        let mut names = tls12_names(&some);
        names.sort();
        assert_eq!(
            names,
            ["TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256", "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]
        );
        assert_eq!(some.provider.cipher_suites.len(), 5);
        assert_eq!(some.notices.len(), 1);
        assert!(some.notices[0].contains("TLS_RSA_WITH_AES_128_CBC_SHA"), "{:?}", some.notices);
    }

    #[test]
    fn nothing_left_and_unknown_names_are_errors() {
        let nothing = chosen(TlsVersion::Tls12, &["TLS_RSA_WITH_RC4_128_SHA"]).unwrap_err().to_string();
        assert!(nothing.contains("none of the cipher suites"), "{nothing}");
        for min in [TlsVersion::Tls12, TlsVersion::Tls13] {
            let unknown = chosen(min, &["TLS_TYPO"]).unwrap_err().to_string();
            assert!(unknown.contains("TLS_TYPO"), "{unknown}");
        }
        let only13 = chosen(TlsVersion::Tls12, &["TLS_AES_256_GCM_SHA384"]).unwrap();
        assert_eq!((only13.versions.len(), only13.notices.len()), (1, 1));
    }

    #[test]
    fn versions_have_go_names_and_old_ones_mean_1_2() {
        assert_eq!("".parse::<TlsVersion>().unwrap(), TlsVersion::Tls12);
        assert_eq!("VersionTLS13".parse::<TlsVersion>().unwrap(), TlsVersion::Tls13);
        assert!("1.2".parse::<TlsVersion>().is_err());
        let old = chosen("VersionTLS10".parse().unwrap(), &[]).unwrap();
        assert_eq!((old.versions.len(), old.notices.len()), (2, 1));
        let new = chosen(TlsVersion::Tls13, &["TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256"]).unwrap();
        assert_eq!((new.versions.len(), new.notices.len()), (1, 1));
    }
}

//! TLS versions and cipher suites under the names that Go and Kubernetes use.

/// Lowest TLS version that a listener takes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum TlsVersion {
    /// TLS 1.2.
    V1_2,
    /// TLS 1.3.
    V1_3,
}

/// A TLS 1.2 cipher suite that rustls has.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CipherSuite {
    /// `TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256`
    EcdheEcdsaAes128Gcm,
    /// `TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384`
    EcdheEcdsaAes256Gcm,
    /// `TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256`
    EcdheEcdsaChacha20,
    /// `TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256`
    EcdheRsaAes128Gcm,
    /// `TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`
    EcdheRsaAes256Gcm,
    /// `TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256`
    EcdheRsaChacha20,
}

impl CipherSuite {
    /// Go's (IANA's) name.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::EcdheEcdsaAes128Gcm => "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
            Self::EcdheEcdsaAes256Gcm => "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384",
            Self::EcdheEcdsaChacha20 => "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256",
            Self::EcdheRsaAes128Gcm => "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256",
            Self::EcdheRsaAes256Gcm => "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
            Self::EcdheRsaChacha20 => "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256",
        }
    }
}

/// What a name of Go's means here.
enum Known {
    Here(CipherSuite),
    /// TLS 1.3 chooses for itself.
    Tls13,
    /// Go has it (some only as insecure), rustls does not.
    NotHere,
}

fn cipher_suite(name: &str) -> Option<Known> {
    use CipherSuite as C;
    Some(match name {
        "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256" => Known::Here(C::EcdheEcdsaAes128Gcm),
        "TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384" => Known::Here(C::EcdheEcdsaAes256Gcm),
        "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256" | "TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305" => {
            Known::Here(C::EcdheEcdsaChacha20)
        }
        "TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256" => Known::Here(C::EcdheRsaAes128Gcm),
        "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384" => Known::Here(C::EcdheRsaAes256Gcm),
        "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256" | "TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305" => {
            Known::Here(C::EcdheRsaChacha20)
        }
        "TLS_AES_128_GCM_SHA256" | "TLS_AES_256_GCM_SHA384" | "TLS_CHACHA20_POLY1305_SHA256" => Known::Tls13,
        "TLS_RSA_WITH_RC4_128_SHA"
        | "TLS_RSA_WITH_3DES_EDE_CBC_SHA"
        | "TLS_RSA_WITH_AES_128_CBC_SHA"
        | "TLS_RSA_WITH_AES_256_CBC_SHA"
        | "TLS_RSA_WITH_AES_128_CBC_SHA256"
        | "TLS_RSA_WITH_AES_128_GCM_SHA256"
        | "TLS_RSA_WITH_AES_256_GCM_SHA384"
        | "TLS_ECDHE_ECDSA_WITH_RC4_128_SHA"
        | "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA"
        | "TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA"
        | "TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA256"
        | "TLS_ECDHE_RSA_WITH_RC4_128_SHA"
        | "TLS_ECDHE_RSA_WITH_3DES_EDE_CBC_SHA"
        | "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA"
        | "TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA"
        | "TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256" => Known::NotHere,
        _ => return None,
    })
}

/// The version that `--tls-min-version` names. What is below 1.2 means 1.2, with a line in `notices`.
///
/// # Errors
/// An unknown name.
pub(super) fn min_version(name: &str, notices: &mut Vec<String>) -> Result<TlsVersion, String> {
    match name {
        "" | "VersionTLS12" => Ok(TlsVersion::V1_2),
        "VersionTLS13" => Ok(TlsVersion::V1_3),
        "VersionTLS10" | "VersionTLS11" => {
            notices.push(format!(
                "--tls-min-version={name} means VersionTLS12 here: older TLS is not supported"
            ));
            Ok(TlsVersion::V1_2)
        }
        _ => Err(format!("--tls-min-version={name}: use VersionTLS12 or VersionTLS13")),
    }
}

/// The suites that `--cipher-suites` names, in its order. Those that are not here are skipped, with a line
/// in `notices`.
///
/// # Errors
/// An unknown name, or a list of which nothing is left for TLS 1.2 (unless that is off).
pub(super) fn cipher_suites(
    names: &[String],
    min_version: TlsVersion,
    notices: &mut Vec<String>,
) -> Result<Vec<CipherSuite>, String> {
    let mut suites = Vec::new();
    let mut skipped = Vec::new();
    for name in names.iter().map(|name| name.trim()).filter(|name| !name.is_empty()) {
        match cipher_suite(name) {
            Some(Known::Here(suite)) if suites.contains(&suite) => {}
            Some(Known::Here(suite)) => suites.push(suite),
            Some(Known::Tls13) => skipped.push(name),
            Some(Known::NotHere) => {
                skipped.push(name);
                notices.push(format!("--cipher-suites: {name} is not supported here and is left out"));
            }
            None => return Err(format!("--cipher-suites: unknown cipher suite {name}")),
        }
    }
    if suites.is_empty() && !skipped.is_empty() && min_version < TlsVersion::V1_3 {
        return Err(format!(
            "--cipher-suites={}: none of these works with TLS 1.2; add one such as \
             TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256, or use --tls-min-version=VersionTLS13",
            skipped.join(",")
        ));
    }
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(list: &str, min_version: TlsVersion) -> (Result<Vec<CipherSuite>, String>, Vec<String>) {
        let names: Vec<String> = list.split(',').map(str::to_owned).collect();
        let mut notices = Vec::new();
        (cipher_suites(&names, min_version, &mut notices), notices)
    }

    #[test]
    fn every_suite_is_one_that_rustls_has() {
        use CipherSuite as C;
        let have: Vec<String> = rustls::crypto::ring::default_provider()
            .cipher_suites
            .iter()
            .filter(|suite| suite.tls13().is_none())
            .map(|suite| format!("{:?}", suite.suite()))
            .collect();
        let ours = [
            C::EcdheEcdsaAes128Gcm,
            C::EcdheEcdsaAes256Gcm,
            C::EcdheEcdsaChacha20,
            C::EcdheRsaAes128Gcm,
            C::EcdheRsaAes256Gcm,
            C::EcdheRsaChacha20,
        ];
        assert_eq!(have.len(), ours.len());
        // rustls calls ChaCha20 suites by the name that names the hash too, as we do.
        assert!(ours.iter().all(|suite| have.iter().any(|name| name == suite.name())));
    }

    #[test]
    fn suites_by_their_go_names() {
        let (suites, notices) = parse(
            "TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,TLS_RSA_WITH_AES_128_GCM_SHA256,TLS_AES_128_GCM_SHA256",
            TlsVersion::V1_2,
        );
        assert_eq!(suites, Ok(vec![CipherSuite::EcdheRsaAes256Gcm]));
        assert_eq!(notices.len(), 1, "{notices:?}");
        assert!(notices[0].contains("TLS_RSA_WITH_AES_128_GCM_SHA256"));
    }

    #[test]
    fn a_list_that_leaves_nothing_is_refused() {
        assert!(parse("TLS_RSA_WITH_AES_128_CBC_SHA", TlsVersion::V1_2).0.is_err());
        assert!(parse("TLS_AES_128_GCM_SHA256", TlsVersion::V1_2).0.is_err());
        assert_eq!(parse("TLS_AES_128_GCM_SHA256", TlsVersion::V1_3).0, Ok(Vec::new()));
        assert!(parse("TLS_NO_SUCH", TlsVersion::V1_2).0.unwrap_err().contains("TLS_NO_SUCH"));
        assert_eq!(parse("", TlsVersion::V1_2), (Ok(Vec::new()), Vec::new()));
    }

    #[test]
    fn versions_by_their_go_names() {
        let mut notices = Vec::new();
        assert_eq!(min_version("", &mut notices), Ok(TlsVersion::V1_2));
        assert_eq!(min_version("VersionTLS13", &mut notices), Ok(TlsVersion::V1_3));
        assert!(notices.is_empty());
        assert_eq!(min_version("VersionTLS10", &mut notices), Ok(TlsVersion::V1_2));
        assert_eq!(notices.len(), 1);
        assert!(min_version("TLS12", &mut notices).is_err());
    }
}

//! Kubeconfig files and tokens: what is understood, and what is said about the rest. The client is tested end to end.

use std::path::Path;

use serde_json::json;

use super::access::{Credential, from_kubeconfig, in_cluster};
use super::read_token;
use crate::cli::certs::{CertOptions, write};

const KUBECONFIG: &str = r#"
apiVersion: v1
kind: Config
current-context: system:konnectivity-server@kubernetes
contexts:
- {name: other, context: {cluster: nowhere}}
- name: system:konnectivity-server@kubernetes
  context:
    cluster: kubernetes
    user: system:konnectivity-server
    namespace: ignored
clusters:
- name: kubernetes
  cluster:
    server: https://127.0.0.1:6443/
    certificate-authority-data: Q0E=
users:
- name: system:konnectivity-server
  user:
    client-certificate-data: Q0VSVA==
    client-key-data: S0VZ
preferences: {}
"#;

#[test]
fn the_kubeconfig_of_the_documentation_is_understood() {
    let access = from_kubeconfig(KUBECONFIG, Path::new("/")).unwrap();
    assert_eq!((access.url.as_str(), access.ca.as_slice()), ("https://127.0.0.1:6443", b"CA".as_slice()));
    let Credential::Certificate { chain, key } = access.credential else { panic!() };
    assert_eq!((chain.as_slice(), key.as_slice()), (b"CERT".as_slice(), b"KEY".as_slice()));
    let json = serde_json::to_string(&json!({
        "current-context": "a",
        "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": "https://k", "certificate-authority-data": "Q0E="}}],
        "users": [{"name": "u", "user": {"token": "t"}}],
    }));
    let access = from_kubeconfig(&json.unwrap(), Path::new("/")).unwrap();
    assert!(matches!(access.credential, Credential::Token(token) if token == "t"));
}

#[test]
fn whatever_is_missing_or_not_supported_is_named() {
    let user = "    client-certificate-data: Q0VSVA==\n    client-key-data: S0VZ";
    for (from, to, part) in [
        (
            "current-context: system:konnectivity-server@kubernetes",
            "current-context: gone",
            "no context named \"gone\"",
        ),
        ("cluster: kubernetes\n", "cluster: gone\n", "no cluster named"),
        ("    user: system:konnectivity-server\n", "    user: gone\n", "no user named"),
        ("https://127", "http://127", "begin with https"),
        ("    certificate-authority-data: Q0E=", "", "no certificate-authority"),
        ("Q0E=", "'?'", "bad base64"),
        ("    certificate-authority-data: Q0E=", "    certificate-authority: /gone/ca.crt", "/gone/ca.crt"),
        ("    client-key-data: S0VZ", "", "without the other"),
        (user, "    exec: {command: aws}", "not supported here: exec"),
        (user, "    username: admin\n    password: admin", "not supported here: username"),
        ("127.0.0.1:6443/", "h/\n    insecure-skip-tls-verify: true", "not supported here: insecure"),
        ("127.0.0.1:6443/", "h/\n    tls-server-name: k", "not supported here: tls-server-name"),
        ("127.0.0.1:6443/", "h/\n    proxy-url: http://p", "HTTPS_PROXY"),
        ("contexts:", "contexts: 7\nothers:", "no kubeconfig"),
    ] {
        assert!(KUBECONFIG.contains(from), "{from}");
        let text = KUBECONFIG.replace(from, to);
        let error = from_kubeconfig(&text, Path::new("/")).err().unwrap_or_else(|| panic!("{text}"));
        assert!(error.contains(part), "{error:?} lacks {part:?}");
    }
}

#[test]
fn a_pod_finds_its_account_and_others_are_told_what_to_do() {
    let folder = std::env::temp_dir().join(format!("tautline-pod-{}", std::process::id()));
    write(&folder, &CertOptions::default()).unwrap();
    let of = |host: &'static str| {
        move |name: &str| Some(if name.ends_with("HOST") { host } else { "443" }.to_owned())
    };
    assert_eq!(in_cluster(&folder, of("fd00::1")).unwrap().url, "https://[fd00::1]:443");
    let access = in_cluster(&folder, of("10.0.0.1")).unwrap();
    assert_eq!(access.url, "https://10.0.0.1:443");
    assert!(matches!(access.credential, Credential::TokenFile(file) if file == folder.join("token")));
    std::fs::remove_dir_all(&folder).unwrap();
    let error = in_cluster(&folder, of("10.0.0.1")).err().unwrap();
    assert!(error.contains("ca.crt"), "{error}");
    assert!(in_cluster(&folder, |_| None).err().unwrap().contains("no --kubeconfig"));
}

#[test]
fn a_token_file_holds_one_token() {
    let file = std::env::temp_dir().join(format!("tautline-token-{}", std::process::id()));
    let long = "x".repeat(tautline_wire::TOKEN_LEN_MAX);
    for (content, expected) in [
        (" eyJ.a-b_c\n", Ok("eyJ.a-b_c")),
        (long.as_str(), Ok(long.as_str())),
        ("\n", Err("is empty")),
        (&format!("{long}y"), Err("more than")),
        ("a b", Err("something else")),
        ("a\r\nHost: x", Err("something else")),
    ] {
        std::fs::write(&file, content).unwrap();
        match (read_token(&file), expected) {
            (Ok(token), Ok(expected)) => assert_eq!(token, expected),
            (Err(error), Err(part)) => {
                assert!(error.contains(part) && error.contains("tautline-token"), "{error}")
            }
            (got, _) => panic!("{got:?} of {content:?}"),
        }
    }
    std::fs::remove_file(&file).unwrap();
    assert!(read_token(&file).unwrap_err().contains("No such file"));
}

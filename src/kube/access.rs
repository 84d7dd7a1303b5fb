//! Where the API is, whom to trust and what to show: from a kubeconfig file, or from the pod we run in.

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::{env, fs};

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;

/// Where a pod finds its account's token and the API's CA.
const IN_CLUSTER: &str = "/var/run/secrets/kubernetes.io/serviceaccount";

/// How we show who we are.
#[derive(Clone)]
pub(super) enum Credential {
    /// Not at all.
    None,
    /// A token that stays.
    Token(String),
    /// A token that the kubelet replaces: read at each request.
    TokenFile(PathBuf),
    /// Certificates and key, PEM.
    Certificate { chain: Vec<u8>, key: Vec<u8> },
}

/// What it takes to talk to an API server. It has no debug output: it holds secrets.
#[derive(Clone)]
pub struct Access {
    /// `https://host:port`, without a slash at the end.
    pub(super) url: String,
    /// PEM.
    pub(super) ca: Vec<u8>,
    pub(super) credential: Credential,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Config {
    #[serde(default)]
    current_context: String,
    #[serde(default)]
    contexts: Vec<Named<Context>>,
    #[serde(default)]
    clusters: Vec<Named<Cluster>>,
    #[serde(default)]
    users: Vec<Named<User>>,
}

/// An entry of one of the lists: its value stands under the list's own word.
#[derive(Deserialize)]
struct Named<T> {
    name: String,
    #[serde(alias = "context", alias = "cluster", alias = "user")]
    value: T,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    #[serde(default)]
    user: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: String,
    certificate_authority: Option<PathBuf>,
    certificate_authority_data: Option<String>,
    #[serde(default)]
    insecure_skip_tls_verify: bool,
    tls_server_name: Option<String>,
    proxy_url: Option<String>,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "kebab-case")]
struct User {
    token: Option<String>,
    #[serde(rename = "tokenFile")]
    token_file: Option<PathBuf>,
    client_certificate: Option<PathBuf>,
    client_certificate_data: Option<String>,
    client_key: Option<PathBuf>,
    client_key_data: Option<String>,
    exec: Option<serde::de::IgnoredAny>,
    auth_provider: Option<serde::de::IgnoredAny>,
    username: Option<serde::de::IgnoredAny>,
}

impl Access {
    /// From a kubeconfig file and its current context; without a file, from the pod that we run in.
    ///
    /// # Errors
    /// What is missing, or not supported, and where.
    pub fn load(kubeconfig: Option<&Path>) -> Result<Self, String> {
        match kubeconfig {
            Some(file) => {
                let text = read(file)?;
                let folder = file.parent().unwrap_or(Path::new("."));
                from_kubeconfig(&text, folder).map_err(|reason| format!("{}: {reason}", file.display()))
            }
            None => in_cluster(Path::new(IN_CLUSTER), |name| env::var(name).ok()),
        }
    }
}

pub(super) fn in_cluster(folder: &Path, variable: impl Fn(&str) -> Option<String>) -> Result<Access, String> {
    let named = |name| variable(name).filter(|value| !value.is_empty());
    let (Some(host), Some(port)) = (named("KUBERNETES_SERVICE_HOST"), named("KUBERNETES_SERVICE_PORT"))
    else {
        return Err("no --kubeconfig, and this is no pod (KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set): \
                    name the kubeconfig of an account that may create TokenReviews"
            .to_owned());
    };
    let host = match host.parse() {
        Ok(IpAddr::V6(ip)) => format!("[{ip}]"),
        _ => host,
    };
    Ok(Access {
        url: format!("https://{host}:{port}"),
        ca: read(&folder.join("ca.crt"))?.into_bytes(),
        credential: Credential::TokenFile(folder.join("token")),
    })
}

pub(super) fn from_kubeconfig(text: &str, folder: &Path) -> Result<Access, String> {
    let config: Config = serde_yaml_ng::from_str(text).map_err(|error| format!("no kubeconfig: {error}"))?;
    let context = named(config.contexts, &config.current_context, "context")?;
    let cluster = named(config.clusters, &context.cluster, "cluster")?;
    let user = match context.user.as_str() {
        "" => User::default(),
        name => named(config.users, name, "user")?,
    };
    for (given, what) in [
        (cluster.insecure_skip_tls_verify, "insecure-skip-tls-verify (name the CA instead)"),
        (cluster.tls_server_name.is_some(), "tls-server-name"),
        (cluster.proxy_url.is_some(), "proxy-url (use the variable HTTPS_PROXY)"),
        (user.exec.is_some(), "exec (use a token or a client certificate)"),
        (user.auth_provider.is_some(), "auth-provider (use a token or a client certificate)"),
        (user.username.is_some(), "username (use a token or a client certificate)"),
    ] {
        if given {
            return Err(format!("not supported here: {what}"));
        }
    }
    if !cluster.server.starts_with("https://") {
        return Err(format!("server {:?}: it must begin with https://", cluster.server));
    }
    let ca = data_or_file(cluster.certificate_authority_data, cluster.certificate_authority, folder)?
        .ok_or("no certificate-authority in its cluster: the API server could not be recognised")?;
    Ok(Access {
        url: cluster.server.trim_end_matches('/').to_owned(),
        ca,
        credential: credential(user, folder)?,
    })
}

fn credential(user: User, folder: &Path) -> Result<Credential, String> {
    let chain = data_or_file(user.client_certificate_data, user.client_certificate, folder)?;
    let key = data_or_file(user.client_key_data, user.client_key, folder)?;
    Ok(match (user.token_file, user.token, chain, key) {
        (_, _, Some(chain), Some(key)) => Credential::Certificate { chain, key },
        (_, _, Some(_), None) | (_, _, None, Some(_)) => {
            return Err("its user has a client certificate or a key, without the other".to_owned());
        }
        (Some(file), ..) => Credential::TokenFile(folder.join(file)),
        (None, Some(token), ..) => Credential::Token(token),
        _ => Credential::None,
    })
}

fn named<T>(list: Vec<Named<T>>, name: &str, what: &str) -> Result<T, String> {
    let found = list.into_iter().find(|entry| entry.name == name);
    found.map(|entry| entry.value).ok_or_else(|| format!("it has no {what} named {name:?}"))
}

/// Data goes before a file, as in kubectl. A relative file counts from the kubeconfig.
fn data_or_file(
    data: Option<String>,
    file: Option<PathBuf>,
    folder: &Path,
) -> Result<Option<Vec<u8>>, String> {
    match (data.filter(|data| !data.is_empty()), file.filter(|file| !file.as_os_str().is_empty())) {
        (Some(data), _) => {
            let bytes =
                BASE64_STANDARD.decode(data.trim()).map_err(|error| format!("bad base64 data: {error}"))?;
            Ok(Some(bytes))
        }
        (None, Some(file)) => read(&folder.join(file)).map(|text| Some(text.into_bytes())),
        (None, None) => Ok(None),
    }
}

fn read(file: &Path) -> Result<String, String> {
    fs::read_to_string(file).map_err(|error| format!("{}: {error}", file.display()))
}

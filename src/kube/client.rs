//! HTTPS and JSON to the API server, with deadlines.

use std::sync::Arc;
use std::time::Duration;

use rustls::crypto::ring;
use serde_json::Value;
use ureq::Agent;
use ureq::tls::{Certificate, ClientCert, PemItem, PrivateKey, RootCerts, TlsConfig, parse_pem};

use super::access::{Access, Credential};
use super::token::read_token;

/// A request, from the name look-up to the last byte of the answer.
const TIMEOUT: Duration = Duration::from_secs(5);
/// An answer is a small object; more is read from nobody.
const ANSWER_LEN_MAX: u64 = 256 * 1024;

/// A client of one API server. Connections are kept for the next request.
#[derive(Clone)]
pub struct Client {
    agent: Agent,
    url: String,
    credential: Credential,
}

impl Client {
    /// Nothing is sent yet.
    ///
    /// # Errors
    /// Certificates or the key cannot be read.
    pub fn new(access: Access) -> Result<Self, String> {
        let roots = certificates(&access.ca)?;
        let mut tls = TlsConfig::builder()
            .root_certs(RootCerts::new_with_certs(&roots))
            .unversioned_rustls_crypto_provider(Arc::new(ring::default_provider()));
        if let Credential::Certificate { chain, key } = &access.credential {
            let key = PrivateKey::from_pem(key).map_err(|error| format!("client key: {error}"))?;
            tls = tls.client_cert(Some(ClientCert::new_with_certs(&certificates(chain)?, key)));
        }
        let config = Agent::config_builder()
            .tls_config(tls.build())
            .https_only(true)
            .http_status_as_error(false)
            // A redirect would carry tokens to somebody else.
            .max_redirects(0)
            .timeout_global(Some(TIMEOUT))
            .user_agent(concat!("tautline/", env!("CARGO_PKG_VERSION")))
            .build();
        Ok(Self { agent: config.new_agent(), url: access.url, credential: access.credential })
    }

    /// Posts an object; gives the answer's object and its status.
    ///
    /// # Errors
    /// No answer, or one that is no JSON.
    pub fn post(&self, path: &str, body: &Value) -> Result<(u16, Value), String> {
        let mut request = self
            .agent
            .post(format!("{}{path}", self.url))
            .header("Content-Type", "application/json")
            .header("Accept", "application/json");
        let token = match &self.credential {
            Credential::Token(token) => Some(token.clone()),
            Credential::TokenFile(file) => Some(read_token(file)?),
            Credential::None | Credential::Certificate { .. } => None,
        };
        if let Some(token) = token {
            request = request.header("Authorization", format!("Bearer {token}"));
        }
        let mut answer =
            request.send(body.to_string()).map_err(|error| format!("no answer of {}: {error}", self.url))?;
        let status = answer.status().as_u16();
        let text = answer.body_mut().with_config().limit(ANSWER_LEN_MAX).read_to_vec();
        let text = text.map_err(|error| format!("half an answer of {}: {error}", self.url))?;
        // Proxies answer errors in HTML: then the status says it all.
        match serde_json::from_slice(&text) {
            Ok(value) => Ok((status, value)),
            Err(_) if status >= 300 => Ok((status, Value::Null)),
            Err(error) => Err(format!("the answer of {} is no JSON: {error}", self.url)),
        }
    }
}

fn certificates(pem: &[u8]) -> Result<Vec<Certificate<'static>>, String> {
    let mut found = Vec::new();
    for item in parse_pem(pem) {
        if let PemItem::Certificate(certificate) =
            item.map_err(|error| format!("bad certificate: {error}"))?
        {
            found.push(certificate);
        }
    }
    if found.is_empty() { Err("no certificate in the PEM data".to_owned()) } else { Ok(found) }
}

//! PEM files: read whole, and nothing in them is skipped in silence.

use std::fs::File;
use std::io::Read;
use std::path::Path;

use rustls::RootCertStore;
use rustls::pki_types::pem::{PemObject, SectionKind};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::error::ConfigError;

/// Largest file, in bytes: a bundle of all public CAs is a tenth of it.
const FILE_LEN_MAX: u64 = 4 * 1024 * 1024;

const BEGIN: &[u8] = b"-----BEGIN ";

/// The blocks of a file, in order, with their labels.
struct Blocks {
    known: Vec<(SectionKind, Vec<u8>)>,
    /// Labels of all blocks, also of those nobody here can use.
    labels: Vec<String>,
}

fn read(file: &Path) -> Result<Blocks, ConfigError> {
    let mut text = Vec::new();
    File::open(file)
        .and_then(|opened| opened.take(FILE_LEN_MAX + 1).read_to_end(&mut text))
        .map_err(|error| ConfigError::in_file(file, error.to_string()))?;
    if text.len() as u64 > FILE_LEN_MAX {
        return Err(ConfigError::in_file(file, format!("larger than {FILE_LEN_MAX} bytes")));
    }
    parse(&text).map_err(|reason| ConfigError::in_file(file, reason))
}

fn parse(text: &[u8]) -> Result<Blocks, String> {
    if text.trim_ascii().is_empty() {
        return Err("the file is empty".to_owned());
    }
    let labels = labels(text)?;
    if labels.is_empty() {
        let der =
            if text.starts_with(&[0x30, 0x82]) { " (it looks like DER: convert it to PEM)" } else { "" };
        return Err(format!("no PEM block in it{der}"));
    }
    // A block whose end is missing would melt into the next one.
    let ends = text.windows(9).filter(|window| window == b"-----END ").count();
    if ends != labels.len() {
        return Err(format!("{} PEM blocks begin and {ends} end", labels.len()));
    }
    let mut known = Vec::new();
    for block in <(SectionKind, Vec<u8>)>::pem_slice_iter(text) {
        let block = block.map_err(|error| format!("bad PEM block number {}: {error:?}", known.len() + 1))?;
        known.push(block);
    }
    Ok(Blocks { known, labels })
}

/// The labels of all blocks. A begin that is not at the start of a line (an indented copy) would be missed
/// by the parser, so it is an error.
fn labels(text: &[u8]) -> Result<Vec<String>, String> {
    let mut labels = Vec::new();
    for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
        let Some(at) = line.windows(BEGIN.len()).position(|window| window == BEGIN) else { continue };
        // A lone CR may end lines too.
        if at > 0 && line[at - 1] != b'\r' {
            return Err(format!("line {}: a PEM block begins inside a line (indented?)", index + 1));
        }
        let label = line[at + BEGIN.len()..].split(|byte| *byte == b'-').next().unwrap_or_default();
        labels.push(String::from_utf8_lossy(label).into_owned());
    }
    Ok(labels)
}

/// The certificates of a CA bundle as trust anchors. Anything else in the file is an error.
pub(super) fn read_roots(file: &Path) -> Result<RootCertStore, ConfigError> {
    let bad = |reason: String| ConfigError::in_file(file, reason);
    let blocks = read(file)?;
    if let Some(label) = blocks.labels.iter().find(|label| *label != "CERTIFICATE") {
        let hint = if label.contains("PRIVATE KEY") { ": a key does not belong here" } else { "" };
        return Err(bad(format!("a CA bundle holds certificates only, this one has {label:?}{hint}")));
    }
    let mut roots = RootCertStore::empty();
    for (index, (_, der)) in blocks.known.into_iter().enumerate() {
        roots
            .add(CertificateDer::from(der))
            .map_err(|error| bad(format!("certificate number {} in it is bad: {error}", index + 1)))?;
    }
    if roots.is_empty() {
        return Err(bad("no certificate in it".to_owned()));
    }
    Ok(roots)
}

/// A chain, leaf first. Other blocks (a key in the same file) are fine.
pub(super) fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, ConfigError> {
    let blocks = read(file)?;
    let known = blocks.known.into_iter();
    let chain: Vec<_> = known
        .filter(|(kind, _)| *kind == SectionKind::Certificate)
        .map(|(_, der)| CertificateDer::from(der))
        .collect();
    if chain.is_empty() {
        return Err(ConfigError::in_file(file, format!("no certificate in it, only {:?}", blocks.labels)));
    }
    Ok(chain)
}

/// The first private key. Other blocks (its certificate, EC parameters) are fine.
pub(super) fn read_key(file: &Path) -> Result<PrivateKeyDer<'static>, ConfigError> {
    let blocks = read(file)?;
    if let Some(key) = blocks.known.into_iter().find_map(|(kind, der)| PrivateKeyDer::from_pem(kind, der)) {
        return Ok(key);
    }
    let reason = if blocks.labels.iter().any(|label| label == "ENCRYPTED PRIVATE KEY") {
        "the private key is encrypted: store it without a passphrase".to_owned()
    } else {
        format!("no private key in it, only {:?}", blocks.labels)
    };
    Err(ConfigError::in_file(file, reason))
}

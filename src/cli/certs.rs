//! `tautline certs`: a development CA and the certificates of a server, an agent and a client.
//!
//! For a try, a test and the demo. A cluster brings its own certificates.

use std::fmt;
use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::{ArgMatches, Args, Command, FromArgMatches};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};

const DAYS_DEFAULT: u32 = 365;
const DAYS_MAX: u32 = 3650;
const DAY: Duration = Duration::from_secs(24 * 3600);
/// Clocks of other machines may be behind.
const BACKDATED: Duration = Duration::from_secs(3600);
const KEY_MODE: u32 = 0o600;
const CERTIFICATE_MODE: u32 = 0o644;

/// What [`write()`] makes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertOptions {
    /// Replace files that are there.
    pub force: bool,
    /// How long the certificates are valid, 1 to 3650.
    pub days: u32,
    /// Names and addresses of the server besides `localhost`, `127.0.0.1` and `::1`.
    pub hosts: Vec<String>,
}

impl Default for CertOptions {
    fn default() -> Self {
        Self { force: false, days: DAYS_DEFAULT, hosts: Vec::new() }
    }
}

/// The files that [`write()`] made.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CertPaths {
    /// The CA's certificate; its key lies beside it.
    pub ca_cert: PathBuf,
    /// The server's certificate.
    pub server_cert: PathBuf,
    /// Its key.
    pub server_key: PathBuf,
    /// The agent's certificate.
    pub agent_cert: PathBuf,
    /// Its key.
    pub agent_key: PathBuf,
    /// The certificate of a client such as kube-apiserver.
    pub client_cert: PathBuf,
    /// Its key.
    pub client_key: PathBuf,
}

/// Why [`write()`] made nothing, or not all.
#[derive(Debug)]
pub enum CertError {
    /// [`CertOptions::days`] is not 1 to 3650.
    Days(u32),
    /// Files are there already and [`CertOptions::force`] is off. Nothing was written.
    Exists(PathBuf),
    /// A host that cannot stand in a certificate.
    Host(rcgen::Error),
    /// Making a key or a signature failed.
    Crypto(rcgen::Error),
    /// A file or the directory could not be written.
    Io(PathBuf, io::Error),
}

impl fmt::Display for CertError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Days(days) => write!(f, "--days={days}: use 1 to {DAYS_MAX}"),
            Self::Exists(path) => write!(f, "{} exists: use --force to replace it", path.display()),
            Self::Host(error) => write!(f, "--host: {error}"),
            Self::Crypto(error) => write!(f, "cannot make a certificate: {error}"),
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
        }
    }
}

impl std::error::Error for CertError {}

/// One of the three that the CA signs.
struct Leaf {
    name: &'static str,
    common_name: &'static str,
    usage: ExtendedKeyUsagePurpose,
    hosts: Vec<String>,
}

/// Writes `ca`, `server`, `agent` and `client` as `.crt` and `.key` (PEM, P-256, keys with mode 0600) into
/// `directory`, which is made if it is not there.
///
/// # Errors
/// See [`CertError`]. Files that were written before an I/O error stay.
pub fn write(directory: &Path, options: &CertOptions) -> Result<CertPaths, CertError> {
    if options.days == 0 || options.days > DAYS_MAX {
        return Err(CertError::Days(options.days));
    }
    let mut files = Vec::new();
    let ca = authority(options.days)?;
    add_pair(&mut files, "ca", ca.pem(), ca.key());
    let mut hosts = vec!["localhost".to_owned(), "127.0.0.1".to_owned(), "::1".to_owned()];
    hosts.extend(options.hosts.iter().cloned());
    let leaf = |name, common_name, usage, hosts| Leaf { name, common_name, usage, hosts };
    for leaf in [
        leaf("server", "tautline-server", ExtendedKeyUsagePurpose::ServerAuth, hosts),
        leaf("agent", "tautline-agent", ExtendedKeyUsagePurpose::ClientAuth, Vec::new()),
        leaf("client", "tautline-client", ExtendedKeyUsagePurpose::ClientAuth, Vec::new()),
    ] {
        let key = KeyPair::generate().map_err(CertError::Crypto)?;
        let certificate =
            leaf_params(&leaf, options.days)?.signed_by(&key, &ca).map_err(CertError::Crypto)?;
        add_pair(&mut files, leaf.name, certificate.pem(), &key);
    }
    write_files(directory, &files, options.force)?;
    let path = |name: &str| directory.join(name);
    Ok(CertPaths {
        ca_cert: path("ca.crt"),
        server_cert: path("server.crt"),
        server_key: path("server.key"),
        agent_cert: path("agent.crt"),
        agent_key: path("agent.key"),
        client_cert: path("client.crt"),
        client_key: path("client.key"),
    })
}

fn authority(days: u32) -> Result<CertifiedIssuer<'static, KeyPair>, CertError> {
    let mut params = CertificateParams::default();
    params.distinguished_name.push(DnType::CommonName, "tautline development CA");
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
    set_validity(&mut params, days);
    let key = KeyPair::generate().map_err(CertError::Crypto)?;
    CertifiedIssuer::self_signed(params, key).map_err(CertError::Crypto)
}

fn leaf_params(leaf: &Leaf, days: u32) -> Result<CertificateParams, CertError> {
    let mut params = CertificateParams::new(leaf.hosts.clone()).map_err(CertError::Host)?;
    params.distinguished_name.push(DnType::CommonName, leaf.common_name);
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![leaf.usage.clone()];
    params.use_authority_key_identifier_extension = true;
    set_validity(&mut params, days);
    Ok(params)
}

#[expect(clippy::disallowed_methods, reason = "a person's command: its certificates start now by wall clock")]
fn set_validity(params: &mut CertificateParams, days: u32) {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + now.saturating_sub(BACKDATED);
    params.not_after = epoch + now + DAY * days;
}

/// A file to be written.
struct NewFile {
    name: String,
    content: String,
    mode: u32,
}

fn add_pair(files: &mut Vec<NewFile>, name: &str, certificate: String, key: &KeyPair) {
    files.push(NewFile { name: format!("{name}.crt"), content: certificate, mode: CERTIFICATE_MODE });
    files.push(NewFile { name: format!("{name}.key"), content: key.serialize_pem(), mode: KEY_MODE });
}

fn write_files(directory: &Path, files: &[NewFile], force: bool) -> Result<(), CertError> {
    fs::create_dir_all(directory).map_err(|error| CertError::Io(directory.to_path_buf(), error))?;
    if !force {
        let existing =
            files.iter().map(|file| directory.join(&file.name)).find(|path| path.symlink_metadata().is_ok());
        if let Some(path) = existing {
            return Err(CertError::Exists(path));
        }
    }
    for file in files {
        let path = directory.join(&file.name);
        write_file(&path, file, force).map_err(|error| CertError::Io(path, error))?;
    }
    Ok(())
}

/// Always a new file, so that its mode holds from the first byte on and nothing that is open is rewritten.
fn write_file(path: &Path, file: &NewFile, force: bool) -> io::Result<()> {
    if force {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mut output = OpenOptions::new().write(true).create_new(true).mode(file.mode).open(path)?;
    output.write_all(file.content.as_bytes())
}

#[derive(Args, Debug)]
struct CertFlags {
    /// Where to write the files
    #[arg(value_name = "DIR")]
    directory: PathBuf,
    /// Replace files that are there
    #[arg(long)]
    force: bool,
    /// How long the certificates are valid
    #[arg(long, value_name = "N", default_value_t = DAYS_DEFAULT)]
    days: u32,
    /// Name or address of the server, besides localhost, 127.0.0.1 and ::1; may be repeated
    #[arg(long = "host", value_name = "NAME")]
    hosts: Vec<String>,
}

pub(super) fn arguments(command: Command) -> Command {
    CertFlags::augment_args(command)
}

pub(super) fn run(matches: &ArgMatches) -> Result<(), String> {
    let flags = CertFlags::from_arg_matches(matches).map_err(|error| error.to_string())?;
    let host = flags.hosts.first().cloned().unwrap_or_else(|| "localhost".to_owned());
    let options = CertOptions { force: flags.force, days: flags.days, hosts: flags.hosts };
    let paths = write(&flags.directory, &options).map_err(|error| error.to_string())?;
    // A reader who went away takes nothing from the files.
    let _ = io::stdout().lock().write_all(hint(&paths, &host, &options).as_bytes());
    Ok(())
}

/// Command lines to copy.
fn hint(paths: &CertPaths, host: &str, options: &CertOptions) -> String {
    let show = |path: &Path| shell_quoted(&path.display().to_string());
    format!(
        "Wrote a development CA and certificates that are valid for {days} days. Keep ca.key away from servers.\n\
         \n\
         Server, with a Unix socket for clients:\n\
         \n  tautline server --uds-name=/tmp/tautline.sock \\\n    \
             --cluster-cert={server_cert} --cluster-key={server_key} --cluster-ca-cert={ca}\n\
         \n\
         Server, with TCP for clients: instead of --uds-name\n\
         \n    --server-cert={server_cert} --server-key={server_key} --server-ca-cert={ca}\n\
         \n\
         Agent:\n\
         \n  tautline agent --proxy-server-host={host} --ca-cert={ca} \\\n    \
             --agent-cert={agent_cert} --agent-key={agent_key}\n\
         \n\
         Clients on TCP show {client_cert} and {client_key}.\n",
        days = options.days,
        host = shell_quoted(host),
        ca = show(&paths.ca_cert),
        server_cert = show(&paths.server_cert),
        server_key = show(&paths.server_key),
        agent_cert = show(&paths.agent_cert),
        agent_key = show(&paths.agent_key),
        client_cert = show(&paths.client_cert),
        client_key = show(&paths.client_key),
    )
}

fn shell_quoted(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_' | ':');
    if !text.is_empty() && text.chars().all(plain) {
        return text.to_owned();
    }
    format!("'{}'", text.replace('\'', "'\\''"))
}

#[cfg(test)]
mod tests;

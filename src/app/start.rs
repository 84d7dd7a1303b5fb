//! From options to a running loop.

use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use super::{App, AppConfig, DescriptorShares, LinkTls, ReadToken, Review, Tokens};
use crate::cli::options::{
    AgentOptions, AgentSecurity, CertificateFiles, Frontend, Host, Liveness, LogOptions, ServerOptions,
    ServerSecurity,
};
use crate::core::agent::{Agent, AgentConfig};
use crate::core::metrics::ProcessStats;
use crate::core::mux::LivenessConfig;
use crate::core::role::{Door, ProcessReport, Role};
use crate::core::server::{Server, ServerConfig};
use crate::kube;
use crate::net::signal::Signals;
use crate::net::sys::{KernelLiveness, ListenAddr, Sys};
use crate::net::tls::{self, ClientTls, ClientTlsOptions, ServerTls, ServerTlsOptions, WallClock};
use crate::net::unix::UnixSys;
use crate::net::{logger, process};
use crate::token::Secret;

/// Why a role did not start, or had to end.
#[derive(Debug)]
pub struct StartError(String);

impl StartError {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for StartError {}

/// Runs the server until a signal ends it.
///
/// # Errors
/// What kept it from starting.
pub fn run_server(options: ServerOptions) -> Result<(), StartError> {
    begin(&options.log, &options.notices)?;
    let clock = WallClock::default();
    let link_tls = match &options.agent_security {
        AgentSecurity::Plain => LinkTls::None,
        AgentSecurity::MutualTls { files, agent_ca } => server_tls(&options, files, Some(agent_ca), &clock)?,
        AgentSecurity::TlsWithoutClientCertificate { files } | AgentSecurity::Token { files, .. } => {
            server_tls(&options, files, None, &clock)?
        }
    };
    let tokens = Tokens { review: review(&options.agent_security)?, read: None };
    let frontend_tls = frontend_tls(&options, &clock)?;
    let shares = shares(options.max_tunnels.map(u32::from))?;
    let mut sys = new_sys(&clock, Signals::Process)?;
    let config = ServerConfig {
        server_id: options.server_id.clone(),
        server_count: options.server_count.get(),
        liveness: liveness(&options.liveness),
        dial_timeout: options.dial_timeout,
        dial_wait: options.dial_wait,
        drain_timeout: options.graceful_shutdown_timeout,
        max_tunnels: shares.tunnels,
        greetings_max: shares.greetings,
        reviews_tokens: tokens.review.is_some(),
        seed: sys.random(),
    };
    let mut app = App::new(
        sys,
        Server::new(config),
        AppConfig { tokens, ..app_config(link_tls, frontend_tls, &options.liveness, clock, shares) },
    );
    listen(&mut app, "agents", &ListenAddr::Tcp(options.agent_addr), Some(Door::Agents))?;
    for frontend in &options.frontends {
        match frontend {
            Frontend::Unix { path, replace_existing } => {
                if !replace_existing && path.exists() {
                    return Err(StartError::new(format!(
                        "{} exists and --delete-existing-uds-file=false: remove it, or choose another --uds-name",
                        path.display()
                    )));
                }
                listen(&mut app, "frontends", &ListenAddr::Unix(path.clone()), Some(Door::Frontends))?;
            }
            Frontend::TcpTls { addr, .. } => {
                listen(&mut app, "frontends", &ListenAddr::Tcp(*addr), Some(Door::Frontends))?;
            }
        }
    }
    listen(&mut app, "health", &ListenAddr::Tcp(options.health_addr), None)?;
    listen(&mut app, "admin", &ListenAddr::Tcp(options.admin_addr), None)?;
    finish(app)
}

/// Runs an agent until a signal ends it.
///
/// # Errors
/// What kept it from starting.
pub fn run_agent(options: AgentOptions) -> Result<(), StartError> {
    begin(&options.log, &options.notices)?;
    let mut app = agent_app(&options, Signals::Process)?;
    listen(&mut app, "health", &ListenAddr::Tcp(options.health_addr), None)?;
    listen(&mut app, "admin", &ListenAddr::Tcp(options.admin_addr), None)?;
    finish(app)
}

/// An agent that listens nowhere, for [`run_agent`] and for those that run many in one process.
///
/// # Errors
/// What kept it from starting.
pub fn agent_app(options: &AgentOptions, signals: Signals) -> Result<App<UnixSys, Agent>, StartError> {
    let clock = WallClock::default();
    let server_host = match &options.server_host {
        Host::Ip(ip) => ip.to_string(),
        Host::Name(name) => name.clone(),
    };
    let link_tls = match &options.server_security {
        ServerSecurity::Plain => LinkTls::None,
        ServerSecurity::Tls { ca, client, alpn_before_ours } => {
            let alpn = alpn_before_ours.iter().map(|name| name.clone().into_bytes());
            let tls = ClientTls::load(
                &ClientTlsOptions {
                    ca_file: ca.clone(),
                    cert_file: client.as_ref().map(|files| files.certificate.clone()),
                    key_file: client.as_ref().map(|files| files.key.clone()),
                    alpn: alpn.chain([tls::ALPN_LINK.to_vec()]).collect(),
                    ..ClientTlsOptions::default()
                },
                &clock,
            )
            .map_err(|error| StartError::new(error.to_string()))?;
            tell(&tls.notices);
            let name = tls::server_name(&server_host).map_err(|error| StartError::new(error.to_string()))?;
            LinkTls::Client(tls, name)
        }
    };
    let shares = shares(options.max_tunnels.map(u32::from))?;
    let mut sys = new_sys(&clock, signals)?;
    let config = AgentConfig {
        agent_id: options.agent_id.clone(),
        identifiers: options.identifiers.text.clone(),
        server_host,
        server_port: options.server_port,
        liveness: liveness(&options.liveness),
        redial_base: options.sync_interval,
        redial_cap: options.sync_interval_cap,
        drain_timeout: options.drain_timeout,
        shows_token: options.token_file.is_some(),
        max_tunnels: shares.tunnels,
        seed: sys.random(),
    };
    let now = sys.now();
    let read = options
        .token_file
        .clone()
        .map(|file| -> ReadToken { Arc::new(move || kube::read_token(&file).map(Secret::new)) });
    let config_of_app = AppConfig {
        tokens: Tokens { read, review: None },
        ..app_config(link_tls, None, &options.liveness, clock, shares)
    };
    Ok(App::new(sys, Agent::new(config, now), config_of_app))
}

/// How tokens of agents are judged, if they are.
fn review(security: &AgentSecurity) -> Result<Option<Review>, StartError> {
    let AgentSecurity::Token { review, .. } = security else { return Ok(None) };
    let reviewer = kube::Access::load(review.kubeconfig.as_deref())
        .and_then(|access| {
            kube::Reviewer::new(access, &review.namespace, &review.service_account, &review.audience)
        })
        .map_err(|error| StartError::new(format!("tokens of agents cannot be judged: {error}")))?;
    Ok(Some(Arc::new(move |token: &Secret| reviewer.review(token.expose()))))
}

fn begin(log: &LogOptions, notices: &[String]) -> Result<(), StartError> {
    logger::init(logger::level_of_verbosity(log.verbosity))
        .map_err(|error| StartError::new(format!("the log cannot be set up: {error}")))?;
    log::info!("msg=\"tautline starts\" version={}", env!("CARGO_PKG_VERSION"));
    tell(notices);
    Ok(())
}

fn tell(notices: &[String]) {
    for notice in notices {
        log::warn!("msg=\"notice\" text={}", crate::core::note::Quoted(notice));
    }
}

fn new_sys(clock: &WallClock, signals: Signals) -> Result<UnixSys, StartError> {
    let mut sys = UnixSys::new(signals)
        .map_err(|error| StartError::new(format!("the event loop cannot be set up: {error}")))?;
    clock.set(sys.unix_time());
    Ok(sys)
}

fn server_tls(
    options: &ServerOptions,
    files: &CertificateFiles,
    client_ca: Option<&PathBuf>,
    clock: &WallClock,
) -> Result<LinkTls, StartError> {
    load_server_tls(options, files, client_ca, tls::ALPN_LINK, true, clock).map(LinkTls::Server)
}

fn frontend_tls(options: &ServerOptions, clock: &WallClock) -> Result<Option<ServerTls>, StartError> {
    let tcp = options.frontends.iter().find_map(|frontend| match frontend {
        Frontend::TcpTls { files, client_ca, .. } => Some((files, client_ca)),
        Frontend::Unix { .. } => None,
    });
    // kube-apiserver does not resume sessions, so tickets would be paid for in vain.
    tcp.map(|(files, ca)| load_server_tls(options, files, Some(ca), tls::ALPN_HTTP, false, clock)).transpose()
}

fn load_server_tls(
    options: &ServerOptions,
    files: &CertificateFiles,
    client_ca: Option<&PathBuf>,
    alpn: &[u8],
    resumption: bool,
    clock: &WallClock,
) -> Result<ServerTls, StartError> {
    let tls = ServerTls::load(
        &ServerTlsOptions {
            cert_file: files.certificate.clone(),
            key_file: files.key.clone(),
            client_ca_file: client_ca.cloned(),
            min_version: tls_version(options.tls_min_version),
            cipher_suites: options.cipher_suites.iter().map(|suite| suite.name().to_owned()).collect(),
            alpn: vec![alpn.to_vec()],
            resumption,
        },
        clock,
    )
    .map_err(|error| StartError::new(error.to_string()))?;
    tell(&tls.notices);
    Ok(tls)
}

fn tls_version(version: crate::cli::options::TlsVersion) -> tls::TlsVersion {
    use crate::cli::options::TlsVersion as Flag;
    match version {
        Flag::V1_2 => tls::TlsVersion::Tls12,
        Flag::V1_3 => tls::TlsVersion::Tls13,
    }
}

fn liveness(flags: &Liveness) -> LivenessConfig {
    LivenessConfig {
        ping_interval: flags.ping_interval,
        ping_timeout: flags.ping_timeout,
        dead_after: flags.dead_after,
    }
}

/// One detection time, three kernel settings: a link survives lost probes, and is gone in time without PINGs too.
fn kernel_liveness(flags: &Liveness) -> KernelLiveness {
    let dead_after_s = flags.dead_after.as_secs().max(4);
    let interval_s = (dead_after_s / 10).max(1);
    let user_timeout_s = if flags.ping_interval.is_some() { 2 * dead_after_s } else { dead_after_s };
    KernelLiveness {
        keepalive_idle: Duration::from_secs(dead_after_s.saturating_sub(7 * interval_s).max(1)),
        keepalive_interval: Duration::from_secs(interval_s),
        keepalive_count: 7,
        user_timeout: Duration::from_secs(user_timeout_s),
    }
}

fn shares(max_tunnels: Option<u32>) -> Result<DescriptorShares, StartError> {
    let limit = process::raise_descriptor_limit()
        .map_err(|error| StartError::new(format!("the limit of descriptors cannot be read: {error}")))?;
    let shares = DescriptorShares::new(limit);
    let tunnels = max_tunnels.map_or(shares.tunnels, |flag| shares.tunnels.min(flag as usize));
    Ok(DescriptorShares { tunnels, ..shares })
}

fn app_config(
    link_tls: LinkTls,
    frontend_tls: Option<ServerTls>,
    flags: &Liveness,
    clock: WallClock,
    shares: DescriptorShares,
) -> AppConfig {
    AppConfig {
        link_tls,
        frontend_tls,
        kernel_liveness: kernel_liveness(flags),
        clock,
        tokens: Tokens::default(),
        shares,
        process: process_report,
    }
}

fn process_report() -> ProcessReport {
    let stats = process::process_stats().unwrap_or_default();
    let stats = ProcessStats {
        open_fds: stats.open_fds,
        max_fds: stats.max_fds,
        resident_bytes: stats.resident_bytes,
        virtual_bytes: stats.virtual_bytes,
        cpu_seconds: stats.cpu_seconds,
        start_time_seconds: stats.start_time_seconds,
        log_lines_dropped: logger::dropped_lines(),
    };
    ProcessReport { stats, connections: 0 }
}

fn listen<R: Role>(
    app: &mut App<UnixSys, R>,
    what: &str,
    at: &ListenAddr,
    door: Option<Door>,
) -> Result<(), StartError> {
    let listened = match door {
        Some(door) => app.listen(at, door),
        None => app.listen_http(at),
    };
    let sock = listened.map_err(|error| StartError::new(format!("cannot listen for {what}: {error}")))?;
    match at {
        ListenAddr::Unix(path) => {
            let path = path.display().to_string();
            log::info!("msg=\"listening\" what={what} addr={}", crate::core::note::Quoted(&path));
        }
        ListenAddr::Tcp(asked) => {
            let addr = app.sys().local_addr(sock).unwrap_or(*asked);
            log::info!("msg=\"listening\" what={what} addr={addr}");
        }
    }
    Ok(())
}

fn finish<R: Role>(mut app: App<UnixSys, R>) -> Result<(), StartError> {
    let ended = app.run().map_err(|error| StartError::new(format!("the event loop broke: {error}")));
    log::info!("msg=\"tautline ends\"");
    logger::flush(Duration::from_secs(1));
    ended
}

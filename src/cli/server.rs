//! Flags of `tautline server` and their checks.

use std::net::SocketAddr;
use std::num::NonZeroU32;

use clap::{ArgMatches, Args};

use super::flags::{self, KlogFlags, LivenessFlags, LogFlags};
use super::identifiers::parse_strategies;
use super::options::{AgentSecurity, CertificateFiles, Frontend, ServerOptions, TokenReview};
use super::values::{self, GoDuration, Switch};
use super::{OptionsError, tls_names};
use crate::limits;

/// sockaddr_un holds 108 bytes, and the last one is a zero.
const UNIX_PATH_LEN_MAX: usize = 107;
const SERVER_PORT: i64 = 8090;

/// Flags of `tautline server`.
#[derive(Args, Debug)]
pub(super) struct ServerFlags {
    #[command(flatten)]
    main: MainFlags,
    #[command(flatten)]
    tls: TlsFlags,
    #[command(flatten)]
    more: MoreFlags,
    #[command(flatten)]
    liveness: LivenessFlags,
    #[command(flatten)]
    kubernetes: KubernetesFlags,
    #[command(flatten)]
    log: LogFlags,
    #[command(flatten)]
    accepted: AcceptedFlags,
    #[command(flatten)]
    klog: KlogFlags,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Main")]
struct MainFlags {
    /// Unix socket for kube-apiserver and other clients (mode 0770)
    #[arg(long, value_name = "PATH", default_value = "")]
    uds_name: String,
    /// TCP port for clients (mutual TLS) where there is no Unix socket [default: 8090]
    #[arg(long, value_name = "PORT", allow_negative_numbers = true)]
    server_port: Option<i64>,
    /// TCP port for agents
    #[arg(long, value_name = "PORT", default_value_t = 8091, allow_negative_numbers = true)]
    agent_port: i64,
    /// Certificate that agents see
    #[arg(long, value_name = "FILE", default_value = "")]
    cluster_cert: String,
    /// Key of --cluster-cert
    #[arg(long, value_name = "FILE", default_value = "")]
    cluster_key: String,
    /// CA that signs the certificates of agents
    #[arg(long, value_name = "FILE", default_value = "")]
    cluster_ca_cert: String,
    /// How to choose an agent, in this order: default, destHost, defaultRoute
    #[arg(long, value_name = "LIST", default_value = "default")]
    proxy_strategies: String,
    /// How many servers there are; agents then connect to as many
    #[arg(long, value_name = "N", default_value_t = 1, allow_negative_numbers = true)]
    server_count: i64,
    /// TCP port for probes and metrics
    #[arg(long, value_name = "PORT", default_value_t = 8092, allow_negative_numbers = true)]
    health_port: i64,
    /// TCP port for metrics on the local host
    #[arg(long, value_name = "PORT", default_value_t = 8095, allow_negative_numbers = true)]
    admin_port: i64,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
struct TlsFlags {
    /// Certificate that clients on --server-port see
    #[arg(long, value_name = "FILE", default_value = "")]
    server_cert: String,
    /// Key of --server-cert
    #[arg(long, value_name = "FILE", default_value = "")]
    server_key: String,
    /// CA that signs the certificates of clients on --server-port
    #[arg(long, value_name = "FILE", default_value = "")]
    server_ca_cert: String,
    /// Take any agent, without a client certificate; without --cluster-cert even without TLS
    #[arg(long, default_value = "false")]
    insecure_agents: Switch,
    /// Lowest TLS version: VersionTLS12 or VersionTLS13
    #[arg(long, value_name = "VERSION", default_value = "")]
    tls_min_version: String,
    /// TLS 1.2 cipher suites by their IANA names; empty = all that are safe
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    cipher_suites: Vec<String>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Addresses and limits")]
struct MoreFlags {
    /// Name of this server towards agents; empty = a random one
    #[arg(long, value_name = "ID", default_value = "", env = "PROXY_SERVER_ID")]
    server_id: String,
    /// Address for clients; empty = all
    #[arg(long, value_name = "IP", default_value = "")]
    server_bind_address: String,
    /// Address for agents; empty = all
    #[arg(long, value_name = "IP", default_value = "")]
    agent_bind_address: String,
    /// Address for probes and metrics; empty = all
    #[arg(long, value_name = "IP", default_value = "")]
    health_bind_address: String,
    /// Address of the admin port; empty = all
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    admin_bind_address: String,
    /// Replace a file that is already there under --uds-name
    #[arg(long, default_value = "true")]
    delete_existing_uds_file: Switch,
    /// A dial ends with 504 after this; 0 = 8s
    #[arg(long, default_value = "0")]
    backend_dial_timeout: GoDuration,
    /// A dial waits this long for an agent when there is none (within --backend-dial-timeout)
    #[arg(long, default_value = "2s")]
    dial_wait: GoDuration,
    /// After SIGTERM open tunnels may go on this long; 0 = stop at once
    #[arg(long, default_value = "0")]
    graceful_shutdown_timeout: GoDuration,
    /// Tunnels at most; 0 = as many as the limit on descriptors allows
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    max_tunnels: i64,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Kubernetes")]
struct KubernetesFlags {
    /// Namespace of agents that show a service account token
    #[arg(long, value_name = "NAME", default_value = "")]
    agent_namespace: String,
    /// Their service account
    #[arg(long, value_name = "NAME", default_value = "")]
    agent_service_account: String,
    /// Audience of their tokens
    #[arg(long, value_name = "NAME", default_value = "")]
    authentication_audience: String,
    /// Access to the Kubernetes API, which judges tokens; empty = from the pod we run in
    #[arg(long, value_name = "FILE", default_value = "")]
    kubeconfig: String,
    /// No effect yet
    #[arg(long, value_name = "N", default_value_t = 0.0)]
    kubeconfig_qps: f32,
    /// No effect yet
    #[arg(long, value_name = "N", default_value_t = 0)]
    kubeconfig_burst: i32,
    /// No effect yet
    #[arg(long, value_name = "TYPE", default_value = "application/vnd.kubernetes.protobuf")]
    kube_api_content_type: String,
    /// No effect yet
    #[arg(long, default_value = "false")]
    enable_lease_controller: Switch,
    /// No effect yet
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    lease_namespace: String,
    /// No effect yet
    #[arg(long, value_name = "LABELS", default_value = "k8s-app=konnectivity-server")]
    lease_label: String,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Accepted for Konnectivity")]
struct AcceptedFlags {
    /// What clients speak: http-connect, nothing else
    #[arg(long, value_name = "MODE", default_value = "http-connect")]
    mode: String,
    /// No effect: for gRPC clients only
    #[arg(long, default_value = "1h0m0s")]
    frontend_keepalive_time: GoDuration,
    /// No effect: windows bound what is queued
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    xfr_channel_size: i64,
    /// No effect: windows bound what is queued
    #[arg(long, value_name = "N", default_value_t = 10, allow_negative_numbers = true)]
    frontend_write_channel_size: i64,
    /// No effect: there is no Go profiling here
    #[arg(long, default_value = "false")]
    enable_profiling: Switch,
    /// No effect: there is no Go profiling here
    #[arg(long, default_value = "false")]
    enable_contention_profiling: Switch,
    /// No effect
    #[arg(long, default_value = "true")]
    warn_on_channel_limit: Switch,
}

impl ServerFlags {
    /// Checks everything and gives what the server needs.
    ///
    /// # Errors
    /// The first thing that is wrong, with what to do about it.
    pub(super) fn check(&self, matches: &ArgMatches) -> Result<ServerOptions, OptionsError> {
        self.options(flags::notices(matches, flags::ACCEPTED_SERVER)).map_err(OptionsError::server)
    }

    fn options(&self, mut notices: Vec<String>) -> Result<ServerOptions, String> {
        self.check_mode()?;
        self.check_accepted()?;
        let tls_min_version = tls_names::min_version(&self.tls.tls_min_version, &mut notices)?;
        let cipher_suites = tls_names::cipher_suites(&self.tls.cipher_suites, tls_min_version, &mut notices)?;
        let dial_timeout = match self.more.backend_dial_timeout.not_negative("backend-dial-timeout")? {
            limit if limit.is_zero() => limits::DIAL_TIMEOUT,
            limit if limit <= limits::DIAL_ANSWER_RESERVE => {
                return Err(format!("--backend-dial-timeout={limit:?}: use more than 200ms, or 0 for 8s"));
            }
            limit => limit,
        };
        let server_count = u32::try_from(self.main.server_count).ok().and_then(NonZeroU32::new);
        let more = &self.more;
        let options = ServerOptions {
            server_id: values::id_or_random("server-id", &more.server_id)?,
            server_count: server_count
                .ok_or_else(|| format!("--server-count={}: use 1 or more", self.main.server_count))?,
            frontends: vec![self.frontend()?],
            agent_addr: listen(
                "agent-bind-address",
                &more.agent_bind_address,
                "agent-port",
                self.main.agent_port,
            )?,
            agent_security: self.agent_security()?,
            health_addr: listen(
                "health-bind-address",
                &more.health_bind_address,
                "health-port",
                self.main.health_port,
            )?,
            admin_addr: listen(
                "admin-bind-address",
                &more.admin_bind_address,
                "admin-port",
                self.main.admin_port,
            )?,
            tls_min_version,
            cipher_suites,
            strategies: parse_strategies(&self.main.proxy_strategies)?,
            liveness: self.liveness.check()?,
            dial_wait: more.dial_wait.not_negative("dial-wait")?.min(dial_timeout),
            dial_timeout,
            graceful_shutdown_timeout: more
                .graceful_shutdown_timeout
                .not_negative("graceful-shutdown-timeout")?,
            max_tunnels: values::max_tunnels(more.max_tunnels)?,
            log: self.log.check()?,
            notices,
        };
        self.check_files()?;
        Ok(options)
    }

    fn check_mode(&self) -> Result<(), String> {
        match self.accepted.mode.as_str() {
            "http-connect" => Ok(()),
            "grpc" => {
                let transport = if self.main.uds_name.is_empty() {
                    let port = self.main.server_port.unwrap_or(SERVER_PORT);
                    format!(
                        "tcp: {{url: \"https://HOST:{port}\", tlsConfig: {{caBundle: FILE, clientCert: FILE, \
                         clientKey: FILE}}}}"
                    )
                } else {
                    format!("uds: {{udsName: \"{}\"}}", self.main.uds_name)
                };
                Err(format!(
                    "--mode=grpc, which does not exist here: use --mode=http-connect, and in kube-apiserver's \
                     EgressSelectorConfiguration (--egress-selector-config-file) connection: {{proxyProtocol: \
                     HTTPConnect, transport: {{{transport}}}}}"
                ))
            }
            other => Err(format!("--mode={other}: use http-connect")),
        }
    }

    /// Which tokens are agents', if agents are known by token.
    fn token_review(&self) -> Result<Option<TokenReview>, String> {
        let flags = [
            ("--agent-namespace", &self.kubernetes.agent_namespace),
            ("--agent-service-account", &self.kubernetes.agent_service_account),
            ("--authentication-audience", &self.kubernetes.authentication_audience),
        ];
        let missing: Vec<&str> =
            flags.iter().filter(|(_, value)| value.is_empty()).map(|(flag, _)| *flag).collect();
        if missing.len() == flags.len() {
            return Ok(None);
        }
        if !missing.is_empty() {
            return Err(format!(
                "only some of the flags for service account tokens: {} missing",
                missing.join(" and ")
            ));
        }
        for (flag, given) in [
            ("--cluster-ca-cert", !self.main.cluster_ca_cert.is_empty()),
            ("--insecure-agents", self.tls.insecure_agents.0),
        ] {
            if given {
                return Err(format!(
                    "{flag} together with --agent-namespace: agents are known by certificate or by token, remove one"
                ));
            }
        }
        Ok(Some(TokenReview {
            namespace: self.kubernetes.agent_namespace.clone(),
            service_account: self.kubernetes.agent_service_account.clone(),
            audience: self.kubernetes.authentication_audience.clone(),
            kubeconfig: values::path(&self.kubernetes.kubeconfig),
        }))
    }

    fn check_accepted(&self) -> Result<(), String> {
        for (flag, size) in [
            ("xfr-channel-size", self.accepted.xfr_channel_size),
            ("frontend-write-channel-size", self.accepted.frontend_write_channel_size),
        ] {
            if size <= 0 {
                return Err(format!("--{flag}={size}: must be above 0"));
            }
        }
        if self.accepted.enable_contention_profiling.0 && !self.accepted.enable_profiling.0 {
            return Err(
                "--enable-contention-profiling without --enable-profiling: give both or none".to_owned()
            );
        }
        self.accepted.frontend_keepalive_time.not_negative("frontend-keepalive-time")?;
        Ok(())
    }

    fn frontend(&self) -> Result<Frontend, String> {
        let tls = &self.tls;
        let files = pair("server-cert", &tls.server_cert, "server-key", &tls.server_key)?;
        let client_ca = values::path(&tls.server_ca_cert);
        let Some(path) = values::path(&self.main.uds_name) else {
            let port = self.main.server_port.unwrap_or(SERVER_PORT);
            let addr = listen("server-bind-address", &self.more.server_bind_address, "server-port", port)?;
            let Some(files) = files else {
                return Err(
                    "no way in for clients: give --uds-name=PATH for a Unix socket, or --server-cert, \
                            --server-key and --server-ca-cert for TCP"
                        .to_owned(),
                );
            };
            let client_ca = client_ca.ok_or(
                "no --server-ca-cert: it is needed with --server-cert, or anybody could open tunnels",
            )?;
            return Ok(Frontend::TcpTls { addr, files, client_ca });
        };
        if files.is_some() || client_ca.is_some() {
            return Err(
                "--uds-name together with --server-cert, --server-key or --server-ca-cert: clients come \
                        in by Unix socket or by TCP, choose one"
                    .to_owned(),
            );
        }
        if let Some(port) = self.main.server_port.filter(|port| *port != 0) {
            return Err(format!("--server-port={port} together with --uds-name: use --server-port=0"));
        }
        let length = path.as_os_str().len();
        if length > UNIX_PATH_LEN_MAX {
            return Err(format!(
                "--uds-name of {length} bytes: a Unix socket's path has at most {UNIX_PATH_LEN_MAX}"
            ));
        }
        Ok(Frontend::Unix { path, replace_existing: self.more.delete_existing_uds_file.0 })
    }

    fn agent_security(&self) -> Result<AgentSecurity, String> {
        let main = &self.main;
        let files = pair("cluster-cert", &main.cluster_cert, "cluster-key", &main.cluster_key)?;
        let agent_ca = values::path(&main.cluster_ca_cert);
        if let Some(review) = self.token_review()? {
            let files = files.ok_or(
                "no --cluster-cert and --cluster-key: agents would send their tokens in the clear, and to anybody",
            )?;
            return Ok(AgentSecurity::Token { files, review });
        }
        match (files, agent_ca, self.tls.insecure_agents.0) {
            (_, Some(_), true) => Err("--insecure-agents together with --cluster-ca-cert: agents either need a \
                                       certificate or not, remove one"
                .to_owned()),
            (Some(files), None, true) => Ok(AgentSecurity::TlsWithoutClientCertificate { files }),
            (None, None, true) => Ok(AgentSecurity::Plain),
            (Some(files), Some(agent_ca), false) => Ok(AgentSecurity::MutualTls { files, agent_ca }),
            (None, _, false) => Err("no --cluster-cert and --cluster-key: agents need to recognise this server \
                                     (`tautline certs DIR` makes some for a try; --insecure-agents does without)"
                .to_owned()),
            (Some(_), None, false) => Err("no --cluster-ca-cert: anybody who reaches the agent port could \
                                           register as agent and get kube-apiserver's traffic; name the CA of \
                                           the agents' certificates, or the account of their tokens (--agent-namespace, \
                                           --agent-service-account, --authentication-audience; or --insecure-agents for a closed network)"
                .to_owned()),
        }
    }

    fn check_files(&self) -> Result<(), String> {
        values::check_readable(&[
            ("server-cert", &self.tls.server_cert),
            ("server-key", &self.tls.server_key),
            ("server-ca-cert", &self.tls.server_ca_cert),
            ("cluster-cert", &self.main.cluster_cert),
            ("cluster-key", &self.main.cluster_key),
            ("cluster-ca-cert", &self.main.cluster_ca_cert),
            ("kubeconfig", &self.kubernetes.kubeconfig),
        ])
    }
}

fn pair(
    certificate_flag: &str,
    certificate: &str,
    key_flag: &str,
    key: &str,
) -> Result<Option<CertificateFiles>, String> {
    values::certificate_files((certificate_flag, certificate), (key_flag, key))
}

fn listen(address_flag: &str, address: &str, port_flag: &str, port: i64) -> Result<SocketAddr, String> {
    let ip = values::bind_address(address_flag, address)?;
    Ok(SocketAddr::new(ip, values::listen_port(port_flag, port)?))
}

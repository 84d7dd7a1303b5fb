//! Flags of `tautline agent` and their checks.

use std::net::SocketAddr;

use clap::{ArgMatches, Args};

use super::OptionsError;
use super::flags::{self, KlogFlags, LivenessFlags, LogFlags};
use super::identifiers::AgentIdentifiers;
use super::options::{AgentOptions, ServerSecurity};
use super::values::{self, GoDuration, Switch};

/// Flags of `tautline agent`.
#[derive(Args, Debug)]
pub(super) struct AgentFlags {
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
    /// Name or address of the server, or of the balancer before several
    #[arg(long, value_name = "HOST", default_value = "127.0.0.1")]
    proxy_server_host: String,
    /// Its port for agents
    #[arg(long, value_name = "PORT", default_value_t = 8091, allow_negative_numbers = true)]
    proxy_server_port: i64,
    /// CA that signs the server's certificate
    #[arg(long, value_name = "FILE", default_value = "")]
    ca_cert: String,
    /// Certificate that the server sees
    #[arg(long, value_name = "FILE", default_value = "")]
    agent_cert: String,
    /// Key of --agent-cert
    #[arg(long, value_name = "FILE", default_value = "")]
    agent_key: String,
    /// Name of this agent; empty = a random one
    #[arg(long, value_name = "ID", default_value = "", env = "PROXY_AGENT_ID")]
    agent_id: String,
    /// What this agent serves, such as host=node1&ipv4=10.0.0.1&default-route=true
    #[arg(long, value_name = "QUERY", default_value = "")]
    agent_identifiers: String,
    /// TCP port for probes and metrics
    #[arg(long, value_name = "PORT", default_value_t = 8093, allow_negative_numbers = true)]
    health_server_port: i64,
    /// TCP port for metrics on the local host
    #[arg(long, value_name = "PORT", default_value_t = 8094, allow_negative_numbers = true)]
    admin_server_port: i64,
    /// After SIGTERM open tunnels may go on this long; 0 = stop at once
    #[arg(long, default_value = "30s")]
    drain_timeout: GoDuration,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "TLS")]
struct TlsFlags {
    /// Talk to the server in plain TCP, and do not check who it is
    #[arg(long, default_value = "false")]
    insecure_server: Switch,
    /// ALPN names to offer before our own, for routers that look at them
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    alpn_proto: Vec<String>,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Addresses and limits")]
struct MoreFlags {
    /// Address for probes and metrics; empty = all
    #[arg(long, value_name = "IP", default_value = "")]
    health_server_host: String,
    /// Address of the admin port; empty = all
    #[arg(long, value_name = "IP", default_value = "127.0.0.1")]
    admin_bind_address: String,
    /// Pause between looks for servers that are not connected yet
    #[arg(long, default_value = "1s")]
    sync_interval: GoDuration,
    /// Longest pause after attempts that were refused
    #[arg(long, default_value = "10s")]
    sync_interval_cap: GoDuration,
    /// Look for further servers even when all are connected
    #[arg(long, default_value = "false")]
    sync_forever: Switch,
    /// Tunnels at most; 0 = as many as the limit on descriptors allows
    #[arg(long, value_name = "N", default_value_t = 0, allow_negative_numbers = true)]
    max_tunnels: i64,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Kubernetes")]
struct KubernetesFlags {
    /// File with a service account token to show to the server
    #[arg(long, value_name = "FILE", default_value = "")]
    service_account_token_path: String,
    /// No effect yet
    #[arg(long, default_value = "false")]
    count_server_leases: Switch,
    /// No effect yet
    #[arg(long, value_name = "NAME", default_value = "kube-system")]
    lease_namespace: String,
    /// No effect yet
    #[arg(long, value_name = "SELECTOR", default_value = "k8s-app=konnectivity-server")]
    lease_label_selector: String,
    /// Old name of --lease-label-selector
    #[arg(long, value_name = "SELECTOR", default_value = "", hide = true)]
    lease_label: String,
    /// No effect yet: default or max
    #[arg(long, value_name = "SOURCE", default_value = "default")]
    server_count_source: String,
    /// No effect yet
    #[arg(long, value_name = "FILE", default_value = "")]
    kubeconfig: String,
    /// No effect yet
    #[arg(long, value_name = "TYPE", default_value = "application/vnd.kubernetes.protobuf")]
    kube_api_content_type: String,
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Accepted for Konnectivity")]
struct AcceptedFlags {
    /// No effect: the state of a link is known at once
    #[arg(long, default_value = "1s")]
    probe_interval: GoDuration,
    /// No effect: windows bound what is queued
    #[arg(long, value_name = "N", default_value_t = 150, allow_negative_numbers = true)]
    xfr_channel_size: i64,
    /// No effect: there is no Go profiling here
    #[arg(long, default_value = "false")]
    enable_profiling: Switch,
    /// No effect: there is no Go profiling here
    #[arg(long, default_value = "false")]
    enable_contention_profiling: Switch,
    /// No effect
    #[arg(long, default_value = "false")]
    warn_on_channel_limit: Switch,
}

impl AgentFlags {
    /// Checks everything and gives what the agent needs.
    ///
    /// # Errors
    /// The first thing that is wrong, with what to do about it.
    pub(super) fn check(&self, matches: &ArgMatches) -> Result<AgentOptions, OptionsError> {
        self.options(flags::notices(matches, flags::ACCEPTED_AGENT)).map_err(OptionsError::agent)
    }

    fn options(&self, mut notices: Vec<String>) -> Result<AgentOptions, String> {
        self.check_accepted()?;
        let more = &self.more;
        let sync_interval = more.sync_interval.not_negative("sync-interval")?;
        let sync_interval_cap = more.sync_interval_cap.not_negative("sync-interval-cap")?;
        if sync_interval.is_zero() || sync_interval > sync_interval_cap {
            return Err(format!(
                "--sync-interval={sync_interval:?}: must be above 0 and not above \
                 --sync-interval-cap={sync_interval_cap:?}"
            ));
        }
        let server_port = u16::try_from(self.main.proxy_server_port).ok().filter(|port| *port != 0);
        let options = AgentOptions {
            agent_id: values::id_or_random("agent-id", &self.main.agent_id)?,
            identifiers: AgentIdentifiers::parse(&self.main.agent_identifiers, &mut notices)
                .map_err(|error| format!("--agent-identifiers: {error}"))?,
            server_host: values::host("proxy-server-host", &self.main.proxy_server_host)?,
            // Not only 1024 to 49151: balancers listen on 443, and tests on ports that the kernel picked.
            server_port: server_port.ok_or_else(|| {
                format!("--proxy-server-port={}: use a port from 1 to 65535", self.main.proxy_server_port)
            })?,
            server_security: self.server_security()?,
            health_addr: SocketAddr::new(
                values::bind_address("health-server-host", &more.health_server_host)?,
                values::listen_port("health-server-port", self.main.health_server_port)?,
            ),
            admin_addr: SocketAddr::new(
                values::bind_address("admin-bind-address", &more.admin_bind_address)?,
                values::listen_port("admin-server-port", self.main.admin_server_port)?,
            ),
            sync_interval,
            sync_interval_cap,
            sync_forever: more.sync_forever.0,
            liveness: self.liveness.check()?,
            token_file: values::path(&self.kubernetes.service_account_token_path),
            drain_timeout: self.main.drain_timeout.not_negative("drain-timeout")?,
            max_tunnels: values::max_tunnels(more.max_tunnels)?,
            log: self.log.check()?,
            notices,
        };
        values::check_readable(&[
            ("ca-cert", &self.main.ca_cert),
            ("agent-cert", &self.main.agent_cert),
            ("agent-key", &self.main.agent_key),
            ("service-account-token-path", &self.kubernetes.service_account_token_path),
        ])?;
        Ok(options)
    }

    fn check_accepted(&self) -> Result<(), String> {
        let size = self.accepted.xfr_channel_size;
        if size <= 0 {
            return Err(format!("--xfr-channel-size={size}: must be above 0"));
        }
        if self.accepted.enable_contention_profiling.0 && !self.accepted.enable_profiling.0 {
            return Err(
                "--enable-contention-profiling without --enable-profiling: give both or none".to_owned()
            );
        }
        self.accepted.probe_interval.not_negative("probe-interval")?;
        match self.kubernetes.server_count_source.as_str() {
            "" | "default" | "max" => Ok(()),
            other => Err(format!("--server-count-source={other}: use default or max")),
        }
    }

    fn server_security(&self) -> Result<ServerSecurity, String> {
        let client = values::certificate_files(
            ("agent-cert", &self.main.agent_cert),
            ("agent-key", &self.main.agent_key),
        )?;
        let ca = values::path(&self.main.ca_cert);
        if self.tls.insecure_server.0 {
            if ca.is_some() || client.is_some() {
                return Err(
                    "--insecure-server together with --ca-cert, --agent-cert or --agent-key: plain TCP \
                            uses no certificates, remove one or the other"
                        .to_owned(),
                );
            }
            if !self.kubernetes.service_account_token_path.is_empty() {
                return Err(
                    "--insecure-server together with --service-account-token-path: the token would be \
                            sent in the clear"
                        .to_owned(),
                );
            }
            return Ok(ServerSecurity::Plain);
        }
        let alpn_before_ours: Vec<String> =
            self.tls.alpn_proto.iter().filter(|name| !name.is_empty()).cloned().collect();
        if let Some(name) = alpn_before_ours.iter().find(|name| name.len() > 255) {
            return Err(format!("--alpn-proto={name}: use at most 255 bytes"));
        }
        let ca = ca.ok_or(
            "no --ca-cert: the agent could not recognise its server (--insecure-server does without)",
        )?;
        Ok(ServerSecurity::Tls { ca, client, alpn_before_ours })
    }
}

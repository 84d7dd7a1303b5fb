//! Whole command lines: those of published manifests, and those that must not start.

use std::collections::BTreeSet;
use std::num::NonZeroU32;
use std::path::Path;
use std::time::Duration;

use super::certs::{self, CertOptions};
use super::demo::room::Room;
use super::options::{AgentSecurity, Frontend, Host, ServerSecurity, Strategy, TlsVersion};
use super::*;

/// The options, or the error: clap's first line, or that of the checks.
fn parse<T>(
    role: &str,
    arguments: &[&str],
    options: fn(&ArgMatches) -> Result<T, OptionsError>,
) -> Result<T, String> {
    let all = ["tautline", role].into_iter().chain(arguments.iter().copied());
    let matches = command()
        .try_get_matches_from(all)
        .map_err(|error| format!("usage: {}", error.to_string().lines().next().unwrap_or_default()))?;
    options(matches.subcommand_matches(role).unwrap()).map_err(|error| error.to_string())
}

fn server(arguments: &[&str]) -> Result<ServerOptions, String> {
    parse("server", arguments, server_options)
}

fn agent(arguments: &[&str]) -> Result<AgentOptions, String> {
    parse("agent", arguments, agent_options)
}

/// A server's command line that starts, plus `more`.
fn server_plus(more: &[&str]) -> Result<ServerOptions, String> {
    let mut arguments = vec!["--uds-name=/run/x.sock", "--insecure-agents"];
    arguments.extend(more);
    server(&arguments)
}

/// An agent's command line that starts, plus `more`.
fn agent_plus(more: &[&str]) -> Result<AgentOptions, String> {
    let mut arguments = vec!["--insecure-server"];
    arguments.extend(more);
    agent(&arguments)
}

fn certificates() -> Room {
    let room = Room::make().unwrap();
    certs::write(room.path(), &CertOptions::default()).unwrap();
    room
}

/// `template` with `DIR` replaced by the directory of certificates.
fn with_directory(template: &[&str], directory: &Path) -> Vec<String> {
    template.iter().map(|argument| argument.replace("DIR", directory.to_str().unwrap())).collect()
}

fn borrowed(arguments: &[String]) -> Vec<&str> {
    arguments.iter().map(String::as_str).collect()
}

/// The server of Konnectivity's example, on a Unix socket, with agents known by token.
const SERVER_UDS_TOKENS: &[&str] = &[
    "--logtostderr=true",
    "--uds-name=/etc/kubernetes/konnectivity-server/konnectivity-server.socket",
    "--cluster-cert=/etc/kubernetes/pki/apiserver.crt",
    "--cluster-key=/etc/kubernetes/pki/apiserver.key",
    "--server-port=0",
    "--agent-port=8132",
    "--admin-port=8133",
    "--health-port=8134",
    "--agent-namespace=kube-system",
    "--agent-service-account=konnectivity-agent",
    "--kubeconfig=/etc/kubernetes/konnectivity-server.conf",
    "--authentication-audience=system:konnectivity-server",
    "--delete-existing-uds-file",
];

#[test]
fn manifest_of_a_server_with_tokens() {
    let room = certificates();
    let mut arguments: Vec<String> = SERVER_UDS_TOKENS
        .iter()
        .map(|flag| {
            flag.replace("/etc/kubernetes/pki/apiserver", &room.path().join("server").display().to_string())
        })
        .map(|flag| {
            flag.replace(
                "/etc/kubernetes/konnectivity-server.conf",
                &room.path().join("ca.crt").display().to_string(),
            )
        })
        .collect();
    arguments.push("--mode=http-connect".to_owned());
    let options = server(&borrowed(&arguments)).unwrap();
    let AgentSecurity::Token { files, review } = options.agent_security else { panic!("no tokens") };
    assert_eq!(files.certificate, room.path().join("server.crt"));
    assert_eq!(
        (review.namespace.as_str(), review.service_account.as_str()),
        ("kube-system", "konnectivity-agent")
    );
    assert_eq!(review.audience, "system:konnectivity-server");
    assert_eq!(review.kubeconfig, Some(room.path().join("ca.crt")));
    assert!(options.notices.is_empty(), "{:?}", options.notices);
    for (more, part) in [
        ("--cluster-ca-cert=a", "--cluster-ca-cert together with --agent-namespace"),
        ("--insecure-agents", "--insecure-agents together with --agent-namespace"),
    ] {
        let mut arguments = borrowed(&arguments);
        arguments.push(more);
        let error = server(&arguments).unwrap_err();
        assert!(error.contains(part), "{error}");
    }
    let plain: Vec<&str> =
        borrowed(&arguments).into_iter().filter(|flag| !flag.starts_with("--cluster")).collect();
    assert!(server(&plain).unwrap_err().contains("in the clear"));
}

#[test]
fn mode_grpc_shows_the_configuration_that_is_needed() {
    let mut arguments = SERVER_UDS_TOKENS.to_vec();
    arguments.push("--mode=grpc");
    let error = server(&arguments).unwrap_err();
    for part in [
        "--mode=http-connect",
        "EgressSelectorConfiguration",
        "proxyProtocol: HTTPConnect, transport: {uds: {udsName: \
         \"/etc/kubernetes/konnectivity-server/konnectivity-server.socket\"}}",
    ] {
        assert!(error.contains(part), "{error}");
    }
    let error = server(&["--mode", "grpc", "--server-port=8131"]).unwrap_err();
    assert!(error.contains("url: \"https://HOST:8131\"") && error.contains("caBundle"), "{error}");
    assert!(server(&["--mode=http"]).unwrap_err().contains("use http-connect"));
}

#[test]
fn manifest_of_a_server_on_a_unix_socket() {
    let room = certificates();
    let arguments = with_directory(
        &[
            "--logtostderr=true",
            "--uds-name=/run/konnectivity-server.socket",
            "--cluster-cert=DIR/server.crt",
            "--cluster-key=DIR/server.key",
            "--cluster-ca-cert=DIR/ca.crt",
            "--server-port=0",
            "--agent-port=8132",
            "--admin-port=8133",
            "--health-port=8134",
            "--mode=http-connect",
            "--delete-existing-uds-file",
            "--server-count=3",
            "--proxy-strategies=destHost,defaultRoute",
            "--keepalive-time=1h",
            "--frontend-keepalive-time=1h",
            "--v=4",
        ],
        room.path(),
    );
    let options = server(&borrowed(&arguments)).unwrap();
    let frontend = Frontend::Unix { path: "/run/konnectivity-server.socket".into(), replace_existing: true };
    assert_eq!(options.frontends, [frontend]);
    assert_eq!(options.agent_addr.to_string(), "[::]:8132");
    assert_eq!(options.health_addr.to_string(), "[::]:8134");
    assert_eq!(options.admin_addr.to_string(), "127.0.0.1:8133");
    let AgentSecurity::MutualTls { files, agent_ca } = options.agent_security else { panic!("not mutual") };
    assert_eq!(files.certificate, room.path().join("server.crt"));
    assert_eq!(files.key, room.path().join("server.key"));
    assert_eq!(agent_ca, room.path().join("ca.crt"));
    assert_eq!(options.strategies, [Strategy::DestHost, Strategy::DefaultRoute]);
    assert_eq!(options.server_count, NonZeroU32::new(3).unwrap());
    assert_eq!(options.log.verbosity, 4);
    assert_eq!(options.notices, ["--frontend-keepalive-time has no effect: it is for gRPC frontends only"]);
}

#[test]
fn manifest_of_a_server_on_tcp() {
    let room = certificates();
    let arguments = with_directory(
        &[
            "--logtostderr=true",
            "--server-ca-cert=DIR/ca.crt",
            "--server-cert=DIR/server.crt",
            "--server-key=DIR/server.key",
            "--cluster-ca-cert=DIR/ca.crt",
            "--cluster-cert=DIR/server.crt",
            "--cluster-key=DIR/server.key",
            "--mode=http-connect",
            "--server-port=8131",
            "--server-bind-address=[::1]",
            "--agent-port=8132",
            "--agent-bind-address=10.0.0.1",
            "--tls-min-version=VersionTLS13",
            "--graceful-shutdown-timeout=15s",
            "--backend-dial-timeout=30s",
        ],
        room.path(),
    );
    let options = server(&borrowed(&arguments)).unwrap();
    let [Frontend::TcpTls { addr, files, client_ca }] = &options.frontends[..] else { panic!("not TCP") };
    assert_eq!(addr.to_string(), "[::1]:8131");
    assert_eq!(files.certificate, room.path().join("server.crt"));
    assert_eq!(client_ca, &room.path().join("ca.crt"));
    assert_eq!(options.agent_addr.to_string(), "10.0.0.1:8132");
    assert_eq!(options.tls_min_version, TlsVersion::V1_3);
    assert_eq!(options.graceful_shutdown_timeout, Duration::from_secs(15));
    assert_eq!(options.dial_timeout, Duration::from_secs(30));
    assert!(options.notices.is_empty(), "{:?}", options.notices);
}

#[test]
fn manifest_of_an_agent() {
    let room = certificates();
    let mut arguments = with_directory(
        &[
            "--logtostderr=true",
            "--ca-cert=DIR/ca.crt",
            "--proxy-server-host=konnectivity.example.com",
            "--proxy-server-port=8132",
            "--admin-server-port=8133",
            "--health-server-port=8134",
            "--service-account-token-path=DIR/client.key",
            "--agent-identifiers=host=node1&default-route=true",
            "--sync-forever",
            "--probe-interval=5s",
        ],
        room.path(),
    );
    let options = agent(&borrowed(&arguments)).unwrap();
    assert_eq!(options.server_host, Host::Name("konnectivity.example.com".to_owned()));
    assert_eq!(options.server_port, 8132);
    assert_eq!(options.health_addr.to_string(), "[::]:8134");
    assert_eq!(options.admin_addr.to_string(), "127.0.0.1:8133");
    assert_eq!(options.token_file, Some(room.path().join("client.key")));
    let ca = room.path().join("ca.crt");
    assert_eq!(
        options.server_security,
        ServerSecurity::Tls { ca, client: None, alpn_before_ours: Vec::new() }
    );
    assert_eq!(options.identifiers.host, ["node1"]);
    assert!(options.identifiers.default_route && options.sync_forever);
    assert_eq!(options.notices, ["--probe-interval has no effect: the state of a link is known at once"]);

    arguments.extend(with_directory(
        &["--agent-cert=DIR/agent.crt", "--agent-key=DIR/agent.key", "--alpn-proto=a,b", "--alpn-proto", "c"],
        room.path(),
    ));
    let options = agent(&borrowed(&arguments)).unwrap();
    let ServerSecurity::Tls { client, alpn_before_ours, .. } = options.server_security else {
        panic!("plain")
    };
    assert_eq!(client.unwrap().certificate, room.path().join("agent.crt"));
    assert_eq!(alpn_before_ours, ["a", "b", "c"]);
}

#[test]
fn defaults() {
    let options = server_plus(&[]).unwrap();
    assert_eq!(options.agent_addr.to_string(), "[::]:8091");
    assert_eq!(options.health_addr.to_string(), "[::]:8092");
    assert_eq!(options.admin_addr.to_string(), "127.0.0.1:8095");
    assert_eq!((options.dial_timeout, options.dial_wait), (Duration::from_secs(8), Duration::from_secs(2)));
    assert_eq!(options.graceful_shutdown_timeout, Duration::ZERO);
    assert_eq!(options.strategies, [Strategy::Default]);
    assert_eq!(options.agent_security, AgentSecurity::Plain);
    assert_eq!((options.max_tunnels, options.log.verbosity), (None, 4));
    assert_eq!((options.tls_min_version, options.cipher_suites.len()), (TlsVersion::V1_2, 0));
    assert_eq!(options.liveness.ping_interval, Some(Duration::from_secs(2)));
    assert_eq!(options.liveness.ping_timeout, Duration::from_secs(1));
    assert_eq!(options.liveness.dead_after, Duration::from_secs(10));
    assert_eq!(options.notices, [""; 0]);

    let options = agent_plus(&[]).unwrap();
    assert_eq!((options.server_host, options.server_port), (Host::Ip("127.0.0.1".parse().unwrap()), 8091));
    assert_eq!(options.health_addr.to_string(), "[::]:8093");
    assert_eq!(options.admin_addr.to_string(), "127.0.0.1:8094");
    assert_eq!(options.sync_interval, Duration::from_secs(1));
    assert_eq!(options.sync_interval_cap, Duration::from_secs(10));
    assert_eq!(options.drain_timeout, Duration::from_secs(30));
    assert_eq!((options.token_file, options.sync_forever), (None, false));
    assert_eq!(options.notices, [""; 0]);
}

#[test]
fn values_in_every_form() {
    let options =
        server(&["--uds-name", "/x", "--insecure-agents=true", "--agent-port", "0", "-v", "5"]).unwrap();
    assert_eq!((options.agent_addr.port(), options.log.verbosity), (0, 5));
    assert_eq!(server_plus(&["-v=7"]).unwrap().log.verbosity, 7);
    assert_eq!(server_plus(&["--v", "-1"]).unwrap().log.verbosity, 0);
    assert_eq!(server_plus(&["--v=1000"]).unwrap().log.verbosity, 255);
    // The last one counts, except in lists.
    let repeated = server_plus(&["--agent-port=2000", "--agent-port=2001", "--insecure-agents=1"]).unwrap();
    assert_eq!(repeated.agent_addr.port(), 2001);
    let suites = [
        "--cipher-suites=TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384",
        "--cipher-suites=TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256",
    ];
    assert_eq!(server_plus(&suites).unwrap().cipher_suites.len(), 3);
    // Empty values mean what absent ones mean.
    let empty =
        ["--cluster-cert=", "--cluster-ca-cert", "", "--kubeconfig=", "--server-id=", "--cipher-suites="];
    let options = server_plus(&empty).unwrap();
    assert_eq!((options.server_id.len(), options.notices.len()), (36, 0));
    let unix = server_plus(&["--delete-existing-uds-file=false"]).unwrap().frontends;
    assert_eq!(unix, [Frontend::Unix { path: "/run/x.sock".into(), replace_existing: false }]);
    assert_eq!(server_plus(&["--server-id=a"]).unwrap().server_id, "a");
    assert_eq!(server_plus(&["--max-tunnels=9"]).unwrap().max_tunnels, NonZeroU32::new(9));
    assert_eq!(
        agent_plus(&["--proxy-server-host=::1"]).unwrap().server_host,
        Host::Ip("::1".parse().unwrap())
    );
    assert_eq!(agent_plus(&["--proxy-server-port=443"]).unwrap().server_port, 443);
    assert_eq!(
        agent_plus(&["--health-server-host=localhost"]).unwrap().health_addr.ip().to_string(),
        "127.0.0.1"
    );
}

#[test]
fn the_clocks_of_a_link() {
    let clocks = |more: &[&str]| server_plus(more).map(|options| options.liveness);
    let interval = |more: &[&str]| clocks(more).unwrap().ping_interval;
    assert_eq!(interval(&["--keepalive-time=1h"]), Some(Duration::from_secs(2)));
    assert_eq!(interval(&["--keepalive-time=1.5s"]), Some(Duration::from_millis(1500)));
    assert_eq!(interval(&["--keepalive-time=1ms"]), Some(Duration::from_secs(1)));
    assert_eq!(interval(&["--keepalive-time=0"]), Some(Duration::from_secs(2)));
    assert_eq!(interval(&["--ping-interval=0", "--keepalive-time=1s"]), None);
    assert_eq!(clocks(&["--dead-after=4s"]).unwrap().dead_after, Duration::from_secs(4));
    for (more, part) in [
        (&["--dead-after=3999ms"][..], "--dead-after"),
        (&["--dead-after=25h"], "--dead-after"),
        (&["--ping-timeout=10s"], "--ping-timeout"),
        (&["--ping-timeout=0"], "--ping-timeout"),
        (&["--ping-interval=9s"], "together must be below --dead-after=10s"),
        (&["--ping-interval=1ms"], "at least 100ms"),
        (&["--ping-interval=-1s"], "must not be negative"),
        (&["--keepalive-time=-1s"], "must not be negative"),
    ] {
        let error = clocks(more).unwrap_err();
        assert!(error.contains(part), "{more:?}: {error}");
    }
}

#[test]
fn servers_that_must_not_start() {
    let room = certificates();
    let long = format!("--uds-name=/{}", "a".repeat(107));
    let tls = &["--cluster-cert=DIR/server.crt", "--cluster-key=DIR/server.key"][..];
    let unix = &["--uds-name=/run/x.sock"][..];
    let open = &["--uds-name=/run/x.sock", "--insecure-agents"][..];
    for (base, more, part) in [
        (unix, &[][..], "no --cluster-cert"),
        (unix, tls, "no --cluster-ca-cert"),
        (unix, &["--cluster-ca-cert=DIR/ca.crt"], "no --cluster-cert"),
        (open, &["--cluster-ca-cert=DIR/ca.crt"], "--insecure-agents together"),
        (open, &["--cluster-cert=DIR/server.crt"], "--cluster-cert without --cluster-key"),
        (open, &["--cluster-key=DIR/server.key"], "--cluster-key without --cluster-cert"),
        (open, &["--cluster-cert=DIR/none", "--cluster-key=DIR/server.key"], "none: No such file"),
        (open, &["--cluster-cert=DIR", "--cluster-key=DIR/server.key"], "is a directory"),
        (open, &["--server-port=8090"], "--server-port=8090 together with --uds-name"),
        (open, &["--server-cert=DIR/server.crt", "--server-key=DIR/server.key"], "choose one"),
        (open, &["--server-ca-cert=DIR/ca.crt"], "choose one"),
        (&["--insecure-agents", &long], &[], "at most 107"),
        (&["--insecure-agents"], &[], "no way in for clients"),
        (&["--insecure-agents", "--server-port=0"], &[], "no way in for clients"),
        (
            &["--insecure-agents", "--server-cert=DIR/server.crt", "--server-key=DIR/server.key"],
            &[],
            "no --server-ca-cert",
        ),
        (open, &["--agent-port=80"], "--agent-port=80"),
        (open, &["--health-port=49152"], "--health-port=49152"),
        (open, &["--admin-port=-1"], "--admin-port=-1"),
        (open, &["--agent-bind-address=example.com"], "--agent-bind-address=example.com"),
        (open, &["--agent-namespace=a"], "--agent-service-account and --authentication-audience missing"),
        (open, &["--proxy-strategies=none"], "--proxy-strategies"),
        (open, &["--cipher-suites=NO"], "unknown cipher suite NO"),
        (open, &["--tls-min-version=1.2"], "--tls-min-version"),
        (open, &["--xfr-channel-size=0"], "--xfr-channel-size=0"),
        (open, &["--server-count=0"], "--server-count=0"),
        (open, &["--max-tunnels=-1"], "--max-tunnels=-1"),
        (open, &["--graceful-shutdown-timeout=-1s"], "must not be negative"),
        (open, &["--dial-wait=-1s"], "must not be negative"),
        (open, &["--backend-dial-timeout=200ms"], "--backend-dial-timeout"),
        (open, &["--frontend-keepalive-time=-1s"], "must not be negative"),
        (open, &["--enable-contention-profiling"], "--enable-profiling"),
        (open, &["--log-format=json"], "not supported yet"),
        (open, &["--log-format=xml"], "--log-format=xml"),
    ] {
        let mut arguments = with_directory(base, room.path());
        arguments.extend(with_directory(more, room.path()));
        let error = server(&borrowed(&arguments)).unwrap_err();
        assert!(error.starts_with("failed to validate server options with "), "{arguments:?}: {error}");
        assert!(error.contains(part) && !error.contains('\n'), "{arguments:?}: {error}");
    }
}

#[test]
fn agents_that_must_not_start() {
    for (arguments, part) in [
        (&[][..], "no --ca-cert"),
        (&["--ca-cert=/none/ca.crt"], "--ca-cert=/none/ca.crt: No such file"),
        (&["--ca-cert=a", "--agent-key=b"], "--agent-key without --agent-cert"),
        (&["--insecure-server", "--ca-cert=a"], "--insecure-server together"),
        (&["--insecure-server", "--service-account-token-path=a"], "in the clear"),
        (&["--insecure-server", "--proxy-server-port=0"], "--proxy-server-port=0"),
        (&["--insecure-server", "--proxy-server-port=65536"], "--proxy-server-port=65536"),
        (&["--insecure-server", "--proxy-server-host=a:1"], "without a port"),
        (&["--insecure-server", "--health-server-port=80"], "--health-server-port=80"),
        (&["--insecure-server", "--agent-identifiers=x=1"], "unknown address type: x"),
        (&["--insecure-server", "--sync-interval=11s"], "--sync-interval=11s"),
        (&["--insecure-server", "--sync-interval=0"], "above 0"),
        (&["--insecure-server", "--drain-timeout=-1s"], "must not be negative"),
        (&["--insecure-server", "--probe-interval=-1s"], "must not be negative"),
        (&["--insecure-server", "--xfr-channel-size=-5"], "--xfr-channel-size=-5"),
        (&["--insecure-server", "--server-count-source=min"], "--server-count-source=min"),
        (&["--insecure-server", "--agent-id=a\u{7}"], "--agent-id"),
        (&["--insecure-server", "--dead-after=1s"], "--dead-after"),
    ] {
        let error = agent(arguments).unwrap_err();
        assert!(error.starts_with("failed to validate agent options with "), "{arguments:?}: {error}");
        assert!(error.contains(part) && !error.contains('\n'), "{arguments:?}: {error}");
    }
}

#[test]
fn command_lines_that_are_not_understood() {
    for more in [
        &["--no-such-flag"][..],
        &["--agent_port=8091"],
        &["positional"],
        &["--agent-port=many"],
        &["--agent-port"],
        &["--dial-wait=5"],
        &["--insecure-agents=maybe"],
        &["--kubeconfig-qps=fast"],
        &["--agent-por=8091"],
    ] {
        let error = server_plus(more).unwrap_err();
        assert!(error.starts_with("usage: "), "{more:?}: {error}");
    }
}

#[test]
fn flags_without_effect_are_named_once_and_only_if_they_ask_for_something() {
    let options = server_plus(&[
        "--enable-profiling",
        "--enable-profiling=true",
        "--enable-contention-profiling=false",
        "--enable-lease-controller=false",
        "--logtostderr",
        "--alsologtostderr=true",
        "--warn-on-channel-limit=false",
        "--xfr-channel-size=100",
        "--kubeconfig-qps=1.5",
        "--tls-min-version=VersionTLS11",
    ])
    .unwrap();
    let mut named: Vec<&str> =
        options.notices.iter().map(|line| line.split([' ', '=']).next().unwrap_or_default()).collect();
    named.sort_unstable();
    assert_eq!(
        named,
        [
            "--alsologtostderr",
            "--enable-profiling",
            "--kubeconfig-qps",
            "--tls-min-version",
            "--xfr-channel-size"
        ]
    );
    let options = agent_plus(&["--logtostderr=false", "--count-server-leases", "--lease-label=a=b"]).unwrap();
    assert_eq!(options.notices.len(), 3, "{:?}", options.notices);
}

/// Konnectivity's flags, klog's included; each must be known to its role.
const KLOG: &str = "logtostderr alsologtostderr v vmodule log-file log-dir log-file-max-size stderrthreshold \
    alsologtostderrthreshold skip-headers skip-log-headers add-dir-header one-output log-backtrace-at \
    legacy-stderr-threshold-behavior";
const SERVER: &str = "server-cert server-key server-ca-cert cluster-cert cluster-key cluster-ca-cert mode uds-name \
    delete-existing-uds-file server-port server-bind-address agent-port agent-bind-address health-port \
    health-bind-address admin-port admin-bind-address keepalive-time frontend-keepalive-time enable-profiling \
    enable-contention-profiling server-id server-count agent-namespace agent-service-account \
    authentication-audience kubeconfig kubeconfig-qps kubeconfig-burst kube-api-content-type proxy-strategies \
    cipher-suites tls-min-version xfr-channel-size enable-lease-controller lease-namespace lease-label \
    graceful-shutdown-timeout backend-dial-timeout warn-on-channel-limit";
const AGENT: &str = "agent-cert agent-key ca-cert proxy-server-host proxy-server-port alpn-proto health-server-host \
    health-server-port admin-bind-address admin-server-port enable-profiling enable-contention-profiling agent-id \
    agent-identifiers sync-interval sync-interval-cap probe-interval keepalive-time service-account-token-path \
    warn-on-channel-limit sync-forever xfr-channel-size count-server-leases lease-namespace lease-label-selector \
    lease-label server-count-source kubeconfig kube-api-content-type";

#[test]
fn every_flag_of_konnectivity_exists_and_every_notice_names_a_flag() {
    let command = command();
    for (role, flags, accepted) in
        [("server", SERVER, flags::ACCEPTED_SERVER), ("agent", AGENT, flags::ACCEPTED_AGENT)]
    {
        let role = command.find_subcommand(role).unwrap();
        let have: BTreeSet<&str> = role.get_arguments().filter_map(clap::Arg::get_long).collect();
        for flag in flags.split_whitespace().chain(KLOG.split_whitespace()) {
            assert!(have.contains(flag), "{} lacks --{flag}", role.get_name());
        }
        let ids: BTreeSet<&str> = role.get_arguments().map(|arg| arg.get_id().as_str()).collect();
        for row in accepted.iter().chain(flags::ACCEPTED_SHARED) {
            assert!(ids.contains(&*row.flag.replace('-', "_")), "{} has no --{}", role.get_name(), row.flag);
        }
    }
}

#[test]
fn clap_finds_no_fault_in_the_definitions() {
    command().debug_assert();
}

#[test]
fn help_shows_first_what_matters_first() {
    let mut command = command();
    for role in ["server", "agent"] {
        let help = command.find_subcommand_mut(role).unwrap().render_long_help().to_string();
        let at = |heading: &str| {
            help.find(&format!("\n{heading}:\n")).unwrap_or_else(|| panic!("{heading}: {help}"))
        };
        let order = ["Main", "TLS", "Liveness", "Kubernetes", "Logging", "Accepted for Konnectivity"].map(at);
        assert!(order.is_sorted(), "{role}: {order:?}");
    }
}

#[test]
fn names_of_konnectivitys_binaries_choose_the_role() {
    let with = |name: &str| {
        let args = with_role(vec![name.into(), "--x".into()]);
        args.iter().map(|arg| arg.to_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(with("/proxy-server"), ["/proxy-server", "server", "--x"]);
    assert_eq!(with("proxy-agent"), ["proxy-agent", "agent", "--x"]);
    assert_eq!(with("/usr/bin/tautline"), ["/usr/bin/tautline", "--x"]);
    assert!(with_role(Vec::new()).is_empty());
}

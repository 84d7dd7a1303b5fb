//! The flags that server and agent share, how all flags behave, and the list of those that do nothing.

use std::any::TypeId;
use std::time::Duration;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args, Command};

use super::options::{Liveness, LogOptions};
use super::values::{GoDuration, Switch};

/// Makes a role's flags behave as Go's flag library does: the last of a repeated flag counts, and booleans
/// take a value only after `=`.
pub(super) fn go_style(command: Command) -> Command {
    command.args_override_self(true).mut_args(|arg| {
        let kind = arg.get_value_parser().type_id();
        let no_default = arg.get_default_values() == [""];
        let arg = arg.hide_default_value(no_default).hide_env_values(true);
        if kind == TypeId::of::<Switch>() {
            arg.num_args(0..=1).require_equals(true).default_missing_value("true").value_name("BOOL")
        } else if kind == TypeId::of::<GoDuration>() {
            arg.value_name("DURATION")
        } else {
            arg
        }
    })
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Liveness")]
pub(super) struct LivenessFlags {
    /// Ping the other side after this much silence; 0 = no pings, the kernel alone finds dead peers
    #[arg(long, default_value = "2s")]
    ping_interval: GoDuration,
    /// Without an answer for this long the other side is suspect
    #[arg(long, default_value = "1s")]
    ping_timeout: GoDuration,
    /// After this much silence the other side is dead; at least 4s
    #[arg(long, default_value = "10s")]
    dead_after: GoDuration,
    /// Upper bound of --ping-interval (Konnectivity's flag)
    #[arg(long, default_value = "1h0m0s")]
    keepalive_time: GoDuration,
}

const DEAD_AFTER_MIN: Duration = Duration::from_secs(4);
/// The kernel's limit for TCP_KEEPIDLE is nine hours, and it gets a part of this.
const DEAD_AFTER_MAX: Duration = Duration::from_secs(24 * 3600);
const PING_INTERVAL_MIN: Duration = Duration::from_millis(100);
/// Manifests may ask for any `--keepalive-time`; more often than this helps nobody.
const KEEPALIVE_TIME_MIN: Duration = Duration::from_secs(1);

impl LivenessFlags {
    /// The clocks, checked against each other.
    ///
    /// # Errors
    /// One is out of range, or they contradict each other.
    pub(super) fn check(&self) -> Result<Liveness, String> {
        let ping_interval = self.ping_interval.not_negative("ping-interval")?;
        let ping_timeout = self.ping_timeout.not_negative("ping-timeout")?;
        let dead_after = self.dead_after.not_negative("dead-after")?;
        let keepalive_time = self.keepalive_time.not_negative("keepalive-time")?;
        if dead_after < DEAD_AFTER_MIN || dead_after > DEAD_AFTER_MAX {
            return Err(format!(
                "--dead-after={dead_after:?}: use 4s to 24h (less would cut links that only lost a packet)"
            ));
        }
        if ping_timeout.is_zero() || ping_timeout >= dead_after {
            return Err(format!(
                "--ping-timeout={ping_timeout:?}: must be above 0 and below --dead-after={dead_after:?}"
            ));
        }
        let ping_interval = match keepalive_time {
            _ if ping_interval.is_zero() => None,
            Duration::ZERO => Some(ping_interval),
            _ => Some(ping_interval.min(keepalive_time.max(KEEPALIVE_TIME_MIN))),
        };
        if let Some(interval) = ping_interval {
            if interval < PING_INTERVAL_MIN {
                return Err(format!("--ping-interval={interval:?}: use at least 100ms, or 0 for no pings"));
            }
            if interval + ping_timeout >= dead_after {
                return Err(format!(
                    "--ping-interval={interval:?} and --ping-timeout={ping_timeout:?} together must be below \
                     --dead-after={dead_after:?}, or quiet links would be cut"
                ));
            }
        }
        Ok(Liveness { ping_interval, ping_timeout, dead_after })
    }
}

#[derive(Args, Debug)]
#[command(next_help_heading = "Logging")]
pub(super) struct LogFlags {
    /// How much to log: up to 4 events, 5 also frames
    #[arg(short = 'v', long = "v", value_name = "LEVEL", default_value_t = 4, allow_negative_numbers = true)]
    verbosity: i32,
    /// Form of the log lines: text (logfmt)
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    log_format: String,
}

impl LogFlags {
    /// How much is logged.
    ///
    /// # Errors
    /// A form of lines that does not exist.
    pub(super) fn check(&self) -> Result<LogOptions, String> {
        match self.log_format.as_str() {
            "text" => {}
            "json" => return Err("--log-format=json: not supported yet, use text".to_owned()),
            other => return Err(format!("--log-format={other}: use text")),
        }
        let verbosity = u8::try_from(self.verbosity.clamp(0, i32::from(u8::MAX))).unwrap_or(u8::MAX);
        Ok(LogOptions { verbosity })
    }
}

/// klog's flags. They are in nearly every manifest; standard error is the only place that logs go to here.
#[derive(Args, Debug)]
#[command(next_help_heading = "Accepted for Konnectivity")]
pub(super) struct KlogFlags {
    /// Logs go to standard error always
    #[arg(long, default_value = "true")]
    logtostderr: Switch,
    /// No effect: there are no log files
    #[arg(long, default_value = "false")]
    alsologtostderr: Switch,
    /// No effect: there are no log files
    #[arg(long, default_value = "2")]
    stderrthreshold: String,
    /// No effect: there are no log files
    #[arg(long, default_value = "")]
    alsologtostderrthreshold: String,
    /// No effect: there are no log files
    #[arg(long, default_value = "true")]
    legacy_stderr_threshold_behavior: Switch,
    /// No effect: use -v, or RUST_LOG for single modules
    #[arg(long, default_value = "")]
    vmodule: String,
    /// No effect: there are no log files
    #[arg(long, default_value = "")]
    log_file: String,
    /// No effect: there are no log files
    #[arg(long, default_value = "")]
    log_dir: String,
    /// No effect: there are no log files
    #[arg(long, default_value_t = 1800)]
    log_file_max_size: u64,
    /// No effect: lines have no klog header
    #[arg(long, default_value = "false")]
    skip_headers: Switch,
    /// No effect: there are no log files
    #[arg(long, default_value = "false")]
    skip_log_headers: Switch,
    /// No effect: lines have no klog header
    #[arg(long, default_value = "false")]
    add_dir_header: Switch,
    /// No effect: there are no log files
    #[arg(long, default_value = "false")]
    one_output: Switch,
    /// No effect: there are no backtraces
    #[arg(long, default_value = "")]
    log_backtrace_at: String,
}

/// A flag that is accepted and does nothing (yet). Who gives it is told so at start.
pub(super) struct Accepted {
    pub(super) flag: &'static str,
    /// Values that ask for what is done anyway: nothing to tell.
    pub(super) silent_for: &'static [&'static str],
    pub(super) why: &'static str,
}

impl Accepted {
    const fn new(flag: &'static str, silent_for: &'static [&'static str], why: &'static str) -> Self {
        Self { flag, silent_for, why }
    }
}

const ON: &[&str] = &["true", "1", "t", "T", "TRUE", "True"];
const OFF: &[&str] = &["false", "0", "f", "F", "FALSE", "False"];
const EMPTY: &[&str] = &[""];
const NO_FILES: &str = "logs go to standard error only";
const NO_HEADER: &str = "log lines have no klog header";
const NO_LEASES: &str = "leases are not supported yet";
const NO_API: &str = "requests to the Kubernetes API are few: one for each login of an agent";
const NO_PROFILING: &str = "there is no Go profiling here";
const NO_GRPC: &str = "it is for gRPC frontends only";
const NO_CHANNELS: &str = "windows per stream bound what is queued";
const NO_WARNING: &str = "there are no channels to warn about";

/// On both roles.
pub(super) const ACCEPTED_SHARED: &[Accepted] = &[
    Accepted::new("logtostderr", ON, NO_FILES),
    Accepted::new("alsologtostderr", &[], NO_FILES),
    Accepted::new("stderrthreshold", &[], NO_FILES),
    Accepted::new("alsologtostderrthreshold", EMPTY, NO_FILES),
    Accepted::new("legacy-stderr-threshold-behavior", &[], NO_FILES),
    Accepted::new("vmodule", EMPTY, "use -v, or RUST_LOG for single modules"),
    Accepted::new("log-file", EMPTY, NO_FILES),
    Accepted::new("log-dir", EMPTY, NO_FILES),
    Accepted::new("log-file-max-size", &[], NO_FILES),
    Accepted::new("skip-headers", ON, NO_HEADER),
    Accepted::new("skip-log-headers", ON, NO_FILES),
    Accepted::new("add-dir-header", OFF, NO_HEADER),
    Accepted::new("one-output", &[], NO_FILES),
    Accepted::new("log-backtrace-at", EMPTY, "there are no backtraces"),
    Accepted::new("enable-profiling", OFF, NO_PROFILING),
    Accepted::new("enable-contention-profiling", OFF, NO_PROFILING),
    Accepted::new("xfr-channel-size", &[], NO_CHANNELS),
    Accepted::new("warn-on-channel-limit", OFF, NO_WARNING),
    Accepted::new("kube-api-content-type", &[], "JSON is spoken"),
    Accepted::new("lease-namespace", &[], NO_LEASES),
    Accepted::new("lease-label", &[], NO_LEASES),
];

pub(super) const ACCEPTED_SERVER: &[Accepted] = &[
    Accepted::new("frontend-keepalive-time", &[], NO_GRPC),
    Accepted::new("frontend-write-channel-size", &[], NO_CHANNELS),
    Accepted::new("kubeconfig-qps", &[], NO_API),
    Accepted::new("kubeconfig-burst", &[], NO_API),
    Accepted::new("enable-lease-controller", OFF, NO_LEASES),
];

pub(super) const ACCEPTED_AGENT: &[Accepted] = &[
    Accepted::new("probe-interval", &[], "the state of a link is known at once"),
    Accepted::new("kubeconfig", EMPTY, NO_LEASES),
    Accepted::new("count-server-leases", OFF, NO_LEASES),
    Accepted::new("lease-label-selector", &[], NO_LEASES),
    Accepted::new("server-count-source", &["", "default"], NO_LEASES),
];

/// One line for each flag of both lists that the command line names and that does nothing.
pub(super) fn notices(matches: &ArgMatches, role: &[Accepted]) -> Vec<String> {
    let given = |accepted: &&Accepted| {
        let id = accepted.flag.replace('-', "_");
        matches.value_source(&id) == Some(ValueSource::CommandLine)
            && !matches.get_raw(&id).is_some_and(|mut values| {
                values.all(|value| accepted.silent_for.iter().any(|silent| value == *silent))
            })
    };
    let line = |accepted: &Accepted| format!("--{} has no effect: {}", accepted.flag, accepted.why);
    ACCEPTED_SHARED.iter().chain(role).filter(given).map(line).collect()
}

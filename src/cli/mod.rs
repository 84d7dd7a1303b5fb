//! Flags and the commands of a person.
//!
//! [`run`] is the whole of `main`: it reads the command line, checks it, and starts a role with plain
//! [`options`]. Nothing here logs; what the flags leave to say goes along in the options.

mod agent;
pub mod certs;
mod demo;
mod flags;
mod identifiers;
pub mod options;
mod server;
mod tls_names;
mod values;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::process::ExitCode;

use clap::{ArgMatches, Args, Command, FromArgMatches};

use self::agent::AgentFlags;
use self::options::{AgentOptions, ServerOptions};
use self::server::ServerFlags;
use crate::app;

/// Flags that a person or a manifest got wrong, and what to do about it.
#[derive(PartialEq, Eq, Debug)]
pub struct OptionsError {
    role: &'static str,
    text: String,
}

impl OptionsError {
    fn server(text: String) -> Self {
        Self { role: "server", text }
    }

    fn agent(text: String) -> Self {
        Self { role: "agent", text }
    }
}

impl fmt::Display for OptionsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "failed to validate {} options with {}", self.role, self.text)
    }
}

impl std::error::Error for OptionsError {}

/// Runs what the command line `args` (program name first) asks for. This is all that `main` does.
#[must_use]
pub fn run(args: Vec<OsString>) -> ExitCode {
    let matches = match command().try_get_matches_from(with_role(args)) {
        Ok(matches) => matches,
        Err(error) => {
            let failed = error.use_stderr();
            // A broken pipe is the reader's choice.
            let _ = error.print();
            // Konnectivity's exit code, not clap's.
            return if failed { ExitCode::FAILURE } else { ExitCode::SUCCESS };
        }
    };
    let ended = match matches.subcommand() {
        Some(("server", matches)) => server_options(matches)
            .map_err(|error| error.to_string())
            .and_then(|options| app::run_server(options).map_err(|error| error.to_string())),
        Some(("agent", matches)) => agent_options(matches)
            .map_err(|error| error.to_string())
            .and_then(|options| app::run_agent(options).map_err(|error| error.to_string())),
        Some(("certs", matches)) => certs::run(matches),
        Some(("demo", matches)) => return demo::run(matches),
        Some(("demo-target", _)) => demo::run_target(),
        _ => Err("no such command".to_owned()),
    };
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

fn command() -> Command {
    // `about` comes last: the doc comments of the flag structs would replace it.
    let server = flags::go_style(ServerFlags::augment_args(Command::new("server")))
        .about("Run beside kube-apiserver: take CONNECT requests and pass them to agents");
    let agent = flags::go_style(AgentFlags::augment_args(Command::new("agent")))
        .about("Run on a node: dial out to the server and connect to targets for it");
    Command::new("tautline")
        .about("Reach nodes behind NAT through agents that dial out")
        .version(env!("CARGO_PKG_VERSION"))
        .subcommand_required(true)
        .arg_required_else_help(true)
        .disable_help_subcommand(true)
        .subcommand(server)
        .subcommand(agent)
        .subcommand(
            demo::arguments(Command::new("demo"))
                .about("Show on this machine what happens when an agent dies"),
        )
        .subcommand(
            certs::arguments(Command::new("certs"))
                .about("Write a development CA and certificates for a try"),
        )
        .subcommand(Command::new("demo-target").about("Echo server of the demo").hide(true))
}

/// Manifests name Konnectivity's binaries: `proxy-server FLAGS` is `tautline server FLAGS`.
fn with_role(mut args: Vec<OsString>) -> Vec<OsString> {
    let name = args.first().map(OsString::as_os_str).unwrap_or(OsStr::new("")).as_encoded_bytes();
    let role = if name.ends_with(b"proxy-server") {
        "server"
    } else if name.ends_with(b"proxy-agent") {
        "agent"
    } else {
        return args;
    };
    args.insert(1, OsString::from(role));
    args
}

fn server_options(matches: &ArgMatches) -> Result<ServerOptions, OptionsError> {
    let flags =
        ServerFlags::from_arg_matches(matches).map_err(|error| OptionsError::server(error.to_string()))?;
    flags.check(matches)
}

/// What the flags of `tautline agent` mean.
///
/// # Errors
/// The text for the person who gave them.
pub fn parse_agent(flags: &[String]) -> Result<AgentOptions, String> {
    let words = ["tautline", "agent"].into_iter().map(str::to_owned).chain(flags.iter().cloned());
    let matches = command().try_get_matches_from(words).map_err(|error| error.to_string())?;
    let Some(("agent", matches)) = matches.subcommand() else { return Err("no agent".to_owned()) };
    agent_options(matches).map_err(|error| error.to_string())
}

fn agent_options(matches: &ArgMatches) -> Result<AgentOptions, OptionsError> {
    let flags =
        AgentFlags::from_arg_matches(matches).map_err(|error| OptionsError::agent(error.to_string()))?;
    let mut options = flags.check(matches)?;
    let proxy = ["HTTPS_PROXY", "https_proxy"].into_iter().find(|name| std::env::var_os(name).is_some());
    if let Some(name) = proxy {
        options
            .notices
            .push(format!("the environment variable {name} has no effect: the agent dials directly"));
    }
    Ok(options)
}

#[cfg(test)]
mod tests;

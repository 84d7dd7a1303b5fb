//! The only room that knows core and net.

use std::fmt;

use crate::cli::options::{AgentOptions, ServerOptions};

/// Why a role did not start, or had to end.
#[derive(Debug)]
pub struct StartError(String);

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
    Err(StartError(format!("server {}: this build has no loop yet", options.server_id)))
}

/// Runs an agent until a signal ends it.
///
/// # Errors
/// What kept it from starting.
pub fn run_agent(options: AgentOptions) -> Result<(), StartError> {
    Err(StartError(format!("agent {}: this build has no loop yet", options.agent_id)))
}

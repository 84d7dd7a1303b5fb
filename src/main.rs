//! One binary, several roles: `tautline server | agent | demo | certs`.

use std::process::ExitCode;

fn main() -> ExitCode {
    tautline::cli::run(std::env::args_os().collect())
}

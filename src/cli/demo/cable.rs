//! A network of the demo's own (network_namespaces(7)), in which one agent can be cut off and nobody else notices.

use std::io;
use std::process::{Command, Stdio};

use nix::sched::{CloneFlags, unshare};
use nix::unistd::geteuid;

use super::DemoError;

/// The way of one agent to the server: an address of its own, on the loopback device of a network of our own.
#[derive(Debug)]
pub(super) struct Cable(());

impl Cable {
    /// Where the server is reached over the cable.
    pub(super) const ADDRESS: &str = "10.255.255.1";

    /// Moves this thread, and all that it will start, to a network of its own. `None` if we may not do that, or
    /// have no ip(8).
    pub(super) fn lay() -> Result<Option<Self>, DemoError> {
        if !geteuid().is_root() || ip(&["-V"]).is_err() || unshare(CloneFlags::CLONE_NEWNET).is_err() {
            return Ok(None);
        }
        let cable = Self(());
        ip(&["link", "set", "lo", "up"])
            .map_err(|error| DemoError::Io("ip link set lo up".to_owned(), error))?;
        cable.plug_in()?;
        Ok(Some(cable))
    }

    /// Nothing gets through any more, either way.
    pub(super) fn pull(&self) -> Result<(), DemoError> {
        change("del")
    }

    /// Everything gets through again.
    pub(super) fn plug_in(&self) -> Result<(), DemoError> {
        change("add")
    }
}

fn change(how: &str) -> Result<(), DemoError> {
    ip(&["address", how, &format!("{}/32", Cable::ADDRESS), "dev", "lo"])
        .map_err(|error| DemoError::Io(format!("ip address {how}"), error))
}

fn ip(arguments: &[&str]) -> io::Result<()> {
    let output = Command::new("ip").args(arguments).stdin(Stdio::null()).output()?;
    if output.status.success() {
        Ok(())
    } else {
        Err(io::Error::other(String::from_utf8_lossy(&output.stderr).trim().to_owned()))
    }
}

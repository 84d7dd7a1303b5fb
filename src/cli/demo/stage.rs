//! The demo's processes, and the scenes that are played with them.

use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;

use super::DemoError;
use super::cable::Cable;
use super::children::Process;
use super::dialer::Route;
use super::report::{Console, Stats};
use super::room::{Interrupt, Room};
use crate::cli::certs::{self, CertOptions, CertPaths};

const AGENTS: [&str; 3] = ["agent-1", "agent-2", "agent-3"];
/// The one whose cable is pulled.
const CUT_OFF: usize = 0;
/// The one that dies.
const VICTIM: usize = 1;
/// The one that is frozen.
const FROZEN: usize = 2;
const START_LIMIT: Duration = Duration::from_secs(15);
const POLL: Duration = Duration::from_millis(20);
/// A killed process's kernel says so at once; this leaves room for a busy machine.
const TUNNELS_END_WITHIN: Duration = Duration::from_secs(3);
/// A moment for the tunnels of the killed agent to end before they are counted.
const COUNT_AFTER: Duration = Duration::from_millis(500);
const LAST_LINES: usize = 15;

/// Something that happens while dials go on.
pub(super) struct Scene {
    /// When, in percent of a round.
    pub(super) at_percent: u32,
    pub(super) play: fn(&mut Stage<'_>, &Stats, &Console) -> Result<(), DemoError>,
}

/// A round, in order of time. At its end all is well again.
pub(super) const SCENES: &[Scene] = &[
    Scene { at_percent: 10, play: freeze_agent },
    Scene { at_percent: 28, play: thaw_agent },
    Scene { at_percent: 35, play: kill_agent },
    Scene { at_percent: 55, play: start_agent_again },
    Scene { at_percent: 65, play: pull_cable },
    Scene { at_percent: 83, play: plug_cable_in },
];

fn freeze_agent(stage: &mut Stage<'_>, _: &Stats, console: &Console) -> Result<(), DemoError> {
    let name = AGENTS[FROZEN];
    console.step(&format!(
        "Freezing {name} (SIGSTOP): its kernel goes on acknowledging for it, so only its silence tells."
    ));
    stage.signal(FROZEN, Signal::SIGSTOP)
}

fn thaw_agent(stage: &mut Stage<'_>, _: &Stats, console: &Console) -> Result<(), DemoError> {
    console.step(&format!("{} goes on, and so do the tunnels that waited for it.", AGENTS[FROZEN]));
    stage.signal(FROZEN, Signal::SIGCONT)
}

fn pull_cable(stage: &mut Stage<'_>, _: &Stats, console: &Console) -> Result<(), DemoError> {
    let Some(cable) = &stage.cable else {
        console.step("An agent that is cut off from the network is shown to root only (it needs ip(8) too).");
        return Ok(());
    };
    console.step(&format!("Pulling the cable of {}: no FIN, no RST, nothing.", AGENTS[CUT_OFF]));
    cable.pull()
}

fn plug_cable_in(stage: &mut Stage<'_>, _: &Stats, console: &Console) -> Result<(), DemoError> {
    let Some(cable) = &stage.cable else { return Ok(()) };
    console.step(&format!("Plugging the cable of {} in again: its tunnels go on.", AGENTS[CUT_OFF]));
    cable.plug_in()
}

fn kill_agent(stage: &mut Stage<'_>, stats: &Stats, console: &Console) -> Result<(), DemoError> {
    let name = AGENTS[VICTIM];
    console.step(&format!(
        "Killing {name} (SIGKILL). Its open tunnels end at once, dials go on through the other two."
    ));
    let before = stats.ended_with_agent();
    stats.agent_killed(Instant::now(), TUNNELS_END_WITHIN);
    if let Some(mut agent) = stage.agents[VICTIM].take() {
        agent.kill().map_err(|error| DemoError::Io(format!("kill {name}"), error))?;
    }
    stage.pause(COUNT_AFTER)?;
    console.step(&format!("{} open tunnels ended with {name}.", stats.ended_with_agent() - before));
    Ok(())
}

fn start_agent_again(stage: &mut Stage<'_>, _: &Stats, console: &Console) -> Result<(), DemoError> {
    let name = AGENTS[VICTIM];
    console.step(&format!("Starting {name} again."));
    let started = Instant::now();
    let links_before = stage.server.links_up(name);
    stage.start_agent(VICTIM)?;
    stage.wait_for(&format!("{name} to connect"), |stage| {
        (stage.server.links_up(name) > links_before).then_some(())
    })?;
    console.step(&format!(
        "{name} is back after {:.1} s and gets its share again.",
        started.elapsed().as_secs_f64()
    ));
    Ok(())
}

/// All processes of the show. Fields are dropped in this order: who dials first, who is dialled last.
pub(super) struct Stage<'a> {
    /// `None` while one is dead on purpose.
    agents: [Option<Process>; 3],
    server: Process,
    target: Process,
    target_addr: SocketAddr,
    certs: CertPaths,
    server_port: u16,
    program: &'a Path,
    interrupt: &'a Interrupt,
    room: Room,
    /// For root: the way of one agent to the server.
    cable: Option<Cable>,
}

impl<'a> Stage<'a> {
    /// Starts everything and waits until all agents are connected.
    pub(super) fn set(
        program: &'a Path,
        console: &Console,
        interrupt: &'a Interrupt,
    ) -> Result<Self, DemoError> {
        let io = |what: &str| {
            let what = what.to_owned();
            move |error| DemoError::Io(what, error)
        };
        // First of all: what is started afterwards lives in its network.
        let cable = Cable::lay()?;
        let room = Room::make().map_err(io("temporary directory"))?;
        console.step("Making a CA and certificates.");
        let certs = certs::write(room.path(), &cert_options())
            .map_err(|error| DemoError::Child(error.to_string()))?;
        console.step("Starting a target (an echo server), a server and three agents.");
        let target =
            Process::start(program, "target", &["demo-target".to_owned()]).map_err(io("start the target"))?;
        let server = Process::start(program, "server", &server_arguments(&room, &certs, cable.is_some()))
            .map_err(io("start the server"))?;
        let mut stage = Self {
            agents: [None, None, None],
            server,
            target,
            target_addr: SocketAddr::from(([127, 0, 0, 1], 0)),
            certs,
            server_port: 0,
            program,
            interrupt,
            room,
            cable,
        };
        stage.target_addr =
            stage.wait_for("the target's address", |stage| address(&stage.target, "target"))?;
        let agents_addr =
            stage.wait_for("the server's agent port", |stage| address(&stage.server, "agents"))?;
        stage.server_port = agents_addr.port();
        stage.wait_for("the server's Unix socket", |stage| stage.server.address("frontends"))?;
        for index in 0..AGENTS.len() {
            stage.start_agent(index)?;
        }
        stage.wait_for("all agents to connect", |stage| {
            AGENTS.iter().all(|name| stage.server.links_up(name) > 0).then_some(())
        })?;
        console.step(&format!(
            "All three agents are connected to 127.0.0.1:{} by mutual TLS. Target: {}.",
            stage.server_port, stage.target_addr
        ));
        Ok(stage)
    }

    pub(super) fn route(&self) -> Route {
        Route { socket: self.room.path().join("frontend.sock"), target: self.target_addr }
    }

    fn start_agent(&mut self, index: usize) -> Result<(), DemoError> {
        let name = AGENTS[index];
        let server = if index == CUT_OFF && self.cable.is_some() { Cable::ADDRESS } else { "127.0.0.1" };
        let arguments = agent_arguments(name, server, self.server_port, &self.certs);
        let agent = Process::start(self.program, name, &arguments)
            .map_err(|error| DemoError::Io(format!("start {name}"), error))?;
        self.agents[index] = Some(agent);
        Ok(())
    }

    fn signal(&self, index: usize, signal: Signal) -> Result<(), DemoError> {
        let Some(agent) = &self.agents[index] else { return Ok(()) };
        agent.signal(signal).map_err(|error| DemoError::Io(format!("{signal} to {}", AGENTS[index]), error))
    }

    /// Waits until `look` finds something.
    fn wait_for<T>(&mut self, what: &str, look: impl Fn(&Self) -> Option<T>) -> Result<T, DemoError> {
        let end = Instant::now() + START_LIMIT;
        loop {
            if let Some(found) = look(self) {
                return Ok(found);
            }
            self.pause(POLL)?;
            if Instant::now() >= end {
                let mut text = format!("waited {} s for {what}; last lines:\n", START_LIMIT.as_secs());
                self.processes().for_each(|process| text.push_str(&process.last_lines(LAST_LINES)));
                return Err(DemoError::Child(text));
            }
        }
    }

    /// Sleeps while nothing goes wrong.
    fn pause(&mut self, length: Duration) -> Result<(), DemoError> {
        let end = Instant::now() + length;
        loop {
            if self.interrupt.happened() {
                return Err(DemoError::Interrupted);
            }
            self.check_children()?;
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(());
            }
            thread::sleep(left.min(POLL));
        }
    }

    /// That nobody died who should not.
    pub(super) fn check_children(&mut self) -> Result<(), DemoError> {
        for process in self.processes() {
            let ended = process
                .ended()
                .map_err(|error| DemoError::Io(format!("look after {}", process.name()), error))?;
            if let Some(status) = ended {
                return Err(DemoError::Child(format!(
                    "{} ended unexpectedly ({status}); its last lines:\n{}",
                    process.name(),
                    process.last_lines(LAST_LINES)
                )));
            }
        }
        Ok(())
    }

    /// The last lines of everybody.
    pub(super) fn show_logs(&mut self, console: &Console) {
        let text: String = self.processes().map(|process| process.last_lines(LAST_LINES)).collect();
        console.text(&text);
    }

    fn processes(&mut self) -> impl Iterator<Item = &mut Process> {
        [&mut self.target, &mut self.server].into_iter().chain(self.agents.iter_mut().flatten())
    }
}

fn address(process: &Process, what: &str) -> Option<SocketAddr> {
    process.address(what)?.parse().ok()
}

fn cert_options() -> CertOptions {
    let mut options = CertOptions { days: 1, ..CertOptions::default() };
    options.hosts.push(Cable::ADDRESS.to_owned());
    options
}

/// `alone`: nobody else is in our network, so all of its addresses are ours.
fn server_arguments(room: &Room, certs: &CertPaths, alone: bool) -> Vec<String> {
    let address = if alone { "0.0.0.0" } else { "127.0.0.1" };
    vec![
        "server".to_owned(),
        "--server-id=demo".to_owned(),
        format!("--uds-name={}", room.path().join("frontend.sock").display()),
        "--server-port=0".to_owned(),
        format!("--agent-bind-address={address}"),
        "--agent-port=0".to_owned(),
        "--health-bind-address=127.0.0.1".to_owned(),
        "--health-port=0".to_owned(),
        "--admin-port=0".to_owned(),
        format!("--cluster-cert={}", certs.server_cert.display()),
        format!("--cluster-key={}", certs.server_key.display()),
        format!("--cluster-ca-cert={}", certs.ca_cert.display()),
    ]
}

fn agent_arguments(name: &str, server: &str, server_port: u16, certs: &CertPaths) -> Vec<String> {
    vec![
        "agent".to_owned(),
        format!("--agent-id={name}"),
        format!("--proxy-server-host={server}"),
        format!("--proxy-server-port={server_port}"),
        "--health-server-host=127.0.0.1".to_owned(),
        "--health-server-port=0".to_owned(),
        "--admin-server-port=0".to_owned(),
        format!("--ca-cert={}", certs.ca_cert.display()),
        format!("--agent-cert={}", certs.agent_cert.display()),
        format!("--agent-key={}", certs.agent_key.display()),
    ]
}

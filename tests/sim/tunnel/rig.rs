//! A server, agents on hosts of their own, and what clients and targets there need.

use std::cell::RefCell;
use std::net::{IpAddr, SocketAddr};
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use tautline::app::{App, AppConfig, DescriptorShares, LinkTls, Tokens};
use tautline::core::agent::{Agent, AgentConfig};
use tautline::core::mux::LivenessConfig;
use tautline::core::role::{AdminStep, Door, ProcessReport, Role};
use tautline::core::server::{Server, ServerConfig};
use tautline::net::sys::{KernelLiveness, ListenAddr, Sys};
use tautline::net::tls::{ClientTls, ClientTlsOptions, ServerTls, ServerTlsOptions, WallClock, server_name};

use crate::actors::client::{Client, ClientPlan, ClientReport};
use crate::actors::target::{Behaviour, Target, TargetReport};
use crate::kernel::{HostId, NodeId};
use crate::net::Path;
use crate::quirks::Quirks;
use crate::rng::Rng;
use crate::sys::SimSys;
use crate::world::{Node, World};

/// The server's Unix socket.
pub(crate) const FRONT: &str = "/run/front.sock";

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Security {
    Clear,
    MutualTls,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct AgentNode {
    pub(crate) host: HostId,
    pub(crate) node: NodeId,
}

type ServerApp = Rc<RefCell<App<SimSys, Server>>>;

pub(crate) struct Rig {
    pub(crate) world: World,
    server: ServerApp,
    control_plane: HostId,
    targets: HostId,
    agents: u8,
    seed: u64,
    security: Security,
}

pub(crate) fn address(text: &str) -> IpAddr {
    text.parse().unwrap()
}

const LIVENESS: LivenessConfig = LivenessConfig {
    ping_interval: Some(Duration::from_secs(2)),
    ping_timeout: Duration::from_secs(1),
    dead_after: Duration::from_secs(10),
};

/// A driver as a program of the simulated machine.
struct Program<R: Role>(Rc<RefCell<App<SimSys, R>>>);

impl<R: Role> Node for Program<R> {
    fn turn(&mut self) -> ControlFlow<()> {
        match self.0.borrow_mut().turn() {
            Ok(false) => ControlFlow::Continue(()),
            Ok(true) | Err(_) => ControlFlow::Break(()),
        }
    }
}

impl Rig {
    pub(crate) fn new(seed: u64, security: Security) -> Self {
        // An accept that is aborted is a connection lost, at the target or the frontend: not what is tested here.
        let quirks = Quirks { accept_abort_chance: 0, ..Quirks::draw(&mut Rng::new(seed)) };
        let mut world = World::with_quirks(seed, quirks);
        let control_plane = world.host("cp", &[address("10.0.0.1")]);
        let targets = world.host("targets", &[address("10.0.0.9")]);
        let mut made = None;
        world.spawn(control_plane, "server", |sys| {
            let app = server(sys, seed, security);
            made = Some(Rc::clone(&app));
            Box::new(Program(app))
        });
        let server = made.unwrap();
        Self { world, server, control_plane, targets, agents: 0, seed, security }
    }

    /// Starts an agent on a host of its own.
    pub(crate) fn agent(&mut self, id: &str) -> AgentNode {
        self.agents += 1;
        let host = self.world.host(id, &[IpAddr::from([10, 0, 1, self.agents])]);
        let (seed, security) = (self.seed ^ u64::from(self.agents) << 32, self.security);
        let node = self.world.spawn(host, id, |sys| Box::new(Program(agent(sys, id, seed, security))));
        AgentNode { host, node }
    }

    pub(crate) fn set_path(&mut self, agent: HostId, path: &Path) {
        self.world.set_path(self.control_plane, agent, path);
    }

    pub(crate) fn target(&mut self, at: SocketAddr, behaviour: Behaviour) -> Rc<RefCell<TargetReport>> {
        Target::spawn(&mut self.world, self.targets, at, behaviour).1
    }

    pub(crate) fn target_on_a_host_of_its_own(&mut self, at: SocketAddr, behaviour: Behaviour) -> HostId {
        let host = self.world.host("target", &[at.ip()]);
        Target::spawn(&mut self.world, host, at, behaviour);
        host
    }

    pub(crate) fn client(&mut self, plan: ClientPlan) -> Rc<RefCell<ClientReport>> {
        Client::spawn(&mut self.world, self.control_plane, plan).1
    }

    /// The server's `/status`, asked of the role itself.
    pub(crate) fn status(&self) -> String {
        let app = self.server.borrow();
        let report = || ProcessReport { connections: app.connections(), ..ProcessReport::default() };
        match app.role().admin(base() + self.world.now(), b"GET /status HTTP/1.1\r\n\r\n", &report) {
            AdminStep::Answer(bytes) => String::from_utf8(bytes).unwrap(),
            AdminStep::More | AdminStep::Refuse { .. } => panic!("a whole head"),
        }
    }

    pub(crate) fn wait_for(&mut self, limit: Duration, holds: impl Fn(&str) -> bool) -> bool {
        let end = self.world.now() + limit;
        while self.world.now() < end {
            self.world.run_for(Duration::from_millis(50));
            if holds(&self.status()) {
                return true;
            }
        }
        false
    }

    /// Nothing of a client is left, nobody left work undone, and nobody spins.
    pub(crate) fn assert_empty(&mut self, seed: u64) {
        self.world.run_for(Duration::from_secs(2));
        let status = self.status();
        for name in ["frontends", "pending_dials", "tunnels", "streams", "window_bytes"] {
            assert!(status.contains(&format!("\"{name}\": 0,")), "seed {seed}: {name} in {status}");
        }
        // A target may be one that never reads.
        let mut stalls = self.world.stalls();
        stalls.retain(|stall| !stall.name.starts_with("target"));
        assert!(stalls.is_empty(), "seed {seed}: {stalls:?}");
        let before = self.world.events();
        self.world.run_for(Duration::from_secs(10));
        let events = self.world.events() - before;
        assert!(events < 2000, "seed {seed}: {events} events in 10 s of quiet");
    }
}

/// Any instant will do: only ages are computed from it, for people.
fn base() -> Instant {
    static BASE: OnceLock<Instant> = OnceLock::new();
    #[expect(clippy::disallowed_methods, reason = "a base for a virtual clock; nothing depends on its value")]
    *BASE.get_or_init(Instant::now)
}

fn config(link_tls: LinkTls, clock: WallClock) -> AppConfig {
    AppConfig {
        link_tls,
        frontend_tls: None,
        kernel_liveness: KernelLiveness {
            keepalive_idle: Duration::from_secs(3),
            keepalive_interval: Duration::from_secs(1),
            keepalive_count: 7,
            user_timeout: Duration::from_secs(20),
        },
        clock,
        tokens: Tokens::default(),
        shares: DescriptorShares::new(4096),
        process: ProcessReport::default,
    }
}

fn server(mut sys: SimSys, seed: u64, security: Security) -> ServerApp {
    let clock = WallClock::default();
    clock.set(sys.unix_time());
    let link_tls = match security {
        Security::Clear => LinkTls::None,
        Security::MutualTls => LinkTls::Server(
            ServerTls::load(
                &ServerTlsOptions {
                    cert_file: certificates().join("server.crt"),
                    key_file: certificates().join("server.key"),
                    client_ca_file: Some(certificates().join("ca.crt")),
                    ..ServerTlsOptions::default()
                },
                &clock,
            )
            .unwrap(),
        ),
    };
    let role = Server::new(ServerConfig {
        server_id: "s".to_owned(),
        server_count: 1,
        liveness: LIVENESS,
        dial_timeout: Duration::from_secs(8),
        dial_wait: Duration::from_secs(2),
        drain_timeout: Duration::ZERO,
        reviews_tokens: false,
        max_tunnels: 1000,
        greetings_max: 64,
        seed,
    });
    let mut app = App::new(sys, role, config(link_tls, clock));
    app.listen(&ListenAddr::Tcp(SocketAddr::new(address("10.0.0.1"), 8091)), Door::Agents).unwrap();
    app.listen(&ListenAddr::Unix(PathBuf::from(FRONT)), Door::Frontends).unwrap();
    Rc::new(RefCell::new(app))
}

fn agent(mut sys: SimSys, id: &str, seed: u64, security: Security) -> Rc<RefCell<App<SimSys, Agent>>> {
    let clock = WallClock::default();
    clock.set(sys.unix_time());
    let link_tls = match security {
        Security::Clear => LinkTls::None,
        Security::MutualTls => LinkTls::Client(
            ClientTls::load(
                &ClientTlsOptions {
                    ca_file: certificates().join("ca.crt"),
                    cert_file: Some(certificates().join("agent.crt")),
                    key_file: Some(certificates().join("agent.key")),
                    ..ClientTlsOptions::default()
                },
                &clock,
            )
            .unwrap(),
            server_name("localhost").unwrap(),
        ),
    };
    let now = sys.now();
    let role = Agent::new(
        AgentConfig {
            agent_id: id.to_owned(),
            identifiers: String::new(),
            server_host: "10.0.0.1".to_owned(),
            server_port: 8091,
            liveness: LIVENESS,
            redial_base: Duration::from_secs(1),
            redial_cap: Duration::from_secs(10),
            drain_timeout: Duration::from_secs(30),
            shows_token: false,
            max_tunnels: 1000,
            seed,
        },
        now,
    );
    Rc::new(RefCell::new(App::new(sys, role, config(link_tls, clock))))
}

/// One CA for the whole run of tests; keys differ from run to run, lengths and traces of plaintext do not.
fn certificates() -> &'static PathBuf {
    static DIR: OnceLock<PathBuf> = OnceLock::new();
    DIR.get_or_init(|| {
        let dir = std::env::temp_dir().join(format!("tautline-sim-{}", std::process::id()));
        tautline::cli::certs::write(&dir, &tautline::cli::certs::CertOptions::default()).unwrap();
        dir
    })
}

//! The real binary on loopback: a server and agents as child processes, ended by their own pids.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use crate::front::Front;

/// No wait in a test is longer; none is shorter than its condition.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// The first of the flags that let agents in by token.
const BY_TOKEN: &str = "--agent-namespace";

/// The answer that opens a tunnel, byte by byte.
pub(crate) const ESTABLISHED: &[u8] = b"HTTP/1.1 200 Connection Established\r\n\r\n";

#[expect(clippy::disallowed_methods, reason = "a test against real processes waits in real time")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Asks until `ready` gives something; fails with `what` after [`PATIENCE`].
#[expect(clippy::disallowed_methods, reason = "a test against real processes waits in real time")]
pub(crate) fn wait_for<T>(what: &str, mut ready: impl FnMut() -> Option<T>) -> T {
    let begin = now();
    loop {
        if let Some(value) = ready() {
            return value;
        }
        assert!(begin.elapsed() < PATIENCE, "waited {PATIENCE:?} for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// A child process; its log is shown when a test fails.
pub(crate) struct Process {
    name: String,
    child: Child,
    log: Arc<Mutex<Vec<String>>>,
}

impl Process {
    fn start(name: &str, args: &[String]) -> Self {
        // The same bounds on every machine.
        let mut child = Command::new("sh")
            .args(["-c", "ulimit -n 4096; exec \"$0\" \"$@\"", env!("CARGO_BIN_EXE_tautline")])
            .args(args)
            .stderr(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        let log = Arc::new(Mutex::new(Vec::new()));
        let (lines, stderr) = (Arc::clone(&log), child.stderr.take().unwrap());
        std::thread::spawn(move || {
            for line in BufReader::new(stderr).lines().map_while(Result::ok) {
                lines.lock().unwrap().push(line);
            }
        });
        Self { name: name.to_owned(), child, log }
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.log.lock().unwrap().clone()
    }

    /// The first log line that has `part`.
    pub(crate) fn logged_line(&self, part: &str) -> String {
        wait_for(&format!("{part:?} in the log of {}", self.name), || {
            self.lines().into_iter().find(|line| line.contains(part))
        })
    }

    /// What follows `before` in the first log line that has it, up to a space.
    pub(crate) fn logged(&self, before: &str) -> String {
        wait_for(&format!("{before:?} in the log of {}", self.name), || {
            let log = self.log.lock().unwrap();
            let line = log.iter().find_map(|line| line.split_once(before))?;
            Some(line.1.split(' ').next().unwrap_or("").to_owned())
        })
    }

    /// Where it listens for `what`.
    pub(crate) fn port(&self, what: &str) -> u16 {
        self.logged(&format!("what={what} addr=")).rsplit(':').next().unwrap().parse().unwrap()
    }

    pub(crate) fn kill(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }

    fn signal(&self, signal: nix::sys::signal::Signal) {
        let pid = nix::unistd::Pid::from_raw(self.child.id().cast_signed());
        nix::sys::signal::kill(pid, signal).unwrap();
    }

    /// SIGSTOP; the kernel goes on acknowledging for it.
    pub(crate) fn freeze(&mut self) {
        self.signal(nix::sys::signal::Signal::SIGSTOP);
    }

    pub(crate) fn terminate(&self) {
        self.signal(nix::sys::signal::Signal::SIGTERM);
    }

    /// Waits until it ended by itself.
    pub(crate) fn wait_end(&mut self) -> Option<i32> {
        wait_for(&format!("the end of {}", self.name), || self.child.try_wait().unwrap()).code()
    }

    pub(crate) fn descriptors(&self) -> usize {
        std::fs::read_dir(format!("/proc/{}/fd", self.child.id())).unwrap().count()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            let log = self.log.lock().unwrap();
            eprintln!("--- {}:\n{}", self.name, log[log.len().saturating_sub(20)..].join("\n"));
        }
    }
}

/// A server with a Unix socket, mutual TLS towards its agents.
pub(crate) struct Rig {
    pub(crate) server: Process,
    pub(crate) admin: u16,
    pub(crate) health: u16,
    /// The TCP frontend's port; 0 with a Unix socket.
    pub(crate) frontend: u16,
    pub(crate) front: Front,
    pub(crate) dir: PathBuf,
    pub(crate) agents_port: u16,
    /// Further flags of the server.
    more: Vec<String>,
}

impl Rig {
    /// CONNECT over a Unix socket.
    pub(crate) fn start(name: &str) -> Self {
        Self::start_front(name, Front::Unix)
    }

    pub(crate) fn start_front(name: &str, front: Front) -> Self {
        Self::start_with(name, front, &[])
    }

    /// Agents are known by token, as these flags say.
    pub(crate) fn start_by_token(name: &str, front: Front, flags: &[&str]) -> Self {
        assert!(flags[0].starts_with(BY_TOKEN));
        Self::start_with(name, front, flags)
    }

    /// With more flags for the server.
    pub(crate) fn start_with(name: &str, front: Front, more: &[&str]) -> Self {
        let tcp = front == Front::Tls;
        let dir = std::env::temp_dir().join(format!("tautline-e2e-{name}-{front:?}-{}", std::process::id()));
        let certs = dir.join("certs");
        std::fs::create_dir_all(&dir).unwrap();
        tautline::cli::certs::write(&certs, &tautline::cli::certs::CertOptions::default()).unwrap();
        let (server, agents_port) = Self::server(&dir, 0, tcp, more);
        let (health, admin) = (server.port("health"), server.port("admin"));
        let frontend = if tcp { server.port("frontends") } else { 0 };
        let more = more.iter().map(|&flag| flag.to_owned()).collect();
        Self { health, admin, frontend, front, server, dir, agents_port, more }
    }

    fn server(dir: &Path, port: u16, tcp: bool, more: &[&str]) -> (Process, u16) {
        let path = |name: &str| dir.join(name).display().to_string();
        let mut args = vec![
            "server".to_owned(),
            "--server-port=0".to_owned(),
            format!("--cluster-cert={}", path("certs/server.crt")),
            format!("--cluster-key={}", path("certs/server.key")),
            "--agent-bind-address=127.0.0.1".to_owned(),
            format!("--agent-port={port}"),
            "--health-bind-address=127.0.0.1".to_owned(),
            "--health-port=0".to_owned(),
            "--admin-port=0".to_owned(),
        ];
        if tcp {
            args.push("--server-bind-address=127.0.0.1".to_owned());
            args.push(format!("--server-cert={}", path("certs/server.crt")));
            args.push(format!("--server-key={}", path("certs/server.key")));
            args.push(format!("--server-ca-cert={}", path("certs/ca.crt")));
        } else {
            args.push(format!("--uds-name={}", path("front.sock")));
        }
        if !more.first().is_some_and(|flag| flag.starts_with(BY_TOKEN)) {
            args.push(format!("--cluster-ca-cert={}", path("certs/ca.crt")));
        }
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        let server = Process::start("server", &args);
        let port = server.port("agents");
        server.logged("what=admin addr=");
        (server, port)
    }

    /// Ends the server with SIGKILL and starts another one on the same port.
    pub(crate) fn restart_server(&mut self) {
        self.server.kill();
        let more: Vec<&str> = self.more.iter().map(String::as_str).collect();
        let (server, _) = Self::server(&self.dir, self.agents_port, false, &more);
        (self.admin, self.health) = (server.port("admin"), server.port("health"));
        self.server = server;
    }

    pub(crate) fn agent(&self, id: &str) -> Process {
        self.agent_with(id, "certs")
    }

    pub(crate) fn agent_with_args(&self, id: &str, args: &[&str]) -> Process {
        self.start_agent(id, "certs", args)
    }

    pub(crate) fn agent_with(&self, id: &str, certs: &str) -> Process {
        self.start_agent(id, certs, &[])
    }

    /// An agent without a certificate.
    pub(crate) fn agent_by_token(&self, id: &str, file: &Path) -> Process {
        let mut args = self.agent_args(id);
        args.push(format!("--service-account-token-path={}", file.display()));
        Process::start(id, &args)
    }

    fn start_agent(&self, id: &str, certs: &str, more: &[&str]) -> Process {
        let path = |name: &str| self.dir.join(name).display().to_string();
        let mut args = self.agent_args(id);
        args.extend([
            format!("--agent-cert={}", path(&format!("{certs}/agent.crt"))),
            format!("--agent-key={}", path(&format!("{certs}/agent.key"))),
        ]);
        args.extend(more.iter().map(|&arg| arg.to_owned()));
        Process::start(id, &args)
    }

    fn agent_args(&self, id: &str) -> Vec<String> {
        vec![
            "agent".to_owned(),
            format!("--ca-cert={}", self.dir.join("certs/ca.crt").display()),
            "--proxy-server-host=127.0.0.1".to_owned(),
            format!("--proxy-server-port={}", self.agents_port),
            format!("--agent-id={id}"),
            "--health-server-host=127.0.0.1".to_owned(),
            "--health-server-port=0".to_owned(),
            "--admin-server-port=0".to_owned(),
        ]
    }

    pub(crate) fn agent_up(&self, id: &str) -> Process {
        let agent = self.agent(id);
        agent.logged("msg=\"link up\"");
        self.wait_status("the agent in the server's table", |status| {
            status.contains(&format!("\"agent\": \"{id}\""))
        });
        agent
    }

    /// A CONNECT whose answer was not read yet.
    pub(crate) fn ask(&self, target: &str) -> UnixStream {
        let mut client = UnixStream::connect(self.dir.join("front.sock")).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(format!("CONNECT {target} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n").as_bytes()).unwrap();
        client
    }

    /// An open tunnel.
    pub(crate) fn dial(&self, target: u16) -> UnixStream {
        let mut client = self.ask(&format!("127.0.0.1:{target}"));
        let mut head = [0; 4096];
        let n = client.read(&mut head).unwrap();
        assert_eq!(&head[..n], ESTABLISHED, "{:?}", String::from_utf8_lossy(&head[..n]));
        client
    }

    /// All that a server says to bytes.
    pub(crate) fn say(&self, bytes: &[u8]) -> String {
        let mut client = UnixStream::connect(self.dir.join("front.sock")).unwrap();
        client.set_read_timeout(Some(PATIENCE)).unwrap();
        client.write_all(bytes).unwrap();
        read_text(&mut client)
    }

    pub(crate) fn status(&self) -> String {
        get(self.admin, "/status")
    }

    pub(crate) fn wait_status(&self, what: &str, holds: impl Fn(&str) -> bool) -> String {
        wait_for(what, || Some(self.status()).filter(|status| holds(status)))
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        let _left = std::fs::remove_dir_all(&self.dir);
    }
}

pub(crate) fn read_text(from: &mut impl Read) -> String {
    let mut bytes = Vec::new();
    let _reset_is_an_end_too = from.read_to_end(&mut bytes);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// One GET; the whole answer, head included.
pub(crate) fn get(port: u16, path: &str) -> String {
    let mut client = TcpStream::connect(("127.0.0.1", port)).unwrap();
    client.write_all(format!("GET {path} HTTP/1.1\r\nHost: x\r\n\r\n").as_bytes()).unwrap();
    read_text(&mut client)
}

/// The number behind `"name": ` in a status page.
pub(crate) fn number(status: &str, name: &str) -> u64 {
    let (_, rest) = status.split_once(&format!("\"{name}\": ")).unwrap();
    rest.split([',', '\n']).next().unwrap().parse().unwrap()
}

/// A target on loopback: `serve` gets each connection on a thread of its own.
pub(crate) fn target(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let serve = Arc::new(serve);
    std::thread::spawn(move || {
        for conn in listener.incoming().flatten() {
            let serve = Arc::clone(&serve);
            std::thread::spawn(move || serve(conn));
        }
    });
    port
}

pub(crate) fn echo() -> u16 {
    target(|conn| {
        let _gone = std::io::copy(&mut &conn, &mut &conn);
        let _gone = conn.shutdown(Shutdown::Write);
    })
}

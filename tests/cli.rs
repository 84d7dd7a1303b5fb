//! The binary as a person or a manifest starts it: exit codes, streams, files.
#![expect(clippy::unwrap_used, reason = "a test ends where something fails")]

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

const PROGRAM: &str = env!("CARGO_BIN_EXE_tautline");

fn tautline(arguments: &[&str]) -> Command {
    let mut command = Command::new(PROGRAM);
    command.args(arguments).env_remove("PROXY_SERVER_ID").env_remove("PROXY_AGENT_ID");
    command
}

fn output(arguments: &[&str]) -> Output {
    tautline(arguments).output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// A directory of one test, removed at its end.
struct Directory(PathBuf);

impl Directory {
    fn make(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tautline-cli-{name}-{}", std::process::id()));
        fs::create_dir(&path).unwrap();
        Self(path)
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn usage_goes_to_stderr_with_exit_code_1() {
    for arguments in [
        &[][..],
        &["server", "--no-such-flag"],
        &["agent", "--agent_id=a"],
        &["serve"],
        &["demo", "--seconds=1"],
    ] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
        assert!(
            text(&output.stderr).to_lowercase().contains("usage: ") || arguments[0] == "demo",
            "{arguments:?}"
        );
        assert!(!output.stderr.is_empty());
    }
}

#[test]
fn help_goes_to_stdout_with_exit_code_0() {
    for (arguments, part) in [
        (&["--help"][..], "server"),
        (&["server", "--help"], "--cluster-ca-cert"),
        (&["agent", "-h"], "--proxy-server-host"),
        (&["--version"], env!("CARGO_PKG_VERSION")),
    ] {
        let output = output(arguments);
        assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}");
        assert!(text(&output.stdout).contains(part), "{arguments:?}");
    }
    assert!(!text(&output(&["--help"]).stdout).contains("demo-target"));
}

#[test]
fn a_refused_option_is_one_line_and_exit_code_1() {
    for (arguments, start) in [
        (&["server", "--mode=grpc"][..], "error: failed to validate server options with --mode=grpc"),
        (&["agent"], "error: failed to validate agent options with no --ca-cert"),
        (&["certs", "/dev/null/x"], "error: /dev/null/x: "),
    ] {
        let output = output(arguments);
        assert_eq!(output.status.code(), Some(1), "{arguments:?}");
        let error = text(&output.stderr);
        assert!(error.starts_with(start) && error.lines().count() == 1, "{arguments:?}: {error}");
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn ids_may_come_from_the_environment() {
    for (role, flags, variable, flag) in [
        ("server", &["--uds-name=/x", "--insecure-agents"][..], "PROXY_SERVER_ID", "--server-id"),
        ("agent", &["--insecure-server"], "PROXY_AGENT_ID", "--agent-id"),
    ] {
        let output = tautline(&[role]).args(flags).env(variable, "a\tb").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stderr).contains(flag), "{}", text(&output.stderr));
    }
}

#[test]
fn the_names_of_konnectivitys_binaries_work() {
    let directory = Directory::make("names");
    for (name, role) in [("proxy-server", "server"), ("proxy-agent", "agent")] {
        let link = directory.0.join(name);
        std::os::unix::fs::symlink(PROGRAM, &link).unwrap();
        let output = Command::new(&link).arg("--dead-after=1s").output().unwrap();
        assert_eq!(output.status.code(), Some(1));
        let error = text(&output.stderr);
        assert!(error.starts_with(&format!("error: failed to validate {role} options")), "{error}");
    }
}

#[test]
fn certs_says_how_to_use_them_and_replaces_nothing_unasked() {
    let directory = Directory::make("certs");
    let path = directory.0.join("pki");
    let path = path.to_str().unwrap();
    let first = output(&["certs", path, "--days", "3", "--host", "a.example.com", "--host=10.0.0.1"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let hint = text(&first.stdout);
    for part in [
        format!(
            "--cluster-cert={path}/server.crt --cluster-key={path}/server.key --cluster-ca-cert={path}/ca.crt"
        ),
        format!("--proxy-server-host=a.example.com --ca-cert={path}/ca.crt"),
        format!("--agent-cert={path}/agent.crt --agent-key={path}/agent.key"),
        "3 days".to_owned(),
    ] {
        assert!(hint.contains(&part), "{part}: {hint}");
    }
    let again = output(&["certs", path]);
    assert_eq!(again.status.code(), Some(1));
    assert!(text(&again.stderr).contains("--force"), "{}", text(&again.stderr));
    assert!(output(&["certs", path, "--force"]).status.success());
}

#[test]
fn the_target_echoes_and_ends_with_its_standard_input() {
    let mut child = tautline(&["demo-target"]).stdin(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    let addr = line.trim_end().rsplit_once(" what=target addr=").unwrap().1;
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(b"hello").unwrap();
    let mut echoed = [0; 5];
    stream.read_exact(&mut echoed).unwrap();
    assert_eq!(&echoed, b"hello");
    drop(child.stdin.take());
    assert!(child.wait().unwrap().success());
}

#[test]
fn an_interrupted_demo_leaves_no_files_and_no_processes() {
    let directory = Directory::make("demo");
    let mut demo = tautline(&["demo", "--seconds=600"])
        .env("TMPDIR", &directory.0)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    wait_until(&mut demo, || !is_empty(&directory.0));
    if demo.try_wait().unwrap().is_none() {
        kill(Pid::from_raw(i32::try_from(demo.id()).unwrap()), Signal::SIGINT).unwrap();
    }
    let output = demo.wait_with_output().unwrap();
    assert!(!output.status.success() && output.status.code().is_some(), "{}", output.status);
    assert!(is_empty(&directory.0), "files: {}", text(&output.stdout));
    let name = directory.0.to_str().unwrap();
    let left: Vec<String> = processes().into_iter().filter(|line| line.contains(name)).collect();
    assert!(left.is_empty(), "{left:?}");
}

#[expect(clippy::disallowed_methods, reason = "waits for a real process, within a generous bound")]
fn wait_until(child: &mut Child, done: impl Fn() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !done() && Instant::now() < end && child.try_wait().unwrap().is_none() {
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn is_empty(directory: &Path) -> bool {
    fs::read_dir(directory).unwrap().next().is_none()
}

/// Command lines of all processes.
fn processes() -> Vec<String> {
    let entries = fs::read_dir("/proc").unwrap().flatten();
    let lines = entries.filter_map(|entry| fs::read(entry.path().join("cmdline")).ok());
    lines.map(|line| String::from_utf8_lossy(&line).into_owned()).collect()
}

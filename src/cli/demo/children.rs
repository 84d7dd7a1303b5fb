//! Child processes of the demo: started, listened to, and never left behind.

use std::collections::{BTreeMap, VecDeque};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStderr, Command, ExitStatus, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;

use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// Lines of a child that are kept.
const LINES_MAX: usize = 50;
/// Bytes of a line that are read as one.
const LINE_LEN_MAX: u64 = 4096;
/// Different things that one child may report; more are ignored.
const FACTS_MAX: usize = 64;

/// A child that is killed when dropped.
#[derive(Debug)]
pub(super) struct Process {
    name: String,
    child: Child,
    heard: Arc<Mutex<Heard>>,
}

impl Process {
    /// Starts `program` with `arguments`. It gets a process group of its own: a Ctrl-C on the terminal is for
    /// the demo, which then ends its children in order.
    pub(super) fn start(program: &Path, name: &str, arguments: &[String]) -> io::Result<Self> {
        let mut child = Command::new(program)
            .args(arguments)
            .env_remove("RUST_LOG")
            .env_remove("PROXY_SERVER_ID")
            .env_remove("PROXY_AGENT_ID")
            // The target reads its end from this pipe; the others never look.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()?;
        let stderr = child.stderr.take();
        // From here on Drop ends the child.
        let process = Self { name: name.to_owned(), child, heard: Arc::default() };
        let heard = Arc::clone(&process.heard);
        if let Some(stderr) = stderr {
            thread::Builder::new().name("log".to_owned()).spawn(move || listen(stderr, &heard))?;
        }
        Ok(process)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Ends the child at once (SIGKILL) and waits for it.
    pub(super) fn kill(&mut self) -> io::Result<()> {
        self.child.kill()?;
        self.child.wait().map(drop)
    }

    /// Sends a signal.
    pub(super) fn signal(&self, signal: Signal) -> io::Result<()> {
        Ok(nix::sys::signal::kill(Pid::from_raw(self.child.id().cast_signed()), signal)?)
    }

    /// How the child ended, if it did.
    pub(super) fn ended(&mut self) -> io::Result<Option<ExitStatus>> {
        self.child.try_wait()
    }

    /// Where the child listens for `what`, once it said so.
    pub(super) fn address(&self, what: &str) -> Option<String> {
        self.lock().addresses.get(what).cloned()
    }

    /// How often the child said that the link to `agent` is up.
    pub(super) fn links_up(&self, agent: &str) -> u64 {
        self.lock().links_up.get(agent).copied().unwrap_or_default()
    }

    /// What the child said last, at most `count` lines, each with its name before it.
    pub(super) fn last_lines(&self, count: usize) -> String {
        let heard = self.lock();
        let skip = heard.lines.len().saturating_sub(count);
        heard.lines.iter().skip(skip).map(|line| format!("    {}: {line}\n", self.name)).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Heard> {
        self.heard.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // Fails only if the child is gone, which is what we want.
        let _ = self.kill();
    }
}

fn listen(stderr: ChildStderr, heard: &Mutex<Heard>) {
    let mut reader = BufReader::new(stderr);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LINE_LEN_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => {
                let text = String::from_utf8_lossy(&line);
                heard.lock().unwrap_or_else(PoisonError::into_inner).line(text.trim_end());
            }
        }
    }
}

/// What a child said on standard error.
#[derive(Default, Debug)]
struct Heard {
    lines: VecDeque<String>,
    /// `msg="listening" what=... addr=...`
    addresses: BTreeMap<String, String>,
    /// `msg="link up" agent=...`
    links_up: BTreeMap<String, u64>,
}

impl Heard {
    fn line(&mut self, line: &str) {
        if self.lines.len() >= LINES_MAX {
            self.lines.pop_front();
        }
        self.lines.push_back(line.to_owned());
        let fields = logfmt(line);
        let field = |name: &str| fields.iter().find(|(key, _)| *key == name).map(|(_, value)| value.clone());
        match field("msg").as_deref() {
            Some("listening") if self.addresses.len() < FACTS_MAX => {
                if let Some((what, addr)) = field("what").zip(field("addr")) {
                    self.addresses.insert(what, addr);
                }
            }
            Some("link up") if self.links_up.len() < FACTS_MAX => {
                if let Some(agent) = field("agent") {
                    *self.links_up.entry(agent).or_default() += 1;
                }
            }
            _ => {}
        }
    }
}

/// The `key=value` and `key="quoted value"` pairs of a line. What is neither is skipped.
fn logfmt(line: &str) -> Vec<(&str, String)> {
    let mut fields = Vec::new();
    let mut rest = line.trim_start();
    while !rest.is_empty() {
        let key_end = rest.find(['=', ' ']).unwrap_or(rest.len());
        let (key, tail) = rest.split_at(key_end);
        let Some(tail) = tail.strip_prefix('=') else {
            rest = tail.trim_start();
            continue;
        };
        let (value, tail) = match tail.strip_prefix('"') {
            Some(quoted) => unquote(quoted),
            None => {
                let (value, tail) = tail.split_at(tail.find(' ').unwrap_or(tail.len()));
                (value.to_owned(), tail)
            }
        };
        fields.push((key, value));
        rest = tail.trim_start();
    }
    fields
}

/// The text up to the closing quote, and what follows it.
fn unquote(text: &str) -> (String, &str) {
    let mut value = String::new();
    let mut characters = text.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return (value, text.get(at + 1..).unwrap_or_default()),
            '\\' => value.extend(characters.next().map(|(_, escaped)| escaped)),
            _ => value.push(character),
        }
    }
    (value, "")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_of_a_line() {
        let line = r#"ts=2026-01-02T03:04:05Z level=info msg="link up" agent="a \"b\"" bare x= odd="#;
        let got = logfmt(line);
        let want = [
            ("ts", "2026-01-02T03:04:05Z"),
            ("level", "info"),
            ("msg", "link up"),
            ("agent", "a \"b\""),
            ("x", ""),
            ("odd", ""),
        ];
        assert_eq!(got, want.map(|(key, value)| (key, value.to_owned())));
        assert!(logfmt("   ").is_empty() && logfmt("\"").is_empty());
        assert_eq!(logfmt("a=\"open"), [("a", "open".to_owned())]);
    }

    #[test]
    fn what_is_heard() {
        let mut heard = Heard::default();
        heard.line(r#"level=info msg="listening" what=agents addr=127.0.0.1:4711"#);
        heard.line("level=info msg=listening what=health addr=[::1]:80");
        for _ in 0..2 {
            heard.line(r#"level=info msg="link up" agent=agent-1"#);
        }
        for number in 0..200 {
            heard.line(&format!("level=info msg=\"link up\" agent=x{number}"));
        }
        assert_eq!(heard.addresses["agents"], "127.0.0.1:4711");
        assert_eq!(heard.addresses["health"], "[::1]:80");
        assert_eq!(heard.links_up["agent-1"], 2);
        assert_eq!((heard.lines.len(), heard.links_up.len()), (LINES_MAX, FACTS_MAX));
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "waits for a real child, within a generous bound")]
    fn a_child_is_heard_and_killed() {
        use std::time::{Duration, Instant};
        let script = "echo 'msg=\"listening\" what=x addr=1.2.3.4:5' >&2; exec sleep 600";
        let arguments = ["-c".to_owned(), script.to_owned()];
        let mut process = Process::start(Path::new("/bin/sh"), "child", &arguments).unwrap();
        let end = Instant::now() + Duration::from_secs(20);
        while process.address("x").is_none() && Instant::now() < end {
            thread::sleep(Duration::from_millis(5));
        }
        assert_eq!(process.address("x").as_deref(), Some("1.2.3.4:5"));
        assert!(process.ended().unwrap().is_none());
        assert!(process.last_lines(10).starts_with("    child: msg="));
        process.kill().unwrap();
        assert!(process.ended().unwrap().is_some());
    }
}

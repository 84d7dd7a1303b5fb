//! Many agents in one process: the shipped ones, only without health and admin ports.

#![expect(clippy::disallowed_methods, reason = "a measurement runs on the real clock")]

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tautline::app::agent_app;
use tautline::cli::parse_agent;
use tautline::core::role::Role;
use tautline::net::signal::Signals;

/// Each has an epoll instance, an eventfd, a link and a moment of more: within 20 000 descriptors.
const COUNT_MAX: usize = 4000;
/// A turn of the loop needs a few 16 KiB buffers on the stack; a TLS handshake more.
const STACK_LEN: usize = 512 * 1024;
const REPORT_INTERVAL: Duration = Duration::from_millis(100);

/// Runs until standard input ends.
pub(crate) fn run(count: usize, prefix: &str, flags: &[String]) -> Result<(), String> {
    if count == 0 || count > COUNT_MAX {
        return Err(format!("COUNT {count}: 1 to {COUNT_MAX}; start more processes for more"));
    }
    let up = Arc::new(AtomicUsize::new(0));
    let started = Instant::now();
    for number in 0..count {
        let mut options = parse_agent(flags)?;
        options.agent_id = format!("{prefix}-{number}");
        let mut app = agent_app(&options, Signals::None).map_err(|error| error.to_string())?;
        let up = Arc::clone(&up);
        let live = move || {
            let mut was_up = false;
            // Runs as long as the process.
            while let Ok(false) = app.turn() {
                let is_up = app.role().is_ready();
                if is_up != was_up {
                    let change = if is_up { AtomicUsize::fetch_add } else { AtomicUsize::fetch_sub };
                    change(&up, 1, Ordering::Relaxed);
                    was_up = is_up;
                }
            }
        };
        let thread = thread::Builder::new().name("agent".to_owned()).stack_size(STACK_LEN).spawn(live);
        thread.map_err(|error| format!("thread {number}: {error}"))?;
    }
    let report = move || {
        loop {
            println!("{} {}", started.elapsed().as_millis(), up.load(Ordering::Relaxed));
            thread::sleep(REPORT_INTERVAL);
        }
    };
    thread::spawn(report);
    io::copy(&mut io::stdin().lock(), &mut io::sink()).map(drop).map_err(|error| error.to_string())
}

//! `tautline demo`: a server, three agents and a target on this machine, dials without a pause, and agents that
//! freeze, die and are cut off in the middle of it.
#![expect(
    clippy::disallowed_methods,
    reason = "a person's command: it runs beside the loop, on the real clock"
)]

mod cable;
mod children;
mod dialer;
mod report;
pub(super) mod room;
mod stage;
mod target;

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use clap::{ArgMatches, Args, Command, FromArgMatches};

use self::dialer::Load;
use self::report::{Console, Stats};
use self::room::Interrupt;
use self::stage::{SCENES, Stage};

pub(super) use self::target::run as run_target;

const SECONDS_MIN: u32 = 3;
const SECONDS_MAX: u32 = 3600;
const TICK: Duration = Duration::from_millis(100);
/// A longer show has several rounds.
const ROUND_LEN_MAX: Duration = Duration::from_secs(20);
const LIVE_LINE_INTERVAL: Duration = Duration::from_secs(1);
/// What a shell reports for a program that SIGINT ended.
const EXIT_INTERRUPTED: u8 = 130;

/// Why the demo did not end well.
#[derive(Debug)]
enum DemoError {
    /// Somebody asked for the end.
    Interrupted,
    /// Something on this machine failed (what, why).
    Io(String, io::Error),
    /// A child ended or did not do what it should; the text has its last lines.
    Child(String),
    /// The show went on to its end, and dials failed.
    FailedDials(u64),
}

impl fmt::Display for DemoError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Interrupted => f.write_str("interrupted"),
            Self::Io(what, error) => write!(f, "{what}: {error}"),
            Self::Child(text) => f.write_str(text),
            Self::FailedDials(count) => {
                write!(f, "{count} failed, though two agents were alive all the time")
            }
        }
    }
}

#[derive(Args, Debug)]
struct DemoFlags {
    /// How long to keep dialling, 3 to 3600
    #[arg(long, value_name = "N", default_value_t = 20,
        value_parser = clap::value_parser!(u32).range(i64::from(SECONDS_MIN)..=i64::from(SECONDS_MAX)))]
    seconds: u32,
}

pub(super) fn arguments(command: Command) -> Command {
    DemoFlags::augment_args(command)
}

pub(super) fn run(matches: &ArgMatches) -> ExitCode {
    let console = Console::of_this_process();
    let played = DemoFlags::from_arg_matches(matches)
        .map_err(|error| DemoError::Io("flags".to_owned(), io::Error::other(error.to_string())))
        .and_then(|flags| {
            let program = std::env::current_exe()
                .map_err(|error| DemoError::Io("own program file".to_owned(), error))?;
            let interrupt =
                Interrupt::watch().map_err(|error| DemoError::Io("watching for Ctrl-C".to_owned(), error))?;
            play(&program, Duration::from_secs(flags.seconds.into()), &console, &interrupt)
        });
    match played {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            console.failure(&format!("error: {error}"));
            match error {
                DemoError::Interrupted => ExitCode::from(EXIT_INTERRUPTED),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// The whole show. Children and files are gone when it returns, however it ends.
fn play(program: &Path, length: Duration, console: &Console, interrupt: &Interrupt) -> Result<(), DemoError> {
    let mut stage = Stage::set(program, console, interrupt)?;
    let stats = Arc::new(Stats::new(Instant::now()));
    console.step("Dialling through the server's Unix socket: CONNECT, send, read back, compare, close.");
    let load =
        Load::start(&stage.route(), &stats).map_err(|error| DemoError::Io("threads".to_owned(), error))?;
    let played = perform(&mut stage, length, &stats, console, interrupt);
    // Dials that are under way must find their agents alive: first the load, then the stage.
    load.finish();
    console.live_end();
    if let Err(error) = played {
        stats.show_reasons(console);
        return Err(error);
    }
    stats.show_table(console);
    if stats.failed() > 0 {
        stats.show_reasons(console);
        stage.show_logs(console);
        return Err(DemoError::FailedDials(stats.failed()));
    }
    console.step("No dial failed.");
    Ok(())
}

fn perform(
    stage: &mut Stage<'_>,
    length: Duration,
    stats: &Stats,
    console: &Console,
    interrupt: &Interrupt,
) -> Result<(), DemoError> {
    let started = Instant::now();
    let round = length.min(ROUND_LEN_MAX);
    // Only whole ones: all is well again at the end of each.
    let rounds = (0..u32::MAX).map(|number| round * number).take_while(|begin| *begin + round <= length);
    let mut scenes = rounds
        .flat_map(|begin| SCENES.iter().map(move |scene| (begin + round * scene.at_percent / 100, scene)))
        .peekable();
    let mut next_live_line = started + LIVE_LINE_INTERVAL;
    loop {
        let now = Instant::now();
        if interrupt.happened() {
            return Err(DemoError::Interrupted);
        }
        stage.check_children()?;
        if let Some((_, scene)) = scenes.next_if(|(at, _)| now >= started + *at) {
            (scene.play)(stage, stats, console)?;
            continue;
        }
        if now >= started + length {
            return Ok(());
        }
        if console.is_terminal() || now >= next_live_line {
            next_live_line += LIVE_LINE_INTERVAL;
            console.live(&stats.line(now));
        }
        thread::sleep(TICK);
    }
}

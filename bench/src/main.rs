//! `tautline-bench`: load for measurements. `fleet` runs many agents in one process.

#![expect(clippy::print_stdout, reason = "a person's command, or a script's")]

mod fleet;

use std::process::ExitCode;

const USAGE: &str = "\
usage: tautline-bench fleet COUNT PREFIX [FLAG OF tautline agent ...]

Runs COUNT agents PREFIX-0, PREFIX-1, ... in this process, each with an event loop of its own, until standard
input ends. Prints a line \"MILLISECONDS UP\" ten times a second: the time since the start and how many have a link.";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let done = match words.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["fleet", count, prefix, ..] => match count.parse() {
            Ok(count) => fleet::run(count, prefix, &words[3..]),
            Err(error) => Err(format!("COUNT {count:?}: {error}\n{USAGE}")),
        },
        _ => Err(USAGE.to_owned()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

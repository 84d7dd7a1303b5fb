//! What the process may use and what it uses.

use std::fs;
use std::io;
use std::os::fd::RawFd;

use nix::sys::resource::{Resource, UsageWho, getrlimit, getrusage, setrlimit};

use super::ffi;

/// A reading of the process's own use, for metrics.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct ProcessStats {
    /// Open descriptors.
    pub open_fds: u64,
    /// Soft limit of descriptors.
    pub max_fds: u64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Virtual memory in bytes.
    pub virtual_bytes: u64,
    /// User and system CPU time since the start.
    pub cpu_seconds: f64,
    /// Start time, seconds since the Unix epoch (10 ms exact).
    pub start_time_seconds: f64,
}

/// Raises the soft limit of descriptors to the hard one and returns it.
///
/// # Errors
/// As getrlimit(2) and setrlimit(2).
pub fn raise_descriptor_limit() -> io::Result<u64> {
    let (soft, hard) = getrlimit(Resource::RLIMIT_NOFILE)?;
    if soft < hard {
        setrlimit(Resource::RLIMIT_NOFILE, hard, hard)?;
    }
    Ok(hard)
}

/// Reads the process's use. Costs four small files of /proc, whatever the number of descriptors on a kernel
/// from 6.2 on.
///
/// # Errors
/// When /proc is not there or not as expected.
pub fn process_stats() -> io::Result<ProcessStats> {
    let status = fs::read_to_string("/proc/self/status")?;
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    let (user, system) = (usage.user_time(), usage.system_time());
    let seconds = user.tv_sec() + system.tv_sec();
    let microseconds = user.tv_usec() + system.tv_usec();
    Ok(ProcessStats {
        open_fds: open_descriptors()?,
        max_fds: getrlimit(Resource::RLIMIT_NOFILE)?.0,
        resident_bytes: kibibytes(&status, "VmRSS:")? * 1024,
        virtual_bytes: kibibytes(&status, "VmSize:")? * 1024,
        cpu_seconds: seconds as f64 + microseconds as f64 / 1e6,
        start_time_seconds: start_time(
            &fs::read_to_string("/proc/self/stat")?,
            &fs::read_to_string("/proc/stat")?,
        )?,
    })
}

fn open_descriptors() -> io::Result<u64> {
    // From Linux 6.2 on the folder's size is the number; before, it is 0.
    let size = fs::metadata("/proc/self/fd")?.len();
    if size > 0 { Ok(size) } else { count_descriptors() }
}

fn count_descriptors() -> io::Result<u64> {
    let names = fs::read_dir("/proc/self/fd")?.filter_map(Result::ok).map(|entry| entry.file_name());
    let descriptors = names.filter(|name| name.to_str().is_some_and(|name| name.parse::<RawFd>().is_ok()));
    // One of them is the folder itself.
    Ok((descriptors.count() as u64).saturating_sub(1))
}

/// The number of a line `Name:   123 kB`.
fn kibibytes(status: &str, name: &str) -> io::Result<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let number = line.and_then(|rest| rest.split_whitespace().next());
    number.and_then(|number| number.parse().ok()).ok_or_else(|| unexpected("/proc/self/status"))
}

/// Boot time of `/proc/stat` plus the start of `/proc/self/stat`, which counts ticks since boot.
fn start_time(own: &str, system: &str) -> io::Result<f64> {
    // The second field is the program's name in parentheses and may contain anything; `)` ends it.
    let ticks: Option<u64> = own
        .rsplit_once(')')
        .and_then(|(_, rest)| rest.split_whitespace().nth(19))
        .and_then(|field| field.parse().ok());
    let boot: Option<u64> = system
        .lines()
        .find_map(|line| line.strip_prefix("btime "))
        .and_then(|seconds| seconds.trim().parse().ok());
    match (ticks, boot) {
        (Some(ticks), Some(boot)) => Ok(boot as f64 + ticks as f64 / ffi::clock_ticks_per_second() as f64),
        _ => Err(unexpected("/proc/self/stat or /proc/stat")),
    }
}

fn unexpected(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{file} does not have the expected form"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_of_the_program_does_not_move_the_fields() {
        let own = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 4200 20";
        let ticks = ffi::clock_ticks_per_second() as f64;
        assert_eq!(start_time(own, "cpu 1\nbtime 1000\n").unwrap(), 1000.0 + 4200.0 / ticks);
        assert!(start_time("12 (x S 1", "btime 1").is_err());
        assert!(start_time(own, "cpu 1").is_err());
        assert!(kibibytes("VmRSS: x kB", "VmRSS:").is_err());
    }
}

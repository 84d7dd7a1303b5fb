//! Flag values as Go's flag library reads them.

use std::fmt;
use std::hash::BuildHasher;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

use super::options::{CertificateFiles, Host};

/// A boolean in one of Go's spellings.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Switch(pub(super) bool);

impl FromStr for Switch {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => Ok(Self(true)),
            "0" | "f" | "F" | "false" | "FALSE" | "False" => Ok(Self(false)),
            _ => Err("use true or false".to_owned()),
        }
    }
}

impl fmt::Display for Switch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// A duration in Go's syntax. It may be negative: the checks say so better than the parser.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct GoDuration {
    nanos: i64,
}

impl FromStr for GoDuration {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let nanos = go_nanos(text).and_then(|nanos| i64::try_from(nanos).ok());
        nanos
            .map(|nanos| Self { nanos })
            .ok_or_else(|| "use a number with a unit, such as 500ms, 30s or 1h30m".to_owned())
    }
}

impl GoDuration {
    /// The duration, for `flag`.
    ///
    /// # Errors
    /// It is negative.
    pub(super) fn not_negative(self, flag: &str) -> Result<Duration, String> {
        let nanos = u64::try_from(self.nanos).map_err(|_| {
            format!("--{flag}=-{:?}: must not be negative", Duration::from_nanos(self.nanos.unsigned_abs()))
        })?;
        Ok(Duration::from_nanos(nanos))
    }
}

fn go_nanos(text: &str) -> Option<i128> {
    let (sign, mut rest) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    if rest == "0" {
        return Some(0);
    }
    if rest.is_empty() {
        return None;
    }
    let is_number = |c: char| c.is_ascii_digit() || c == '.';
    let mut total: i128 = 0;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c| !is_number(c))?);
        let (unit, tail) = tail.split_at(tail.find(is_number).unwrap_or(tail.len()));
        total = total.checked_add(scaled(number, unit_nanos(unit)?)?)?;
        rest = tail;
    }
    Some(sign * total)
}

fn unit_nanos(unit: &str) -> Option<i128> {
    match unit {
        "ns" => Some(1),
        // Both spellings of micro: the sign of its own and the Greek letter.
        "us" | "\u{b5}s" | "\u{3bc}s" => Some(1_000),
        "ms" => Some(1_000_000),
        "s" => Some(1_000_000_000),
        "m" => Some(60_000_000_000),
        "h" => Some(3_600_000_000_000),
        _ => None,
    }
}

/// `number` (digits with at most one point) times `unit`, in nanoseconds.
fn scaled(number: &str, unit: i128) -> Option<i128> {
    let (whole, fraction) = number.split_once('.').unwrap_or((number, ""));
    if (whole.is_empty() && fraction.is_empty()) || fraction.contains('.') {
        return None;
    }
    // 18 digits say more than a nanosecond of any unit, and their product with an hour fits.
    let fraction = fraction.get(..18).unwrap_or(fraction);
    let digits = |text: &str| if text.is_empty() { Some(0) } else { text.parse::<i128>().ok() };
    let power = 10_i128.pow(u32::try_from(fraction.len()).ok()?);
    digits(whole)?.checked_mul(unit)?.checked_add(digits(fraction)? * unit / power)
}

/// A port to listen on, for `flag`; 0 lets the kernel pick.
///
/// # Errors
/// It is neither 0 nor within the range that Konnectivity allows.
pub(super) fn listen_port(flag: &str, port: i64) -> Result<u16, String> {
    match u16::try_from(port) {
        Ok(port @ (0 | 1024..=49151)) => Ok(port),
        _ => Err(format!("--{flag}={port}: use a port from 1024 to 49151, or 0 for any free one")),
    }
}

/// An address to listen on, for `flag`. Empty means all, both families.
///
/// # Errors
/// It is not an address (names other than `localhost` are not looked up).
pub(super) fn bind_address(flag: &str, text: &str) -> Result<IpAddr, String> {
    match text {
        "" => Ok(IpAddr::V6(Ipv6Addr::UNSPECIFIED)),
        "localhost" => Ok(IpAddr::V4(Ipv4Addr::LOCALHOST)),
        _ => ip_with_or_without_brackets(text).ok_or_else(|| {
            format!("--{flag}={text}: use an address such as 127.0.0.1, ::1 or localhost, or nothing for all")
        }),
    }
}

fn ip_with_or_without_brackets(text: &str) -> Option<IpAddr> {
    match text.strip_prefix('[') {
        Some(rest) => rest.strip_suffix(']')?.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
        None => text.parse().ok(),
    }
}

/// The host of a peer, for `flag`: a name, or an address with or without brackets.
///
/// # Errors
/// It is empty, has a port, or cannot be a host name.
pub(super) fn host(flag: &str, text: &str) -> Result<Host, String> {
    if let Some(ip) = ip_with_or_without_brackets(text) {
        return Ok(Host::Ip(ip));
    }
    let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if text.is_empty() || text.len() > 253 || !text.chars().all(is_name) {
        return Err(format!("--{flag}={text}: use a host name or an address, without a port"));
    }
    Ok(Host::Name(text.to_owned()))
}

/// A certificate and its key, for the flags `certificate_flag` and `key_flag`; `None` if both are empty.
///
/// # Errors
/// One without the other.
pub(super) fn certificate_files(
    (certificate_flag, certificate): (&str, &str),
    (key_flag, key): (&str, &str),
) -> Result<Option<CertificateFiles>, String> {
    match (path(certificate), path(key)) {
        (None, None) => Ok(None),
        (Some(_), None) => Err(format!("--{certificate_flag} without --{key_flag}: give both")),
        (None, Some(_)) => Err(format!("--{key_flag} without --{certificate_flag}: give both")),
        (Some(certificate), Some(key)) => Ok(Some(CertificateFiles { certificate, key })),
    }
}

/// A path; empty means none.
pub(super) fn path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| PathBuf::from(text))
}

/// Checks that the files of these flags can be read; empty ones are skipped. The last check of all, so that
/// a mistake in the flags themselves shows on any machine.
///
/// # Errors
/// One cannot be opened, or is a directory.
pub(super) fn check_readable(files: &[(&str, &str)]) -> Result<(), String> {
    for (flag, text) in files {
        let Some(file) = path(text) else { continue };
        let with_flag = |error: std::io::Error| format!("--{flag}={text}: {error}");
        let metadata = file.metadata().map_err(with_flag)?;
        if metadata.is_dir() {
            return Err(format!("--{flag}={text}: is a directory, not a file"));
        }
        // Opening anything but a plain file may block.
        if metadata.is_file() {
            std::fs::File::open(file).map_err(with_flag)?;
        }
    }
    Ok(())
}

/// Limit on tunnels; 0 = by the limit on descriptors.
///
/// # Errors
/// It is negative or does not fit.
pub(super) fn max_tunnels(value: i64) -> Result<Option<NonZeroU32>, String> {
    let value = u32::try_from(value).map_err(|_| {
        format!("--max-tunnels={value}: use 0 (as many as the descriptor limit allows) or more")
    })?;
    Ok(NonZeroU32::new(value))
}

/// An id that others will see: `given`, or a random one.
///
/// # Errors
/// It is too long for a HELLO, or has control characters.
pub(super) fn id_or_random(flag: &str, given: &str) -> Result<String, String> {
    if given.is_empty() {
        return Ok(random_uuid());
    }
    if given.len() > tautline_wire::ID_LEN_MAX || given.chars().any(char::is_control) {
        return Err(format!(
            "--{flag}: use at most {} bytes without control characters",
            tautline_wire::ID_LEN_MAX
        ));
    }
    Ok(given.to_owned())
}

/// A version 4 UUID (RFC 9562). Unique, not secret: std seeds its hash keys from the system.
fn random_uuid() -> String {
    let half = || std::hash::RandomState::new().hash_one(0_u8);
    let bits = (u128::from(half()) << 64) | u128::from(half());
    let bits = (bits & !(0xf << 76) & !(0x3 << 62)) | (0x4 << 76) | (0x2 << 62);
    let hex = format!("{bits:032x}");
    let part = |from: usize, to: usize| hex.get(from..to).unwrap_or_default();
    format!("{}-{}-{}-{}-{}", part(0, 8), part(8, 12), part(12, 16), part(16, 20), part(20, 32))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nanos(text: &str) -> Option<i64> {
        text.parse::<GoDuration>().ok().map(|duration| duration.nanos)
    }

    #[test]
    fn go_durations() {
        const S: i64 = 1_000_000_000;
        let table = [
            ("0", 0),
            ("1h0m0s", 3600 * S),
            ("500ms", S / 2),
            ("1.5h", 5400 * S),
            ("-1s", -S),
            ("+2s", 2 * S),
            (".5s", S / 2),
            ("1.s", S),
            ("1m1s1ms1us1ns", 61 * S + 1_001_001),
            ("3\u{b5}s", 3000),
            ("3\u{3bc}s", 3000),
            ("0.1234567890123456789012345h", 444_444_440_444),
            ("2562047h", 2_562_047 * 3600 * S),
        ];
        for (text, want) in table {
            assert_eq!(nanos(text), Some(want), "{text}");
        }
        for bad in [
            "",
            "-",
            "5",
            "s",
            ".s",
            "1.2.3s",
            "1d",
            "1 s",
            "2562048h",
            "99999999999999999999h",
            "1h-1m",
            "é",
        ] {
            assert_eq!(nanos(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_negative_duration_is_named() {
        let error = "-1.5s".parse::<GoDuration>().unwrap().not_negative("sync-interval").unwrap_err();
        assert_eq!(error, "--sync-interval=-1.5s: must not be negative");
    }

    #[test]
    fn go_booleans() {
        for text in ["1", "t", "T", "true", "TRUE", "True"] {
            assert_eq!(text.parse(), Ok(Switch(true)));
        }
        for text in ["0", "f", "F", "false", "FALSE", "False"] {
            assert_eq!(text.parse(), Ok(Switch(false)));
        }
        for text in ["", "yes", "tRUE", "on"] {
            assert!(text.parse::<Switch>().is_err(), "{text}");
        }
    }

    #[test]
    fn ports() {
        for good in [0, 1024, 8132, 49151] {
            assert_eq!(listen_port("agent-port", good), Ok(u16::try_from(good).unwrap()));
        }
        for bad in [-1, 1, 1023, 49152, 65536, i64::MAX] {
            assert!(listen_port("agent-port", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn addresses_to_bind() {
        for (text, want) in [
            ("", "::"),
            ("::", "::"),
            ("::1", "::1"),
            ("[::1]", "::1"),
            ("0.0.0.0", "0.0.0.0"),
            ("10.1.2.3", "10.1.2.3"),
            ("localhost", "127.0.0.1"),
        ] {
            assert_eq!(bind_address("x", text), Ok(want.parse().unwrap()), "{text}");
        }
        for bad in ["[::1", "[127.0.0.1]", "::1:80x", "example.com", "127.0.0.1:80", "[]"] {
            assert!(bind_address("x", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn hosts_of_peers() {
        assert_eq!(host("x", "fd00::1"), Ok(Host::Ip("fd00::1".parse().unwrap())));
        assert_eq!(host("x", "[fd00::1]"), Ok(Host::Ip("fd00::1".parse().unwrap())));
        assert_eq!(host("x", "a-b.example.com"), Ok(Host::Name("a-b.example.com".to_owned())));
        for bad in ["", "a:80", "https://a", "$(HOST)", "a b", &"a".repeat(254)] {
            assert!(host("x", bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_random_id_is_a_uuid_and_never_the_same() {
        let (one, other) = (id_or_random("x", "").unwrap(), id_or_random("x", "").unwrap());
        assert_ne!(one, other);
        let parts: Vec<&str> = one.split('-').collect();
        assert_eq!(parts.iter().map(|part| part.len()).collect::<Vec<_>>(), [8, 4, 4, 4, 12]);
        assert!(parts[2].starts_with('4') && "89ab".contains(&parts[3][..1]), "{one}");
        assert_eq!(id_or_random("x", "node-1").as_deref(), Ok("node-1"));
        assert!(id_or_random("x", "a\nb").is_err() && id_or_random("x", &"a".repeat(257)).is_err());
    }
}

//! `host:port`, read strictly: the right target or a refusal, never another target.
//!
//! Agents hand names to the system resolver, which reads `010.0.0.1`, `127.1` and `2130706433` as addresses.
//! So whatever it could take for an address must be one in the plain form.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use tautline_wire::TARGET_LEN_MAX;

/// Longest name, without a dot at its end (RFC 1035 section 2.3.4).
const NAME_LEN_MAX: usize = 253;
/// Longest label of a name.
const LABEL_LEN_MAX: usize = 63;
/// Longest interface name on Linux (IFNAMSIZ less its NUL).
const SCOPE_LEN_MAX: usize = 15;

/// Where a tunnel leads. [`fmt::Display`] gives the form that [`Target::parse`] reads.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Target {
    /// The host.
    pub host: Host,
    /// The port, never 0.
    pub port: u16,
}

/// The host of a [`Target`]. [`fmt::Display`] gives it without brackets, as resolvers and identifiers want it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Host {
    /// An address; IPv6 with its scope (interface name or number), if it was given.
    Ip(IpAddr, Option<String>),
    /// A name as it was given: ASCII letters, digits, `-`, `_` and dots, perhaps one at the end.
    Name(String),
}

/// Why a text is no [`Target`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TargetError {
    /// Nothing.
    Empty,
    /// More than [`TARGET_LEN_MAX`] bytes, or a name of more than 253.
    TooLong,
    /// A space, a control character, or not ASCII.
    Character,
    /// A URL or a path.
    Url,
    /// `user@host`.
    UserInfo,
    /// No colon.
    NoPort,
    /// Not a decimal number from 1 to 65535.
    Port,
    /// Nothing before the port.
    NoHost,
    /// A colon in the host, without brackets.
    NoBrackets,
    /// Brackets that do not hold exactly one IPv6 address.
    Ipv6,
    /// A scope that is no interface name or number.
    Scope,
    /// Digits that some would read as an IPv4 address.
    Ipv4,
    /// A label of a name is empty, too long, or holds another character.
    Name,
}

impl fmt::Display for TargetError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Empty => "the target is empty; host:port is needed",
            Self::TooLong => "the target is too long; a name has at most 253 characters",
            Self::Character => "the target has a space, a control or a non-ASCII character (use punycode)",
            Self::Url => "the target is a URL or a path; only host:port is possible",
            Self::UserInfo => "the target has a user name; only host:port is possible",
            Self::NoPort => "the target has no port",
            Self::Port => "the port of the target is not a number from 1 to 65535",
            Self::NoHost => "the target has no host",
            Self::NoBrackets => {
                "the target has too many colons; an IPv6 address needs brackets, as in [2001:db8::1]:443"
            }
            Self::Ipv6 => "the brackets of the target do not hold an IPv6 address",
            Self::Scope => "the scope of the IPv6 address is not an interface name or number",
            Self::Ipv4 => "the host is not an IPv4 address of four plain decimal numbers, and no name either",
            Self::Name => {
                "the host is not a name: labels of 1 to 63 letters, digits, - and _, with dots between"
            }
        })
    }
}

impl std::error::Error for TargetError {}

impl Target {
    /// Reads `host:port`; an IPv6 address needs brackets.
    ///
    /// # Errors
    /// Whatever is not exactly that; the error says why.
    pub fn parse(text: &str) -> Result<Self, TargetError> {
        if text.is_empty() {
            return Err(TargetError::Empty);
        }
        if text.len() > TARGET_LEN_MAX {
            return Err(TargetError::TooLong);
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(TargetError::Character);
        }
        if text.contains(['/', '?', '#']) {
            return Err(TargetError::Url);
        }
        if text.contains('@') {
            return Err(TargetError::UserInfo);
        }
        if let Some(rest) = text.strip_prefix('[') {
            let (inside, after) = rest.split_once(']').ok_or(TargetError::Ipv6)?;
            let host = ipv6(inside)?;
            let port = after.strip_prefix(':').ok_or(TargetError::NoPort)?;
            return Ok(Self { host, port: parse_port(port)? });
        }
        let (before, port) = text.rsplit_once(':').ok_or(TargetError::NoPort)?;
        if before.contains(':') {
            return Err(TargetError::NoBrackets);
        }
        Ok(Self { host: ipv4_or_name(before)?, port: parse_port(port)? })
    }
}

impl FromStr for Target {
    type Err = TargetError;

    fn from_str(text: &str) -> Result<Self, TargetError> {
        Self::parse(text)
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        match host {
            Host::Ip(IpAddr::V6(_), _) => write!(f, "[{host}]:{port}"),
            Host::Ip(IpAddr::V4(_), _) | Host::Name(_) => write!(f, "{host}:{port}"),
        }
    }
}

impl fmt::Display for Host {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ip(ip, None) => write!(f, "{ip}"),
            Self::Ip(ip, Some(scope)) => write!(f, "{ip}%{scope}"),
            Self::Name(name) => f.write_str(name),
        }
    }
}

/// `u16::from_str` also takes `+80`; a leading zero is refused because nobody means it.
fn parse_port(text: &str) -> Result<u16, TargetError> {
    if !text.starts_with(|first: char| matches!(first, '1'..='9')) {
        return Err(TargetError::Port);
    }
    text.parse().map_err(|_| TargetError::Port)
}

fn ipv6(inside: &str) -> Result<Host, TargetError> {
    let (address, scope) = match inside.split_once('%') {
        Some((address, scope)) => (address, Some(scope)),
        None => (inside, None),
    };
    let ip: Ipv6Addr = address.parse().map_err(|_| TargetError::Ipv6)?;
    if scope.is_some_and(|scope| !is_scope(scope)) {
        return Err(TargetError::Scope);
    }
    Ok(Host::Ip(ip.into(), scope.map(str::to_owned)))
}

fn is_scope(scope: &str) -> bool {
    // In a URL the sign itself is written %25 (RFC 6874): `%251` may mean interface 1 or 251.
    let ambiguous = scope.len() > 2 && scope.starts_with("25");
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=SCOPE_LEN_MAX).contains(&scope.len()) && !ambiguous && scope.bytes().all(allowed)
}

fn ipv4_or_name(text: &str) -> Result<Host, TargetError> {
    if let Ok(ip) = text.parse::<Ipv4Addr>() {
        return Ok(Host::Ip(ip.into(), None));
    }
    if text.is_empty() {
        return Err(TargetError::NoHost);
    }
    if text.contains(['[', ']']) {
        return Err(TargetError::Ipv6);
    }
    let name = text.strip_suffix('.').unwrap_or(text);
    if name.len() > NAME_LEN_MAX {
        return Err(TargetError::TooLong);
    }
    if !name.split('.').all(is_label) {
        return Err(TargetError::Name);
    }
    if name.split('.').all(is_number) {
        return Err(TargetError::Ipv4);
    }
    Ok(Host::Name(text.to_owned()))
}

fn is_label(label: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=LABEL_LEN_MAX).contains(&label.len()) && label.bytes().all(allowed)
}

/// What inet_aton(3) takes for a number: decimal, octal or hexadecimal.
fn is_number(label: &str) -> bool {
    match label.strip_prefix("0x").or_else(|| label.strip_prefix("0X")) {
        Some(hex) => hex.bytes().all(|byte| byte.is_ascii_hexdigit()),
        None => label.bytes().all(|byte| byte.is_ascii_digit()),
    }
}

#[cfg(test)]
mod tests {
    use std::net::{SocketAddr, SocketAddrV6};

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn refused() {
        let long_name = format!("{}:80", ["a"; 150].join("."));
        let long_label = format!("{}.x:80", "a".repeat(64));
        let long_target = format!("{}:80", "a".repeat(600));
        for (text, error) in [
            ("", TargetError::Empty),
            (long_target.as_str(), TargetError::TooLong),
            (long_name.as_str(), TargetError::TooLong),
            (long_label.as_str(), TargetError::Name),
            ("a b:80", TargetError::Character),
            (" a:80", TargetError::Character),
            ("a:80 ", TargetError::Character),
            ("a\r\n:80", TargetError::Character),
            ("a\0:80", TargetError::Character),
            ("bücher.example:80", TargetError::Character),
            ("１27.0.0.1:80", TargetError::Character),
            ("/foo", TargetError::Url),
            ("/foo:80", TargetError::Url),
            ("http://x/", TargetError::Url),
            ("http://x:80", TargetError::Url),
            ("x:80/", TargetError::Url),
            ("x:80?a", TargetError::Url),
            ("x:80#a", TargetError::Url),
            ("user@host:80", TargetError::UserInfo),
            ("user:secret@host:80", TargetError::UserInfo),
            ("host", TargetError::NoPort),
            ("127.0.0.1", TargetError::NoPort),
            ("[::1]", TargetError::NoPort),
            ("[::1]80", TargetError::NoPort),
            ("host:", TargetError::Port),
            ("host:0", TargetError::Port),
            ("host:00", TargetError::Port),
            ("host:080", TargetError::Port),
            ("host:65536", TargetError::Port),
            ("host:4294967376", TargetError::Port),
            ("host:99999999999999999999", TargetError::Port),
            ("host:+80", TargetError::Port),
            ("host:-80", TargetError::Port),
            ("host:8o", TargetError::Port),
            ("host:0x50", TargetError::Port),
            ("host:http", TargetError::Port),
            ("[::1]:", TargetError::Port),
            ("[::1]:0", TargetError::Port),
            (":80", TargetError::NoHost),
            ("::1:80", TargetError::NoBrackets),
            ("::1:9999", TargetError::NoBrackets),
            ("a:b:c:d", TargetError::NoBrackets),
            ("fe80::1%eth0:80", TargetError::NoBrackets),
            ("host::80", TargetError::NoBrackets),
            ("[]:80", TargetError::Ipv6),
            ("[::1:80", TargetError::Ipv6),
            ("::1]:80", TargetError::NoBrackets),
            ("x]:80", TargetError::Ipv6),
            ("x[::1]:80", TargetError::NoBrackets),
            ("[[::1]]:80", TargetError::Ipv6),
            ("[127.0.0.1]:80", TargetError::Ipv6),
            ("[host]:80", TargetError::Ipv6),
            ("[1:2:3:4:5:6:7:8:9]:80", TargetError::Ipv6),
            ("[12345::]:80", TargetError::Ipv6),
            ("[::1]:80:80", TargetError::Port),
            ("[::1][::1]:80", TargetError::NoPort),
            ("[fe80::1%]:80", TargetError::Scope),
            ("[fe80::1%et h]:80", TargetError::Character),
            ("[fe80::1%e:h]:80", TargetError::Scope),
            ("[fe80::1%a%b]:80", TargetError::Scope),
            ("[fe80::1%25eth0]:80", TargetError::Scope),
            ("[fe80::1%251]:80", TargetError::Scope),
            ("[fe80::1%abcdefghijklmnop]:80", TargetError::Scope),
            ("010.0.0.1:80", TargetError::Ipv4),
            ("1.2.3.04:80", TargetError::Ipv4),
            ("256.0.0.1:80", TargetError::Ipv4),
            ("127.1:80", TargetError::Ipv4),
            ("2130706433:80", TargetError::Ipv4),
            ("1.2.3.4.5:80", TargetError::Ipv4),
            ("127.0.0.1.:80", TargetError::Ipv4),
            ("0x7f000001:80", TargetError::Ipv4),
            ("0X7F.0.0.1:80", TargetError::Ipv4),
            ("0x:80", TargetError::Ipv4),
            (".:80", TargetError::Name),
            ("a..b:80", TargetError::Name),
            (".a:80", TargetError::Name),
            ("a..:80", TargetError::Name),
            ("*.a:80", TargetError::Name),
            ("a,b:80", TargetError::Name),
            ("127.0.0.1%eth0:80", TargetError::Name),
            ("a%20b:80", TargetError::Name),
            ("a\\b:80", TargetError::Name),
        ] {
            assert_eq!(Target::parse(text), Err(error), "{text:?}");
        }
    }

    #[test]
    fn accepted_addresses() {
        for (text, ip, port) in [
            ("127.0.0.1:80", "127.0.0.1", 80),
            ("255.255.255.255:65535", "255.255.255.255", 65535),
            ("0.0.0.0:1", "0.0.0.0", 1),
            ("[::1]:80", "::1", 80),
            ("[0:0:0:0:0:0:0:1]:80", "::1", 80),
            ("[2001:DB8::A]:443", "2001:db8::a", 443),
            ("[::ffff:10.0.0.1]:443", "::ffff:10.0.0.1", 443),
        ] {
            let target = Target { host: Host::Ip(ip.parse().unwrap(), None), port };
            assert_eq!(Target::parse(text), Ok(target.clone()), "{text:?}");
            let form = if ip.contains(':') { format!("[{ip}]:{port}") } else { format!("{ip}:{port}") };
            assert_eq!((target.to_string(), target.host.to_string().as_str()), (form, ip));
        }
    }

    #[test]
    fn accepted_scopes() {
        for scope in ["eth0", "1", "25", "br-lan.7", "veth_a", "abcdefghijklmno"] {
            let text = format!("[fe80::1%{scope}]:80");
            let target = Target::parse(&text).unwrap();
            assert_eq!(target.host, Host::Ip("fe80::1".parse().unwrap(), Some(scope.to_owned())));
            assert_eq!((target.to_string(), target.host.to_string()), (text, format!("fe80::1%{scope}")));
        }
    }

    #[test]
    fn accepted_names() {
        let longest = format!("{}.{}", ["a".repeat(63).as_str(); 3].join("."), "b".repeat(61));
        assert_eq!(longest.len(), NAME_LEN_MAX);
        let longest_with_dot = format!("{longest}.");
        for name in [
            "localhost",
            "node1.example",
            "node1.example.",
            "webhook.default.svc",
            "my_node.internal",
            "xn--bcher-kva.example",
            "Node-A",
            "1a",
            "10-0-0-1.default.pod",
            "node.1",
            "0xg",
            "0x7f.example",
            "a",
            "a-",
            longest.as_str(),
            longest_with_dot.as_str(),
        ] {
            let text = format!("{name}:10250");
            let target = Target { host: Host::Name(name.to_owned()), port: 10250 };
            assert_eq!(text.parse(), Ok(target.clone()), "{text:?}");
            assert_eq!(target.to_string(), text);
        }
    }

    #[test]
    fn each_error_has_its_own_text() {
        let errors = ["", " ", "/", "@", "a", "a:", ":1", "::1", "[]:1", "[::%]:1", "1:1", "*:1"];
        let texts: std::collections::BTreeSet<String> =
            errors.iter().map(|text| Target::parse(text).unwrap_err().to_string()).collect();
        assert_eq!(texts.len(), errors.len());
        assert!(texts.iter().all(|text| !text.chars().any(char::is_control)));
    }

    proptest! {
        #[test]
        fn never_panics_and_round_trips(text in r"(?s).{0,40}|[\[\]:%.0-9a-fx@/_-]{0,24}") {
            if let Ok(target) = Target::parse(&text) {
                prop_assert_eq!(Target::parse(&target.to_string()), Ok(target));
            }
        }

        #[test]
        fn agrees_with_the_standard_library(text in r"[\[]?[0-9a-f:.]{1,20}[\]]?:[0-9]{1,6}") {
            match (Target::parse(&text), text.parse::<SocketAddr>()) {
                (Ok(Target { host: Host::Ip(ip, None), port }), parsed) => {
                    prop_assert_eq!(parsed, Ok(SocketAddr::new(ip, port)));
                }
                (Ok(_), parsed) => prop_assert!(parsed.is_err(), "an address must not pass for a name"),
                (Err(error), Ok(address)) => {
                    prop_assert!(error == TargetError::Port && (address.port() == 0 || text.contains(":0")));
                }
                (Err(_), Err(_)) => {}
            }
        }

        #[test]
        fn reads_every_socket_address(ip in any::<u128>(), port in 1u16.., scope in 0u32..20) {
            let v6 = SocketAddrV6::new(Ipv6Addr::from_bits(ip), port, 0, scope);
            let v4 = SocketAddr::new(Ipv4Addr::from_bits(ip as u32).into(), port);
            let scope = (scope != 0).then(|| scope.to_string());
            prop_assert_eq!(
                Target::parse(&v6.to_string()),
                Ok(Target { host: Host::Ip((*v6.ip()).into(), scope), port })
            );
            prop_assert_eq!(Target::parse(&v4.to_string()), Ok(Target { host: Host::Ip(v4.ip(), None), port }));
        }
    }
}

//! What an agent says it serves (`--agent-identifiers`), and how a server chooses (`--proxy-strategies`).

use std::net::IpAddr;

use super::options::Strategy;

/// What an agent serves. Values are kept as written (percent-decoded): a server compares texts.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct AgentIdentifiers {
    /// The flag's text; this is what a HELLO carries.
    pub text: String,
    /// Addresses given as `ipv4=`.
    pub ipv4: Vec<String>,
    /// Addresses given as `ipv6=`.
    pub ipv6: Vec<String>,
    /// Names or addresses given as `host=`.
    pub host: Vec<String>,
    /// Networks given as `cidr=`. No strategy uses them.
    pub cidr: Vec<String>,
    /// Whether the agent takes what no other agent names.
    pub default_route: bool,
}

impl AgentIdentifiers {
    /// Reads a query string such as `host=node1&ipv4=10.0.0.1&default-route=true`. What is odd but harmless
    /// adds a line to `notices`.
    ///
    /// # Errors
    /// An unknown key, a value that is not an address where one must be, a broken escape, or a text too long
    /// for a HELLO.
    pub fn parse(text: &str, notices: &mut Vec<String>) -> Result<Self, String> {
        if text.len() > tautline_wire::IDENTIFIERS_LEN_MAX {
            return Err(format!("use at most {} bytes", tautline_wire::IDENTIFIERS_LEN_MAX));
        }
        let mut identifiers = Self { text: text.to_owned(), ..Self::default() };
        let mut default_route = None;
        for pair in text.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            let (key, value) = (decode(key)?, decode(value)?);
            match key.as_str() {
                "ipv4" => identifiers.ipv4.push(address(&key, value, IpAddr::is_ipv4, notices)?),
                "ipv6" => identifiers.ipv6.push(address(&key, value, IpAddr::is_ipv6, notices)?),
                "host" if value.is_empty() => return Err("host is empty".to_owned()),
                "host" => identifiers.host.push(value),
                "cidr" => identifiers.cidr.push(network(value)?),
                // As for repeated keys in Go: the first one counts.
                "default-route" => default_route = default_route.or(Some(value)),
                _ => return Err(format!("unknown address type: {key}")),
            }
        }
        if let Some(value) = default_route {
            identifiers.default_route = matches!(value.as_str(), "1" | "t" | "T" | "TRUE" | "true" | "True");
            if !identifiers.default_route
                && !matches!(value.as_str(), "0" | "f" | "F" | "FALSE" | "false" | "False")
            {
                notices.push(format!(
                    "--agent-identifiers: default-route={value} counts as false; use true or false"
                ));
            }
        }
        Ok(identifiers)
    }
}

/// A percent-decoded part of a query string; `+` is a space.
fn decode(part: &str) -> Result<String, String> {
    let broken = || format!("{part}: broken percent escape");
    let mut bytes = Vec::with_capacity(part.len());
    let mut rest = part.bytes();
    while let Some(byte) = rest.next() {
        match byte {
            b'%' => {
                let digit = |byte: Option<u8>| char::from(byte.unwrap_or_default()).to_digit(16);
                let (high, low) = digit(rest.next()).zip(digit(rest.next())).ok_or_else(broken)?;
                bytes.push(u8::try_from(high * 16 + low).map_err(|_| broken())?);
            }
            b'+' => bytes.push(b' '),
            b';' => return Err(format!("{part}: separate identifiers with & instead of ;")),
            _ => bytes.push(byte),
        }
    }
    let text = String::from_utf8(bytes).map_err(|_| format!("{part}: not UTF-8"))?;
    if text.chars().any(char::is_control) {
        return Err(format!("{part}: has control characters"));
    }
    Ok(text)
}

fn address(
    key: &str,
    value: String,
    right_family: fn(&IpAddr) -> bool,
    notices: &mut Vec<String>,
) -> Result<String, String> {
    let ip: IpAddr =
        value.parse().map_err(|_| format!("{key}={value} is not an IP address (is a variable not set?)"))?;
    // Manifests write ipv4=$(HOST_IP) and then run on nodes that have IPv6 only. It works: texts are compared.
    if !right_family(&ip) {
        notices
            .push(format!("--agent-identifiers: {key}={value} is of the other family; it is used as it is"));
    }
    Ok(value)
}

fn network(value: String) -> Result<String, String> {
    let is_network = value.split_once('/').is_some_and(|(ip, bits)| {
        let bits_max = ip.parse().map(|ip: IpAddr| if ip.is_ipv4() { 32 } else { 128 });
        bits_max.is_ok_and(|max| bits.parse::<u8>().is_ok_and(|bits| bits <= max))
    });
    if is_network { Ok(value) } else { Err(format!("cidr={value} is not a network such as 10.0.0.0/8")) }
}

/// The strategies of a comma list, in its order. Empty items are skipped, repeated ones count once.
///
/// # Errors
/// An unknown name, or no name at all.
pub(super) fn parse_strategies(list: &str) -> Result<Vec<Strategy>, String> {
    let mut strategies = Vec::new();
    for name in list.split(',').map(str::trim).filter(|name| !name.is_empty()) {
        let strategy = match name {
            "default" => Strategy::Default,
            "destHost" => Strategy::DestHost,
            "defaultRoute" => Strategy::DefaultRoute,
            _ => {
                return Err(format!("--proxy-strategies: {name} is none of default, destHost, defaultRoute"));
            }
        };
        if !strategies.contains(&strategy) {
            strategies.push(strategy);
        }
    }
    if strategies.is_empty() {
        return Err(
            "--proxy-strategies is empty: use default, destHost, defaultRoute or a list of them".to_owned()
        );
    }
    Ok(strategies)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<AgentIdentifiers, String> {
        AgentIdentifiers::parse(text, &mut Vec::new())
    }

    #[test]
    fn all_keys() {
        let text = "host=localhost&host=node1.my%64omain.com&cidr=127.0.0.1/16&ipv4=1.2.3.4&ipv4=5.6.7.8\
                    &ipv6=fd00::1&&default-route=true";
        let got = parse(text).unwrap();
        assert_eq!(got.text, text);
        assert_eq!(got.host, ["localhost", "node1.mydomain.com"]);
        assert_eq!(
            (got.ipv4.len(), &got.ipv6[..], &got.cidr[..]),
            (2, &["fd00::1".to_owned()][..], &["127.0.0.1/16".to_owned()][..])
        );
        assert!(got.default_route);
        assert_eq!(parse("").unwrap(), AgentIdentifiers::default());
        assert_eq!(parse("host=a+b").unwrap().host, ["a b"]);
    }

    #[test]
    fn what_is_refused() {
        for (text, why) in [
            ("hostname=a", "unknown address type: hostname"),
            ("ipv4=$(HOST_IP)", "not an IP address"),
            ("ipv4=", "not an IP address"),
            ("ipv4", "not an IP address"),
            ("ipv6=:::::", "not an IP address"),
            ("ipv6=[::1]", "not an IP address"),
            ("cidr=10.0.0.0", "not a network"),
            ("cidr=10.0.0.0/33", "not a network"),
            ("host=", "host is empty"),
            ("host=%4", "percent escape"),
            ("host=%zz", "percent escape"),
            ("host=%", "percent escape"),
            ("host=%ff", "not UTF-8"),
            ("host=a%0ab", "control"),
            ("host=a;host=b", "instead of ;"),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
        assert!(parse(&format!("host={}", "a".repeat(4096))).is_err());
    }

    #[test]
    fn odd_but_used() {
        let mut notices = Vec::new();
        let got = AgentIdentifiers::parse("ipv4=fd00::1&default-route=yes", &mut notices).unwrap();
        assert_eq!((got.ipv4, got.default_route), (vec!["fd00::1".to_owned()], false));
        assert_eq!(notices.len(), 2, "{notices:?}");
        assert!(!parse("default-route=false&default-route=true").unwrap().default_route);
    }

    #[test]
    fn strategies() {
        use Strategy::{Default, DefaultRoute, DestHost};
        assert_eq!(parse_strategies("default"), Ok(vec![Default]));
        assert_eq!(parse_strategies("destHost,,defaultRoute"), Ok(vec![DestHost, DefaultRoute]));
        assert_eq!(parse_strategies("destHost, default,destHost"), Ok(vec![DestHost, Default]));
        assert!(parse_strategies("").is_err() && parse_strategies(",").is_err());
        assert!(parse_strategies("desthost").unwrap_err().contains("desthost"));
    }
}

//! What core wants logged: one logfmt text a line (`msg="..." key=value`). `app` hands it to the logger.

use std::fmt;
use std::net::SocketAddr;

/// How loud.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// An operator must act.
    Error,
    /// Something is wrong that heals, or that a peer does.
    Warn,
    /// A change of state.
    Info,
    /// For a developer.
    Debug,
}

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// How loud.
    pub level: Level,
    /// `msg="..." key=value`, without time and level.
    pub text: String,
}

/// A logfmt value: quoted where it must be, so that a peer's text can neither end a line nor forge a key.
#[derive(Debug, Clone, Copy)]
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_ascii_graphic() && !matches!(c, '"' | '=' | '\\');
        if !self.0.is_empty() && self.0.chars().all(plain) {
            return f.write_str(self.0);
        }
        write!(f, "{:?}", self.0)
    }
}

/// A duration in seconds with millisecond digits.
#[derive(Debug, Clone, Copy)]
pub struct Seconds(pub std::time::Duration);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.3}s", self.0.as_secs_f64())
    }
}

/// How a line calls whoever is behind a connection: address and port, or `unix`.
#[must_use]
pub fn name_of(from: Option<SocketAddr>) -> String {
    from.map_or_else(|| "unix".to_owned(), |from| from.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_cannot_forge_a_line_or_a_key() {
        for (text, shown) in [
            ("a1", "a1"),
            ("", "\"\""),
            ("two words", "\"two words\""),
            ("x level=error", "\"x level=error\""),
            ("a\nb", "\"a\\nb\""),
            ("q\"uote", "\"q\\\"uote\""),
        ] {
            assert_eq!(Quoted(text).to_string(), shown);
        }
    }
}

//! Bearer tokens, in words that every layer shares.

use std::fmt;

/// A token. Its debug output hides it; only [`Secret::expose`] gives it away.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps a text.
    #[must_use]
    pub const fn new(text: String) -> Self {
        Self(text)
    }

    /// The text itself, for the wire.
    #[must_use]
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// What became of a token that was shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is an agent's.
    Accepted,
    /// It is not, and why.
    Denied(String),
    /// Nobody can tell now, and why.
    Unavailable(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_output_hides_it() {
        let secret = Secret::new("eyJhbGciOi".to_owned());
        assert_eq!(format!("{secret:?} {:#?}", Some(&secret)), "*** Some(\n    ***,\n)");
        assert_eq!(secret.expose(), "eyJhbGciOi");
    }
}

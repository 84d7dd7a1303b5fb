//! What can be wrong with bytes.

use std::fmt;

/// Why the bytes of a peer are not frames. Each ends the link, none ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes are not [`crate::MAGIC`].
    BadMagic,
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadMagic => f.write_str("the first bytes are not Tautline's"),
        }
    }
}

impl std::error::Error for DecodeError {}

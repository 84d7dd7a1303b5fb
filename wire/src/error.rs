//! What can be wrong with bytes.

use std::fmt;

use crate::{FrameType, MAGIC, hello};

/// Why the bytes of a peer are not frames. Each ends the link, none ends the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum DecodeError {
    /// The first bytes are not [`crate::MAGIC`]; [`DecodeError::looks_like`] may know whose they are.
    BadMagic {
        /// What came, as far as it had come when the first wrong byte was seen.
        first: [u8; 8],
        /// How many of `first` came, at least 1.
        count: u8,
    },
    /// A frame of a type that this side does not know and must not skip.
    UnknownCriticalFrame {
        /// The number of the type.
        kind: u8,
        /// The stream in its header.
        stream: u64,
    },
    /// A payload above the limit of the moment.
    TooLong {
        /// The number of the type.
        kind: u8,
        /// The stream in the header.
        stream: u64,
        /// Bytes of payload announced.
        length: u32,
        /// Bytes allowed now.
        max: u32,
    },
    /// DATA before this side takes any (before WELCOME).
    DataNotAllowed {
        /// The stream in the header.
        stream: u64,
    },
    /// A frame about a stream with stream id 0.
    StreamMissing {
        /// The type.
        frame: FrameType,
    },
    /// A frame about the link with a stream id.
    StreamUnexpected {
        /// The type.
        frame: FrameType,
        /// The stream id, which should be 0.
        stream: u64,
    },
    /// A payload of a length that its type does not have.
    WrongLength {
        /// The type.
        frame: FrameType,
        /// The stream in the header.
        stream: u64,
        /// Bytes of payload.
        length: u32,
        /// Bytes that the fixed part of this type has.
        expected: u32,
    },
    /// WINDOW that adds nothing.
    ZeroCredit {
        /// The stream.
        stream: u64,
    },
    /// DIAL_RSP that says neither "connected" nor "failed".
    BadResult {
        /// The stream.
        stream: u64,
        /// The result byte.
        result: u8,
    },
    /// A text that is not UTF-8.
    NotUtf8 {
        /// The frame it is in.
        frame: FrameType,
        /// The text's name in PROTOCOL.md.
        text: &'static str,
        /// Offset of the first wrong byte in the text.
        at: u32,
    },
    /// A text above its own bound.
    TextTooLong {
        /// The frame it is in.
        frame: FrameType,
        /// The text's name in PROTOCOL.md.
        text: &'static str,
        /// Its length in bytes.
        length: u32,
        /// Its bound in bytes.
        max: u32,
    },
    /// HELLO or WELCOME ends inside a field.
    FieldTruncated {
        /// HELLO or WELCOME.
        frame: FrameType,
        /// Offset in the payload where the field begins.
        at: u32,
    },
    /// A field of HELLO or WELCOME is wrong.
    Field {
        /// HELLO or WELCOME.
        frame: FrameType,
        /// The tag without the critical bit.
        tag: u16,
        /// What is wrong with it.
        fault: FieldFault,
    },
}

/// What can be wrong with a field of HELLO or WELCOME.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FieldFault {
    /// It must be there and is not.
    Missing,
    /// It is there twice.
    Twice,
    /// This side does not know it and must not skip it.
    UnknownCritical,
    /// Its value has the wrong length for its tag.
    Length {
        /// Bytes of the value.
        length: u16,
        /// Bytes that such a value has.
        expected: u16,
    },
    /// Its value is ruled out by PROTOCOL.md: an empty id, versions upside down, a length of 0 ...
    Value,
}

impl DecodeError {
    /// Who speaks, if the first bytes of [`DecodeError::BadMagic`] are those of a known protocol.
    #[must_use]
    pub fn looks_like(&self) -> Option<&'static str> {
        match self {
            Self::BadMagic { first, count } => recognise(first.get(..usize::from(*count))?),
            _ => None,
        }
    }
}

/// The names of strangers that end up on this port by a wrong address, a wrong port or an old manifest.
fn recognise(first: &[u8]) -> Option<&'static str> {
    const HTTP1: &str = "an HTTP/1 client";
    const STRANGERS: [(&[u8], &str); 15] = [
        (b"PRI * HT", "an HTTP/2 client (gRPC, such as a Konnectivity agent)"),
        (b"GET ", HTTP1),
        (b"HEAD ", HTTP1),
        (b"POST ", HTTP1),
        (b"PUT ", HTTP1),
        (b"PATCH ", HTTP1),
        (b"TRACE ", HTTP1),
        (b"DELETE ", HTTP1),
        (b"CONNECT ", HTTP1),
        (b"OPTIONS ", HTTP1),
        (b"\x16\x03", "a TLS client, on a port without TLS"),
        (b"SSH-", "an SSH client"),
        (b"PROXY ", "a load balancer with PROXY protocol, which is not supported"),
        (b"\r\n\r\n\0\r\nQ", "a load balancer with PROXY protocol, which is not supported"),
        (b"\xabTAUT", "another major version of Tautline"),
    ];
    // Four bytes settle which one it is, so a longer word need not have arrived whole.
    let is = |word: &[u8]| first.starts_with(word) || (first.len() >= 4 && word.starts_with(first));
    STRANGERS.iter().find(|(word, _)| is(word)).map(|(_, name)| *name)
}

/// A type by name, or by number if it has none.
struct Kind(u8);

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match FrameType::from_u8(self.0) {
            Some(frame) => f.write_str(frame.name()),
            None => write!(f, "a frame of unknown type {}", self.0),
        }
    }
}

impl fmt::Display for DecodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::BadMagic { first, count } => {
                let first = first.get(..usize::from(count)).unwrap_or(&first);
                match self.looks_like() {
                    Some(name) => write!(f, "the peer is {name}: ")?,
                    None => f.write_str("the peer does not speak Tautline: ")?,
                }
                let (got, want) = (first.escape_ascii(), MAGIC.escape_ascii());
                write!(f, "its first bytes are \"{got}\", not \"{want}\"")
            }
            Self::UnknownCriticalFrame { kind, stream } => {
                let name = Kind(kind);
                write!(
                    f,
                    "{name} on stream {stream} is marked critical: the peer uses something not agreed on"
                )
            }
            Self::TooLong { kind, stream, length, max } => {
                let name = Kind(kind);
                write!(f, "{name} on stream {stream} announces {length} bytes, at most {max} are allowed now")
            }
            Self::DataNotAllowed { stream } => write!(f, "DATA on stream {stream} before the link is set up"),
            Self::StreamMissing { frame } => write!(f, "{} with stream id 0", frame.name()),
            Self::StreamUnexpected { frame, stream } => {
                write!(f, "{} is about the link but names stream {stream}", frame.name())
            }
            Self::WrongLength { frame, stream, length, expected } => {
                let name = frame.name();
                write!(
                    f,
                    "{name} on stream {stream} has {length} bytes of payload, its fixed part has {expected}"
                )
            }
            Self::ZeroCredit { stream } => write!(f, "WINDOW on stream {stream} adds no credit"),
            Self::BadResult { stream, result } => {
                write!(
                    f,
                    "DIAL_RSP on stream {stream} has result {result}, neither 0 (connected) nor 1 (failed)"
                )
            }
            Self::NotUtf8 { frame, text, at } => {
                write!(f, "{}: {text} is not UTF-8 at byte {at}", frame.name())
            }
            Self::TextTooLong { frame, text, length, max } => {
                write!(f, "{}: {text} has {length} bytes, at most {max} are allowed", frame.name())
            }
            Self::FieldTruncated { frame, at } => {
                write!(f, "{} ends inside the field that begins at byte {at}", frame.name())
            }
            Self::Field { frame, tag, fault } => {
                write!(f, "{}: field {tag} ({}) {fault}", frame.name(), hello::field_name(tag))
            }
        }
    }
}

impl fmt::Display for FieldFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Missing => f.write_str("is missing"),
            Self::Twice => f.write_str("is there twice"),
            Self::UnknownCritical => f.write_str("is marked critical and not known here"),
            Self::Length { length, expected } => write!(f, "has {length} bytes, not {expected}"),
            Self::Value => f.write_str("has a value that is not allowed"),
        }
    }
}

impl std::error::Error for DecodeError {}

#[cfg(test)]
mod tests {
    use super::*;

    fn bad_magic(bytes: &[u8]) -> DecodeError {
        let mut first = [0; 8];
        first[..bytes.len()].copy_from_slice(bytes);
        DecodeError::BadMagic { first, count: bytes.len() as u8 }
    }

    #[test]
    fn strangers_are_named() {
        for (bytes, name) in [
            (&b"PRI * HT"[..], "Konnectivity"),
            (b"PRI ", "HTTP/2"),
            (b"GET / HT", "HTTP/1"),
            (b"CONN", "HTTP/1"),
            (b"OPTIONS ", "HTTP/1"),
            (b"\x16\x03\x01\x02\0\x01\0\x01", "TLS"),
            (b"\x16\x03", "TLS"),
            (b"SSH-2.0-", "SSH"),
            (b"PROXY TC", "PROXY"),
            (b"\r\n\r\n\0\r\nQ", "PROXY"),
            (b"\xabTAUT2\r", "another major version"),
        ] {
            let error = bad_magic(bytes);
            assert!(error.looks_like().is_some_and(|found| found.contains(name)), "{name}: {error}");
            assert!(error.to_string().contains(name), "{error}");
        }
        for bytes in [&b""[..], b"P", b"PRO", b"\x16", b"hello\r\n", b"GETTING ", b"\xabTAUX", b"\0\0\0\0"] {
            assert_eq!(bad_magic(bytes).looks_like(), None, "{bytes:?}");
        }
        assert_eq!(DecodeError::DataNotAllowed { stream: 1 }.looks_like(), None);
    }

    #[test]
    fn strange_bytes_are_shown_without_control_characters() {
        let text = bad_magic(b"\x1b[2J\n\xff").to_string();
        assert!(text.contains(r#""\x1b[2J\n\xff""#), "{text}");
        assert!(text.chars().all(|c| !c.is_control()), "{text}");
    }
}

//! Tautline's frames: representation only. No I/O, no clock, no `unsafe`. `PROTOCOL.md` is the text.
#![forbid(unsafe_code)]

mod decoder;
mod encode;
mod error;
mod frame;
mod header;

pub use decoder::{Decoder, Item, Limits};
pub use encode::{encode_control, encode_data_header};
pub use error::DecodeError;
pub use frame::{
    Close, CloseCode, Control, DialCode, DialFailure, DialReq, DialRsp, GoAway, GoAwayCode, Hello, Welcome,
    Window,
};
pub use header::{FLAG_CRITICAL, FLAG_FIN, FrameType, HEADER_LEN, Header};

/// First bytes of an agent, before HELLO: no HTTP client, HTTP/2 client, TLS client or human begins so.
pub const MAGIC: [u8; 8] = *b"\xabTAUT1\r\n";
/// ALPN name on TLS.
pub const ALPN: &[u8] = b"tautline/1";
/// The protocol version of this crate.
pub const VERSION: u16 = 1;
/// Longest payload of a control frame other than HELLO, in bytes.
pub const CONTROL_LEN_MAX: usize = 4096;
/// Longest payload of HELLO, in bytes: a service account token and identifiers fit.
pub const HELLO_LEN_MAX: usize = 16_384;
/// Longest payload of a DATA frame, in bytes: with its header it fills four TLS records exactly.
pub const DATA_LEN_MAX: usize = 65_536 - HEADER_LEN;
/// Longest target, in bytes: a name of 253, brackets or scope, a colon and a port fit.
pub const TARGET_LEN_MAX: usize = 512;
/// Longest text for people, in bytes.
pub const TEXT_LEN_MAX: usize = 1024;
/// Longest agent or server id, in bytes.
pub const ID_LEN_MAX: usize = 256;
/// Longest identifiers text, in bytes.
pub const IDENTIFIERS_LEN_MAX: usize = 4096;
/// Longest token, in bytes.
pub const TOKEN_LEN_MAX: usize = 8192;

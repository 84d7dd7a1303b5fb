//! Tautline's frames: representation only. No I/O, no clock, no `unsafe`. `PROTOCOL.md` is the text.
#![forbid(unsafe_code)]

mod decoder;
mod encode;
mod error;
mod frame;
mod header;
mod hello;
mod payload;

pub use decoder::{Decoder, Item, Limits};
pub use encode::{encode_control, encode_data_header};
pub use error::{DecodeError, FieldFault};
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
/// Most credit that a stream may hold in one direction, in bytes; more is an error of the stream.
pub const CREDIT_MAX: u32 = 0x7fff_ffff;

const _: () = {
    // Whatever encode_control writes, a decoder with the limits above takes.
    let fixed_and_field_heads = 64 + 16 * 4;
    assert!(ID_LEN_MAX + IDENTIFIERS_LEN_MAX + TOKEN_LEN_MAX + fixed_and_field_heads <= HELLO_LEN_MAX);
    assert!(ID_LEN_MAX + fixed_and_field_heads <= CONTROL_LEN_MAX);
    assert!(TARGET_LEN_MAX + 4 <= CONTROL_LEN_MAX && TEXT_LEN_MAX + 3 <= CONTROL_LEN_MAX);
    assert!(HELLO_LEN_MAX <= u16::MAX as usize, "a field's length has 16 bits");
};

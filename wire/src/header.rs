//! The fixed header.

/// Bytes before each payload: length (4), type (1), flags (1), reserved (2), stream id (8); network order.
pub const HEADER_LEN: usize = 16;
/// On DATA: the last bytes of this direction.
pub const FLAG_FIN: u8 = 0x01;
/// On any type: a receiver that does not know the type must end the link instead of skipping.
pub const FLAG_CRITICAL: u8 = 0x80;

/// Frame types. 0-6 are Konnectivity's, same numbers and meaning; from 16 on the link's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum FrameType {
    /// Connect to a target.
    DialReq = 0,
    /// What became of a dial.
    DialRsp = 1,
    /// Both directions end.
    CloseReq = 2,
    /// Answer to it.
    CloseRsp = 3,
    /// Bytes of a stream.
    Data = 4,
    /// A dial is given up.
    DialCls = 5,
    /// No new dials.
    Drain = 6,
    /// First frame of an agent.
    Hello = 16,
    /// Answer to it.
    Welcome = 17,
    /// Are you there?
    Ping = 18,
    /// Yes.
    Pong = 19,
    /// More credit.
    Window = 20,
    /// Reserved for resuming.
    Ack = 21,
    /// The link ends.
    GoAway = 22,
}

/// A header, as it stands on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Bytes of payload.
    pub length: u32,
    /// Raw type: unknown ones are skipped, so they must be representable.
    pub kind: u8,
    /// Raw flags.
    pub flags: u8,
    /// The stream, 0 = the link itself.
    pub stream: u64,
}

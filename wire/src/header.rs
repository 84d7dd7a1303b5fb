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

impl Header {
    /// Reads a header. Reserved bytes are ignored.
    #[must_use]
    pub const fn from_bytes(bytes: &[u8; HEADER_LEN]) -> Self {
        let [l0, l1, l2, l3, kind, flags, _, _, s0, s1, s2, s3, s4, s5, s6, s7] = *bytes;
        Self {
            length: u32::from_be_bytes([l0, l1, l2, l3]),
            kind,
            flags,
            stream: u64::from_be_bytes([s0, s1, s2, s3, s4, s5, s6, s7]),
        }
    }

    /// The header as it goes on the wire, reserved bytes 0.
    #[must_use]
    pub const fn to_bytes(self) -> [u8; HEADER_LEN] {
        let [l0, l1, l2, l3] = self.length.to_be_bytes();
        let [s0, s1, s2, s3, s4, s5, s6, s7] = self.stream.to_be_bytes();
        [l0, l1, l2, l3, self.kind, self.flags, 0, 0, s0, s1, s2, s3, s4, s5, s6, s7]
    }
}

impl FrameType {
    /// Every type, in order of its number.
    pub const ALL: [Self; 14] = [
        Self::DialReq,
        Self::DialRsp,
        Self::CloseReq,
        Self::CloseRsp,
        Self::Data,
        Self::DialCls,
        Self::Drain,
        Self::Hello,
        Self::Welcome,
        Self::Ping,
        Self::Pong,
        Self::Window,
        Self::Ack,
        Self::GoAway,
    ];

    /// The type with this number, `None` if this crate does not know it.
    #[must_use]
    pub const fn from_u8(number: u8) -> Option<Self> {
        Some(match number {
            0 => Self::DialReq,
            1 => Self::DialRsp,
            2 => Self::CloseReq,
            3 => Self::CloseRsp,
            4 => Self::Data,
            5 => Self::DialCls,
            6 => Self::Drain,
            16 => Self::Hello,
            17 => Self::Welcome,
            18 => Self::Ping,
            19 => Self::Pong,
            20 => Self::Window,
            21 => Self::Ack,
            22 => Self::GoAway,
            _ => return None,
        })
    }

    /// The metric label and log word: Konnectivity's packet type where it has one.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::DialReq => "DIAL_REQ",
            Self::DialRsp => "DIAL_RSP",
            Self::CloseReq => "CLOSE_REQ",
            Self::CloseRsp => "CLOSE_RSP",
            Self::Data => "DATA",
            Self::DialCls => "DIAL_CLS",
            Self::Drain => "DRAIN",
            Self::Hello => "HELLO",
            Self::Welcome => "WELCOME",
            Self::Ping => "PING",
            Self::Pong => "PONG",
            Self::Window => "WINDOW",
            Self::Ack => "ACK",
            Self::GoAway => "GOAWAY",
        }
    }

    /// True if the header names a stream; false if it is about the link and its stream id is 0.
    #[must_use]
    pub const fn has_stream(self) -> bool {
        match self {
            Self::DialReq
            | Self::DialRsp
            | Self::CloseReq
            | Self::CloseRsp
            | Self::Data
            | Self::DialCls
            | Self::Window
            | Self::Ack => true,
            Self::Drain | Self::Hello | Self::Welcome | Self::Ping | Self::Pong | Self::GoAway => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_is_a_type_only_if_the_type_has_that_number() {
        let known: Vec<FrameType> = (0..=u8::MAX).filter_map(FrameType::from_u8).collect();
        assert_eq!(known, FrameType::ALL);
        for number in 0..=u8::MAX {
            if let Some(frame) = FrameType::from_u8(number) {
                assert_eq!(frame as u8, number);
            }
        }
    }

    #[test]
    fn a_header_survives_the_wire_and_reserved_bytes_do_not_matter() {
        let header = Header { length: 0x0102_0304, kind: 5, flags: 0x81, stream: 0x0807_0605_0403_0201 };
        let mut bytes = header.to_bytes();
        assert_eq!(bytes, [1, 2, 3, 4, 5, 0x81, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
        assert_eq!(Header::from_bytes(&bytes), header);
        bytes[6] = 0xff;
        bytes[7] = 0xff;
        assert_eq!(Header::from_bytes(&bytes), header);
    }
}

//! Payloads of control frames to values. The other direction is in `encode`.

use crate::{
    Close, CloseCode, Control, DecodeError, DialCode, DialFailure, DialReq, DialRsp, FrameType, GoAway,
    GoAwayCode, TARGET_LEN_MAX, TEXT_LEN_MAX, Window, hello,
};

/// DIAL_RSP: the target is connected.
pub(crate) const RESULT_CONNECTED: u8 = 0;
/// DIAL_RSP: code and text follow.
pub(crate) const RESULT_FAILED: u8 = 1;

/// A whole payload. `None` for types that have no control payload (DATA, ACK).
pub(crate) fn decode(frame: FrameType, stream: u64, payload: &[u8]) -> Result<Option<Control>, DecodeError> {
    let payload = Payload { frame, stream, bytes: payload };
    Ok(Some(match frame {
        FrameType::Data | FrameType::Ack => return Ok(None),
        FrameType::DialReq => Control::DialReq(payload.dial_req()?),
        FrameType::DialRsp => Control::DialRsp(payload.dial_rsp()?),
        FrameType::CloseReq => Control::CloseReq(payload.close()?),
        FrameType::CloseRsp => Control::CloseRsp(payload.close()?),
        FrameType::DialCls => Control::DialCls(payload.close()?),
        FrameType::Drain => {
            let [] = payload.exactly()?;
            Control::Drain
        }
        FrameType::Hello => Control::Hello(hello::decode_hello(payload.bytes)?),
        FrameType::Welcome => Control::Welcome(hello::decode_welcome(payload.bytes)?),
        FrameType::Ping => Control::Ping(u64::from_be_bytes(payload.exactly()?)),
        FrameType::Pong => Control::Pong(u64::from_be_bytes(payload.exactly()?)),
        FrameType::Window => Control::Window(payload.window()?),
        FrameType::GoAway => Control::GoAway(payload.go_away()?),
    }))
}

/// A text within its bound. `text` is its name in PROTOCOL.md.
pub(crate) fn decode_text(
    frame: FrameType,
    text: &'static str,
    bytes: &[u8],
    len_max: usize,
) -> Result<String, DecodeError> {
    if bytes.len() > len_max {
        return Err(DecodeError::TextTooLong {
            frame,
            text,
            length: bytes.len() as u32,
            max: len_max as u32,
        });
    }
    match str::from_utf8(bytes) {
        Ok(value) => Ok(value.to_owned()),
        Err(error) => Err(DecodeError::NotUtf8 { frame, text, at: error.valid_up_to() as u32 }),
    }
}

#[derive(Clone, Copy)]
struct Payload<'a> {
    frame: FrameType,
    stream: u64,
    bytes: &'a [u8],
}

impl<'a> Payload<'a> {
    fn dial_req(self) -> Result<DialReq, DecodeError> {
        let (time_left, target) = self.split()?;
        Ok(DialReq {
            stream: self.stream,
            time_left_ms: u32::from_be_bytes(time_left),
            target: decode_text(self.frame, "target", target, TARGET_LEN_MAX)?,
        })
    }

    fn dial_rsp(self) -> Result<DialRsp, DecodeError> {
        let ([result], _) = self.split()?;
        let result = match result {
            RESULT_CONNECTED => {
                let [_] = self.exactly()?;
                Ok(())
            }
            RESULT_FAILED => {
                let ([_, high, low], text) = self.split()?;
                Err(DialFailure {
                    code: DialCode::from_u16(u16::from_be_bytes([high, low])),
                    text: decode_text(self.frame, "text", text, TEXT_LEN_MAX)?,
                })
            }
            result => return Err(DecodeError::BadResult { stream: self.stream, result }),
        };
        Ok(DialRsp { stream: self.stream, result })
    }

    fn close(self) -> Result<Close, DecodeError> {
        let code = CloseCode::from_u16(u16::from_be_bytes(self.exactly()?));
        Ok(Close { stream: self.stream, code })
    }

    fn window(self) -> Result<Window, DecodeError> {
        match u32::from_be_bytes(self.exactly()?) {
            0 => Err(DecodeError::ZeroCredit { stream: self.stream }),
            credit => Ok(Window { stream: self.stream, credit }),
        }
    }

    fn go_away(self) -> Result<GoAway, DecodeError> {
        let (code, text) = self.split()?;
        Ok(GoAway {
            code: GoAwayCode::from_u16(u16::from_be_bytes(code)),
            text: decode_text(self.frame, "text", text, TEXT_LEN_MAX)?,
        })
    }

    /// The payload as its fixed part and nothing else.
    fn exactly<const N: usize>(self) -> Result<[u8; N], DecodeError> {
        match self.split()? {
            (fixed, []) => Ok(fixed),
            _ => Err(self.wrong_length(N)),
        }
    }

    /// The fixed part, and what follows.
    fn split<const N: usize>(self) -> Result<([u8; N], &'a [u8]), DecodeError> {
        match self.bytes.split_first_chunk() {
            Some((fixed, rest)) => Ok((*fixed, rest)),
            None => Err(self.wrong_length(N)),
        }
    }

    fn wrong_length(self, expected: usize) -> DecodeError {
        DecodeError::WrongLength {
            frame: self.frame,
            stream: self.stream,
            length: self.bytes.len() as u32,
            expected: expected as u32,
        }
    }
}

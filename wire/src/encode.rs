//! Frames to bytes.

use crate::payload::{RESULT_CONNECTED, RESULT_FAILED};
use crate::{
    Close, Control, DialReq, DialRsp, FLAG_FIN, FrameType, GoAway, HEADER_LEN, Header, TARGET_LEN_MAX,
    TEXT_LEN_MAX, Window, hello,
};

/// Appends a control frame. Texts longer than their bound are cut at a character.
///
/// Cutting keeps the link alive; it does not make sense of a target, id or token that is too long, so their
/// owner checks them first.
pub fn encode_control(frame: &Control, out: &mut Vec<u8>) {
    let frame_type = frame.frame_type();
    debug_assert_eq!(
        frame_type.has_stream(),
        frame.stream() != 0,
        "{frame_type:?}: 0 is the link, no stream"
    );
    let start = out.len();
    out.extend_from_slice(&[0; HEADER_LEN]);
    encode_payload(frame, out);
    let length = (out.len() - start - HEADER_LEN) as u32;
    let header = Header { length, kind: frame_type as u8, flags: 0, stream: frame.stream() };
    if let Some(place) = out.get_mut(start..start + HEADER_LEN) {
        place.copy_from_slice(&header.to_bytes());
    }
}

/// The header of a DATA frame.
#[must_use]
pub fn encode_data_header(stream: u64, length: u32, fin: bool) -> [u8; HEADER_LEN] {
    debug_assert_ne!(stream, 0, "0 is the link, no stream");
    let flags = if fin { FLAG_FIN } else { 0 };
    Header { length, kind: FrameType::Data as u8, flags, stream }.to_bytes()
}

fn encode_payload(frame: &Control, out: &mut Vec<u8>) {
    match frame {
        Control::DialReq(DialReq { time_left_ms, target, stream: _ }) => {
            out.extend_from_slice(&time_left_ms.to_be_bytes());
            out.extend_from_slice(cut(target, TARGET_LEN_MAX));
        }
        Control::DialRsp(DialRsp { result: Ok(()), stream: _ }) => out.push(RESULT_CONNECTED),
        Control::DialRsp(DialRsp { result: Err(failure), stream: _ }) => {
            out.push(RESULT_FAILED);
            out.extend_from_slice(&(failure.code as u16).to_be_bytes());
            out.extend_from_slice(cut(&failure.text, TEXT_LEN_MAX));
        }
        Control::CloseReq(close) | Control::CloseRsp(close) | Control::DialCls(close) => {
            let Close { code, stream: _ } = close;
            out.extend_from_slice(&(*code as u16).to_be_bytes());
        }
        Control::Drain => {}
        Control::Hello(fields) => hello::encode_hello(fields, out),
        Control::Welcome(fields) => hello::encode_welcome(fields, out),
        Control::Ping(payload) | Control::Pong(payload) => out.extend_from_slice(&payload.to_be_bytes()),
        Control::Window(Window { credit, stream: _ }) => out.extend_from_slice(&credit.to_be_bytes()),
        Control::GoAway(GoAway { code, text }) => {
            out.extend_from_slice(&(*code as u16).to_be_bytes());
            out.extend_from_slice(cut(text, TEXT_LEN_MAX));
        }
    }
}

/// The longest beginning of `text` of at most `len_max` bytes that is still text.
pub(crate) fn cut(text: &str, len_max: usize) -> &[u8] {
    let mut end = len_max.min(text.len());
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text.as_bytes()[..end]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_cut_at_a_character() {
        assert_eq!(cut("abc", 3), b"abc");
        assert_eq!(cut("abc", 2), b"ab");
        assert_eq!(cut("aé€", 2), b"a");
        assert_eq!(cut("aé€", 5), "aé".as_bytes());
        assert_eq!(cut("€", 2), b"");
    }

    #[test]
    fn a_frame_is_appended_behind_what_is_there() {
        let mut out = b"before".to_vec();
        encode_control(&Control::Ping(0x0102), &mut out);
        assert_eq!(out, b"before\0\0\0\x08\x12\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\x02");
    }
}

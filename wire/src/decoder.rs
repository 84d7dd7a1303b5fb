//! Bytes in any split to frames.

use std::fmt;

use crate::{
    CONTROL_LEN_MAX, Control, DecodeError, FLAG_CRITICAL, FLAG_FIN, FrameType, HEADER_LEN, HELLO_LEN_MAX,
    Header, MAGIC, payload,
};

/// What a receiver accepts. Small before WELCOME, raised after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Longest DATA payload, 0 = none yet.
    pub data_len_max: u32,
    /// Longest payload of a control frame (HELLO included). [`crate::CONTROL_LEN_MAX`] and
    /// [`crate::HELLO_LEN_MAX`] hold as well.
    pub control_len_max: u32,
}

/// One thing decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// A control frame, whole.
    Control(Control),
    /// A piece of a DATA frame's payload, in order, as the input was split.
    Data {
        /// The stream.
        stream: u64,
        /// The bytes. Empty only for an empty frame with FIN; an empty one without FIN is not reported.
        chunk: &'a [u8],
        /// True with the last piece of a frame that carries FIN.
        fin: bool,
    },
}

/// Incremental decoder of one direction of one link.
///
/// DATA is passed through: its pieces borrow from the input, nothing is copied or allocated. A control frame
/// that is split over inputs is gathered in one buffer of the payload's length, after that length was found
/// within the limits; the buffer is gone with the frame.
pub struct Decoder {
    limits: Limits,
    state: State,
    /// Bytes of MAGIC or of a header that is not whole yet.
    head: [u8; HEADER_LEN],
    head_len: usize,
    /// Bytes of a control payload that is not whole yet.
    payload: Vec<u8>,
}

/// ```text
/// Magic ─▶ Header ─┬▶ Data ────┐   (each also ends in Failed)
///            ▲     ├▶ Control ─┤
///            │     └▶ Skip ────┤
///            └─────────────────┘
/// ```
#[derive(Clone, Copy, Debug)]
enum State {
    Magic,
    Header,
    /// Inside the payload of DATA. `left` is 0 only for an empty frame with FIN.
    Data {
        stream: u64,
        left: usize,
        fin: bool,
    },
    Control {
        frame: FrameType,
        stream: u64,
        length: usize,
    },
    /// Inside the payload of a type that is not known here.
    Skip {
        left: usize,
    },
    Failed(DecodeError),
}

impl fmt::Debug for Decoder {
    /// Without the bytes: they may be a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Decoder")
            .field("limits", &self.limits)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl Decoder {
    /// A decoder of frames.
    #[must_use]
    pub fn new(limits: Limits) -> Self {
        Self { limits, state: State::Header, head: [0; HEADER_LEN], head_len: 0, payload: Vec::new() }
    }

    /// A decoder that wants [`crate::MAGIC`] first.
    #[must_use]
    pub fn after_magic(limits: Limits) -> Self {
        Self { state: State::Magic, ..Self::new(limits) }
    }

    /// Changes the limits for the frames after the current one.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// Takes bytes off the front of `input` until one item is whole; `None` when `input` is used up.
    ///
    /// # Errors
    /// The peer broke PROTOCOL.md. The decoder must not be used again (it would repeat the error).
    pub fn next<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Item<'a>>, DecodeError> {
        let result = self.advance(input);
        if let Err(error) = result {
            self.state = State::Failed(error);
            self.payload = Vec::new();
        }
        result
    }

    fn advance<'a>(&mut self, input: &mut &'a [u8]) -> Result<Option<Item<'a>>, DecodeError> {
        loop {
            match self.state {
                State::Failed(error) => return Err(error),
                State::Magic => {
                    if !self.take_magic(input)? {
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
                State::Header => {
                    let Some(header) = self.take_header(input) else { return Ok(None) };
                    self.state = self.begin(header)?;
                }
                State::Data { stream, left, fin } => {
                    let chunk = take(input, left);
                    if chunk.is_empty() && left != 0 {
                        return Ok(None);
                    }
                    let left = left - chunk.len();
                    self.state = if left == 0 { State::Header } else { State::Data { stream, left, fin } };
                    return Ok(Some(Item::Data { stream, chunk, fin: fin && left == 0 }));
                }
                State::Control { frame, stream, length } => {
                    let gathered;
                    let whole = if self.payload.is_empty() && input.len() >= length {
                        take(input, length)
                    } else if self.gather(input, length) {
                        gathered = std::mem::take(&mut self.payload);
                        &gathered
                    } else {
                        return Ok(None);
                    };
                    self.state = State::Header;
                    if let Some(control) = payload::decode(frame, stream, whole)? {
                        return Ok(Some(Item::Control(control)));
                    }
                }
                State::Skip { left } => {
                    let left = left - take(input, left).len();
                    if left != 0 {
                        self.state = State::Skip { left };
                        return Ok(None);
                    }
                    self.state = State::Header;
                }
            }
        }
    }
    /// True once MAGIC was read. Judged at the first wrong byte: a stranger that waits for us is named, too.
    fn take_magic(&mut self, input: &mut &[u8]) -> Result<bool, DecodeError> {
        let had = self.head_len;
        let mut first = [0; MAGIC.len()];
        first[..had].copy_from_slice(&self.head[..had]);
        let count = had + input.len().min(MAGIC.len() - had);
        first[had..count].copy_from_slice(&input[..count - had]);
        if first[..count] != MAGIC[..count] {
            return Err(DecodeError::BadMagic { first, count: count as u8 });
        }
        self.head[..count].copy_from_slice(&first[..count]);
        take(input, count - had);
        let whole = count == MAGIC.len();
        self.head_len = if whole { 0 } else { count };
        Ok(whole)
    }

    fn take_header(&mut self, input: &mut &[u8]) -> Option<Header> {
        if self.head_len == 0
            && let Some((bytes, rest)) = input.split_first_chunk()
        {
            *input = rest;
            return Some(Header::from_bytes(bytes));
        }
        let part = take(input, HEADER_LEN - self.head_len);
        let end = self.head_len + part.len();
        self.head[self.head_len..end].copy_from_slice(part);
        self.head_len = end % HEADER_LEN;
        (end == HEADER_LEN).then(|| Header::from_bytes(&self.head))
    }

    /// Judges a header. Nothing of the payload was looked at, nothing was allocated.
    fn begin(&self, header: Header) -> Result<State, DecodeError> {
        let Header { length, kind, flags, stream } = header;
        let known = FrameType::from_u8(kind).filter(|frame| *frame != FrameType::Ack);
        let Some(frame) = known else {
            if flags & FLAG_CRITICAL != 0 {
                return Err(DecodeError::UnknownCriticalFrame { kind, stream });
            }
            Self::check_length(header, self.limits.data_len_max.max(self.control_len_max(CONTROL_LEN_MAX)))?;
            return Ok(State::Skip { left: length as usize });
        };
        match (frame.has_stream(), stream) {
            (true, 0) => return Err(DecodeError::StreamMissing { frame }),
            (false, 1..) => return Err(DecodeError::StreamUnexpected { frame, stream }),
            (true, 1..) | (false, 0) => {}
        }
        match frame {
            FrameType::Data if self.limits.data_len_max == 0 => Err(DecodeError::DataNotAllowed { stream }),
            FrameType::Data => {
                Self::check_length(header, self.limits.data_len_max)?;
                let fin = flags & FLAG_FIN != 0;
                // Nothing to report, and nothing to wait for.
                let empty = length == 0 && !fin;
                Ok(if empty { State::Header } else { State::Data { stream, left: length as usize, fin } })
            }
            _ => {
                let own_max = if frame == FrameType::Hello { HELLO_LEN_MAX } else { CONTROL_LEN_MAX };
                Self::check_length(header, self.control_len_max(own_max))?;
                Ok(State::Control { frame, stream, length: length as usize })
            }
        }
    }

    fn control_len_max(&self, own_max: usize) -> u32 {
        self.limits.control_len_max.min(own_max as u32)
    }

    fn check_length(header: Header, max: u32) -> Result<(), DecodeError> {
        let Header { length, kind, stream, flags: _ } = header;
        if length > max { Err(DecodeError::TooLong { kind, stream, length, max }) } else { Ok(()) }
    }

    /// True once the whole payload is in the buffer.
    fn gather(&mut self, input: &mut &[u8], length: usize) -> bool {
        if input.is_empty() {
            return false;
        }
        if self.payload.is_empty() {
            self.payload.reserve_exact(length);
        }
        let part = take(input, length - self.payload.len());
        self.payload.extend_from_slice(part);
        self.payload.len() == length
    }
}

/// Takes at most `count` bytes off the front.
fn take<'a>(input: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = input.split_at(count.min(input.len()));
    *input = rest;
    taken
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::{DATA_LEN_MAX, Hello, encode_control, encode_data_header};

    const GREETING: Limits = Limits { data_len_max: 0, control_len_max: HELLO_LEN_MAX as u32 };
    const OPEN: Limits =
        Limits { data_len_max: DATA_LEN_MAX as u32, control_len_max: CONTROL_LEN_MAX as u32 };

    fn header(kind: FrameType, length: usize, stream: u64) -> [u8; HEADER_LEN] {
        Header { length: length as u32, kind: kind as u8, flags: 0, stream }.to_bytes()
    }

    fn bytes_of(control: &Control) -> Vec<u8> {
        let mut bytes = Vec::new();
        encode_control(control, &mut bytes);
        bytes
    }

    #[test]
    fn data_is_not_copied_and_needs_no_memory() {
        let mut bytes = encode_data_header(5, 100, true).to_vec();
        bytes.extend_from_slice(&[9; 100]);
        let mut decoder = Decoder::new(OPEN);
        let (mut first, mut second) = bytes.split_at(50);
        let (first_at, second_at) = (first[HEADER_LEN..].as_ptr(), second.as_ptr());
        let Ok(Some(Item::Data { stream: 5, chunk, fin: false })) = decoder.next(&mut first) else {
            panic!()
        };
        assert_eq!((chunk.as_ptr(), chunk.len()), (first_at, 34));
        assert_eq!(decoder.next(&mut first), Ok(None));
        let Ok(Some(Item::Data { stream: 5, chunk, fin: true })) = decoder.next(&mut second) else {
            panic!()
        };
        assert_eq!((chunk.as_ptr(), chunk.len()), (second_at, 66));
        assert_eq!(decoder.next(&mut second), Ok(None));
        assert_eq!(decoder.payload.capacity(), 0);
    }

    #[test]
    fn magic_is_judged_at_the_first_wrong_byte() {
        let mut decoder = Decoder::after_magic(GREETING);
        assert_eq!(decoder.next(&mut &MAGIC[..3]), Ok(None));
        let error = decoder.next(&mut &b"X"[..]);
        let Err(DecodeError::BadMagic { first, count: 4 }) = error else { panic!("{error:?}") };
        assert_eq!(first, *b"\xabTAX\0\0\0\0");
        assert_eq!(decoder.next(&mut &MAGIC[..]), error.map(|_: Option<Item<'_>>| None), "no second chance");

        let error = Decoder::after_magic(GREETING).next(&mut &b"PRI * HTTP/2.0\r\n"[..]);
        assert_eq!(error, Err(DecodeError::BadMagic { first: *b"PRI * HT", count: 8 }));
    }

    #[test]
    fn new_limits_hold_from_the_next_frame() {
        let mut decoder = Decoder::new(GREETING);
        let mut bytes = bytes_of(&Control::Ping(1));
        bytes.extend_from_slice(&encode_data_header(1, 3, false));
        bytes.extend_from_slice(b"abc");
        let mut input = &bytes[..];
        assert_eq!(decoder.next(&mut input), Ok(Some(Item::Control(Control::Ping(1)))));
        decoder.set_limits(Limits { data_len_max: 3, ..OPEN });
        let mut part = &input[..HEADER_LEN + 1];
        assert_eq!(decoder.next(&mut part), Ok(Some(Item::Data { stream: 1, chunk: b"a", fin: false })));
        decoder.set_limits(GREETING);
        let mut part = &input[HEADER_LEN + 1..];
        assert_eq!(decoder.next(&mut part), Ok(Some(Item::Data { stream: 1, chunk: b"bc", fin: false })));
        let late = encode_data_header(1, 0, true);
        let refused = decoder.next(&mut &late[..]);
        assert_eq!(refused, Err(DecodeError::DataNotAllowed { stream: 1 }));
    }

    #[test]
    fn each_type_has_its_bound_and_the_caller_may_lower_it() {
        let small = Limits { data_len_max: 10, control_len_max: 20 };
        for (limits, kind, stream, max) in [
            (GREETING, FrameType::Hello, 0, HELLO_LEN_MAX),
            (OPEN, FrameType::Hello, 0, CONTROL_LEN_MAX),
            (GREETING, FrameType::Welcome, 0, CONTROL_LEN_MAX),
            (GREETING, FrameType::Ack, 1, CONTROL_LEN_MAX),
            (OPEN, FrameType::Ack, 1, DATA_LEN_MAX),
            (small, FrameType::Hello, 0, 20),
            (small, FrameType::GoAway, 0, 20),
            (small, FrameType::Data, 1, 10),
            (small, FrameType::Ack, 0, 20),
        ] {
            let mut decoder = Decoder::new(limits);
            assert_eq!(decoder.next(&mut &header(kind, max, stream)[..]), Ok(None), "{kind:?}");
            assert_eq!(decoder.payload.capacity(), 0, "a header alone costs nothing");
            let over = header(kind, max + 1, stream);
            let error = Decoder::new(limits).next(&mut &over[..]);
            let (length, max) = (max as u32 + 1, max as u32);
            assert_eq!(error, Err(DecodeError::TooLong { kind: kind as u8, stream, length, max }));
        }
    }

    #[test]
    fn bytes_that_wait_are_not_in_debug_output() {
        let bytes = bytes_of(&Control::Hello(Hello { token: Some("xyzzy".into()), ..Hello::default() }));
        let mut decoder = Decoder::new(GREETING);
        assert_eq!(decoder.next(&mut &bytes[..bytes.len() - 1]), Ok(None));
        let token = format!("{:?}", b"xyzzy");
        assert!(format!("{:?}", decoder.payload).contains(token.trim_matches(['[', ']'])), "it does wait");
        assert!(!format!("{decoder:?}").contains(token.trim_matches(['[', ']'])));
    }

    proptest! {
        #[test]
        fn memory_stays_within_the_limits_and_goes_with_the_frame(
            kind in 0..24_u8, length: u32, exponent in 0..32_u32, noise in prop::collection::vec(any::<u8>(), 0..64),
        ) {
            let length = length >> exponent;
            let stream = u64::from(FrameType::from_u8(kind).is_none_or(FrameType::has_stream));
            let mut bytes = Header { length, kind, flags: 0, stream }.to_bytes().to_vec();
            bytes.extend_from_slice(&noise);
            for limits in [GREETING, OPEN, Limits { data_len_max: 1, control_len_max: 30 }] {
                let mut decoder = Decoder::new(limits);
                for mut piece in bytes.chunks(7) {
                    while let Ok(Some(_)) = decoder.next(&mut piece) {}
                    prop_assert!(decoder.payload.capacity() <= limits.control_len_max as usize);
                    prop_assert!(decoder.payload.capacity() <= HELLO_LEN_MAX);
                    if !matches!(decoder.state, State::Control { .. }) {
                        prop_assert_eq!(decoder.payload.capacity(), 0);
                    }
                }
            }
        }
    }
}

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

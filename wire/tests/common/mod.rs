//! What the tests and the fuzz target share: a run of the decoder as a list that does not depend on the split.

use tautline_wire::{
    CONTROL_LEN_MAX, Control, DATA_LEN_MAX, DecodeError, Decoder, HELLO_LEN_MAX, Item, Limits,
};

/// Limits of a link that is set up.
pub(crate) const OPEN: Limits =
    Limits { data_len_max: DATA_LEN_MAX as u32, control_len_max: CONTROL_LEN_MAX as u32 };
/// Limits before WELCOME.
pub(crate) const GREETING: Limits = Limits { data_len_max: 0, control_len_max: HELLO_LEN_MAX as u32 };
/// Everything that any frame may be.
pub(crate) const WIDE: Limits =
    Limits { data_len_max: DATA_LEN_MAX as u32, control_len_max: HELLO_LEN_MAX as u32 };

/// An [`Item`] that owns its bytes. Neighbouring pieces of one stream are one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// A control frame.
    Control(Control),
    /// Bytes of a stream.
    Data { stream: u64, bytes: Vec<u8>, fin: bool },
}

/// What came out of a run.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Outcome {
    /// In order.
    pub(crate) events: Vec<Event>,
    /// Why the run ended early.
    pub(crate) error: Option<DecodeError>,
}

/// Feeds `pieces` and collects what comes out.
pub(crate) fn run<'a>(mut decoder: Decoder, pieces: impl IntoIterator<Item = &'a [u8]>) -> Outcome {
    let mut events = Vec::new();
    for piece in pieces {
        let mut input = piece;
        loop {
            match decoder.next(&mut input) {
                Ok(Some(item)) => push(&mut events, item),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(decoder.next(&mut input), Err(error), "a broken decoder stays broken");
                    return Outcome { events, error: Some(comparable(error)) };
                }
            }
        }
        assert!(input.is_empty(), "None means that the input is used up");
    }
    Outcome { events, error: None }
}

fn push(events: &mut Vec<Event>, item: Item<'_>) {
    match item {
        Item::Control(control) => events.push(Event::Control(control)),
        Item::Data { stream, chunk, fin } => {
            assert!(fin || !chunk.is_empty(), "a piece without bytes and without FIN says nothing");
            if let Some(Event::Data { stream: last, bytes, fin: last_fin @ false }) = events.last_mut()
                && *last == stream
            {
                bytes.extend_from_slice(chunk);
                *last_fin = fin;
            } else {
                events.push(Event::Data { stream, bytes: chunk.to_vec(), fin });
            }
        }
    }
}

/// How much of a stranger's first bytes is there at the first wrong one depends on the split; nothing else does.
fn comparable(error: DecodeError) -> DecodeError {
    match error {
        DecodeError::BadMagic { .. } => DecodeError::BadMagic { first: [0; 8], count: 1 },
        other => other,
    }
}

/// Cuts `bytes` in pieces of 0 bytes up to about a header and a half, now and then a long one. Equal seeds cut equally.
pub(crate) fn split(bytes: &[u8], seed: u64) -> Vec<&[u8]> {
    let mut state = seed | 1;
    let mut rest = bytes;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        // xorshift64
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        let length = if state.is_multiple_of(11) { state >> 53 } else { (state >> 32) % 24 };
        let (piece, behind) = rest.split_at((length as usize).min(rest.len()));
        pieces.push(piece);
        rest = behind;
    }
    pieces
}

//! HELLO and WELCOME: tag-length-value fields, so that versions can differ.

use crate::encode::cut;
use crate::payload::decode_text;
use crate::{
    CREDIT_MAX, DecodeError, FieldFault, FrameType, Hello, ID_LEN_MAX, IDENTIFIERS_LEN_MAX, TOKEN_LEN_MAX,
    Welcome,
};

/// In a tag: a receiver that does not know the field must end the link instead of skipping it.
const CRITICAL: u16 = 0x8000;

// One list of tags for both frames; a tag of the other frame is an unknown one. 32-47 are reserved for resuming.
const VERSIONS: u16 = 1;
const VERSION: u16 = 2;
const FEATURES: u16 = 3;
const AGENT_ID: u16 = 4;
const SERVER_ID: u16 = 5;
const IDENTIFIERS: u16 = 6;
const TOKEN: u16 = 7;
const PING_INTERVAL_MS: u16 = 8;
const WINDOW: u16 = 9;
const DATA_LEN_MAX: u16 = 10;
const SERVER_COUNT: u16 = 11;

/// The name of a field, for people.
pub(crate) const fn field_name(tag: u16) -> &'static str {
    match tag {
        VERSIONS => "versions",
        VERSION => "version",
        FEATURES => "features",
        AGENT_ID => "agent_id",
        SERVER_ID => "server_id",
        IDENTIFIERS => "identifiers",
        TOKEN => "token",
        PING_INTERVAL_MS => "ping_interval_ms",
        WINDOW => "window",
        DATA_LEN_MAX => "data_len_max",
        SERVER_COUNT => "server_count",
        _ => "unknown",
    }
}

pub(crate) fn decode_hello(payload: &[u8]) -> Result<Hello, DecodeError> {
    let mut hello = Hello::default();
    let mut fields = Fields::new(FrameType::Hello, payload);
    while let Some(field) = fields.next()? {
        match field.tag {
            VERSIONS => {
                let [a, b, c, d] = field.fixed()?;
                hello.version_min = u16::from_be_bytes([a, b]);
                hello.version_max = u16::from_be_bytes([c, d]);
                field.require(hello.version_min <= hello.version_max)?;
            }
            FEATURES => hello.features = u64::from_be_bytes(field.fixed()?),
            AGENT_ID => hello.agent_id = field.id()?,
            IDENTIFIERS => hello.identifiers = field.text(IDENTIFIERS_LEN_MAX)?,
            TOKEN => hello.token = Some(field.text(TOKEN_LEN_MAX)?),
            PING_INTERVAL_MS => hello.ping_interval_ms = u32::from_be_bytes(field.fixed()?),
            WINDOW => hello.window = field.window()?,
            DATA_LEN_MAX => hello.data_len_max = field.non_zero()?,
            _ => {
                field.skip()?;
                continue;
            }
        }
        fields.mark(field)?;
    }
    fields.require(&[VERSIONS, AGENT_ID, WINDOW, DATA_LEN_MAX])?;
    Ok(hello)
}

pub(crate) fn decode_welcome(payload: &[u8]) -> Result<Welcome, DecodeError> {
    let mut welcome = Welcome { server_count: 1, ..Welcome::default() };
    let mut fields = Fields::new(FrameType::Welcome, payload);
    while let Some(field) = fields.next()? {
        match field.tag {
            VERSION => welcome.version = u16::from_be_bytes(field.fixed()?),
            FEATURES => welcome.features = u64::from_be_bytes(field.fixed()?),
            SERVER_ID => welcome.server_id = field.id()?,
            WINDOW => welcome.window = field.window()?,
            DATA_LEN_MAX => welcome.data_len_max = field.non_zero()?,
            SERVER_COUNT => welcome.server_count = field.non_zero()?,
            _ => {
                field.skip()?;
                continue;
            }
        }
        fields.mark(field)?;
    }
    fields.require(&[VERSION, SERVER_ID, WINDOW, DATA_LEN_MAX])?;
    Ok(welcome)
}

/// Appends the fields, tags rising.
pub(crate) fn encode_hello(hello: &Hello, out: &mut Vec<u8>) {
    let versions = (u32::from(hello.version_min) << 16) | u32::from(hello.version_max);
    put(out, VERSIONS, &versions.to_be_bytes());
    put(out, FEATURES, &hello.features.to_be_bytes());
    put(out, AGENT_ID, cut(&hello.agent_id, ID_LEN_MAX));
    put(out, IDENTIFIERS, cut(&hello.identifiers, IDENTIFIERS_LEN_MAX));
    if let Some(token) = &hello.token {
        put(out, TOKEN, cut(token, TOKEN_LEN_MAX));
    }
    put(out, PING_INTERVAL_MS, &hello.ping_interval_ms.to_be_bytes());
    put(out, WINDOW, &hello.window.to_be_bytes());
    put(out, DATA_LEN_MAX, &hello.data_len_max.to_be_bytes());
}

/// Appends the fields, tags rising.
pub(crate) fn encode_welcome(welcome: &Welcome, out: &mut Vec<u8>) {
    put(out, VERSION, &welcome.version.to_be_bytes());
    put(out, FEATURES, &welcome.features.to_be_bytes());
    put(out, SERVER_ID, cut(&welcome.server_id, ID_LEN_MAX));
    put(out, WINDOW, &welcome.window.to_be_bytes());
    put(out, DATA_LEN_MAX, &welcome.data_len_max.to_be_bytes());
    put(out, SERVER_COUNT, &welcome.server_count.to_be_bytes());
}

/// Values are at most [`TOKEN_LEN_MAX`] long, so their length fits.
fn put(out: &mut Vec<u8>, tag: u16, value: &[u8]) {
    out.extend_from_slice(&tag.to_be_bytes());
    out.extend_from_slice(&(value.len() as u16).to_be_bytes());
    out.extend_from_slice(value);
}

/// Walks over the fields of one payload.
struct Fields<'a> {
    frame: FrameType,
    payload: &'a [u8],
    rest: &'a [u8],
    /// Bit n: the known field with tag n was there.
    seen: u64,
}

impl<'a> Fields<'a> {
    fn new(frame: FrameType, payload: &'a [u8]) -> Self {
        Self { frame, payload, rest: payload, seen: 0 }
    }

    fn next(&mut self) -> Result<Option<Field<'a>>, DecodeError> {
        if self.rest.is_empty() {
            return Ok(None);
        }
        let at = (self.payload.len() - self.rest.len()) as u32;
        let truncated = DecodeError::FieldTruncated { frame: self.frame, at };
        let (&[t0, t1, l0, l1], rest) = self.rest.split_first_chunk().ok_or(truncated)?;
        let length = usize::from(u16::from_be_bytes([l0, l1]));
        let (value, rest) = rest.split_at_checked(length).ok_or(truncated)?;
        self.rest = rest;
        let tag = u16::from_be_bytes([t0, t1]);
        Ok(Some(Field { frame: self.frame, tag: tag & !CRITICAL, critical: tag & CRITICAL != 0, value }))
    }

    /// Notes that a known field was there. Two values for one thing: whoever checks reads one, whoever acts the other.
    fn mark(&mut self, field: Field<'_>) -> Result<(), DecodeError> {
        let bit = 1 << field.tag;
        if self.seen & bit != 0 {
            return Err(field.error(FieldFault::Twice));
        }
        self.seen |= bit;
        Ok(())
    }

    fn require(&self, tags: &[u16]) -> Result<(), DecodeError> {
        match tags.iter().find(|tag| self.seen & (1 << **tag) == 0) {
            Some(tag) => Err(DecodeError::Field { frame: self.frame, tag: *tag, fault: FieldFault::Missing }),
            None => Ok(()),
        }
    }
}

#[derive(Clone, Copy)]
struct Field<'a> {
    frame: FrameType,
    /// Without the critical bit.
    tag: u16,
    critical: bool,
    value: &'a [u8],
}

impl Field<'_> {
    fn fixed<const N: usize>(self) -> Result<[u8; N], DecodeError> {
        let fault = FieldFault::Length { length: self.value.len() as u16, expected: N as u16 };
        self.value.try_into().map_err(|_| self.error(fault))
    }

    fn text(self, len_max: usize) -> Result<String, DecodeError> {
        decode_text(self.frame, field_name(self.tag), self.value, len_max)
    }

    /// An id is a key in tables and a word in logs: it cannot be empty.
    fn id(self) -> Result<String, DecodeError> {
        self.require(!self.value.is_empty())?;
        self.text(ID_LEN_MAX)
    }

    fn window(self) -> Result<u32, DecodeError> {
        let window = u32::from_be_bytes(self.fixed()?);
        self.require(window <= CREDIT_MAX)?;
        Ok(window)
    }

    fn non_zero(self) -> Result<u32, DecodeError> {
        let number = u32::from_be_bytes(self.fixed()?);
        self.require(number != 0)?;
        Ok(number)
    }

    fn require(self, holds: bool) -> Result<(), DecodeError> {
        if holds { Ok(()) } else { Err(self.error(FieldFault::Value)) }
    }

    /// An unknown field.
    fn skip(self) -> Result<(), DecodeError> {
        if self.critical { Err(self.error(FieldFault::UnknownCritical)) } else { Ok(()) }
    }

    fn error(self, fault: FieldFault) -> DecodeError {
        DecodeError::Field { frame: self.frame, tag: self.tag, fault }
    }
}

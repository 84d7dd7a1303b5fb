//! One TLS connection on rustls's unbuffered interface.

use std::fmt;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{ServerName, UnixTime};
use rustls::server::UnbufferedServerConnection;
use rustls::unbuffered::{
    ConnectionState, EncodeError, EncodeTlsData, EncryptError, UnbufferedStatus, WriteTraffic,
};
use rustls::{CertificateError, CommonState, HandshakeKind};

use super::certificate;
use super::clock::WallClock;
use super::config::{ClientTls, ServerTls};
use super::error::{TlsError, looks_like};

/// Most payload of one record, in bytes (RFC 8446 section 5.1).
pub const RECORD_PAYLOAD_MAX: usize = 16 * 1024;
/// Most bytes that [`Tls::receive`] leaves unconsumed if `plain` never breaks: a part of a record, behind the
/// records of an unfinished handshake message. Without the latter it is a part of a record: 18 KiB.
pub const UNCONSUMED_MAX: usize = UNFINISHED_MAX + RECORD_LEN_MAX;

const HEADER_LEN: usize = 5;
/// Longest record that rustls takes: payload, and the 2 KiB that TLS 1.2 allows for its protection.
const RECORD_LEN_MAX: usize = HEADER_LEN + RECORD_PAYLOAD_MAX + 2048;
/// Longest run of records that hold an unfinished handshake message. Chains of certificates have a few KiB;
/// rustls would take 64 KiB, and many times that in tiny records, from peers that are not known yet.
const UNFINISHED_MAX: usize = 32 * 1024;
/// Most bytes that sealing adds to a record: header, explicit nonce of TLS 1.2, tag. TLS 1.3 adds 22.
const RECORD_OVERHEAD_MAX: usize = HEADER_LEN + 8 + 16;
/// Room for a key update or an alert.
const SMALL_RECORD_LEN: usize = 64;

/// What [`Tls::receive`] did.
#[must_use]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Bytes at the front of the input that are done with. The rest must come again, as it is now, with
    /// what was read after it.
    pub consumed: usize,
    /// The peer's close_notify was seen, in this call or before: it sends no more, and what came is whole.
    /// An end of file without it is a cut (or an attack), the caller judges.
    pub peer_closed: bool,
    /// The handshake ended in this call.
    pub handshake_done: bool,
}

/// A TLS connection, either side. Holds no record buffers.
///
/// After an error nothing works any more; what the failing call wrote to `out` (an alert) should still be
/// sent before the socket is closed.
pub struct Tls {
    // Boxed: 1 KiB that connections without TLS need not carry in their enum.
    connection: Box<Connection>,
    intake: Intake,
    record_payload_max: usize,
    write_closed: bool,
    failed: Option<Box<TlsError>>,
}

enum Connection {
    Client(UnbufferedClientConnection),
    Server(UnbufferedServerConnection),
}

impl Connection {
    fn common(&self) -> &CommonState {
        match self {
            Self::Client(client) => client,
            Self::Server(server) => server,
        }
    }
}

/// Runs an expression with the connection of either side, which are different types with one interface.
macro_rules! either_side {
    ($connection:expr, $engine:ident => $body:expr) => {
        match $connection {
            Connection::Client($engine) => $body,
            Connection::Server($engine) => $body,
        }
    };
}

impl Tls {
    /// A client that wants `server_name` in the server's certificate. Then call [`Tls::start`].
    ///
    /// # Errors
    /// If rustls refuses the configuration or has no random numbers.
    pub fn client(tls: &ClientTls, server_name: ServerName<'static>) -> Result<Self, TlsError> {
        let client = UnbufferedClientConnection::new(Arc::clone(&tls.config), server_name)?;
        Ok(Self::new(Connection::Client(client), &tls.clock))
    }

    /// A server's side of an accepted connection.
    ///
    /// # Errors
    /// If rustls refuses the configuration.
    pub fn server(tls: &ServerTls) -> Result<Self, TlsError> {
        let server = UnbufferedServerConnection::new(Arc::clone(&tls.config))?;
        Ok(Self::new(Connection::Server(server), &tls.clock))
    }

    fn new(connection: Connection, clock: &WallClock) -> Self {
        Self {
            connection: Box::new(connection),
            intake: Intake {
                clock: clock.clone(),
                unfinished_len: 0,
                heard_tls: false,
                admitted: false,
                peer_closed: false,
            },
            record_payload_max: RECORD_PAYLOAD_MAX,
            write_closed: false,
            failed: None,
        }
    }

    /// Appends the ClientHello to `out`. Does nothing on the server's side, or a second time.
    ///
    /// # Errors
    /// If rustls cannot make it.
    pub fn start(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        if !self.is_handshaking() {
            return Ok(());
        }
        self.receive(&mut [], out, |_| ControlFlow::Continue(())).map(|_| ())
    }

    /// Takes what was received: `input` begins with what the last call left. Records are opened in place.
    /// Plaintext goes to `plain`, one record (at most 16 KiB) a call; answers and alerts are appended
    /// to `out`.
    ///
    /// If `plain` breaks, its record counts as taken and the rest of the input is left unconsumed.
    /// After the peer's close_notify input is consumed and ignored.
    ///
    /// # Errors
    /// Final: every later call returns the same error. `out` may hold an alert to send.
    pub fn receive(
        &mut self,
        input: &mut [u8],
        out: &mut Vec<u8>,
        mut plain: impl FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<Received, TlsError> {
        self.check()?;
        let was_handshaking = self.is_handshaking();
        let intake = &mut self.intake;
        let result =
            either_side!(&mut *self.connection, engine => intake.run(engine, input, out, &mut plain));
        let consumed = result.map_err(|error| self.fail(error))?;
        Ok(Received {
            consumed,
            peer_closed: self.intake.peer_closed,
            handshake_done: was_handshaking && !self.is_handshaking(),
        })
    }

    /// Appends `plaintext` to `out` as whole records. Keys are renewed as needed (TLS 1.3).
    ///
    /// # Errors
    /// [`TlsError::Handshaking`] and [`TlsError::WriteClosed`] are ours and change nothing; others are final.
    pub fn seal(&mut self, plaintext: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.check()?;
        if self.is_handshaking() {
            return Err(TlsError::Handshaking);
        }
        if self.write_closed {
            return Err(TlsError::WriteClosed);
        }
        let (unfinished_len, payload_max) = (self.intake.unfinished_len, self.record_payload_max);
        let result = either_side!(&mut *self.connection, engine => {
            with_traffic(engine, unfinished_len, out, |traffic, out| {
                append_records(plaintext, payload_max, out, |chunk, room| traffic.encrypt(chunk, room))
            })
        });
        result.map_err(|error| self.fail(error))
    }

    /// Sets the most payload that [`Tls::seal`] puts in one record, in bytes: between 1 and
    /// [`RECORD_PAYLOAD_MAX`], which it is from the start. Small records show sooner on a slow network.
    pub fn set_record_payload_max(&mut self, bytes: usize) {
        self.record_payload_max = bytes.clamp(1, RECORD_PAYLOAD_MAX);
    }

    /// Appends our close_notify to `out`: we send no more, and may still receive. Writes nothing a second
    /// time, before the end of the handshake (TLS cannot say it then), or after an error.
    ///
    /// # Errors
    /// If rustls cannot make it.
    pub fn close_notify(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        if self.write_closed || self.failed.is_some() || self.is_handshaking() {
            self.write_closed = true;
            return Ok(());
        }
        self.write_closed = true;
        let unfinished_len = self.intake.unfinished_len;
        let result = either_side!(&mut *self.connection, engine => {
            with_traffic(engine, unfinished_len, out, |traffic, out| {
                append(out, SMALL_RECORD_LEN, |room| traffic.queue_close_notify(room))
            })
        });
        result.map_err(|error| self.fail(error))
    }

    /// True until both directions may carry data.
    #[must_use]
    pub fn is_handshaking(&self) -> bool {
        self.connection.common().is_handshaking()
    }

    /// True once the peer's close_notify was received.
    #[must_use]
    pub const fn peer_closed(&self) -> bool {
        self.intake.peer_closed
    }

    /// True once our close_notify was made.
    #[must_use]
    pub const fn write_closed(&self) -> bool {
        self.write_closed
    }

    /// The application protocol agreed on.
    #[must_use]
    pub fn alpn(&self) -> Option<&[u8]> {
        self.connection.common().alpn_protocol()
    }

    /// True if the handshake resumed an earlier session; false before it is known.
    #[must_use]
    pub fn is_resumed(&self) -> bool {
        self.connection.common().handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Version and cipher suite, for a log line; `None` before they are known.
    #[must_use]
    pub fn parameters(&self) -> Option<String> {
        let common = self.connection.common();
        let (version, suite) = (common.protocol_version()?, common.negotiated_cipher_suite()?);
        Some(format!("{version:?} {:?}", suite.suite()))
    }

    /// The common name of the peer's certificate, else its first DNS or URI name: for logs, at most 128
    /// characters, no control characters. Not proof of anything: rustls checked the certificate, not this.
    #[must_use]
    pub fn peer_name(&self) -> Option<String> {
        certificate::name(self.connection.common().peer_certificates()?.first()?)
    }

    /// When the peer's certificate ends, in seconds since the Unix epoch.
    #[must_use]
    pub fn peer_not_after_unix_s(&self) -> Option<u64> {
        certificate::not_after_unix_s(self.connection.common().peer_certificates()?.first()?)
    }

    fn check(&self) -> Result<(), TlsError> {
        match &self.failed {
            None => Ok(()),
            Some(error) => Err((**error).clone()),
        }
    }

    fn fail(&mut self, error: TlsError) -> TlsError {
        self.failed = Some(Box::new(error.clone()));
        error
    }
}

impl fmt::Debug for Tls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tls")
            .field("handshaking", &self.is_handshaking())
            .field("intake", &self.intake)
            .field("write_closed", &self.write_closed)
            .field("failed", &self.failed)
            .finish_non_exhaustive()
    }
}

/// rustls's connection of either side.
trait Engine {
    type Data;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data>;
    fn common(&self) -> &CommonState;
}

impl Engine for UnbufferedClientConnection {
    type Data = rustls::client::ClientConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn common(&self) -> &CommonState {
        self
    }
}

impl Engine for UnbufferedServerConnection {
    type Data = rustls::server::ServerConnectionData;

    fn process<'c, 'i>(&'c mut self, input: &'i mut [u8]) -> UnbufferedStatus<'c, 'i, Self::Data> {
        self.process_tls_records(input)
    }

    fn common(&self) -> &CommonState {
        self
    }
}

/// The receiving half's state beside rustls's.
#[derive(Debug)]
struct Intake {
    clock: WallClock,
    /// Bytes at the front of the input that rustls has opened and still needs: records of a handshake
    /// message whose end is missing. Almost always 0.
    unfinished_len: usize,
    /// A whole record has come: the peer speaks TLS.
    heard_tls: bool,
    /// The handshake is complete and the peer's certificate was looked at.
    admitted: bool,
    peer_closed: bool,
}

impl Intake {
    fn run<E: Engine>(
        &mut self,
        engine: &mut E,
        input: &mut [u8],
        out: &mut Vec<u8>,
        plain: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<usize, TlsError> {
        let first = if self.heard_tls { Vec::new() } else { input[..input.len().min(32)].to_vec() };
        let result = self.advance(engine, input, out, plain);
        // An alert goes out also, and above all, after an error.
        flush(engine, out);
        match result {
            Err(TlsError::Protocol(rustls::Error::InvalidMessage(_))) if !self.heard_tls => {
                Err(TlsError::NotTls(looks_like(&first)))
            }
            result => result,
        }
    }

    /// rustls is shown one whole record at a time, behind those of an unfinished handshake message. So it
    /// is known which bytes it has opened, and [`with_traffic`] can stand in for them.
    fn advance<E: Engine>(
        &mut self,
        engine: &mut E,
        input: &mut [u8],
        out: &mut Vec<u8>,
        plain: &mut dyn FnMut(&[u8]) -> ControlFlow<()>,
    ) -> Result<usize, TlsError> {
        let mut start = 0;
        let mut end = self.unfinished_len.min(input.len());
        let mut flow = ControlFlow::Continue(());
        while flow.is_continue() {
            if self.peer_closed {
                self.unfinished_len = 0;
                return Ok(input.len());
            }
            let UnbufferedStatus { discard, state } = engine.process(&mut input[start..end]);
            let mut wants_input = false;
            match state? {
                ConnectionState::EncodeTlsData(data) => encode(data, out)?,
                ConnectionState::TransmitTlsData(data) => data.done(),
                ConnectionState::ReadTraffic(mut traffic) => {
                    while let Some(record) = traffic.next_record() {
                        flow = plain(record?.payload);
                    }
                }
                ConnectionState::PeerClosed | ConnectionState::Closed => self.peer_closed = true,
                ConnectionState::BlockedHandshake | ConnectionState::WriteTraffic(_) => wants_input = true,
                _ => return Err(TlsError::Unexpected("early data")),
            }
            start += discard;
            self.admit(engine.common())?;
            if !wants_input {
                continue;
            }
            if end - start > UNFINISHED_MAX {
                return Err(TlsError::TooFragmented);
            }
            match next_record(&input[end..]) {
                Next::Whole(len) => {
                    self.heard_tls = true;
                    end += len;
                }
                Next::Cut => break,
                Next::Bad => {
                    // Only rustls can make the alert, so it is shown the header.
                    engine.process(&mut input[start..]).state?;
                    return Err(TlsError::Unexpected("a header that only we refuse"));
                }
            }
        }
        self.unfinished_len = end - start;
        Ok(start)
    }

    /// Before the first plaintext: a resumed handshake verifies no certificate, so one that ended since is refused here.
    fn admit(&mut self, common: &CommonState) -> Result<(), TlsError> {
        if self.admitted || common.is_handshaking() {
            return Ok(());
        }
        self.admitted = true;
        let leaf = common.peer_certificates().and_then(|chain| chain.first());
        let not_after_unix_s = leaf.and_then(|leaf| certificate::not_after_unix_s(leaf));
        match (not_after_unix_s, self.clock.unix_s()) {
            (Some(end), Some(now)) if end < now => {
                let time = |seconds| UnixTime::since_unix_epoch(Duration::from_secs(seconds));
                let expired = CertificateError::ExpiredContext { time: time(now), not_after: time(end) };
                Err(rustls::Error::InvalidCertificate(expired).into())
            }
            _ => Ok(()),
        }
    }
}

enum Next {
    Whole(usize),
    Cut,
    Bad,
}

/// The record at the front of `input`. Bad is what rustls refuses by the header alone.
fn next_record(input: &[u8]) -> Next {
    let [kind, major, _, high, low, ..] = *input else { return Next::Cut };
    let len = HEADER_LEN + usize::from(u16::from_be_bytes([high, low]));
    if !(20..=24).contains(&kind) || major != 3 || len >= RECORD_LEN_MAX {
        Next::Bad
    } else if len > input.len() {
        Next::Cut
    } else {
        Next::Whole(len)
    }
}

/// Moves what rustls has to say to `out`. Never lets it look for input.
fn flush<E: Engine>(engine: &mut E, out: &mut Vec<u8>) {
    while engine.common().wants_write() {
        let Ok(ConnectionState::EncodeTlsData(data)) = engine.process(&mut []).state else { return };
        if encode(data, out).is_err() {
            return;
        }
    }
}

fn encode<Data>(mut data: EncodeTlsData<'_, Data>, out: &mut Vec<u8>) -> Result<(), TlsError> {
    // Asked with no room it tells its length.
    let Err(EncodeError::InsufficientSize(size)) = data.encode(&mut []) else {
        return Err(TlsError::Unexpected("empty handshake data"));
    };
    let at = out.len();
    out.resize(at + size.required_size, 0);
    data.encode(&mut out[at..]).map_err(|_| TlsError::Unexpected("handshake data changed its length"))?;
    Ok(())
}

/// Runs `action` with rustls's writer, which it gives only in answer to input.
///
/// rustls skips the bytes it has opened before, and would panic if they were missing. Their contents do not
/// matter as long as the message they belong to is not complete, so zeros stand in for them.
fn with_traffic<E: Engine>(
    engine: &mut E,
    unfinished_len: usize,
    out: &mut Vec<u8>,
    action: impl FnOnce(&mut WriteTraffic<'_, E::Data>, &mut Vec<u8>) -> Result<(), TlsError>,
) -> Result<(), TlsError> {
    let mut stand_in = vec![0; unfinished_len];
    loop {
        match engine.process(&mut stand_in).state? {
            ConnectionState::EncodeTlsData(data) => encode(data, out)?,
            ConnectionState::TransmitTlsData(data) => data.done(),
            ConnectionState::WriteTraffic(mut traffic) => return action(&mut traffic, out),
            _ => return Err(TlsError::Unexpected("no writer after the handshake")),
        }
    }
}

/// Seals `plaintext` in chunks behind `out`, which grows once.
fn append_records(
    plaintext: &[u8],
    payload_max: usize,
    out: &mut Vec<u8>,
    mut encrypt: impl FnMut(&[u8], &mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), TlsError> {
    let records = plaintext.len().div_ceil(payload_max);
    out.reserve(plaintext.len() + records * RECORD_OVERHEAD_MAX + SMALL_RECORD_LEN);
    for chunk in plaintext.chunks(payload_max) {
        append(out, chunk.len() + RECORD_OVERHEAD_MAX, |room| encrypt(chunk, room))?;
    }
    Ok(())
}

/// Appends what `write` makes to `out`. If `room` bytes do not do (a key update comes first), rustls says
/// how many will.
fn append(
    out: &mut Vec<u8>,
    room: usize,
    mut write: impl FnMut(&mut [u8]) -> Result<usize, EncryptError>,
) -> Result<(), TlsError> {
    let at = out.len();
    out.resize(at + room, 0);
    let mut written = write(&mut out[at..]);
    if let Err(EncryptError::InsufficientSize(size)) = written {
        out.resize(at + size.required_size, 0);
        written = write(&mut out[at..]);
    }
    out.truncate(at + *written.as_ref().unwrap_or(&0));
    match written {
        Ok(_) => Ok(()),
        Err(EncryptError::EncryptExhausted) => Err(TlsError::KeysExhausted),
        Err(EncryptError::InsufficientSize(_)) => Err(TlsError::Unexpected("record changed its length")),
    }
}

//! What a role asked for, done.

use tautline_wire::{Control, GoAway, encode_control};

use super::conn::{Closing, Conn, Half, Mode, Tunnel, Watch};
use super::{App, is_closing, translate};
use crate::core::ids::{JobId, StreamKey};
use crate::core::note::{Level, Note};
use crate::core::role::{Effect, Manner, Role};
use crate::key::Key;
use crate::limits::CLOSING_POLL_MIN;
use crate::net::sys::{Class, Job, Sys};

impl<S: Sys, R: Role> App<S, R> {
    /// Does everything that the role asks for. Called after each change of the role.
    pub(super) fn pump(&mut self) {
        while let Some(effect) = self.role.poll_effect() {
            match effect {
                Effect::Resolve { job, host, port, link } => self.resolve(job, host, port, link),
                Effect::ReadToken { job } => self.read_token(job),
                Effect::Review { job, token } => self.review(job, token),
                Effect::CancelJob { job } => self.sys.cancel(job.0),
                Effect::Connect { job, to, link } => self.connect(job, to, link),
                Effect::CancelConnect { job } => {
                    if let Some(key) = self.connects.remove(&job) {
                        self.discard(key);
                    }
                }
                Effect::StartLink { conn } => self.start_link(conn),
                Effect::Bridge { conn, link, stream, answer } => self.bridge(conn, link, stream, answer),
                Effect::Answer { conn, bytes } => self.answer(conn, &bytes),
                Effect::Close { conn, manner } => self.close(conn, manner),
                Effect::Transmit { link } => self.mark_dirty(link),
                Effect::EndLink { link, last_words, manner } => self.end_link(link, last_words, manner),
                Effect::Note(note) => write_note(&note),
            }
        }
    }

    fn resolve(&mut self, job: JobId, host: String, port: u16, urgent: bool) {
        if let Err(error) = self.sys.submit(Job::Resolve { host, port, urgent }, job.0) {
            self.role.on_resolved(self.now, job, Err(translate::resolve_failure(&error)));
        }
    }

    fn connect(&mut self, job: JobId, to: std::net::SocketAddr, link: bool) {
        let class = if link { Class::Link(self.config.kernel_liveness) } else { Class::Tunnel };
        let started = self.sys.connect(to).and_then(|sock| {
            let key = self.conns.insert(Conn::new(sock, Mode::Connecting { job, to }, false));
            self.make_room();
            match self.sys.configure(sock, class).and_then(|()| self.sys.register(sock, key.to_bits())) {
                Ok(()) => Ok(key),
                Err(error) => {
                    self.discard(key);
                    Err(error)
                }
            }
        });
        match started {
            Ok(key) => {
                self.connects.insert(job, key);
            }
            Err(error) => self.role.on_connected(self.now, job, Err(translate::connect_failure(&error, to))),
        }
    }

    fn start_link(&mut self, key: Key) {
        if let Some(conn) = self.conns.get_mut(key) {
            conn.mode = Mode::Link;
            self.start_client_tls(key);
            // If it still stands in the other queue, its turn there sends it on to the links.
            self.enqueue(key);
        }
    }

    fn bridge(&mut self, key: Key, link: Key, stream: StreamKey, answer: Option<&'static [u8]>) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let early = match std::mem::replace(&mut conn.mode, Mode::Idle) {
            Mode::Head(bytes) | Mode::Pending(bytes) => bytes,
            _ => Vec::new(),
        };
        conn.transport.unread(&early);
        let held = answer.filter(|_| conn.unix).map(|_| Vec::new());
        conn.mode = Mode::Tunnel(Tunnel {
            link,
            stream,
            read: Half::Open,
            write: Half::Open,
            held,
            reset: false,
            watch: Watch::Off,
        });
        if let Some(answer) = answer
            && conn.transport.send(&mut self.sys, answer).is_err()
        {
            // The client is gone; reading it says so.
            conn.transport.io.readable = true;
        }
        if let Some((mux, _)) = self.role.link(link) {
            mux.source_ready(stream);
            self.mark_dirty(link);
        }
        self.enqueue(key);
    }

    fn answer(&mut self, key: Key, bytes: &[u8]) {
        if let Some(conn) = self.conns.get_mut(key) {
            // A client that is gone is found by the closing that follows.
            let _gone = conn.transport.send(&mut self.sys, bytes);
            self.close(key, Manner::Flush);
        }
    }

    pub(super) fn close(&mut self, key: Key, manner: Manner) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        let reset = match manner {
            Manner::Flush => false,
            Manner::FlushThenReset => true,
            Manner::Abort => return self.discard_with_reset(key),
        };
        let (held, fin_sent) = match &mut conn.mode {
            Mode::Tunnel(tunnel) => {
                (tunnel.held.take().filter(|held| !held.is_empty()), tunnel.write == Half::Sent)
            }
            _ => (None, false),
        };
        if !fin_sent && !reset {
            conn.transport.close_notify();
        }
        let left = conn.transport.queued();
        conn.mode =
            Mode::Closing(Closing { held, reset, fin_sent, left, since: self.now, pause: CLOSING_POLL_MIN });
        let conns = &self.conns;
        self.closing.push(key, |key| is_closing(conns, key));
        self.serve_closing(key);
    }

    fn end_link(&mut self, key: Key, last_words: Option<GoAway>, manner: Manner) {
        let Some(conn) = self.conns.get_mut(key) else { return };
        if let Some(frame) = last_words
            && !conn.transport.is_handshaking()
        {
            let mut bytes = Vec::new();
            encode_control(&Control::GoAway(frame), &mut bytes);
            // A peer that is gone needs no last words.
            let _gone = conn.transport.send(&mut self.sys, &bytes);
        }
        self.close(key, manner);
    }
}

fn write_note(note: &Note) {
    let level = match note.level {
        Level::Error => log::Level::Error,
        Level::Warn => log::Level::Warn,
        Level::Info => log::Level::Info,
        Level::Debug => log::Level::Debug,
    };
    log::log!(level, "{}", note.text);
}

//! Health and admin ports: one request a connection.

use super::App;
use super::conn::Mode;
use crate::core::role::{AdminStep, Manner, ProcessReport, Role};
use crate::key::Key;
use crate::net::sys::Sys;
use crate::net::transport::Fill;

impl<S: Sys, R: Role> App<S, R> {
    pub(super) fn serve_http(&mut self, key: Key) {
        let mut chunk = [0; 4096];
        loop {
            let Some(conn) = self.conns.get_mut(key) else { return };
            let Mode::Http(probe) = &mut conn.mode else { return };
            match conn.transport.read(&mut self.sys, &mut self.tunnel_buffer, &mut chunk) {
                Ok((Fill::Progress, n)) => probe.head.extend_from_slice(&chunk[..n]),
                Ok((Fill::Blocked, _)) => return,
                Ok((Fill::Eof, _)) | Err(_) => return self.discard(key),
            }
            let process = self.config.process;
            let connections = self.conns.len();
            let report = || ProcessReport { connections, ..process() };
            let Some(Mode::Http(probe)) = self.conns.get(key).map(|conn| &conn.mode) else { return };
            let answer = match self.role.admin(self.now, &probe.head, &report) {
                AdminStep::More => continue,
                AdminStep::Answer(answer) => answer,
                AdminStep::Refuse { answer, text } => {
                    self.role.on_probe_refused(self.now, probe.from, text);
                    answer
                }
            };
            if let Some(conn) = self.conns.get_mut(key) {
                // A client that is gone is found by the closing that follows.
                let _gone = conn.transport.send(&mut self.sys, &answer);
            }
            self.set_timer(key, None);
            return self.close(key, Manner::Flush);
        }
    }
}

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
            let Mode::Http(head) = &mut conn.mode else { return };
            match conn.transport.read(&mut self.sys, &mut self.tunnel_buffer, &mut chunk) {
                Ok((Fill::Progress, n)) => head.extend_from_slice(&chunk[..n]),
                Ok((Fill::Blocked, _)) => return,
                Ok((Fill::Eof, _)) | Err(_) => return self.discard(key),
            }
            let process = self.config.process;
            let connections = self.conns.len();
            let report = || ProcessReport { connections, ..process() };
            let Some(Mode::Http(head)) = self.conns.get(key).map(|conn| &conn.mode) else { return };
            if let AdminStep::Answer(bytes) = self.role.admin(self.now, head, &report) {
                if let Some(conn) = self.conns.get_mut(key) {
                    // A client that is gone is found by the closing that follows.
                    let _gone = conn.transport.send(&mut self.sys, &bytes);
                }
                self.set_timer(key, None);
                return self.close(key, Manner::Flush);
            }
        }
    }
}

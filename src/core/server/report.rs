//! What people and Prometheus see of a server. Every figure is read from a table, so that it cannot drift.

use std::fmt::Write as _;
use std::time::Instant;

use super::backend::{Backend, BackendState};
use super::{Server, peer_name};
use crate::core::json::Text;
use crate::core::metrics::ServerGauges;
use crate::core::mux::Health;
use crate::core::role::ProcessReport;

impl Server {
    /// The page of `/metrics`.
    pub(super) fn render_metrics(&self, process: &ProcessReport) -> String {
        let count = |which: fn(&Backend, bool) -> bool| {
            let links = self.backends.iter().filter(|(_, backend)| {
                which(backend, matches!(backend.link.health(), Health::Suspect { .. }))
            });
            links.count() as u64
        };
        let gauges = ServerGauges {
            http_connections: (self.pending_dials + self.tunnels) as u64,
            links: self.backends.len() as u64,
            links_greeting: self.backends.unauthenticated() as u64,
            links_alive: count(|backend, suspect| backend.state == BackendState::Ready && !suspect),
            links_suspect: count(|backend, suspect| !backend.is_stranger() && suspect),
            links_draining: count(|backend, suspect| backend.state == BackendState::Draining && !suspect),
            ready_backends: vec![("default", self.backends.agents() as u64)],
            pending_dials: self.pending_dials as u64,
            tunnels: self.tunnels as u64,
            window_bytes: self.backends.budget.used(),
        };
        let stats = self.backends.stats();
        let mut metrics = self.metrics.clone();
        metrics.common.bytes_to_target.add(stats.bytes_sent);
        metrics.common.bytes_to_client.add(stats.bytes_received);
        metrics.common.frames = stats.frames;
        metrics.common.round_trip = stats.round_trips;
        metrics.common.frames_ignored.add(["unknown_stream"], stats.frames_ignored);
        metrics.render(&gauges, &process.stats)
    }

    /// The page of `/status`: flat sizes first, then each agent.
    pub(super) fn render_status(&self, now: Instant, process: &ProcessReport) -> String {
        let mut out = format!(
            concat!(
                "{{\n  \"role\": \"server\",\n  \"server_id\": {},\n  \"version\": \"{}\",\n  \"ready\": {},\n",
                "  \"links\": {},\n  \"links_greeting\": {},\n  \"frontends\": {},\n  \"pending_dials\": {},\n",
                "  \"tunnels\": {},\n  \"streams\": {},\n  \"timers\": {},\n  \"connections\": {},\n",
                "  \"window_bytes\": {},\n  \"agents\": ["
            ),
            Text(&self.config.server_id),
            env!("CARGO_PKG_VERSION"),
            self.backends.agents() > 0,
            self.backends.len(),
            self.backends.unauthenticated(),
            self.frontends.len(),
            self.pending_dials,
            self.tunnels,
            self.backends.iter().map(|(_, backend)| backend.link.streams()).sum::<usize>(),
            self.timers.len(),
            process.connections,
            self.backends.budget.used(),
        );
        let mut separator = "";
        for (_, backend) in self.backends.iter() {
            let live = backend.link.liveness();
            let state = match (&backend.state, live.health()) {
                (BackendState::Greeting { .. }, _) => "greeting",
                (BackendState::Reviewing { .. }, _) => "reviewing",
                (_, Health::Suspect { .. }) => "suspect",
                (BackendState::Draining, _) => "draining",
                (BackendState::Ready, _) => "alive",
            };
            // Writing to a String cannot fail.
            let _infallible = write!(
                out,
                concat!(
                    "{}\n    {{\"agent\": {}, \"peer\": {}, \"state\": \"{}\", \"superseded\": {}, \"agent_streams\": {}, ",
                    "\"rtt_ms\": {:.3}, \"silence_ms\": {}, \"up_s\": {}}}"
                ),
                separator,
                Text(&backend.agent_id),
                Text(&peer_name(backend)),
                state,
                backend.superseded,
                backend.link.streams(),
                live.rtt().smoothed().as_secs_f64() * 1000.0,
                now.saturating_duration_since(live.last_received()).as_millis(),
                now.saturating_duration_since(backend.accepted_at).as_secs(),
            );
            separator = ",";
        }
        out.push_str(if separator.is_empty() { "]\n}\n" } else { "\n  ]\n}\n" });
        out
    }
}

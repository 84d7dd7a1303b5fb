//! What people and Prometheus see of an agent. Every figure is read from a table, so that it cannot drift.

use std::time::Instant;

use super::Agent;
use super::uplink::Uplink;
use crate::core::json::Text;
use crate::core::metrics::AgentGauges;
use crate::core::role::ProcessReport;

impl Agent {
    /// The page of `/metrics`.
    pub(super) fn render_metrics(&self, process: &ProcessReport) -> String {
        let gauges = AgentGauges {
            open_server_connections: u64::from(matches!(self.uplink, Uplink::Up { .. })),
            known_servers: 1,
            endpoint_connections: self.endpoints.len() as u64,
            window_bytes: self.budget.used(),
        };
        let mut stats = self.past.clone();
        for (_, entry) in self.links.iter() {
            stats.add(entry.link.stats());
        }
        let mut metrics = self.metrics.clone();
        metrics.common.bytes_to_target.add(stats.bytes_received);
        metrics.common.bytes_to_client.add(stats.bytes_sent);
        metrics.common.frames = stats.frames;
        metrics.common.round_trip = stats.round_trips;
        metrics.common.frames_ignored.add(["unknown_stream"], stats.frames_ignored);
        metrics.render(&gauges, &process.stats)
    }

    /// The page of `/status`.
    pub(super) fn render_status(&self, now: Instant, process: &ProcessReport) -> String {
        let link = self.uplink.conn().and_then(|conn| self.links.get(conn));
        let (server, silence_ms, rtt_ms) = link.map_or(("", 0, 0.0), |entry| {
            let live = entry.link.liveness();
            let silence = now.saturating_duration_since(live.last_received()).as_millis();
            (entry.server_id.as_str(), silence, live.rtt().smoothed().as_secs_f64() * 1000.0)
        });
        format!(
            concat!(
                "{{\n  \"role\": \"agent\",\n  \"agent_id\": {},\n  \"version\": \"{}\",\n  \"ready\": {},\n",
                "  \"uplink\": \"{}\",\n  \"server\": {},\n  \"server_id\": {},\n  \"rtt_ms\": {:.3},\n",
                "  \"silence_ms\": {},\n  \"links\": {},\n  \"endpoints\": {},\n  \"pending_dials\": {},\n",
                "  \"streams\": {},\n  \"timers\": {},\n  \"jobs\": {},\n  \"connections\": {},\n  \"window_bytes\": {}\n}}\n"
            ),
            Text(&self.config.agent_id),
            env!("CARGO_PKG_VERSION"),
            matches!(self.uplink, Uplink::Up { .. }),
            self.uplink.name(),
            Text(&self.server_name()),
            Text(server),
            rtt_ms,
            silence_ms,
            self.links.len(),
            self.endpoints.len(),
            self.dials.len(),
            self.links.iter().map(|(_, entry)| entry.link.streams()).sum::<usize>(),
            self.timers.len(),
            self.jobs.len(),
            process.connections,
            self.budget.used(),
        )
    }
}

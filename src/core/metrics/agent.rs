//! What the agent counts.

use tautline_wire::DialCode;

use super::common::{CommonMetrics, ProcessStats};
use super::text::Text;
use super::types::{AGENT_DIAL, Histogram, LabelledCounter};
use crate::core::http::dial_status;

/// Counters of the agent.
#[derive(Clone, Debug)]
pub struct AgentMetrics {
    /// What both roles count.
    pub common: CommonMetrics,
    /// Connects to targets that worked.
    pub dial_duration: Histogram,
    /// Connects to targets that failed: `timeout`, `unknown`.
    pub endpoint_dial_failures: LabelledCounter<1>,
    /// Links that failed, by direction: `to_server`, `from_server`.
    pub server_connection_failures: LabelledCounter<1>,
}

impl Default for AgentMetrics {
    fn default() -> Self {
        Self {
            common: CommonMetrics::default(),
            dial_duration: Histogram::new(AGENT_DIAL),
            endpoint_dial_failures: LabelledCounter::default(),
            server_connection_failures: LabelledCounter::default(),
        }
    }
}

/// Sizes of the agent's tables, at the moment of a scrape.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AgentGauges {
    /// Servers that are connected.
    pub open_server_connections: u64,
    /// Servers that are wanted.
    pub known_servers: u64,
    /// Sockets to targets.
    pub endpoint_connections: u64,
    /// Receive windows handed out, in bytes.
    pub window_bytes: u64,
}

impl AgentMetrics {
    /// Counts a failed dial, in Konnectivity's words and in ours.
    pub fn dial_failed(&mut self, code: DialCode) {
        self.endpoint_dial_failures.inc([dial_status::endpoint_failure_label(code)]);
        self.common.dial_errors.inc([dial_status::label(code)]);
    }

    /// The page of `/metrics`.
    #[must_use]
    pub fn render(&self, gauges: &AgentGauges, process: &ProcessStats) -> String {
        let mut text = Text::default();
        text.histogram(
            "konnectivity_network_proxy_agent_dial_duration_seconds",
            "Connects to targets that worked.",
            &self.dial_duration,
        );
        text.labelled(
            "konnectivity_network_proxy_agent_endpoint_dial_failure_total",
            "Connects to targets that failed, by reason.",
            ["reason"],
            &self.endpoint_dial_failures,
        );
        text.labelled(
            "konnectivity_network_proxy_agent_server_connection_failure_count",
            "Deprecated: links that failed, by direction.",
            ["direction"],
            &self.server_connection_failures,
        );
        self.common.frames.render_packets(
            &mut text,
            "konnectivity_network_proxy_agent_stream_packets_total",
            ["to_agent", "from_agent"],
        );
        self.common.render_stream_errors(&mut text, "konnectivity_network_proxy_agent_stream_errors_total");
        gauges.render(&mut text);
        self.common.render(&mut text);
        process.render(&mut text);
        text.finish()
    }
}

impl AgentGauges {
    fn render(&self, text: &mut Text) {
        text.gauge(
            "konnectivity_network_proxy_agent_open_server_connections",
            "Servers that are connected.",
            self.open_server_connections,
        );
        text.gauge(
            "konnectivity_network_proxy_agent_known_server_count",
            "Servers that are wanted.",
            self.known_servers,
        );
        text.gauge(
            "konnectivity_network_proxy_agent_open_endpoint_connections",
            "Sockets to targets.",
            self.endpoint_connections,
        );
        text.gauge("tautline_window_bytes", "Receive windows handed out.", self.window_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tautline_wire::FrameType;

    use super::super::Direction;
    use super::super::checker::check;
    use super::*;

    const PREFIX: &str = "konnectivity_network_proxy_agent_";

    #[test]
    fn a_fresh_page_has_no_series_with_labels_of_konnectivity() {
        let text = AgentMetrics::default().render(&AgentGauges::default(), &ProcessStats::default());
        let page = check(&text).unwrap();
        assert_eq!(page.value(&format!("{PREFIX}known_server_count"), &[]), Some(0.0));
        assert!(
            !text
                .lines()
                .any(|line| { line.starts_with(PREFIX) && line.contains('{') && !line.contains("_bucket{") })
        );
    }

    #[test]
    fn a_used_page_is_valid_and_complete() {
        let mut metrics = AgentMetrics::default();
        metrics.dial_duration.observe(Duration::from_millis(30));
        metrics.dial_failed(DialCode::TimedOut);
        metrics.dial_failed(DialCode::Refused);
        metrics.dial_failed(DialCode::NameNotFound);
        metrics.server_connection_failures.inc(["from_server"]);
        metrics.common.frames.count(Direction::Received, FrameType::DialReq);
        metrics.common.frames.count(Direction::Sent, FrameType::DialRsp);
        let gauges = AgentGauges {
            open_server_connections: 1,
            known_servers: 2,
            endpoint_connections: 3,
            window_bytes: 4,
        };
        let page = check(&metrics.render(&gauges, &ProcessStats::default())).unwrap();
        for (name, labels, value) in [
            ("open_server_connections", &[][..], 1.0),
            ("known_server_count", &[], 2.0),
            ("open_endpoint_connections", &[], 3.0),
            ("dial_duration_seconds_bucket", &[("le", "0.025")], 0.0),
            ("dial_duration_seconds_bucket", &[("le", "0.1")], 1.0),
            ("endpoint_dial_failure_total", &[("reason", "timeout")], 1.0),
            ("endpoint_dial_failure_total", &[("reason", "unknown")], 2.0),
            ("server_connection_failure_count", &[("direction", "from_server")], 1.0),
            ("stream_packets_total", &[("segment", "to_agent"), ("packet_type", "DIAL_REQ")], 1.0),
            ("stream_packets_total", &[("segment", "from_agent"), ("packet_type", "DIAL_RSP")], 1.0),
        ] {
            assert_eq!(page.value(&format!("{PREFIX}{name}"), labels), Some(value), "{name} {labels:?}");
        }
        assert_eq!(page.value("tautline_window_bytes", &[]), Some(4.0));
        assert_eq!(page.value("tautline_dial_errors_total", &[("code", "refused")]), Some(1.0));
    }
}

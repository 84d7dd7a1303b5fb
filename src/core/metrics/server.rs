//! What the server counts.

use super::common::{CommonMetrics, ProcessStats};
use super::text::{Kind, Text};
use super::types::{Counter, DIAL, Histogram, LIFETIME, LabelledCounter};

/// Counters of the server.
#[derive(Clone, Debug)]
pub struct ServerMetrics {
    /// What both roles count.
    pub common: CommonMetrics,
    /// CONNECT accepted until the agent's good answer.
    pub dial_duration: Histogram,
    /// How long bytes or an answer waited for a frontend that took nothing.
    pub frontend_write_duration: Histogram,
    /// Life of tunnels, from established to removed.
    pub connection_duration: Histogram,
    /// Failed dials, by [`DialFailureReason::label`].
    pub dial_failures: LabelledCounter<1>,
    /// Dials that were also sent to a further agent, by why: `hedge`, `error`, `link_lost`.
    pub dial_failovers: LabelledCounter<1>,
    /// Agents' tokens that were judged, by result.
    pub token_reviews: LabelledCounter<1>,
    /// Agents' connections that were accepted, before any authentication.
    pub links_accepted: Counter,
}

impl Default for ServerMetrics {
    fn default() -> Self {
        Self {
            common: CommonMetrics::default(),
            dial_duration: Histogram::new(DIAL),
            frontend_write_duration: Histogram::new(DIAL),
            connection_duration: Histogram::new(LIFETIME),
            dial_failures: LabelledCounter::default(),
            dial_failovers: LabelledCounter::default(),
            token_reviews: LabelledCounter::default(),
            links_accepted: Counter::default(),
        }
    }
}

/// Why a dial failed, in Konnectivity's words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DialFailureReason {
    /// No agent to ask.
    NoAgent,
    /// The agent answered with an error.
    ErrorResponse,
    /// The agent answered a dial that nobody waits for any more.
    UnrecognizedResponse,
    /// The answer could not be written to the frontend.
    SendRsp,
    /// The agent dropped the dial, or was lost.
    BackendClose,
    /// No answer in time.
    BackendDialTimeout,
    /// The client left.
    FrontendClose,
}

impl DialFailureReason {
    /// The label `reason`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::NoAgent => "no_agent",
            Self::ErrorResponse => "error_response",
            Self::UnrecognizedResponse => "unrecognized_response",
            Self::SendRsp => "send_rsp",
            Self::BackendClose => "backend_close",
            Self::BackendDialTimeout => "backend_dial_timeout",
            Self::FrontendClose => "frontend_close",
        }
    }
}

/// Sizes of the server's tables, at the moment of a scrape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ServerGauges {
    /// CONNECTs from the request head to their end.
    pub http_connections: u64,
    /// Agents' connections, those without HELLO included.
    pub links: u64,
    /// Links without WELCOME.
    pub links_greeting: u64,
    /// Links that are Alive and not draining.
    pub links_alive: u64,
    /// Links that are Suspect and not draining.
    pub links_suspect: u64,
    /// Links that drain.
    pub links_draining: u64,
    /// Each configured strategy, in order, with its number of distinct keys (agent ids; with `destHost` identifiers).
    pub ready_backends: Vec<(&'static str, u64)>,
    /// Dials that wait for an agent or its answer.
    pub pending_dials: u64,
    /// Established tunnels.
    pub tunnels: u64,
    /// Receive windows handed out, in bytes.
    pub window_bytes: u64,
}

impl ServerMetrics {
    /// Counts a failed dial.
    pub fn dial_failed(&mut self, reason: DialFailureReason) {
        self.dial_failures.inc([reason.label()]);
    }

    /// The page of `/metrics`.
    #[must_use]
    pub fn render(&self, gauges: &ServerGauges, process: &ProcessStats) -> String {
        let mut text = Text::default();
        self.render_konnectivity(&mut text);
        self.common.frames.render_packets(
            &mut text,
            "konnectivity_network_proxy_server_stream_packets_total",
            ["from_agent", "to_agent"],
        );
        self.common.render_stream_errors(&mut text, "konnectivity_network_proxy_server_stream_errors_total");
        gauges.render_konnectivity(&mut text, gauges.links > 0 || self.links_accepted.get() > 0);
        gauges.render_own(&mut text);
        text.labelled(
            "tautline_dial_failovers_total",
            "Dials also sent to a further agent, by why.",
            ["reason"],
            &self.dial_failovers,
        );
        text.labelled(
            "tautline_token_reviews_total",
            "Tokens of agents, by what became of them.",
            ["result"],
            &self.token_reviews,
        );
        text.counter(
            "tautline_links_accepted_total",
            "Connections of agents, before authentication.",
            self.links_accepted.get(),
        );
        self.common.render(&mut text);
        process.render(&mut text);
        text.finish()
    }

    fn render_konnectivity(&self, text: &mut Text) {
        text.histogram(
            "konnectivity_network_proxy_server_dial_duration_seconds",
            "From CONNECT to the agent's good answer.",
            &self.dial_duration,
        );
        text.histogram(
            "konnectivity_network_proxy_server_frontend_write_duration_seconds",
            "Time that writing to a frontend was blocked.",
            &self.frontend_write_duration,
        );
        text.histogram(
            "konnectivity_network_proxy_server_connection_duration_seconds",
            "Life of tunnels.",
            &self.connection_duration,
        );
        text.labelled(
            "konnectivity_network_proxy_server_dial_failure_count",
            "Failed dials, by reason.",
            ["reason"],
            &self.dial_failures,
        );
    }
}

impl ServerGauges {
    fn render_konnectivity(&self, text: &mut Text, links_used: bool) {
        const LINKS: &str = "konnectivity_network_proxy_server_grpc_connections";
        const READY: &str = "konnectivity_network_proxy_server_ready_backends";
        if links_used {
            text.family(LINKS, Kind::Gauge, "Connections of agents (the name is Konnectivity's).");
            text.sample(LINKS, &[("service_method", "Connect")], self.links);
        }
        text.gauge(
            "konnectivity_network_proxy_server_http_connections",
            "CONNECT requests in progress.",
            self.http_connections,
        );
        // Konnectivity shows the strategy that changed last; the first one is what readiness looks at.
        text.gauge(
            "konnectivity_network_proxy_server_ready_backend_connections",
            "Deprecated: ready_backends of the first strategy.",
            self.ready_backends.first().map_or(0, |(_, count)| *count),
        );
        if !self.ready_backends.is_empty() {
            text.family(READY, Kind::Gauge, "Agents or identifiers that a dial may use, by strategy.");
            for (strategy, count) in &self.ready_backends {
                text.sample(READY, &[("proxy_strategy", strategy)], count);
            }
        }
        text.gauge(
            "konnectivity_network_proxy_server_pending_backend_dials",
            "Dials that wait for an answer.",
            self.pending_dials,
        );
        text.gauge(
            "konnectivity_network_proxy_server_established_connections",
            "Established tunnels.",
            self.tunnels,
        );
    }

    fn render_own(&self, text: &mut Text) {
        const LINKS: &str = "tautline_links";
        text.family(LINKS, Kind::Gauge, "Links, by state.");
        for (state, count) in [
            ("greeting", self.links_greeting),
            ("alive", self.links_alive),
            ("suspect", self.links_suspect),
            ("draining", self.links_draining),
        ] {
            text.sample(LINKS, &[("state", state)], count);
        }
        text.gauge("tautline_window_bytes", "Receive windows handed out.", self.window_bytes);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tautline_wire::{CloseCode, FrameType};

    use super::super::checker::check;
    use super::super::{ClosedBy, Direction};
    use super::*;

    const PREFIX: &str = "konnectivity_network_proxy_server_";

    fn gauges() -> ServerGauges {
        ServerGauges {
            http_connections: 1,
            links: 10,
            links_greeting: 1,
            links_alive: 2,
            links_suspect: 3,
            links_draining: 4,
            ready_backends: vec![("destHost", 5), ("default", 6)],
            pending_dials: 7,
            tunnels: 8,
            window_bytes: 9,
        }
    }

    #[test]
    fn what_is_there_from_the_start() {
        let fresh = ServerGauges { ready_backends: vec![("default", 0)], ..ServerGauges::default() };
        let page = check(&ServerMetrics::default().render(&fresh, &ProcessStats::default())).unwrap();
        for name in ["http_connections", "ready_backend_connections"] {
            assert_eq!(page.value(&format!("{PREFIX}{name}"), &[]), Some(0.0), "{name}");
        }
        let ready = page.value(&format!("{PREFIX}ready_backends"), &[("proxy_strategy", "default")]);
        assert_eq!(ready, Some(0.0));
        for absent in
            ["grpc_connections", "dial_failure_count", "stream_packets_total", "stream_errors_total"]
        {
            assert!(!page.names().contains(format!("{PREFIX}{absent}").as_str()), "{absent}");
        }
    }

    #[test]
    fn gauges_come_from_the_caller() {
        let page = check(&ServerMetrics::default().render(&gauges(), &ProcessStats::default())).unwrap();
        for (name, labels, value) in [
            ("http_connections", &[][..], 1.0),
            ("grpc_connections", &[("service_method", "Connect")], 10.0),
            ("ready_backend_connections", &[], 5.0),
            ("ready_backends", &[("proxy_strategy", "destHost")], 5.0),
            ("ready_backends", &[("proxy_strategy", "default")], 6.0),
            ("pending_backend_dials", &[], 7.0),
            ("established_connections", &[], 8.0),
        ] {
            assert_eq!(page.value(&format!("{PREFIX}{name}"), labels), Some(value), "{name} {labels:?}");
        }
        for (state, value) in [("greeting", 1.0), ("alive", 2.0), ("suspect", 3.0), ("draining", 4.0)] {
            assert_eq!(page.value("tautline_links", &[("state", state)]), Some(value), "{state}");
        }
        assert_eq!(page.value("tautline_window_bytes", &[]), Some(9.0));
    }

    #[test]
    fn a_used_page_is_valid_and_complete() {
        let mut metrics = ServerMetrics::default();
        metrics.dial_duration.observe(Duration::from_millis(3));
        metrics.connection_duration.observe(Duration::from_secs(100));
        metrics.frontend_write_duration.observe(Duration::from_micros(5));
        metrics.dial_failed(DialFailureReason::NoAgent);
        metrics.dial_failed(DialFailureReason::NoAgent);
        metrics.dial_failovers.inc(["hedge"]);
        metrics.links_accepted.inc();
        let common = &mut metrics.common;
        common.frames.count(Direction::Received, FrameType::Data);
        common.frames.count(Direction::Sent, FrameType::Ping);
        common.stream_errors.inc(["from_agent", "Unavailable", "Unknown"]);
        common.tunnel_closed(ClosedBy::AgentLost, CloseCode::Reset.name());
        common.dial_errors.inc(["refused"]);
        common.bytes_to_client.add(1 << 40);
        common.links_down.inc(["peer_silent"]);
        common.frames_ignored.inc(["unknown_stream"]);
        common.limits_hit.inc(["pending_dials"]);
        common.detection.observe(Duration::from_secs(9));
        let page = check(&metrics.render(&gauges(), &ProcessStats::default())).unwrap();
        for (name, labels, value) in [
            ("dial_duration_seconds_count", &[][..], 1.0),
            ("dial_duration_seconds_bucket", &[("le", "0.0001")], 0.0),
            ("dial_duration_seconds_bucket", &[("le", "0.005")], 1.0),
            ("frontend_write_duration_seconds_bucket", &[("le", "1e-05")], 1.0),
            ("connection_duration_seconds_bucket", &[("le", "60")], 0.0),
            ("connection_duration_seconds_bucket", &[("le", "300")], 1.0),
            ("dial_failure_count", &[("reason", "no_agent")], 2.0),
            ("stream_packets_total", &[("segment", "from_agent"), ("packet_type", "DATA")], 1.0),
            (
                "stream_errors_total",
                &[("segment", "from_agent"), ("code", "Unavailable"), ("packet_type", "Unknown")],
                1.0,
            ),
        ] {
            assert_eq!(page.value(&format!("{PREFIX}{name}"), labels), Some(value), "{name} {labels:?}");
        }
        let ping = [("segment", "to_agent"), ("packet_type", "PING")];
        assert_eq!(
            page.value(&format!("{PREFIX}stream_packets_total"), &ping),
            None,
            "not a type of Konnectivity's"
        );
        for (name, labels, value) in [
            ("frames_total", &[("direction", "sent"), ("type", "PING")][..], 1.0),
            ("frames_total", &[("direction", "received"), ("type", "DATA")], 1.0),
            ("frames_ignored_total", &[("reason", "unknown_stream")], 1.0),
            ("tunnels_closed_total", &[("closed_by", "agent_lost"), ("reason", "reset")], 1.0),
            ("tunnel_bytes_total", &[("direction", "to_client")], 1_099_511_627_776.0),
            ("dial_errors_total", &[("code", "refused")], 1.0),
            ("dial_failovers_total", &[("reason", "hedge")], 1.0),
            ("links_accepted_total", &[], 1.0),
            ("links_down_total", &[("reason", "peer_silent")], 1.0),
            ("limits_hit_total", &[("limit", "pending_dials")], 1.0),
            ("link_detection_seconds_bucket", &[("le", "10")], 1.0),
            ("loop_lag_seconds_count", &[], 0.0),
            ("build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1.0),
        ] {
            assert_eq!(page.value(&format!("tautline_{name}"), labels), Some(value), "{name} {labels:?}");
        }
    }

    #[test]
    fn the_process_is_shown() {
        let process = ProcessStats {
            open_fds: 11,
            max_fds: 1024,
            resident_bytes: 6_000_000,
            virtual_bytes: 20_000_000,
            cpu_seconds: 0.25,
            start_time_seconds: 1_760_000_000.5,
            log_lines_dropped: 3,
        };
        let page = check(&ServerMetrics::default().render(&ServerGauges::default(), &process)).unwrap();
        for (name, value) in [
            ("process_open_fds", 11.0),
            ("process_max_fds", 1024.0),
            ("process_resident_memory_bytes", 6_000_000.0),
            ("process_virtual_memory_bytes", 20_000_000.0),
            ("process_cpu_seconds_total", 0.25),
            ("process_start_time_seconds", 1_760_000_000.5),
            ("tautline_log_lines_dropped_total", 3.0),
        ] {
            assert_eq!(page.value(name, &[]), Some(value), "{name}");
        }
    }
}

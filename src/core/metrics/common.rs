//! What both roles count.

use super::frames::FrameCounters;
use super::text::{Float, Kind, Text};
use super::types::{Counter, DETECTION, DIAL, Histogram, LabelledCounter};

/// Counters of both roles. Labels that are texts are short, static and lower case.
#[derive(Clone, Debug)]
pub struct CommonMetrics {
    /// Payload bytes that went towards targets.
    pub bytes_to_target: Counter,
    /// Payload bytes that went towards clients.
    pub bytes_to_client: Counter,
    /// Ends of tunnels by who closed ([`ClosedBy::label`]) and reason ([`tautline_wire::CloseCode::name`], or why the link is gone).
    pub tunnels_closed: LabelledCounter<2>,
    /// Failed dials by [`crate::core::http::dial_status::label`].
    pub dial_errors: LabelledCounter<1>,
    /// Links that became ready.
    pub links_up: Counter,
    /// Ends of links by reason.
    pub links_down: LabelledCounter<1>,
    /// Links that became Suspect.
    pub suspicions: Counter,
    /// Links that were Suspect and proved to be alive.
    pub false_suspicions: Counter,
    /// From the last sign of life of a peer to the verdict that it is dead.
    pub detection: Histogram,
    /// Round trips of pings, over all links.
    pub round_trip: Histogram,
    /// Frames by type and direction.
    pub frames: FrameCounters,
    /// Frames that were skipped, by reason: `unknown_stream`, `unknown_type`.
    pub frames_ignored: LabelledCounter<1>,
    /// Errors on links by segment (`from_agent`, `to_agent`), gRPC code name and packet type, as Konnectivity
    /// counts them.
    pub stream_errors: LabelledCounter<3>,
    /// How much later than planned a turn of the loop began.
    pub loop_lag: Histogram,
    /// Turns that ended with work left over.
    pub budgets_exhausted: Counter,
    /// Bounds of [`crate::limits`] that were hit, by name.
    pub limits_hit: LabelledCounter<1>,
    /// Log lines left out by [`crate::core::ratelimit::LogLimit`].
    pub log_lines_suppressed: Counter,
}

impl Default for CommonMetrics {
    fn default() -> Self {
        Self {
            bytes_to_target: Counter::default(),
            bytes_to_client: Counter::default(),
            tunnels_closed: LabelledCounter::default(),
            dial_errors: LabelledCounter::default(),
            links_up: Counter::default(),
            links_down: LabelledCounter::default(),
            suspicions: Counter::default(),
            false_suspicions: Counter::default(),
            detection: Histogram::new(DETECTION),
            round_trip: Histogram::of_round_trips(),
            frames: FrameCounters::default(),
            frames_ignored: LabelledCounter::default(),
            stream_errors: LabelledCounter::default(),
            loop_lag: Histogram::new(DIAL),
            budgets_exhausted: Counter::default(),
            limits_hit: LabelledCounter::default(),
            log_lines_suppressed: Counter::default(),
        }
    }
}

/// Who ended a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClosedBy {
    /// The frontend's side.
    Client,
    /// The target's side.
    Target,
    /// The link is gone.
    AgentLost,
    /// The server decided so (shutdown, limit, idle).
    Server,
    /// The agent decided so.
    Agent,
}

impl ClosedBy {
    /// The label `closed_by`.
    #[must_use]
    pub const fn label(self) -> &'static str {
        match self {
            Self::Client => "client",
            Self::Target => "target",
            Self::AgentLost => "agent_lost",
            Self::Server => "server",
            Self::Agent => "agent",
        }
    }
}

/// What only the process as a whole knows. What is unknown is 0.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ProcessStats {
    /// Open descriptors.
    pub open_fds: u64,
    /// RLIMIT_NOFILE, soft.
    pub max_fds: u64,
    /// Resident memory, in bytes.
    pub resident_bytes: u64,
    /// Virtual memory, in bytes.
    pub virtual_bytes: u64,
    /// User and system time, in seconds.
    pub cpu_seconds: f64,
    /// Start, in seconds since the Unix epoch.
    pub start_time_seconds: f64,
    /// Log lines that the writer's full queue dropped, since the start.
    pub log_lines_dropped: u64,
}

impl CommonMetrics {
    /// Counts the end of a tunnel.
    pub fn tunnel_closed(&mut self, closed_by: ClosedBy, reason: &'static str) {
        self.tunnels_closed.inc([closed_by.label(), reason]);
    }

    /// The `tautline_*` part.
    pub(super) fn render(&self, text: &mut Text) {
        self.render_tunnels(text);
        self.render_links(text);
        self.render_loop(text);
        text.family("tautline_build_info", Kind::Gauge, "The version, as a label.");
        text.sample("tautline_build_info", &[("version", env!("CARGO_PKG_VERSION"))], 1);
    }

    fn render_tunnels(&self, text: &mut Text) {
        const BYTES: &str = "tautline_tunnel_bytes_total";
        text.family(BYTES, Kind::Counter, "Payload bytes of all tunnels, by direction.");
        text.sample(BYTES, &[("direction", "to_target")], self.bytes_to_target.get());
        text.sample(BYTES, &[("direction", "to_client")], self.bytes_to_client.get());
        text.labelled(
            "tautline_tunnels_closed_total",
            "Ends of tunnels, by who closed and why.",
            ["closed_by", "reason"],
            &self.tunnels_closed,
        );
        text.labelled(
            "tautline_dial_errors_total",
            "Dials that an agent could not complete, by cause.",
            ["code"],
            &self.dial_errors,
        );
    }

    fn render_links(&self, text: &mut Text) {
        text.counter("tautline_links_up_total", "Links that became ready.", self.links_up.get());
        text.labelled("tautline_links_down_total", "Ends of links, by reason.", ["reason"], &self.links_down);
        text.counter("tautline_link_suspicions_total", "Links that fell silent.", self.suspicions.get());
        text.counter(
            "tautline_link_false_suspicions_total",
            "Links that fell silent and spoke again.",
            self.false_suspicions.get(),
        );
        text.histogram(
            "tautline_link_detection_seconds",
            "From the last sign of life of a dead peer to the verdict.",
            &self.detection,
        );
        text.histogram("tautline_link_round_trip_seconds", "Round trips of pings.", &self.round_trip);
        self.frames.render(text);
        text.labelled(
            "tautline_frames_ignored_total",
            "Frames that were skipped, by reason.",
            ["reason"],
            &self.frames_ignored,
        );
    }

    fn render_loop(&self, text: &mut Text) {
        text.histogram("tautline_loop_lag_seconds", "Delay of turns of the loop.", &self.loop_lag);
        text.counter(
            "tautline_turn_budgets_exhausted_total",
            "Turns of the loop that ended with work left over.",
            self.budgets_exhausted.get(),
        );
        text.labelled(
            "tautline_limits_hit_total",
            "Limits that were hit, by name.",
            ["limit"],
            &self.limits_hit,
        );
        text.counter(
            "tautline_log_lines_suppressed_total",
            "Log lines left out because there were too many of a kind.",
            self.log_lines_suppressed.get(),
        );
    }

    /// Konnectivity's counter of errors.
    pub(super) fn render_stream_errors(&self, text: &mut Text, name: &str) {
        let labels = ["segment", "code", "packet_type"];
        text.labelled(
            name,
            "Errors on links, by segment, code and packet type.",
            labels,
            &self.stream_errors,
        );
    }
}

impl ProcessStats {
    pub(super) fn render(&self, text: &mut Text) {
        text.gauge("process_open_fds", "Open file descriptors.", self.open_fds);
        text.gauge("process_max_fds", "Most file descriptors that may be open.", self.max_fds);
        text.gauge("process_resident_memory_bytes", "Resident memory.", self.resident_bytes);
        text.gauge("process_virtual_memory_bytes", "Virtual memory.", self.virtual_bytes);
        text.counter("process_cpu_seconds_total", "User and system CPU time.", Float(self.cpu_seconds));
        text.gauge(
            "process_start_time_seconds",
            "Start, since the Unix epoch.",
            Float(self.start_time_seconds),
        );
        text.counter(
            "tautline_log_lines_dropped_total",
            "Log lines dropped because the writer was too slow.",
            self.log_lines_dropped,
        );
    }
}

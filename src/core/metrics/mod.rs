//! Counters, histograms and the text format 0.0.4 of Prometheus.
//!
//! There is no registry: the two roles own a struct of counters and count where things happen. Gauges are
//! never counted: the caller fills them from the sizes of its tables when somebody asks, so they cannot drift.
//!
//! Names that begin with `konnectivity_` are Konnectivity's, as far as they have a meaning here; `tautline_` are
//! our own, the same in both roles. A series with labels appears with its first use. Not there:
//! `full_receive_channels`, since a link is always drained, and everything about gRPC frontends.

mod agent;
#[cfg(test)]
mod checker;
mod common;
mod frames;
mod server;
mod text;
mod types;

pub use agent::{AgentGauges, AgentMetrics};
pub use common::{ClosedBy, CommonMetrics, ProcessStats};
pub use frames::{Direction, FrameCounters, frame_name};
pub use server::{DialFailureReason, ServerGauges, ServerMetrics};
pub use types::{Counter, Histogram, LABEL_SETS_MAX, LabelledCounter};

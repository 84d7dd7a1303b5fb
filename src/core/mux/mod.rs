//! The multiplexed link between a server and an agent, either side. It knows no roles beyond who opens streams.

pub mod flow;
pub mod link;
pub mod liveness;
mod stream;
mod table;
mod transmit;

pub use flow::WindowBudget;
pub use link::{
    DataSink, DataSource, Link, LinkConfig, LinkError, LinkEvent, LinkStats, Pulled, Side, StreamEnd,
};
pub use liveness::{Health, Liveness, LivenessConfig};
pub use stream::Origin;
pub use transmit::TransmitBuf;

//! The multiplexed link between a server and an agent, either side. It knows no roles beyond who opens streams.

mod event;
pub mod flow;
pub mod link;
pub mod liveness;
mod stream;
mod table;
mod transmit;

pub use event::{DataSink, DataSource, LinkError, LinkEvent, LinkStats, Pulled, StreamEnd};
pub use flow::WindowBudget;
pub use link::{Link, LinkConfig, Side};
pub use liveness::{Health, Liveness, LivenessConfig};
pub use stream::Origin;
pub use transmit::TransmitBuf;

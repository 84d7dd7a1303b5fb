//! HTTP/1.x as far as a CONNECT proxy and its probes need it: request heads, `host:port`, answers. Byte exact.

pub mod admin;
pub mod answer;
pub mod dial_status;
pub mod head;
pub mod target;

pub use admin::{Answer, Role, Route};
pub use answer::Status;
pub use head::{Head, HeadReader, Method, Request, Version};
pub use target::{Host, Target, TargetError};

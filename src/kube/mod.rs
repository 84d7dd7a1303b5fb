//! The Kubernetes API, as far as a tunnel needs it. Everything here blocks: it runs on helper threads only.

mod access;
mod client;
mod review;
#[cfg(test)]
mod tests;
mod token;

pub use self::access::Access;
pub use self::client::Client;
pub use self::review::Reviewer;
pub use self::token::read_token;

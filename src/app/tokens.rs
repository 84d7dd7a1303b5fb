//! Tokens: read from a file, judged by an API server, both on helper threads.

use std::sync::Arc;

use super::App;
use crate::core::ids::JobId;
use crate::core::role::Role;
use crate::net::sys::{JobResult, Sys};
use crate::token::{Secret, Verdict};

/// Reads our own token.
pub type ReadToken = Arc<dyn Fn() -> Result<Secret, String> + Send + Sync>;
/// Judges an agent's token.
pub type Review = Arc<dyn Fn(&Secret) -> Verdict + Send + Sync>;

/// Where tokens come from, and who judges them; both may block.
#[derive(Clone, Default)]
pub struct Tokens {
    /// Of an agent that shows one.
    pub read: Option<ReadToken>,
    /// Of a server that wants one.
    pub review: Option<Review>,
}

impl<S: Sys, R: Role> App<S, R> {
    pub(super) fn read_token(&mut self, job: JobId) {
        let started = match self.config.tokens.read.clone() {
            Some(read) => self.sys.run(Box::new(move || JobResult::Token(read())), job.0),
            None => Err(std::io::ErrorKind::NotFound.into()),
        };
        if let Err(error) = started {
            self.role.on_token(self.now, job, Err(format!("the token cannot be read now: {error}")));
        }
    }

    pub(super) fn review(&mut self, job: JobId, token: Secret) {
        let started = match self.config.tokens.review.clone() {
            Some(review) => self.sys.run(Box::new(move || JobResult::Reviewed(review(&token))), job.0),
            None => Err(std::io::ErrorKind::NotFound.into()),
        };
        if let Err(error) = started {
            let text = format!("too many tokens wait to be judged: {error}");
            self.role.on_reviewed(self.now, job, Verdict::Unavailable(text));
        }
    }
}

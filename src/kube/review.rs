//! Whether an agent's token is one of the account that agents run under.
//!
//! <https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-review-v1/>

use serde_json::{Value, json};

use super::Client;
use super::access::Access;
use crate::token::Verdict;

const PATH: &str = "/apis/authentication.k8s.io/v1/tokenreviews";
/// Of what others say, as much as a log line should hold.
const TEXT_LEN_MAX: usize = 300;

/// Asks an API server about tokens.
pub struct Reviewer {
    client: Client,
    audience: String,
    user: String,
}

impl Reviewer {
    /// Tokens must be for `audience`, and of `account` in `namespace`.
    ///
    /// # Errors
    /// As [`Client::new`].
    pub fn new(access: Access, namespace: &str, account: &str, audience: &str) -> Result<Self, String> {
        Ok(Self {
            client: Client::new(access)?,
            audience: audience.to_owned(),
            user: format!("system:serviceaccount:{namespace}:{account}"),
        })
    }

    /// One TokenReview. Blocks, for 5 s at most.
    #[must_use]
    pub fn review(&self, token: &str) -> Verdict {
        let body = json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self.audience]},
        });
        match self.client.post(PATH, &body) {
            Err(text) => Verdict::Unavailable(short(&text)),
            Ok((200 | 201, answer)) => self.judge(&answer["status"]),
            Ok((status, answer)) => Verdict::Unavailable(refusal(status, &answer)),
        }
    }

    fn judge(&self, status: &Value) -> Verdict {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        if status["authenticated"] != Value::Bool(true) {
            let error = text(&status["error"]);
            let why = if error.is_empty() { "it is not valid".to_owned() } else { error };
            return Verdict::Denied(short(&format!("the API server refused the token: {why}")));
        }
        let (error, user) = (text(&status["error"]), text(&status["user"]["username"]));
        if !error.is_empty() {
            return Verdict::Denied(short(&format!("the API server is not sure about the token: {error}")));
        }
        if user != self.user {
            return Verdict::Denied(short(&format!(
                "the token is of {user:?}, agents must be {:?}",
                self.user
            )));
        }
        // An API server that knows no audiences names none.
        let foreign =
            |audiences: &Vec<Value>| !audiences.is_empty() && !audiences.contains(&json!(self.audience));
        if status["audiences"].as_array().is_some_and(foreign) {
            return Verdict::Denied(format!("the token is not for the audience {:?}", self.audience));
        }
        Verdict::Accepted
    }
}

/// Our own account may be at fault, or the API server: not the agent.
fn refusal(status: u16, answer: &Value) -> String {
    let advice = match status {
        401 => " (it does not know this server: see --kubeconfig)",
        403 => " (this server's account needs the cluster role system:auth-delegator)",
        _ => "",
    };
    let message = answer["message"].as_str().unwrap_or("no reason given");
    short(&format!("the API server answered a TokenReview with {status}{advice}: {message}"))
}

fn short(text: &str) -> String {
    text.chars().take(TEXT_LEN_MAX).collect()
}

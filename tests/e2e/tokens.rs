//! Agents known by token, judged by an API server that is well, ill, or silent.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::front::{Client, Front};
use crate::rig::{Process, Rig, echo, get, wait_for};

/// What the API says next: a status and a body, or nothing at all.
type Answer = Option<(u16, String)>;

struct Api {
    port: u16,
    answer: Arc<Mutex<Answer>>,
    requests: Arc<Mutex<Vec<String>>>,
}

impl Api {
    fn start(certs: &Path) -> Self {
        let chain =
            CertificateDer::pem_file_iter(certs.join("server.crt")).unwrap().map(Result::unwrap).collect();
        let key = PrivateKeyDer::from_pem_file(certs.join("server.key")).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder =
            ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let config = Arc::new(builder.with_no_client_auth().with_single_cert(chain, key).unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answer, requests) = (Arc::new(Mutex::new(None)), Arc::new(Mutex::new(Vec::new())));
        let (say, heard) = (Arc::clone(&answer), Arc::clone(&requests));
        std::thread::spawn(move || {
            for conn in listener.incoming().flatten() {
                let (config, say, heard) = (Arc::clone(&config), Arc::clone(&say), Arc::clone(&heard));
                std::thread::spawn(move || {
                    let mut stream = StreamOwned::new(ServerConnection::new(config).unwrap(), conn);
                    let Some(request) = read_request(&mut stream) else { return };
                    heard.lock().unwrap().push(request);
                    let answer: Answer = say.lock().unwrap().clone();
                    let Some((status, body)) = answer else {
                        let _until_the_client_leaves = stream.read(&mut [0]);
                        return;
                    };
                    let length = body.len();
                    let head = format!(
                        "HTTP/1.1 {status} X\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                    );
                    let _gone = stream.write_all((head + &body).as_bytes());
                    stream.conn.send_close_notify();
                    let _gone = stream.flush();
                });
            }
        });
        Self { port, answer, requests }
    }

    fn say(&self, status: u16, body: &str) {
        *self.answer.lock().unwrap() = Some((status, body.to_owned()));
    }

    fn accept(&self) {
        self.say(201, &status(r#""authenticated": true, "user": {"username": "system:serviceaccount:kube-system:agent"}, "audiences": ["konnectivity"]"#));
    }
}

fn status(fields: &str) -> String {
    format!(r#"{{"kind": "TokenReview", "status": {{{fields}}}}}"#)
}

fn read_request(stream: &mut impl Read) -> Option<String> {
    let mut text = String::new();
    let mut byte = [0];
    loop {
        stream.read_exact(&mut byte).ok()?;
        text.push(char::from(byte[0]));
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length: usize =
                head.to_lowercase().split_once("content-length: ")?.1.split("\r\n").next()?.parse().ok()?;
            if body.len() == length {
                return Some(text);
            }
        }
    }
}

/// A server that knows agents by token.
fn rig(name: &str) -> (Rig, Api) {
    let certs = std::env::temp_dir().join(format!("tautline-api-{name}-{}", std::process::id()));
    tautline::cli::certs::write(&certs, &tautline::cli::certs::CertOptions::default()).unwrap();
    let api = Api::start(&certs);
    let kubeconfig = certs.join("kubeconfig");
    let text = format!(
        "current-context: a\ncontexts: [{{name: a, context: {{cluster: c, user: u}}}}]\n\
         clusters: [{{name: c, cluster: {{server: 'https://127.0.0.1:{}', certificate-authority: ca.crt}}}}]\n\
         users: [{{name: u, user: {{token: of-the-server}}}}]\n",
        api.port
    );
    std::fs::write(&kubeconfig, text).unwrap();
    let flags = [
        "--agent-namespace=kube-system",
        "--agent-service-account=agent",
        "--authentication-audience=konnectivity",
        &format!("--kubeconfig={}", kubeconfig.display()),
    ];
    (Rig::start_by_token(name, Front::Unix, &flags), api)
}

fn agent(rig: &Rig, token: &str) -> Process {
    let file = rig.dir.join("token");
    std::fs::write(&file, format!("{token}\n")).unwrap();
    rig.agent_by_token("a1", &file)
}

#[test]
fn an_agent_is_let_in_by_its_token_which_is_read_anew_each_time() {
    let (mut rig, api) = rig("let-in");
    api.accept();
    let agent = agent(&rig, "one");
    agent.logged("msg=\"link up\"");
    let mut client = Client::dial(&rig, echo());
    client.write_all(b"ping").unwrap();
    client.read_exact(&mut [0; 4]).unwrap();
    std::fs::write(rig.dir.join("token"), "two").unwrap();
    rig.restart_server();
    rig.wait_status("the agent in the table", |status| status.contains("\"agent\": \"a1\""));
    let requests = api.requests.lock().unwrap().clone();
    assert!(requests.len() >= 2);
    let first = &requests[0];
    assert!(first.starts_with("POST /apis/authentication.k8s.io/v1/tokenreviews HTTP/1.1\r\n"), "{first}");
    assert!(first.to_lowercase().contains("authorization: bearer of-the-server"), "{first}");
    for part in [r#""audiences":["konnectivity"]"#, r#""token":"one""#, r#""kind":"TokenReview""#] {
        assert!(first.contains(part), "{first} lacks {part}");
    }
    assert!(requests.last().unwrap().contains(r#""token":"two""#));
    let metrics = get(rig.admin, "/metrics");
    assert!(metrics.contains("tautline_token_reviews_total{result=\"accepted\"} 1"), "{metrics}");
}

/// The agent is told why, in words that say whose fault it is; the loop does not wait for any of this.
#[test]
fn who_is_not_let_in_hears_why() {
    let (rig, api) = rig("not-let-in");
    let other = r#""authenticated": true, "user": {"username": "system:serviceaccount:default:x"}"#;
    let elsewhere = r#""authenticated": true, "user": {"username": "system:serviceaccount:kube-system:agent"}, "audiences": ["api"]"#;
    for (code, body, reason, part) in [
        (
            201,
            status(r#""authenticated": false, "error": "token has expired""#),
            "unauthenticated",
            "token has expired",
        ),
        (201, status(""), "unauthenticated", "not valid"),
        (201, status(other), "unauthenticated", "system:serviceaccount:default:x"),
        (201, status(elsewhere), "unauthenticated", "not for the audience"),
        (403, r#"{"message": "tokenreviews is forbidden"}"#.to_owned(), "try_again", "system:auth-delegator"),
        (401, "{}".to_owned(), "try_again", "--kubeconfig"),
        (503, "<html>busy</html>".to_owned(), "try_again", "503"),
        (302, String::new(), "try_again", "302"),
        (201, "garbage".to_owned(), "try_again", "no JSON"),
    ] {
        api.say(code, &body);
        let agent = agent(&rig, "eyJ");
        let line = agent.logged_line("no link to the server");
        assert!(line.contains(part), "{line} lacks {part}");
        let line = wait_for("the server's line", || {
            rig.server
                .lines()
                .into_iter()
                .find(|line| line.contains("agent not taken") && line.contains(part))
        });
        assert!(line.contains(&format!("reason={reason}")), "{line}");
        assert!(!line.contains("eyJ"), "{line}");
    }
    *api.answer.lock().unwrap() = None;
    let silent = agent(&rig, "eyJ");
    wait_for("a silent API", || (rig.status().contains("\"reviewing\"")).then_some(()));
    assert!(get(rig.health, "/healthz").ends_with("ok"), "the loop goes on");
    drop(silent);
    let _certificate_is_not_enough = rig.agent("certificate").logged_line("no token: this server wants one");
}

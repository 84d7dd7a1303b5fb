//! Every bound and default, with its reason. A bound that is hit has a counter or a log line.

use std::time::Duration;

/// Longest CONNECT head, in bytes; longer is 431.
pub const HEAD_LEN_MAX: usize = 16 * 1024;
/// Most header fields in a CONNECT head; more is 431. kube-apiserver sends one.
pub const HEAD_FIELDS_MAX: usize = 64;
/// A CONNECT head must be complete in this time; then 408.
pub const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Bytes of a frontend kept while its dial is pending; then reading stops.
pub const EARLY_BYTES_MAX: usize = 64 * 1024;

/// Credit of a new stream in each direction, in bytes.
pub const WINDOW_INITIAL: u32 = 64 * 1024;
/// What a slow reader took is told at least this often: the other end may wait for a sign of it
/// ([`LINGER_TIMEOUT`]).
pub const SLOW_GRANT_AFTER: Duration = Duration::from_secs(10);
/// Largest window of a stream, in bytes: 4 MiB is 40 MB/s over 100 ms.
pub const WINDOW_MAX: u32 = 4 * 1024 * 1024;
/// What a stream keeps when the pool is short, in bytes.
pub const WINDOW_GUARANTEED: u32 = 16 * 1024;
/// All receive windows of a server together, in bytes.
pub const WINDOW_POOL_SERVER: u64 = 256 * 1024 * 1024;
/// All receive windows of an agent together, in bytes.
pub const WINDOW_POOL_AGENT: u64 = 64 * 1024 * 1024;

/// Bytes taken from one stream before the next one has its turn.
pub const STREAM_QUANTUM: u32 = 32 * 1024;
/// Control frames waiting for a peer that does not read, in bytes; more ends the link. 10 000 dials fit.
pub const CONTROL_BACKLOG_MAX: usize = 4 * 1024 * 1024;
/// A dial waits at least this long for evidence of life before it is tried elsewhere too.
pub const HEDGE_DELAY_MIN: Duration = Duration::from_millis(100);

/// Dials that wait for an agent or its answer; more get 503 at once.
pub const PENDING_DIALS_MAX: usize = 10_000;
/// Links that have not said HELLO yet, at most; fewer where descriptors are short. One more evicts the oldest.
pub const UNAUTHENTICATED_LINKS_MAX: usize = 1024;
/// The oldest of them is not evicted before it had this long ...
pub const GREETING_PATIENCE: Duration = Duration::from_secs(1);
/// ... and this for each that shares our one processor with it: until then newcomers wait in the kernel's backlog, so
/// that a thousand agents that come back at once do not throw each other out.
pub const GREETING_COST: Duration = Duration::from_millis(2);
/// TLS handshakes advanced in one turn: one costs 0.5-2 ms, and links that live go first.
pub const HANDSHAKES_PER_TURN: usize = 8;
/// Connect, TLS and HELLO of a link together.
pub const GREETING_TIMEOUT: Duration = Duration::from_secs(10);

/// A pending dial asks its agents for a sign of life at least this often.
pub const DIAL_LOOK_PAUSE_MAX: Duration = Duration::from_secs(1);
/// An agent that speaks but has not answered a dial so long after its own limit has failed.
pub const ANSWER_GRACE: Duration = Duration::from_millis(500);
/// Such an agent is asked only if nobody else is there, for this long.
pub const STRIKE_TIME: Duration = Duration::from_secs(30);

/// A dial ends with 504 after this (`--backend-dial-timeout`).
pub const DIAL_TIMEOUT: Duration = Duration::from_secs(8);
/// Links that one dial is tried on: two more after the first.
pub const DIAL_ATTEMPTS_MAX: usize = 3;
/// A dial waits this long for an agent when there is none (`--dial-wait`).
pub const DIAL_WAIT: Duration = Duration::from_secs(2);
/// The agent's own limit for lookup and connect together.
pub const TARGET_CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// What the agent leaves of the server's time for the way back.
pub const DIAL_ANSWER_RESERVE: Duration = Duration::from_millis(200);
/// Happy Eyeballs: the next address is tried after this (RFC 8305 section 5).
pub const CONNECT_ATTEMPT_DELAY: Duration = Duration::from_millis(250);
/// Addresses of one name that are tried at most.
pub const CONNECT_ADDRESSES_MAX: usize = 16;

/// One attempt of an agent to reach its server (connect only).
pub const LINK_CONNECT_TIMEOUT: Duration = Duration::from_secs(2);

/// A tunnel's TCP socket whose bytes nobody acknowledged for this long has lost its peer: while bytes are unacknowledged
/// the kernel sends no keepalive, and would try for 15 minutes. A peer that only reads slowly acknowledges probes.
pub const VANISHED_AFTER: Duration = Duration::from_secs(60);
/// How often a tunnel that was written to is looked at for that.
pub const VANISHED_LOOK: Duration = Duration::from_secs(20);
/// An agent opens another link when its server was silent for `--dead-after`; the old one is kept for this many times as long.
/// The server may only stand still (a paused VM), and no tunnel should die of that.
pub const SERVER_PATIENCE: u32 = 3;
/// An agent that lost its server, or does not reach it, tries again after at least this.
pub const REDIAL_DELAY_MIN: Duration = Duration::from_millis(300);
/// And at most this: with [`LINK_CONNECT_TIMEOUT`] it is back within 4 s of any heal.
pub const REDIAL_DELAY_MAX: Duration = Duration::from_millis(1500);

/// A process that drains ends when nothing was alive for this long: a dial that was on its way is still served.
pub const DRAIN_LINGER: Duration = Duration::from_secs(1);
/// How often it looks.
pub const DRAIN_LOOK: Duration = Duration::from_millis(100);

/// A closing socket whose peer takes nothing is cut after this.
pub const LINGER_TIMEOUT: Duration = Duration::from_secs(60);
/// A tunnel that is half-closed and silent is cut after this (a FIN may be a legal half-close).
pub const HALF_CLOSED_IDLE_TIMEOUT: Duration = Duration::from_secs(3600);

/// All streams of a link are looked through for those that nothing moves at most this often.
pub const SWEEP_PAUSE_MIN: Duration = Duration::from_secs(1);

/// Threads that look names up, besides one for the server's name: so many names whose resolver is silent keep
/// nobody else waiting. They start when needed; one costs some 50 KiB while it lives.
pub const RESOLVER_THREADS: usize = 64;
/// Dials that wait for a look-up; more fail at once.
pub const RESOLVER_QUEUE_MAX: usize = 1024;
/// Threads for files and requests to the Kubernetes API. One request takes milliseconds, or 5 s when the API is silent.
pub const TASK_THREADS: usize = 4;
/// Tasks that wait for one; more fail at once, and their agents come again.
pub const TASK_QUEUE_MAX: usize = 1024;
/// Log lines of one kind that a peer can cause, in each [`LOG_INTERVAL`]; the rest is counted.
pub const LOG_LINES_PER_KIND: u32 = 5;
/// See [`LOG_LINES_PER_KIND`].
pub const LOG_INTERVAL: Duration = Duration::from_secs(10);
/// Descriptors kept back from tunnels: listeners, links, strangers, probes, a log, the poller. An eighth of all, within
/// these bounds.
pub const DESCRIPTOR_RESERVE_MIN: usize = 32;
/// See [`DESCRIPTOR_RESERVE_MIN`]: 1024 strangers and about as many links.
pub const DESCRIPTOR_RESERVE_MAX: usize = 2048;
/// Clients of the health port at once, at most, and as many of the admin port; one more evicts the oldest. Probes and
/// scrapers are few.
pub const PROBES_MAX: usize = 32;
/// When tunnels are as many as may be, a client that has not sent its head for this long makes room for a newcomer.
pub const HEAD_PATIENCE: Duration = Duration::from_secs(1);
/// Log lines that wait for the writer; more are counted and dropped, the loop never waits.
pub const LOG_QUEUE_MAX: usize = 4096;

/// What is read from a link at once, in bytes: four TLS records and what an earlier read left.
pub const READ_BUFFER_LEN: usize = 128 * 1024;
/// What is read at once of a frontend under TLS, in bytes: an unfinished handshake and a record fit.
pub const TUNNEL_BUFFER_LEN: usize = 64 * 1024;
/// What is written to a link at once, in bytes: eight TLS records.
pub const TRANSMIT_BUFFER_LEN: usize = 128 * 1024;
/// Bytes read from one link in one turn; then the others have their turn.
pub const LINK_READ_PER_TURN: usize = 512 * 1024;
/// Bytes written to one link in one turn.
pub const LINK_WRITE_PER_TURN: usize = 512 * 1024;
/// A pause of our own process of this length is not held against anybody.
pub const PAUSE_MIN: Duration = Duration::from_millis(500);
/// A listener that can take nobody, for want of descriptors or of room for strangers, rests this long.
pub const ACCEPT_REST: Duration = Duration::from_millis(100);
/// When a closing socket is first asked whether its peer has everything: no edge tells.
pub const CLOSING_POLL_MIN: Duration = Duration::from_millis(50);
/// It is asked less and less often, down to this.
pub const CLOSING_POLL_MAX: Duration = Duration::from_secs(1);

/// Backlog of each listener: kube-apiserver fails at once when a Unix socket's is full.
pub const LISTEN_BACKLOG: i32 = 4096;
/// Connections accepted from one listener in one turn.
pub const ACCEPTS_PER_TURN: usize = 256;

const _: () = {
    assert!(WINDOW_GUARANTEED <= WINDOW_INITIAL && WINDOW_INITIAL <= WINDOW_MAX);
    assert!(TARGET_CONNECT_TIMEOUT.as_millis() + DIAL_ANSWER_RESERVE.as_millis() < DIAL_TIMEOUT.as_millis());
    assert!(LINK_CONNECT_TIMEOUT.as_millis() + REDIAL_DELAY_MAX.as_millis() < 4000);
    assert!(SLOW_GRANT_AFTER.as_secs() * 3 < LINGER_TIMEOUT.as_secs());
    assert!(WINDOW_MAX as u64 <= WINDOW_POOL_AGENT);
};

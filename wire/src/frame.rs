//! One type per frame. Representation only: no state, no policy.

/// A frame other than DATA, decoded whole.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Control {
    /// Server to agent: connect to a target (type 0).
    DialReq(DialReq),
    /// Agent to server: what became of a dial (type 1).
    DialRsp(DialRsp),
    /// Either way: both directions of the stream end here (type 2).
    CloseReq(Close),
    /// Answer to CLOSE_REQ (type 3).
    CloseRsp(Close),
    /// The dial is given up (server to agent) or was dropped (agent to server) (type 5).
    DialCls(Close),
    /// Agent to server: no new dials, please (type 6).
    Drain,
    /// Agent to server, first frame of a link (type 16).
    Hello(Hello),
    /// Server to agent, answer to HELLO (type 17).
    Welcome(Welcome),
    /// Are you there (type 18)? The payload comes back in PONG.
    Ping(u64),
    /// Answer to PING (type 19).
    Pong(u64),
    /// More credit for a stream (type 20).
    Window(Window),
    /// The link ends, and why (type 22). Type 21 (ACK) is reserved.
    GoAway(GoAway),
}

/// Payload of DIAL_REQ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialReq {
    /// Chosen by the server, never reused, never 0.
    pub stream: u64,
    /// Milliseconds that the server will still wait for the answer.
    pub time_left_ms: u32,
    /// `host:port` as the frontend asked for it; IPv6 in brackets. At most [`crate::TARGET_LEN_MAX`] bytes.
    pub target: String,
}

/// Payload of DIAL_RSP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialRsp {
    /// The stream of the DIAL_REQ.
    pub stream: u64,
    /// `Ok` when the target is connected.
    pub result: Result<(), DialFailure>,
}

/// Why a dial failed, as the agent saw it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DialFailure {
    /// For the server: status, metric label, whether another agent may be tried.
    pub code: DialCode,
    /// For people. At most [`crate::TEXT_LEN_MAX`] bytes.
    pub text: String,
}

/// Stable codes of a failed dial. An unknown number decodes as [`DialCode::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum DialCode {
    /// Anything without a code of its own.
    Other = 0,
    /// ECONNREFUSED.
    Refused = 1,
    /// No answer within the agent's limit.
    TimedOut = 2,
    /// The name does not exist.
    NameNotFound = 3,
    /// The resolver failed or did not answer.
    ResolverFailed = 4,
    /// ENETUNREACH, ENETDOWN.
    NetworkUnreachable = 5,
    /// EHOSTUNREACH.
    HostUnreachable = 6,
    /// EMFILE, ENFILE: the agent is out of descriptors.
    OutOfDescriptors = 7,
    /// EADDRNOTAVAIL: out of ephemeral ports.
    AddressNotAvailable = 8,
    /// The target reset the connection while it was set up.
    Reset = 9,
    /// The target is not `host:port`.
    BadTarget = 10,
    /// The agent has as many tunnels as it may.
    TooManyTunnels = 11,
    /// The agent is shutting down.
    ShuttingDown = 12,
    /// EACCES, EPERM: a local policy forbids it.
    Forbidden = 13,
}

/// Payload of CLOSE_REQ, CLOSE_RSP and DIAL_CLS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close {
    /// The stream that ends.
    pub stream: u64,
    /// Why.
    pub code: CloseCode,
}

/// Stable codes of a stream's end. An unknown number decodes as [`CloseCode::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum CloseCode {
    /// Anything without a code of its own.
    Other = 0,
    /// The peer's socket is gone after all its bytes were sent: deliver what is queued, then close.
    Normal = 1,
    /// The peer's socket was reset: deliver what is queued, then reset.
    Reset = 2,
    /// A wait ended (half-closed, lingering or stalled for too long).
    TimedOut = 3,
    /// The dial is no longer wanted: the frontend left, or another agent was faster.
    Cancelled = 4,
    /// The process is ending.
    Shutdown = 5,
    /// The peer broke a rule of the stream (credit, state).
    Protocol = 6,
}

/// Payload of HELLO. Fields are tag-length-value on the wire; unknown fields are skipped.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Hello {
    /// Lowest protocol version that the agent speaks.
    pub version_min: u16,
    /// Highest protocol version that the agent speaks.
    pub version_max: u16,
    /// Feature bits offered.
    pub features: u64,
    /// `--agent-id`. At most [`crate::ID_LEN_MAX`] bytes.
    pub agent_id: String,
    /// `--agent-identifiers`, as given. At most [`crate::IDENTIFIERS_LEN_MAX`] bytes.
    pub identifiers: String,
    /// Bearer token, if any. At most [`crate::TOKEN_LEN_MAX`] bytes. Never logged.
    pub token: Option<String>,
    /// `--ping-interval` of the agent in ms, 0 = no pings.
    pub ping_interval_ms: u32,
    /// Bytes that the server may send on a new stream before the first WINDOW.
    pub window: u32,
    /// Longest DATA payload that the agent takes.
    pub data_len_max: u32,
}

/// Payload of WELCOME. Fields are tag-length-value on the wire; unknown fields are skipped.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Welcome {
    /// The version to speak.
    pub version: u16,
    /// Feature bits agreed on (a subset of those offered).
    pub features: u64,
    /// `--server-id`.
    pub server_id: String,
    /// `--server-count`, at least 1.
    pub server_count: u32,
    /// Bytes that the agent may send on a new stream before the first WINDOW.
    pub window: u32,
    /// Longest DATA payload that the server takes.
    pub data_len_max: u32,
}

/// Payload of WINDOW.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// The stream that may go on.
    pub stream: u64,
    /// Bytes added to the credit. Never 0.
    pub credit: u32,
}

/// Payload of GOAWAY.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GoAway {
    /// For the peer.
    pub code: GoAwayCode,
    /// For people. At most [`crate::TEXT_LEN_MAX`] bytes.
    pub text: String,
}

/// Stable codes of a link's end. An unknown number decodes as [`GoAwayCode::Other`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u16)]
pub enum GoAwayCode {
    /// Anything without a code of its own.
    Other = 0,
    /// The process is ending.
    Shutdown = 1,
    /// A rule of PROTOCOL.md was broken.
    Protocol = 2,
    /// No common version.
    Version = 3,
    /// Who are you: certificate or token was refused.
    Unauthenticated = 4,
    /// A bound of the receiver is reached (links, links per address).
    TooMany = 5,
    /// HELLO did not come in time.
    HelloTimeout = 6,
    /// The link is one too many: this server already has one of this agent.
    Duplicate = 7,
}

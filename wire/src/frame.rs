//! One type per frame. Representation only: no state, no policy.

use std::fmt;

use crate::FrameType;

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

impl Control {
    /// The type in the header.
    #[must_use]
    pub const fn frame_type(&self) -> FrameType {
        match self {
            Self::DialReq(_) => FrameType::DialReq,
            Self::DialRsp(_) => FrameType::DialRsp,
            Self::CloseReq(_) => FrameType::CloseReq,
            Self::CloseRsp(_) => FrameType::CloseRsp,
            Self::DialCls(_) => FrameType::DialCls,
            Self::Drain => FrameType::Drain,
            Self::Hello(_) => FrameType::Hello,
            Self::Welcome(_) => FrameType::Welcome,
            Self::Ping(_) => FrameType::Ping,
            Self::Pong(_) => FrameType::Pong,
            Self::Window(_) => FrameType::Window,
            Self::GoAway(_) => FrameType::GoAway,
        }
    }

    /// The stream in the header, 0 = the link itself.
    #[must_use]
    pub const fn stream(&self) -> u64 {
        match self {
            Self::DialReq(request) => request.stream,
            Self::DialRsp(response) => response.stream,
            Self::CloseReq(close) | Self::CloseRsp(close) | Self::DialCls(close) => close.stream,
            Self::Window(window) => window.stream,
            Self::Drain
            | Self::Hello(_)
            | Self::Welcome(_)
            | Self::Ping(_)
            | Self::Pong(_)
            | Self::GoAway(_) => 0,
        }
    }
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
#[derive(Clone, PartialEq, Eq, Default)]
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

impl fmt::Debug for Hello {
    /// Everything but the token: it opens doors, and debug output ends in logs.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            version_min,
            version_max,
            features,
            agent_id,
            identifiers,
            token,
            ping_interval_ms,
            window,
            data_len_max,
        } = self;
        f.debug_struct("Hello")
            .field("version_min", version_min)
            .field("version_max", version_max)
            .field("features", features)
            .field("agent_id", agent_id)
            .field("identifiers", identifiers)
            .field("token", &token.as_ref().map(|_| format_args!("<hidden>")))
            .field("ping_interval_ms", ping_interval_ms)
            .field("window", window)
            .field("data_len_max", data_len_max)
            .finish()
    }
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
    /// The receiver cannot judge the sender's token now, and may be able to later.
    TryAgain = 8,
}

/// Numbers and names of a code enum from one list; the `match` makes the list complete.
macro_rules! codes {
    ($code:ident { $($variant:ident => $name:literal,)+ }) => {
        impl $code {
            /// Every code, in order of its number.
            pub const ALL: &[Self] = &[$(Self::$variant),+];

            /// The code with this number; an unknown one is `Other`.
            #[must_use]
            pub fn from_u16(number: u16) -> Self {
                Self::ALL.iter().copied().find(|code| *code as u16 == number).unwrap_or(Self::Other)
            }

            /// The metric label and log word. Stable.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$variant => $name,)+
                }
            }
        }
    };
}

codes!(DialCode {
    Other => "other",
    Refused => "refused",
    TimedOut => "timed_out",
    NameNotFound => "name_not_found",
    ResolverFailed => "resolver_failed",
    NetworkUnreachable => "network_unreachable",
    HostUnreachable => "host_unreachable",
    OutOfDescriptors => "out_of_descriptors",
    AddressNotAvailable => "address_not_available",
    Reset => "reset",
    BadTarget => "bad_target",
    TooManyTunnels => "too_many_tunnels",
    ShuttingDown => "shutting_down",
    Forbidden => "forbidden",
});

codes!(CloseCode {
    Other => "other",
    Normal => "normal",
    Reset => "reset",
    TimedOut => "timed_out",
    Cancelled => "cancelled",
    Shutdown => "shutdown",
    Protocol => "protocol",
});

codes!(GoAwayCode {
    Other => "other",
    Shutdown => "shutdown",
    Protocol => "protocol",
    Version => "version",
    Unauthenticated => "unauthenticated",
    TooMany => "too_many",
    HelloTimeout => "hello_timeout",
    Duplicate => "duplicate",
    TryAgain => "try_again",
});

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn codes_keep_their_numbers_and_unknown_ones_are_other() {
        assert_eq!(DialCode::from_u16(7), DialCode::OutOfDescriptors);
        assert_eq!(DialCode::from_u16(13), DialCode::Forbidden);
        assert_eq!(DialCode::from_u16(14), DialCode::Other);
        assert_eq!(CloseCode::from_u16(2), CloseCode::Reset);
        assert_eq!(CloseCode::from_u16(7), CloseCode::Other);
        assert_eq!(GoAwayCode::from_u16(3), GoAwayCode::Version);
        assert_eq!(GoAwayCode::from_u16(u16::MAX), GoAwayCode::Other);
        let numbers: Vec<u16> = DialCode::ALL.iter().map(|code| *code as u16).collect();
        assert_eq!(numbers, (0..14).collect::<Vec<_>>());
        let numbers: Vec<u16> = CloseCode::ALL.iter().map(|code| *code as u16).collect();
        assert_eq!(numbers, (0..7).collect::<Vec<_>>());
        let numbers: Vec<u16> = GoAwayCode::ALL.iter().map(|code| *code as u16).collect();
        assert_eq!(numbers, (0..9).collect::<Vec<_>>());
    }

    #[test]
    fn names_are_distinct_metric_labels() {
        fn check<T: Copy>(all: &[T], name: impl Fn(T) -> &'static str) {
            let names: BTreeSet<&str> = all.iter().map(|code| name(*code)).collect();
            assert_eq!(names.len(), all.len());
            assert!(
                names.iter().all(|name| name.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
            );
        }
        check(DialCode::ALL, DialCode::name);
        check(CloseCode::ALL, CloseCode::name);
        check(GoAwayCode::ALL, GoAwayCode::name);
    }

    #[test]
    fn a_token_is_not_in_debug_output() {
        let hello = Hello { token: Some("eyJhbGciOi".into()), ..Hello::default() };
        let text = format!("{:?} {:#?}", Control::Hello(hello.clone()), hello);
        assert!(!text.contains("eyJ"), "{text}");
        assert!(text.contains("hidden"), "one must still see that there is a token: {text}");
        assert!(!format!("{:?}", Hello::default()).contains("hidden"));
    }
}

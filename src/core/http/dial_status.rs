//! What a failed dial is called: the status for the frontend, the label for the metrics.

use tautline_wire::DialCode;

use crate::core::http::Status;

/// The status that a frontend gets. Konnectivity derives it from the agent's text; the codes make it a `match`.
#[must_use]
pub const fn status(code: DialCode) -> Status {
    match code {
        DialCode::TimedOut => Status::GatewayTimeout,
        DialCode::OutOfDescriptors | DialCode::TooManyTunnels | DialCode::ShuttingDown => {
            Status::ServiceUnavailable
        }
        DialCode::Other
        | DialCode::Refused
        | DialCode::NameNotFound
        | DialCode::ResolverFailed
        | DialCode::NetworkUnreachable
        | DialCode::HostUnreachable
        | DialCode::AddressNotAvailable
        | DialCode::Reset
        | DialCode::BadTarget
        | DialCode::Forbidden => Status::BadGateway,
    }
}

/// The label `code` of `tautline_dial_errors_total`.
#[must_use]
pub const fn label(code: DialCode) -> &'static str {
    match code {
        DialCode::Other => "other",
        DialCode::Refused => "refused",
        DialCode::TimedOut => "timed_out",
        DialCode::NameNotFound => "name_not_found",
        DialCode::ResolverFailed => "resolver_failed",
        DialCode::NetworkUnreachable => "network_unreachable",
        DialCode::HostUnreachable => "host_unreachable",
        DialCode::OutOfDescriptors => "out_of_descriptors",
        DialCode::AddressNotAvailable => "address_not_available",
        DialCode::Reset => "reset",
        DialCode::BadTarget => "bad_target",
        DialCode::TooManyTunnels => "too_many_tunnels",
        DialCode::ShuttingDown => "shutting_down",
        DialCode::Forbidden => "forbidden",
    }
}

/// The label `reason` of Konnectivity's `endpoint_dial_failure_total`, which knows two.
#[must_use]
pub const fn endpoint_failure_label(code: DialCode) -> &'static str {
    match code {
        DialCode::TimedOut => "timeout",
        _ => "unknown",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const ALL: [DialCode; 14] = [
        DialCode::Other,
        DialCode::Refused,
        DialCode::TimedOut,
        DialCode::NameNotFound,
        DialCode::ResolverFailed,
        DialCode::NetworkUnreachable,
        DialCode::HostUnreachable,
        DialCode::OutOfDescriptors,
        DialCode::AddressNotAvailable,
        DialCode::Reset,
        DialCode::BadTarget,
        DialCode::TooManyTunnels,
        DialCode::ShuttingDown,
        DialCode::Forbidden,
    ];

    #[test]
    fn statuses() {
        let with = |wanted| ALL.into_iter().filter(|code| status(*code) == wanted).collect::<Vec<_>>();
        assert_eq!(with(Status::GatewayTimeout), [DialCode::TimedOut]);
        assert_eq!(
            with(Status::ServiceUnavailable),
            [DialCode::OutOfDescriptors, DialCode::TooManyTunnels, DialCode::ShuttingDown]
        );
        assert_eq!(with(Status::BadGateway).len(), 10);
    }

    #[test]
    fn labels_differ() {
        assert_eq!(ALL.into_iter().map(label).collect::<BTreeSet<_>>().len(), ALL.len());
        assert_eq!(endpoint_failure_label(DialCode::TimedOut), "timeout");
        assert_eq!(endpoint_failure_label(DialCode::Refused), "unknown");
    }
}

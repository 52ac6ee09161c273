//! Errors of calls to the coordinator, and whether a retry can help.

use docket_schema::api::{ProblemCode, ProblemDetails};

/// A failed call. Messages are one line each; the cause is the source.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The coordinator refused the request.
    #[error("{}", format_problem(.0))]
    Problem(Box<ProblemDetails>),
    /// No response: connection refused or reset, or a timeout. Whether the request took effect is unknown, so
    /// only repeatable calls are retried.
    #[error("{}", format_unreachable(doing, url, source.as_ref()))]
    Unreachable {
        /// The operation, such as "append events".
        doing: &'static str,
        /// The coordinator's address.
        url: String,
        /// The network error.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The server is reachable, but no trusted encrypted connection can be made: an unknown CA, a certificate
    /// that has expired or belongs to another host, or no TLS at all.
    #[error(
        "no trusted connection to the coordinator at {url} to {doing}: {why}; check the address, DOCKET_CA (`client.ca`) and the coordinator's certificate"
    )]
    Tls {
        /// The operation, such as "append events".
        doing: &'static str,
        /// The coordinator's address.
        url: String,
        /// The TLS error.
        why: String,
    },
    /// The response does not follow docket's protocol.
    #[error(
        "the server at {url} does not use docket's protocol ({doing}: {what}); check the address and that both sides have the same version"
    )]
    Protocol {
        /// The operation.
        doing: &'static str,
        /// The coordinator's address.
        url: String,
        /// The problem with the response. Never its content.
        what: String,
    },
    /// The address is invalid.
    #[error("the coordinator's address must look like http://HOST:PORT, without user, path or query")]
    InvalidUrl,
    /// The private CA is invalid.
    #[error("DOCKET_CA (`client.ca`) contains no readable PEM certificate")]
    InvalidCa,
    /// The HTTP client could not be created.
    #[error("cannot set up connections to the coordinator; for https, check the system's certificates")]
    Setup(#[source] reqwest::Error),
}

/// A coordinator that was reached but did not respond in time may have executed the request.
fn format_unreachable(doing: &str, url: &str, source: &(dyn std::error::Error + 'static)) -> String {
    let causes = || std::iter::successors(Some(source), |cause| cause.source());
    let of_client = |is: fn(&reqwest::Error) -> bool| {
        causes().any(|cause| cause.downcast_ref::<reqwest::Error>().is_some_and(is))
    };
    let timed_out = |cause: &(dyn std::error::Error + 'static)| {
        cause.downcast_ref::<std::io::Error>().is_some_and(|io| io.kind() == std::io::ErrorKind::TimedOut)
    };
    let late = of_client(reqwest::Error::is_timeout) || causes().any(timed_out);
    match late && !of_client(reqwest::Error::is_connect) {
        true => format!(
            "the coordinator at {url} did not respond in time ({doing}); the request may have taken effect: \
             check before you repeat it"
        ),
        false => {
            format!("cannot reach the coordinator at {url} to {doing}: is it running? `docket up` starts one")
        }
    }
}

impl ClientError {
    /// Whether the same call may succeed later without any change.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Tls { .. } => true,
            Self::Problem(problem) => matches!(problem.code, ProblemCode::Unavailable | ProblemCode::TooMany),
            Self::Protocol { .. } | Self::InvalidUrl | Self::InvalidCa | Self::Setup(_) => false,
        }
    }

    /// Whether the store is full: the same call succeeds after space is freed.
    pub(crate) fn is_storage_full(&self) -> bool {
        self.problem_code() == Some(ProblemCode::StorageFull)
    }

    /// The coordinator's problem code, if it responded with one.
    pub fn problem_code(&self) -> Option<ProblemCode> {
        self.problem().map(|problem| problem.code)
    }

    /// The coordinator's problem, if it responded with one.
    pub fn problem(&self) -> Option<&ProblemDetails> {
        match self {
            Self::Problem(problem) => Some(problem),
            Self::Unreachable { .. }
            | Self::Tls { .. }
            | Self::Protocol { .. }
            | Self::InvalidUrl
            | Self::InvalidCa
            | Self::Setup(_) => None,
        }
    }
}

fn format_problem(problem: &ProblemDetails) -> String {
    let text = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
    let text = text.replace(['\n', '\r'], " ");
    match problem.code {
        ProblemCode::Unauthorized => format!("{text} (set DOCKET_TOKEN to the coordinator's token)"),
        ProblemCode::InvalidRequest
        | ProblemCode::Forbidden
        | ProblemCode::NotFound
        | ProblemCode::Ambiguous
        | ProblemCode::IdTaken
        | ProblemCode::WrongState
        | ProblemCode::WrongSeq
        | ProblemCode::Fenced
        | ProblemCode::LeaseExpired
        | ProblemCode::Ended
        | ProblemCode::BlobMissing
        | ProblemCode::BlobMismatch
        | ProblemCode::MethodNotAllowed
        | ProblemCode::UnsupportedMedia
        | ProblemCode::TooLarge
        | ProblemCode::TooMany
        | ProblemCode::Unavailable
        | ProblemCode::StorageFull
        | ProblemCode::Corrupt
        | ProblemCode::Internal => text,
    }
}

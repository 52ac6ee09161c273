//! Why a call to the coordinator gave nothing, and whether it is worth another try.

use docket_schema::api::{ProblemCode, ProblemDetails};

/// A call that failed. One line each; the cause is the source.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The coordinator answered, and said no.
    #[error("{}", format_problem(.0))]
    Problem(Box<ProblemDetails>),
    /// No answer came: refused connection, reset, time-out. Whether the request had its effect is
    /// unknown, so only repeatable calls are sent again.
    #[error("{}", format_unreachable(doing, url, source.as_ref()))]
    Unreachable {
        /// What was wanted: "append events".
        doing: &'static str,
        /// The coordinator's address.
        url: String,
        /// What the network said.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// Somebody is there, and no encrypted connection to them can be made: another CA, another host's or an
    /// expired certificate, no TLS at all.
    #[error(
        "no trusted connection to the coordinator at {url} to {doing}: {why}; check the address, DOCKET_CA (`client.ca`) and the coordinator's certificate"
    )]
    Tls {
        /// What was wanted: "append events".
        doing: &'static str,
        /// The coordinator's address.
        url: String,
        /// What TLS says.
        why: String,
    },
    /// An answer came that is none of ours.
    #[error(
        "what answered at {url} ({doing}) does not speak docket's protocol: {what}; check the address and that both sides have the same version"
    )]
    Protocol {
        /// What was wanted.
        doing: &'static str,
        /// The coordinator's address.
        url: String,
        /// What is wrong with the answer. Never its content.
        what: String,
    },
    /// The address cannot be one.
    #[error("the coordinator's address must look like http://HOST:PORT, without user, path or query")]
    InvalidUrl,
    /// The private CA is none.
    #[error("DOCKET_CA (`client.ca`) holds no certificate in PEM that can be read")]
    InvalidCa,
    /// The HTTP client could not be made.
    #[error("cannot prepare connections to the coordinator; for https, check the system's certificates")]
    Setup(#[source] reqwest::Error),
}

/// Whoever was heard of, and did not answer in time, may have done what was asked.
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
            "the coordinator at {url} did not answer in time to {doing}; what was asked may have been done all the same: \
             look before you ask again"
        ),
        false => {
            format!("cannot reach the coordinator at {url} to {doing}: is it running? `docket up` starts one")
        }
    }
}

impl ClientError {
    /// Whether the same call may succeed later without anything being changed.
    pub fn is_retryable(&self) -> bool {
        match self {
            Self::Unreachable { .. } | Self::Tls { .. } => true,
            Self::Problem(problem) => matches!(problem.code, ProblemCode::Unavailable | ProblemCode::TooMany),
            Self::Protocol { .. } | Self::InvalidUrl | Self::InvalidCa | Self::Setup(_) => false,
        }
    }

    /// Whether the store has no room: the same call succeeds once somebody has made some.
    pub(crate) fn is_storage_full(&self) -> bool {
        self.problem_code() == Some(ProblemCode::StorageFull)
    }

    /// The coordinator's code, where it answered.
    pub fn problem_code(&self) -> Option<ProblemCode> {
        self.problem().map(|problem| problem.code)
    }

    /// The coordinator's problem, where it answered.
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

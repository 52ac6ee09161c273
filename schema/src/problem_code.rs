//! The stable codes of the API's errors. Not in `wire/`, because the log holds them as well: of calls that were refused.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The stable codes of errors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The body or query does not have its shape, or breaks a rule.
    InvalidRequest,
    /// No token, or not one of ours.
    Unauthorized,
    /// The token is not good for this.
    Forbidden,
    /// No such task, run, blob or route.
    NotFound,
    /// A prefix that fits several ids.
    Ambiguous,
    /// The id that the client chose is already used for something else.
    IdTaken,
    /// The task's state does not allow it.
    WrongState,
    /// The stream's head is elsewhere; what is missing is in `missing`.
    WrongSeq,
    /// A higher epoch is in force: another worker has the task.
    Fenced,
    /// The lease expired, and nobody has the task yet: it must be leased again.
    LeaseExpired,
    /// The run or task is over.
    Ended,
    /// An event names a blob that is not stored.
    BlobMissing,
    /// A blob's bytes do not have its hash or size.
    BlobMismatch,
    /// The route exists, under another method.
    MethodNotAllowed,
    /// The body is of another content type than the route takes.
    UnsupportedMedia,
    /// A body, or a count in it, is over its limit.
    TooLarge,
    /// Too many requests in too short a time.
    TooMany,
    /// The store cannot take it now; nothing was written.
    Unavailable,
    /// The store is full; nothing was written.
    StorageFull,
    /// What is stored is not what docket wrote.
    Corrupt,
    /// A fault of docket.
    Internal,
}

impl ProblemCode {
    /// All codes, in declaration order.
    pub const ALL: [Self; 21] = [
        Self::InvalidRequest,
        Self::Unauthorized,
        Self::Forbidden,
        Self::NotFound,
        Self::Ambiguous,
        Self::IdTaken,
        Self::WrongState,
        Self::WrongSeq,
        Self::Fenced,
        Self::LeaseExpired,
        Self::Ended,
        Self::BlobMissing,
        Self::BlobMismatch,
        Self::MethodNotAllowed,
        Self::UnsupportedMedia,
        Self::TooLarge,
        Self::TooMany,
        Self::Unavailable,
        Self::StorageFull,
        Self::Corrupt,
        Self::Internal,
    ];

    /// The code as it stands in JSON, its HTTP status, and its title.
    pub const fn code_status_title(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::InvalidRequest => ("invalid_request", 400, "The request is not valid"),
            Self::Unauthorized => ("unauthorized", 401, "A valid token is needed"),
            Self::Forbidden => ("forbidden", 403, "The token is not good for this"),
            Self::NotFound => ("not_found", 404, "There is no such thing"),
            Self::Ambiguous => ("ambiguous", 409, "The prefix fits several ids"),
            Self::IdTaken => ("id_taken", 409, "The id is used for something else"),
            Self::WrongState => ("wrong_state", 409, "The task's state does not allow this"),
            Self::WrongSeq => ("wrong_seq", 409, "The stream has gone on"),
            Self::Fenced => ("fenced", 409, "Another worker has the task"),
            Self::LeaseExpired => ("lease_expired", 409, "The lease has expired"),
            Self::Ended => ("ended", 409, "It is over"),
            Self::BlobMissing => ("blob_missing", 409, "A named blob is not stored"),
            Self::BlobMismatch => ("blob_mismatch", 400, "A blob's bytes are not what its name says"),
            Self::MethodNotAllowed => ("method_not_allowed", 405, "The route has no such method"),
            Self::UnsupportedMedia => ("unsupported_media", 415, "The body is of another content type"),
            Self::TooLarge => ("too_large", 413, "The request is too large"),
            Self::TooMany => ("too_many", 429, "Too many requests"),
            Self::Unavailable => ("unavailable", 503, "The store cannot be reached"),
            Self::StorageFull => ("storage_full", 507, "The store is full"),
            Self::Corrupt => ("corrupt", 500, "The log does not hold"),
            Self::Internal => ("internal", 500, "A fault of docket"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_unique_and_round_trip() {
        for code in ProblemCode::ALL {
            let json = serde_json::to_string(&code).expect("json");
            assert_eq!(json, format!("\"{}\"", code.code_status_title().0));
            assert_eq!(serde_json::from_str::<ProblemCode>(&json).expect("reads"), code);
        }
        let names: std::collections::BTreeSet<_> =
            ProblemCode::ALL.iter().map(|c| c.code_status_title().0).collect();
        assert_eq!(names.len(), ProblemCode::ALL.len());
    }
}

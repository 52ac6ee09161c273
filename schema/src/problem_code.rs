//! Stable codes of API errors. Defined outside of `api/` because the log contains them as well, for refused
//! calls.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Stable, machine-readable error codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProblemCode {
    /// The body or query is malformed or breaks a rule.
    InvalidRequest,
    /// The token is missing or not valid.
    Unauthorized,
    /// The token's role does not permit this.
    Forbidden,
    /// The task, run, blob or route does not exist.
    NotFound,
    /// A prefix matches several ids.
    Ambiguous,
    /// The id chosen by the client is already in use.
    IdTaken,
    /// The task's state does not allow it.
    WrongState,
    /// The stream has another head; the missing events are in `missing`.
    WrongSeq,
    /// A higher epoch is in effect: another worker has the task.
    Fenced,
    /// The lease expired and the task is not leased by another worker: it must be leased again.
    LeaseExpired,
    /// The run or task has ended.
    Ended,
    /// An event refers to a blob that is not stored.
    BlobMissing,
    /// A blob's bytes do not match its hash or size.
    BlobMismatch,
    /// The route exists with another method.
    MethodNotAllowed,
    /// The body has a content type that the route does not accept.
    UnsupportedMedia,
    /// A body, or a count in it, exceeds its limit.
    TooLarge,
    /// Too many requests in too short a time.
    TooMany,
    /// The store is temporarily unavailable; nothing was written.
    Unavailable,
    /// The store is full; nothing was written.
    StorageFull,
    /// Stored data is not what docket wrote.
    Corrupt,
    /// An internal error of docket.
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

    /// Returns the code as in JSON, its HTTP status and its title.
    pub const fn code_status_title(self) -> (&'static str, u16, &'static str) {
        match self {
            Self::InvalidRequest => ("invalid_request", 400, "The request is not valid"),
            Self::Unauthorized => ("unauthorized", 401, "A valid token is required"),
            Self::Forbidden => ("forbidden", 403, "The token's role does not permit this"),
            Self::NotFound => ("not_found", 404, "Not found"),
            Self::Ambiguous => ("ambiguous", 409, "The prefix matches several ids"),
            Self::IdTaken => ("id_taken", 409, "The id is already in use"),
            Self::WrongState => ("wrong_state", 409, "The task's state does not allow this"),
            Self::WrongSeq => ("wrong_seq", 409, "The stream has newer events"),
            Self::Fenced => ("fenced", 409, "Another worker has the task"),
            Self::LeaseExpired => ("lease_expired", 409, "The lease has expired"),
            Self::Ended => ("ended", 409, "It is over"),
            Self::BlobMissing => ("blob_missing", 409, "A referenced blob is not stored"),
            Self::BlobMismatch => ("blob_mismatch", 400, "A blob's bytes do not match its hash or size"),
            Self::MethodNotAllowed => ("method_not_allowed", 405, "The route does not support this method"),
            Self::UnsupportedMedia => ("unsupported_media", 415, "The content type is not supported"),
            Self::TooLarge => ("too_large", 413, "The request is too large"),
            Self::TooMany => ("too_many", 429, "Too many requests"),
            Self::Unavailable => ("unavailable", 503, "The store is unavailable"),
            Self::StorageFull => ("storage_full", 507, "The store is full"),
            Self::Corrupt => ("corrupt", 500, "The stored data is corrupt"),
            Self::Internal => ("internal", 500, "Internal error"),
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

//! API errors: RFC 9457 problem details with a stable code, each with a row in
//! `coordinator/ERRORS.md`.
//!
//! Every error of every route is an [`ApiError`]. Invariant: a problem never contains SQL, a path
//! of this machine, a token or a payload. Internal errors are logged here, once, with their full
//! chain.

use std::time::Duration;

use axum::{
    body::Body,
    http::{HeaderValue, Response, StatusCode, header},
};
use docket_schema::{
    api::{LeaseLostReason, ProblemCode, ProblemDetails},
    event::Head,
    ids::Epoch,
};

use crate::{
    decide::CommandRejection,
    error_chain::error_chain,
    history_cache::HistoryError,
    store::{AppendError, CommandError, StoreError},
    system::FoldError,
    task_check::InvalidTaskField,
};

/// Maximum length of a problem's detail in characters. Most of it is docket's own text, so quoted
/// input is cut.
const DETAIL_CHARS_MAX: usize = 500;
/// Maximum length of a field name.
const FIELD_CHARS_MAX: usize = 200;

/// Truncates `text` and marks the truncation.
fn truncate_chars(mut text: String, most: usize) -> String {
    if let Some((at, _)) = text.char_indices().nth(most) {
        text.truncate(at);
        text.push('…');
        text.shrink_to_fit();
    }
    text
}

/// An error response with a problem. Boxed, because it is the error type of every handler result.
#[derive(Debug)]
pub(crate) struct ApiError(Box<ProblemDetails>, Option<Duration>);

impl ApiError {
    /// Creates an error with this code; `detail` says what went wrong and what to do.
    pub(crate) fn new(code: ProblemCode, detail: impl Into<String>) -> Self {
        Self(Box::new(code.to_problem(truncate_chars(detail.into(), DETAIL_CHARS_MAX))), None)
    }

    /// Sets the invalid field.
    #[must_use]
    pub(crate) fn with_field(mut self, field: impl Into<String>) -> Self {
        self.0.field = Some(truncate_chars(field.into(), FIELD_CHARS_MAX));
        self
    }

    /// Sets the current epoch.
    #[must_use]
    pub(crate) fn with_epoch(mut self, epoch: Epoch) -> Self {
        self.0.epoch = Some(epoch);
        self
    }

    /// Sets the head of the stream and the events that the caller has not seen.
    #[must_use]
    pub(crate) fn with_missing_events(
        mut self,
        head: Head,
        missing: Vec<docket_schema::event::Envelope>,
    ) -> Self {
        self.0.head = Some(head);
        self.0.missing = missing;
        self
    }

    /// Sets the delay after which the request may be sent again.
    #[must_use]
    pub(crate) fn with_retry_after(mut self, wait: Duration) -> Self {
        self.1 = Some(wait);
        self
    }

    pub(crate) fn code(&self) -> ProblemCode {
        self.0.code
    }

    /// Returns the head of the stream, for `wrong_seq`.
    pub(crate) fn head(&self) -> Option<Head> {
        self.0.head
    }

    pub(crate) fn into_problem(self) -> Box<ProblemDetails> {
        self.0
    }

    /// Converts the error into a response.
    pub(crate) fn into_response(self) -> Response<Body> {
        let body = serde_json::to_vec(&self.0).expect("a problem has string keys only");
        let mut response = Response::new(Body::from(body));
        *response.status_mut() =
            StatusCode::from_u16(self.0.status).expect("the table of codes holds legal statuses");
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/problem+json"));
        headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
        match self.0.code {
            ProblemCode::Unauthorized => {
                headers.insert(header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
            }
            ProblemCode::Unavailable => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            ProblemCode::TooMany => {
                let wait = self.1.map_or(1, |wait| wait.as_secs_f64().ceil().max(1.0) as u64);
                headers.insert(header::RETRY_AFTER, HeaderValue::from(wait));
            }
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
            | ProblemCode::StorageFull
            | ProblemCode::Corrupt
            | ProblemCode::Internal => {}
        }
        response
    }
}

impl From<HistoryError> for ApiError {
    fn from(error: HistoryError) -> Self {
        let code = match error {
            HistoryError::Store(error) => return error.into(),
            HistoryError::NotFound(_) => ProblemCode::NotFound,
            HistoryError::TooDeep | HistoryError::TooLong => ProblemCode::TooLarge,
            HistoryError::ShuttingDown => ProblemCode::Unavailable,
            HistoryError::Corrupt { .. } => {
                tracing::error!("{}", error_chain(&error));
                ProblemCode::Internal
            }
        };
        Self::new(code, error.to_string())
    }
}

impl InvalidTaskField {
    /// Converts a submission error of the task at this place in the request.
    pub(in crate::http) fn into_error_at(self, place: &str) -> ApiError {
        ApiError::new(ProblemCode::InvalidRequest, self.requirement)
            .with_field(format!("{place}.{}", self.field))
    }
}

impl From<StoreError> for ApiError {
    fn from(error: StoreError) -> Self {
        let code = match &error {
            StoreError::Unavailable { .. } | StoreError::ReadOnly { .. } => ProblemCode::Unavailable,
            StoreError::Full { .. } => ProblemCode::StorageFull,
            StoreError::Corrupt { .. } | StoreError::Damaged { .. } => ProblemCode::Corrupt,
            StoreError::SchemaMismatch { .. } | StoreError::Schema { .. } | StoreError::Internal { .. } => {
                ProblemCode::Internal
            }
        };
        tracing::error!(code = code.code_status_title().0, "{}", error_chain(&error));
        Self::new(code, error.to_string())
    }
}

impl From<CommandRejection> for ApiError {
    fn from(rejection: CommandRejection) -> Self {
        let text = rejection.to_string();
        match rejection {
            CommandRejection::LeaseLost { current, why, .. } => {
                let code = match why {
                    LeaseLostReason::Expired => ProblemCode::LeaseExpired,
                    LeaseLostReason::Fenced => ProblemCode::Fenced,
                    LeaseLostReason::Cancelled | LeaseLostReason::Ended => ProblemCode::Ended,
                    LeaseLostReason::Unknown => ProblemCode::NotFound,
                };
                Self::new(code, text).with_epoch(current)
            }
            CommandRejection::WrongState { .. } => Self::new(ProblemCode::WrongState, text),
        }
    }
}

impl From<AppendError> for ApiError {
    fn from(error: AppendError) -> Self {
        let text = error.to_string();
        match error {
            AppendError::WrongSeq { head, .. } => {
                Self::new(ProblemCode::WrongSeq, format!("{text}; fold the missing events and append again"))
                    .with_field("expected_seq")
                    .with_missing_events(head, Vec::new())
            }
            AppendError::Fenced { current, .. } => {
                Self::new(ProblemCode::Fenced, format!("{text}; stop the run process")).with_epoch(current)
            }
            AppendError::LeaseEnded { asked } => {
                Self::new(ProblemCode::LeaseExpired, format!("{text}; lease the task again"))
                    .with_epoch(asked)
            }
            AppendError::Closed => Self::new(ProblemCode::Ended, "the run has ended; no events can be added"),
            AppendError::StreamNotFound => Self::new(ProblemCode::NotFound, "there is no such run"),
            AppendError::BlobMissing(_) => Self::new(ProblemCode::BlobMissing, text),
            AppendError::DependencyNotFound(_) => {
                Self::new(ProblemCode::InvalidRequest, text).with_field("conditions.after")
            }
            AppendError::TaskIdConflict(_) => Self::new(ProblemCode::IdTaken, text),
            AppendError::Rejected(rejection) => rejection.into(),
            AppendError::Store(error) => error.into(),
        }
    }
}

impl From<FoldError> for ApiError {
    fn from(error: FoldError) -> Self {
        match error {
            FoldError::Store(error) => error.into(),
            FoldError::Append(error) => error.into(),
            FoldError::Contended(_) => Self::new(ProblemCode::Unavailable, error.to_string()),
            FoldError::Unreadable { .. } => {
                tracing::error!("{}", error_chain(&error));
                Self::new(ProblemCode::Corrupt, error.to_string())
            }
        }
    }
}

impl From<CommandError> for ApiError {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::TaskNotFound(id) => {
                Self::new(ProblemCode::NotFound, format!("there is no task {id}"))
            }
            CommandError::Rejected(rejection) => rejection.into(),
            CommandError::Append(error) => (*error).into(),
            CommandError::Store(error) => error.into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::ids::Seq;

    use super::*;

    #[test]
    fn every_code_has_a_row_in_errors_md() {
        let document = include_str!("../../../ERRORS.md");
        for code in ProblemCode::ALL {
            let (name, status, title) = code.code_status_title();
            let row = document.lines().find(|line| line.starts_with(&format!("| `{name}` |")));
            let row = row.unwrap_or_else(|| panic!("ERRORS.md has no row for `{name}`"));
            assert!(row.contains(&format!("| {status} |")), "{row}");
            assert!(row.contains(title), "{row}: the title is `{title}`");
        }
        let rows = document.lines().filter(|line| line.starts_with("| `")).count();
        assert_eq!(rows, ProblemCode::ALL.len(), "a row for a code that does not exist");
    }

    #[test]
    fn store_errors_map_to_problem_codes() {
        let epoch = Epoch(4);
        let lost = |why| CommandRejection::LeaseLost { asked: Epoch(3), current: epoch, why };
        let table: Vec<(AppendError, ProblemCode, Option<Epoch>)> = vec![
            (AppendError::WrongSeq { expected: Seq(1), head: Head::EMPTY }, ProblemCode::WrongSeq, None),
            (AppendError::Fenced { asked: Epoch(3), current: epoch }, ProblemCode::Fenced, Some(epoch)),
            (AppendError::LeaseEnded { asked: epoch }, ProblemCode::LeaseExpired, Some(epoch)),
            (AppendError::Closed, ProblemCode::Ended, None),
            (AppendError::StreamNotFound, ProblemCode::NotFound, None),
            (lost(LeaseLostReason::Expired).into(), ProblemCode::LeaseExpired, Some(epoch)),
            (lost(LeaseLostReason::Fenced).into(), ProblemCode::Fenced, Some(epoch)),
            (lost(LeaseLostReason::Cancelled).into(), ProblemCode::Ended, Some(epoch)),
            (lost(LeaseLostReason::Ended).into(), ProblemCode::Ended, Some(epoch)),
            (lost(LeaseLostReason::Unknown).into(), ProblemCode::NotFound, Some(epoch)),
            (StoreError::Corrupt { what: "x".to_owned() }.into(), ProblemCode::Corrupt, None),
            (
                StoreError::Full { backend: "sqlite", doing: "x", source: sqlx::Error::PoolClosed }.into(),
                ProblemCode::StorageFull,
                None,
            ),
            (
                StoreError::Unavailable { backend: "sqlite", doing: "x", source: sqlx::Error::PoolClosed }
                    .into(),
                ProblemCode::Unavailable,
                None,
            ),
        ];
        for (error, code, epoch) in table {
            let text = error.to_string();
            let problem = ApiError::from(error).into_problem();
            assert_eq!((problem.code, problem.epoch), (code, epoch), "{text}");
        }
    }
}

//! Why a command fails, and with which exit code. Every subcommand ends in [`Exit`] or [`Failure`];
//! `main` prints the failure once and nobody else does.

use docket_coordinator::store::StoreError;
use docket_schema::{api::ProblemCode, event::DecodeError};
use docket_worker::client::ClientError;

/// Exit codes. Documented in `docket --help` and the reference; scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitKind {
    /// It worked.
    Ok,
    /// The operation, or the task it was about, failed.
    Failed,
    /// The command line, or a setting, is wrong.
    Usage,
    /// No such task or run, or several.
    NotFound,
    /// The state does not allow it, or the token is not good for it.
    Refused,
    /// The coordinator or its database cannot be reached.
    Unreachable,
    /// The log, or what is derived from it, does not hold.
    Verification,
    /// This build lacks the engine version, or an event's, that the log was written with.
    EngineMissing,
    /// `docket sandbox`: the status of the command that was run, or what stands for its end.
    Status(u8),
}

impl ExitKind {
    /// Of two findings the one that matters more: what does not hold, before what could not be looked at.
    pub(crate) fn more_severe(self, other: Self) -> Self {
        match (self, other) {
            (Self::Verification, _) | (_, Self::Verification) => Self::Verification,
            (Self::Ok, other) => other,
            (this, _) => this,
        }
    }

    /// The number.
    pub(crate) const fn code(self) -> u8 {
        match self {
            Self::Ok => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::NotFound => 3,
            Self::Refused => 4,
            Self::Unreachable => 5,
            Self::Verification => 6,
            Self::EngineMissing => 7,
            Self::Status(status) => status,
        }
    }
}

/// A command that failed.
#[derive(Debug)]
pub(crate) struct CliError {
    /// The exit code.
    pub(crate) exit: ExitKind,
    /// What went wrong and what helps; its sources are printed with `-v`.
    pub(crate) error: anyhow::Error,
}

/// What subcommands answer.
pub(crate) type CliResult<T = ExitKind> = Result<T, CliError>;

impl CliError {
    /// A failure of docket's own words: what is wrong, and what helps.
    pub(crate) fn new(exit: ExitKind, message: impl std::fmt::Display) -> Self {
        Self { exit, error: anyhow::anyhow!("{message}") }
    }

    /// The one line, or with `chain` all of its causes too.
    pub(crate) fn format_message(&self, chain: CauseDisplay) -> String {
        let flat = |text: String| super::display::sanitize_line(&text).into_owned();
        match chain {
            CauseDisplay::Hidden => flat(format!("{}", self.error)),
            CauseDisplay::Shown => {
                let causes = self
                    .error
                    .chain()
                    .skip(1)
                    .map(|cause| format!("\n  because: {}", flat(cause.to_string())));
                flat(format!("{}", self.error)) + &causes.collect::<String>()
            }
        }
    }
}

/// Whether the causes of a failure are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CauseDisplay {
    /// One line only.
    Hidden,
    /// A line for each cause.
    Shown,
}

impl From<ClientError> for CliError {
    fn from(error: ClientError) -> Self {
        Self { exit: exit_for_client_error(&error), error: error.into() }
    }
}

impl From<anyhow::Error> for CliError {
    fn from(error: anyhow::Error) -> Self {
        Self { exit: ExitKind::Failed, error }
    }
}

impl From<std::io::Error> for CliError {
    fn from(error: std::io::Error) -> Self {
        Self { exit: ExitKind::Failed, error: error.into() }
    }
}

/// Says what was being done, and with which code it ends, where a library error does not.
pub(crate) trait FailWith<T> {
    /// Wraps the error: `message` is the line, the error its cause.
    fn fail_with(self, exit: ExitKind, message: impl FnOnce() -> String) -> CliResult<T>;
    /// Keeps the error's own line.
    fn fail_as(self, exit: ExitKind) -> CliResult<T>;
}

impl<T, E: Into<anyhow::Error>> FailWith<T> for Result<T, E> {
    fn fail_with(self, exit: ExitKind, message: impl FnOnce() -> String) -> CliResult<T> {
        self.map_err(|error| {
            prefer_coordinator_error(CliError { exit, error: error.into().context(message()) })
        })
    }

    fn fail_as(self, exit: ExitKind) -> CliResult<T> {
        self.map_err(|error| prefer_coordinator_error(CliError { exit, error: error.into() }))
    }
}

/// Where a cause is that only another build knows an event or the database's schema, that is the line. And where the cause, however deep, is that the coordinator said no or did not answer, its word is the
/// line and decides the code: it names the remedy, and what was being done does not.
fn prefer_coordinator_error(failure: CliError) -> CliError {
    let CliError { exit, error } = failure;
    if let Some(word) = error.chain().find_map(missing_build_message) {
        return CliError { exit: ExitKind::EngineMissing, error: error.context(word) };
    }
    let word = error.chain().skip(1).find_map(|cause| cause.downcast_ref::<ClientError>());
    match word.map(|word| (exit_for_client_error(word), word.to_string())) {
        Some((exit, word)) => CliError { exit, error: error.context(word) },
        None => CliError { exit, error },
    }
}

/// What an error says of another build that is needed, where it says that.
fn missing_build_message(cause: &(dyn std::error::Error + 'static)) -> Option<String> {
    if let Some(unknown @ DecodeError::Unknown { .. }) = cause.downcast_ref() {
        return Some(unknown.to_string());
    }
    if let Some(other @ StoreError::SchemaMismatch { .. }) = cause.downcast_ref() {
        return Some(other.to_string());
    }
    None
}

fn exit_for_client_error(error: &ClientError) -> ExitKind {
    match error {
        ClientError::Unreachable { .. } | ClientError::Tls { .. } => ExitKind::Unreachable,
        ClientError::InvalidUrl | ClientError::InvalidCa => ExitKind::Usage,
        ClientError::Protocol { .. } | ClientError::Setup(_) => ExitKind::Failed,
        ClientError::Problem(problem) => match problem.code {
            ProblemCode::NotFound | ProblemCode::Ambiguous => ExitKind::NotFound,
            ProblemCode::Unauthorized
            | ProblemCode::Forbidden
            | ProblemCode::IdTaken
            | ProblemCode::WrongState
            | ProblemCode::WrongSeq
            | ProblemCode::Fenced
            | ProblemCode::LeaseExpired
            | ProblemCode::Ended => ExitKind::Refused,
            ProblemCode::Unavailable => ExitKind::Unreachable,
            ProblemCode::Corrupt => ExitKind::Verification,
            ProblemCode::InvalidRequest
            | ProblemCode::BlobMissing
            | ProblemCode::BlobMismatch
            | ProblemCode::MethodNotAllowed
            | ProblemCode::UnsupportedMedia
            | ProblemCode::TooLarge
            | ProblemCode::TooMany
            | ProblemCode::StorageFull
            | ProblemCode::Internal => ExitKind::Failed,
        },
    }
}

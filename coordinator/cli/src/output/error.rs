//! CLI errors and exit codes. Every subcommand returns an [`ExitKind`] or a [`CliError`], which only `main`
//! prints, once.

use docket_coordinator::store::StoreError;
use docket_schema::{api::ProblemCode, event::DecodeError};
use docket_worker::client::ClientError;

/// Exit codes. Documented in `docket --help` and the reference; scripts rely on them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ExitKind {
    /// Success.
    Ok,
    /// The operation, or the task, failed.
    Failed,
    /// The command line or a setting is invalid.
    Usage,
    /// No such task or run, or the id is ambiguous.
    NotFound,
    /// Not allowed in the current state, or with this token.
    Refused,
    /// The coordinator or its database cannot be reached.
    Unreachable,
    /// The log, or data derived from it, failed verification.
    Verification,
    /// This build does not support the version of the engine or of an event in the log.
    EngineMissing,
    /// `docket sandbox`: the exit status of the command, or the status that represents how it ended.
    Status(u8),
}

impl ExitKind {
    /// The more severe of two results: a failed verification outranks something that could not be checked.
    pub(crate) fn more_severe(self, other: Self) -> Self {
        match (self, other) {
            (Self::Verification, _) | (_, Self::Verification) => Self::Verification,
            (Self::Ok, other) => other,
            (this, _) => this,
        }
    }

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

/// An error of a command.
#[derive(Debug)]
pub(crate) struct CliError {
    pub(crate) exit: ExitKind,
    /// What went wrong and how to fix it; its sources are printed with `-v`.
    pub(crate) error: anyhow::Error,
}

/// The result of a subcommand.
pub(crate) type CliResult<T = ExitKind> = Result<T, CliError>;

impl CliError {
    /// Creates an error from a message that names the problem and how to fix it.
    pub(crate) fn new(exit: ExitKind, message: impl std::fmt::Display) -> Self {
        Self { exit, error: anyhow::anyhow!("{message}") }
    }

    /// Formats the message, with all causes if `chain` says so.
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

/// Whether the causes of an error are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum CauseDisplay {
    /// One line only.
    Hidden,
    /// One line per cause.
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

/// Adds context and an exit code to library errors.
pub(crate) trait FailWith<T> {
    /// Wraps the error: `message` becomes the line, the error its cause.
    fn fail_with(self, exit: ExitKind, message: impl FnOnce() -> String) -> CliResult<T>;
    /// Keeps the error's own message.
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

/// Promotes certain causes to the message. If the cause is that another build is needed for an event or the
/// database schema, that becomes the message. If the cause, however deep, is that the coordinator refused or
/// did not answer, its message and exit code are used, because they name the remedy.
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

/// Returns the message of an error that says another build is needed.
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

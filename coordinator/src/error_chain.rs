//! Error chains for log lines.

/// Formats an error and its sources on one line, for the log.
pub(crate) fn error_chain(error: &dyn std::error::Error) -> String {
    let mut line = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        line.push_str(": ");
        line.push_str(&source.to_string());
        next = source.source();
    }
    line
}

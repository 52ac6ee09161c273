//! Formats an error with all its causes on one line, and detects an unavailable coordinator among them.

use std::error::Error;

use crate::workspace::BlobError;

/// Formats the error and its causes: `a: b: c`.
pub(in crate::run) fn format_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in iter_causes(error) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}

/// Whether a blob could not be read because the coordinator was unavailable; not the run's fault.
pub(in crate::run) fn is_coordinator_unavailable(error: &(dyn Error + 'static)) -> bool {
    iter_chain(error).any(|cause| matches!(cause.downcast_ref(), Some(BlobError::Unavailable(_))))
}

/// Iterates over the error and its causes.
pub(in crate::run) fn iter_chain<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::once(error).chain(iter_causes(error))
}

fn iter_causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause: &&'a (dyn Error + 'static)| (*cause).source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::RunExecutorError;

    #[test]
    fn unavailable_coordinator_is_found_anywhere_in_the_chain() {
        let away = BlobError::Unavailable(Box::new(std::io::Error::other("no answer")));
        assert!(is_coordinator_unavailable(&RunExecutorError::Blob(away)));
        let missing = BlobError::Missing(docket_schema::ids::BlobHash::hash_bytes(b"x"));
        let error = RunExecutorError::Blob(missing);
        assert!(!is_coordinator_unavailable(&error));
        assert!(format_chain(&error).contains("is missing"), "{}", format_chain(&error));
    }
}

//! An error with all its causes on one line, and whether the coordinator's absence is among them.

use std::error::Error;

use crate::workspace::BlobError;

/// The error and what caused it: `a: b: c`.
pub(in crate::run) fn format_chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in iter_causes(error) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}

/// Whether the coordinator could not be asked for a blob: no fault of the run's.
pub(in crate::run) fn is_coordinator_unavailable(error: &(dyn Error + 'static)) -> bool {
    iter_chain(error).any(|cause| matches!(cause.downcast_ref(), Some(BlobError::Unavailable(_))))
}

/// The error itself and what caused it.
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
        let missing = BlobError::Missing(docket_schema::ids::BlobHash::of(b"x"));
        let error = RunExecutorError::Blob(missing);
        assert!(!is_coordinator_unavailable(&error));
        assert!(format_chain(&error).contains("is missing"), "{}", format_chain(&error));
    }
}

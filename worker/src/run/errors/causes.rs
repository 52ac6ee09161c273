//! An error with all its causes on one line, and whether the coordinator's absence is among them.

use std::error::Error;

use crate::workspace::BlobError;

/// The error and what caused it: `a: b: c`.
pub(in crate::run) fn told(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    for cause in causes(error) {
        text.push_str(": ");
        text.push_str(&cause.to_string());
    }
    text
}

/// Whether the coordinator could not be asked for a blob: no fault of the run's.
pub(in crate::run) fn is_away(error: &(dyn Error + 'static)) -> bool {
    chain(error).any(|cause| matches!(cause.downcast_ref(), Some(BlobError::Unavailable(_))))
}

/// The error itself and what caused it.
pub(in crate::run) fn chain<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::once(error).chain(causes(error))
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(error.source(), |cause: &&'a (dyn Error + 'static)| (*cause).source())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::DriverError;

    #[test]
    fn an_absence_is_found_wherever_it_stands() {
        let away = BlobError::Unavailable(Box::new(std::io::Error::other("no answer")));
        assert!(is_away(&DriverError::Blob(away)));
        let missing = BlobError::Missing(docket_schema::ids::BlobHash::of(b"x"));
        let error = DriverError::Blob(missing);
        assert!(!is_away(&error));
        assert!(told(&error).contains("is missing"), "{}", told(&error));
    }
}

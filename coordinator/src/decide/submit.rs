//! `submit`: a task enters the backlog.

use docket_schema::task::{FieldError, TaskEvent, TaskSpec, TaskSubmitted, check_models};

/// The event that makes a task of `spec`.
///
/// # Errors
/// The field of `spec` that breaks a rule.
pub fn submit(spec: TaskSpec, by: &str) -> Result<TaskEvent, FieldError> {
    spec.check()?;
    check_models(&spec)?;
    Ok(TaskSubmitted { spec, by: by.to_owned(), forked_from: None, delegated_by: None }.into())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::decide::table::spec;

    #[test]
    fn a_bad_field_is_named() {
        assert!(matches!(submit(spec(), "me"), Ok(TaskEvent::TaskSubmitted(_))));
        let bad = TaskSpec { title: String::new(), ..spec() };
        assert_eq!(submit(bad, "me").expect_err("empty title").field, "title");
        let mut bad = spec();
        bad.model.base_url = Some("http://user:pw@h/v1".to_owned());
        assert_eq!(submit(bad, "me").expect_err("a password for the log").field, "model.base_url");
    }
}

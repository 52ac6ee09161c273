//! `submit`: adds a task to the backlog.

use docket_schema::task::{FieldError, TaskEvent, TaskSpec, TaskSubmitted, check_models};

/// Returns the event that creates the task of `spec`.
///
/// # Errors
/// Names the field of `spec` that is invalid.
pub fn submit(spec: TaskSpec, by: &str) -> Result<TaskEvent, FieldError> {
    spec.check()?;
    check_models(&spec)?;
    Ok(TaskSubmitted { spec, by: by.to_owned(), forked_from: None, delegated_by: None }.into())
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        content::WorkspacePath,
        task::{REQUIRES_MAX, SETUP_LINES_MAX, SHELL_LINE_BYTES_MAX},
    };

    use super::*;
    use crate::decide::transition_table::task_spec;

    #[test]
    fn invalid_field_is_named_in_the_error() {
        assert!(matches!(submit(task_spec(), "me"), Ok(TaskEvent::TaskSubmitted(_))));
        let bad = TaskSpec { title: String::new(), ..task_spec() };
        assert_eq!(submit(bad, "me").expect_err("empty title").field, "title");
        let line = |bytes: usize| "x".repeat(bytes);
        for (bad, field) in [
            (TaskSpec { setup: vec![line(1); SETUP_LINES_MAX + 1], ..task_spec() }, "setup"),
            (TaskSpec { setup: vec![line(SHELL_LINE_BYTES_MAX + 1)], ..task_spec() }, "setup"),
            (TaskSpec { setup: vec!["a\0b".to_owned()], ..task_spec() }, "setup"),
            (TaskSpec { tests: Some(line(SHELL_LINE_BYTES_MAX + 1)), ..task_spec() }, "tests"),
            (
                TaskSpec {
                    requires: vec![WorkspacePath::new("a").expect("a path"); REQUIRES_MAX + 1],
                    ..task_spec()
                },
                "requires",
            ),
        ] {
            assert_eq!(submit(bad, "me").expect_err(field).field, field);
        }
        let most = TaskSpec {
            setup: vec![line(1); SETUP_LINES_MAX],
            tests: Some(line(SHELL_LINE_BYTES_MAX)),
            ..task_spec()
        };
        assert!(submit(most, "me").is_ok());
        let mut bad = task_spec();
        bad.model.base_url = Some("http://user:pw@h/v1".to_owned());
        assert_eq!(submit(bad, "me").expect_err("a password for the log").field, "model.base_url");
    }
}

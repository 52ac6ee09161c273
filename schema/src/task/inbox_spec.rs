//! Inbox specifications: a task's fields as JSON, enqueued by an application in its own transaction,
//! optionally with a template task for the other fields. Applications know titles and texts but not the blobs
//! of a pinned repository, so they refer to a task that has it.

use serde_json::{Map, Value};

use super::{lease_conditions::LeaseConditions, task_spec::TaskSpec};
use crate::ids::TaskId;

/// The field that refers to a template task.
const TEMPLATE_FIELD: &str = "like";

/// Fields that are specific to one task and are not taken from a template.
const UNIQUE_FIELDS: [&str; 3] = ["run_at", "dedup_key", "batch"];

/// A task's fields as stored in the inbox.
#[derive(Debug, Clone, PartialEq)]
pub struct InboxSpec {
    fields: Map<String, Value>,
    template_id: Option<TaskId>,
}

/// An inbox row is not a valid task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InboxError {
    /// It is not JSON.
    #[error("invalid JSON: {0}")]
    NotJson(String),
    /// It is not a JSON object.
    #[error("a task must be a JSON object")]
    NotAnObject,
    /// `like` is not an id.
    #[error("`like` must be the full id of a task")]
    InvalidTemplateId,
    /// The fields do not form a valid task.
    #[error("the fields are not a valid task: {0}")]
    InvalidFields(String),
}

impl InboxSpec {
    /// Parses what an application wrote.
    ///
    /// # Errors
    ///
    /// [`InboxError`] if it is not a JSON object or `like` is not an id.
    pub fn parse(text: &str) -> Result<Self, InboxError> {
        let value: Value = serde_json::from_str(text).map_err(|e| InboxError::NotJson(e.to_string()))?;
        let Value::Object(mut fields) = value else { return Err(InboxError::NotAnObject) };
        let like = match fields.remove(TEMPLATE_FIELD) {
            None => None,
            Some(Value::String(id)) => Some(id.parse().map_err(|_| InboxError::InvalidTemplateId)?),
            Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
                return Err(InboxError::InvalidTemplateId);
            }
        };
        Ok(Self { fields, template_id: like })
    }

    /// Returns the template task, which provides the missing fields.
    pub const fn template_id(&self) -> Option<TaskId> {
        self.template_id
    }

    /// Builds the task from its own fields and those of `template`, except fields that are specific to one
    /// task (time, deduplication key, batch, dependencies). A `null` field is left out. The result is not
    /// validated yet.
    ///
    /// # Errors
    ///
    /// [`InboxError::InvalidFields`] with the field.
    pub fn resolve(self, template: Option<&TaskSpec>) -> Result<TaskSpec, InboxError> {
        let wrong = |error: serde_json::Error| InboxError::InvalidFields(error.to_string());
        let mut all = match template {
            None => Map::new(),
            Some(template) => {
                let conditions = LeaseConditions { after: Vec::new(), ..template.conditions.clone() };
                let template = TaskSpec { conditions, ..template.clone() };
                match serde_json::to_value(template).map_err(wrong)? {
                    Value::Object(fields) => fields,
                    Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                        return Err(InboxError::NotAnObject);
                    }
                }
            }
        };
        for field in UNIQUE_FIELDS {
            all.remove(field);
        }
        all.extend(self.fields);
        all.retain(|_, value| !value.is_null());
        serde_json::from_value(Value::Object(all)).map_err(wrong)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spec() -> TaskSpec {
        let blob = crate::content::BlobRef::for_bytes(b"tree");
        let base = serde_json::json!({ "manifest": blob, "tree": crate::ids::TreeHash::ZERO });
        let model = serde_json::json!({ "provider": "scripted", "name": "x" });
        let whole = serde_json::json!({ "title": "theirs", "text": "do it", "base": base, "model": model });
        serde_json::from_value(whole).expect("a task")
    }

    fn resolve_text(text: &str, template: Option<&TaskSpec>) -> Result<TaskSpec, InboxError> {
        InboxSpec::parse(text)?.resolve(template)
    }

    #[test]
    fn missing_fields_come_from_the_template_except_unique_ones() {
        let mut template = spec();
        template.dedup_key = Some("k".to_owned());
        template.priority = 5;
        template.branch = Some("fix".to_owned());
        template.conditions.after = vec![TaskId(uuid::Uuid::from_u128(1))];
        let id = TaskId(uuid::Uuid::from_u128(7));
        let text = format!(r#"{{"like": "{id}", "title": "mine", "branch": null, "dedup_key": "d"}}"#);
        assert_eq!(InboxSpec::parse(&text).expect("parses").template_id(), Some(id));
        let mine = resolve_text(&text, Some(&template)).expect("a task");
        assert_eq!((mine.title.as_str(), mine.priority, mine.branch), ("mine", 5, None));
        assert_eq!((mine.text, mine.base), (template.text, template.base));
        assert_eq!(mine.dedup_key.as_deref(), Some("d"));
        assert_eq!(mine.conditions.after, []);
    }

    #[test]
    fn complete_task_needs_no_template() {
        let whole = spec();
        let text = serde_json::to_string(&whole).expect("serializes");
        assert_eq!(resolve_text(&text, None), Ok(whole));
    }

    #[test]
    fn invalid_row_is_reported_with_its_field() {
        let template = spec();
        let fault = |text| resolve_text(text, Some(&template)).expect_err("no task").to_string();
        assert!(fault("{").starts_with("invalid JSON: EOF"), "{}", fault("{"));
        assert_eq!(fault("[1]"), "a task must be a JSON object");
        assert_eq!(fault(r#"{"like": 3}"#), "`like` must be the full id of a task");
        assert_eq!(fault(r#"{"like": "abc"}"#), "`like` must be the full id of a task");
        assert!(
            fault(r#"{"tittle": "x"}"#).contains("unknown field `tittle`"),
            "{}",
            fault(r#"{"tittle": "x"}"#)
        );
        let bare = resolve_text(r#"{"title": "x", "text": "y"}"#, None).expect_err("no task").to_string();
        assert!(bare.contains("missing field `base`"), "{bare}");
    }
}

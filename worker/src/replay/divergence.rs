//! The first divergence between a log and a build: the event, both versions of it, and the fields that differ. Pure.

use std::fmt;

use docket_schema::{
    event::TypedEvent as _,
    ids::{RunId, Seq, Turn},
    run::RunEvent,
};
use serde::Serialize;
use serde_json::Value;

/// Fields listed by one divergence: the first few show what happened, more would bury it.
const DIFFERENCES_MAX: usize = 16;

/// Characters of a value in a message for people; the value itself is kept in full.
const VALUE_CHARS_MAX: usize = 160;

/// The first place where the log and this build disagree.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Divergence {
    /// The run of the lineage whose stream contains the event.
    pub run: RunId,
    /// The event.
    pub seq: Seq,
    /// Its turn.
    pub turn: Turn,
    /// Its kind in the log.
    pub recorded: &'static str,
    /// The kind of the event that this build derives; `None` if it derives none.
    pub derived: Option<&'static str>,
    /// The differences, in the order of the payload's fields; never empty.
    pub fields: Vec<FieldDifference>,
}

/// A field that differs.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct FieldDifference {
    /// `kind`, `turn`, or a JSON pointer into the payload.
    pub field: String,
    /// The value in the log; `None` if the log has no such field.
    pub recorded: Option<Value>,
    /// The value this build derives; `None` if it has no such field.
    pub derived: Option<Value>,
}

impl Divergence {
    /// Compares a recorded intent with the derived one; `None` if they are equal.
    pub(super) fn find(
        run: RunId,
        seq: Seq,
        recorded: (Turn, &RunEvent),
        derived: Option<&(Turn, RunEvent)>,
    ) -> Option<Self> {
        let (turn, event) = recorded;
        let fields = match derived {
            Some((other_turn, other)) if *other_turn == turn && other == event => return None,
            Some((other_turn, other)) => intent_differences((turn, event), (*other_turn, other)),
            None => vec![kind_difference(event.kind(), None)],
        };
        let derived = derived.map(|(_, event)| event.kind());
        Some(Self { run, seq, turn, recorded: event.kind(), derived, fields })
    }
}

impl fmt::Display for FieldDifference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (recorded, derived) = (format_value(self.recorded.as_ref()), format_value(self.derived.as_ref()));
        write!(f, "`{}` is {recorded} in the log, {derived} now", self.field)
    }
}

impl fmt::Display for Divergence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { run, seq, turn, recorded, derived, fields } = self;
        write!(f, "event {seq} of run {run} (turn {turn}): the log has {recorded}, this build derives ")?;
        f.write_str(derived.unwrap_or("nothing here"))?;
        for (nth, difference) in fields.iter().filter(|difference| difference.field != "kind").enumerate() {
            write!(f, "{}{difference}", if nth == 0 { ": " } else { "; " })?;
        }
        Ok(())
    }
}

fn format_value(value: Option<&Value>) -> String {
    let Some(value) = value else { return "absent".to_owned() };
    let text = value.to_string();
    match text.char_indices().nth(VALUE_CHARS_MAX) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

fn kind_difference(recorded: &str, derived: Option<&str>) -> FieldDifference {
    let field = "kind".to_owned();
    FieldDifference { field, recorded: Some(recorded.into()), derived: derived.map(Into::into) }
}

fn intent_differences(recorded: (Turn, &RunEvent), derived: (Turn, &RunEvent)) -> Vec<FieldDifference> {
    if recorded.1.kind() != derived.1.kind() {
        return vec![kind_difference(recorded.1.kind(), Some(derived.1.kind()))];
    }
    let mut found = Vec::new();
    if recorded.0 != derived.0 {
        let (recorded, derived) = (Some(recorded.0.0.into()), Some(derived.0.0.into()));
        found.push(FieldDifference { field: "turn".to_owned(), recorded, derived });
    }
    let (recorded, derived) = (payload_json(recorded), payload_json(derived));
    collect_differences(&mut String::new(), Some(&recorded), Some(&derived), &mut found);
    found
}

fn payload_json((turn, event): (Turn, &RunEvent)) -> Value {
    serde_json::from_str(event.encode(turn).payload.as_str()).expect("a payload is JSON")
}

/// Returns the leaves in which two JSON values differ.
pub(super) fn json_differences(recorded: &Value, derived: &Value) -> Vec<FieldDifference> {
    let mut found = Vec::new();
    collect_differences(&mut String::new(), Some(recorded), Some(derived), &mut found);
    found
}

/// Descends to the leaves that differ.
fn collect_differences(
    at: &mut String,
    recorded: Option<&Value>,
    derived: Option<&Value>,
    found: &mut Vec<FieldDifference>,
) {
    if recorded == derived || found.len() >= DIFFERENCES_MAX {
        return;
    }
    let mut below = |name: &str, recorded, derived| {
        let end = at.len();
        at.push('/');
        at.push_str(&name.replace('~', "~0").replace('/', "~1"));
        collect_differences(at, recorded, derived, found);
        at.truncate(end);
    };
    match (recorded, derived) {
        (Some(Value::Object(left)), Some(Value::Object(right))) => {
            let added = right.keys().filter(|name| !left.contains_key(*name));
            for name in left.keys().chain(added) {
                below(name, left.get(name), right.get(name));
            }
        }
        (Some(Value::Array(left)), Some(Value::Array(right))) => {
            for at in 0..left.len().max(right.len()) {
                below(&at.to_string(), left.get(at), right.get(at));
            }
        }
        (recorded, derived) => found.push(FieldDifference {
            field: at.clone(),
            recorded: recorded.cloned(),
            derived: derived.cloned(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use docket_schema::{
        ids::DecisionHash,
        message::CallId,
        run::{PolicyVerdict, ToolRequested},
        tool::RecoveryClass,
    };

    use super::*;

    fn intent(change: impl Fn(&mut ToolRequested)) -> (Turn, RunEvent) {
        let mut event = ToolRequested {
            call: CallId::for_tool(Turn(1), 0),
            tool: "read_file".into(),
            class: RecoveryClass::Reads,
            policy: PolicyVerdict::Allow { rule: "builtin".into() },
            labels: vec!["a/b".into()],
            decision: DecisionHash::ZERO,
        };
        change(&mut event);
        (Turn(1), event.into())
    }

    fn describe_divergence(recorded: &(Turn, RunEvent), derived: Option<&(Turn, RunEvent)>) -> String {
        let run = RunId(uuid::Uuid::nil());
        match Divergence::find(run, Seq(7), (recorded.0, &recorded.1), derived) {
            Some(divergence) => divergence.to_string(),
            None => "the same".to_owned(),
        }
    }

    #[test]
    fn divergence_names_path_and_both_values() {
        let event = intent(|_| {});
        let head = "event 7 of run 00000000-0000-0000-0000-000000000000 (turn 1): the log has ToolRequested, this build derives";
        assert_eq!(describe_divergence(&event, Some(&event)), "the same");
        assert_eq!(describe_divergence(&event, None), format!("{head} nothing here"));
        let rule = intent(|e| e.policy = PolicyVerdict::Allow { rule: "mine".into() });
        let said = "`/policy/rule` is \"mine\" in the log, \"builtin\" now";
        assert_eq!(describe_divergence(&rule, Some(&event)), format!("{head} ToolRequested: {said}"));
        let labels = intent(|e| e.labels = vec!["a/b".into(), "network".into()]);
        let said = "`/labels/1` is absent in the log, \"network\" now";
        assert_eq!(describe_divergence(&event, Some(&labels)), format!("{head} ToolRequested: {said}"));
        let mut later = event.clone();
        later.0 = Turn(2);
        let said = "`turn` is 1 in the log, 2 now";
        assert_eq!(describe_divergence(&event, Some(&later)), format!("{head} ToolRequested: {said}"));
    }
}

//! JSON Schemas of everything that is written down or sent: each event by kind and version, the
//! task specification, and the HTTP bodies. Generated from the types, checked in under
//! `schema/schemas/`, so that a change of a type shows as a difference in review.
//!
//! Invariant: names are file names, and one name stands for one type.

use std::collections::BTreeMap;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use crate::{
    artifact,
    event::{Envelope, NewEvent},
    queue::QueueEvent,
    run::RunEvent,
    system::SystemEvent,
    task::{TaskEvent, TaskRecord, TaskSpec},
    wire,
};

/// All schemas by name: `event.run.Told.1`, `task.TaskSpec`, `wire.LeaseRequest`.
pub fn all() -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    all.extend(family("run", RunEvent::schemas));
    all.extend(family("task", TaskEvent::schemas));
    all.extend(family("queue", QueueEvent::schemas));
    all.extend(family("system", SystemEvent::schemas));
    one::<Envelope>(&mut all, "event.Envelope");
    one::<NewEvent>(&mut all, "event.NewEvent");
    one::<artifact::PlanCard>(&mut all, "artifact.PlanCard");
    one::<artifact::DiffCard>(&mut all, "artifact.DiffCard");
    one::<artifact::TestReport>(&mut all, "artifact.TestReport");
    one::<artifact::ReviewReport>(&mut all, "artifact.ReviewReport");
    one::<TaskSpec>(&mut all, "task.TaskSpec");
    one::<TaskRecord>(&mut all, "task.TaskRecord");
    requests(&mut all);
    answers(&mut all);
    all
}

fn requests(all: &mut BTreeMap<String, Value>) {
    one::<wire::SubmitRequest>(all, "wire.SubmitRequest");
    one::<wire::TaskQuery>(all, "wire.TaskQuery");
    one::<wire::BulkRequest>(all, "wire.BulkRequest");
    one::<wire::ActRequest>(all, "wire.ActRequest");
    one::<wire::RetryRequest>(all, "wire.RetryRequest");
    one::<wire::SetBudgetRequest>(all, "wire.SetBudgetRequest");
    one::<wire::BudgetView>(all, "wire.BudgetView");
    one::<wire::PauseRequest>(all, "wire.PauseRequest");
    one::<wire::ResumeRequest>(all, "wire.ResumeRequest");
    one::<wire::ForkRequest>(all, "wire.ForkRequest");
    one::<wire::TellRequest>(all, "wire.TellRequest");
    one::<wire::PolicyRequest>(all, "wire.PolicyRequest");
    one::<wire::LeaseRequest>(all, "wire.LeaseRequest");
    one::<wire::HeartbeatRequest>(all, "wire.HeartbeatRequest");
    one::<wire::ReleaseRequest>(all, "wire.ReleaseRequest");
    one::<wire::AppendRequest>(all, "wire.AppendRequest");
    one::<wire::AppendManyRequest>(all, "wire.AppendManyRequest");
    one::<wire::EventsQuery>(all, "wire.EventsQuery");
    one::<wire::MemoryQuery>(all, "wire.MemoryQuery");
    one::<wire::FollowQuery>(all, "wire.FollowQuery");
    one::<wire::FeedQuery>(all, "wire.FeedQuery");
    one::<wire::StreamsQuery>(all, "wire.StreamsQuery");
    one::<wire::CostQuery>(all, "wire.CostQuery");
    one::<wire::MetricsQuery>(all, "wire.MetricsQuery");
    one::<wire::BlobCheckQuery>(all, "wire.BlobCheckQuery");
    one::<wire::ImportRequest>(all, "wire.ImportRequest");
    one::<wire::GcRequest>(all, "wire.GcRequest");
    one::<wire::CreateTokenRequest>(all, "wire.CreateTokenRequest");
    one::<wire::SetQueueRequest>(all, "wire.SetQueueRequest");
    one::<wire::DrainWorkerRequest>(all, "wire.DrainWorkerRequest");
    one::<wire::InboxActRequest>(all, "wire.InboxActRequest");
    one::<wire::SetLimitRequest>(all, "wire.SetLimitRequest");
    one::<wire::RemoveLimitRequest>(all, "wire.RemoveLimitRequest");
    one::<wire::RunMemoryRequest>(all, "wire.RunMemoryRequest");
    one::<wire::DeleteMemoryRequest>(all, "wire.DeleteMemoryRequest");
    one::<wire::PermitRequest>(all, "wire.PermitRequest");
    one::<wire::SetScheduleRequest>(all, "wire.SetScheduleRequest");
    one::<wire::ScheduleActRequest>(all, "wire.ScheduleActRequest");
    one::<wire::RunScheduleRequest>(all, "wire.RunScheduleRequest");
    one::<wire::RevokeTokenRequest>(all, "wire.RevokeTokenRequest");
    one::<wire::MissingBlobsRequest>(all, "wire.MissingBlobsRequest");
    one::<wire::NotificationQuery>(all, "wire.NotificationQuery");
    one::<wire::RetryNotificationRequest>(all, "wire.RetryNotificationRequest");
    one::<wire::DropNotificationRequest>(all, "wire.DropNotificationRequest");
    one::<wire::TestNotificationRequest>(all, "wire.TestNotificationRequest");
}

fn answers(all: &mut BTreeMap<String, Value>) {
    one::<wire::SubmitResponse>(all, "wire.SubmitResponse");
    one::<wire::TaskPage>(all, "wire.TaskPage");
    one::<wire::BulkResponse>(all, "wire.BulkResponse");
    one::<wire::BatchView>(all, "wire.BatchView");
    one::<wire::BatchList>(all, "wire.BatchList");
    one::<wire::CreatedToken>(all, "wire.CreatedToken");
    one::<wire::TokenList>(all, "wire.TokenList");
    one::<wire::TokenView>(all, "wire.TokenView");
    one::<wire::QueueList>(all, "wire.QueueList");
    one::<wire::QueueLoad>(all, "wire.QueueLoad");
    one::<wire::QueueView>(all, "wire.QueueView");
    one::<wire::InboxList>(all, "wire.InboxList");
    one::<wire::WhyView>(all, "wire.WhyView");
    one::<wire::LimitList>(all, "wire.LimitList");
    one::<wire::NotificationList>(all, "wire.NotificationList");
    one::<wire::NotificationView>(all, "wire.NotificationView");
    one::<wire::NotificationBody>(all, "wire.NotificationBody");
    one::<wire::RunMemoryResponse>(all, "wire.RunMemoryResponse");
    one::<wire::MemoryList>(all, "wire.MemoryList");
    one::<wire::PermitResponse>(all, "wire.PermitResponse");
    one::<wire::ScheduleList>(all, "wire.ScheduleList");
    one::<wire::ScheduleView>(all, "wire.ScheduleView");
    one::<wire::TaskView>(all, "wire.TaskView");
    one::<wire::RunView>(all, "wire.RunView");
    one::<wire::ResumeResponse>(all, "wire.ResumeResponse");
    one::<wire::ForkResponse>(all, "wire.ForkResponse");
    one::<wire::LineageView>(all, "wire.LineageView");
    one::<wire::TellResponse>(all, "wire.TellResponse");
    one::<wire::LeaseResponse>(all, "wire.LeaseResponse");
    one::<wire::HeartbeatResponse>(all, "wire.HeartbeatResponse");
    one::<wire::ReleaseResponse>(all, "wire.ReleaseResponse");
    one::<wire::AppendResponse>(all, "wire.AppendResponse");
    one::<wire::AppendManyResponse>(all, "wire.AppendManyResponse");
    one::<wire::EventPage>(all, "wire.EventPage");
    one::<wire::StreamPage>(all, "wire.StreamPage");
    one::<wire::CostPage>(all, "wire.CostPage");
    one::<wire::MetricsPage>(all, "wire.MetricsPage");
    one::<crate::report::CostReport>(all, "report.CostReport");
    one::<crate::report::CostExport>(all, "report.CostExport");
    one::<crate::report::MetricsReport>(all, "report.MetricsReport");
    one::<crate::eval::EvalReport>(all, "eval.EvalReport");
    one::<crate::eval::EvalComparison>(all, "eval.EvalComparison");
    one::<wire::BlobCheck>(all, "wire.BlobCheck");
    one::<wire::ImportResponse>(all, "wire.ImportResponse");
    one::<wire::GcResponse>(all, "wire.GcResponse");
    one::<wire::MissingBlobsResponse>(all, "wire.MissingBlobsResponse");
    one::<wire::Resolved>(all, "wire.Resolved");
    one::<wire::Status>(all, "wire.Status");
    one::<wire::Health>(all, "wire.Health");
    one::<wire::Problem>(all, "wire.Problem");
}

fn one<T: JsonSchema>(all: &mut BTreeMap<String, Value>, name: &str) {
    all.insert(name.to_owned(), generator().into_root_schema_for::<T>().to_value());
}

type Family = fn(&mut SchemaGenerator) -> Vec<(&'static str, u16, schemars::Schema)>;

/// Each event's schema stands alone: its definitions are those it refers to, directly or not.
fn family(family: &str, schemas: Family) -> BTreeMap<String, Value> {
    let mut generator = generator();
    let events = schemas(&mut generator);
    let definitions = generator.take_definitions(true);
    let mut all = BTreeMap::new();
    for (kind, version, schema) in events {
        let mut needed = BTreeMap::new();
        collect(schema.as_value(), &definitions, &mut needed);
        let mut document = json!({
            "$schema": "https://json-schema.org/draft/2020-12/schema",
            "title": kind,
            "$defs": needed,
        });
        if let (Some(into), Value::Object(from)) = (document.as_object_mut(), schema.to_value()) {
            into.extend(from);
        }
        all.insert(format!("event.{family}.{kind}.{version}"), document);
    }
    all
}

fn collect(
    schema: &Value,
    definitions: &serde_json::Map<String, Value>,
    needed: &mut BTreeMap<String, Value>,
) {
    match schema {
        Value::Object(fields) => {
            let named = fields.get("$ref").and_then(Value::as_str).and_then(|r| r.strip_prefix("#/$defs/"));
            if let Some((name, definition)) = named.and_then(|name| definitions.get_key_value(name))
                && needed.insert(name.clone(), definition.clone()).is_none()
            {
                collect(definition, definitions, needed);
            }
            for field in fields.values() {
                collect(field, definitions, needed);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect(item, definitions, needed);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// `UPDATE_SCHEMAS=1 cargo test -p docket-schema schemas` writes them anew.
    #[test]
    fn the_checked_in_schemas_are_those_of_the_types() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
        let update = std::env::var_os("UPDATE_SCHEMAS").is_some();
        if update {
            fs::create_dir_all(&folder).expect("folder");
        }
        let mut stale = Vec::new();
        let mut files = BTreeSet::new();
        for (name, schema) in all() {
            let file = format!("{name}.json");
            let mut text = serde_json::to_string_pretty(&schema).expect("json");
            text.push('\n');
            let path = folder.join(&file);
            // Compared as values: the order of keys depends on features of other crates.
            let stored = fs::read_to_string(&path).ok().and_then(|text| serde_json::from_str(&text).ok());
            if stored.as_ref() != Some(&schema) {
                if update {
                    fs::write(&path, &text).expect("writes");
                } else {
                    stale.push(file.clone());
                }
            }
            files.insert(file);
        }
        for entry in fs::read_dir(&folder).expect("schema/schemas is checked in") {
            let name = entry.expect("entry").file_name().to_string_lossy().into_owned();
            if !files.contains(&name) {
                if update {
                    fs::remove_file(folder.join(&name)).expect("removes");
                } else {
                    stale.push(name);
                }
            }
        }
        assert!(stale.is_empty(), "run with UPDATE_SCHEMAS=1 and look at the difference: {stale:?}");
    }

    #[test]
    fn no_schema_refers_to_what_it_does_not_hold() {
        for (name, schema) in all() {
            let text = schema.to_string();
            for reference in text.split("\"#/$defs/").skip(1) {
                let definition = reference.split('"').next().expect("a closing quote");
                assert!(schema["$defs"].get(definition).is_some(), "{name}: {definition}");
            }
        }
    }
}

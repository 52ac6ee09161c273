//! JSON Schemas of everything that is recorded or sent: each event by kind and version, the task
//! specification, and the HTTP bodies. Generated from the types and checked in under `schema/schemas/`, so
//! that a change of a type is visible in review.
//!
//! Invariant: names are file names, and each name belongs to one type.

use std::collections::BTreeMap;

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Value, json};

use crate::{
    api, artifact,
    event::{Envelope, NewEvent},
    queue::QueueEvent,
    run::RunEvent,
    system::SystemEvent,
    task::{TaskEvent, TaskRecord, TaskSpec},
};

/// All schemas by name: `event.run.Told.1`, `task.TaskSpec`, `wire.LeaseRequest`.
pub fn all_schemas() -> BTreeMap<String, Value> {
    let mut all = BTreeMap::new();
    all.extend(event_schemas("run", RunEvent::schemas));
    all.extend(event_schemas("task", TaskEvent::schemas));
    all.extend(event_schemas("queue", QueueEvent::schemas));
    all.extend(event_schemas("system", SystemEvent::schemas));
    add_schema::<Envelope>(&mut all, "event.Envelope");
    add_schema::<NewEvent>(&mut all, "event.NewEvent");
    add_schema::<artifact::PlanCard>(&mut all, "artifact.PlanCard");
    add_schema::<artifact::DiffCard>(&mut all, "artifact.DiffCard");
    add_schema::<artifact::TestReport>(&mut all, "artifact.TestReport");
    add_schema::<artifact::ReviewReport>(&mut all, "artifact.ReviewReport");
    add_schema::<TaskSpec>(&mut all, "task.TaskSpec");
    add_schema::<TaskRecord>(&mut all, "task.TaskRecord");
    add_request_schemas(&mut all);
    add_response_schemas(&mut all);
    all
}

fn add_request_schemas(all: &mut BTreeMap<String, Value>) {
    add_schema::<api::SubmitRequest>(all, "wire.SubmitRequest");
    add_schema::<api::TaskQuery>(all, "wire.TaskQuery");
    add_schema::<api::BulkRequest>(all, "wire.BulkRequest");
    add_schema::<api::CancelTaskRequest>(all, "wire.ActRequest");
    add_schema::<api::RetryRequest>(all, "wire.RetryRequest");
    add_schema::<api::SetBudgetRequest>(all, "wire.SetBudgetRequest");
    add_schema::<api::BudgetView>(all, "wire.BudgetView");
    add_schema::<api::PauseRequest>(all, "wire.PauseRequest");
    add_schema::<api::ResumeRequest>(all, "wire.ResumeRequest");
    add_schema::<api::ForkRequest>(all, "wire.ForkRequest");
    add_schema::<api::TellRequest>(all, "wire.TellRequest");
    add_schema::<api::PolicyRequest>(all, "wire.PolicyRequest");
    add_schema::<api::LeaseRequest>(all, "wire.LeaseRequest");
    add_schema::<api::HeartbeatRequest>(all, "wire.HeartbeatRequest");
    add_schema::<api::ReleaseRequest>(all, "wire.ReleaseRequest");
    add_schema::<api::AppendRequest>(all, "wire.AppendRequest");
    add_schema::<api::AppendManyRequest>(all, "wire.AppendManyRequest");
    add_schema::<api::EventsQuery>(all, "wire.EventsQuery");
    add_schema::<api::MemoryQuery>(all, "wire.MemoryQuery");
    add_schema::<api::FollowQuery>(all, "wire.FollowQuery");
    add_schema::<api::FeedQuery>(all, "wire.FeedQuery");
    add_schema::<api::StreamsQuery>(all, "wire.StreamsQuery");
    add_schema::<api::CostQuery>(all, "wire.CostQuery");
    add_schema::<api::MetricsQuery>(all, "wire.MetricsQuery");
    add_schema::<api::BlobCheckQuery>(all, "wire.BlobCheckQuery");
    add_schema::<api::ImportRequest>(all, "wire.ImportRequest");
    add_schema::<api::GcRequest>(all, "wire.GcRequest");
    add_schema::<api::CreateTokenRequest>(all, "wire.CreateTokenRequest");
    add_schema::<api::SetQueueRequest>(all, "wire.SetQueueRequest");
    add_schema::<api::DrainWorkerRequest>(all, "wire.DrainWorkerRequest");
    add_schema::<api::InboxActRequest>(all, "wire.InboxActRequest");
    add_schema::<api::SetLimitRequest>(all, "wire.SetLimitRequest");
    add_schema::<api::RemoveLimitRequest>(all, "wire.RemoveLimitRequest");
    add_schema::<api::RunMemoryRequest>(all, "wire.RunMemoryRequest");
    add_schema::<api::DeleteMemoryRequest>(all, "wire.DeleteMemoryRequest");
    add_schema::<api::PermitRequest>(all, "wire.PermitRequest");
    add_schema::<api::SetScheduleRequest>(all, "wire.SetScheduleRequest");
    add_schema::<api::ScheduleActRequest>(all, "wire.ScheduleActRequest");
    add_schema::<api::RunScheduleRequest>(all, "wire.RunScheduleRequest");
    add_schema::<api::RevokeTokenRequest>(all, "wire.RevokeTokenRequest");
    add_schema::<api::MissingBlobsRequest>(all, "wire.MissingBlobsRequest");
    add_schema::<api::NotificationQuery>(all, "wire.NotificationQuery");
    add_schema::<api::RetryNotificationRequest>(all, "wire.RetryNotificationRequest");
    add_schema::<api::DropNotificationRequest>(all, "wire.DropNotificationRequest");
    add_schema::<api::TestNotificationRequest>(all, "wire.TestNotificationRequest");
}

fn add_response_schemas(all: &mut BTreeMap<String, Value>) {
    add_schema::<api::SubmitResponse>(all, "wire.SubmitResponse");
    add_schema::<api::TaskPage>(all, "wire.TaskPage");
    add_schema::<api::BulkResponse>(all, "wire.BulkResponse");
    add_schema::<api::BatchView>(all, "wire.BatchView");
    add_schema::<api::BatchList>(all, "wire.BatchList");
    add_schema::<api::CreatedToken>(all, "wire.CreatedToken");
    add_schema::<api::TokenList>(all, "wire.TokenList");
    add_schema::<api::TokenView>(all, "wire.TokenView");
    add_schema::<api::QueueList>(all, "wire.QueueList");
    add_schema::<api::QueueLoad>(all, "wire.QueueLoad");
    add_schema::<api::QueueView>(all, "wire.QueueView");
    add_schema::<api::InboxList>(all, "wire.InboxList");
    add_schema::<api::WhyView>(all, "wire.WhyView");
    add_schema::<api::LimitList>(all, "wire.LimitList");
    add_schema::<api::NotificationList>(all, "wire.NotificationList");
    add_schema::<api::NotificationView>(all, "wire.NotificationView");
    add_schema::<api::NotificationBody>(all, "wire.NotificationBody");
    add_schema::<api::RunMemoryResponse>(all, "wire.RunMemoryResponse");
    add_schema::<api::MemoryList>(all, "wire.MemoryList");
    add_schema::<api::PermitResponse>(all, "wire.PermitResponse");
    add_schema::<api::ScheduleList>(all, "wire.ScheduleList");
    add_schema::<api::ScheduleView>(all, "wire.ScheduleView");
    add_schema::<api::TaskView>(all, "wire.TaskView");
    add_schema::<api::RunView>(all, "wire.RunView");
    add_schema::<api::ResumeResponse>(all, "wire.ResumeResponse");
    add_schema::<api::ForkResponse>(all, "wire.ForkResponse");
    add_schema::<api::LineageView>(all, "wire.LineageView");
    add_schema::<api::TellResponse>(all, "wire.TellResponse");
    add_schema::<api::LeaseResponse>(all, "wire.LeaseResponse");
    add_schema::<api::HeartbeatResponse>(all, "wire.HeartbeatResponse");
    add_schema::<api::ReleaseResponse>(all, "wire.ReleaseResponse");
    add_schema::<api::AppendResponse>(all, "wire.AppendResponse");
    add_schema::<api::AppendManyResponse>(all, "wire.AppendManyResponse");
    add_schema::<api::EventPage>(all, "wire.EventPage");
    add_schema::<api::StreamPage>(all, "wire.StreamPage");
    add_schema::<api::CostPage>(all, "wire.CostPage");
    add_schema::<api::MetricsPage>(all, "wire.MetricsPage");
    add_schema::<crate::report::CostReport>(all, "report.CostReport");
    add_schema::<crate::report::CostExportLine>(all, "report.CostExportLine");
    add_schema::<crate::report::MetricsReport>(all, "report.MetricsReport");
    add_schema::<crate::eval::EvalReport>(all, "eval.EvalReport");
    add_schema::<crate::eval::EvalComparison>(all, "eval.EvalComparison");
    add_schema::<api::BlobCheckResponse>(all, "wire.BlobCheckResponse");
    add_schema::<api::ImportResponse>(all, "wire.ImportResponse");
    add_schema::<api::GcResponse>(all, "wire.GcResponse");
    add_schema::<api::MissingBlobsResponse>(all, "wire.MissingBlobsResponse");
    add_schema::<api::ResolveResponse>(all, "wire.Resolved");
    add_schema::<api::CoordinatorStatus>(all, "wire.Status");
    add_schema::<api::HealthResponse>(all, "wire.Health");
    add_schema::<api::ProblemDetails>(all, "wire.Problem");
}

fn add_schema<T: JsonSchema>(all: &mut BTreeMap<String, Value>, name: &str) {
    all.insert(name.to_owned(), schema_generator().into_root_schema_for::<T>().to_value());
}

type EventSchemasFn = fn(&mut SchemaGenerator) -> Vec<(&'static str, u16, schemars::Schema)>;

/// Builds the schema of each event with all the definitions it refers to, directly or indirectly.
fn event_schemas(family: &str, schemas: EventSchemasFn) -> BTreeMap<String, Value> {
    let mut generator = schema_generator();
    let events = schemas(&mut generator);
    let definitions = generator.take_definitions(true);
    let mut all = BTreeMap::new();
    for (kind, version, schema) in events {
        let mut needed = BTreeMap::new();
        collect_definitions(schema.as_value(), &definitions, &mut needed);
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

fn collect_definitions(
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
                collect_definitions(definition, definitions, needed);
            }
            for field in fields.values() {
                collect_definitions(field, definitions, needed);
            }
        }
        Value::Array(items) => {
            for item in items {
                collect_definitions(item, definitions, needed);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn schema_generator() -> SchemaGenerator {
    SchemaSettings::draft2020_12().into_generator()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs, path::Path};

    use super::*;

    /// `UPDATE_SCHEMAS=1 cargo test -p docket-schema schemas` regenerates them.
    #[test]
    fn checked_in_schemas_match_the_types() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas");
        let update = std::env::var_os("UPDATE_SCHEMAS").is_some();
        if update {
            fs::create_dir_all(&folder).expect("folder");
        }
        let mut stale = Vec::new();
        let mut files = BTreeSet::new();
        for (name, schema) in all_schemas() {
            let file = format!("{name}.json");
            let mut text = serde_json::to_string_pretty(&schema).expect("json");
            text.push('\n');
            let path = folder.join(&file);
            // Compared as values, because the order of keys depends on features of other crates.
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
    fn schemas_contain_every_definition_they_reference() {
        for (name, schema) in all_schemas() {
            let text = schema.to_string();
            for reference in text.split("\"#/$defs/").skip(1) {
                let definition = reference.split('"').next().expect("a closing quote");
                assert!(schema["$defs"].get(definition).is_some(), "{name}: {definition}");
            }
        }
    }
}

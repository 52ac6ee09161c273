//! Generates the OpenAPI 3.1 document from the route table and the JSON Schemas of the types. A
//! copy is checked in as `coordinator/openapi.json`, so that API changes show up in review.

use std::{
    collections::BTreeSet,
    sync::{Arc, OnceLock},
};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, header},
};
use docket_schema::{
    api::{ProblemCode, ProblemDetails},
    ids::{BatchId, BlobHash, IncarnationId, NotificationId, QueueName, RunId, TaskId},
    system::{ScheduleName, TokenName},
};
use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    middleware::{
        api_error::ApiError,
        api_state::ApiState,
        auth::RouteAccess,
        request::ApiRequest,
        route::{ApiRoute, BodyShape},
    },
    router::ROUTES,
};

pub(super) async fn serve_openapi(_: Arc<ApiState>, _: ApiRequest) -> Result<Response<Body>, ApiError> {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let bytes = DOCUMENT.get_or_init(|| openapi_document().to_string().into());
    let mut response = Response::new(Body::from(bytes.clone()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Returns the OpenAPI document.
pub fn openapi_document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let problem = generator.subschema_for::<ProblemDetails>().to_value();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let operation = build_operation(route, &mut generator);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation;
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "docket",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "The coordinator's API. Errors are RFC 9457 problem details; their codes are listed in coordinator/ERRORS.md.",
            "license": { "name": "MIT OR Apache-2.0" },
        },
        "paths": paths,
        "components": {
            "schemas": generator.take_definitions(true),
            "responses": { "Problem": {
                "description": "a problem; see its code",
                "content": { "application/problem+json": { "schema": problem } },
            } },
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn build_operation(route: &ApiRoute, generator: &mut SchemaGenerator) -> Value {
    let mut parameters = Vec::new();
    if let Some(name) = path_placeholder(route.path) {
        let schema = placeholder_schema(route.path, generator);
        parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": schema }));
    }
    if let Some(query) = route.query {
        parameters.extend(query_parameters(query, generator));
    }
    let mut good = json!({ "description": "Success" });
    if let Some(content) = body_content(route.response, generator) {
        good["content"] = content;
    }
    let status = if matches!(route.response, BodyShape::None) && route.method.as_str() == "PUT" {
        "204"
    } else {
        "200"
    };
    let mut responses = Map::from_iter([(status.to_owned(), good)]);
    let problem = json!({ "$ref": "#/components/responses/Problem" });
    responses.extend(problem_statuses(route).into_iter().map(|status| (status.to_string(), problem.clone())));
    let mut operation = json!({ "summary": route.summary, "parameters": parameters, "responses": responses });
    if let Some(content) = body_content(route.request, generator) {
        // An empty body is read as an object without fields.
        let all_optional = matches!(route.request, BodyShape::Json(_)) && {
            let definition = resolve_definition(&content["application/json"]["schema"], generator);
            definition["required"].as_array().is_none_or(Vec::is_empty)
        };
        operation["requestBody"] = json!({ "required": !all_optional, "content": content });
    }
    let (security, who) = match route.access {
        RouteAccess::Public | RouteAccess::DashboardPage => (json!([]), "anyone".to_owned()),
        RouteAccess::Roles(roles) => (json!([{ "token": [] }]), role_names(roles)),
        RouteAccess::RolesAndRuns(roles) => {
            (json!([{ "token": [] }]), format!("{}, a run", role_names(roles)))
        }
        RouteAccess::Appends([]) => (json!([{ "token": [] }]), "the run".to_owned()),
        RouteAccess::Appends(roles) => (json!([{ "token": [] }]), format!("{}, a run", role_names(roles))),
    };
    operation["security"] = security;
    operation["description"] = json!(format!("For: {who}."));
    operation
}

/// Returns the statuses of the problems that a route may return, from its checks, its request and
/// what it writes.
fn problem_statuses(route: &ApiRoute) -> BTreeSet<u16> {
    let takes_body = !matches!(route.request, BodyShape::None);
    let is_asked = takes_body || route.query.is_some() || path_placeholder(route.path).is_some();
    let may = |code: ProblemCode| match code {
        // Caused by the head, the host, the rate limit or the store.
        ProblemCode::InvalidRequest
        | ProblemCode::Forbidden
        | ProblemCode::TooLarge
        | ProblemCode::TooMany
        | ProblemCode::Unavailable
        | ProblemCode::Corrupt
        | ProblemCode::Internal => true,
        ProblemCode::Unauthorized => {
            !matches!(route.access, RouteAccess::Public | RouteAccess::DashboardPage)
        }
        ProblemCode::NotFound
        | ProblemCode::Ambiguous
        | ProblemCode::IdTaken
        | ProblemCode::WrongState
        | ProblemCode::WrongSeq
        | ProblemCode::Fenced
        | ProblemCode::LeaseExpired
        | ProblemCode::Ended
        | ProblemCode::BlobMissing
        | ProblemCode::BlobMismatch => is_asked,
        ProblemCode::UnsupportedMedia => matches!(route.request, BodyShape::Json(_)),
        ProblemCode::StorageFull => takes_body,
        // A different method is a different route or none.
        ProblemCode::MethodNotAllowed => false,
    };
    ProblemCode::ALL.into_iter().filter(|code| may(*code)).map(|code| code.code_status_title().1).collect()
}

/// Returns the name of a path's placeholder.
fn path_placeholder(path: &str) -> Option<&str> {
    path.split_once('{').and_then(|(_, rest)| rest.split_once('}')).map(|(name, _)| name)
}

/// Returns the schema of a path's placeholder.
fn placeholder_schema(path: &str, generator: &mut SchemaGenerator) -> Value {
    fn id_schema<T: JsonSchema>(generator: &mut SchemaGenerator) -> Value {
        generator.subschema_for::<T>().to_value()
    }
    let kind = path.trim_start_matches("/v1/").split('/').next().unwrap_or_default();
    match kind {
        "tasks" => id_schema::<TaskId>(generator),
        // A task or a run; their IDs have the same form.
        "runs" | "archived" => id_schema::<RunId>(generator),
        "batches" => id_schema::<BatchId>(generator),
        "workers" => id_schema::<IncarnationId>(generator),
        "blobs" => id_schema::<BlobHash>(generator),
        "queues" => id_schema::<QueueName>(generator),
        "schedules" => id_schema::<ScheduleName>(generator),
        "tokens" => id_schema::<TokenName>(generator),
        "notifications" => id_schema::<NotificationId>(generator),
        "limits" => json!({ "type": "string", "pattern": "^[a-z0-9-]{1,64}$" }),
        "resolve" => json!({ "type": "string", "pattern": "^[0-9a-fA-F]{1,32}$" }),
        _ => json!({ "type": "string" }),
    }
}

/// Resolves a reference; a schema without one is returned as is.
fn resolve_definition(schema: &Value, generator: &SchemaGenerator) -> Value {
    let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next());
    name.map_or_else(|| schema.clone(), |name| generator.definitions().get(name).cloned().unwrap_or_default())
}

fn role_names(roles: &[docket_schema::system::TokenRole]) -> String {
    let mut names = vec!["admin".to_owned()];
    names.extend(roles.iter().map(|role| role.as_str().to_owned()));
    names.join(", ")
}

fn body_content(shape: BodyShape, generator: &mut SchemaGenerator) -> Option<Value> {
    match shape {
        BodyShape::None => None,
        BodyShape::Json(schema) => {
            let schema = schema(generator).to_value();
            Some(json!({ "application/json": { "schema": schema } }))
        }
        BodyShape::Bytes => Some(json!({ "application/octet-stream": {} })),
        BodyShape::Files(types) => Some(types.iter().map(|media| ((*media).to_owned(), json!({}))).collect()),
        BodyShape::Text => Some(json!({ "text/plain": { "schema": { "type": "string" } } })),
        BodyShape::Events => Some(json!({ "text/event-stream": { "schema": { "type": "string" } } })),
    }
}

/// Converts a query's fields into parameters. Optional fields are omitted rather than null.
fn query_parameters(
    query: fn(&mut SchemaGenerator) -> schemars::Schema,
    generator: &mut SchemaGenerator,
) -> Vec<Value> {
    let schema = query(generator).to_value();
    let definition = resolve_definition(&schema, generator);
    let Some(fields) = definition["properties"].as_object() else { return Vec::new() };
    let required = definition["required"].as_array().cloned().unwrap_or_default();
    let parameter = |(name, schema): (&String, &Value)| {
        let mut schema = without_null(schema);
        let description = schema.as_object_mut().and_then(|schema| schema.remove("description"));
        json!({
            "name": name,
            "in": "query",
            "required": required.iter().any(|known| known == name),
            "description": description,
            "schema": schema,
        })
    };
    fields.iter().map(parameter).collect()
}

fn without_null(schema: &Value) -> Value {
    let mut schema = schema.clone();
    if let Some(types) = schema["type"].as_array()
        && let [one] = types.iter().filter(|kind| **kind != "null").cloned().collect::<Vec<_>>().as_slice()
    {
        schema["type"] = one.clone();
    }
    let null = json!({ "type": "null" });
    if let Some([one]) = schema["anyOf"]
        .as_array()
        .map(|all| all.iter().filter(|kind| **kind != null).cloned().collect::<Vec<_>>())
        .as_deref()
    {
        let (one, fields) = (one.clone(), schema.as_object_mut());
        if let (Some(fields), Some(of)) = (fields, one.as_object()) {
            fields.remove("anyOf");
            fields.extend(of.clone());
        }
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// Run `UPDATE_SCHEMAS=1 cargo test -p docket-coordinator openapi` to write the document again.
    #[test]
    fn checked_in_document_matches_the_route_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
        let document = openapi_document();
        if std::env::var_os("UPDATE_SCHEMAS").is_some() {
            let mut text = serde_json::to_string_pretty(&document).expect("json");
            text.push('\n');
            fs::write(&path, text).expect("writes");
        }
        let stored: Value =
            serde_json::from_slice(&fs::read(&path).expect("it is checked in")).expect("json");
        assert!(stored == document, "run with UPDATE_SCHEMAS=1 and look at the difference");
    }

    #[test]
    fn every_path_parameter_has_a_format_and_none_is_null() {
        for (path, operations) in openapi_document()["paths"].as_object().expect("paths") {
            for (verb, operation) in operations.as_object().expect("operations") {
                for parameter in operation["parameters"].as_array().expect("parameters") {
                    let schema = parameter["schema"].to_string();
                    assert!(!schema.contains("null"), "{verb} {path}: {parameter}");
                    // Inbox rows have names chosen by the application.
                    let free = parameter["in"] != "path" || path.starts_with("/v1/inbox/");
                    assert!(free || parameter["schema"] != json!({ "type": "string" }), "{verb} {path}");
                }
                assert!(
                    operation["responses"].get("default").is_none(),
                    "{verb} {path}: every status is named"
                );
                assert!(operation["responses"]["500"].is_object(), "{verb} {path}");
            }
        }
    }

    #[test]
    fn every_reference_resolves_and_every_route_is_documented() {
        let document = openapi_document();
        let text = document.to_string();
        for reference in text.split("\"$ref\":\"#").skip(1) {
            let pointer = reference.split('"').next().expect("a closing quote");
            assert!(document.pointer(pointer).is_some(), "{pointer}");
        }
        let operations: usize = document["paths"]
            .as_object()
            .expect("paths")
            .values()
            .map(|p| p.as_object().map_or(0, Map::len))
            .sum();
        assert_eq!(operations, ROUTES.len());
    }
}

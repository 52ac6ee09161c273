//! The OpenAPI 3.1 document, made from the table of routes and the types' JSON Schemas. A copy is
//! checked in as `coordinator/openapi.json`, so that a change of the API shows in review.

use std::sync::{Arc, OnceLock};

use axum::{
    body::{Body, Bytes},
    http::{HeaderValue, Response, header},
};
use docket_schema::wire::Problem;
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};

use super::{
    api::Api,
    auth::Access,
    call::Call,
    errors::Refusal,
    router::{ROUTES, Route, Shape},
};

pub(super) async fn serve(_: Arc<Api>, _: Call) -> Result<Response<Body>, Refusal> {
    static DOCUMENT: OnceLock<Bytes> = OnceLock::new();
    let bytes = DOCUMENT.get_or_init(|| document().to_string().into());
    let mut response = Response::new(Body::from(bytes.clone()));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// The document.
pub fn document() -> Value {
    let mut generator = SchemaSettings::draft2020_12()
        .with(|settings| settings.definitions_path = "/components/schemas".into())
        .into_generator();
    let problem = generator.subschema_for::<Problem>().to_value();
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let operation = operation(route, &mut generator, &problem);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.verb.as_str().to_ascii_lowercase()] = operation;
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
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
    })
}

fn operation(route: &Route, generator: &mut SchemaGenerator, problem: &Value) -> Value {
    let mut parameters = Vec::new();
    if let Some(name) = route.path.split_once('{').and_then(|(_, rest)| rest.split_once('}')) {
        parameters.push(json!({
            "name": name.0, "in": "path", "required": true, "schema": { "type": "string" },
        }));
    }
    if let Some(query) = route.query {
        parameters.extend(query_parameters(query, generator));
    }
    let mut good = json!({ "description": "it is done" });
    if let Some(content) = content(route.response, generator) {
        good["content"] = content;
    }
    let status =
        if matches!(route.response, Shape::None) && route.verb.as_str() == "PUT" { "204" } else { "200" };
    let mut operation = json!({
        "summary": route.summary,
        "parameters": parameters,
        "responses": {
            status: good,
            "default": {
                "description": "a problem; its code says which",
                "content": { "application/problem+json": { "schema": problem } },
            },
        },
    });
    if let Some(content) = content(route.request, generator) {
        operation["requestBody"] = json!({ "required": true, "content": content });
    }
    let (security, who) = match route.access {
        Access::Open | Access::Page => (json!([]), "anyone".to_owned()),
        Access::Roles(roles) => (json!([{ "token": [] }]), role_names(roles)),
        Access::RolesAndRuns(roles) => (json!([{ "token": [] }]), format!("{}, a run", role_names(roles))),
        Access::Appends([]) => (json!([{ "token": [] }]), "the run".to_owned()),
        Access::Appends(roles) => (json!([{ "token": [] }]), format!("{}, a run", role_names(roles))),
    };
    operation["security"] = security;
    operation["description"] = json!(format!("For: {who}."));
    operation
}

fn role_names(roles: &[docket_schema::system::Role]) -> String {
    let mut names = vec!["admin".to_owned()];
    names.extend(roles.iter().map(|role| role.as_str().to_owned()));
    names.join(", ")
}

fn content(shape: Shape, generator: &mut SchemaGenerator) -> Option<Value> {
    match shape {
        Shape::None => None,
        Shape::Json(schema) => {
            let schema = schema(generator).to_value();
            Some(json!({ "application/json": { "schema": schema } }))
        }
        Shape::Bytes => Some(json!({ "application/octet-stream": {} })),
        Shape::Text => Some(json!({ "text/plain": { "schema": { "type": "string" } } })),
        Shape::Events => Some(json!({ "text/event-stream": { "schema": { "type": "string" } } })),
    }
}

/// A query's fields, each a parameter.
fn query_parameters(
    query: fn(&mut SchemaGenerator) -> schemars::Schema,
    generator: &mut SchemaGenerator,
) -> Vec<Value> {
    let schema = query(generator).to_value();
    let name = schema["$ref"].as_str().and_then(|reference| reference.rsplit('/').next()).unwrap_or_default();
    let definition = generator.definitions().get(name).cloned().unwrap_or_default();
    let Some(fields) = definition["properties"].as_object() else { return Vec::new() };
    let parameter = |(name, schema): (&String, &Value)| {
        let description = schema["description"].clone();
        json!({ "name": name, "in": "query", "required": false, "description": description, "schema": schema })
    };
    fields.iter().map(parameter).collect()
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    use super::*;

    /// `UPDATE_SCHEMAS=1 cargo test -p docket-coordinator openapi` writes it anew.
    #[test]
    fn the_checked_in_document_is_that_of_the_table() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("openapi.json");
        let document = document();
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
    fn every_reference_leads_somewhere_and_every_route_is_there() {
        let document = document();
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

//! Hostile bodies at every route that takes one: each gets a 4xx response with a problem within the
//! size limits, and nothing panics. If a route does panic, only that request fails.

use std::{
    cell::Cell,
    collections::BTreeSet,
    sync::{Arc, Once},
};

use axum::{body::Body, http::Response};
use docket_schema::api::{ProblemCode, ProblemDetails};
use schemars::{SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::support::{TestServer, token_for};
use crate::http::{
    ApiState, TokenRole,
    middleware::{
        api_error::ApiError,
        auth::RouteAccess,
        request::ApiRequest,
        route::{ApiRoute, BodyShape, HttpMethod},
    },
    router::{ROUTES, build_router_from},
};

thread_local! {
    /// Number of panics on this thread; a test's coordinator runs on the test's own thread.
    static PANICS: Cell<u32> = const { Cell::new(0) };
}

/// Counts panics from now on, whether or not they are caught.
fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.set(PANICS.get() + 1);
            before(info);
        }));
    });
}

/// Maximum size of an error response: a problem that does not repeat the request.
const PROBLEM_BYTES_MAX: usize = 4096;

struct JsonRoute {
    name: String,
    path: String,
    token: String,
    schema: Value,
    definitions: Map<String, Value>,
    large: bool,
}

/// Returns the routes that take JSON.
async fn json_routes(house: &TestServer) -> Vec<JsonRoute> {
    let lease = house.submit_and_lease().await;
    let of = |route: &ApiRoute| {
        let BodyShape::Json(schema) = route.request else { return None };
        let mut generator: SchemaGenerator = SchemaSettings::draft2020_12().into_generator();
        let schema = schema(&mut generator).to_value();
        let definitions = generator.take_definitions(true);
        let id =
            if route.path.starts_with("/v1/tasks") { lease.task.to_string() } else { lease.run.to_string() };
        Some(JsonRoute {
            name: format!("{} {}", route.method.as_str(), route.path),
            path: route.path.replace("{id}", &id).replace("{name}", "nobody"),
            token: if route.access == RouteAccess::Appends(&[]) {
                &lease.token
            } else {
                token_for(TokenRole::Admin)
            }
            .to_owned(),
            schema,
            definitions,
            large: route.body_bytes_max > 2 * 1024 * 1024,
        })
    };
    ROUTES.iter().filter_map(of).collect()
}

impl JsonRoute {
    /// Resolves the references of a schema; of several alternatives the first is used.
    fn resolve_schema<'a>(&'a self, schema: &'a Value) -> &'a Value {
        let mut schema = schema;
        for _ in 0..20 {
            if let Some(reference) = schema["$ref"].as_str() {
                let name = reference.rsplit('/').next().unwrap_or_default();
                schema = self.definitions.get(name).unwrap_or(&Value::Null);
            } else if let Some(first) = ["anyOf", "oneOf", "allOf"].iter().find_map(|of| schema[of].get(0)) {
                schema = first;
            } else {
                break;
            }
        }
        schema
    }

    fn schema_fields<'a>(&'a self, schema: &'a Value) -> impl Iterator<Item = (&'a String, &'a Value)> {
        self.resolve_schema(schema)["properties"].as_object().into_iter().flatten()
    }

    /// Builds a value that fits the schema, with all required fields.
    fn valid_value(&self, schema: &Value, depth: u32) -> Value {
        let schema = self.resolve_schema(schema);
        if let Some(one) = schema.get("const").or_else(|| schema["enum"].get(0)) {
            return one.clone();
        }
        match schema_types(schema).iter().find(|kind| *kind != "null").map(String::as_str) {
            Some("string") if schema["format"] == "uuid" => json!("01923456-789a-7bcd-8ef0-123456789abc"),
            Some("string") => json!("x"),
            Some("integer" | "number") => schema.get("minimum").cloned().unwrap_or(json!(1)),
            Some("boolean") => json!(false),
            Some("array") => json!([]),
            Some("object") if depth < 6 => {
                let must = schema["required"].as_array().cloned().unwrap_or_default();
                let field = |name: &Value| {
                    let name = name.as_str()?;
                    Some((name.to_owned(), self.valid_value(&schema["properties"][name], depth + 1)))
                };
                Value::Object(must.iter().filter_map(field).collect())
            }
            _ => json!({}),
        }
    }

    /// Returns bodies in which one field, at any depth, has a type that its schema does not allow.
    fn wrong_type_bodies(&self) -> Vec<(String, Value)> {
        let mut wrong = Vec::new();
        self.collect_wrong_values(&self.schema, "", 0, &mut |place, value| {
            let mut body = self.valid_value(&self.schema, 0);
            set_at(&mut body, place, value);
            wrong.push((place.to_owned(), body));
        });
        wrong
    }

    fn collect_wrong_values(&self, schema: &Value, at: &str, depth: u32, say: &mut impl FnMut(&str, Value)) {
        for (name, field) in self.schema_fields(schema) {
            let place = format!("{at}/{name}");
            // A field of any type cannot be wrong; alternatives would have to be tried one by one.
            let one_shape = ["anyOf", "oneOf", "allOf"].iter().all(|of| field.get(of).is_none());
            let resolved = self.resolve_schema(field);
            let kinds = schema_types(resolved);
            if one_shape && !kinds.is_empty() && resolved.get("oneOf").is_none() {
                let all = [
                    ("null", json!(null)),
                    ("boolean", json!(true)),
                    ("number", json!(1.5)),
                    ("string", json!("\u{0}text")),
                    ("array", json!([[]])),
                    ("object", json!({ "a": 1 })),
                ];
                for (kind, value) in all {
                    // `#[serde(default)]` does not allow null, but an `Option` does, as its types show.
                    if !kinds.contains(kind)
                        && !resolved["enum"].as_array().is_some_and(|e| e.contains(&value))
                    {
                        say(&place, value);
                    }
                }
            }
            if depth < 3 && kinds.contains("object") {
                self.collect_wrong_values(field, &place, depth + 1, say);
            }
        }
    }
}

fn schema_types(schema: &Value) -> BTreeSet<String> {
    let one = |kind: &Value| kind.as_str().map(str::to_owned);
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().filter_map(one).collect(),
        kind => one(kind).into_iter().collect(),
    }
}

fn set_at(body: &mut Value, place: &str, value: Value) {
    let mut at = body;
    for name in place.split('/').skip(1) {
        if !at.is_object() {
            *at = json!({});
        }
        at = &mut at[name];
    }
    *at = value;
}

/// Texts that are not a valid body of any route.
fn hostile_texts(target: &JsonRoute) -> Vec<(String, Vec<u8>)> {
    let good = target.valid_value(&target.schema, 0).to_string();
    let inner = good.strip_prefix('{').and_then(|rest| rest.strip_suffix('}')).expect("an object").to_owned();
    let comma = if inner.is_empty() { "" } else { "," };
    let field = target.schema_fields(&target.schema).next().map_or("x", |(name, _)| name).to_owned();
    let with = |value: &str| format!("{{{inner}{comma}\"zzz\":{value}}}").into_bytes();
    let of_field = |value: &str| format!("{{\"{field}\":{value}}}").into_bytes();
    let deep = |open: &str, close: &str| format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
    let named = |name: &str, body: Vec<u8>| (name.to_owned(), body);
    let mut texts = vec![
        named("not JSON", b"hello".to_vec()),
        named("a BOM", format!("\u{feff}{good}").into_bytes()),
        named("blank", b" ".to_vec()),
        named("null", b"null".to_vec()),
        named("a number", b"7".to_vec()),
        named("a list", b"[1]".to_vec()),
        named("two values", format!("{good}{good}").into_bytes()),
        named("open brackets", "[".repeat(100_000).into_bytes()),
        named("open braces", "{\"a\":".repeat(100_000).into_bytes()),
        named("deep lists", deep("[", "]").into_bytes()),
        named("deep lists in an unknown field", with(&deep("[", "]"))),
        named("deep objects in a field", of_field(&deep("{\"a\":", "}"))),
        named("a huge exponent", of_field("1e999999")),
        named("a long number", of_field(&"9".repeat(10_000))),
        named("a small number", of_field(&format!("-{}.{}", "9".repeat(400), "9".repeat(400)))),
        named("not a number", of_field("NaN")),
        named("the same field twice", format!("{{\"{field}\":[],\"{field}\":[]}}").into_bytes()),
        named("an unknown field", with("1")),
        named("a lone surrogate", of_field("\"\\ud800\"")),
        named("a lone surrogate as a name", b"{\"\\udfff\":1}".to_vec()),
        named("NUL in a name", b"{\"\\u0000\":1}".to_vec()),
        named("a raw NUL", of_field("\"\0\"")),
        named("raw control characters", of_field("\"\x01\n\"")),
        named("not UTF-8", [&b"{\"a\":\""[..], &[0xff, 0xfe], b"\"}"].concat()),
        named("overlong UTF-8", [&b"{\"a\":\""[..], &[0xc0, 0x80], b"\"}"].concat()),
        named("a bad escape", of_field("\"\\x\"")),
        named("a comment", format!("/* */{good}").into_bytes()),
    ];
    texts.extend(
        (1..good.len()).step_by(7).map(|cut| (format!("cut at {cut}"), good.as_bytes()[..cut].to_vec())),
    );
    texts
}

async fn assert_rejected(
    house: &TestServer,
    target: &JsonRoute,
    what: &str,
    body: Vec<u8>,
) -> ProblemDetails {
    let json = Some(("content-type", "application/json"));
    let answer = house.send("POST", &target.path, &target.token, body, json).await;
    let name = format!("{}: {what}", target.name);
    assert!(
        (400..500).contains(&answer.status),
        "{name}: {} {}",
        answer.status,
        String::from_utf8_lossy(&answer.body)
    );
    assert!(answer.body.len() <= PROBLEM_BYTES_MAX, "{name}: {} bytes", answer.body.len());
    answer.parse_problem()
}

#[tokio::test]
async fn every_json_route_rejects_every_hostile_body() {
    watch_panics();
    let house = TestServer::start().await;
    let mut asked = 0;
    for target in json_routes(&house).await {
        for (what, body) in hostile_texts(&target) {
            assert_rejected(&house, &target, &what, body).await;
            asked += 1;
        }
        for (place, body) in target.wrong_type_bodies() {
            let problem =
                assert_rejected(&house, &target, &format!("{place} in {body}"), body.to_string().into())
                    .await;
            assert_eq!(
                problem.code,
                ProblemCode::InvalidRequest,
                "{} {place}: {}",
                target.name,
                problem.detail
            );
            asked += 1;
        }
        let limit = if target.large { 33 } else { 2 } * 1024 * 1024;
        let problem = assert_rejected(&house, &target, "too large", vec![b' '; limit]).await;
        assert_eq!(problem.code, ProblemCode::TooLarge, "{}", target.name);
        let gzip = [&[0x1f, 0x8b, 8, 0][..], &[0; 64]].concat();
        let packed = house
            .client
            .post(house.server.url() + &target.path)
            .bearer_auth(&target.token)
            .header("content-type", "application/json")
            .header("content-encoding", "gzip")
            .body(gzip)
            .send()
            .await
            .expect("answer");
        assert_eq!(packed.status(), 415, "{}", target.name);
    }
    assert!(asked > 1000, "{asked} bodies");
    assert_eq!(PANICS.get(), 0, "nothing panicked");
}

/// Sends a head and then chunks until they are refused or a response arrives.
async fn send_endless_chunks(house: &TestServer, path: &str, token: &str, chunk: &[u8]) -> (String, usize) {
    let stream = TcpStream::connect(house.server.local_addr()).await.expect("connects");
    let (mut read, mut write) = stream.into_split();
    let head = format!(
        "POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n"
    );
    write.write_all(head.as_bytes()).await.expect("is taken");
    let mut sent = 0;
    let mut answer = Vec::new();
    let feed = async {
        while write.write_all(chunk).await.is_ok() {
            sent += chunk.len();
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        _ = read.read_to_end(&mut answer) => {}
        () = feed => {}
    }
    (String::from_utf8_lossy(&answer).into_owned(), sent)
}

#[tokio::test]
async fn endless_chunks_are_cut_off_and_bad_framing_is_rejected() {
    watch_panics();
    let house = TestServer::start().await;
    let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
    let (answer, sent) =
        send_endless_chunks(&house, "/v1/lease", token_for(TokenRole::Admin), chunk.as_bytes()).await;
    // A reset may overtake the response; it is enough that the exchange ends.
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 413"), "{answer}");
    assert!(sent < 64 * 1024 * 1024, "{sent} bytes were taken");
    for framing in [
        "content-length: -1",
        "content-length: 99999999999999999999",
        "content-length: 1, 2",
        "content-length: 5\r\ncontent-length: 6",
        "content-length: 5\r\ntransfer-encoding: chunked",
        "transfer-encoding: gzip",
        "transfer-encoding: chunked\r\nx: \u{1}",
    ] {
        let mut stream = TcpStream::connect(house.server.local_addr()).await.expect("connects");
        let request = format!(
            "POST /v1/lease HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {}\r\n\
             content-type: application/json\r\nconnection: close\r\n{framing}\r\n\r\nZZ\r\nhello\r\n",
            token_for(TokenRole::Admin)
        );
        stream.write_all(request.as_bytes()).await.expect("is taken");
        stream.shutdown().await.expect("says that this is all");
        let mut answer = String::new();
        drop(stream.read_to_string(&mut answer).await);
        assert!(answer.starts_with("HTTP/1.1 4"), "{framing}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1").count(), 1, "one request, one answer: {answer}");
    }
    assert_eq!(PANICS.get(), 0, "nothing panicked");
}

/// A route that panics.
static FAULTY: &[ApiRoute] = &[ApiRoute::new(
    (HttpMethod::Get, "/faulty"),
    RouteAccess::Public,
    "Panics",
    |_: Arc<ApiState>, _: ApiRequest| Box::pin(async { panicking_handler() }),
)];

fn panicking_handler() -> Result<Response<Body>, ApiError> {
    panic!("a fault of docket, on purpose")
}

#[tokio::test]
async fn panicking_handler_fails_one_request_and_keeps_the_connection() {
    watch_panics();
    let house = TestServer::start().await;
    let router = build_router_from(house.server.handle().api(), FAULTY);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("listens");
    let at = listener.local_addr().expect("address");
    let server = tokio::spawn(async move { axum::serve(listener, router).await });
    let mut stream = TcpStream::connect(at).await.expect("connects");
    let asked = "GET /faulty HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let last = "GET /faulty HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n";
    stream.write_all(format!("{asked}{last}").as_bytes()).await.expect("is taken");
    let mut answers = String::new();
    stream.read_to_string(&mut answers).await.expect("answers");
    assert_eq!(answers.matches("HTTP/1.1 500").count(), 2, "{answers}");
    assert_eq!(answers.matches("application/problem+json").count(), 2, "{answers}");
    assert!(!answers.contains("on purpose"), "what it said stays here: {answers}");
    assert_eq!(PANICS.get(), 2);
    server.abort();
}

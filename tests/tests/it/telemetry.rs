//! Runs as traces: every golden log folds to one, and a collector gets the spans of a run, once each, also where the
//! coordinator that sends them is killed in its midst, or the collector is away. What it gets is read by the
//! protocol's own published types.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    sync::{Arc, Mutex},
};

use anyhow::{Context as _, Result, ensure};
use axum::{Router, extract::State, http::StatusCode, routing::post};
use docket_schema::{
    event::Envelope,
    export::InMemoryExport,
    ids::{Seq, StreamId},
    trace::{AttributeValue as Attribute, RunSpans, Span, SpanKind, TraceResource, export_request},
};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram, WorkerOptions,
    WorkerProcess, acquire_scenario_slot, print_notice, run_program, run_with_input, wait_until,
};
use serde_json::Value;

const SCRIPT: &str = r#"
[[turns]]
text = "Where is SECRET-WORD?"
calls = [{ name = "read_file", args = { path = "a.txt" } }, { name = "read_file", args = { path = "none.txt" } }]
[[turns]]
fault = { kind = "overloaded", times = 1 }
calls = [{ name = "create_file", args = { path = "b.txt", content = "SECRET-WORD\n" } }]
[[turns]]
delay_ms = 1500
calls = [{ name = "run_command", args = { command = "echo SECRET-WORD; exit 3" } }]
[[turns]]
text = "Done."
"#;

/// The spans of a run, of whose whole history these are the events.
fn fold_spans(events: &[&Envelope], run: docket_schema::ids::RunId) -> Result<Vec<Span>> {
    let mut fold = RunSpans::new(run);
    let mut spans = Vec::new();
    for event in events {
        if event.stream == StreamId::Run(run) {
            spans.extend(fold.apply_event(event)?);
        } else if matches!(event.stream, StreamId::Run(_)) && event.seq == Seq(1) {
            fold.inherit_event(event)?;
        }
    }
    Ok(spans)
}

fn string_attribute<'a>(span: &'a Span, name: &str) -> Option<&'a str> {
    span.attributes.iter().find(|(known, _)| *known == name).and_then(|(_, value)| match value {
        Attribute::Text(text) => Some(text.as_str()),
        Attribute::TextList(_) | Attribute::Int(_) | Attribute::Double(_) | Attribute::Bool(_) => None,
    })
}

fn number_attribute(span: &Span, name: &str) -> i64 {
    let found = span.attributes.iter().find(|(known, _)| *known == name);
    match found {
        Some((_, Attribute::Int(number))) => *number,
        Some(_) | None => 0,
    }
}

#[test]
fn every_golden_run_folds_to_a_trace() -> Result<()> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fixtures");
    let (mut traces, mut kinds) = (0, BTreeSet::new());
    for release in std::fs::read_dir(folder)? {
        for file in std::fs::read_dir(release?.path())? {
            let path = file?.path();
            if !path.to_string_lossy().ends_with(".run.jsonl") {
                continue;
            }
            let export = InMemoryExport::parse(&std::fs::read(&path)?)?;
            let events: Vec<&Envelope> = export.events.iter().collect();
            let runs: BTreeSet<_> = events
                .iter()
                .filter_map(|event| match event.stream {
                    StreamId::Run(run) => Some(run),
                    _ => None,
                })
                .collect();
            for run in runs {
                let is_own = |event: &&Envelope| event.stream == StreamId::Run(run);
                let own: Vec<&Envelope> = events.iter().copied().filter(is_own).collect();
                // Whose history it shares stands before it.
                let end = events.iter().rposition(is_own).context("an event")?;
                let spans = fold_spans(&events[..=end], run).with_context(|| path.display().to_string())?;
                ensure!(spans == fold_spans(&events[..=end], run)?, "the same log gives the same spans");
                check_trace(&own, &spans).with_context(|| path.display().to_string())?;
                kinds.extend(
                    spans.iter().map(|span| span.name.split(' ').next().unwrap_or_default().to_owned()),
                );
                traces += 1;
            }
        }
    }
    let expected = ["chat", "execute_tool", "gate", "invoke_agent", "turn"];
    ensure!(traces > 20 && kinds.iter().map(String::as_str).eq(expected), "{traces} traces of {kinds:?}");
    Ok(())
}

/// What the conventions for generative AI ask of a span, by how its name begins; and what kind it is of.
const ASKED: [(&str, SpanKind, &str, &[&str]); 3] = [
    (
        "invoke_agent ",
        SpanKind::Internal,
        "invoke_agent",
        &[
            "gen_ai.agent.name",
            "gen_ai.conversation.id",
            "gen_ai.provider.name",
            "gen_ai.request.model",
            "gen_ai.usage.input_tokens",
            "gen_ai.usage.output_tokens",
        ],
    ),
    (
        "chat ",
        SpanKind::Client,
        "chat",
        &["gen_ai.conversation.id", "gen_ai.provider.name", "gen_ai.request.model"],
    ),
    (
        "execute_tool ",
        SpanKind::Internal,
        "execute_tool",
        &["gen_ai.conversation.id", "gen_ai.tool.call.id", "gen_ai.tool.name", "gen_ai.tool.type"],
    ),
];
/// And of a model's answer beside that.
const ANSWERED: [&str; 5] = [
    "gen_ai.response.finish_reasons",
    "gen_ai.usage.cache_creation.input_tokens",
    "gen_ai.usage.cache_read.input_tokens",
    "gen_ai.usage.input_tokens",
    "gen_ai.usage.output_tokens",
];

/// Whether a span says what the conventions ask for, by their own names.
fn check_conventions(span: &Span) -> Result<()> {
    let has = |name: &str| span.attributes.iter().any(|(known, _)| *known == name);
    let Some((_, kind, operation, names)) = ASKED.iter().find(|(start, ..)| span.name.starts_with(start))
    else {
        ensure!(!has("gen_ai.operation.name"), "{span:?}");
        return Ok(());
    };
    ensure!(
        span.kind == *kind && string_attribute(span, "gen_ai.operation.name") == Some(operation),
        "{span:?}"
    );
    for name in *names {
        ensure!(has(name), "{name}: {span:?}");
    }
    if *operation == "chat" && span.error.is_none() {
        for name in ANSWERED {
            ensure!(has(name), "{name}: {span:?}");
        }
    }
    ensure!(has("error.type") == span.error.is_some(), "{span:?}");
    Ok(())
}

/// What must hold of the spans of a run.
fn check_trace(own: &[&Envelope], spans: &[Span]) -> Result<()> {
    let count = |kinds: &[&str]| own.iter().filter(|event| kinds.contains(&event.kind.as_str())).count();
    let named = |start: &str| spans.iter().filter(|span| span.name.starts_with(start)).count();
    ensure!(named("chat ") <= count(&["ModelAnswered", "ModelFailed"]), "model calls");
    ensure!(named("execute_tool ") <= count(&["ToolFinished"]), "tool calls");
    // A run that goes on where another stood may end what that one began.
    if own.first().is_some_and(|event| event.kind == "RunStarted") {
        ensure!(named("chat ") == count(&["ModelAnswered", "ModelFailed"]), "model calls");
        ensure!(named("execute_tool ") == count(&["ToolFinished"]), "tool calls");
        ensure!(named("gate ") == count(&["GateFinished"]), "gates");
    }
    let ids: BTreeMap<[u8; 8], &Span> = spans.iter().map(|span| (span.id.0, span)).collect();
    ensure!(ids.len() == spans.len(), "an id twice");
    for span in spans {
        ensure!(span.began_at <= span.ended_at, "{span:?}");
        check_conventions(span)?;
        let Some(parent) = span.parent else {
            ensure!(span.name.starts_with("invoke_agent "), "{span:?}");
            continue;
        };
        if let Some(parent) = ids.get(&parent.0) {
            ensure!(
                parent.began_at <= span.began_at && span.ended_at <= parent.ended_at,
                "{span:?}\n{parent:?}"
            );
        }
    }
    if let Some(root) = spans.iter().find(|span| span.parent.is_none()) {
        ensure!(
            spans.iter().all(|span| span.parent.is_none_or(|parent| ids.contains_key(&parent.0))),
            "an orphan"
        );
        for name in ["gen_ai.agent.name", "gen_ai.provider.name", "gen_ai.request.model"] {
            ensure!(string_attribute(root, name).is_some_and(|word| word != "docket"), "{name} of {root:?}");
        }
        for name in ["gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens"] {
            let sum: i64 = spans
                .iter()
                .filter(|span| span.kind == SpanKind::Client)
                .map(|span| number_attribute(span, name))
                .sum();
            ensure!(
                number_attribute(root, name) == sum,
                "{name}: {} and {sum}",
                number_attribute(root, name)
            );
        }
    } else {
        ensure!(count(&["RunEnded"]) == 0, "no root");
    }
    Ok(())
}

/// A collector: what it was sent, and how many requests it refuses first.
#[derive(Default)]
struct OtlpCollector {
    bodies: Vec<Value>,
    refuses: usize,
    /// With which status; 503 where none is said.
    with: Option<StatusCode>,
    refused: usize,
    keys: BTreeSet<String>,
    /// Whether it says of what it takes that it leaves some out.
    partly: bool,
}

type SharedCollector = Arc<Mutex<OtlpCollector>>;

async fn receive_spans(
    State(shared): State<SharedCollector>,
    headers: axum::http::HeaderMap,
    body: bytes::Bytes,
) -> (StatusCode, &'static str) {
    let mut collector = shared.lock().expect("whole");
    if collector.refuses > 0 {
        collector.refuses -= 1;
        collector.refused += 1;
        return (collector.with.unwrap_or(StatusCode::SERVICE_UNAVAILABLE), "");
    }
    let key = headers.get("api-key").and_then(|key| key.to_str().ok()).unwrap_or_default();
    collector.keys.insert(key.to_owned());
    collector.bodies.push(serde_json::from_slice(&body).unwrap_or(Value::Null));
    let partly = r#"{"partialSuccess":{"rejectedSpans":"1","errorMessage":"older than a day"}}"#;
    (StatusCode::OK, if collector.partly { partly } else { "{}" })
}

/// Spans by their ids, of everything that came.
fn received_spans(shared: &SharedCollector) -> (usize, BTreeMap<String, Value>) {
    let collector = shared.lock().expect("whole");
    let all: Vec<Value> = collector
        .bodies
        .iter()
        .filter_map(|body| body["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array())
        .flatten()
        .cloned()
        .collect();
    let count = all.len();
    (
        count,
        all.into_iter().map(|span| (span["spanId"].as_str().unwrap_or_default().to_owned(), span)).collect(),
    )
}

/// A collector that listens, and a home whose coordinator sends to it.
async fn start_fixture(
    collector: OtlpCollector,
) -> Result<(SharedCollector, tempfile::TempDir, tokio::task::JoinHandle<std::io::Result<()>>)> {
    let shared: SharedCollector = Arc::new(Mutex::new(collector));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let at = listener.local_addr()?;
    let router = Router::new().route("/v1/traces", post(receive_spans)).with_state(Arc::clone(&shared));
    let serving = tokio::spawn(async move { axum::serve(listener, router).await });
    let home = tempfile::tempdir()?;
    let config = format!("[telemetry]\notlp_endpoint = \"http://{at}\"\nservice_name = \"nightly\"\n");
    std::fs::write(home.path().join("docket.toml"), config)?;
    Ok((shared, home, serving))
}

/// The span of a whole run, once it came.
async fn wait_for_root_span(shared: &SharedCollector, run: docket_schema::ids::RunId) -> Result<()> {
    let trace = run.0.simple().to_string();
    wait_until("a run's own span", async || {
        let (_, all) = received_spans(shared);
        all.values().any(|span| span["traceId"] == trace && span.get("parentSpanId").is_none()).then_some(())
    })
    .await
}

const SHORT: &str = r#"
[[turns]]
calls = [{ name = "read_file", args = { path = "a.txt" } }]
[[turns]]
text = "Done."
"#;

/// One that knows nobody, or is not there at all, is an error of whoever set it up: it is told of once, with what to do,
/// and nothing is left out for it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rejecting_collector_is_reported_once_and_gets_all_spans_later() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    for (status, remedy) in [
        (StatusCode::UNAUTHORIZED, "OTEL_EXPORTER_OTLP_HEADERS"),
        (StatusCode::NOT_FOUND, "telemetry.otlp_endpoint"),
    ] {
        let refuses = OtlpCollector { refuses: usize::MAX, with: Some(status), ..OtlpCollector::default() };
        let (shared, home, serving) = start_fixture(refuses).await?;
        let coordinator =
            CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual)
                .await?;
        let _worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
        let sample = SampleRepository::new(&[("a.txt", "one\n")])?;
        let script = sample.write_script(SHORT)?;
        let script = script.to_str().context("UTF-8")?;
        let (task, _) =
            sample.submit(&coordinator, &["--model", "scripted:told", "--script", script]).await?;
        let run = coordinator.wait_until_ended(task).await?.task.last_run.context("a run")?;
        wait_until("three tries", async || (shared.lock().expect("whole").refused >= 3).then_some(()))
            .await?;
        let said = coordinator.log_tail();
        let told = said.lines().filter(|line| line.contains("trace export failed")).collect::<Vec<_>>();
        ensure!(told.len() == 1 && told[0].contains(remedy) && told[0].contains(status.as_str()), "{told:?}");
        ensure!(!said.contains("are skipped"), "{said}");
        shared.lock().expect("whole").refuses = 0;
        wait_for_root_span(&shared, run).await?;
        wait_until("the good news", async || {
            coordinator.log_tail().contains("trace export has recovered").then_some(())
        })
        .await?;
        let history = coordinator.run_history(run).await?;
        let own: Vec<&Envelope> = history.envelopes.iter().collect();
        let trace = run.0.simple().to_string();
        let came: BTreeSet<String> = received_spans(&shared)
            .1
            .into_iter()
            .filter(|(_, span)| span["traceId"] == trace)
            .map(|(id, _)| id)
            .collect();
        let whole = fold_spans(&own, run)?;
        let resource =
            TraceResource { service: "nightly".into(), version: "x".into(), attributes: Vec::new() };
        let whole = export_request(&resource, &whole);
        let whole = whole["resourceSpans"][0]["scopeSpans"][0]["spans"].as_array().context("spans")?;
        let whole: BTreeSet<String> =
            whole.iter().map(|span| span["spanId"].as_str().unwrap_or_default().to_owned()).collect();
        ensure!(came == whole, "{came:?}\n{whole:?}");
        serving.abort();
        coordinator.end_and_check().await?;
    }
    Ok(())
}

/// What a backup holds was sent when it happened.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn restored_backup_is_not_sent_again() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (shared, home, serving) = start_fixture(OtlpCollector::default()).await?;
    let coordinator =
        CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let sample = SampleRepository::new(&[("a.txt", "one\n")])?;
    let script = sample.write_script(SHORT)?;
    let script = script.to_str().context("UTF-8")?.to_owned();
    let go = async |coordinator: &CoordinatorProcess| -> Result<docket_schema::ids::RunId> {
        let worker = WorkerProcess::start(coordinator, &WorkerOptions::default()).await?;
        let args = ["--model", "scripted:again", "--script", &script];
        let (task, _) = sample.submit(coordinator, &args).await?;
        let run = coordinator.wait_until_ended(task).await?.task.last_run.context("a run")?;
        wait_for_root_span(&shared, run).await?;
        worker.drain().await?;
        Ok(run)
    };
    let kept = go(&coordinator).await?;
    let aside = tempfile::tempdir()?;
    let copy = aside.path().join("copy.db");
    coordinator.run_docket(&["db", "backup", copy.to_str().context("UTF-8")?]).await?.into_stdout()?;
    let lost = go(&coordinator).await?;
    coordinator.end_and_check().await?;
    let env = [("DOCKET_HOME", home.path().as_os_str())];
    let restore = ["db", "restore", copy.to_str().context("UTF-8")?];
    run_program(TestProgram::Docket, home.path(), &env, &restore).await?.into_stdout()?;
    let of = |run: docket_schema::ids::RunId| {
        let trace = run.0.simple().to_string();
        let collector = shared.lock().expect("whole");
        let bodies = collector.bodies.iter();
        bodies.filter(|body| body.to_string().contains(&trace)).count()
    };
    let (before, before_lost) = (of(kept), of(lost));
    ensure!(before > 0 && before_lost > 0, "both were sent");
    let coordinator =
        CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    go(&coordinator).await?;
    ensure!(of(kept) == before && of(lost) == before_lost, "sent again: {before} and {}", of(kept));
    ensure!(coordinator.log_tail().contains("export continues from its end"), "{}", coordinator.log_tail());
    serving.abort();
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn collector_gets_every_span_once_across_crashes_and_outages() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (shared, home, serving) =
        start_fixture(OtlpCollector { refuses: 2, partly: true, ..OtlpCollector::default() }).await?;
    let mut coordinator =
        CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let sample = SampleRepository::new(&[("a.txt", "SECRET-WORD\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let script = script.to_str().context("UTF-8")?;
    let (task, _) = sample.submit(&coordinator, &["--model", "scripted:traced", "--script", script]).await?;
    wait_until("a first span", async || (received_spans(&shared).0 > 0).then_some(())).await?;
    coordinator.restart().await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    let run = view.task.last_run.context("a run")?;
    let root =
        |all: &BTreeMap<String, Value>| all.values().find(|span| span.get("parentSpanId").is_none()).cloned();
    let root = wait_until("the run's own span", async || root(&received_spans(&shared).1)).await?;
    ensure!(root["name"] == "invoke_agent react" && root["traceId"] == run.0.simple().to_string(), "{root}");

    // What came is what the log folds to, whoever killed whom meanwhile.
    let history = coordinator.run_history(run).await?;
    let own: Vec<&Envelope> = history.envelopes.iter().collect();
    let folded = fold_spans(&own, run)?;
    let resource = TraceResource { service: "nightly".into(), version: "x".into(), attributes: Vec::new() };
    let expected = export_request(&resource, &folded);
    let expected: BTreeMap<String, Value> = expected["resourceSpans"][0]["scopeSpans"][0]["spans"]
        .as_array()
        .context("spans")?
        .iter()
        .map(|span| (span["spanId"].as_str().unwrap_or_default().to_owned(), span.clone()))
        .collect();
    let (_, came) = received_spans(&shared);
    ensure!(came == expected, "{came:#?}\n{expected:#?}");
    let names: BTreeSet<&str> = came.values().filter_map(|span| span["name"].as_str()).collect();
    for name in [
        "chat traced",
        "execute_tool read_file",
        "execute_tool create_file",
        "execute_tool run_command",
        "turn",
    ] {
        ensure!(names.contains(name), "{name}: {names:?}");
    }
    let failed = came.values().filter(|span| span["status"]["code"] == 2).count();
    ensure!(failed >= 2, "the overloaded model and the missing file: {failed}");
    let bodies = shared.lock().expect("whole").bodies.clone();
    let text = serde_json::to_string(&bodies)?;
    ensure!(!text.contains("SECRET-WORD"), "a span holds what was said or read");
    ensure!(text.contains("nightly"), "the service's name");
    check_bodies_with_published_types(&bodies).await?;
    // A run that stands on that one's history says whose it is as well, though its own log does not.
    let forked =
        coordinator.run_docket(&["fork", &run.to_string(), "--turn", "1", "--json"]).await?.into_stdout()?;
    let forked: Value = serde_json::from_str(&forked)?;
    let trace = forked["run"].as_str().context("a run")?.replace('-', "");
    let root = wait_until("the fork's own span", async || {
        let all = received_spans(&shared).1.into_values();
        all.into_iter().find(|span| span.get("parentSpanId").is_none() && span["traceId"] == trace.as_str())
    })
    .await?;
    ensure!(root["name"] == "invoke_agent react", "{root}");
    for name in ["gen_ai.provider.name", "gen_ai.request.model"] {
        ensure!(root["attributes"].to_string().contains(name), "{name}: {root}");
    }
    ensure!(coordinator.log_tail().contains("1 of them: older than a day"), "{}", coordinator.log_tail());
    serving.abort();
    coordinator.end_and_check().await
}

const READS: &str = "
import json, sys
try:
    from google.protobuf import json_format
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
except ImportError as error:
    print(error, file=sys.stderr)
    sys.exit(3)
count = 0
for body in json.load(sys.stdin):
    request = json_format.Parse(json.dumps(body), ExportTraceServiceRequest())
    for resource in request.resource_spans:
        for scope in resource.scope_spans:
            for span in scope.spans:
                assert span.start_time_unix_nano <= span.end_time_unix_nano, span
                assert span.name and span.kind in (1, 3), span
                count += 1
print(count)
";

/// Each body is one of the published message: no name in it is unknown there.
async fn check_bodies_with_published_types(bodies: &[Value]) -> Result<()> {
    docket_tests::needs!("python3");
    let place = tempfile::tempdir()?;
    let body = serde_json::to_string(bodies)?;
    let ended =
        run_with_input(TestProgram::Python, place.path(), &[], &["-c", READS], body.as_bytes()).await?;
    if ended.code() == Some(3) {
        print_notice("skipped: pip install opentelemetry-proto");
        ensure!(std::env::var_os("CI").is_none(), "CI needs it; .ci/run installs it");
        return Ok(());
    }
    let count: usize = ended.into_stdout()?.trim().parse()?;
    ensure!(count >= 10, "{count} spans");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn json_log_format_writes_json_objects() -> Result<()> {
    let home = tempfile::tempdir()?;
    let env = [
        ("DOCKET_HOME", home.path().as_os_str()),
        ("DOCKET_LOG_FORMAT", "json".as_ref()),
        ("DOCKET_LOG", "docket=debug,docket_coordinator=debug".as_ref()),
        ("OTEL_EXPORTER_OTLP_ENDPOINT", "nowhere".as_ref()),
    ];
    let refused =
        run_program(TestProgram::Docket, home.path(), &env, &["serve", "--listen", "127.0.0.1:0"]).await?;
    ensure!(
        refused.code() == Some(2) && refused.stderr.contains("OTEL_EXPORTER_OTLP_ENDPOINT"),
        "{refused:?}"
    );
    let env: Vec<(&str, &str)> = vec![("DOCKET_LOG_FORMAT", "json"), ("DOCKET_LOG", "debug")];
    let coordinator =
        CoordinatorProcess::start_with_env(StoreLocation::HomeFolder, LeaseDuration::Usual, &env).await?;
    let lines = wait_until("a line of the log", async || {
        let tail = coordinator.log_tail();
        let lines: Vec<Value> = tail.lines().filter_map(|line| serde_json::from_str(line).ok()).collect();
        lines.iter().any(|line| line["level"].is_string() && line["timestamp"].is_string()).then_some(lines)
    })
    .await?;
    ensure!(lines.iter().any(|line| line["target"].is_string()), "{lines:?}");
    Ok(())
}

//! Parses `/metrics` with a strict, independent implementation of the format's grammar. Rejects
//! anything not allowed, split families, samples that do not fit their type, and histograms that
//! decrease.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, Instant},
};

use docket_schema::{
    api::{CAPACITY_DRAINING, HeartbeatRequest, LeaseRequest, QueueLoad, WorkerCapacity},
    event::TypedEvent as _,
    ids::{BatchId, QueueName, StreamId, SystemTopic, Turn},
    system::{Budget, BudgetSpent, SystemEvent},
    task::{ConcurrencyLimit, TaskSpec},
};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{
    event_fixtures::task_spec,
    support::{TestServer, lease_request, token_for},
};
use crate::{
    clock::Clock,
    http::TokenRole,
    store::{AppendCondition, LogAppend},
};

type SampleLabels = BTreeMap<String, String>;

#[derive(Debug)]
struct ParsedSample {
    name: String,
    labels: SampleLabels,
    value: f64,
}

fn is_metric_name(text: &str, colons: bool) -> bool {
    let mut chars = text.chars();
    let first = |c: char| c.is_ascii_alphabetic() || c == '_' || (colons && c == ':');
    chars.next().is_some_and(first) && chars.all(|c| first(c) || c.is_ascii_digit())
}

fn parse_value(text: &str) -> f64 {
    match text {
        "+Inf" => f64::INFINITY,
        "-Inf" | "NaN" => panic!("{text} is no value of ours"),
        number => {
            assert!(number.bytes().all(|b| b.is_ascii_digit() || b".e-".contains(&b)), "{number}");
            number.parse().expect("a number")
        }
    }
}

/// Parses `name="value",…` up to the closing brace; returns the rest.
fn parse_labels(mut text: &str) -> (SampleLabels, &str) {
    let mut labels = SampleLabels::new();
    loop {
        let (name, rest) = text.split_once("=\"").expect("a label");
        assert!(is_metric_name(name, false), "{name}");
        let (mut value, mut chars) = (String::new(), rest.char_indices());
        let end = loop {
            match chars.next().expect("a closing quote") {
                (at, '"') => break at,
                (_, '\\') => value.push(match chars.next().expect("what is escaped").1 {
                    'n' => '\n',
                    c @ ('\\' | '"') => c,
                    other => panic!("\\{other} is no escape"),
                }),
                (_, c) => value.push(c),
            }
        };
        assert!(labels.insert(name.to_owned(), value).is_none(), "{name} twice");
        let rest = &rest[end + 1..];
        if let Some(rest) = rest.strip_prefix('}') {
            return (labels, rest);
        }
        text = rest.strip_prefix(',').expect("a comma or the end");
    }
}

fn parse_sample(line: &str) -> ParsedSample {
    let at = line.find(['{', ' ']).expect("a name ends");
    let (name, rest) = line.split_at(at);
    assert!(is_metric_name(name, true), "{line}");
    let (labels, rest) = match rest.strip_prefix('{') {
        Some(rest) => parse_labels(rest),
        None => (SampleLabels::new(), rest),
    };
    let value = rest.strip_prefix(' ').expect("one space");
    ParsedSample { name: name.to_owned(), labels, value: parse_value(value) }
}

/// Parses the whole text into families, in order, with types and samples.
fn parse_families(text: &str) -> Vec<(String, String, Vec<ParsedSample>)> {
    assert!(text.ends_with('\n'), "the last line ends");
    let (mut families, mut names) = (Vec::<(String, String, Vec<ParsedSample>)>::new(), BTreeSet::new());
    let mut helped = None;
    let mut seen = BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("a help");
            assert!(is_metric_name(name, true) && !help.is_empty(), "{line}");
            assert!(names.insert(name.to_owned()), "{name} in two places");
            helped = Some(name.to_owned());
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("a type");
            assert_eq!(helped.take().as_deref(), Some(name), "its help comes first");
            assert!(["gauge", "counter", "histogram"].contains(&kind), "{line}");
            families.push((name.to_owned(), kind.to_owned(), Vec::new()));
        } else {
            let sample = parse_sample(line);
            assert!(seen.insert((sample.name.clone(), sample.labels.clone())), "{line} twice");
            let (name, kind, samples) = families.last_mut().expect("a family");
            match kind.as_str() {
                "histogram" => {
                    let part = sample.name.strip_prefix(name.as_str()).expect("of the family");
                    assert!(["_bucket", "_sum", "_count"].contains(&part), "{line}");
                    assert_eq!(part == "_bucket", sample.labels.contains_key("le"), "{line}");
                }
                "counter" => assert!(sample.name == *name && name.ends_with("_total"), "{line}"),
                _ => assert!(sample.name == *name && !name.ends_with("_total"), "{line}"),
            }
            samples.push(sample);
        }
    }
    families
}

/// Buckets must not decrease, and the last one is the count.
fn check_histogram(name: &str, samples: &[ParsedSample]) {
    let mut series: BTreeMap<SampleLabels, (Vec<(f64, f64)>, f64)> = BTreeMap::new();
    for sample in samples {
        let mut labels = sample.labels.clone();
        let le = labels.remove("le");
        let entry = series.entry(labels).or_default();
        if let Some(le) = le {
            entry.0.push((parse_value(&le), sample.value));
        } else if sample.name.ends_with("_count") {
            entry.1 = sample.value;
        }
    }
    assert!(!series.is_empty(), "{name} has no series");
    for (labels, (buckets, count)) in series {
        assert!(
            buckets.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1),
            "{name} {labels:?}"
        );
        assert_eq!(buckets.last(), Some(&(f64::INFINITY, count)), "{name} {labels:?}");
    }
}

#[tokio::test]
async fn metrics_follow_the_format_and_match_the_queue() {
    let house = TestServer::start().await;
    let slow: QueueName = "slow".parse().expect("a name");
    house.submit_spec(task_spec("one")).await;
    let unwanted = house.submit_spec(task_spec("unwanted")).await;
    house
        .post_as_admin(&format!("/v1/tasks/{unwanted}/cancel"), &json!({ "reason": "" }))
        .await
        .parse_success::<Value>();
    let runs_from = Instant::now();
    house.lease_with(&lease_request(0)).await;
    let leased = Instant::now();
    let waits_from = Instant::now();
    for _ in 0..2 {
        house.submit_spec(TaskSpec { queue: slow.clone(), ..task_spec("two") }).await;
    }
    let load =
        async |name: &str| house.get(&format!("/v1/queues/{name}/load")).await.parse_success::<QueueLoad>();
    assert_eq!(
        (load("slow").await.wanted, load("default").await.running, load("none").await.wanted),
        (2, 1, 0)
    );
    house.post_as_admin("/v1/queues/slow", &json!({ "paused": true })).await.parse_success::<Value>();
    assert_eq!(load("slow").await.wanted, 0);

    // The load has whole seconds.
    let submitted = Instant::now();
    tokio::time::sleep(Duration::from_millis(1100)).await;
    let waited_by = submitted.elapsed().as_secs_f64();
    let ran_by = leased.elapsed().as_secs_f64();
    let client = reqwest::Client::new();
    let url = format!("{}/metrics", house.server.url());
    assert_eq!(client.get(&url).send().await.expect("answers").status(), 401, "it requires a token");
    let answer = client.get(&url).bearer_auth(token_for(TokenRole::Read)).send().await.expect("answers");
    assert_eq!(answer.headers()["content-type"], "text/plain; version=0.0.4; charset=utf-8");
    let text = answer.text().await.expect("text");
    let families = parse_families(&text);
    for (name, kind, samples) in &families {
        if kind == "histogram" {
            check_histogram(name, samples);
        }
    }
    let value = |name: &str, labels: &[(&str, &str)]| {
        let labels: SampleLabels = labels.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let all = families.iter().flat_map(|(.., samples)| samples);
        let found = all.clone().find(|sample| sample.name == name && sample.labels == labels);
        found.unwrap_or_else(|| panic!("{name} {labels:?} is not in\n{text}")).value
    };
    let is = |name: &str, labels: &[(&str, &str)], wanted: f64| {
        let found = value(name, labels);
        assert!((found - wanted).abs() < 1e-9, "{name} {labels:?}: {found}, not {wanted}");
    };
    is("docket_tasks", &[("queue", "default"), ("state", "running")], 1.0);
    is("docket_tasks", &[("queue", "slow"), ("state", "available")], 2.0);
    is("docket_tasks", &[("queue", "slow"), ("state", "blocked")], 0.0);
    is("docket_queue_wanted", &[("queue", "default")], 1.0);
    is("docket_queue_wanted", &[("queue", "slow")], 0.0);
    is("docket_queue_paused", &[("queue", "slow")], 1.0);
    is("docket_tasks_ended", &[("state", "cancelled")], 1.0);
    is("docket_tasks_ended", &[("state", "discarded")], 0.0);
    is("docket_workers", &[], 1.0);
    is("docket_worker_held", &[], 1.0);
    is("docket_store_leases_total", &[], 1.0);
    is("docket_inbox_rows", &[("state", "refused")], 0.0);
    let asked = [("method", "POST"), ("route", "/v1/tasks"), ("status", "2xx")];
    is("docket_http_requests_total", &asked, 4.0);
    let refused = [("method", "GET"), ("route", "/metrics"), ("status", "4xx")];
    is("docket_http_requests_total", &refused, 1.0);
    assert!(value("docket_store_commands_total", &[]) >= 3.0);
    // Waiting and running times are counted from an instant, so they lie between the time before the
    // request and the time after it.
    let passed = |from: Instant| from.elapsed().as_secs_f64();
    let ages = [
        (value("docket_queue_oldest_available_seconds", &[("queue", "slow")]), waited_by, waits_from),
        (value("docket_queue_oldest_running_seconds", &[("queue", "default")]), ran_by, runs_from),
    ];
    for (age, least, from) in ages {
        assert!(age >= least && age <= passed(from), "{age} is not within {least} and {}", passed(from));
    }
    is("docket_queue_oldest_available_seconds", &[("queue", "default")], 0.0);
    is("docket_queue_oldest_running_seconds", &[("queue", "slow")], 0.0);
    let told = load("slow").await.oldest_available_s;
    assert!(told >= 1 && told as f64 <= passed(waits_from), "{told}");
}

#[tokio::test]
async fn queue_wanted_counts_only_runnable_tasks() {
    let house = TestServer::start().await;
    let load = async |query: &str| {
        let path = format!("/v1/queues/default/load{query}");
        house.get(&path).await.parse_success::<QueueLoad>().wanted
    };
    let keyed = |key: &str| {
        let mut task = task_spec("one of a key");
        task.conditions.concurrency = Some(ConcurrencyLimit { key: key.to_owned(), max: 1 });
        task
    };
    for _ in 0..3 {
        house.submit_spec(keyed("a")).await;
    }
    assert_eq!(load("").await, 1);
    house.lease_with(&lease_request(0)).await;
    assert_eq!(load("").await, 1, "it runs, and no other may");

    let batch = BatchId(Uuid::from_u128(5));
    for _ in 0..2 {
        house.submit_spec(TaskSpec { batch: Some(batch), ..task_spec("of a batch") }).await;
    }
    assert_eq!(load("").await, 3);
    let budget = Budget { tokens: Some(1), cost_nusd: None };
    let spent = BudgetSpent { batch, budget, message: "1 of 1 tokens".to_owned() };
    let append = LogAppend {
        stream: StreamId::System(SystemTopic::Budgets),
        condition: AppendCondition::AtHead,
        events: vec![SystemEvent::from(spent).encode(Turn(0))],
        blobs: Vec::new(),
        required_blobs: Vec::new(),
        now: Clock::new().now(),
    };
    house.store.append(append).await.expect("appends");
    assert_eq!(load("").await, 1, "a batch at rest wants nobody");

    let mut picky = task_spec("for a machine that nobody has");
    picky.conditions.selector = "gpu=a100".parse().expect("labels");
    house.submit_spec(picky.clone()).await;
    house.submit_spec(picky).await;
    assert_eq!(load("").await, 1, "the worker that is known has no such label");
    assert_eq!(load("?labels=gpu%3Da100,zone%3Db").await, 3, "those that are scaled have it");
    assert_eq!(load("?labels=gpu%3Dh100").await, 1);
    assert_eq!(
        house.get("/v1/queues/default/load?labels=%3D").await.parse_problem().field.as_deref(),
        Some("labels")
    );
    let labels = "gpu=a100".parse().expect("labels");
    assert_eq!(house.lease_with(&LeaseRequest { labels, ..lease_request(0) }).await.len(), 1);
    assert_eq!(load("").await, 3, "a worker with that label came, and has one of them");
    let url = format!("{}/metrics", house.server.url());
    let text = house.client.get(&url).bearer_auth(token_for(TokenRole::Read)).send().await.expect("answers");
    let text = text.text().await.expect("text");
    assert!(text.contains("docket_queue_wanted{queue=\"default\"} 3\n"), "{text}");
}

#[tokio::test]
async fn ended_worker_is_not_counted() {
    let house = TestServer::start().await;
    let counted = async || {
        let url = format!("{}/metrics", house.server.url());
        let answer =
            house.client.get(&url).bearer_auth(token_for(TokenRole::Read)).send().await.expect("answers");
        let text = answer.text().await.expect("text");
        let of = |name: &str| -> f64 {
            let line = text.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
            line.expect("is told").parse().expect("a number")
        };
        (of("docket_workers"), of("docket_worker_slots"))
    };
    let room = |full: Option<&str>| Some(WorkerCapacity { slots: 3, full: full.map(str::to_owned) });
    let one = LeaseRequest { room: room(None), ..lease_request(0) };
    let two = LeaseRequest { room: room(None), ..lease_request(0) };
    house.lease_with(&one).await;
    house.lease_with(&two).await;
    assert_eq!(counted().await, (2.0, 6.0));
    let beat = HeartbeatRequest {
        incarnation: one.incarnation,
        held: Vec::new(),
        room: room(Some(CAPACITY_DRAINING)),
        wait_ms: 0,
    };
    house.post("/v1/heartbeat", token_for(TokenRole::Worker), &beat).await.parse_success::<Value>();
    assert_eq!(counted().await, (1.0, 3.0), "it ended in order");
}

//! `/metrics`: the state of queues and workers, and the activity of this process, in Prometheus
//! text format 0.0.4.
//!
//! Every coordinator reports the same values from the database: use `max` over them, not `sum`.
//! Counters are per process. The format is simple enough to write without a library; a test parses
//! it by its grammar. Requires a token of any role, but not a run token: queue names and workload
//! are not public, and scrapers can send a token.

use std::{
    fmt::Write as _,
    sync::{Arc, atomic::Ordering},
};

use axum::{
    body::Body,
    http::{HeaderValue, Response, header},
};
use docket_schema::{
    api::{FaultKind, QueueView, StateCount, TargetKind, WorkerView},
    ids::Timestamp,
    task::TaskState,
};

use super::queues::{known_workers, workers_seen_since};
use crate::http::middleware::{
    api_error::ApiError,
    api_state::ApiState,
    meters::{HttpMeters, STATUS_CLASSES},
    request::ApiRequest,
};
use crate::{
    decide::{self, WorkerLabels},
    error_chain::error_chain,
    metrics::HistogramSnapshot,
    notify::DeliveryOutcome,
    store::StoreMetrics,
};

pub(in crate::http) async fn serve_metrics(
    api: Arc<ApiState>,
    _: ApiRequest,
) -> Result<Response<Body>, ApiError> {
    let queues = api.store.list_queues().await?;
    let workers = api.store.list_workers(workers_seen_since(&api)).await?;
    let waiting = api.store.read_waiting().await?;
    let known = known_workers(&api, &waiting).await?;
    let wanted = |queue: &QueueView| decide::desired_workers(queue, &waiting, WorkerLabels::Known(&known));
    let inbox = api.store.count_inbox().await?;
    let ended = api.store.count_ended_tasks().await?;
    let mut text = MetricsText::default();
    let told = group_queues(&queues);
    write_queue_metrics(&mut text, &told, api.clock.now());
    text.begin_family(
        "docket_queue_wanted",
        "gauge",
        "Tasks that run, or would run with enough workers. Scale by this.",
    );
    for QueueGroup { label: name, queues } in &told {
        let wanted: u64 = queues.iter().map(|queue| wanted(queue)).sum();
        text.write_sample("docket_queue_wanted", &[("queue", name)], wanted as f64);
    }
    text.begin_family(
        "docket_tasks_ended",
        "gauge",
        "Ended tasks that are not archived, by state. Decreases when tasks are archived or retried.",
    );
    for StateCount { state, count } in &ended {
        text.write_sample("docket_tasks_ended", &[("state", state.as_str())], *count as f64);
    }
    text.begin_family(
        "docket_tasks_unverified",
        "gauge",
        "Completed tasks in docket_tasks_ended that are unverified: final checks did not run, or there are none.",
    );
    text.write_sample("docket_tasks_unverified", &[], api.store.count_unverified_tasks().await? as f64);
    write_worker_metrics(&mut text, &workers);
    text.begin_family(
        "docket_inbox_rows",
        "gauge",
        "Entries of the inbox that are not tasks yet, or were refused.",
    );
    text.write_sample("docket_inbox_rows", &[("state", "waiting")], inbox.0 as f64);
    text.write_sample("docket_inbox_rows", &[("state", "refused")], inbox.1 as f64);
    // Unreadable events of a newer coordinator must not hide the other metrics.
    let readable = api.notifications.catch_up(&*api.store).await.inspect_err(|error| {
        tracing::warn!("/metrics omits notifications: {}", error_chain(error));
    });
    write_notification_metrics(&mut text, &api, readable.is_ok());
    write_store_metrics(&mut text, &api.store.metrics());
    write_http_metrics(&mut text, &api.http_meters);
    let mut response = Response::new(Body::from(text.0));
    let headers = response.headers_mut();
    headers
        .insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    Ok(response)
}

/// Maximum number of queues with their own series; each queue has about ten.
const QUEUES_LISTED_MAX: usize = 200;
/// Label for all queues created by `docket run`. It is not a valid queue name.
const RUN_QUEUES_LABEL: &str = "run-*";
/// Label for all queues beyond the maximum.
const OTHER_QUEUES_LABEL: &str = "*";

/// One or more queues under one label.
struct QueueGroup<'a> {
    label: &'a str,
    queues: Vec<&'a QueueView>,
}

impl QueueGroup<'_> {
    fn count(&self, state: TaskState) -> u64 {
        self.queues.iter().map(|queue| queue.count_in_state(state)).sum()
    }
}

/// Groups queues by label, so that their number is bounded. Sorted by name.
fn group_queues(queues: &[QueueView]) -> Vec<QueueGroup<'_>> {
    let mut told: Vec<QueueGroup<'_>> = Vec::new();
    let (own, named): (Vec<&QueueView>, Vec<&QueueView>) =
        queues.iter().partition(|queue| queue.name.is_single_task());
    let (named, others) = named.split_at(named.len().min(QUEUES_LISTED_MAX));
    told.extend(named.iter().map(|queue| QueueGroup { label: queue.name.as_str(), queues: vec![*queue] }));
    let together = [(RUN_QUEUES_LABEL, own), (OTHER_QUEUES_LABEL, others.to_vec())];
    let together = together.into_iter().filter(|(_, queues)| !queues.is_empty());
    told.extend(together.map(|(name, queues)| QueueGroup { label: name, queues }));
    told
}

fn write_queue_metrics(text: &mut MetricsText, told: &[QueueGroup<'_>], now: Timestamp) {
    text.begin_family("docket_tasks", "gauge", "Tasks that have not ended.");
    for queue in told {
        for state in TaskState::ALL.into_iter().filter(|state| !state.is_ended()) {
            let labels = [("queue", queue.label), ("state", state.as_str())];
            text.write_sample("docket_tasks", &labels, queue.count(state) as f64);
        }
    }
    type Since = fn(&QueueView) -> Option<Timestamp>;
    let ages: [(&str, &str, Since); 2] = [
        (
            "docket_queue_oldest_available_seconds",
            "How long the longest-waiting task has been available; 0 if none waits.",
            |queue| queue.oldest_available_at,
        ),
        (
            "docket_queue_oldest_running_seconds",
            "How long the longest-running task has been leased; 0 if none runs.",
            |queue| queue.oldest_leased_at,
        ),
    ];
    for (name, help, since) in ages {
        text.begin_family(name, "gauge", help);
        for queue in told {
            let oldest = queue.queues.iter().filter_map(|queue| since(queue)).min();
            text.write_sample(name, &[("queue", queue.label)], seconds_since(oldest, now));
        }
    }
    type Setting = fn(&QueueView) -> f64;
    let settings: [(&str, &str, Setting); 2] = [
        ("docket_queue_paused", "Whether the queue is paused: 1 = paused.", |queue| {
            f64::from(u8::from(queue.settings.paused))
        }),
        ("docket_queue_running_max", "Maximum number of running tasks; +Inf = unlimited.", |queue| {
            queue.settings.running_max.map_or(f64::INFINITY, f64::from)
        }),
    ];
    for (name, help, value) in settings {
        text.begin_family(name, "gauge", help);
        // Grouped queues have no common settings.
        for queue in
            told.iter().filter(|queue| ![RUN_QUEUES_LABEL, OTHER_QUEUES_LABEL].contains(&queue.label))
        {
            for one in &queue.queues {
                text.write_sample(name, &[("queue", queue.label)], value(one));
            }
        }
    }
}

fn seconds_since(at: Option<Timestamp>, now: Timestamp) -> f64 {
    at.map_or(0.0, |at| now.ms_since(at) as f64 / 1000.0)
}

fn write_worker_metrics(text: &mut MetricsText, workers: &[WorkerView]) {
    // A worker that has ended is not counted, although it was seen recently.
    let workers: Vec<&WorkerView> = workers.iter().filter(|worker| worker.is_present()).collect();
    let sum = |of: fn(&WorkerView) -> u32| workers.iter().map(|worker| f64::from(of(worker))).sum::<f64>();
    let mut one = |name, help, value| {
        text.begin_family(name, "gauge", help);
        text.write_sample(name, &[], value);
    };
    one("docket_workers", "Workers seen recently that have not exited.", workers.len() as f64);
    one("docket_workers_draining", "Workers that are draining.", sum(|worker| worker.draining.into()));
    let slots = |worker: &WorkerView| worker.room.as_ref().map_or(0, |room| room.slots);
    one("docket_worker_slots", "Total number of slots of all workers.", sum(slots));
    one("docket_worker_held", "Tasks held by workers.", sum(|worker| worker.held));
    let name = "docket_worker_faults";
    text.begin_family(name, "gauge", "Faults that keep workers from running some tasks, by what failed.");
    for kind in FaultKind::ALL {
        let faults = workers.iter().flat_map(|worker| worker.about.iter().flat_map(|about| &about.faults));
        let count = faults.filter(|fault| fault.kind == kind).count();
        text.write_sample(name, &[("kind", kind.as_str())], count as f64);
    }
}

fn write_notification_metrics(text: &mut MetricsText, api: &ApiState, is_known: bool) {
    if is_known {
        let counts = api.notifications.with_fold(docket_schema::system::NotificationsFold::delivery_counts);
        text.begin_family(
            "docket_notification_deliveries",
            "gauge",
            "Notification deliveries that are pending or were given up.",
        );
        text.write_sample("docket_notification_deliveries", &[("state", "waiting")], counts.due as f64);
        text.write_sample("docket_notification_deliveries", &[("state", "dead")], counts.dead as f64);
    }
    text.begin_family("docket_notifications_total", "counter", "Notification delivery attempts, by outcome.");
    for kind in TargetKind::ALL {
        for outcome in DeliveryOutcome::ALL {
            let labels = [("target_kind", kind.as_str()), ("outcome", outcome.as_str())];
            text.write_sample(
                "docket_notifications_total",
                &labels,
                api.notify_metrics.read_count(kind, outcome) as f64,
            );
        }
    }
}

fn write_store_metrics(text: &mut MetricsText, store: &StoreMetrics) {
    let mut one = |name, help, value: u64| {
        text.begin_family(name, "counter", help);
        text.write_sample(name, &[], value as f64);
    };
    one("docket_store_appends_total", "Appends answered, including refused ones.", store.appends);
    one(
        "docket_store_commands_total",
        "Commands and submits answered, including refused ones.",
        store.commands,
    );
    one("docket_store_leases_total", "Leases granted.", store.leases);
    one("docket_store_failed_total", "Requests that failed in the store.", store.failed_requests);
    text.begin_family(
        "docket_store_batch_asks",
        "histogram",
        "Number of requests that shared a transaction.",
    );
    text.write_histogram("docket_store_batch_asks", &[], &store.batch_requests);
    text.begin_family("docket_store_batch_seconds", "histogram", "Duration of such transactions.");
    text.write_histogram("docket_store_batch_seconds", &[], &store.batch_times);
}

fn write_http_metrics(text: &mut MetricsText, http: &HttpMeters) {
    // Routes without requests are omitted.
    let asked: Vec<_> = http
        .all()
        .map(|(name, meter)| (name.method, name.path, meter, meter.durations.snapshot()))
        .filter(|(.., times)| times.cumulative_counts.last().is_some_and(|(_, all)| *all > 0))
        .collect();
    text.begin_family("docket_http_requests_total", "counter", "Requests answered.");
    for (verb, path, meter, _) in &asked {
        for (class, count) in STATUS_CLASSES.into_iter().zip(&meter.by_class) {
            let count = count.load(Ordering::Relaxed);
            if count > 0 {
                let labels = [("method", *verb), ("route", *path), ("status", class)];
                text.write_sample("docket_http_requests_total", &labels, count as f64);
            }
        }
    }
    text.begin_family(
        "docket_http_request_seconds",
        "histogram",
        "Duration of requests; for long polls including the wait.",
    );
    for (verb, path, _, times) in &asked {
        text.write_histogram("docket_http_request_seconds", &[("method", verb), ("route", path)], times);
    }
}

/// The metrics text under construction.
#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    /// Begins a metric family; its samples must follow.
    fn begin_family(&mut self, name: &str, kind: &str, help: &str) {
        let help = help.replace('\\', "\\\\").replace('\n', "\\n");
        self.write_line(format_args!("# HELP {name} {help}"));
        self.write_line(format_args!("# TYPE {name} {kind}"));
    }

    fn write_sample(&mut self, name: &str, labels: &[(&str, &str)], value: f64) {
        let labels: Vec<String> =
            labels.iter().map(|(name, value)| format!("{name}=\"{}\"", escape_label(value))).collect();
        let value = SampleValue(value);
        if labels.is_empty() {
            self.write_line(format_args!("{name} {value}"));
        } else {
            self.write_line(format_args!("{name}{{{}}} {value}", labels.join(",")));
        }
    }

    fn write_histogram(&mut self, name: &str, labels: &[(&str, &str)], view: &HistogramSnapshot) {
        let mut all = 0;
        for (bound, count) in &view.cumulative_counts {
            let le = SampleValue(bound.unwrap_or(f64::INFINITY)).to_string();
            let labels: Vec<(&str, &str)> = labels.iter().copied().chain([("le", le.as_str())]).collect();
            self.write_sample(&format!("{name}_bucket"), &labels, *count as f64);
            all = *count;
        }
        self.write_sample(&format!("{name}_sum"), labels, view.sum);
        self.write_sample(&format!("{name}_count"), labels, all as f64);
    }

    fn write_line(&mut self, line: std::fmt::Arguments<'_>) {
        writeln!(self.0, "{line}").expect("writing to a string cannot fail");
    }
}

/// A value of a label: backslash, quote and line feed are escaped.
fn escape_label(value: &str) -> String {
    value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

/// A number as the format has it.
struct SampleValue(f64);

impl std::fmt::Display for SampleValue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.0 == f64::INFINITY { f.write_str("+Inf") } else { write!(f, "{}", self.0) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queue_series_are_bounded_however_many_queues_exist() {
        let queue = |name: String, count: u64, since: i64| QueueView {
            name: name.parse().expect("a name"),
            settings: docket_schema::queue::QueueSettings::default(),
            tasks: vec![StateCount { state: TaskState::Available, count }],
            oldest_available_at: Some(Timestamp(since)),
            oldest_leased_at: None,
        };
        let mut queues: Vec<QueueView> =
            (0..QUEUES_LISTED_MAX + 3).map(|n| queue(format!("q{n:04}"), 1, 7)).collect();
        queues.push(queue("run-again".to_owned(), 5, 8));
        queues.extend((0..9).map(|n| queue(format!("run-0000000{n}"), 2, 9_000_000 - n)));
        let told = group_queues(&queues);
        assert_eq!(told.len(), QUEUES_LISTED_MAX + 2);
        let together: Vec<(&str, u64)> = told[QUEUES_LISTED_MAX..]
            .iter()
            .map(|queue| (queue.label, queue.count(TaskState::Available)))
            .collect();
        assert_eq!(together, [("run-*", 18), ("*", 3 + 5)]);
        let mut text = MetricsText::default();
        write_queue_metrics(&mut text, &told, Timestamp(10_000_000));
        let said = |line: &str| text.0.lines().any(|said| said == line);
        assert!(said(r#"docket_tasks{queue="run-*",state="available"} 18"#), "{}", text.0);
        assert!(said(r#"docket_queue_oldest_available_seconds{queue="run-*"} 1"#), "{}", text.0);
        assert!(
            said(r#"docket_queue_paused{queue="q0000"} 0"#) && !text.0.contains(r#"paused{queue="run-*"}"#)
        );
    }

    #[test]
    fn labels_and_help_are_escaped_to_one_line() {
        let mut text = MetricsText::default();
        text.begin_family("a", "gauge", "one\\two\nthree");
        text.write_sample("a", &[("b", "back\\slash \"quote\" line\nfeed"), ("c", "ü")], 0.5);
        text.write_sample("a", &[], f64::INFINITY);
        let lines: Vec<&str> = text.0.lines().collect();
        assert_eq!(
            lines,
            [
                r"# HELP a one\\two\nthree",
                "# TYPE a gauge",
                r#"a{b="back\\slash \"quote\" line\nfeed",c="ü"} 0.5"#,
                "a +Inf"
            ]
        );
    }
}

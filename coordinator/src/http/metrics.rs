//! `/metrics`: how queues and workers stand, and what this process did, in Prometheus' text format (0.0.4).
//!
//! What stands in the database every coordinator tells alike: take the `max` over them, never the sum. Counters are
//! of one process. The format is a few lines of text, so it is written here and no library is brought in; a test
//! reads it back by the format's grammar. Needs a token, of whatever role but none of a run's: names of queues and
//! how much is done are nobody else's business, and whoever scrapes can send one.

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

use super::{
    api_error::ApiError,
    api_state::ApiState,
    meters::{HttpMeters, STATUS_CLASSES},
    queues::{known_workers, workers_seen_since},
    request::ApiRequest,
};
use crate::{
    decide::{self, WorkerLabels},
    error_chain::error_chain,
    metrics::HistogramSnapshot,
    notify::DeliveryOutcome,
    store::StoreMetrics,
};

pub(super) async fn serve_metrics(api: Arc<ApiState>, _: ApiRequest) -> Result<Response<Body>, ApiError> {
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
        "Tasks that run, or would if there were workers enough: what to scale by.",
    );
    for QueueGroup { label: name, queues } in &told {
        let wanted: u64 = queues.iter().map(|queue| wanted(queue)).sum();
        text.write_sample("docket_queue_wanted", &[("queue", name)], wanted as f64);
    }
    text.begin_family(
        "docket_tasks_ended",
        "gauge",
        "Tasks that have ended and are not archived, by how: fewer once they are, or are retried.",
    );
    for StateCount { state, count } in &ended {
        text.write_sample("docket_tasks_ended", &[("state", state.as_str())], *count as f64);
    }
    text.begin_family(
        "docket_tasks_unverified",
        "gauge",
        "Completed tasks of docket_tasks_ended that nothing verified: final checks did not run, or there are none.",
    );
    text.write_sample("docket_tasks_unverified", &[], api.store.count_unverified_tasks().await? as f64);
    write_worker_metrics(&mut text, &workers);
    text.begin_family(
        "docket_inbox_rows",
        "gauge",
        "What applications enqueued and is no task yet, or was refused.",
    );
    text.write_sample("docket_inbox_rows", &[("state", "waiting")], inbox.0 as f64);
    text.write_sample("docket_inbox_rows", &[("state", "refused")], inbox.1 as f64);
    // A newer coordinator's events there are no reason to tell nothing of all the rest.
    let readable = api.notifications.catch_up(&*api.store).await.inspect_err(|error| {
        tracing::warn!("/metrics tells nothing of notifications: {}", error_chain(error));
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

/// Queues that are told by name, at most: each is some ten series, for as long as whoever scrapes keeps them.
const QUEUES_LISTED_MAX: usize = 200;
/// The one name of all queues that `docket run` makes. No queue can be called so.
const RUN_QUEUES_LABEL: &str = "run-*";
/// The one name of those beyond the most.
const OTHER_QUEUES_LABEL: &str = "*";

/// A queue, or several under one name.
struct QueueGroup<'a> {
    label: &'a str,
    queues: Vec<&'a QueueView>,
}

impl QueueGroup<'_> {
    fn count(&self, state: TaskState) -> u64 {
        self.queues.iter().map(|queue| queue.count_in_state(state)).sum()
    }
}

/// The queues by the names that they are told under: however many there are, few. In the order of their names.
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
            "For how long the task that waits longest could have been leased; 0 where none waits.",
            |queue| queue.oldest_available_at,
        ),
        (
            "docket_queue_oldest_running_seconds",
            "For how long the task that runs longest has been leased; 0 where none runs.",
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
        ("docket_queue_paused", "Whether its tasks are given out: 1 = they are not.", |queue| {
            f64::from(u8::from(queue.settings.paused))
        }),
        (
            "docket_queue_running_max",
            "How many of its tasks may run at a time; +Inf = any number.",
            |queue| queue.settings.running_max.map_or(f64::INFINITY, f64::from),
        ),
    ];
    for (name, help, value) in settings {
        text.begin_family(name, "gauge", help);
        // Several have no setting in common.
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
    // One that has ended is heard of no more, and counts no longer, before its time is up.
    let workers: Vec<&WorkerView> = workers.iter().filter(|worker| worker.is_present()).collect();
    let sum = |of: fn(&WorkerView) -> u32| workers.iter().map(|worker| f64::from(of(worker))).sum::<f64>();
    let mut one = |name, help, value| {
        text.begin_family(name, "gauge", help);
        text.write_sample(name, &[], value);
    };
    one("docket_workers", "Workers heard of lately that have not ended.", workers.len() as f64);
    one("docket_workers_draining", "Those that were told to end.", sum(|worker| worker.draining.into()));
    let slots = |worker: &WorkerView| worker.room.as_ref().map_or(0, |room| room.slots);
    one("docket_worker_slots", "Tasks that they take at a time, together.", sum(slots));
    one("docket_worker_held", "Tasks that they have.", sum(|worker| worker.held));
    let name = "docket_worker_faults";
    text.begin_family(
        name,
        "gauge",
        "Faults that keep workers from carrying out some tasks, by what failed.",
    );
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
            "Deliveries of notifications that are still to be made, and those that were given up.",
        );
        text.write_sample("docket_notification_deliveries", &[("state", "waiting")], counts.due as f64);
        text.write_sample("docket_notification_deliveries", &[("state", "dead")], counts.dead as f64);
    }
    text.begin_family(
        "docket_notifications_total",
        "counter",
        "Attempts to deliver a notification, by how they ended.",
    );
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
    one("docket_store_appends_total", "Appends that were answered, refusals among them.", store.appends);
    one("docket_store_commands_total", "Commands and submits likewise.", store.commands);
    one("docket_store_leases_total", "Leases that were granted.", store.leases);
    one("docket_store_failed_total", "What the store could not do.", store.failed_requests);
    text.begin_family("docket_store_batch_asks", "histogram", "How many asks shared a transaction.");
    text.write_histogram("docket_store_batch_asks", &[], &store.batch_requests);
    text.begin_family("docket_store_batch_seconds", "histogram", "How long such a transaction took.");
    text.write_histogram("docket_store_batch_seconds", &[], &store.batch_times);
}

fn write_http_metrics(text: &mut MetricsText, http: &HttpMeters) {
    // Routes that nobody asked are left out.
    let asked: Vec<_> = http
        .all()
        .map(|(name, meter)| (name.method, name.path, meter, meter.durations.snapshot()))
        .filter(|(.., times)| times.cumulative_counts.last().is_some_and(|(_, all)| *all > 0))
        .collect();
    text.begin_family("docket_http_requests_total", "counter", "Requests that were answered.");
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
        "How long they took; long polls with their waiting.",
    );
    for (verb, path, _, times) in &asked {
        text.write_histogram("docket_http_request_seconds", &[("method", verb), ("route", path)], times);
    }
}

/// The text as it grows.
#[derive(Default)]
struct MetricsText(String);

impl MetricsText {
    /// Begins a family; all its samples follow.
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

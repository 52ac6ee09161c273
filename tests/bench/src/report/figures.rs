//! The table of figures: name, unit, target, group. The only place that says any of them.

use crate::report::Group;

/// What a figure must not fall below, or exceed.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum Target {
    /// Nothing was promised.
    None,
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl Target {
    /// Whether `value` meets it; `None` where nothing was promised.
    pub(crate) fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::None => None,
            Self::AtLeast(bound) => Some(value >= bound),
            Self::AtMost(bound) => Some(value <= bound),
        }
    }
}

/// What a figure can be at least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Least {
    /// More than nothing: a time, a rate, a size.
    AboveZero,
    /// Nothing: a time or a count of what need not occur.
    Zero,
}

impl Least {
    /// Whether `value` can be true.
    pub(crate) fn allows(self, value: f64) -> bool {
        match self {
            Self::AboveZero => value > 0.0,
            Self::Zero => value >= 0.0,
        }
    }
}

/// A figure that its group owes wherever it is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) group: Group,
    pub(crate) target: Target,
    /// What it can be at least. A figure that is less was not measured.
    pub(crate) least: Least,
    /// One line for a person.
    pub(crate) what: &'static str,
}

const fn at_least(group: Group, name: &'static str, bound: f64, what: &'static str) -> Figure {
    Figure { name, group, target: Target::AtLeast(bound), least: Least::AboveZero, what }
}

const fn at_most(group: Group, name: &'static str, bound: f64, what: &'static str) -> Figure {
    Figure { name, group, target: Target::AtMost(bound), least: Least::AboveZero, what }
}

const fn plain(group: Group, name: &'static str, what: &'static str) -> Figure {
    Figure { name, group, target: Target::None, least: Least::AboveZero, what }
}

impl Figure {
    /// The same, which may be nothing.
    const fn or_zero(self) -> Self {
        Self { least: Least::Zero, ..self }
    }
}

/// All figures, in the order they are shown.
pub(crate) const FIGURES: [Figure; 127] = [
    at_most(
        Group::Turns,
        "turn_overhead_ms_p50",
        5.0,
        "answer's last byte to next request, file tools, fsynced",
    ),
    at_most(Group::Turns, "turn_overhead_ms_p95", 15.0, "the same, 95 of 100"),
    at_most(
        Group::Turns,
        "turn_overhead_500_messages_ms_p50",
        10.0,
        "the same behind a history of 500 messages",
    ),
    plain(Group::Turns, "turn_overhead_read_ms_p50", "of these, turns that read a file"),
    plain(Group::Turns, "turn_overhead_write_ms_p50", "of these, turns that make one: with a snapshot"),
    at_most(
        Group::Turns,
        "turn_overhead_sandboxed_ms_p50",
        12.0,
        "the same with a sandboxed command and a tree walk",
    ),
    at_most(Group::Turns, "turn_overhead_sandboxed_ms_p95", 25.0, "the same, 95 of 100"),
    at_most(Group::Turns, "cold_start_ms", 100.0, "submit to the run's first model request, lease included"),
    at_most(Group::Turns, "run_30_turns_ms", 600.0, "submit to end of a run of 30 tool turns"),
    at_most(Group::Turns, "run_30_turns_cpu_ms", 500.0, "processor time of its run process and children"),
    at_most(
        Group::Latency,
        "submit_to_start_ms_p50",
        2.0,
        "submit acknowledged to lease in a waiting worker's hands; 0 where it was there first",
    )
    .or_zero(),
    at_most(Group::Latency, "submit_to_start_ms_p99", 5.0, "the same, 99 of 100").or_zero(),
    plain(Group::Latency, "submit_sent_to_start_ms_p50", "submit sent to lease in hands"),
    plain(Group::Latency, "submit_acknowledged_ms_p50", "submit sent to acknowledged, over HTTP"),
    at_most(Group::Turns, "submit_to_run_ms_p50", 25.0, "submit to the first event of the run process"),
    at_most(Group::Turns, "submit_to_run_ms_p99", 50.0, "the same, 99 of 100"),
    at_least(
        Group::Sqlite,
        "steps_50_runs_per_s",
        30_000.0,
        "50 runs at once, one durable step after the other each",
    ),
    plain(Group::Sqlite, "steps_50_runs_ratio", "the same over raw commits"),
    plain(Group::Sqlite, "raw_commits_per_s_sqlite", "one connection, one row a commit"),
    plain(Group::Sqlite, "appends_per_s_sqlite", "32 writers, 32 runs"),
    at_least(Group::Sqlite, "append_ratio_sqlite", 5.0, "32 writers over raw commits"),
    plain(Group::Sqlite, "append_alone_ms_p50_sqlite", "one writer, nobody else"),
    plain(Group::Sqlite, "append_ms_p99_sqlite", "32 writers of 16 events, while the log is copied back"),
    plain(Group::Sqlite, "append_p99_checkpoints_ratio_sqlite", "that, over a log that is never copied back"),
    at_least(
        Group::Sqlite,
        "appends_one_run_serial_ratio",
        0.5,
        "one run, one after the other, over raw commits",
    ),
    plain(Group::Sqlite, "appends_one_run_serial_per_s", "the same, as a rate"),
    at_least(Group::Sqlite, "appends_one_run_32_in_flight_per_s", 10_000.0, "one run, 32 appends under way"),
    at_least(
        Group::Sqlite,
        "events_one_run_16_an_append_per_s",
        10_000.0,
        "one run, serial, 16 events an append",
    ),
    at_least(
        Group::Postgres,
        "steps_50_runs_per_s_postgres",
        30_000.0,
        "50 runs at once, one durable step after the other each",
    ),
    plain(Group::Postgres, "steps_50_runs_ratio_postgres", "the same over raw commits"),
    plain(Group::Postgres, "raw_commits_per_s_postgres", "one connection, one row a commit"),
    plain(Group::Postgres, "appends_per_s_postgres", "32 writers, 32 runs"),
    at_least(Group::Postgres, "append_ratio_postgres", 5.0, "32 writers over raw commits"),
    plain(Group::Postgres, "append_alone_ms_p50_postgres", "one writer, nobody else"),
    at_least(
        Group::Postgres,
        "appends_one_run_serial_ratio_postgres",
        0.5,
        "one run, serial, over raw commits",
    ),
    plain(Group::Postgres, "appends_one_run_serial_per_s_postgres", "the same, as a rate"),
    at_least(
        Group::Postgres,
        "appends_one_run_32_in_flight_per_s_postgres",
        10_000.0,
        "one run, 32 appends under way",
    ),
    at_least(
        Group::Postgres,
        "events_one_run_16_an_append_per_s_postgres",
        10_000.0,
        "one run, serial, 16 events an append",
    ),
    plain(Group::Http, "raw_commits_per_s_http", "SQLite, beside the appends over HTTP"),
    plain(
        Group::Http,
        "appends_per_s_http",
        "32 connections, one event a request, clients on this machine too",
    ),
    at_least(Group::Http, "append_http_ratio", 3.0, "the same over raw commits"),
    plain(Group::Http, "append_http_alone_ms_p50", "one connection, nobody else"),
    at_least(
        Group::Http,
        "drain_http_tasks_per_s",
        25_000.0,
        "tasks that do nothing, one worker over HTTP on this process",
    ),
    plain(Group::Http, "drain_http_ratio", "the same over raw commits"),
    plain(Group::Http, "events_per_s_http_8_a_request", "32 connections, 8 events a request"),
    at_least(
        Group::Drain,
        "submit_alone_per_s",
        2200.0,
        "one task a submit, one after the other, at the store",
    ),
    at_least(
        Group::Drain,
        "submit_ten_in_flight_per_s",
        4100.0,
        "one task a submit, ten at a time, at the store",
    ),
    at_least(Group::Drain, "submit_bulk_per_s", 66_000.0, "1,000 tasks a submit, at the store"),
    at_least(
        Group::Drain,
        "drain_tasks_per_s",
        25_000.0,
        "tasks that do nothing, lease to finish, at the store",
    ),
    at_least(
        Group::Drain,
        "drain_one_by_one_per_s",
        3000.0,
        "the same, one lease and one finish at a time each, 32 workers",
    ),
    at_least(
        Group::DrainPostgres,
        "submit_alone_per_s_postgres",
        2200.0,
        "one task a submit, one after the other",
    ),
    at_least(Group::DrainPostgres, "submit_ten_in_flight_per_s_postgres", 4100.0, "the same, ten at a time"),
    at_least(Group::DrainPostgres, "submit_bulk_per_s_postgres", 66_000.0, "1,000 tasks a submit"),
    at_least(
        Group::DrainPostgres,
        "drain_tasks_per_s_postgres",
        25_000.0,
        "tasks that do nothing, lease to finish, four events each",
    ),
    at_least(
        Group::DrainPostgres,
        "drain_one_by_one_per_s_postgres",
        3000.0,
        "the same, one at a time each, 32 workers",
    ),
    at_least(
        Group::DrainPostgres,
        "drain_beside_held_snapshot_ratio",
        0.8,
        "leases of ten beside a snapshot held over thousands of finished tasks, over without",
    ),
    plain(Group::DrainPostgres, "drain_snapshot_held_s", "how long that snapshot had been held by then"),
    at_most(
        Group::DrainPostgres,
        "submit_to_start_ms_p50_postgres",
        2.0,
        "submit acknowledged to lease in a waiting worker's hands; 0 where it was there first",
    )
    .or_zero(),
    at_most(Group::DrainPostgres, "submit_to_start_ms_p99_postgres", 5.0, "the same, 99 of 100").or_zero(),
    plain(Group::DrainPostgres, "submit_sent_to_start_ms_p50_postgres", "submit sent to lease in hands"),
    plain(
        Group::DrainPostgres,
        "submit_acknowledged_ms_p50_postgres",
        "submit sent to acknowledged, over HTTP",
    ),
    plain(Group::Finished, "finished_events", "events of the finished runs of --finished-runs"),
    at_most(Group::Finished, "finished_lease_ratio", 1.5, "a lease beside them, over an empty store"),
    at_most(Group::Finished, "finished_append_ratio", 1.5, "an append, likewise"),
    at_most(Group::Finished, "finished_ps_ratio", 1.5, "what ps and queue read, likewise"),
    plain(
        Group::FinishedPostgres,
        "finished_events_postgres",
        "events of the finished runs of --finished-runs",
    ),
    at_most(
        Group::FinishedPostgres,
        "finished_lease_ratio_postgres",
        1.5,
        "a lease beside them, over an empty store",
    ),
    at_most(Group::FinishedPostgres, "finished_append_ratio_postgres", 1.5, "an append, likewise"),
    at_most(Group::FinishedPostgres, "finished_ps_ratio_postgres", 1.5, "what ps and queue read, likewise"),
    plain(Group::Overview, "overview_tasks", "tasks in the store: half wait, a quarter had runs"),
    at_most(
        Group::Overview,
        "overview_ms_p95",
        100.0,
        "the overview over HTTP, as the dashboard's first page asks for it",
    ),
    plain(Group::OverviewPostgres, "overview_tasks_postgres", "likewise"),
    at_most(Group::OverviewPostgres, "overview_ms_p95_postgres", 100.0, "likewise"),
    plain(
        Group::Followers,
        "followers_none_append_ms_p50",
        "an append over HTTP, 100 runs at two a second each, nobody following",
    ),
    at_most(Group::Followers, "followers_append_ratio", 1.1, "the same with 1,000 followers, over without"),
    plain(Group::Followers, "followers_append_p95_ratio", "likewise, 95 of 100"),
    plain(Group::Followers, "followers_events", "events that came to the followers: all, once, in order"),
    at_most(
        Group::Followers,
        "followers_kb_each",
        50.0,
        "resident memory of the coordinator per follower, in kB",
    ),
    plain(Group::FollowersPostgres, "followers_none_append_ms_p50_postgres", "likewise"),
    at_most(Group::FollowersPostgres, "followers_append_ratio_postgres", 1.1, "likewise"),
    plain(Group::FollowersPostgres, "followers_append_p95_ratio_postgres", "likewise"),
    plain(Group::FollowersPostgres, "followers_events_postgres", "likewise"),
    at_most(Group::FollowersPostgres, "followers_kb_each_postgres", 50.0, "likewise"),
    plain(
        Group::Turns,
        "drain_isolated_tasks_per_s",
        "a run process each, scripted model, at the worker's slots",
    ),
    at_least(Group::Fold, "fold_events_per_s", 300_000.0, "events in memory to a run's state, fastest round"),
    at_least(Group::Fold, "chain_events_per_s", 300_000.0, "hash chain alone, fastest round"),
    at_least(
        Group::Fold,
        "verify_events_per_s",
        300_000.0,
        "a run of 10,000 events read from the store, chained, folded",
    ),
    plain(Group::Fold, "verify_cpu_us_per_event", "processor time of that, all threads together"),
    plain(
        Group::Fold,
        "verify_decisions_per_s",
        "decisions and requests of a run of 1,500 events derived again",
    ),
    at_most(
        Group::Fold,
        "resume_1500_ms",
        30.0,
        "lease in hand to the next request in bytes, 1,500 events over HTTP, no files",
    ),
    at_most(
        Group::Fold,
        "step_first_screen_ms",
        100.0,
        "`docket step` on 10,000 events, from its start to its first screen",
    ),
    plain(Group::Fold, "read_events_per_s", "read from the store alone"),
    plain(Group::Fold, "fold_event_bytes", "mean payload of the folded events"),
    at_most(Group::Turns, "rss_run_mb", 15.0, "resident memory of a run process after 30 turns"),
    plain(Group::Turns, "rss_run_private_mb", "of it, not shared with other processes"),
    at_most(Group::Turns, "rss_supervisor_mb", 25.0, "resident memory of the supervisor"),
    at_most(
        Group::Turns,
        "crash_to_running_ms",
        1000.0,
        "kill -9 of a run process to its request sent again",
    ),
    at_most(
        Group::Workers,
        "worker_killed_to_running_ms",
        30_000.0,
        "kill -9 of a worker to the next request of its runs at another, the lease's end included",
    ),
    plain(Group::Workers, "worker_killed_lease_ms", "the lease of that; 30 s without --quick, as usual"),
    at_most(Group::Workers, "worker_killed_lease_ratio", 1.5, "the time over the lease"),
    plain(Group::Sandbox, "spawn_bare_ms_p50", "`true`, bare"),
    plain(Group::Sandbox, "spawn_sandboxed_ms_p50", "`true`, sandboxed"),
    at_most(Group::Sandbox, "sandbox_overhead_ms_p50", 8.0, "the difference"),
    at_most(
        Group::Snapshots,
        "snapshot_file_tool_ms_p50",
        5.0,
        "one of all files changed by a file tool: no walk",
    ),
    at_most(
        Group::Snapshots,
        "snapshot_walk_ratio",
        1.0,
        "one of all changed by a command, over a bare parallel stat walk",
    ),
    plain(Group::Snapshots, "snapshot_walk_cpu_ratio", "the same in processor time"),
    plain(Group::Snapshots, "snapshot_walk_ms_p50", "the snapshot"),
    plain(Group::Snapshots, "bare_stat_walk_ms_p50", "the bare walk"),
    plain(Group::Snapshots, "snapshot_tree_files", "files of that tree: 50,000, or fewer with --quick"),
    plain(Group::Snapshots, "first_snapshot_ms", "of all files just made, known from git's objects"),
    plain(
        Group::Snapshots,
        "first_snapshot_files_read",
        "files it read: those of the tick in which it began",
    )
    .or_zero(),
    plain(Group::Snapshots, "pin_ms", "all files of a commit to blobs, at submit"),
    plain(Group::Snapshots, "materialize_ms", "those blobs to a workspace"),
    plain(
        Group::Snapshots,
        "materialize_ratio",
        "the same over `git checkout-index`, by a fifth of the files",
    ),
    at_most(
        Group::Storage,
        "stored_bytes_late_turn_ratio",
        1.1,
        "stored by the last ten turns over turns 6 to 15, events and blobs",
    ),
    plain(Group::Storage, "stored_turns", "turns of that run: 1,000, or fewer with --quick"),
    plain(Group::Storage, "stored_bytes_early_turn", "stored per turn, turns 6 to 15"),
    plain(Group::Storage, "stored_bytes_late_turn", "stored per turn, the last ten"),
    plain(Group::Edit, "edit_us_p50", "one edit of five lines in a file of 300, most of them exact"),
    at_most(
        Group::Edit,
        "edit_20k_lines_fuzzy_ms",
        50.0,
        "one edit found by similarity in a file of 20,000 lines",
    ),
    at_most(
        Group::Engine,
        "compaction_150k_ms",
        20.0,
        "150,000 tokens made shorter by levels 1 and 2, decided and folded",
    ),
    plain(Group::Engine, "prompt_1k_files_ms", "system prompt and task of a project of 1,000 files"),
    plain(Group::Engine, "prompt_50k_files_ms", "the same with 50,000 files; once for each tree"),
    at_most(
        Group::Search,
        "search_rg_ratio",
        1.3,
        "search_codebase over ripgrep, both without the start of a process",
    ),
    plain(Group::Search, "search_ms_p50", "one search of 5,000 files, sorted"),
    plain(Group::Search, "search_rg_ms_p50", "ripgrep's, in no order, without its start"),
    plain(Group::Search, "search_rg_start_ms_p50", "ripgrep in an empty folder"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_flat_words_and_stand_once() {
        let mut names: Vec<&str> = FIGURES.iter().map(|figure| figure.name).collect();
        assert!(
            names
                .iter()
                .all(|name| name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_'))
        );
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), FIGURES.len());
    }

    #[test]
    fn every_group_has_figures() {
        for group in Group::ALL {
            assert!(FIGURES.iter().any(|figure| figure.group == group), "{}", group.name());
        }
    }

    #[test]
    fn a_bound_is_met_by_itself() {
        let cases = [
            (Target::None, 1.0, None),
            (Target::AtLeast(5.0), 5.0, Some(true)),
            (Target::AtLeast(5.0), 4.9, Some(false)),
            (Target::AtMost(5.0), 5.0, Some(true)),
            (Target::AtMost(5.0), 5.1, Some(false)),
        ];
        for (target, value, met) in cases {
            assert_eq!(target.is_met(value), met, "{target:?} {value}");
        }
    }
}

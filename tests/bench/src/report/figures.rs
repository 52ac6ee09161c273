//! The table of figures: name, unit, target, group. Their only definition.

use crate::report::FigureGroup;

/// The limit for a figure.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum FigureTarget {
    /// No target.
    None,
    /// At least this.
    AtLeast(f64),
    /// At most this.
    AtMost(f64),
}

impl FigureTarget {
    /// Returns whether `value` meets the target; `None` if there is none.
    pub(crate) fn is_met(self, value: f64) -> Option<bool> {
        match self {
            Self::None => None,
            Self::AtLeast(bound) => Some(value >= bound),
            Self::AtMost(bound) => Some(value <= bound),
        }
    }
}

/// The smallest possible value of a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LowerBound {
    /// Greater than zero: a time, a rate, a size.
    AboveZero,
    /// Zero: a time or a count of something that need not occur.
    Zero,
}

impl LowerBound {
    /// Returns whether `value` is possible.
    pub(crate) fn allows(self, value: f64) -> bool {
        match self {
            Self::AboveZero => value > 0.0,
            Self::Zero => value >= 0.0,
        }
    }
}

/// A figure that its group must provide whenever it is measured.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BenchFigure {
    pub(crate) name: &'static str,
    pub(crate) group: FigureGroup,
    pub(crate) target: FigureTarget,
    /// The smallest possible value. A smaller one means it was not measured.
    pub(crate) lower_bound: LowerBound,
    /// A one-line description.
    pub(crate) description: &'static str,
}

const fn at_least(group: FigureGroup, name: &'static str, bound: f64, what: &'static str) -> BenchFigure {
    BenchFigure {
        name,
        group,
        target: FigureTarget::AtLeast(bound),
        lower_bound: LowerBound::AboveZero,
        description: what,
    }
}

const fn at_most(group: FigureGroup, name: &'static str, bound: f64, what: &'static str) -> BenchFigure {
    BenchFigure {
        name,
        group,
        target: FigureTarget::AtMost(bound),
        lower_bound: LowerBound::AboveZero,
        description: what,
    }
}

const fn without_target(group: FigureGroup, name: &'static str, what: &'static str) -> BenchFigure {
    BenchFigure {
        name,
        group,
        target: FigureTarget::None,
        lower_bound: LowerBound::AboveZero,
        description: what,
    }
}

impl BenchFigure {
    /// The same figure with zero allowed.
    const fn with_zero_allowed(self) -> Self {
        Self { lower_bound: LowerBound::Zero, ..self }
    }
}

/// All figures, in display order.
pub(crate) const FIGURES: [BenchFigure; 127] = [
    at_most(
        FigureGroup::Turns,
        "turn_overhead_ms_p50",
        5.0,
        "last byte of a response to the next request, file tools, fsynced",
    ),
    at_most(FigureGroup::Turns, "turn_overhead_ms_p95", 15.0, "the same, 95 of 100"),
    at_most(
        FigureGroup::Turns,
        "turn_overhead_500_messages_ms_p50",
        10.0,
        "the same with a history of 500 messages",
    ),
    without_target(FigureGroup::Turns, "turn_overhead_read_ms_p50", "of these, turns that read a file"),
    without_target(
        FigureGroup::Turns,
        "turn_overhead_write_ms_p50",
        "of these, turns that create a file, with a snapshot",
    ),
    at_most(
        FigureGroup::Turns,
        "turn_overhead_sandboxed_ms_p50",
        12.0,
        "the same with a sandboxed command and a tree walk",
    ),
    at_most(FigureGroup::Turns, "turn_overhead_sandboxed_ms_p95", 25.0, "the same, 95 of 100"),
    at_most(
        FigureGroup::Turns,
        "cold_start_ms",
        100.0,
        "submit to the run's first model request, including the lease",
    ),
    at_most(FigureGroup::Turns, "run_30_turns_ms", 600.0, "submit to end of a run of 30 tool turns"),
    at_most(
        FigureGroup::Turns,
        "run_30_turns_cpu_ms",
        500.0,
        "processor time of its run process and children",
    ),
    at_most(
        FigureGroup::Latency,
        "submit_to_start_ms_p50",
        2.0,
        "submit acknowledged to lease received by a waiting worker; 0 if the lease came first",
    )
    .with_zero_allowed(),
    at_most(FigureGroup::Latency, "submit_to_start_ms_p99", 5.0, "the same, 99 of 100").with_zero_allowed(),
    without_target(FigureGroup::Latency, "submit_sent_to_start_ms_p50", "submit sent to lease received"),
    without_target(
        FigureGroup::Latency,
        "submit_acknowledged_ms_p50",
        "submit sent to acknowledged, over HTTP",
    ),
    at_most(FigureGroup::Turns, "submit_to_run_ms_p50", 25.0, "submit to the first event of the run process"),
    at_most(FigureGroup::Turns, "submit_to_run_ms_p99", 50.0, "the same, 99 of 100"),
    at_least(
        FigureGroup::Sqlite,
        "steps_50_runs_per_s",
        30_000.0,
        "50 concurrent runs, each with one durable step after the other",
    ),
    without_target(FigureGroup::Sqlite, "steps_50_runs_ratio", "the same, relative to raw commits"),
    without_target(FigureGroup::Sqlite, "raw_commits_per_s_sqlite", "one connection, one row per commit"),
    without_target(FigureGroup::Sqlite, "appends_per_s_sqlite", "32 writers, 32 runs"),
    at_least(FigureGroup::Sqlite, "append_ratio_sqlite", 5.0, "32 writers, relative to raw commits"),
    without_target(FigureGroup::Sqlite, "append_alone_ms_p50_sqlite", "a single writer"),
    without_target(
        FigureGroup::Sqlite,
        "append_ms_p99_sqlite",
        "32 writers of 16 events each, during checkpoints",
    ),
    without_target(
        FigureGroup::Sqlite,
        "append_p99_checkpoints_ratio_sqlite",
        "the same, relative to a log without checkpoints",
    ),
    at_least(
        FigureGroup::Sqlite,
        "appends_one_run_serial_ratio",
        0.5,
        "one run, one after the other, relative to raw commits",
    ),
    without_target(FigureGroup::Sqlite, "appends_one_run_serial_per_s", "the same, as a rate"),
    at_least(
        FigureGroup::Sqlite,
        "appends_one_run_32_in_flight_per_s",
        10_000.0,
        "one run, 32 appends in flight",
    ),
    at_least(
        FigureGroup::Sqlite,
        "events_one_run_16_an_append_per_s",
        10_000.0,
        "one run, serial, 16 events per append",
    ),
    at_least(
        FigureGroup::Postgres,
        "steps_50_runs_per_s_postgres",
        30_000.0,
        "50 concurrent runs, each with one durable step after the other",
    ),
    without_target(
        FigureGroup::Postgres,
        "steps_50_runs_ratio_postgres",
        "the same, relative to raw commits",
    ),
    without_target(FigureGroup::Postgres, "raw_commits_per_s_postgres", "one connection, one row per commit"),
    without_target(FigureGroup::Postgres, "appends_per_s_postgres", "32 writers, 32 runs"),
    at_least(FigureGroup::Postgres, "append_ratio_postgres", 5.0, "32 writers, relative to raw commits"),
    without_target(FigureGroup::Postgres, "append_alone_ms_p50_postgres", "a single writer"),
    at_least(
        FigureGroup::Postgres,
        "appends_one_run_serial_ratio_postgres",
        0.5,
        "one run, serial, relative to raw commits",
    ),
    without_target(FigureGroup::Postgres, "appends_one_run_serial_per_s_postgres", "the same, as a rate"),
    at_least(
        FigureGroup::Postgres,
        "appends_one_run_32_in_flight_per_s_postgres",
        10_000.0,
        "one run, 32 appends in flight",
    ),
    at_least(
        FigureGroup::Postgres,
        "events_one_run_16_an_append_per_s_postgres",
        10_000.0,
        "one run, serial, 16 events per append",
    ),
    without_target(
        FigureGroup::Http,
        "raw_commits_per_s_http",
        "SQLite, alternating with the appends over HTTP",
    ),
    without_target(
        FigureGroup::Http,
        "appends_per_s_http",
        "32 connections, one event per request, clients on the same machine",
    ),
    at_least(FigureGroup::Http, "append_http_ratio", 3.0, "the same, relative to raw commits"),
    without_target(FigureGroup::Http, "append_http_alone_ms_p50", "a single connection"),
    at_least(
        FigureGroup::Http,
        "drain_http_tasks_per_s",
        25_000.0,
        "tasks that do nothing, one worker over HTTP in this process",
    ),
    without_target(FigureGroup::Http, "drain_http_ratio", "the same, relative to raw commits"),
    without_target(
        FigureGroup::Http,
        "events_per_s_http_8_a_request",
        "32 connections, 8 events per request",
    ),
    at_least(
        FigureGroup::Drain,
        "submit_alone_per_s",
        2200.0,
        "one task per submit, one after the other, at the store",
    ),
    at_least(
        FigureGroup::Drain,
        "submit_ten_in_flight_per_s",
        4100.0,
        "one task per submit, ten at a time, at the store",
    ),
    at_least(FigureGroup::Drain, "submit_bulk_per_s", 66_000.0, "1,000 tasks per submit, at the store"),
    at_least(
        FigureGroup::Drain,
        "drain_tasks_per_s",
        25_000.0,
        "tasks that do nothing, lease to finish, at the store",
    ),
    at_least(
        FigureGroup::Drain,
        "drain_one_by_one_per_s",
        3000.0,
        "the same, one lease and one finish at a time each, 32 workers",
    ),
    at_least(
        FigureGroup::DrainPostgres,
        "submit_alone_per_s_postgres",
        2200.0,
        "one task per submit, one after the other",
    ),
    at_least(
        FigureGroup::DrainPostgres,
        "submit_ten_in_flight_per_s_postgres",
        4100.0,
        "the same, ten at a time",
    ),
    at_least(FigureGroup::DrainPostgres, "submit_bulk_per_s_postgres", 66_000.0, "1,000 tasks per submit"),
    at_least(
        FigureGroup::DrainPostgres,
        "drain_tasks_per_s_postgres",
        25_000.0,
        "tasks that do nothing, lease to finish, four events each",
    ),
    at_least(
        FigureGroup::DrainPostgres,
        "drain_one_by_one_per_s_postgres",
        3000.0,
        "the same, one at a time each, 32 workers",
    ),
    at_least(
        FigureGroup::DrainPostgres,
        "drain_beside_held_snapshot_ratio",
        0.8,
        "leases of ten during a snapshot held over thousands of finished tasks, relative to none",
    ),
    without_target(
        FigureGroup::DrainPostgres,
        "drain_snapshot_held_s",
        "how long that snapshot had been held",
    ),
    at_most(
        FigureGroup::DrainPostgres,
        "submit_to_start_ms_p50_postgres",
        2.0,
        "submit acknowledged to lease received by a waiting worker; 0 if the lease came first",
    )
    .with_zero_allowed(),
    at_most(FigureGroup::DrainPostgres, "submit_to_start_ms_p99_postgres", 5.0, "the same, 99 of 100")
        .with_zero_allowed(),
    without_target(
        FigureGroup::DrainPostgres,
        "submit_sent_to_start_ms_p50_postgres",
        "submit sent to lease received",
    ),
    without_target(
        FigureGroup::DrainPostgres,
        "submit_acknowledged_ms_p50_postgres",
        "submit sent to acknowledged, over HTTP",
    ),
    without_target(
        FigureGroup::Finished,
        "finished_events",
        "events of the finished runs of --finished-runs",
    ),
    at_most(
        FigureGroup::Finished,
        "finished_lease_ratio",
        1.5,
        "a lease with them, relative to an empty store",
    ),
    at_most(FigureGroup::Finished, "finished_append_ratio", 1.5, "an append, likewise"),
    at_most(FigureGroup::Finished, "finished_ps_ratio", 1.5, "the queries of ps and queue, likewise"),
    without_target(
        FigureGroup::FinishedPostgres,
        "finished_events_postgres",
        "events of the finished runs of --finished-runs",
    ),
    at_most(
        FigureGroup::FinishedPostgres,
        "finished_lease_ratio_postgres",
        1.5,
        "a lease with them, relative to an empty store",
    ),
    at_most(FigureGroup::FinishedPostgres, "finished_append_ratio_postgres", 1.5, "an append, likewise"),
    at_most(
        FigureGroup::FinishedPostgres,
        "finished_ps_ratio_postgres",
        1.5,
        "the queries of ps and queue, likewise",
    ),
    without_target(
        FigureGroup::Overview,
        "overview_tasks",
        "tasks in the store: half are waiting, a quarter had runs",
    ),
    at_most(
        FigureGroup::Overview,
        "overview_ms_p95",
        100.0,
        "the overview over HTTP, as the dashboard's first page requests it",
    ),
    without_target(FigureGroup::OverviewPostgres, "overview_tasks_postgres", "likewise"),
    at_most(FigureGroup::OverviewPostgres, "overview_ms_p95_postgres", 100.0, "likewise"),
    without_target(
        FigureGroup::Followers,
        "followers_none_append_ms_p50",
        "an append over HTTP, 100 runs at two per second each, without followers",
    ),
    at_most(
        FigureGroup::Followers,
        "followers_append_ratio",
        1.1,
        "the same with 1,000 followers, relative to none",
    ),
    without_target(FigureGroup::Followers, "followers_append_p95_ratio", "likewise, 95 of 100"),
    without_target(
        FigureGroup::Followers,
        "followers_events",
        "events received by the followers: all, once, in order",
    ),
    at_most(
        FigureGroup::Followers,
        "followers_kb_each",
        50.0,
        "resident memory of the coordinator per follower, in kB",
    ),
    without_target(FigureGroup::FollowersPostgres, "followers_none_append_ms_p50_postgres", "likewise"),
    at_most(FigureGroup::FollowersPostgres, "followers_append_ratio_postgres", 1.1, "likewise"),
    without_target(FigureGroup::FollowersPostgres, "followers_append_p95_ratio_postgres", "likewise"),
    without_target(FigureGroup::FollowersPostgres, "followers_events_postgres", "likewise"),
    at_most(FigureGroup::FollowersPostgres, "followers_kb_each_postgres", 50.0, "likewise"),
    without_target(
        FigureGroup::Turns,
        "drain_isolated_tasks_per_s",
        "one run process each, scripted model, at the worker's slots",
    ),
    at_least(
        FigureGroup::Fold,
        "fold_events_per_s",
        300_000.0,
        "events in memory to a run's state, fastest round",
    ),
    at_least(FigureGroup::Fold, "chain_events_per_s", 300_000.0, "hash chain alone, fastest round"),
    at_least(
        FigureGroup::Fold,
        "verify_events_per_s",
        300_000.0,
        "a run of 10,000 events read from the store, chained, folded",
    ),
    without_target(
        FigureGroup::Fold,
        "verify_cpu_us_per_event",
        "processor time of that, all threads together",
    ),
    without_target(
        FigureGroup::Fold,
        "verify_decisions_per_s",
        "decisions and requests of a run of 1,500 events derived again",
    ),
    at_most(
        FigureGroup::Fold,
        "resume_1500_ms",
        30.0,
        "lease to the next encoded request, 1,500 events over HTTP, no files",
    ),
    at_most(
        FigureGroup::Fold,
        "step_first_screen_ms",
        100.0,
        "`docket step` on 10,000 events, from its start to its first screen",
    ),
    without_target(FigureGroup::Fold, "read_events_per_s", "read from the store alone"),
    without_target(FigureGroup::Fold, "fold_event_bytes", "mean payload of the folded events"),
    at_most(FigureGroup::Turns, "rss_run_mb", 15.0, "resident memory of a run process after 30 turns"),
    without_target(FigureGroup::Turns, "rss_run_private_mb", "the part not shared with other processes"),
    at_most(FigureGroup::Turns, "rss_supervisor_mb", 25.0, "resident memory of the supervisor"),
    at_most(
        FigureGroup::Turns,
        "crash_to_running_ms",
        1000.0,
        "kill -9 of a run process to its request sent again",
    ),
    at_most(
        FigureGroup::Workers,
        "worker_killed_to_running_ms",
        30_000.0,
        "kill -9 of a worker to the next request of its runs on another, including the lease's expiry",
    ),
    without_target(
        FigureGroup::Workers,
        "worker_killed_lease_ms",
        "the lease in that case; the default of 30 s without --quick",
    ),
    at_most(FigureGroup::Workers, "worker_killed_lease_ratio", 1.5, "the time relative to the lease"),
    without_target(FigureGroup::Sandbox, "spawn_bare_ms_p50", "`true`, without the sandbox"),
    without_target(FigureGroup::Sandbox, "spawn_sandboxed_ms_p50", "`true`, sandboxed"),
    at_most(FigureGroup::Sandbox, "sandbox_overhead_ms_p50", 8.0, "the difference"),
    at_most(
        FigureGroup::Snapshots,
        "snapshot_file_tool_ms_p50",
        5.0,
        "one file changed by a file tool: no walk",
    ),
    at_most(
        FigureGroup::Snapshots,
        "snapshot_walk_ratio",
        1.0,
        "one file changed by a command, relative to a bare parallel stat walk",
    ),
    without_target(FigureGroup::Snapshots, "snapshot_walk_cpu_ratio", "the same in processor time"),
    without_target(FigureGroup::Snapshots, "snapshot_walk_ms_p50", "the snapshot"),
    without_target(FigureGroup::Snapshots, "bare_stat_walk_ms_p50", "the bare walk"),
    without_target(
        FigureGroup::Snapshots,
        "snapshot_tree_files",
        "files of that tree: 50,000, or fewer with --quick",
    ),
    without_target(
        FigureGroup::Snapshots,
        "first_snapshot_ms",
        "of all files just created, known from git's objects",
    ),
    without_target(
        FigureGroup::Snapshots,
        "first_snapshot_files_read",
        "files it read: those created in its first clock tick",
    )
    .with_zero_allowed(),
    without_target(FigureGroup::Snapshots, "pin_ms", "all files of a commit to blobs, at submit"),
    without_target(FigureGroup::Snapshots, "materialize_ms", "those blobs to a workspace"),
    without_target(
        FigureGroup::Snapshots,
        "materialize_ratio",
        "the same, relative to `git checkout-index` extrapolated from a fifth of the files",
    ),
    at_most(
        FigureGroup::Storage,
        "stored_bytes_late_turn_ratio",
        1.1,
        "stored by the last ten turns, relative to turns 6 to 15, events and blobs",
    ),
    without_target(FigureGroup::Storage, "stored_turns", "turns of that run: 1,000, or fewer with --quick"),
    without_target(FigureGroup::Storage, "stored_bytes_early_turn", "stored per turn, turns 6 to 15"),
    without_target(FigureGroup::Storage, "stored_bytes_late_turn", "stored per turn, the last ten"),
    without_target(
        FigureGroup::Edit,
        "edit_us_p50",
        "one edit of five lines in a file of 300, most of them exact",
    ),
    at_most(
        FigureGroup::Edit,
        "edit_20k_lines_fuzzy_ms",
        50.0,
        "one edit found by similarity in a file of 20,000 lines",
    ),
    at_most(
        FigureGroup::Engine,
        "compaction_150k_ms",
        20.0,
        "compaction of 150,000 tokens by levels 1 and 2, decided and folded",
    ),
    without_target(
        FigureGroup::Engine,
        "prompt_1k_files_ms",
        "system prompt and task of a project of 1,000 files",
    ),
    without_target(FigureGroup::Engine, "prompt_50k_files_ms", "the same with 50,000 files; once per tree"),
    at_most(
        FigureGroup::Search,
        "search_rg_ratio",
        1.3,
        "search_codebase relative to ripgrep, both without process start",
    ),
    without_target(FigureGroup::Search, "search_ms_p50", "one search of 5,000 files, sorted"),
    without_target(FigureGroup::Search, "search_rg_ms_p50", "ripgrep, unsorted, without its start"),
    without_target(FigureGroup::Search, "search_rg_start_ms_p50", "ripgrep in an empty folder"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figure_names_are_unique_flat_words() {
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
        for group in FigureGroup::ALL {
            assert!(FIGURES.iter().any(|figure| figure.group == group), "{}", group.name());
        }
    }

    #[test]
    fn value_at_the_bound_meets_it() {
        let cases = [
            (FigureTarget::None, 1.0, None),
            (FigureTarget::AtLeast(5.0), 5.0, Some(true)),
            (FigureTarget::AtLeast(5.0), 4.9, Some(false)),
            (FigureTarget::AtMost(5.0), 5.0, Some(true)),
            (FigureTarget::AtMost(5.0), 5.1, Some(false)),
        ];
        for (target, value, met) in cases {
            assert_eq!(target.is_met(value), met, "{target:?} {value}");
        }
    }
}

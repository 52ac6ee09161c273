//! One suite for every store: named cases, each on its own database.
//!
//! The `it` binary runs it on SQLite and on PostgreSQL. A case receives a [`TestDatabase`] and
//! panics on a failure; it may open the store several times and may bypass it with raw SQL.

mod archive;
mod archive_stubs;
mod blobs;
mod budgets;
mod clocks;
pub mod database;
mod delegation;
mod delivery;
mod dependencies;
mod faults;
pub mod fixture;
mod flow;
mod import_and_gc;
mod inbox;
mod leases;
mod limits;
mod lineage;
mod listing;
mod log;
mod memory;
mod oracle;
mod overview;
mod qualification;
mod queue;
mod reports;
mod schedules;

pub use database::{DatabaseKind, TestDatabase};
pub use fixture::StoreFixture;

use std::{future::Future, pin::Pin};

/// A case.
pub type ConformanceCase = fn(TestDatabase) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! cases {
    ($($module:ident::$name:ident,)*) => {
        &[$((stringify!($name), |database| Box::pin($module::$name(database))),)*]
    };
}

/// All cases, by name.
pub const CASES: &[(&str, ConformanceCase)] = cases![
    log::seq_is_gapless_and_chained,
    log::wrong_seq_is_refused_with_the_head,
    log::repeated_append_returns_the_first_reply,
    log::repeated_append_after_takeover_returns_the_first_reply,
    log::stale_worker_cannot_append,
    log::concurrent_writers_append_to_separate_streams,
    log::many_appends_in_flight_on_one_stream,
    log::refused_append_does_not_fail_others,
    log::inbox_appends_alongside_the_lease_holder,
    log::system_streams_start_implicitly,
    log::blobs_are_checked_and_stored_once,
    log::feed_returns_all_events_in_order,
    log::reopened_store_has_everything,
    queue::submit_is_all_or_none_and_once,
    queue::resubmitted_id_needs_equal_content,
    queue::deduplication_key_is_held_until_the_end,
    queue::tasks_are_leased_by_priority_then_age,
    queue::run_at_waits_for_its_time,
    queue::queues_and_engines_are_filtered,
    queue::failures_retry_then_discard,
    queue::crashes_keep_the_run_then_poison,
    queue::blocked_task_resumes_its_run,
    queue::retry_resumes_a_run_stopped_by_its_provider,
    queue::outage_wait_ends_at_its_time,
    queue::paused_run_resumes_its_history,
    queue::waiting_task_can_be_paused_and_unpaused,
    queue::retry_starts_a_new_run,
    queue::resume_forks_and_supersedes,
    queue::ids_resolve_by_prefix_or_suffix,
    delivery::undelivered_task_does_not_end_until_delivery_is_settled,
    listing::every_filter_lists_the_expected_tasks,
    listing::lists_scan_a_bounded_part_by_an_index,
    listing::batches_are_listed_with_counts,
    lineage::fork_is_all_or_none_and_once,
    lineage::fork_is_leased_finished_and_not_retried,
    lineage::failed_fork_is_retried_from_its_fork_point,
    lineage::lineage_tree_is_the_same_from_any_of_its_runs,
    delegation::child_and_delegation_event_are_written_atomically_once,
    delegation::child_end_resumes_its_parent,
    delegation::child_ends_independently_of_its_parent,
    delegation::children_are_cancelled_with_the_delegating_run,
    delegation::concurrent_parent_and_child_ends_strand_no_task,
    dependencies::task_waits_for_its_dependencies,
    dependencies::failed_dependency_applies_the_if_failed_policy,
    dependencies::retried_task_waits_again_for_incomplete_dependencies,
    dependencies::unknown_dependency_refuses_the_submit,
    dependencies::concurrent_ends_and_submits_strand_no_task,
    flow::one_key_runs_one_task_at_a_time,
    flow::lowest_limit_of_a_key_applies,
    flow::tasks_behind_a_full_key_are_leased,
    dependencies::long_dependency_chain_is_cancelled_with_its_first_task,
    budgets::batch_stops_at_its_budget_and_resumes_when_it_is_raised,
    budgets::concurrent_calls_do_not_exceed_the_budget,
    budgets::wrong_budget_counter_is_detected_and_repaired,
    overview::overview_lists_tasks_needing_attention_and_counts_the_rest,
    overview::overview_reports_nearly_spent_budgets,
    overview::overview_is_bounded,
    reports::costs_are_reported_by_run_task_batch_and_time,
    reports::metrics_cover_tasks_ended_in_a_period_page_by_page,
    flow::queue_can_be_paused_limited_and_reopened,
    flow::worker_gets_tasks_matching_its_labels,
    flow::worker_fault_excludes_its_tasks_from_that_worker_only,
    leases::consecutive_worker_faults_block_the_task,
    flow::batches_alternate_when_one_task_runs_at_a_time,
    flow::every_flow_is_served_among_very_many,
    flow::batches_share_workers_without_starvation,
    flow::drained_worker_gets_no_tasks_and_is_notified,
    inbox::enqueue_joins_the_callers_transaction,
    inbox::crash_between_enqueue_and_submit_neither_loses_nor_duplicates_tasks,
    inbox::invalid_row_stays_and_does_not_block_others,
    inbox::row_with_a_taken_task_id_stays,
    inbox::many_coordinators_process_each_row_once,
    inbox::enqueued_deduplication_key_applies,
    inbox::application_needs_only_the_execute_right,
    inbox::inbox_poll_cost_depends_only_on_pending_rows,
    flow::frequent_queries_cost_only_unfinished_tasks,
    memory::two_coordinators_share_memory,
    memory::scope_limit_is_enforced_and_values_survive_gc,
    limits::permits_are_spaced_across_coordinators,
    limits::calls_in_flight_count_while_their_lease_is_valid,
    limits::permits_are_charged_for_actual_tokens,
    schedules::two_coordinators_fire_each_time_only_once,
    schedules::firing_of_a_crashed_coordinator_submits_its_task_once,
    schedules::missed_and_overlapping_firings_follow_the_schedule,
    leases::repeated_lease_request_returns_the_same_leases,
    leases::dedicated_queue_is_reserved_while_its_worker_lives,
    leases::concurrent_leases_never_share_a_task,
    leases::late_calls_before_the_expirer_are_accepted,
    leases::late_calls_after_expiry_are_refused,
    leases::late_calls_after_takeover_are_fenced,
    leases::cancel_of_a_running_task_ends_its_run,
    leases::release_and_drain_keep_the_run,
    leases::term_after_a_gap_extends_every_lease,
    leases::handover_without_a_gap_trusts_the_deadlines,
    leases::new_term_keeps_longer_leases,
    leases::repeated_completion_returns_the_first_reply,
    clocks::stream_timestamps_follow_a_clock_set_back,
    clocks::terms_and_deadlines_are_trusted_for_their_maximum_duration_only,
    clocks::clock_step_gives_every_lease_its_full_duration,
    clocks::waits_from_a_fast_clock_end_when_it_is_corrected,
    clocks::rate_limit_from_a_fast_clock_ends_when_it_is_corrected,
    clocks::schedules_fire_by_the_corrected_clock,
    faults::raw_update_and_delete_are_refused,
    faults::flipped_bit_is_detected,
    faults::tampered_projection_is_detected_and_repaired,
    faults::migrations_are_idempotent_and_refuse_newer_schema,
    faults::feed_waits_for_a_late_commit,
    faults::busy_errors_never_reach_callers,
    faults::full_disk_loses_nothing,
    import_and_gc::imported_run_is_identical_and_unleased,
    import_and_gc::import_is_all_or_nothing,
    import_and_gc::imported_lineage_can_be_resumed,
    import_and_gc::gc_deletes_unreferenced_blobs,
    import_and_gc::gc_counts_references_in_held_back_events,
    import_and_gc::blob_reserved_for_a_later_reference_is_not_collected,
    import_and_gc::blob_of_a_pending_append_is_not_collected,
    import_and_gc::concurrent_appends_and_gc_lose_nothing,
    archive::archived_lineage_is_restored_unchanged,
    archive::tasks_with_dependents_are_not_archived,
    archive::retention_counts_from_the_restore,
    archive_stubs::task_with_waiting_dependents_is_not_archived,
    archive::concurrent_fork_and_archive_keep_the_parent_history,
    archive::events_are_deleted_only_by_archiving,
    archive::lineage_is_restored_once_and_completely,
    archive::invalid_archive_copy_removes_nothing,
    archive_stubs::archived_tasks_still_count,
    archive_stubs::archives_of_two_builds_do_not_conflict,
    archive::term_has_one_holder_at_a_time,
    blobs::large_blobs_are_files_and_small_ones_rows,
    blobs::unwritable_blob_is_not_referenced,
    blobs::altered_or_lost_blob_file_is_detected,
    blobs::unreferenced_blob_is_deleted_with_its_file,
    blobs::blob_stored_during_collection_is_complete,
    qualification::late_completion_after_takeover_is_refused,
    qualification::completion_and_renewal_after_expiry_are_refused,
    qualification::restarted_worker_does_not_inherit_leases,
    qualification::no_retryable_failure_is_stranded,
    oracle::random_commands_agree_with_a_model,
];

/// Runs one case on a fresh database of `kind`.
///
/// # Panics
/// Panics if it fails, or if no case has this name.
pub async fn run_case(kind: DatabaseKind, name: &str) {
    let (_, case) = CASES.iter().find(|(known, _)| *known == name).expect("a case of that name");
    case(TestDatabase::new(&kind, &format!("one_{name}")).await).await;
}

/// Runs every case on a fresh database of `kind`, or those whose name contains one of the comma-separated
/// words of `DOCKET_CASE`.
///
/// # Panics
/// Panics with the names of all failed cases, or if no case matches.
pub async fn run_all(kind: DatabaseKind) {
    let only = std::env::var("DOCKET_CASE").unwrap_or_default();
    let mut failed = Vec::new();
    let asked = |name: &str| only.split(',').any(|word| name.contains(word));
    assert!(CASES.iter().any(|(name, _)| asked(name)), "no case is called `{only}`");
    for (name, case) in CASES.iter().filter(|(name, _)| asked(name)) {
        let database = TestDatabase::new(&kind, name).await;
        if let Err(error) = tokio::spawn(case(database)).await {
            failed.push(format!("{name}: {error}"));
        }
    }
    assert!(failed.is_empty(), "on {kind}: {failed:#?}");
}

//! One suite for every store: named cases, each on a database of its own.
//!
//! The `it` binary runs it on SQLite and on PostgreSQL. A case takes a [`Database`] and panics with
//! what is wrong; it may open the store several times and may reach around it with raw SQL.

mod archive;
mod blobs;
mod budgets;
mod carry;
mod clocks;
pub mod database;
mod delegate;
mod delivery;
mod depend;
mod faults;
mod flow;
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
mod stubs;
pub mod world;

pub use database::{Database, Kind};
pub use world::World;

use std::{future::Future, pin::Pin};

/// A case.
pub type Case = fn(Database) -> Pin<Box<dyn Future<Output = ()> + Send>>;

macro_rules! cases {
    ($($module:ident::$name:ident,)*) => {
        &[$((stringify!($name), |database| Box::pin($module::$name(database))),)*]
    };
}

/// All cases, by name.
pub const CASES: &[(&str, Case)] = cases![
    log::seq_is_gapless_and_chained,
    log::wrong_seq_is_refused_with_the_head,
    log::repeated_append_answers_as_the_first,
    log::repeated_append_after_takeover_answers_as_the_first,
    log::sleeper_gets_nothing_into_the_log,
    log::writers_on_their_own_streams,
    log::many_in_flight_on_one_stream,
    log::a_refused_append_fails_alone,
    log::inbox_writes_beside_the_holder,
    log::system_streams_begin_by_themselves,
    log::blobs_are_checked_stored_once_and_whole,
    log::feed_has_all_in_order,
    log::reopened_store_has_everything,
    queue::submit_is_all_or_none_and_once,
    queue::an_id_is_accepted_again_with_equal_content_only,
    queue::deduplication_key_is_held_until_the_end,
    queue::priorities_then_age,
    queue::run_at_waits_for_its_time,
    queue::queues_and_engines_are_filtered,
    queue::failures_retry_then_discard,
    queue::crashes_keep_the_run_then_poison,
    queue::blocked_goes_on_with_its_run,
    queue::retry_goes_on_with_a_run_that_its_provider_stopped,
    queue::an_outage_ends_by_the_clock,
    queue::a_paused_run_goes_on_with_what_it_has,
    queue::a_task_that_waits_is_held_and_let_go,
    queue::retry_begins_a_new_run,
    queue::resume_forks_and_supersedes,
    queue::ids_resolve_by_prefix_or_end,
    delivery::an_undelivered_task_is_not_ended_until_it_is_settled,
    listing::lists_by_every_filter,
    listing::lists_look_at_a_bounded_part_and_by_an_index,
    listing::lists_batches_and_counts_them,
    lineage::fork_is_all_or_none_and_once,
    lineage::a_fork_is_leased_settled_and_not_retried,
    lineage::a_failed_run_that_stands_on_another_is_tried_again_from_there,
    lineage::the_tree_is_the_same_from_any_of_its_runs,
    delegate::a_child_and_its_parents_word_are_one_and_once,
    delegate::a_childs_end_lets_its_parent_go_on,
    delegate::a_child_ends_whatever_its_parent_does,
    delegate::children_end_with_the_run_that_gave_them_away,
    delegate::ends_of_both_at_once_strand_nobody,
    depend::a_task_waits_until_the_others_are_completed,
    depend::what_becomes_of_who_waits_for_a_task_that_failed,
    depend::a_retried_task_waits_again_for_what_is_not_completed,
    depend::a_dependency_that_nobody_knows_refuses_the_submit,
    depend::ends_and_submits_at_once_strand_nobody,
    flow::one_key_runs_one_at_a_time_however_many_lease,
    flow::the_least_limit_of_a_key_holds,
    flow::tasks_behind_a_full_key_are_found,
    depend::a_long_chain_is_cancelled_with_its_head,
    budgets::a_batch_rests_where_its_budget_ends_and_goes_on_when_it_is_raised,
    budgets::calls_let_through_together_do_not_overdraw_a_budget,
    budgets::a_counter_that_is_wrong_is_found_and_mended,
    overview::the_overview_tells_what_needs_a_person_and_counts_the_rest,
    overview::the_overview_tells_of_budgets_that_are_nearly_spent,
    overview::the_overview_has_bounds,
    reports::costs_are_each_runs_own_by_run_task_batch_and_time,
    reports::metrics_are_of_the_tasks_that_ended_in_a_time_page_by_page,
    flow::a_queue_is_paused_limited_and_opened,
    flow::a_worker_gets_what_its_labels_satisfy,
    flow::a_fault_keeps_what_it_concerns_from_its_worker_alone,
    leases::faults_of_workers_in_a_row_ask_a_person_in_the_end,
    flow::batches_take_turns_where_one_task_runs_at_a_time,
    flow::every_flow_is_found_among_very_many,
    flow::batches_share_and_nobody_starves,
    flow::a_drained_worker_gets_no_more_and_is_told,
    inbox::enqueue_in_the_callers_transaction,
    inbox::a_crash_between_enqueue_and_task_loses_and_doubles_nothing,
    inbox::what_is_no_task_stays_and_keeps_back_no_other,
    inbox::a_row_with_the_id_of_another_task_stays,
    inbox::many_coordinators_take_each_row_once,
    inbox::an_enqueued_deduplication_key_holds,
    inbox::an_application_needs_execute_and_nothing_else,
    inbox::a_look_at_the_inbox_costs_what_waits_there,
    flow::what_is_asked_often_costs_what_has_not_ended,
    memory::two_coordinators_remember_the_same,
    memory::a_scope_is_full_and_a_value_outlives_garbage_collection,
    limits::permits_are_spaced_whoever_asks,
    limits::calls_under_way_are_counted_while_their_lease_stands,
    limits::tokens_count_as_what_they_were,
    schedules::two_coordinators_fire_each_time_once,
    schedules::a_firing_whose_coordinator_died_gets_its_task_once,
    schedules::what_was_missed_or_overlaps_is_as_the_schedule_says,
    leases::lease_request_repeated_answers_the_same,
    leases::a_queue_of_one_is_left_to_its_own_worker_while_that_lives,
    leases::concurrent_leases_never_share_a_task,
    leases::late_calls_before_the_expirer_are_accepted,
    leases::late_calls_after_expiry_are_refused,
    leases::late_calls_after_takeover_are_fenced,
    leases::cancel_of_a_running_task_ends_its_run,
    leases::release_and_drain_keep_the_run,
    leases::a_term_after_a_gap_gives_every_lease_its_time,
    leases::a_handover_without_a_gap_trusts_the_deadlines,
    leases::a_term_leaves_longer_leases_as_they_are,
    leases::settling_repeated_answers_as_the_first,
    clocks::times_of_a_stream_go_back_with_the_clock,
    clocks::terms_and_deadlines_are_believed_for_their_longest_time_only,
    clocks::followed_step_gives_every_lease_its_whole_time,
    clocks::waits_of_a_clock_that_was_ahead_are_over,
    clocks::provider_is_asked_when_the_limit_of_a_clock_ahead_is_over,
    clocks::schedules_fire_by_the_clock_that_is_right_again,
    faults::raw_update_and_delete_are_refused,
    faults::flipped_bit_is_found,
    faults::tampered_projection_is_found_and_mended,
    faults::migrations_apply_again_and_refuse_newer,
    faults::feed_waits_for_a_late_committer,
    faults::busy_never_reaches_a_caller,
    faults::full_disk_loses_nothing,
    carry::an_imported_run_is_the_same_and_nobodys,
    carry::an_import_is_all_or_nothing,
    carry::an_imported_lineage_can_be_gone_on_with,
    carry::gc_drops_what_nothing_names,
    carry::gc_knows_what_the_feed_holds_back,
    carry::what_is_kept_for_a_later_name_is_not_collected,
    carry::a_blob_about_to_be_named_is_not_lost,
    carry::appends_and_collections_at_once_lose_nothing,
    archive::a_family_goes_and_comes_back_as_it_was,
    archive::nothing_goes_that_something_stands_on,
    archive::what_is_brought_back_is_as_young_as_its_return,
    stubs::what_another_task_waits_for_stays,
    archive::a_fork_and_the_archive_at_once,
    archive::no_event_is_deleted_past_the_one_path,
    archive::a_family_comes_back_once_and_whole,
    archive::a_copy_that_does_not_hold_removes_nothing,
    stubs::stubs_count,
    stubs::archives_of_two_builds_ruin_nothing,
    archive::terms_are_one_holders_at_a_time,
    blobs::large_blobs_are_files_and_small_ones_rows,
    blobs::a_blob_that_cannot_be_written_is_not_named,
    blobs::a_file_that_was_altered_or_lost_is_found,
    blobs::what_nothing_names_goes_with_its_file,
    blobs::a_blob_that_is_stored_while_it_is_dropped_is_whole,
    qualification::late_acknowledgement_after_takeover,
    qualification::completion_and_renewal_after_expiry,
    qualification::reuse_of_a_workers_name,
    qualification::no_retryable_failure_is_stranded,
    oracle::random_commands_agree_with_a_model,
];

/// Runs one case on a fresh database of `kind`.
///
/// # Panics
/// It fails; or there is none of that name.
pub async fn run_case(kind: Kind, name: &str) {
    let (_, case) = CASES.iter().find(|(known, _)| *known == name).expect("a case of that name");
    case(Database::new(&kind, &format!("one_{name}")).await).await;
}

/// Runs every case on a fresh database of `kind`, or those whose name holds one of the words of `DOCKET_CASE`, with
/// commas between them.
///
/// # Panics
/// Names every case that failed; or there is no such case.
pub async fn run_all(kind: Kind) {
    let only = std::env::var("DOCKET_CASE").unwrap_or_default();
    let mut failed = Vec::new();
    let asked = |name: &str| only.split(',').any(|word| name.contains(word));
    assert!(CASES.iter().any(|(name, _)| asked(name)), "no case is called `{only}`");
    for (name, case) in CASES.iter().filter(|(name, _)| asked(name)) {
        let database = Database::new(&kind, name).await;
        if let Err(error) = tokio::spawn(case(database)).await {
            failed.push(format!("{name}: {error}"));
        }
    }
    assert!(failed.is_empty(), "on {kind}: {failed:#?}");
}

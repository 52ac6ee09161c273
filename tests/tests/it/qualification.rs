//! The cases that any queue is asked for, each a test of its own on either store, so that a name runs it:
//! `cargo test late_acknowledgement`. What they do stands in `docket_tests::conformance`, among all the others.

use docket_tests::{
    conformance::{DatabaseKind, run_case},
    pg_cluster::PostgresCluster,
};

macro_rules! on_both {
    ($($case:literal: $on_sqlite:ident, $on_postgres:ident;)*) => {$(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $on_sqlite() {
            run_case(DatabaseKind::Sqlite, $case).await;
        }

        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $on_postgres() {
            if let Some(cluster) = PostgresCluster::start() {
                run_case(DatabaseKind::Postgres { server: cluster.url().to_owned() }, $case).await;
            }
        }
    )*};
}

on_both! {
    "late_completion_after_takeover_is_refused":
        late_acknowledgement_on_sqlite, late_acknowledgement_on_postgres;
    "completion_and_renewal_after_expiry_are_refused":
        completion_and_renewal_after_expiry_on_sqlite, completion_and_renewal_after_expiry_on_postgres;
    "restarted_worker_does_not_inherit_leases":
        reuse_of_a_workers_name_on_sqlite, reuse_of_a_workers_name_on_postgres;
    "no_retryable_failure_is_stranded":
        no_retryable_failure_is_stranded_on_sqlite, no_retryable_failure_is_stranded_on_postgres;
    "busy_errors_never_reach_callers":
        busy_never_reaches_a_caller_on_sqlite, busy_never_reaches_a_caller_on_postgres;
    "enqueue_joins_the_callers_transaction":
        enqueue_in_the_callers_transaction_on_sqlite, enqueue_in_the_callers_transaction_on_postgres;
}

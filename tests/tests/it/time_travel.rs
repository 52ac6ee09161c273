//! A run of thirty turns dies at turn 15 in the middle of a command that changes files, by kill -9 of the
//! run process and its supervisor; then it goes on: by itself, from its last whole turn, from turn 7, and
//! as a fork from turn 7. Each time its files are those of that turn, compared byte for byte with what this
//! test works out itself, and the undisturbed tree is reached in the end.
//!
//! Nothing depends on time: the command says by a folder that it is in its middle, and waits to be let on.

pub(crate) mod journey;
mod recovery_paths;

use anyhow::Result;
use docket_tests::pg_cluster::PostgresCluster;
use recovery_paths::{RecoveryPath, check_recovery, undisturbed_tree};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn undisturbed_run_has_the_expected_files_after_every_turn() -> Result<()> {
    undisturbed_tree().await.map(|_| ())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_killed_mid_command_continues_by_itself_on_sqlite() -> Result<()> {
    Box::pin(check_recovery(RecoveryPath::Itself, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_killed_mid_command_is_resumed_from_its_last_turn_on_sqlite() -> Result<()> {
    Box::pin(check_recovery(RecoveryPath::ResumeLast, None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_killed_mid_command_is_resumed_from_turn_7_on_sqlite() -> Result<()> {
    Box::pin(check_recovery(RecoveryPath::ResumeAt(7), None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_killed_mid_command_is_forked_from_turn_7_on_sqlite() -> Result<()> {
    Box::pin(check_recovery(RecoveryPath::ForkAt(7), None)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_killed_mid_command_continues_by_itself_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(check_recovery(RecoveryPath::Itself, Some(&cluster))).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_killed_mid_command_is_resumed_and_forked_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    Box::pin(check_recovery(RecoveryPath::ResumeLast, Some(&cluster))).await?;
    Box::pin(check_recovery(RecoveryPath::ResumeAt(7), Some(&cluster))).await?;
    Box::pin(check_recovery(RecoveryPath::ForkAt(7), Some(&cluster))).await
}

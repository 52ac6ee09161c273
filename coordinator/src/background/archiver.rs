//! Background job that archives tasks past their configured retention.
//!
//! One coordinator at a time runs it, under a leader lease. If two run it at once because a clock is wrong,
//! each writes its own files and one of them finds the streams gone.

use std::{sync::Arc, time::Duration};

use docket_schema::ids::QueueName;
use tokio_util::sync::CancellationToken;

use crate::{
    app::AppState,
    archive::{ArchivePassRequest, KeepFor, ObjectStorage, TaskArchiver},
    clock::{self, jittered_interval},
    error_chain::error_chain,
    store::{QueueSelection, TermOutcome, TermRequest},
};

/// How often old tasks are looked for.
const ARCHIVE_INTERVAL: Duration = Duration::from_secs(3600);

/// Delay of the first pass after a start, so that it does not compete with startup work.
const FIRST_DELAY: Duration = Duration::from_secs(60);

/// Length of the leader lease, longer than one page takes.
const TERM_MS: u64 = 120_000;

/// Longest time for one page, after which the leader lease is renewed.
const PAGE_TIME_MAX: Duration = Duration::from_secs(10);

/// Archives old tasks until shutdown.
pub(crate) async fn archive_old_tasks(app: Arc<AppState>) {
    let archiver = app.task_archiver();
    if archiver.settings.url.is_none() || archiver.settings.retention.keeps_everything() {
        return;
    }
    let holder = clock::new_id().to_string();
    // Tests shorten the interval and do not wait an hour.
    let (first, every) =
        archiver.settings.interval.map_or((FIRST_DELAY, ARCHIVE_INTERVAL), |every| (every, every));
    let mut wait = first;
    loop {
        tokio::select! {
            () = app.shutdown.cancelled() => return,
            () = tokio::time::sleep(jittered_interval(wait)) => {}
        }
        wait = every;
        if let Err(error) = archive_once(&archiver, &holder, &app.shutdown).await {
            tracing::error!("archiving is suspended: {error}");
        }
    }
}

async fn archive_once(
    archiver: &TaskArchiver,
    holder: &str,
    shutdown: &CancellationToken,
) -> Result<(), String> {
    let Some(to) = &archiver.settings.url else { return Ok(()) };
    let retention = &archiver.settings.retention;
    let named: Vec<QueueName> = retention.queues.keys().cloned().collect();
    let mut looks: Vec<(QueueSelection, KeepFor)> =
        retention.queues.iter().map(|(queue, keep)| (QueueSelection::Only(queue.clone()), *keep)).collect();
    looks.push((QueueSelection::AllBut(named), retention.others));
    for (queues, keep) in looks {
        let KeepFor::Ms(ms) = keep else { continue };
        let mut after = None;
        loop {
            let now = archiver.clock.now();
            let until = now.plus_ms(TERM_MS);
            let term = TermRequest {
                name: "archive",
                holder: holder.to_owned(),
                until,
                now,
                max_term_ms: TERM_MS,
                deadline_trust: None,
            };
            let taken = archiver.store.acquire_term(term).await.map_err(|error| error_chain(&error))?;
            if taken == TermOutcome::HeldByOther || shutdown.is_cancelled() {
                return Ok(());
            }
            let place = ObjectStorage::create(to).map_err(|error| error_chain(&error))?;
            let ago = i64::try_from(ms.saturating_mul(1000)).unwrap_or(i64::MAX);
            let asked = ArchivePassRequest {
                retention: retention.clone(),
                queues: queues.clone(),
                before: docket_schema::ids::Timestamp(now.0.saturating_sub(ago)),
                after,
                dry_run: false,
                by: "retention".to_owned(),
                time: PAGE_TIME_MAX,
            };
            let done =
                archiver.archive_page(Some(&place), &asked).await.map_err(|error| error_chain(&error))?;
            if !done.archived.is_empty() {
                tracing::info!(families = done.archived.len(), "archived old tasks");
            }
            for kept in &done.kept {
                tracing::debug!(task = %kept.task, "could not archive an old task: {}", kept.why);
            }
            after = done.next;
            if after.is_none() {
                break;
            }
        }
    }
    Ok(())
}

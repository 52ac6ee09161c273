//! Rows of the inbox become tasks, each by itself: one that is refused keeps back no other.

use std::collections::BTreeSet;

use docket_schema::{ids::Timestamp, task::TaskSpec};

use super::submit::plan_submit;
use crate::store::{
    AppendError, InboxFound, InboxMove, InboxMoved, NewTask,
    conn::Conn,
    desk::{Desk, LoadError},
    inbox::lock_waiting,
};

/// Plans taking `moves` out of the inbox.
pub(super) async fn plan_inbox(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    moves: &[InboxMove],
    now: Timestamp,
) -> Result<Vec<InboxMoved>, LoadError> {
    let ids = moves.iter().map(|one| one.row.clone()).collect();
    let mut here: BTreeSet<String> = lock_waiting(conn, ids).await?.into_iter().collect();
    // Another ask of this batch may have taken some already.
    here.retain(|row| !desk.staged.inbox.contains_key(row));
    let mut moved = Vec::with_capacity(moves.len());
    for one in moves {
        if !here.remove(&one.row) {
            moved.push(InboxMoved::Elsewhere);
            continue;
        }
        let became = match &one.found {
            InboxFound::NoTask(reason) => InboxMoved::Refused(reason.clone()),
            InboxFound::Task(task) => submit_one(desk, conn, task, &one.by, now).await?,
        };
        let reason = match &became {
            InboxMoved::Refused(reason) => Some(reason.clone()),
            InboxMoved::Submitted(_) | InboxMoved::Duplicate(_) | InboxMoved::Elsewhere => None,
        };
        desk.staged.inbox.insert(one.row.clone(), reason);
        moved.push(became);
    }
    Ok(moved)
}

async fn submit_one(
    desk: &mut Desk,
    conn: &mut Conn<'_>,
    task: &NewTask,
    by: &str,
    now: Timestamp,
) -> Result<InboxMoved, LoadError> {
    let answer = plan_submit(desk, conn, std::slice::from_ref(task), by, now).await?;
    Ok(match answer {
        Ok(submitted) => match submitted.first() {
            Some((holder, true)) => InboxMoved::Duplicate(*holder),
            Some((id, false)) => InboxMoved::Submitted(*id),
            None => InboxMoved::Submitted(task.id),
        },
        Err(AppendError::Store(error)) => return Err(error.into()),
        Err(refused) => InboxMoved::Refused(reason(&task.spec, &refused)),
    })
}

fn reason(spec: &TaskSpec, refused: &AppendError) -> String {
    match refused {
        AppendError::BlobMissing(blob) if spec.base.manifest.hash == *blob => {
            format!("no tree is stored under its base {blob}; enqueue `like` a task that has one")
        }
        other => other.to_string(),
    }
}

//! What became of a task's results, in `docket show`.

use docket_schema::task::{Deliveries, Judged, TaskDelivered, TaskRecord};
use docket_worker::client::Client;
use serde_json::{Value, json};

use super::pair;
use crate::{
    context::Context,
    delivery,
    output::{display, fail::Outcome},
};

/// For programs.
pub(super) async fn row(client: &Client, task: &TaskRecord) -> Outcome<Value> {
    let found = delivery::deliveries(client, task.id).await?;
    let judged = found.judged.as_ref().map(|judged| match judged {
        Judged::Accepted(e) => json!({ "accepted": true, "run": e.run, "by": e.by, "comment": e.comment }),
        Judged::Rejected(e) => json!({ "accepted": false, "run": e.run, "by": e.by, "comment": e.comment }),
    });
    Ok(json!({
        "wanted": task.spec.delivery(),
        "delivered": found.delivered,
        "begun": found.open,
        "blocked": found.blocked,
        "hook": found.hook(),
        "needless": found.needless,
        "judged": judged,
    }))
}

/// For people.
pub(super) fn say(cx: &Context, task: &TaskRecord, found: &Deliveries) {
    let place = |one: &TaskDelivered| {
        let of = one.remote.as_ref().map_or_else(String::new, |remote| format!(" of {remote}"));
        format!("run {}: branch {}{of} at {}", one.run.short(), one.branch, one.commit)
    };
    found.delivered.iter().for_each(|one| pair(cx, "delivered", &place(one)));
    if let Some(open) = &found.open {
        let id = task.id.short();
        let text = format!(
            "a push of {} to {} was begun and its end is not known; `docket push {id}` finds out",
            open.branch, open.remote
        );
        pair(cx, "push", &text);
    }
    if let Some(blocked) = found.blocked.as_ref().filter(|_| !task.is_undelivered()) {
        pair(cx, "not done", &display::in_one_line(&blocked.message));
    }
    if let Some(hook) = found.hook() {
        let exit = hook.exit.map_or_else(|| "no exit status".to_owned(), |exit| format!("exit {exit}"));
        let last = hook.output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        pair(cx, "hook", &format!("{exit}: {last}"));
    }
    match &found.judged {
        Some(Judged::Accepted(e)) => pair(cx, "accepted", &format!("by {} {}", e.by, e.comment)),
        Some(Judged::Rejected(e)) => pair(cx, "rejected", &format!("by {}: {}", e.by, e.comment)),
        None => {}
    }
}

//! The deliveries and reviews of a task's results, for `docket show`.

use docket_schema::task::{DeliveryHistory, ResultReview, TaskDelivered, TaskRecord};
use docket_worker::client::CoordinatorClient;
use serde_json::{Value, json};

use super::print_field;
use crate::{
    context::CliContext,
    delivery,
    output::{display, error::CliResult},
};

/// Returns the deliveries for `--json`.
pub(super) async fn delivery_json(client: &CoordinatorClient, task: &TaskRecord) -> CliResult<Value> {
    let found = delivery::fetch_deliveries(client, task.id).await?;
    let judged = found.review.as_ref().map(|judged| match judged {
        ResultReview::Accepted(e) => {
            json!({ "accepted": true, "run": e.run, "by": e.by, "comment": e.comment })
        }
        ResultReview::Rejected(e) => {
            json!({ "accepted": false, "run": e.run, "by": e.by, "comment": e.comment })
        }
    });
    Ok(json!({
        "wanted": task.spec.delivery_mode(),
        "delivered": found.delivered,
        "begun": found.open_push,
        "blocked": found.blocked,
        "hook": found.last_hook_run(),
        "needless": found.unchanged_run,
        "judged": judged,
    }))
}

/// Prints the deliveries.
pub(super) fn print_deliveries(cx: &CliContext, task: &TaskRecord, found: &DeliveryHistory) {
    let place = |one: &TaskDelivered| {
        let of = one.remote.as_ref().map_or_else(String::new, |remote| format!(" of {remote}"));
        format!("run {}: branch {}{of} at {}", one.run.short(), one.branch, one.commit)
    };
    found.delivered.iter().for_each(|one| print_field(cx, "delivered", &place(one)));
    if let Some(open) = &found.open_push {
        let id = task.id.short();
        let text = format!(
            "a push of {} to {} was started and its outcome is unknown; check it with `docket push {id}`",
            open.branch, open.remote
        );
        print_field(cx, "push", &text);
    }
    if let Some(blocked) = found.blocked.as_ref().filter(|_| !task.is_undelivered()) {
        print_field(cx, "failed", &display::collapse_whitespace(&blocked.message));
    }
    if let Some(hook) = found.last_hook_run() {
        let exit = hook.exit.map_or_else(|| "no exit status".to_owned(), |exit| format!("exit {exit}"));
        let last = hook.output.lines().rfind(|line| !line.trim().is_empty()).unwrap_or_default();
        print_field(cx, "hook", &format!("{exit}: {last}"));
    }
    match &found.review {
        Some(ResultReview::Accepted(e)) => print_field(cx, "accepted", &format!("by {} {}", e.by, e.comment)),
        Some(ResultReview::Rejected(e)) => {
            print_field(cx, "rejected", &format!("by {}: {}", e.by, e.comment))
        }
        None => {}
    }
}

//! What the stepper does beyond looking, once it was confirmed: fork and resume, as the commands of those
//! names do.

use docket_schema::ids::RunId;

use super::model::Act;
use crate::{
    access::{Access, Need},
    context::Context,
    fail::{Exit, Failure, Outcome},
};

/// What it is called.
pub(super) const fn name(act: Act) -> &'static str {
    match act {
        Act::Fork(_) => "fork",
        Act::Resume(_) => "resume",
    }
}

/// Does it; what came of it, in a line.
pub(super) async fn perform(cx: &Context, run: RunId, act: Act) -> Outcome<String> {
    // The stepper itself only looks, and may share the home with others; who changes something owns it
    // while that lasts.
    let access = Access::open(cx, Need::Write).await?;
    let done = match act {
        Act::Fork(turn) => {
            let message = format!("not from here yet: `docket fork {} --turn {turn}`", run.short());
            Err(Failure::new(Exit::Refused, message))
        }
        Act::Resume(turn) => {
            access.client.resume(run, Some(turn.0)).await.map_err(Failure::from).map(|done| {
                let new = done.run.short();
                format!("run {new} goes on after turn {turn}; `docket step {new}` shows it")
            })
        }
    };
    let workers = access.is_alone();
    access.close().await?;
    let hint = if workers { " (`docket up` starts workers)" } else { "" };
    done.map(|text| text + hint)
}

//! `docket notify`: lists notification targets and deliveries; retries, drops and tests them.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use docket_schema::{
    api::{
        DeliveryState, DeliveryView, DropNotificationRequest, NOTIFICATIONS_MAX, NotificationList,
        NotificationQuery, NotificationView, ProblemCode, RetryNotificationRequest, TestNotificationRequest,
    },
    ids::NotificationId,
    system::NotificationContent,
};
use docket_worker::client::{ClientError, CoordinatorClient};

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display::{self, TableCell, TextStyle, TextTable},
        error::{CliError, CliResult, ExitKind},
    },
};

pub(crate) use crate::connect::notifiers::targets::NotifyTargets;

/// How long a test waits for its first delivery attempt.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// Poll interval while a test waits.
const TEST_POLL: Duration = Duration::from_millis(200);
/// Notifications per page.
const PAGE_NOTIFICATIONS: u32 = NOTIFICATIONS_MAX;

/// Command-line arguments of `docket notify`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Targets are configured in docket.toml of the coordinator's home, each as a [[notify]] with a `url`
and a secret (a request signed by the Standard Webhooks specification), or with a `command` (which
receives JSON on standard input). They are notified when a task needs a person (task.blocked),
when a task is given up (task.failed), when all tasks of a batch have ended (batch.finished) and
when a batch has used up its budget (budget.spent). Failed deliveries are retried with increasing
delays and finally become dead letters. A notification keeps its id across all attempts.

Examples:
  docket notify                            # targets and recent deliveries
  docket notify list --state dead          # failed deliveries, and why
  docket notify test                       # send a test notification to every target
  docket notify test --target ops
  docket notify retry 3f9c01ab             # retry its failed deliveries
  docket notify retry --all                # retry all dead letters
  docket notify drop 3f9c01ab              # give up its failed deliveries"
)]
pub(crate) struct NotifyArgs {
    #[command(subcommand)]
    command: Option<NotifyCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum NotifyCommand {
    /// List targets and recent deliveries (the default subcommand)
    #[command(after_help = "Examples:
  docket notify list
  docket notify list --state dead --json")]
    List(NotifyListArgs),
    /// Retry failed deliveries now
    #[command(after_help = "Examples:
  docket notify retry 3f9c01ab
  docket notify retry 3f9c01ab --target ops
  docket notify retry --all")]
    Retry {
        /// Notification ID, as shown by `docket notify`
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// Only this target
        #[arg(long, value_name = "NAME")]
        target: Option<String>,
        /// Apply to all dead letters
        #[arg(long)]
        all: bool,
    },
    /// Give up failed deliveries: they no longer count as dead letters but stay in the log
    #[command(after_help = "Examples:
  docket notify drop 3f9c01ab
  docket notify drop 3f9c01ab --target ops
  docket notify drop --all")]
    Drop {
        /// Notification ID, as shown by `docket notify`
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// Only this target
        #[arg(long, value_name = "NAME")]
        target: Option<String>,
        /// Apply to all dead letters
        #[arg(long)]
        all: bool,
    },
    /// Send a test notification and wait for the outcome
    #[command(after_help = "Examples:
  docket notify test
  docket notify test --target ops")]
    Test {
        /// Only this target
        #[arg(long, value_name = "NAME")]
        target: Option<String>,
    },
}

#[derive(Debug, Default, clap::Args)]
struct NotifyListArgs {
    /// Only notifications with a delivery in this state: waiting, delivered, dead, dropped
    #[arg(long, value_name = "STATE")]
    state: Option<DeliveryState>,
    /// Maximum number of rows to show
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

pub(crate) async fn run_notify(cx: CliContext, args: NotifyArgs) -> CliResult {
    let what = args.command.unwrap_or(NotifyCommand::List(NotifyListArgs { state: None, limit: 20 }));
    let need = if matches!(what, NotifyCommand::List(_)) { AccessMode::Read } else { AccessMode::Write };
    let access = Coordinator::connect(&cx, need).await?;
    let is_alone = access.is_local();
    let done = match what {
        NotifyCommand::List(NotifyListArgs { state, limit }) => {
            let query = NotificationQuery { state, limit: Some(limit) };
            access
                .client
                .list_notifications(&query)
                .await
                .map_err(CliError::from)
                .and_then(|list| print_notifications(&cx, &list))
        }
        NotifyCommand::Retry { id, target, .. } => {
            apply_act(&cx, &access.client, id, DeadLetterAct::Retry, target).await
        }
        NotifyCommand::Drop { id, target, .. } => {
            apply_act(&cx, &access.client, id, DeadLetterAct::Drop, target).await
        }
        NotifyCommand::Test { target } => send_test(&cx, &access.client, target, is_alone).await,
    };
    access.close().await?;
    done
}

fn print_notifications(cx: &CliContext, list: &NotificationList) -> CliResult<ExitKind> {
    if cx.is_json() {
        display::print_json(list);
        return Ok(ExitKind::Ok);
    }
    if list.targets.is_empty() {
        display::print_note(
            "no targets: add a [[notify]] section to docket.toml (see `docket notify --help`)",
        );
    } else {
        display::print_line(targets_table(list).render(cx.screen).trim_end());
    }
    if !list.notifications.is_empty() {
        display::print_line("");
        display::print_line(deliveries_table(&list.notifications).render(cx.screen).trim_end());
    }
    if list.dead > 0 {
        let letters = display::format_count(list.dead, "dead letter");
        display::print_note(&format!(
            "{letters}; list them with `docket notify list --state dead`, then `retry` or `drop` them"
        ));
    }
    Ok(ExitKind::Ok)
}

fn targets_table(list: &NotificationList) -> TextTable {
    let mut table = TextTable::new(&["TARGET", "KIND", "AT", "ON", "QUEUES", "BATCHES"]);
    let joined = |names: Vec<String>| if names.is_empty() { "all".to_owned() } else { names.join(",") };
    for target in &list.targets {
        table.add_row(vec![
            TableCell::new(&target.name),
            TableCell::new(target.kind.as_str()),
            TableCell::new(&target.at),
            TableCell::new(target.on.iter().map(|kind| kind.as_str()).collect::<Vec<_>>().join(",")),
            TableCell::new(joined(target.queues.iter().map(ToString::to_string).collect())),
            TableCell::new(joined(target.batches.clone())),
        ]);
    }
    table
}

fn deliveries_table(notifications: &[NotificationView]) -> TextTable {
    let mut table = TextTable::new(&["ID", "WHEN", "KIND", "TARGET", "STATE", "TRIES", "WHAT"]);
    for one in notifications {
        for delivery in &one.deliveries {
            table.add_row(vec![
                TableCell::new(one.id.short()),
                TableCell::new(one.at.to_string()),
                TableCell::new(one.kind.as_str()),
                TableCell::new(&delivery.target),
                state_cell(delivery),
                TableCell::new(delivery.attempts.to_string()),
                TableCell::new(describe_delivery(&one.notice, delivery)),
            ]);
        }
    }
    table
}

fn state_cell(delivery: &DeliveryView) -> TableCell {
    let style = match delivery.state {
        DeliveryState::Waiting => TextStyle::Warn,
        DeliveryState::Delivered => TextStyle::Good,
        DeliveryState::Dead => TextStyle::Bad,
        DeliveryState::Dropped => TextStyle::Dim,
    };
    TableCell::styled(delivery.state.as_str(), style)
}

/// Describes the subject of a notification and the last delivery error.
fn describe_delivery(notice: &NotificationContent, delivery: &DeliveryView) -> String {
    let about = match notice {
        NotificationContent::TaskBlocked { of, .. } | NotificationContent::TaskFailed { of, .. } => {
            format!("{} {}", of.task.short(), of.title)
        }
        NotificationContent::BatchFinished { of, .. } | NotificationContent::BudgetSpent { of, .. } => {
            of.name.clone().unwrap_or_else(|| of.batch.short())
        }
        NotificationContent::Test { .. } => notice.describe(),
    };
    match &delivery.why {
        Some(why) => format!("{about} ({why})"),
        None => about,
    }
}

/// Action on a failed delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DeadLetterAct {
    Retry,
    Drop,
}

impl DeadLetterAct {
    async fn apply(
        self,
        client: &CoordinatorClient,
        id: NotificationId,
        target: Option<String>,
    ) -> Result<NotificationView, ClientError> {
        match self {
            Self::Retry => client.retry_notification(id, &RetryNotificationRequest { target }).await,
            Self::Drop => client.drop_notification(id, &DropNotificationRequest { target }).await,
        }
    }

    fn describe(self, view: &NotificationView) -> String {
        let (state, words) = match self {
            Self::Retry => (DeliveryState::Waiting, "will be retried"),
            Self::Drop => (DeliveryState::Dropped, "dropped for"),
        };
        let meant = view.deliveries.iter().filter(|one| one.state == state);
        let names: Vec<&str> = meant.map(|one| one.target.as_str()).collect();
        format!("{} {} {words}: {}", view.kind, view.id.short(), names.join(", "))
    }
}

/// Applies the action to one notification or to all dead letters. A refusal is reported and does
/// not stop the others.
async fn apply_act(
    cx: &CliContext,
    client: &CoordinatorClient,
    id: Option<String>,
    act: DeadLetterAct,
    target: Option<String>,
) -> CliResult<ExitKind> {
    let say = |view: &NotificationView| {
        if cx.is_json() {
            display::print_json(view);
        } else {
            display::print_line(&act.describe(view));
        }
    };
    if let Some(text) = id {
        say(&act.apply(client, resolve_notification(client, &text).await?, target).await?);
        return Ok(ExitKind::Ok);
    }
    let (mut tried, mut done, mut refused) = (BTreeSet::new(), 0_u64, 0_u64);
    loop {
        let dead = NotificationQuery { state: Some(DeliveryState::Dead), limit: Some(PAGE_NOTIFICATIONS) };
        let page = client.list_notifications(&dead).await?.notifications;
        let meant = |one: &NotificationView| {
            one.deliveries.iter().any(|delivery| {
                delivery.state == DeliveryState::Dead
                    && target.as_ref().is_none_or(|target| *target == delivery.target)
            })
        };
        // Also matches refused notifications, and those that became dead letters again meanwhile.
        let ids: Vec<NotificationId> =
            page.iter().filter(|one| meant(one)).map(|one| one.id).filter(|id| tried.insert(*id)).collect();
        if ids.is_empty() {
            break;
        }
        for id in ids {
            match act.apply(client, id, target.clone()).await {
                Ok(view) => {
                    done += 1;
                    say(&view);
                }
                // The delivery was settled meanwhile, or none of the targets exists here.
                Err(ClientError::Problem(problem))
                    if matches!(problem.code, ProblemCode::WrongState | ProblemCode::NotFound) =>
                {
                    refused += 1;
                    display::print_note(&format!("{}: {}", id.short(), problem.detail));
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    if done + refused == 0 {
        display::print_note("no dead letters");
    }
    Ok(if refused == 0 { ExitKind::Ok } else { ExitKind::Failed })
}

/// Finds a notification by a prefix or suffix of its ID, among the newest ones and the dead
/// letters.
async fn resolve_notification(client: &CoordinatorClient, text: &str) -> CliResult<NotificationId> {
    if let Ok(id) = text.parse() {
        return Ok(id);
    }
    let mut ids = Vec::new();
    for state in [None, Some(DeliveryState::Dead), Some(DeliveryState::Waiting)] {
        let list =
            client.list_notifications(&NotificationQuery { state, limit: Some(PAGE_NOTIFICATIONS) }).await?;
        ids.extend(list.notifications.iter().map(|one| one.id));
    }
    find_by_digits(ids, text)
}

fn find_by_digits(mut ids: Vec<NotificationId>, text: &str) -> CliResult<NotificationId> {
    let digits = text.replace('-', "").to_ascii_lowercase();
    let is_hex = !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_hexdigit());
    ids.sort_unstable();
    ids.dedup();
    ids.retain(|id| {
        let all = id.0.simple().to_string();
        is_hex && (all.starts_with(&digits) || all.ends_with(&digits))
    });
    match ids[..] {
        [id] => Ok(id),
        [] => {
            let message = format!("no notification matches `{text}`; see `docket notify`");
            Err(CliError::new(ExitKind::NotFound, message))
        }
        [..] => {
            let message = format!("`{text}` matches {} notifications; use more of the id", ids.len());
            Err(CliError::new(ExitKind::NotFound, message))
        }
    }
}

async fn send_test(
    cx: &CliContext,
    client: &CoordinatorClient,
    target: Option<String>,
    is_alone: bool,
) -> CliResult<ExitKind> {
    let mut view = client.test_notification(&TestNotificationRequest { target }).await?;
    if is_alone {
        display::print_note(
            "no coordinator is running for this home; deliveries start with `docket up` or `docket serve`",
        );
    }
    let until = Instant::now() + TEST_TIMEOUT;
    let is_open = |one: &DeliveryView| one.state == DeliveryState::Waiting && one.attempts == 0;
    while !is_alone && view.deliveries.iter().any(is_open) && Instant::now() < until {
        // Another process delivers, so poll what it records.
        tokio::time::sleep(TEST_POLL).await;
        let list = client
            .list_notifications(&NotificationQuery { state: None, limit: Some(PAGE_NOTIFICATIONS) })
            .await?;
        let id = view.id;
        view = list.notifications.into_iter().find(|one| one.id == id).unwrap_or(view);
    }
    let taken = view.deliveries.iter().all(|one| one.state == DeliveryState::Delivered);
    if cx.is_json() {
        display::print_json(&view);
    } else {
        for delivery in &view.deliveries {
            let why = delivery.why.as_ref().map_or_else(String::new, |why| format!(": {why}"));
            display::print_line(&format!("{}: {}{why}", delivery.target, delivery.state));
        }
    }
    Ok(if taken || is_alone { ExitKind::Ok } else { ExitKind::Failed })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn notification_is_found_by_prefix_or_suffix_of_its_id() {
        let ids = [0x0190_0000_0000_0000_0000_0000_0000_00aa, 0x0190_0000_0000_0000_0000_0000_0000_00bb];
        let two = || ids.iter().chain(&ids).map(|id| NotificationId(uuid::Uuid::from_u128(*id))).collect();
        assert_eq!(find_by_digits(two(), "00bb").expect("one").0.as_u128() & 0xff, 0xbb);
        assert_eq!(find_by_digits(two(), "0190").expect_err("two").exit, ExitKind::NotFound);
        for bad in ["", "zz", "00cc"] {
            assert!(find_by_digits(two(), bad).expect_err(bad).error.to_string().contains("no notification"));
        }
    }
}

//! `docket notify`: who is told of what needs them, what became of it; once more, no more, for a try.

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

/// How long a try waits for its first attempt to end.
const TEST_TIMEOUT: Duration = Duration::from_secs(30);
/// How often it is looked for that.
const TEST_POLL: Duration = Duration::from_millis(200);
/// Notifications that are read at once.
const PAGE_NOTIFICATIONS: u32 = NOTIFICATIONS_MAX;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Targets stand in docket.toml of the coordinator's home, each as a [[notify]] with a `url` and a secret (a request
signed by the Standard Webhooks specification), or with a `command` (which reads JSON on its standard input). They are
told when a task needs a person (task.blocked), when one was given up (task.failed), when all tasks of a batch have
ended (batch.finished) and when what a batch may use is used up (budget.spent). Who does not take something is told
again, later and later, and at last it is a dead letter. Each notification has one id, however often it is sent.

Examples:
  docket notify                            # who is told, and of what lately
  docket notify list --state dead          # what nobody took, and why
  docket notify test                       # tell every target something, for a try
  docket notify test --target ops
  docket notify retry 3f9c01ab             # once more, to those who did not take it
  docket notify retry --all                # all dead letters
  docket notify drop 3f9c01ab              # nobody need be told of it any more"
)]
pub(crate) struct NotifyArgs {
    #[command(subcommand)]
    command: Option<NotifyCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum NotifyCommand {
    /// Who is told, and what became of it (as without a subcommand)
    #[command(after_help = "Examples:
  docket notify list
  docket notify list --state dead --json")]
    List(NotifyListArgs),
    /// Tell once more, at once, who did not take something
    #[command(after_help = "Examples:
  docket notify retry 3f9c01ab
  docket notify retry 3f9c01ab --target ops
  docket notify retry --all")]
    Retry {
        /// The notification, as `docket notify` shows it
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// This target alone
        #[arg(long, value_name = "NAME")]
        target: Option<String>,
        /// All dead letters
        #[arg(long)]
        all: bool,
    },
    /// Give up what somebody did not take: it is no dead letter any more, and stays in the log
    #[command(after_help = "Examples:
  docket notify drop 3f9c01ab
  docket notify drop 3f9c01ab --target ops
  docket notify drop --all")]
    Drop {
        /// The notification, as `docket notify` shows it
        #[arg(required_unless_present = "all", conflicts_with = "all")]
        id: Option<String>,
        /// This target alone
        #[arg(long, value_name = "NAME")]
        target: Option<String>,
        /// All dead letters
        #[arg(long)]
        all: bool,
    },
    /// Tell targets something, for a try, and wait for what they make of it
    #[command(after_help = "Examples:
  docket notify test
  docket notify test --target ops")]
    Test {
        /// This target alone
        #[arg(long, value_name = "NAME")]
        target: Option<String>,
    },
}

#[derive(Debug, Default, clap::Args)]
struct NotifyListArgs {
    /// Those with a delivery in this state: waiting, delivered, dead, dropped
    #[arg(long, value_name = "STATE")]
    state: Option<DeliveryState>,
    /// At most this many
    #[arg(long, value_name = "N", default_value_t = 20, value_parser = clap::value_parser!(u32).range(1..=1000))]
    limit: u32,
}

/// Does it.
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
            "nobody is told: add a [[notify]] to docket.toml; `docket notify --help` says more",
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
        display::print_note(&format!("{letters}; `docket notify list --state dead`, then `retry` or `drop`"));
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

/// What it is about, and what went wrong.
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

/// What is done with what somebody did not take.
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
            Self::Retry => (DeliveryState::Waiting, "is told once more"),
            Self::Drop => (DeliveryState::Dropped, "need not be told to"),
        };
        let meant = view.deliveries.iter().filter(|one| one.state == state);
        let names: Vec<&str> = meant.map(|one| one.target.as_str()).collect();
        format!("{} {} {words}: {}", view.kind, view.id.short(), names.join(", "))
    }
}

/// Does it with the one that is named, or with all dead letters: those that refuse are told of, and hold up no other.
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
        // Those that refused are dead letters still, and so is what came back dead meanwhile.
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
                // It was settled meanwhile, or is for nobody here.
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
        display::print_note("there are no dead letters");
    }
    Ok(if refused == 0 { ExitKind::Ok } else { ExitKind::Failed })
}

/// The notification of this id, or of whose id this is the beginning or the end: among the newest, and the dead letters.
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
            let message = format!("there is no notification `{text}`; `docket notify` lists them");
            Err(CliError::new(ExitKind::NotFound, message))
        }
        [..] => {
            let message = format!("`{text}` begins or ends {} notifications; give more of it", ids.len());
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
            "nobody serves this home: targets are told once `docket up` or `docket serve` does",
        );
    }
    let until = Instant::now() + TEST_TIMEOUT;
    let is_open = |one: &DeliveryView| one.state == DeliveryState::Waiting && one.attempts == 0;
    while !is_alone && view.deliveries.iter().any(is_open) && Instant::now() < until {
        // Another process tells: there is nothing to wait for but what it wrote.
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

//! Notifications on real processes: what a blocked, a failed task, a batch's end and its budget tell a receiver; who does
//! not take it; coordinators that are killed at it; programs that are told.

mod receiver;
mod unusual;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::{DeliveryState, DeliveryView, NotificationQuery, NotificationView, TestNotificationRequest},
    ids::{NotificationId, TaskId},
    task::TaskState,
};
use docket_tests::{
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, FinishedProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram,
        WorkerOptions, WorkerProcess, acquire_scenario_slot, fresh_database, run_program, wait_until,
    },
};
use receiver::{HookReply, ReceivedRequest, WebhookReceiver};
use serde_json::{Value, json};

const NEW: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
const OLD: &str = "whsec_b2xkIG9sZCBvbGQgb2xkIG9sZCBvbGQgb2xk";

const ASKS: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "one.txt", content = "one\n" } }]
[[turns]]
text = "BLOCKED: which port shall it listen on?"
"#;

const FAILS: &str = r#"
after_end = "repeat_last"
[[turns]]
calls = [{ name = "run_command", args = { command = "false" } }]
"#;

const WORKS: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "one.txt", content = "one\n" } }]
[[turns]]
text = "Done."
"#;

/// A `[[notify]]` for a hook of the receiver, with more lines.
fn webhook_settings(port: u16, name: &str, more: &str) -> String {
    format!(
        "[[notify]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:{port}/{name}\"\nsecret = [\"{NEW}\", \"{OLD}\"]\n{more}\n"
    )
}

fn write_settings(home: &Path, text: &str) -> Result<()> {
    Ok(std::fs::write(home.join("docket.toml"), text)?)
}

/// A repository and scripts for its tasks.
struct NotifyScripts {
    sample: SampleRepository,
    folder: tempfile::TempDir,
}

impl NotifyScripts {
    fn new() -> Result<Self> {
        Ok(Self { sample: SampleRepository::new(&[("a.txt", "a\n")])?, folder: tempfile::tempdir()? })
    }

    fn write_script(&self, name: &str, text: &str) -> Result<String> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.to_str().context("UTF-8")?.to_owned())
    }

    async fn submit_task(&self, to: &CoordinatorProcess, script: &str, more: &[&str]) -> Result<TaskId> {
        let script = self.write_script(&format!("{}.toml", blake3::hash(script.as_bytes())), script)?;
        let args = ["--model", "scripted:s", "--script", &script, "--tests", "true"];
        Ok(self.sample.submit(to, &[&args[..], more].concat()).await?.0)
    }

    /// A task that fails at once.
    async fn submit_failing(&self, to: &CoordinatorProcess) -> Result<TaskId> {
        self.submit_task(to, FAILS, &["--turns", "2", "--attempts", "1"]).await
    }
}

async fn list_notifications(coordinator: &CoordinatorProcess) -> Result<Vec<NotificationView>> {
    let query = NotificationQuery { state: None, limit: Some(1000) };
    Ok(coordinator.client().list_notifications(&query).await?.notifications)
}

/// A notification's delivery to a target, once it is as wanted.
async fn wait_for_delivery(
    coordinator: &CoordinatorProcess,
    (id, target): (NotificationId, &str),
    is: impl Fn(&DeliveryView) -> bool,
) -> Result<DeliveryView> {
    let what = format!("a delivery to {target}");
    let found = wait_until(&what, async || {
        let all = list_notifications(coordinator).await.ok()?;
        let one = all.into_iter().find(|one| one.id == id)?;
        one.deliveries.into_iter().find(|one| one.target == target && is(one))
    });
    let found = found.await;
    let known = list_notifications(coordinator).await;
    found.with_context(|| format!("{known:#?}\n{}", coordinator.log_tail()))
}

async fn send_test(coordinator: &CoordinatorProcess) -> Result<NotificationId> {
    Ok(coordinator.client().test_notification(&TestNotificationRequest::default()).await?.id)
}

fn is_in_state(state: DeliveryState) -> impl Fn(&DeliveryView) -> bool {
    move |one| one.state == state
}

async fn import_batch(
    to: &CoordinatorProcess,
    scripts: &NotifyScripts,
    lines: &[Value],
    more: &[&str],
) -> Result<()> {
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let file = scripts.write_script("todo.jsonl", &lines.join("\n"))?;
    let repo = scripts.sample.path().to_str().context("UTF-8")?;
    let args = ["import", &file, "--repo", repo, "--tests", "true", "--model", "scripted:s"];
    to.run_docket(&[&args[..], more].concat()).await?.into_stdout().map(drop)
}

async fn check_each_kind_is_sent_once(place: StoreLocation) -> Result<()> {
    let receiver = WebhookReceiver::start().await?;
    let (home, archive) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let failures = "on = [\"task.failed\"]\nqueues = [\"elsewhere\"]";
    let text = format!(
        "[server]\npublic_url = \"https://docket.example/\"\n[archive]\nto = \"file://{}\"\n{}{}{}",
        archive.path().display(),
        webhook_settings(receiver.port, "all", ""),
        webhook_settings(receiver.port, "batches", "on = [\"batch.finished\"]\nbatches = [\"mixed\"]"),
        webhook_settings(receiver.port, "elsewhere", failures),
    );
    write_settings(home.path(), &text)?;
    let coordinator = CoordinatorProcess::start_in(home.path(), place, LeaseDuration::Usual).await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let scripts = NotifyScripts::new()?;

    let asks = scripts.submit_task(&coordinator, ASKS, &[]).await?;
    let blocked =
        receiver.wait_for_request("all", "a blocked task", |got| got.kind() == "task.blocked").await;
    let blocked = blocked.with_context(|| format!("{}\n{}", coordinator.log_tail(), worker.log_tail()))?;
    let view = coordinator.client().get_task(asks).await?;
    let run = view.task.run.context("the run that asks")?;
    ensure!(
        *blocked.data_field("task") == asks.to_string() && *blocked.data_field("run") == run.to_string(),
        "{blocked:?}"
    );
    ensure!(*blocked.data_field("block") == "person", "{blocked:?}");
    ensure!(
        blocked.data_field("question").as_str().is_some_and(|asked| asked.contains("which port")),
        "{blocked:?}"
    );
    ensure!(*blocked.data_field("link") == format!("https://docket.example/ui/run/{run}"), "{blocked:?}");

    let fails = scripts.submit_failing(&coordinator).await?;
    let failed = receiver.wait_for_request("all", "a failed task", |got| got.kind() == "task.failed").await?;
    ensure!(
        *failed.data_field("task") == fails.to_string() && *failed.data_field("reason") == "failures",
        "{failed:?}"
    );
    let message = coordinator.client().get_task(fails).await?.task.message.context("why it failed")?;
    ensure!(*failed.data_field("message") == message.as_str(), "{failed:?}");

    // A batch of two ends once, whatever its tasks came to; a task that is added and ends is told again.
    let works = scripts.write_script("works.toml", WORKS)?;
    let fails_file = scripts.write_script("fails.toml", FAILS)?;
    let mut lines = vec![
        json!({ "key": "a", "text": "Works", "script": works }),
        json!({ "key": "b", "text": "Fails", "script": fails_file, "turns": 2, "attempts": 1 }),
    ];
    import_batch(&coordinator, &scripts, &lines, &["--batch", "mixed"]).await?;
    let finished =
        receiver.wait_for_request("batches", "a batch's end", |got| got.kind() == "batch.finished").await?;
    let counts = json!({ "all": 2, "completed": 1, "cancelled": 0, "discarded": 1 });
    ensure!(
        *finished.data_field("tasks") == counts && *finished.data_field("batch_name") == "mixed",
        "{finished:?}"
    );
    lines.push(json!({ "key": "c", "text": "Works too", "script": works }));
    import_batch(&coordinator, &scripts, &lines, &["--batch", "mixed"]).await?;
    let again = receiver
        .wait_for_request("batches", "its end again", |got| *got.data_field("tasks") != counts)
        .await?;
    ensure!(
        again.data_field("tasks")["all"] == 3 && again.data_field("tasks")["completed"] == 2,
        "{again:?}"
    );

    let spends = [json!({ "budget": { "tokens": 1000 } }), json!({ "text": "Costs", "script": works })];
    import_batch(&coordinator, &scripts, &spends, &["--batch", "dear"]).await?;
    let spent =
        receiver.wait_for_request("all", "a spent budget", |got| got.kind() == "budget.spent").await?;
    ensure!(
        *spent.data_field("batch_name") == "dear" && spent.data_field("budget")["tokens"] == 1000,
        "{spent:?}"
    );
    ensure!(
        spent.data_field("message").as_str().is_some_and(|words| words.contains("1000 tokens")),
        "{spent:?}"
    );

    // What comes back from the archive tells of nothing new: another failure, after it, is the next that is told.
    coordinator.run_docket(&["archive", "--older-than", "0h"]).await?.into_stdout()?;
    coordinator.run_docket(&["archive", "restore", &fails.to_string()]).await?.into_stdout()?;
    let last = scripts.submit_failing(&coordinator).await?;
    receiver
        .wait_for_request("all", "the last failure", |got| *got.data_field("task") == last.to_string())
        .await?;
    let settled = wait_until("all are told", async || {
        let all = list_notifications(&coordinator).await.ok()?;
        let delivered = |one: &DeliveryView| one.state == DeliveryState::Delivered;
        all.iter().flat_map(|one| &one.deliveries).all(delivered).then_some(all)
    });
    let settled = settled.await.with_context(|| coordinator.log_tail())?;

    let got = receiver.received("all");
    let count = |kind: &str| got.iter().filter(|got| got.kind() == kind).count();
    let counts = ["task.blocked", "task.failed", "batch.finished", "budget.spent"].map(count);
    ensure!(counts == [1, 3, 2, 1], "each once: {counts:?} {got:#?}");
    ensure!(receiver.received("elsewhere").is_empty() && receiver.received("batches").len() == 2);
    let ids: std::collections::BTreeSet<&str> = got.iter().map(|got| got.id.as_str()).collect();
    ensure!(ids.len() == got.len() && settled.len() == got.len(), "{settled:#?}");
    for got in got.iter().chain(&receiver.received("batches")) {
        ensure!(got.is_signed_by(NEW)? && got.is_signed_by(OLD)?, "{got:?}");
        ensure!(!got.is_signed_by("whsec_bm90IG5vdCBub3Qgbm90IG5vdCBub3Qgbm90")?);
    }
    let shown = coordinator.run_docket(&["notify"]).await?.into_stdout()?;
    for words in ["http://127.0.0.1:", "webhook", "task.blocked", "batch.finished", "mixed", "delivered"] {
        ensure!(shown.contains(words), "{words}: {shown}");
    }
    ensure!(!shown.contains("/all") && !shown.contains("whsec_"), "no path, no secret: {shown}");
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_is_delivered_once_and_signed_on_sqlite() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    Box::pin(check_each_kind_is_sent_once(StoreLocation::HomeFolder)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_kind_is_delivered_once_and_signed_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let _room = acquire_scenario_slot().await;
    Box::pin(check_each_kind_is_sent_once(fresh_database(&cluster).await?)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refused_delivery_is_retried_dead_lettered_and_retried_manually() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let receiver = WebhookReceiver::start().await?;
    let soon = "attempts_max = 3\nretry_first_ms = 100\nretry_most_ms = 200";
    let text: String = [
        webhook_settings(receiver.port, "bad", soon),
        webhook_settings(receiver.port, "gone", soon),
        webhook_settings(receiver.port, "busy", soon),
        webhook_settings(receiver.port, "moved", "attempts_max = 1"),
        webhook_settings(receiver.port, "slow", "timeout_ms = 600000"),
        webhook_settings(receiver.port, "ok", ""),
    ]
    .concat();
    // As web servers say back what they do not know.
    let text = text.replace("/bad\"", "/bad?key=T0S3CR3TPATH\"");
    let says = "no POST /bad?key=T0S3CR3TPATH; your secret is whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    receiver.set_reply("bad", HookReply::Status(500, says));
    receiver.set_reply("gone", HookReply::Status(410, "no more of this"));
    receiver.set_reply("busy", HookReply::Later("3600"));
    receiver.set_reply("moved", HookReply::Moved);
    receiver.set_reply("slow", HookReply::Never);
    let home = tempfile::tempdir()?;
    write_settings(home.path(), &text)?;
    let coordinator =
        CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let id = send_test(&coordinator).await?;
    let of = |target| (id, target);

    // One that never answers holds up no other.
    receiver.wait_for_request("slow", "a request that hangs", |_| true).await?;
    wait_for_delivery(&coordinator, of("ok"), is_in_state(DeliveryState::Delivered)).await?;
    let bad = wait_for_delivery(&coordinator, of("bad"), is_in_state(DeliveryState::Dead)).await?;
    ensure!(bad.attempts == 3 && bad.why.as_ref().is_some_and(|why| why.contains("500")), "{bad:?}");
    let sent = receiver.received("bad");
    ensure!(sent.len() == 3 && sent.iter().all(|got| got.id == id.to_string()), "{sent:?}");
    let gone = wait_for_delivery(&coordinator, of("gone"), is_in_state(DeliveryState::Dead)).await?;
    ensure!(gone.attempts == 1 && receiver.received("gone").len() == 1, "{gone:?}");
    let moved = wait_for_delivery(&coordinator, of("moved"), is_in_state(DeliveryState::Dead)).await?;
    ensure!(moved.why.as_ref().is_some_and(|why| why.contains("redirects")), "{moved:?}");
    ensure!(receiver.received("ok").len() == 1, "nobody followed the redirect");
    let busy = wait_for_delivery(&coordinator, of("busy"), |one| one.attempts == 1).await?;
    let wait = busy.next_at.context("it is tried again")?.ms_since(busy.changed_at);
    ensure!(busy.state == DeliveryState::Waiting && wait >= 3_590_000, "{busy:?}");
    let slow = wait_for_delivery(&coordinator, of("slow"), |_| true).await?;
    ensure!(slow.state == DeliveryState::Waiting && slow.attempts == 0, "it hangs still: {slow:?}");

    // What a receiver says back is kept without secrets.
    let log = coordinator.run_docket(&["logs", "system/notifications", "--json"]).await?.into_stdout()?;
    ensure!(log.contains("your secret is"), "{log}");
    for secret in ["MfKQ9r8GKYqr", "T0S3CR3TPATH"] {
        ensure!(!log.contains(secret), "{log}");
        ensure!(!coordinator.log_tail().contains(secret), "{}", coordinator.log_tail());
    }

    // It is told of where people look.
    let overview = coordinator.client().get_overview().await?;
    ensure!(overview.notifications_dead == Some(3), "{overview:?}");
    let metrics = scrape_metrics(&coordinator).await?;
    for line in [
        "docket_notification_deliveries{state=\"dead\"} 3",
        "docket_notification_deliveries{state=\"waiting\"} 2",
        "docket_notifications_total{target_kind=\"webhook\",outcome=\"delivered\"} 1",
        "docket_notifications_total{target_kind=\"webhook\",outcome=\"failed\"} 3",
        "docket_notifications_total{target_kind=\"webhook\",outcome=\"dead_lettered\"} 3",
    ] {
        ensure!(metrics.contains(line), "{line}: {metrics}");
    }
    let dead = coordinator.run_docket(&["notify", "list", "--state", "dead"]).await?;
    ensure!(dead.stdout.contains("500") && dead.stderr.contains("3 dead letters"), "{dead:?}");

    // Mended, a person has it told once more: the same, under the same id.
    receiver.set_reply("bad", HookReply::Status(200, ""));
    receiver.set_reply("busy", HookReply::Status(200, ""));
    let text = id.to_string();
    let short = &text[text.len() - 8..];
    for target in ["bad", "busy"] {
        let said =
            coordinator.run_docket(&["notify", "retry", short, "--target", target]).await?.into_stdout()?;
        ensure!(said.contains(target), "{said}");
        wait_for_delivery(&coordinator, of(target), is_in_state(DeliveryState::Delivered)).await?;
    }
    let bad = receiver.received("bad");
    ensure!(bad.len() == 4 && bad[3].id == bad[0].id && bad[3].body == bad[0].body, "{bad:?}");
    for (args, code, words) in [
        (&["notify", "retry", short, "--target", "ok"][..], 4, "was already delivered to"),
        (&["notify", "retry", short, "--target", "nobody"], 3, "is not for `nobody`"),
        (&["notify", "retry", "ffffffffff"], 3, "no notification matches"),
        (&["notify", "test", "--target", "nobody"], 3, "bad, gone, busy"),
    ] {
        let refused = coordinator.run_docket(args).await?;
        ensure!(refused.code() == Some(code) && refused.stderr.contains(words), "{args:?}: {refused:?}");
    }
    let tried = coordinator.run_docket(&["notify", "test", "--target", "ok"]).await?.into_stdout()?;
    ensure!(tried.contains("ok: delivered"), "{tried}");
    let tried = coordinator.run_docket(&["notify", "test", "--target", "gone"]).await?;
    ensure!(tried.code() == Some(1) && tried.stdout.contains("gone: dead: replied 410"), "{tried:?}");
    let audit = coordinator.run_docket(&["logs", "system/audit"]).await?.into_stdout()?;
    ensure!(
        audit.contains("requested redelivery") && audit.contains("a test notification to gone"),
        "{audit}"
    );
    coordinator.end_and_check().await
}

async fn scrape_metrics(coordinator: &CoordinatorProcess) -> Result<String> {
    drop(rustls::crypto::ring::default_provider().install_default());
    let client = reqwest::Client::builder().no_proxy().build()?;
    let url = format!("{}/metrics", coordinator.address());
    Ok(client.get(url).bearer_auth(coordinator.token()).send().await?.error_for_status()?.text().await?)
}

/// A port where nobody listens now.
fn closed_port() -> Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_coordinator_loses_no_notification_and_resends_the_same() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let port = closed_port()?;
    write_settings(
        home.path(),
        &webhook_settings(port, "ops", "retry_first_ms = 100\nretry_most_ms = 300\nattempts_max = 100"),
    )?;
    let mut coordinator =
        CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Short).await?;

    // Recorded and not sent: nobody listens. Killed then, it is told after.
    let id = send_test(&coordinator).await?;
    wait_for_delivery(&coordinator, (id, "ops"), |one| one.attempts > 0).await?;
    coordinator.process().kill().await?;
    let receiver = WebhookReceiver::start_on(port).await?;
    coordinator.restart().await?;
    let got = receiver.wait_for_request("ops", "what was raised before the death", |_| true).await?;
    ensure!(got.id == id.to_string(), "{got:?}");
    wait_for_delivery(&coordinator, (id, "ops"), is_in_state(DeliveryState::Delivered)).await?;
    ensure!(receiver.received("ops").len() == 1, "{:?}", receiver.received("ops"));

    // Sent and not recorded: the receiver has it, and the coordinator dies of its answer.
    receiver.set_reply("ops", HookReply::Kills(coordinator.pid()));
    let id = send_test(&coordinator).await?.to_string();
    coordinator.process().wait().await?;
    receiver.set_reply("ops", HookReply::Status(204, ""));
    coordinator.restart().await?;
    wait_for_delivery(&coordinator, (id.parse()?, "ops"), is_in_state(DeliveryState::Delivered)).await?;
    let twice: Vec<ReceivedRequest> =
        receiver.received("ops").into_iter().filter(|got| got.id == id).collect();
    ensure!(twice.len() == 2 && twice[0].body == twice[1].body, "the same, again: {twice:?}");
    ensure!(twice.iter().all(|got| got.is_signed_by(NEW).unwrap_or(false)), "{twice:?}");

    // What happens while nobody tells is told once somebody does: a coordinator without targets is there meanwhile.
    write_settings(home.path(), "")?;
    coordinator.restart().await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let scripts = NotifyScripts::new()?;
    let fails = scripts.submit_failing(&coordinator).await?;
    let ended = coordinator.wait_until_ended(fails).await.with_context(|| worker.log_tail())?;
    ensure!(ended.task.state == TaskState::Discarded, "{ended:?}");
    write_settings(home.path(), &webhook_settings(port, "ops", ""))?;
    coordinator.restart().await?;
    let told =
        receiver.wait_for_request("ops", "a failure of before", |got| got.kind() == "task.failed").await?;
    ensure!(*told.data_field("task") == fails.to_string(), "{told:?}");

    // Of what was before anybody was ever told, nobody is: a target that is added gets what comes.
    write_settings(
        home.path(),
        &[webhook_settings(port, "ops", ""), webhook_settings(port, "new", "")].concat(),
    )?;
    coordinator.restart().await?;
    let next = scripts.submit_failing(&coordinator).await?;
    receiver
        .wait_for_request("new", "the next failure", |got| *got.data_field("task") == next.to_string())
        .await?;
    ensure!(receiver.received("new").len() == 1, "{:?}", receiver.received("new"));
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_two_coordinators_sends_and_the_other_takes_over() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let _room = acquire_scenario_slot().await;
    let place = fresh_database(&cluster).await?;
    let receiver = WebhookReceiver::start().await?;
    let homes = [tempfile::tempdir()?, tempfile::tempdir()?];
    for home in &homes {
        write_settings(home.path(), &webhook_settings(receiver.port, "ops", ""))?;
    }
    let mut one = CoordinatorProcess::start_in(homes[0].path(), place.clone(), LeaseDuration::Usual).await?;
    let two = CoordinatorProcess::start_in(homes[1].path(), place, LeaseDuration::Usual).await?;
    let mut ids = Vec::new();
    for nth in 0..20 {
        ids.push(send_test(if nth % 2 == 0 { &one } else { &two }).await?);
    }
    for id in &ids {
        wait_for_delivery(&two, (*id, "ops"), is_in_state(DeliveryState::Delivered)).await?;
    }
    let count =
        |id: &NotificationId| receiver.received("ops").iter().filter(|got| got.id == id.to_string()).count();
    ensure!(ids.iter().all(|id| count(id) == 1), "each is told by one: {:?}", receiver.received("ops"));
    // Whichever tells now: with one of them gone, and then the other, what is raised is told.
    one.process().kill().await?;
    let id = send_test(&two).await?;
    wait_for_delivery(&two, (id, "ops"), is_in_state(DeliveryState::Delivered)).await?;
    one.restart().await?;
    drop(two);
    let id = send_test(&one).await?;
    wait_for_delivery(&one, (id, "ops"), is_in_state(DeliveryState::Delivered)).await?;
    one.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn command_target_gets_stdin_and_is_ended_in_time() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let (home, out) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let command = |name: &str, line: &str, more: &str| {
        format!("[[notify]]\nname = \"{name}\"\ncommand = [\"/bin/sh\", \"-c\", '''{line}''']\n{more}\n")
    };
    let (told, tried) = (out.path().join("told"), out.path().join("tried"));
    let soon = "attempts_max = 2\nretry_first_ms = 100\nretry_most_ms = 100";
    let text = [
        command("ok", &format!("env > {0}.env; cat > {0}", told.display()), ""),
        command(
            "fails",
            &format!("echo $DOCKET_NOTIFICATION_ID >> {}; echo nope >&2; exit 3", tried.display()),
            soon,
        ),
        command("hangs", "sleep 600", "timeout_ms = 300\nattempts_max = 1"),
        "[[notify]]\nname = \"absent\"\ncommand = [\"/none/such\"]\nattempts_max = 1\n".to_owned(),
    ];
    write_settings(home.path(), &text.concat())?;
    let coordinator =
        CoordinatorProcess::start_in(home.path(), StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let id = send_test(&coordinator).await?;
    wait_for_delivery(&coordinator, (id, "ok"), is_in_state(DeliveryState::Delivered)).await?;
    let body: Value = serde_json::from_slice(&std::fs::read(&told)?)?;
    ensure!(body["type"] == "test" && body["data"]["by"].is_string(), "{body}");
    let env = std::fs::read_to_string(told.with_extension("env"))?;
    let id_line = format!("DOCKET_NOTIFICATION_ID={id}");
    ensure!(env.contains(&id_line) && env.contains("DOCKET_NOTIFICATION_TYPE=test"), "{env}");
    ensure!(
        !env.contains("DOCKET_HOME") && !env.contains("DOCKET_LEASE_MS"),
        "docket's own is no business of it: {env}"
    );
    let why = async |target: &'static str| -> Result<String> {
        let dead = wait_for_delivery(&coordinator, (id, target), is_in_state(DeliveryState::Dead)).await?;
        Ok(format!("{} {}", dead.attempts, dead.why.unwrap_or_default()))
    };
    ensure!(why("fails").await? == "2 the command exited with status 3: nope", "{}", why("fails").await?);
    let tries = std::fs::read_to_string(&tried)?;
    ensure!(tries == format!("{id}\n{id}\n"), "the same id each time: {tries}");
    ensure!(why("hangs").await?.contains("did not finish within 300 ms"), "{}", why("hangs").await?);
    ensure!(why("absent").await?.contains("cannot be started"), "{}", why("absent").await?);
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn invalid_targets_are_rejected_by_name_and_missing_targets_reported() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let docket = async |args: &[&str]| -> Result<FinishedProcess> {
        let env = [("DOCKET_HOME", home.path().as_os_str())];
        run_program(TestProgram::Docket, home.path(), &env, args).await
    };
    let none = docket(&["notify"]).await?;
    ensure!(none.success() && none.stderr.contains("[[notify]]"), "{none:?}");
    let none = docket(&["notify", "test"]).await?;
    ensure!(none.code() == Some(4) && none.stderr.contains("[[notify]]"), "{none:?}");
    let secret = home.path().join("secret");
    std::fs::write(&secret, OLD)?;
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(&secret, open)?;
    let hook = |line: &str| {
        format!("[[notify]]\nname = \"ops\"\nurl = \"http://127.0.0.1:9/hidden-path\"\n{line}\n")
    };
    for (text, words) in [
        (hook(""), "`secret`, `secret_env`, `secret_file`"),
        (hook("secret = \"swordfish\""), "`secret` is not whsec_"),
        (hook("secret_env = \"NO_SUCH_SECRET\""), "NO_SUCH_SECRET is not set in the environment"),
        (hook(&format!("secret_file = \"{}\"", secret.display())), "chmod 600"),
        (hook("secret_env = \"X\"\non = [\"task.praised\"]"), "`on` is not a list of kinds"),
    ] {
        write_settings(home.path(), &text)?;
        let refused = docket(&["serve", "-v", "--listen", "127.0.0.1:0"]).await?;
        let said = &refused.stderr;
        ensure!(refused.code() == Some(2) && said.contains(words), "{text}: {refused:?}");
        ensure!(
            !said.contains("swordfish") && !said.contains("hidden-path") && !said.contains("b2xk"),
            "{said}"
        );
    }
    // Where nobody tells, the secret is not asked for, and what is raised waits.
    write_settings(home.path(), &hook("secret_env = \"NO_SUCH_SECRET\""))?;
    let raised = docket(&["notify", "test"]).await?;
    ensure!(raised.success() && raised.stderr.contains("docket up"), "{raised:?}");
    let listed = docket(&["notify", "--json"]).await?.into_stdout()?;
    let listed: Value = serde_json::from_str(&listed)?;
    ensure!(listed["waiting"] == 1 && listed["targets"][0]["at"] == "http://127.0.0.1:9", "{listed}");
    Ok(())
}

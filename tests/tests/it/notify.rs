//! Notifications on real processes: what a blocked, a failed task, a batch's end and its budget tell a receiver; who does
//! not take it; coordinators that are killed at it; programs that are told.

mod receiver;
mod unusual;

use std::path::Path;

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    ids::{NotificationId, TaskId},
    task::TaskState,
    wire::{DeliveryState, DeliveryView, NotificationQuery, NotificationView, TestNotificationRequest},
};
use docket_tests::{
    pg_cluster::Cluster,
    system::{
        Coordinator, Finished, LeaseTime, Place, Sample, Tool, Worker, WorkerOptions, fresh_database, room,
        run, until,
    },
};
use receiver::{Answer, Got, Receiver};
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
fn hook(port: u16, name: &str, more: &str) -> String {
    format!(
        "[[notify]]\nname = \"{name}\"\nurl = \"http://127.0.0.1:{port}/{name}\"\nsecret = [\"{NEW}\", \"{OLD}\"]\n{more}\n"
    )
}

fn settings(home: &Path, text: &str) -> Result<()> {
    Ok(std::fs::write(home.join("docket.toml"), text)?)
}

/// A repository and scripts for its tasks.
struct Scripts {
    sample: Sample,
    folder: tempfile::TempDir,
}

impl Scripts {
    fn new() -> Result<Self> {
        Ok(Self { sample: Sample::new(&[("a.txt", "a\n")])?, folder: tempfile::tempdir()? })
    }

    fn file(&self, name: &str, text: &str) -> Result<String> {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.to_str().context("UTF-8")?.to_owned())
    }

    async fn submit(&self, to: &Coordinator, script: &str, more: &[&str]) -> Result<TaskId> {
        let script = self.file(&format!("{}.toml", blake3::hash(script.as_bytes())), script)?;
        let args = ["--model", "scripted:s", "--script", &script, "--tests", "true"];
        Ok(self.sample.submit(to, &[&args[..], more].concat()).await?.0)
    }

    /// A task that fails at once.
    async fn submit_failing(&self, to: &Coordinator) -> Result<TaskId> {
        self.submit(to, FAILS, &["--turns", "2", "--attempts", "1"]).await
    }
}

async fn all(coordinator: &Coordinator) -> Result<Vec<NotificationView>> {
    let query = NotificationQuery { state: None, limit: Some(1000) };
    Ok(coordinator.client().notifications(&query).await?.notifications)
}

/// A notification's delivery to a target, once it is as wanted.
async fn delivery(
    coordinator: &Coordinator,
    (id, target): (NotificationId, &str),
    is: impl Fn(&DeliveryView) -> bool,
) -> Result<DeliveryView> {
    let what = format!("a delivery to {target}");
    let found = until(&what, async || {
        let all = all(coordinator).await.ok()?;
        let one = all.into_iter().find(|one| one.id == id)?;
        one.deliveries.into_iter().find(|one| one.target == target && is(one))
    });
    let found = found.await;
    let known = all(coordinator).await;
    found.with_context(|| format!("{known:#?}\n{}", coordinator.tail()))
}

async fn tries(coordinator: &Coordinator) -> Result<NotificationId> {
    Ok(coordinator.client().test_notification(&TestNotificationRequest::default()).await?.id)
}

fn is_in(state: DeliveryState) -> impl Fn(&DeliveryView) -> bool {
    move |one| one.state == state
}

async fn import(to: &Coordinator, scripts: &Scripts, lines: &[Value], more: &[&str]) -> Result<()> {
    let lines: Vec<String> = lines.iter().map(ToString::to_string).collect();
    let file = scripts.file("todo.jsonl", &lines.join("\n"))?;
    let repo = scripts.sample.path().to_str().context("UTF-8")?;
    let args = ["import", &file, "--repo", repo, "--tests", "true", "--model", "scripted:s"];
    to.docket(&[&args[..], more].concat()).await?.ok().map(drop)
}

async fn each_kind_is_told_once(place: Place) -> Result<()> {
    let receiver = Receiver::start().await?;
    let (home, archive) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let failures = "on = [\"task.failed\"]\nqueues = [\"elsewhere\"]";
    let text = format!(
        "[server]\npublic_url = \"https://docket.example/\"\n[archive]\nto = \"file://{}\"\n{}{}{}",
        archive.path().display(),
        hook(receiver.port, "all", ""),
        hook(receiver.port, "batches", "on = [\"batch.finished\"]\nbatches = [\"mixed\"]"),
        hook(receiver.port, "elsewhere", failures),
    );
    settings(home.path(), &text)?;
    let coordinator = Coordinator::start_in(home.path(), place, LeaseTime::Usual).await?;
    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    let scripts = Scripts::new()?;

    let asks = scripts.submit(&coordinator, ASKS, &[]).await?;
    let blocked = receiver.gets("all", "a blocked task", |got| got.kind() == "task.blocked").await;
    let blocked = blocked.with_context(|| format!("{}\n{}", coordinator.tail(), worker.tail()))?;
    let view = coordinator.client().task(asks).await?;
    let run = view.task.run.context("the run that asks")?;
    ensure!(
        *blocked.data("task") == asks.to_string() && *blocked.data("run") == run.to_string(),
        "{blocked:?}"
    );
    ensure!(*blocked.data("block") == "person", "{blocked:?}");
    ensure!(
        blocked.data("question").as_str().is_some_and(|asked| asked.contains("which port")),
        "{blocked:?}"
    );
    ensure!(*blocked.data("link") == format!("https://docket.example/ui/run/{run}"), "{blocked:?}");

    let fails = scripts.submit_failing(&coordinator).await?;
    let failed = receiver.gets("all", "a failed task", |got| got.kind() == "task.failed").await?;
    ensure!(*failed.data("task") == fails.to_string() && *failed.data("reason") == "failures", "{failed:?}");
    let message = coordinator.client().task(fails).await?.task.message.context("why it failed")?;
    ensure!(*failed.data("message") == message.as_str(), "{failed:?}");

    // A batch of two ends once, whatever its tasks came to; a task that is added and ends is told again.
    let works = scripts.file("works.toml", WORKS)?;
    let fails_file = scripts.file("fails.toml", FAILS)?;
    let mut lines = vec![
        json!({ "key": "a", "text": "Works", "script": works }),
        json!({ "key": "b", "text": "Fails", "script": fails_file, "turns": 2, "attempts": 1 }),
    ];
    import(&coordinator, &scripts, &lines, &["--batch", "mixed"]).await?;
    let finished = receiver.gets("batches", "a batch's end", |got| got.kind() == "batch.finished").await?;
    let counts = json!({ "all": 2, "completed": 1, "cancelled": 0, "discarded": 1 });
    ensure!(*finished.data("tasks") == counts && *finished.data("batch_name") == "mixed", "{finished:?}");
    lines.push(json!({ "key": "c", "text": "Works too", "script": works }));
    import(&coordinator, &scripts, &lines, &["--batch", "mixed"]).await?;
    let again = receiver.gets("batches", "its end again", |got| *got.data("tasks") != counts).await?;
    ensure!(again.data("tasks")["all"] == 3 && again.data("tasks")["completed"] == 2, "{again:?}");

    let spends = [json!({ "budget": { "tokens": 1000 } }), json!({ "text": "Costs", "script": works })];
    import(&coordinator, &scripts, &spends, &["--batch", "dear"]).await?;
    let spent = receiver.gets("all", "a spent budget", |got| got.kind() == "budget.spent").await?;
    ensure!(*spent.data("batch_name") == "dear" && spent.data("budget")["tokens"] == 1000, "{spent:?}");
    ensure!(spent.data("message").as_str().is_some_and(|words| words.contains("1000 tokens")), "{spent:?}");

    // What comes back from the archive tells of nothing new: another failure, after it, is the next that is told.
    coordinator.docket(&["archive", "--older-than", "0h"]).await?.ok()?;
    coordinator.docket(&["archive", "restore", &fails.to_string()]).await?.ok()?;
    let last = scripts.submit_failing(&coordinator).await?;
    receiver.gets("all", "the last failure", |got| *got.data("task") == last.to_string()).await?;
    let settled = until("all are told", async || {
        let all = all(&coordinator).await.ok()?;
        let delivered = |one: &DeliveryView| one.state == DeliveryState::Delivered;
        all.iter().flat_map(|one| &one.deliveries).all(delivered).then_some(all)
    });
    let settled = settled.await.with_context(|| coordinator.tail())?;

    let got = receiver.got("all");
    let count = |kind: &str| got.iter().filter(|got| got.kind() == kind).count();
    let counts = ["task.blocked", "task.failed", "batch.finished", "budget.spent"].map(count);
    ensure!(counts == [1, 3, 2, 1], "each once: {counts:?} {got:#?}");
    ensure!(receiver.got("elsewhere").is_empty() && receiver.got("batches").len() == 2);
    let ids: std::collections::BTreeSet<&str> = got.iter().map(|got| got.id.as_str()).collect();
    ensure!(ids.len() == got.len() && settled.len() == got.len(), "{settled:#?}");
    for got in got.iter().chain(&receiver.got("batches")) {
        ensure!(got.is_signed_by(NEW)? && got.is_signed_by(OLD)?, "{got:?}");
        ensure!(!got.is_signed_by("whsec_bm90IG5vdCBub3Qgbm90IG5vdCBub3Qgbm90")?);
    }
    let shown = coordinator.docket(&["notify"]).await?.ok()?;
    for words in ["http://127.0.0.1:", "webhook", "task.blocked", "batch.finished", "mixed", "delivered"] {
        ensure!(shown.contains(words), "{words}: {shown}");
    }
    ensure!(!shown.contains("/all") && !shown.contains("whsec_"), "no path, no secret: {shown}");
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_reaches_a_receiver_once_and_signed_on_sqlite() -> Result<()> {
    let _room = room().await;
    Box::pin(each_kind_is_told_once(Place::Home)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_kind_reaches_a_receiver_once_and_signed_on_postgres() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    let _room = room().await;
    Box::pin(each_kind_is_told_once(fresh_database(&cluster).await?)).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_does_not_take_it_is_told_again_then_a_dead_letter_then_once_more() -> Result<()> {
    let _room = room().await;
    let receiver = Receiver::start().await?;
    let soon = "attempts_max = 3\nretry_first_ms = 100\nretry_most_ms = 200";
    let text: String = [
        hook(receiver.port, "bad", soon),
        hook(receiver.port, "gone", soon),
        hook(receiver.port, "busy", soon),
        hook(receiver.port, "moved", "attempts_max = 1"),
        hook(receiver.port, "slow", "timeout_ms = 600000"),
        hook(receiver.port, "ok", ""),
    ]
    .concat();
    // As web servers say back what they do not know.
    let text = text.replace("/bad\"", "/bad?key=T0S3CR3TPATH\"");
    let says = "no POST /bad?key=T0S3CR3TPATH; your secret is whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    receiver.answers("bad", Answer::Status(500, says));
    receiver.answers("gone", Answer::Status(410, "no more of this"));
    receiver.answers("busy", Answer::Later("3600"));
    receiver.answers("moved", Answer::Moved);
    receiver.answers("slow", Answer::Never);
    let home = tempfile::tempdir()?;
    settings(home.path(), &text)?;
    let coordinator = Coordinator::start_in(home.path(), Place::Home, LeaseTime::Usual).await?;
    let id = tries(&coordinator).await?;
    let of = |target| (id, target);

    // One that never answers holds up no other.
    receiver.gets("slow", "a request that hangs", |_| true).await?;
    delivery(&coordinator, of("ok"), is_in(DeliveryState::Delivered)).await?;
    let bad = delivery(&coordinator, of("bad"), is_in(DeliveryState::Dead)).await?;
    ensure!(bad.attempts == 3 && bad.why.as_ref().is_some_and(|why| why.contains("500")), "{bad:?}");
    let sent = receiver.got("bad");
    ensure!(sent.len() == 3 && sent.iter().all(|got| got.id == id.to_string()), "{sent:?}");
    let gone = delivery(&coordinator, of("gone"), is_in(DeliveryState::Dead)).await?;
    ensure!(gone.attempts == 1 && receiver.got("gone").len() == 1, "{gone:?}");
    let moved = delivery(&coordinator, of("moved"), is_in(DeliveryState::Dead)).await?;
    ensure!(moved.why.as_ref().is_some_and(|why| why.contains("redirects")), "{moved:?}");
    ensure!(receiver.got("ok").len() == 1, "nobody followed the redirect");
    let busy = delivery(&coordinator, of("busy"), |one| one.attempts == 1).await?;
    let wait = busy.next_at.context("it is tried again")?.ms_since(busy.changed_at);
    ensure!(busy.state == DeliveryState::Waiting && wait >= 3_590_000, "{busy:?}");
    let slow = delivery(&coordinator, of("slow"), |_| true).await?;
    ensure!(slow.state == DeliveryState::Waiting && slow.attempts == 0, "it hangs still: {slow:?}");

    // What a receiver says back is kept without secrets.
    let log = coordinator.docket(&["logs", "system/notifications", "--json"]).await?.ok()?;
    ensure!(log.contains("your secret is"), "{log}");
    for secret in ["MfKQ9r8GKYqr", "T0S3CR3TPATH"] {
        ensure!(!log.contains(secret), "{log}");
        ensure!(!coordinator.tail().contains(secret), "{}", coordinator.tail());
    }

    // It is told of where people look.
    let overview = coordinator.client().overview().await?;
    ensure!(overview.notifications_dead == Some(3), "{overview:?}");
    let metrics = scraped(&coordinator).await?;
    for line in [
        "docket_notification_deliveries{state=\"dead\"} 3",
        "docket_notification_deliveries{state=\"waiting\"} 2",
        "docket_notifications_total{target_kind=\"webhook\",outcome=\"delivered\"} 1",
        "docket_notifications_total{target_kind=\"webhook\",outcome=\"failed\"} 3",
        "docket_notifications_total{target_kind=\"webhook\",outcome=\"dead_lettered\"} 3",
    ] {
        ensure!(metrics.contains(line), "{line}: {metrics}");
    }
    let dead = coordinator.docket(&["notify", "list", "--state", "dead"]).await?;
    ensure!(dead.stdout.contains("500") && dead.stderr.contains("3 dead letters"), "{dead:?}");

    // Mended, a person has it told once more: the same, under the same id.
    receiver.answers("bad", Answer::Status(200, ""));
    receiver.answers("busy", Answer::Status(200, ""));
    let text = id.to_string();
    let short = &text[text.len() - 8..];
    for target in ["bad", "busy"] {
        let said = coordinator.docket(&["notify", "retry", short, "--target", target]).await?.ok()?;
        ensure!(said.contains(target), "{said}");
        delivery(&coordinator, of(target), is_in(DeliveryState::Delivered)).await?;
    }
    let bad = receiver.got("bad");
    ensure!(bad.len() == 4 && bad[3].id == bad[0].id && bad[3].body == bad[0].body, "{bad:?}");
    for (args, code, words) in [
        (&["notify", "retry", short, "--target", "ok"][..], 4, "took notification"),
        (&["notify", "retry", short, "--target", "nobody"], 3, "is not for `nobody`"),
        (&["notify", "retry", "ffffffffff"], 3, "there is no notification"),
        (&["notify", "test", "--target", "nobody"], 3, "bad, gone, busy"),
    ] {
        let refused = coordinator.docket(args).await?;
        ensure!(refused.code() == Some(code) && refused.stderr.contains(words), "{args:?}: {refused:?}");
    }
    let tried = coordinator.docket(&["notify", "test", "--target", "ok"]).await?.ok()?;
    ensure!(tried.contains("ok: delivered"), "{tried}");
    let tried = coordinator.docket(&["notify", "test", "--target", "gone"]).await?;
    ensure!(tried.code() == Some(1) && tried.stdout.contains("gone: dead: it answers 410"), "{tried:?}");
    let audit = coordinator.docket(&["logs", "system/audit"]).await?.ok()?;
    ensure!(audit.contains("once more") && audit.contains("try telling gone"), "{audit}");
    coordinator.end_and_check().await
}

async fn scraped(coordinator: &Coordinator) -> Result<String> {
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
async fn a_killed_coordinator_loses_nothing_and_tells_the_same_again() -> Result<()> {
    let _room = room().await;
    let home = tempfile::tempdir()?;
    let port = closed_port()?;
    settings(
        home.path(),
        &hook(port, "ops", "retry_first_ms = 100\nretry_most_ms = 300\nattempts_max = 100"),
    )?;
    let mut coordinator = Coordinator::start_in(home.path(), Place::Home, LeaseTime::Short).await?;

    // Recorded and not sent: nobody listens. Killed then, it is told after.
    let id = tries(&coordinator).await?;
    delivery(&coordinator, (id, "ops"), |one| one.attempts > 0).await?;
    coordinator.process().kill().await?;
    let receiver = Receiver::start_on(port).await?;
    coordinator.restart().await?;
    let got = receiver.gets("ops", "what was raised before the death", |_| true).await?;
    ensure!(got.id == id.to_string(), "{got:?}");
    delivery(&coordinator, (id, "ops"), is_in(DeliveryState::Delivered)).await?;
    ensure!(receiver.got("ops").len() == 1, "{:?}", receiver.got("ops"));

    // Sent and not recorded: the receiver has it, and the coordinator dies of its answer.
    receiver.answers("ops", Answer::Kills(coordinator.pid()));
    let id = tries(&coordinator).await?.to_string();
    coordinator.process().wait().await?;
    receiver.answers("ops", Answer::Status(204, ""));
    coordinator.restart().await?;
    delivery(&coordinator, (id.parse()?, "ops"), is_in(DeliveryState::Delivered)).await?;
    let twice: Vec<Got> = receiver.got("ops").into_iter().filter(|got| got.id == id).collect();
    ensure!(twice.len() == 2 && twice[0].body == twice[1].body, "the same, again: {twice:?}");
    ensure!(twice.iter().all(|got| got.is_signed_by(NEW).unwrap_or(false)), "{twice:?}");

    // What happens while nobody tells is told once somebody does: a coordinator without targets is there meanwhile.
    settings(home.path(), "")?;
    coordinator.restart().await?;
    let worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    let scripts = Scripts::new()?;
    let fails = scripts.submit_failing(&coordinator).await?;
    let ended = coordinator.ended(fails).await.with_context(|| worker.tail())?;
    ensure!(ended.task.state == TaskState::Discarded, "{ended:?}");
    settings(home.path(), &hook(port, "ops", ""))?;
    coordinator.restart().await?;
    let told = receiver.gets("ops", "a failure of before", |got| got.kind() == "task.failed").await?;
    ensure!(*told.data("task") == fails.to_string(), "{told:?}");

    // Of what was before anybody was ever told, nobody is: a target that is added gets what comes.
    settings(home.path(), &[hook(port, "ops", ""), hook(port, "new", "")].concat())?;
    coordinator.restart().await?;
    let next = scripts.submit_failing(&coordinator).await?;
    receiver.gets("new", "the next failure", |got| *got.data("task") == next.to_string()).await?;
    ensure!(receiver.got("new").len() == 1, "{:?}", receiver.got("new"));
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_two_coordinators_one_tells_and_the_other_goes_on() -> Result<()> {
    let Some(cluster) = Cluster::start() else { return Ok(()) };
    let _room = room().await;
    let place = fresh_database(&cluster).await?;
    let receiver = Receiver::start().await?;
    let homes = [tempfile::tempdir()?, tempfile::tempdir()?];
    for home in &homes {
        settings(home.path(), &hook(receiver.port, "ops", ""))?;
    }
    let mut one = Coordinator::start_in(homes[0].path(), place.clone(), LeaseTime::Usual).await?;
    let two = Coordinator::start_in(homes[1].path(), place, LeaseTime::Usual).await?;
    let mut ids = Vec::new();
    for nth in 0..20 {
        ids.push(tries(if nth % 2 == 0 { &one } else { &two }).await?);
    }
    for id in &ids {
        delivery(&two, (*id, "ops"), is_in(DeliveryState::Delivered)).await?;
    }
    let count =
        |id: &NotificationId| receiver.got("ops").iter().filter(|got| got.id == id.to_string()).count();
    ensure!(ids.iter().all(|id| count(id) == 1), "each is told by one: {:?}", receiver.got("ops"));
    // Whichever tells now: with one of them gone, and then the other, what is raised is told.
    one.process().kill().await?;
    let id = tries(&two).await?;
    delivery(&two, (id, "ops"), is_in(DeliveryState::Delivered)).await?;
    one.restart().await?;
    drop(two);
    let id = tries(&one).await?;
    delivery(&one, (id, "ops"), is_in(DeliveryState::Delivered)).await?;
    one.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_program_is_told_by_its_input_and_ends_in_its_time() -> Result<()> {
    let _room = room().await;
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
    settings(home.path(), &text.concat())?;
    let coordinator = Coordinator::start_in(home.path(), Place::Home, LeaseTime::Usual).await?;
    let id = tries(&coordinator).await?;
    delivery(&coordinator, (id, "ok"), is_in(DeliveryState::Delivered)).await?;
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
        let dead = delivery(&coordinator, (id, target), is_in(DeliveryState::Dead)).await?;
        Ok(format!("{} {}", dead.attempts, dead.why.unwrap_or_default()))
    };
    ensure!(why("fails").await? == "2 it ends with status 3: nope", "{}", why("fails").await?);
    let tries = std::fs::read_to_string(&tried)?;
    ensure!(tries == format!("{id}\n{id}\n"), "the same id each time: {tries}");
    ensure!(why("hangs").await?.contains("did not end within 300 ms"), "{}", why("hangs").await?);
    ensure!(why("absent").await?.contains("cannot be started"), "{}", why("absent").await?);
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn settings_that_cannot_hold_are_refused_by_name_and_nobody_to_tell_is_said() -> Result<()> {
    let _room = room().await;
    let home = tempfile::tempdir()?;
    let docket = async |args: &[&str]| -> Result<Finished> {
        let env = [("DOCKET_HOME", home.path().as_os_str())];
        run(Tool::Docket, home.path(), &env, args).await
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
        (hook("secret_env = \"NO_SUCH_SECRET\""), "the environment has no NO_SUCH_SECRET"),
        (hook(&format!("secret_file = \"{}\"", secret.display())), "chmod 600"),
        (hook("secret_env = \"X\"\non = [\"task.praised\"]"), "`on` is not a list of kinds"),
    ] {
        settings(home.path(), &text)?;
        let refused = docket(&["serve", "-v", "--listen", "127.0.0.1:0"]).await?;
        let said = &refused.stderr;
        ensure!(refused.code() == Some(2) && said.contains(words), "{text}: {refused:?}");
        ensure!(
            !said.contains("swordfish") && !said.contains("hidden-path") && !said.contains("b2xk"),
            "{said}"
        );
    }
    // Where nobody tells, the secret is not asked for, and what is raised waits.
    settings(home.path(), &hook("secret_env = \"NO_SUCH_SECRET\""))?;
    let raised = docket(&["notify", "test"]).await?;
    ensure!(raised.success() && raised.stderr.contains("docket up"), "{raised:?}");
    let listed = docket(&["notify", "--json"]).await?.ok()?;
    let listed: Value = serde_json::from_str(&listed)?;
    ensure!(listed["waiting"] == 1 && listed["targets"][0]["at"] == "http://127.0.0.1:9", "{listed}");
    Ok(())
}

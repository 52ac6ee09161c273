//! The API as another machine has it: a worker with a worker's token, over https; tokens made and revoked by
//! the command line; and names of every hostile kind, on both stores.

use std::{ffi::OsStr, os::unix::fs::PermissionsExt, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    api::{CreateTokenRequest, SubmitRequest},
    ids::QueueName,
    message::ModelRef,
    system::TokenRole,
};
use docket_tests::{
    pg_cluster::PostgresCluster,
    system::{
        CoordinatorProcess, LeaseDuration, RunningProcess, SampleRepository, Signal, StoreLocation,
        TestProgram, WorkerOptions, WorkerProcess, acquire_scenario_slot, fresh_database, run_program,
        send_signal,
    },
};
use docket_worker::{client::CoordinatorClient, secret::Secret};
use serde_json::{Value, json};

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "a\n" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "cat a.txt keep.txt" } }]
[[turns]]
text = "Done."
"#;

/// Runs `docket` with a home of its own, a coordinator's address and a token.
async fn run_docket_at(
    home: &Path,
    env: &[(&str, &str)],
    args: &[&str],
) -> Result<docket_tests::system::FinishedProcess> {
    let mut all: Vec<(&str, &OsStr)> = vec![("DOCKET_HOME", home.as_os_str())];
    all.extend(env.iter().map(|(name, value)| (*name, OsStr::new(*value))));
    run_program(TestProgram::Docket, home, &all, args).await
}

async fn create_token(coordinator: &CoordinatorProcess, name: &str, role: &str) -> Result<String> {
    let args = ["token", "create", "--name", name, "--role", role, "--expires", "1h", "--json"];
    let made: Value = serde_json::from_str(&coordinator.run_docket(&args).await?.into_stdout()?)?;
    Ok(made["secret"].as_str().context("a secret")?.to_owned())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_token_is_sufficient_and_grants_nothing_else() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let worker = create_token(&coordinator, "builder", "worker").await?;
    let ci = create_token(&coordinator, "ci", "submit").await?;
    let reader = create_token(&coordinator, "eve", "read").await?;
    let options = WorkerOptions { token: Some(worker.clone()), ..WorkerOptions::default() };
    let working = WorkerProcess::start(&coordinator, &options).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let home = tempfile::tempdir()?;
    let at = coordinator.address();
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let submit = ["submit", "Do it", "--json", "--repo", repo, "--model", "scripted:api", "--script", script];
    let by = |token: &str| [("DOCKET_URL", at.to_owned()), ("DOCKET_TOKEN", token.to_owned())];
    let docket = async |token: &str, args: &[&str]| {
        let env = by(token);
        let env: Vec<(&str, &str)> = env.iter().map(|(name, value)| (*name, value.as_str())).collect();
        run_docket_at(home.path(), &env, args).await
    };
    let row: Value = serde_json::from_str(&docket(&ci, &submit).await?.into_stdout()?)?;
    let task = row["id"].as_str().context("an id")?.to_owned();
    let view = coordinator.wait_until_ended(task.parse()?).await.with_context(|| working.log_tail())?;
    ensure!(view.task.state.to_string() == "completed", "{view:?}\n{}", working.log_tail());
    // Each token does what its role says and no more, through the same commands.
    for (token, args, code) in [
        (&reader, &["show", task.as_str()][..], 0),
        (&reader, &["cancel", &task], 4),
        (&reader, &submit, 4),
        (&ci, &["gc"], 4),
        (&ci, &["token", "list"], 4),
        (&worker, &["show", &task], 4),
        (&worker, &["cancel", &task], 4),
        (&worker, &["token", "create", "--name", "x", "--role", "admin"], 4),
    ] {
        let done = docket(token, args).await?;
        ensure!(done.code() == Some(code), "{args:?}: {:?} {}", done.code(), done.stderr);
        ensure!(
            !done.stderr.contains(token.as_str()) && !done.stderr.contains("panicked"),
            "{}",
            done.stderr
        );
    }
    // Revoked, it is refused at once, also where it waits for work; the worker ends and says why.
    coordinator.run_docket(&["token", "revoke", "builder"]).await?.into_stdout()?;
    let mut working = working;
    let status = working.process().wait().await?;
    ensure!(!status.success(), "a worker without a good token ends: {status}\n{}", working.log_tail());
    let log = coordinator.run_docket(&["logs", "system/audit"]).await?.into_stdout()?;
    for act in ["requested creation of token builder (worker)", "requested revocation of token builder"] {
        ensure!(log.contains(act), "{act}: {log}");
    }
    let list = coordinator.run_docket(&["token", "list"]).await?.into_stdout()?;
    ensure!(list.lines().any(|line| line.contains("builder") && line.contains("revoked")), "{list}");
    let everything = format!("{log}{list}{}", coordinator.log_tail());
    ensure!(
        ![&worker, &ci, &reader].iter().any(|token| everything.contains(token.as_str())),
        "no token is told"
    );
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn worker_on_another_machine_works_over_https() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let home = tempfile::tempdir()?;
    let names = vec!["127.0.0.1".to_owned()];
    let certificate = rcgen::generate_simple_self_signed(names)?;
    let (cert, key) = (home.path().join("cert.pem"), home.path().join("key.pem"));
    std::fs::write(&cert, certificate.cert.pem())?;
    std::fs::write(&key, certificate.signing_key.serialize_pem())?;
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600))?;
    let (cert_text, key_text) = (cert.to_str().context("UTF-8")?, key.to_str().context("UTF-8")?);
    let args =
        ["serve", "-v", "--json", "--listen", "0.0.0.0:0", "--tls-cert", cert_text, "--tls-key", key_text];
    let (mut server, said) = RunningProcess::start_docket("serve", home.path(), &[], &args).await?;
    let said: Value = serde_json::from_str(&said)?;
    let port = said["tls_address"].as_str().and_then(|url| url.rsplit(':').next()).context("a port")?;
    let url = format!("https://127.0.0.1:{port}");
    let here = [("DOCKET_HOME", home.path().as_os_str())];
    let docket =
        async |args: &[&str]| run_program(TestProgram::Docket, home.path(), &here, args).await?.into_stdout();
    let made: Value = serde_json::from_str(
        &docket(&["token", "create", "--name", "w", "--role", "worker", "--json"]).await?,
    )?;
    let token = made["secret"].as_str().context("a secret")?;

    let elsewhere = tempfile::tempdir()?;
    let env = [
        ("DOCKET_URL", OsStr::new(&url)),
        ("DOCKET_TOKEN", OsStr::new(token)),
        ("DOCKET_CA", cert.as_os_str()),
    ];
    let (worker, _) = RunningProcess::start_docket(
        "worker",
        elsewhere.path(),
        &env,
        &["worker", "-v", "--json", "--slots", "1"],
    )
    .await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let submit = ["submit", "Do it", "--json", "--repo", repo, "--model", "scripted:api", "--script", script];
    let row: Value = serde_json::from_str(&docket(&submit).await?)?;
    let task = row["id"].as_str().context("an id")?;
    let ended = docket_tests::system::wait_until("the end of a task", async || {
        let row: Value = serde_json::from_str(&docket(&["show", task, "--json"]).await.ok()?).ok()?;
        ["completed", "discarded", "cancelled"].contains(&row["state"].as_str()?).then_some(row)
    });
    let row = ended.await.with_context(|| format!("{}\n{}", worker.log_tail(), server.log_tail()))?;
    ensure!(row["state"] == "completed", "{row}\n{}", worker.log_tail());

    // Without the CA, and without TLS, there is no way in.
    let strange = [("DOCKET_URL", url.as_str()), ("DOCKET_TOKEN", token)];
    let done = run_docket_at(elsewhere.path(), &strange, &["ps"]).await?;
    ensure!(done.code() == Some(5), "an unknown certificate: {:?} {}", done.code(), done.stderr);
    let plain = url.replace("https", "http");
    let done =
        run_docket_at(elsewhere.path(), &[("DOCKET_URL", &plain), ("DOCKET_TOKEN", token)], &["ps"]).await?;
    ensure!(done.code() == Some(5), "plain http at a TLS port: {:?} {}", done.code(), done.stderr);
    ensure!(!server.read_log().contains("panicked"), "{}", server.log_tail());
    send_signal(server.pid(), Signal::SIGTERM);
    ensure!(server.wait().await?.success(), "{}", server.log_tail());
    Ok(())
}

#[tokio::test]
async fn listening_beyond_loopback_without_tls_needs_insecure_flag() -> Result<()> {
    let home = tempfile::tempdir()?;
    let key = home.path().join("key.pem");
    std::fs::write(&key, "none")?;
    std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600))?;
    let key = key.to_str().context("UTF-8")?;
    for (args, says) in [
        (&["serve", "--listen", "0.0.0.0:0"][..], "--tls-cert"),
        (&["serve", "--tls-cert", key], "--tls-key"),
        (&["serve", "--tls-cert", key, "--tls-key", key], "certificate"),
    ] {
        let done = run_docket_at(home.path(), &[], args).await?;
        ensure!(
            done.code() == Some(2) && done.stderr.contains(says),
            "{args:?}: {:?} {}",
            done.code(),
            done.stderr
        );
    }
    Ok(())
}

/// What somebody may write where a name or an id is expected.
const HOSTILE: [&str; 16] = [
    "'",
    "''; DROP TABLE events; --",
    "\" OR 1=1 --",
    "%",
    "_",
    "%25%27",
    "../../etc/passwd",
    "/etc/passwd",
    "a\u{0}b",
    "\u{202e}txt",
    "\\",
    "$1",
    "{id}",
    "\n",
    "0 UNION SELECT secret FROM secrets",
    "*",
];

/// Percent-encodes everything.
fn percent_encode_all(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

async fn check_hostile_names(place: StoreLocation) -> Result<()> {
    let coordinator = CoordinatorProcess::start(place, LeaseDuration::Usual).await?;
    // Refused where another part of the process has installed one: that one is then used.
    drop(rustls::crypto::ring::default_provider().install_default());
    let http = reqwest::Client::builder().no_proxy().build()?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let repo = sample.path().to_str().context("UTF-8")?;
    let script = sample.write_script(SCRIPT)?;
    let script = script.to_str().context("UTF-8")?;
    let args = ["submit", "Do it", "--json", "--repo", repo, "--model", "scripted:api", "--script", script];
    let row: Value = serde_json::from_str(&coordinator.run_docket(&args).await?.into_stdout()?)?;
    let task = row["id"].as_str().context("an id")?.to_owned();
    let streams = coordinator.client().list_streams(None).await?.streams;
    for text in HOSTILE {
        let e = percent_encode_all(text);
        for path in [
            format!("/v1/tasks/{e}"),
            format!("/v1/runs/{e}"),
            format!("/v1/runs/{e}/events"),
            format!("/v1/blobs/{e}"),
            format!("/v1/resolve/{e}"),
            format!("/v1/tasks?queue={e}"),
            format!("/v1/tasks?state={e}"),
            format!("/v1/tasks?batch={e}"),
            format!("/v1/tasks?before={e}"),
            format!("/v1/events?stream={e}"),
            format!("/v1/events?stream=queue/{e}"),
            format!("/v1/events?stream=system/{e}"),
            format!("/v1/events?stream=run/{e}"),
            format!("/v1/streams?after={e}"),
            format!("/v1/streams?after=queue/{e}"),
            format!("/v1/feed?after={e}"),
            format!("/v1/blobs/check?after={e}"),
            format!("/v1/{e}"),
        ] {
            let url = format!("{}{path}", coordinator.address());
            let answer = http.get(url).bearer_auth(coordinator.token()).send().await?;
            let status = answer.status().as_u16();
            let body = answer.text().await?;
            // An underscore is a queue's name as good as any.
            ensure!(
                (400..500).contains(&status) || (text == "_" && status == 200),
                "{path}: {status} {body}"
            );
            ensure!(
                !body.replace(text, "").contains("SELECT") && !body.contains(repo) && !body.contains("sqlx"),
                "{path}: {body}"
            );
        }
        check_hostile_bodies(&coordinator, &http, text, &task).await?;
    }
    let after = coordinator.client().list_streams(None).await?.streams;
    // What was taken as a key or a name stands in tasks of its own, and nothing else has changed.
    ensure!(streams.iter().all(|stream| after.contains(stream)), "a stream has changed");
    ensure!(!coordinator.log_tail().contains("panicked"), "{}", coordinator.log_tail());
    coordinator.end_and_check().await
}

/// The same words in bodies: refused, or kept as the words they are.
async fn check_hostile_bodies(
    coordinator: &CoordinatorProcess,
    http: &reqwest::Client,
    text: &str,
    task: &str,
) -> Result<()> {
    let mut spec = coordinator.client().get_task(task.parse()?).await?.task.spec;
    let queue: QueueName = "hostile".parse()?;
    spec.queue = queue;
    spec.title = text.to_owned();
    spec.text = text.to_owned();
    spec.dedup_key = Some(format!("{text}{text}"));
    let spec = serde_json::to_value(&spec)?;
    let with = |name: &str, value: Value| {
        let mut spec = spec.clone();
        spec[name] = value;
        json!({ "tasks": [spec] })
    };
    let id = "01923456-789a-7bcd-8ef0-123456789abc";
    let engines = json!([{ "name": text, "version": 1 }]);
    for (path, body) in [
        ("/v1/tasks", json!({ "tasks": [spec] })),
        ("/v1/tasks", with("queue", json!(text))),
        ("/v1/tasks", with("engine", json!(text))),
        ("/v1/tasks", with("branch", json!(text))),
        (
            "/v1/lease",
            json!({ "incarnation": id, "number": 1, "name": text, "queues": [], "engines": engines, "max": 1, "wait_ms": 0 }),
        ),
        (
            "/v1/lease",
            json!({ "incarnation": id, "number": 2, "name": "w", "queues": [text], "engines": engines, "max": 1, "wait_ms": 0 }),
        ),
        ("/v1/tokens", json!({ "name": text, "role": "read" })),
        ("/v1/blobs/missing", json!({ "hashes": [text] })),
    ] {
        let url = format!("{}{path}", coordinator.address());
        let answer = http.post(url).bearer_auth(coordinator.token()).json(&body).send().await?;
        let status = answer.status().as_u16();
        let said = answer.text().await?;
        ensure!(status < 500, "{path} {body}: {status} {said}\n{}", coordinator.log_tail());
        ensure!(!said.contains("sqlx") && !said.replace(text, "").contains("SELECT"), "{path}: {said}");
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_text_reaches_no_sql_or_file_path_on_sqlite() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    check_hostile_names(StoreLocation::HomeFolder).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn client_text_reaches_no_sql_or_file_path_on_postgres() -> Result<()> {
    let Some(cluster) = PostgresCluster::start() else { return Ok(()) };
    let _room = acquire_scenario_slot().await;
    check_hostile_names(fresh_database(&cluster).await?).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn actions_are_recorded_under_the_token_name() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let request = CreateTokenRequest { name: "carol".parse()?, role: TokenRole::Submit, expires_in_ms: None };
    let made = coordinator.client().create_token(&request).await?;
    let carol =
        CoordinatorClient::new(coordinator.address(), Secret::new(&made.secret).context("a secret")?)?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let (repo, script) = (sample.path().to_str().context("UTF-8")?, script.to_str().context("UTF-8")?);
    let args = ["submit", "Do it", "--json", "--repo", repo, "--model", "scripted:api", "--script", script];
    let row: Value = serde_json::from_str(&coordinator.run_docket(&args).await?.into_stdout()?)?;
    let first = row["id"].as_str().context("an id")?;
    let spec = coordinator.client().get_task(first.parse()?).await?.task.spec;
    let model: ModelRef = spec.model.clone();
    let spec = docket_schema::task::TaskSpec { model, ..spec };
    let task = carol.submit(&SubmitRequest { tasks: vec![spec], ids: None }).await?.tasks[0].id;
    carol.pause(task).await?;
    carol.unpause(task).await?;
    carol.cancel(task, "no more").await?;
    carol
        .retry(
            task,
            &docket_schema::api::RetryRequest { reason: "again".to_owned(), without_dependencies: false },
        )
        .await?;
    let log = coordinator.run_docket(&["logs", &task.to_string(), "--json"]).await?.into_stdout()?;
    let events: Vec<Value> = log.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    for kind in ["TaskSubmitted", "TaskPaused", "TaskCancelled", "TaskRetried"] {
        let event =
            events.iter().find(|event| event["kind"] == kind).with_context(|| format!("{kind}: {log}"))?;
        ensure!(event["payload"]["by"] == "carol", "{event}");
    }
    Ok(())
}

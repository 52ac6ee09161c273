//! Backlogs from a file to the end: imported, listed, acted on, exported, through the binary.

use std::{ffi::OsStr, path::Path};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    CoordinatorProcess, DocketTerminal, FinishedProcess, LeaseDuration, RunningProcess, SampleRepository,
    Signal, StoreLocation, TestProgram, WorkerOptions, WorkerProcess, acquire_scenario_slot, run_program,
    run_with_input, send_signal,
};
use serde_json::{Value, json};

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "new.txt", content = "new\n" } }]
[[turns]]
text = "Done."
"#;

/// A home without a coordinator, a repository, and a script.
struct BacklogHome {
    home: tempfile::TempDir,
    sample: SampleRepository,
    script: String,
}

impl BacklogHome {
    fn new() -> Result<Self> {
        let sample = SampleRepository::new(&[("a.txt", "one\n")])?;
        let script = sample.write_script(SCRIPT)?.to_str().context("UTF-8")?.to_owned();
        Ok(Self { home: tempfile::tempdir()?, sample, script })
    }

    fn write_file(&self, name: &str, text: &str) -> Result<String> {
        let path = self.home.path().join(name);
        std::fs::write(&path, text)?;
        Ok(path.to_str().context("UTF-8")?.to_owned())
    }

    async fn run_docket(&self, args: &[&str]) -> Result<FinishedProcess> {
        let env = [("DOCKET_HOME", self.home.path().as_os_str())];
        run_program(TestProgram::Docket, self.home.path(), &env, args).await
    }

    async fn import(&self, file: &str, more: &[&str]) -> Result<FinishedProcess> {
        let mut args = vec!["import", file, "--model", "scripted:x", "--script", &self.script];
        args.extend(more);
        self.run_docket(&args).await
    }

    fn repo(&self) -> &str {
        self.sample.path().to_str().unwrap_or_default()
    }

    async fn list_tasks(&self, more: &[&str]) -> Result<Vec<Value>> {
        let mut args = vec!["ps", "--json", "-n", "10000"];
        args.extend(more);
        parse_rows(&self.run_docket(&args).await?.into_stdout()?)
    }
}

fn parse_rows(text: &str) -> Result<Vec<Value>> {
    text.lines().map(|line| serde_json::from_str(line).with_context(|| line.to_owned())).collect()
}

fn parse_row(text: &str) -> Result<Value> {
    parse_rows(text)?.pop().context("a line")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn backlog_is_imported_once_and_atomically() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = BacklogHome::new()?;
    let lines: Vec<String> = (0..2500)
        .map(|n| json!({ "text": format!("Task {n}\n\nwith words"), "priority": n % 7, "queue": if n % 2 == 0 { "a" } else { "b" } }).to_string())
        .collect();
    let mut bad = lines.clone();
    bad[1700] = r#"{"text": "x", "prioritie": 1}"#.to_owned();
    bad[20] = r#"{"text": "x", "commit": "nowhere"}"#.to_owned();
    let file = stage.write_file("many.jsonl", &bad.join("\n"))?;
    let repo = ["--repo", stage.repo()];
    let refused = stage.import(&file, &repo).await?;
    ensure!(
        refused.code() == Some(2)
            && refused
                .stderr
                .contains("many.jsonl:1701: unknown field `prioritie`; did you mean `priority`?"),
        "{refused:?}"
    );
    ensure!(refused.stderr.contains("nothing was submitted"), "{refused:?}");
    bad[1700].clone_from(&lines[1700]);
    let file = stage.write_file("many.jsonl", &bad.join("\n"))?;
    let refused = stage.import(&file, &repo).await?;
    ensure!(refused.code() == Some(2) && refused.stderr.contains("many.jsonl:21: `commit`:"), "{refused:?}");
    ensure!(stage.list_tasks(&[]).await?.is_empty(), "nothing was submitted");
    let dry = parse_row(
        &stage
            .import(&file, &[&repo[..], &["--skip-bad", "--dry-run", "--json"]].concat())
            .await?
            .into_stdout()?,
    )?;
    ensure!((&dry["would_submit"], &dry["bad"]) == (&json!(2499), &json!(1)), "{}", dry["bad"]);
    ensure!(stage.list_tasks(&[]).await?.is_empty(), "a dry run submits nothing");

    let some = parse_row(
        &stage.import(&file, &[&repo[..], &["--skip-bad", "--json"]].concat()).await?.into_stdout()?,
    )?;
    ensure!((&some["submitted"], &some["duplicates"]) == (&json!(2499), &json!(0)), "{}", some["submitted"]);
    // What was wrong is mended, and a task comes on top: these two are new.
    let whole = [&lines[..], &[r#"{"text": "One more"}"#.to_owned()]].concat();
    let file = stage.write_file("many.jsonl", &whole.join("\n"))?;
    for submitted in [2, 0] {
        let again =
            parse_row(&stage.import(&file, &[&repo[..], &["--json"]].concat()).await?.into_stdout()?)?;
        ensure!(
            again["submitted"] == submitted && again["duplicates"] == 2501 - submitted,
            "{}",
            again["submitted"]
        );
        let (first, task) = (&some["tasks"][0], &again["tasks"][0]);
        ensure!(
            first["id"] == task["id"] && task["duplicate"] == true,
            "the first's id is answered: {first} {task}"
        );
    }
    let tasks = stage.list_tasks(&[]).await?;
    ensure!(tasks.len() == 2501 && tasks[0]["title"] == "One more", "{}", tasks.len());

    // Also where one has ended meanwhile, unless it is wanted again.
    let id = some["tasks"][0]["id"].as_str().context("an id")?;
    stage.run_docket(&["cancel", id]).await?.into_stdout()?;
    let again = parse_row(&stage.import(&file, &[&repo[..], &["--json"]].concat()).await?.into_stdout()?)?;
    ensure!(again["submitted"] == 0, "{}", again["submitted"]);
    let again =
        parse_row(&stage.import(&file, &[&repo[..], &["--json", "--again"]].concat()).await?.into_stdout()?)?;
    ensure!(again["submitted"] == 1, "{}", again["submitted"]);

    let name = some["name"].as_str().context("a name")?;
    let batch = parse_row(&stage.run_docket(&["batch", name, "--json"]).await?.into_stdout()?)?;
    ensure!(
        batch["tasks"] == 2502 && batch["states"] == json!({ "available": 2501, "cancelled": 1 }),
        "{batch}"
    );
    ensure!(stage.list_tasks(&["--batch", name, "--queue", "b"]).await?.len() == 1250);
    let listed = stage.run_docket(&["batch"]).await?.into_stdout()?;
    ensure!(listed.contains(name) && listed.contains("2502"), "{listed}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_formats_are_imported_from_files_and_pipes() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = BacklogHome::new()?;
    let list =
        stage.write_file("TODO.md", "# Shop\n\n- [ ] Mend it\n\n  ```\n  as so\n  ```\n- [x] Done\n")?;
    let said = stage.import(&list, &["--empty"]).await?.into_stdout()?;
    ensure!(said.contains("submitted 1 task as batch TODO.md; 1 done or closed"), "{said}");

    let issues = json!([
        { "number": 7, "title": "Crash", "body": "b", "labels": [{ "name": "bug" }], "state": "OPEN", "url": "https://github.com/o/n/issues/7" },
        { "number": 8, "title": "Old", "body": "b", "labels": [], "state": "CLOSED", "url": "https://github.com/o/n/issues/8" },
    ]);
    let env = [("DOCKET_HOME", stage.home.path().as_os_str())];
    let args = [
        "import",
        "-",
        "--empty",
        "--model",
        "scripted:x",
        "--script",
        &stage.script,
        "--label-priority",
        "BUG=9",
        "--json",
    ];
    for (submitted, duplicates) in [(1, 0), (0, 1)] {
        let fed = run_with_input(
            TestProgram::Docket,
            stage.home.path(),
            &env,
            &args,
            issues.to_string().as_bytes(),
        )
        .await?;
        let said = parse_row(&fed.into_stdout()?)?;
        ensure!(
            said["submitted"] == submitted && said["duplicates"] == duplicates && said["format"] == "github",
            "{said}"
        );
    }
    let tasks = stage.list_tasks(&["--title", "crash*"]).await?;
    ensure!(tasks.len() == 1 && tasks[0]["priority"] == 9 && tasks[0]["title"] == "Crash (#7)", "{tasks:?}");

    let strange = stage.write_file("x.bin", "\u{1}\u{2}")?;
    let refused = stage.import(&strange, &["--empty"]).await?;
    ensure!(
        refused.code() == Some(2) && refused.stderr.contains("not in a format that docket imports"),
        "{refused:?}"
    );
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bulk_operations_confirm_list_and_respect_their_filter() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = BacklogHome::new()?;
    let lines: Vec<String> = (0..700).map(|n| json!({ "text": format!("Task {n}") }).to_string()).collect();
    let file = stage.write_file("b.jsonl", &lines.join("\n"))?;
    stage.import(&file, &["--empty", "--batch", "acts"]).await?.into_stdout()?;
    stage
        .run_docket(&["submit", "Stays", "--empty", "--model", "scripted:x", "--script", &stage.script])
        .await?
        .into_stdout()?;

    let unasked = stage.run_docket(&["cancel", "--batch", "acts"]).await?;
    ensure!(unasked.code() == Some(2) && unasked.stderr.contains("--yes"), "{unasked:?}");
    let all = stage.run_docket(&["cancel", "--yes"]).await?;
    ensure!(all.code() == Some(2) && all.stderr.contains("no tasks selected"), "{all:?}");
    let dry = stage.run_docket(&["cancel", "--batch", "acts", "--dry-run"]).await?.into_stdout()?;
    ensure!(dry.ends_with("700 tasks match; nothing was changed\n"), "{dry}");
    let said = stage
        .run_docket(&["cancel", "--batch", "acts", "--yes", "--reason", "not now"])
        .await?
        .into_stdout()?;
    ensure!(said == "700 tasks were cancelled, 0 refused\n", "{said}");
    ensure!(stage.list_tasks(&["--state", "cancelled"]).await?.len() == 700);

    // Without a state, a retry means what was given up alone.
    let none = stage.run_docket(&["retry", "--batch", "acts", "--yes"]).await?.into_stdout()?;
    ensure!(none.starts_with("0 tasks"), "{none}");
    let again = [
        "retry",
        "--batch",
        "acts",
        "--state",
        "cancelled",
        "--title",
        "Task 69?",
        "--yes",
        "--json",
        "--reason",
        "now",
    ];
    let done = parse_rows(&stage.run_docket(&again).await?.into_stdout()?)?;
    ensure!(done.len() == 10 && done.iter().all(|task| task["state"] == "available"), "{done:?}");
    let id = done[0]["id"].as_str().context("an id")?;
    let log = stage.run_docket(&["logs", id]).await?.into_stdout()?;
    ensure!(log.contains("TaskRetried") && log.contains("now"), "the reason stands in the log: {log}");

    stage
        .run_docket(&["reprioritize", "--priority", "-3", "--title", "Task 69*", "--yes"])
        .await?
        .into_stdout()?;
    let low = stage.list_tasks(&["--sort", "priority", "--state", "available"]).await?;
    ensure!(low.len() == 11 && low[0]["title"] == "Stays" && low[1]["priority"] == -3, "{low:?}");
    stage.run_docket(&["pause", "--title", "Task 69*", "--yes"]).await?.into_stdout()?;
    ensure!(stage.list_tasks(&["--state", "blocked"]).await?.len() == 10);
    let refused = stage.run_docket(&["unpause", "--state", "blocked,available", "--yes"]).await?;
    ensure!(
        refused.code() == Some(4) && refused.stdout.contains("10 tasks were unpaused, 1 refused"),
        "{refused:?}"
    );
    ensure!(refused.stderr.contains("Stays"), "{refused:?}");

    let table = stage.run_docket(&["ps", "-n", "2", "--columns", "task,queue,priority,title"]).await?;
    ensure!(
        table.stdout.starts_with("TASK")
            && table.stdout.contains("PRIORITY  TITLE")
            && !table.stdout.contains("RUNS"),
        "{table:?}"
    );
    stage.run_docket(&["verify"]).await?.into_stdout()?;
    Ok(())
}

/// An instance from the data set to a patch that applies, and tasks of one file that wait for one another.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn swe_bench_instance_becomes_an_applicable_prediction() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let stage = BacklogHome::new()?;
    let git = async |folder: &Path, args: &[&str]| {
        run_program(TestProgram::Git, folder, &[], args).await?.into_stdout()
    };
    let clones = stage.home.path().join("clones");
    std::fs::create_dir_all(&clones)?;
    let clone = clones.join("own__shop");
    git(&clones, &["clone", "-q", stage.repo(), "own__shop"]).await?;
    let commit = git(&clone, &["rev-parse", "HEAD"]).await?.trim().to_owned();
    let instance = json!({
        "instance_id": "own__shop-1", "repo": "own/shop", "base_commit": commit, "problem_statement": "one should be two",
        "hints_text": "", "patch": "unseen", "FAIL_TO_PASS": "[]", "version": "1",
    });
    std::fs::create_dir_all(stage.home.path().join("lists"))?;
    let file = stage.write_file("lists/swe.jsonl", &instance.to_string())?;
    let clones = clones.to_str().context("UTF-8")?;
    let import = [
        "import",
        &file,
        "--repos",
        clones,
        "--batch",
        "lite",
        "--model",
        "scripted:x",
        "--script",
        &stage.script,
    ];
    // Where the command is given, not where the file is.
    let relative = [&["import", "lists/swe.jsonl", "--repos", "clones"], &import[4..]].concat();
    let env = [("DOCKET_HOME", coordinator.home().as_os_str())];
    run_program(TestProgram::Docket, stage.home.path(), &env, &relative).await?.into_stdout()?;
    let waited = coordinator.run_docket(&["batch", "lite", "--wait", "--json"]).await?;
    let view = parse_row(&waited.stdout).with_context(|| worker.log_tail())?;
    ensure!(
        waited.code() == Some(0) && view["states"] == json!({ "completed": 1 }),
        "{waited:?}\n{}",
        worker.log_tail()
    );
    let said = coordinator
        .run_docket(&["export", "--predictions", "--batch", "lite", "--model-name", "me"])
        .await?
        .into_stdout()?;
    let prediction = parse_row(&said)?;
    ensure!(
        prediction["instance_id"] == "own__shop-1" && prediction["model_name_or_path"] == "me",
        "{prediction}"
    );
    let names: Vec<&String> = prediction.as_object().context("an object")?.keys().collect();
    ensure!(names == ["instance_id", "model_name_or_path", "model_patch"], "{names:?}");
    let patch = prediction["model_patch"].as_str().context("a patch")?;
    let args: [&OsStr; 3] = ["apply".as_ref(), "-v".as_ref(), "-".as_ref()];
    run_with_input(TestProgram::Git, &clone, &[], &args, patch.as_bytes()).await?.into_stdout()?;
    ensure!(std::fs::read_to_string(clone.join("new.txt"))? == "new\n");
    let other = coordinator.run_docket(&["export", "--predictions", "--batch", "none"]).await?;
    ensure!(other.code() == Some(3), "{other:?}");

    // What JSON cannot hold is left out, and is no prediction.
    let latin = "[[turns]]\ncalls = [{ name = \"run_command\", args = { command = \"printf 'caf\\\\351' > menu.txt\" } }]\n\
                 [[turns]]\ntext = \"Done.\"\n";
    let latin = stage.write_file("latin.toml", latin)?;
    let of_latin =
        [&import[..4], &["--batch", "latin", "--model", "scripted:x", "--script", &latin]].concat();
    coordinator.run_docket(&of_latin).await?.into_stdout()?;
    coordinator.run_docket(&["batch", "latin", "--wait"]).await?.into_stdout()?;
    let to = stage.home.path().join("predictions.jsonl");
    let to = to.to_str().context("UTF-8")?;
    let export = ["export", "--predictions", "-o", to, "--batch"];
    let none = coordinator.run_docket(&[&export[..], &["latin"]].concat()).await?;
    ensure!(none.code() == Some(1) && none.stderr.contains("nothing to write"), "{none:?}");
    let some = coordinator.run_docket(&[&export[..], &["lite"]].concat()).await?.into_stdout()?;
    ensure!(some.starts_with("wrote 1 prediction to "), "{some}");

    // The same instances once more, as another batch; and a chain whose first comes last in its file.
    let more = [&import[..4], &["--batch", "other"], &import[6..], &["--json"]].concat();
    let said = parse_row(&coordinator.run_docket(&more).await?.into_stdout()?)?;
    ensure!(said["submitted"] == 1, "{said}");
    let chain = [
        json!({ "text": "last", "after": ["middle"] }),
        json!({ "text": "middle", "key": "middle", "after": ["first"], "dedup": "chain-middle" }),
        json!({ "text": "first", "key": "first" }),
    ];
    let chain = stage.write_file("chain.jsonl", &chain.map(|line| line.to_string()).join("\n"))?;
    let import = [
        "import",
        &chain,
        "--repo",
        stage.repo(),
        "--model",
        "scripted:x",
        "--script",
        &stage.script,
        "--batch",
        "chain",
    ];
    coordinator.run_docket(&import).await?.into_stdout()?;
    let waited = coordinator.run_docket(&["batch", "chain", "--wait"]).await?;
    ensure!(waited.code() == Some(0), "{waited:?}\n{}", worker.log_tail());
    let ended = parse_rows(
        &coordinator
            .run_docket(&["ps", "--json", "--batch", "chain", "--sort", "ended"])
            .await?
            .into_stdout()?,
    )?;
    let titles: Vec<&Value> = ended.iter().map(|task| &task["title"]).collect();
    ensure!(titles == ["last", "middle", "first"], "each after what it waits for: {titles:?}");
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// On a pipe a watched list tells what changes, and nothing else.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watched_list_prints_changes_only() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let stage = BacklogHome::new()?;
    let submit =
        ["submit", "Watched", "--empty", "--model", "scripted:x", "--script", &stage.script, "--json"];
    let task = parse_row(&coordinator.run_docket(&submit).await?.into_stdout()?)?;
    let (mut watch, first) = RunningProcess::start_docket(
        "watch",
        coordinator.home(),
        &[],
        &["ps", "--watch", "--json", "--title", "watch*"],
    )
    .await?;
    ensure!(parse_row(&first)?["state"] == "available", "{first}");
    coordinator.run_docket(&["cancel", task["id"].as_str().context("an id")?]).await?.into_stdout()?;
    let changed = parse_row(&watch.next_line().await?)?;
    ensure!(changed["state"] == "cancelled" && changed["id"] == task["id"], "{changed}");
    // What leaves the list is told as well: whoever reads believes in what was said last.
    coordinator.run_docket(&["retry", task["id"].as_str().context("an id")?]).await?.into_stdout()?;
    let filtered = ["ps", "--watch", "--json", "--state", "available"];
    let (mut narrow, first) =
        RunningProcess::start_docket("narrow", coordinator.home(), &[], &filtered).await?;
    ensure!(parse_row(&first)?["state"] == "available", "{first}");
    coordinator.run_docket(&["cancel", task["id"].as_str().context("an id")?]).await?.into_stdout()?;
    let left = parse_row(&narrow.next_line().await?)?;
    ensure!(left["state"] == "cancelled" && left["id"] == task["id"], "{left}");
    send_signal(narrow.pid(), Signal::SIGINT);
    ensure!(narrow.wait().await?.success(), "Ctrl-C ends it");
    send_signal(watch.pid(), Signal::SIGINT);
    ensure!(watch.wait().await?.success(), "Ctrl-C ends it");
    coordinator.end_and_check().await
}

/// On a terminal somebody is asked, and a watched list is drawn again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn terminal_bulk_operation_asks_and_watched_list_redraws() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = BacklogHome::new()?;
    let lines: Vec<String> = (0..8).map(|n| json!({ "text": format!("Task {n}") }).to_string()).collect();
    let file = stage.write_file("b.jsonl", &lines.join("\n"))?;
    stage.import(&file, &["--empty", "--batch", "asked"]).await?.into_stdout()?;
    let env = [("DOCKET_HOME", stage.home.path().as_os_str())];
    let cancel = ["cancel", "--batch", "asked", "--title", "Task *"];
    for (answer, left, code) in [("\r", 8, 1), ("n\r", 8, 1), ("y\r", 0, 0)] {
        let mut person = DocketTerminal::start(stage.home.path(), &env, &cancel)?;
        person.wait_for_text("and 3 more").await?;
        person.wait_for_text("cancel 8 tasks? [y/N]").await?;
        person.send_keys(answer)?;
        ensure!(person.wait().await?.code() == Some(code), "{answer:?}: {}", person.full_output());
        ensure!(stage.list_tasks(&["--state", "available"]).await?.len() == left, "{answer:?}");
    }
    let mut person = DocketTerminal::start(stage.home.path(), &env, &["ps", "--watch"])?;
    person.wait_for_text("Task 7").await?;
    stage
        .run_docket(&["retry", "--state", "cancelled", "--title", "Task 7", "--yes"])
        .await?
        .into_stdout()?;
    person.wait_for_text("available").await?;
    ensure!(
        person.full_output().contains("\u{1b}[2J\u{1b}[H") && !person.full_output().contains("\\e["),
        "{}",
        person.full_output()
    );
    send_signal(person.pid()?, Signal::SIGINT);
    ensure!(person.wait().await?.success(), "{}", person.full_output());
    Ok(())
}

/// Lines in the same words that ask for something else are tasks of their own; what asks the same is one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lines_that_differ_in_any_field_are_separate_tasks() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = BacklogHome::new()?;
    let same = r#"{"text": "Add a flag"}"#;
    let lines = [
        same,
        r#"{"text": "Add a flag", "tests": "make t2"}"#,
        r#"{"text": "Add a flag", "branch": "b2"}"#,
        r#"{"text": "Add a flag", "engine": "react", "effort": "high"}"#,
        r#"{"text": "Add a flag", "key": "k1"}"#,
        r#"{"text": "Add a flag", "key": "k2", "after": ["k1"]}"#,
        r#"{"text": "Add a flag", "priority": 3}"#,
        same,
    ];
    let file = stage.write_file("alike.jsonl", &lines.join("\n"))?;
    let repo = ["--repo", stage.repo(), "--json"];
    let done = parse_row(&stage.import(&file, &repo).await?.into_stdout()?)?;
    ensure!((&done["submitted"], &done["repeated"]) == (&json!(6), &json!(2)), "{done}");
    let again = parse_row(&stage.import(&file, &repo).await?.into_stdout()?)?;
    ensure!((&again["submitted"], &again["duplicates"]) == (&json!(0), &json!(6)), "{again}");
    // All faults of a file are told at once, of commits as well.
    let bad = [
        r#"{"text": "a", "prio": 1}"#,
        r#"{"text": "b", "commit": "nowhere"}"#,
        r#"{"text": "c", "engine": "none"}"#,
    ];
    let file = stage.write_file("bad.jsonl", &bad.join("\n"))?;
    let refused = stage.import(&file, &["--repo", stage.repo()]).await?;
    let told = ["bad.jsonl:1: ", "bad.jsonl:2: `commit`", "bad.jsonl:3: "]
        .map(|fault| refused.stderr.contains(fault));
    ensure!(refused.code() == Some(2) && told == [true; 3], "{refused:?}");
    Ok(())
}

/// `--again` of a file whose first task failed: what waits for it goes on behind it.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dependents_of_a_failed_task_continue_after_reimport() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = BacklogHome::new()?;
    let lines = [
        r#"{"text": "first", "key": "f"}"#,
        r#"{"text": "second", "after": ["f"]}"#,
        r#"{"text": "third", "key": "t"}"#,
    ];
    let file = stage.write_file("chain.jsonl", &lines.join("\n"))?;
    let repo = ["--repo", stage.repo(), "--batch", "chain", "--json"];
    stage.import(&file, &repo).await?.into_stdout()?;
    let tasks = stage.list_tasks(&[]).await?;
    let id = |title: &str| {
        let task = tasks.iter().find(|task| task["title"] == title);
        task.and_then(|task| task["id"].as_str()).map(str::to_owned).context("a task")
    };
    stage.run_docket(&["cancel", &id("first")?]).await?.into_stdout()?;
    stage.run_docket(&["cancel", &id("third")?]).await?.into_stdout()?;
    let waiting = stage.run_docket(&["batch", "chain"]).await?.into_stdout()?;
    ensure!(waiting.contains("1 is waiting for a task that failed"), "{waiting}");
    // Nobody works here, and nothing is waited for: what is left is a person's.
    let waited = stage.run_docket(&["batch", "chain", "--wait", "--json"]).await?;
    ensure!(waited.code() == Some(1) && parse_row(&waited.stdout)?["behind_failed"] == 1, "{waited:?}");
    let dry = parse_row(
        &stage.import(&file, &[&repo[..], &["--again", "--dry-run"]].concat()).await?.into_stdout()?,
    )?;
    ensure!((&dry["would_submit"], &dry["again"]) == (&json!(2), &json!(1)), "{dry}");
    let again = parse_row(&stage.import(&file, &[&repo[..], &["--again"]].concat()).await?.into_stdout()?)?;
    ensure!((&again["submitted"], &again["again"]) == (&json!(1), &json!(1)), "{again}");
    let states: Vec<Value> =
        stage.list_tasks(&[]).await?.into_iter().map(|task| json!([task["title"], task["state"]])).collect();
    let expected =
        [["third", "available"], ["third", "cancelled"], ["second", "pending"], ["first", "available"]];
    ensure!(json!(states) == json!(expected), "{states:?}");
    let why = stage.run_docket(&["why", &id("second")?]).await?.into_stdout()?;
    ensure!(why.contains(&id("first")?) && why.contains("(available)"), "{why}");
    Ok(())
}

/// What was typed wrong does not pass for nothing to be done; faults are told with line and field.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_targets_and_all_faults_are_reported() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = BacklogHome::new()?;
    let lines: Vec<String> =
        (0..60).map(|n| json!({ "text": format!("Task {n}"), "priority": n % 30 }).to_string()).collect();
    let file = stage.write_file("b.jsonl", &lines.join("\n"))?;
    stage.import(&file, &["--empty", "--batch", "deep/b.jsonl"]).await?.into_stdout()?;
    for args in [
        &["ps", "--batch", "typo"][..],
        &["cancel", "--batch", "typo", "--yes"],
        &["retry", "--batch", "typo", "--yes"],
        &["export", "--predictions", "--batch", "typo"],
        &["batch", "typo"],
    ] {
        let said = stage.run_docket(args).await?;
        ensure!(said.code() == Some(3) && said.stderr.contains("no batch `typo`"), "{args:?} {said:?}");
    }
    // The last part of a name that no other shares will do; an order is one of all that are meant.
    let highest = ["ps", "--json", "--batch", "b.jsonl", "--sort", "priority", "-n", "3"];
    let highest = parse_rows(&stage.run_docket(&highest).await?.into_stdout()?)?;
    let highest: Vec<&Value> = highest.iter().map(|task| &task["priority"]).collect();
    ensure!(highest == [29, 29, 28], "{highest:?}");
    let named = stage.list_tasks(&["--batch", "b.jsonl"]).await?;
    ensure!(named[0]["batch_name"] == "deep/b.jsonl", "{named:?}");
    let mut bad: Vec<String> = (0..30).map(|_| r#"{"text": "x", "priority": "high"}"#.to_owned()).collect();
    bad.extend(["not json", r#"{"text": "a", "after": ["nobody"]}"#, r#"{"text": 5}"#].map(str::to_owned));
    let file = stage.write_file("bad.jsonl", &bad.join("\n"))?;
    let refused = stage.import(&file, &["--empty", "--json"]).await?;
    ensure!(refused.code() == Some(2), "{refused:?}");
    let faults: Vec<Value> =
        parse_rows(&refused.stdout)?.into_iter().filter(|row| row["fault"].is_string()).collect();
    ensure!(faults.len() == 33, "each once: {}", faults.len());
    ensure!((&faults[0]["line"], &faults[0]["field"]) == (&json!(1), &json!("priority")), "{}", faults[0]);
    ensure!(faults[30]["fault"] == "this is not JSON" && faults[31]["field"] == "after", "{faults:?}");
    ensure!(!refused.stdout.contains("i16") && !refused.stdout.contains("struct "), "{}", refused.stdout);
    Ok(())
}

//! `docket checkout`, `diff`, `cat` and `blame` on a real run that did what models do to files: edits,
//! shell commands, modes, links, deletions, names and contents that are no UTF-8, its own commits and stash.
//!
//! What a folder holds is read here by a plain walk that shares no code with docket's snapshots; only the
//! definition of the tree hash is the schema's.

mod api;
mod fixture;

use std::{
    ffi::{OsStr, OsString},
    fs,
    os::unix::ffi::{OsStrExt as _, OsStringExt as _},
    path::Path,
};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, StoreLocation, TestProgram, WorkerOptions,
    WorkerProcess, acquire_scenario_slot, run_program, wait_until,
};
use fixture::{HistoryFixture, LAST, tree_hash_of_folder};
use serde_json::Value;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn run_history_commands_show_each_turn_exactly() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = HistoryFixture::play_run().await?;
    check_checkouts(&scene).await?;
    check_patches(&scene).await?;
    check_diff_formats(&scene).await?;
    check_files(&scene).await?;
    check_blame(&scene).await?;
    check_refusals(&scene).await?;
    check_replaced_folders(&scene).await?;
    api::check_api_matches_commands(&scene).await?;
    check_checkout_is_self_contained(scene).await
}

/// Every turn's folder has the tree that the log recorded for it.
async fn check_checkouts(scene: &HistoryFixture) -> Result<()> {
    let mut seen = std::collections::BTreeSet::new();
    for turn in 0..=LAST {
        let dir = scene.path_in_checkouts(&format!("turn-{turn}"));
        let said = scene.docket_json(&["checkout", &scene.run, &dir, "--turn", &turn.to_string()]).await?;
        let recorded = &scene.trees[turn as usize];
        ensure!(tree_hash_of_folder(Path::new(&dir))? == *recorded, "turn {turn} has another tree");
        ensure!(said["tree"] == recorded.as_str() && said["turn"] == turn && said["ended"] == true, "{said}");
        ensure!(!Path::new(&dir).join("left.log").exists(), "an ignored file was never recorded");
        seen.insert(recorded.clone());
    }
    ensure!(seen.len() >= 7, "the turns differ: {seen:?}");
    let last = scene.path_in_checkouts("last");
    let said = scene.run_docket(&["checkout", &scene.run, &last]).await?;
    ensure!(said.stderr.contains("never recorded") && said.stderr.contains("left.log"), "{}", said.stderr);
    ensure!(
        tree_hash_of_folder(Path::new(&last))? == scene.trees[LAST as usize],
        "without --turn it is the last"
    );
    ensure!(fs::read_dir(scene.place.path())?.count() == LAST as usize + 2, "nothing else is left behind");
    Ok(())
}

/// A patch from A to B, applied to a checkout of A, gives the tree of B; and says what it cannot carry.
async fn check_patches(scene: &HistoryFixture) -> Result<()> {
    for (from, to) in [(0, 1), (1, 2), (2, 3), (3, 4), (5, 6), (0, 6), (6, 0), (3, 1), (2, 5)] {
        let (a, b) = (from.to_string(), to.to_string());
        let args = ["diff", &scene.run, "--from", &a, "--to", &b];
        let done = scene.run_docket(&args).await?;
        ensure!(done.success() && done.stderr.is_empty(), "{from} to {to}: {}", done.stderr);
        let applied = scene.apply_patch(from, &done.bytes, &format!("{from}-to-{to}")).await?;
        ensure!(applied == scene.trees[to as usize], "from {from} to {to} gives another tree");
        if to == from + 1 {
            let one = scene.run_docket(&["diff", &scene.run, "--turn", &b]).await?;
            ensure!(one.bytes == done.bytes, "--turn {to} is what turn {to} changed");
        }
    }
    // Without flags, the whole run against its base: turn 0 changed nothing here.
    let whole = scene.run_docket(&["diff", &scene.run]).await?;
    let same = scene.run_docket(&["diff", &scene.run, "--from", "0", "--to", &LAST.to_string()]).await?;
    ensure!(whole.bytes == same.bytes && !whole.bytes.is_empty(), "{}", whole.stdout);
    let odd = scene.run_docket(&["diff", &scene.run, "--turn", "7"]).await?.stderr;
    ensure!(odd.contains("hollow") && odd.contains("keep.txt") && odd.lines().count() == 2, "{odd}");
    let none = scene.run_docket(&["diff", &scene.run, "--turn", "8"]).await?;
    ensure!(none.bytes.is_empty() && none.stderr.contains("changed nothing"), "{none:?}");
    Ok(())
}

async fn check_diff_formats(scene: &HistoryFixture) -> Result<()> {
    let names = scene.run_docket(&["diff", &scene.run, "--turn", "3", "--name-only", "-z"]).await?.bytes;
    let names: Vec<&[u8]> = names.split(|b| *b == 0).filter(|name| !name.is_empty()).collect();
    let expected: [&[u8]; 6] =
        [b"blob.bin", b"caf\xe9.txt", b"evil\x1b[31m", b"old.txt", b"src/link", b"tool.sh"];
    ensure!(names == expected, "{names:?}");
    let lines = scene.run_docket(&["diff", &scene.run, "--turn", "3", "--name-only"]).await?.stdout;
    ensure!(lines.lines().count() == 6 && lines.contains("evil\\e[31m"), "{lines}");
    let stat = scene.run_docket(&["diff", &scene.run, "--turn", "2", "--stat"]).await?.stdout;
    ensure!(stat == "changed     2 +-  src/a.txt\n1 path differs, 1 lines added, 1 removed\n", "{stat:?}");
    let json = scene.docket_json(&["diff", &scene.run, "--turn", "3"]).await?;
    ensure!(json["from"] == 2 && json["to"] == 3, "{json}");
    ensure!(
        json["from_tree"] == scene.trees[2].as_str() && json["to_tree"] == scene.trees[3].as_str(),
        "{json}"
    );
    let file =
        |name: &str| json["files"].as_array().and_then(|all| all.iter().find(|f| f["path"] == name)).cloned();
    let tool = file("tool.sh").context("a file")?;
    ensure!(tool["old_mode"] == "755" && tool["new_mode"] == "644" && tool["added"] == 0, "{tool}");
    ensure!(file("blob.bin").context("a file")?["added"].is_null(), "binary");
    ensure!(file("src/link").context("a link")?["new_kind"] == "symlink", "{json}");
    Ok(())
}

async fn check_files(scene: &HistoryFixture) -> Result<()> {
    let odd = OsString::from_vec(b"./caf\xe9.txt".to_vec());
    let arg = |text: &str| OsString::from(text);
    let cat = async |turn: &str, path: &OsStr| {
        scene.run_docket(&[arg("cat"), arg(&scene.run), arg("--turn"), arg(turn), path.to_owned()]).await
    };
    ensure!(cat("3", &odd).await?.bytes == b"x\xe9\n", "bytes that are no UTF-8, by a name that is none");
    ensure!(cat("3", OsStr::new("blob.bin")).await?.bytes == b"a\0b", "binary");
    ensure!(cat("1", OsStr::new("src/a.txt")).await?.bytes == b"one\ntwo\nthree\n", "before");
    ensure!(cat("2", OsStr::new("src/a.txt")).await?.bytes == b"one\nTWO\nthree\n", "after");
    let last = scene.run_docket(&["cat", &scene.run, "notes.md"]).await?;
    ensure!(last.bytes == b"first\nagain\n", "without --turn it is the last: {last:?}");
    let link = cat("3", OsStr::new("src/link")).await?;
    ensure!(link.bytes == b"../keep.txt" && link.stderr.contains("symbolic link"), "{link:?}");
    let root = cat("3", OsStr::new(".")).await?.stdout;
    ensure!(root.contains("src/") && root.contains("tool.sh") && root.contains("evil\\e[31m"), "{root}");
    let folder = scene.docket_json(&["cat", &scene.run, "--turn", "3", "src/"]).await?;
    let names: Vec<&str> =
        folder["children"].as_array().into_iter().flatten().filter_map(|c| c["name"].as_str()).collect();
    ensure!(folder["kind"] == "dir" && names == ["a.txt", "link"], "{folder}");
    let file = scene.docket_json(&["cat", &scene.run, "--turn", "3", "tool.sh"]).await?;
    ensure!(file["mode"] == "644" && file["content"]["text"] == "echo tool\n", "{file}");
    Ok(())
}

async fn check_blame(scene: &HistoryFixture) -> Result<()> {
    let rows = async |args: &[&str]| {
        let args: Vec<&str> =
            ["blame", &scene.run, "--json"].into_iter().chain(args.iter().copied()).collect();
        let text = scene.run_docket(&args).await?.into_stdout()?;
        text.lines().map(|line| Ok(serde_json::from_str::<Value>(line)?)).collect::<Result<Vec<Value>>>()
    };
    let turns = |rows: &[Value]| rows.iter().map(|row| row["turn"].as_u64()).collect::<Vec<_>>();
    let edited = rows(&["src/a.txt"]).await?;
    ensure!(turns(&edited) == [None, Some(2), None], "{edited:#?}");
    let line = &edited[1];
    ensure!(line["text"]["text"] == "TWO" && line["line"] == 2 && line["said"] == "I shout.", "{line}");
    ensure!(line["by"][0] == "edit_file src/a.txt" && line["phase"] == "editing", "{line}");
    ensure!(line["by_run"].as_str().is_some_and(|run| run.ends_with(&scene.run)), "{line}");
    ensure!(turns(&rows(&["src/a.txt", "--turn", "1"]).await?) == [None; 3], "before");
    // Written in turn 1, removed in turn 5, written again in turn 6 with the same first line.
    ensure!(turns(&rows(&["notes.md", "--turn", "4"]).await?) == [Some(1)], "the first time");
    ensure!(turns(&rows(&["notes.md"]).await?) == [Some(6), Some(6)], "the second time");
    let command = rows(&["evil\u{1b}[31m"]).await?;
    ensure!(command[0]["by"][0].as_str().is_some_and(|by| by.starts_with("run_command")), "{command:#?}");
    let text = scene.run_docket(&["blame", &scene.run, "src/a.txt"]).await?.into_stdout()?;
    let lines: Vec<&str> = text.lines().collect();
    ensure!(lines.len() == 3 && lines[0].starts_with("base") && lines[0].ends_with("1 one"), "{text}");
    ensure!(
        lines[1].starts_with("turn 2 editing, edit_file src/a.txt") && lines[1].ends_with("2 TWO"),
        "{text}"
    );
    Ok(())
}

/// A command that must fail: its arguments, its exit code, and what its one line must say.
type FailingCommandCase<'a> = (&'a [&'a str], i32, &'a [&'a str]);

async fn check_refusals(scene: &HistoryFixture) -> Result<()> {
    let run = scene.run.as_str();
    let there = scene.path_in_checkouts("turn-1");
    let file = scene.path_in_checkouts("turn-1/notes.md");
    let cases: [FailingCommandCase<'_>; 18] = [
        (&["cat", run, "../x"], 2, &["leaves the workspace"]),
        (&["cat", run, "/etc/passwd"], 2, &["absolute"]),
        (&["cat", run, "src//a.txt"], 2, &["empty"]),
        (&["cat", run, "src/b.txt"], 3, &["src/b.txt", "`src/a.txt`"]),
        (&["cat", run, "old.txt"], 3, &["turn 3 removed it"]),
        (&["cat", run, "--turn", "0", "notes.md"], 3, &["turn 1 creates it"]),
        (&["cat", run, "left.log"], 3, &["not in the snapshots", "ignored"]),
        (&["cat", run, ".git/HEAD"], 3, &["docket checkout"]),
        (&["cat", run, "--turn", "99", "a"], 3, &["turn 99 does not exist", "0 to 8"]),
        (&["blame", run, "src"], 4, &["folder"]),
        (&["blame", run, "src/link"], 4, &["symbolic link"]),
        (&["blame", run, "blob.bin"], 4, &["binary"]),
        (&["blame", run, "nowhere"], 3, &["nowhere"]),
        (&["blame", run, "."], 2, &["specify a file"]),
        (&["diff", run, "--from", "99"], 3, &["turn 99 does not exist"]),
        (&["checkout", run, "--turn", "99", "x"], 3, &["turn 99 does not exist"]),
        (&["checkout", run, &there], 4, &["not empty", "keep.txt", "--force"]),
        (&["checkout", run, &file], 4, &["is not a folder"]),
    ];
    for (args, code, words) in cases {
        let done = scene.run_docket(args).await?;
        let said = done.stderr.trim_end();
        ensure!(done.code() == Some(code) && done.stdout.is_empty(), "{args:?}: {done:?}");
        ensure!(
            said.lines().count() == 1 && words.iter().all(|word| said.contains(word)),
            "{args:?}: {said}"
        );
    }
    ensure!(!Path::new(scene.home.path()).join("x").exists(), "what failed left nothing");
    Ok(())
}

/// `--force` replaces the folder that was named and nothing else; some folders not even then.
async fn check_replaced_folders(scene: &HistoryFixture) -> Result<()> {
    let (dir, beside) = (scene.path_in_checkouts("replace/me"), scene.path_in_checkouts("replace/beside"));
    fs::create_dir_all(Path::new(&dir).join("deep"))?;
    fs::write(Path::new(&dir).join("deep/old"), "old")?;
    fs::write(&beside, "stays")?;
    let outside = scene.path_in_checkouts("replace/outside");
    fs::create_dir(&outside)?;
    fs::write(Path::new(&outside).join("kept"), "kept")?;
    std::os::unix::fs::symlink(&outside, Path::new(&dir).join("link"))?;
    scene.run_docket(&["checkout", &scene.run, "--turn", "2", "--force", &dir]).await?.into_stdout()?;
    ensure!(tree_hash_of_folder(Path::new(&dir))? == scene.trees[2], "replaced");
    ensure!(
        fs::read_to_string(&beside)? == "stays" && Path::new(&outside).join("kept").exists(),
        "only that"
    );
    ensure!(fs::read_dir(scene.path_in_checkouts("replace"))?.count() == 3, "nothing else is left behind");
    // A failed checkout leaves what was there.
    scene.run_docket(&["checkout", &scene.run, "--turn", "99", "--force", &dir]).await?;
    ensure!(tree_hash_of_folder(Path::new(&dir))? == scene.trees[2], "kept");

    let empty = scene.path_in_checkouts("replace/empty");
    fs::create_dir(&empty)?;
    scene.run_docket(&["checkout", &scene.run, "--turn", "1", &empty]).await?.into_stdout()?;
    ensure!(tree_hash_of_folder(Path::new(&empty))? == scene.trees[1], "an empty folder is taken");

    let home = scene.home.path().to_str().context("UTF-8")?;
    let repo = scene.sample.path().to_str().context("UTF-8")?;
    for (dir, word) in [(home, "docket's home"), (repo, "the task came from"), ("/", "root")] {
        let done = scene.run_docket(&["checkout", &scene.run, "--force", dir]).await?;
        ensure!(done.code() == Some(4) && done.stderr.contains(word), "{dir}: {done:?}");
    }
    let up = format!("{dir}/..");
    let done = scene.run_docket(&["checkout", &scene.run, "--force", &up]).await?;
    ensure!(done.code() == Some(2) && done.stderr.contains("ends with `..`"), "{done:?}");
    ensure!(
        scene.sample.path().join("src/a.txt").exists() && scene.home.path().join("docket.db").exists(),
        "there"
    );
    Ok(())
}

/// The model's commits, branches and stash, after docket's home and the source are gone.
async fn check_checkout_is_self_contained(scene: HistoryFixture) -> Result<()> {
    let dir = scene.path_in_checkouts("last");
    let HistoryFixture { home, sample, place, .. } = scene;
    drop((home, sample));
    let git =
        async |args: &[&str]| run_program(TestProgram::Git, Path::new(&dir), &[], args).await?.into_stdout();
    let log = git(&["log", "--format=%s"]).await?;
    ensure!(log == "by the model\nstart\n", "{log}");
    ensure!(git(&["branch", "--list", "side"]).await?.contains("side"), "a branch of the model's");
    ensure!(git(&["stash", "list"]).await?.lines().count() == 1, "a stash of the model's");
    let status = git(&["status", "--porcelain"]).await?;
    ensure!(status.contains(" M notes.md"), "what is not committed: {status}");
    git(&["fsck", "--full", "--no-dangling"]).await?;
    git(&["stash", "pop", "--quiet"]).await?;
    ensure!(
        fs::read(Path::new(&dir).join("keep.txt"))?.starts_with(b"stash"),
        "the stash holds what it held"
    );
    ensure!(
        OsStr::new(&dir).as_bytes().starts_with(place.path().as_os_str().as_bytes()),
        "the place outlives this"
    );
    Ok(())
}

const SLOW: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "of the first turn\n" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "echo of the second >> a.txt" } }]
[[turns]]
delay_ms = 600000
text = "Never said."
"#;

const QUICK: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "of the first turn\n" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "echo of the second >> a.txt" } }]
[[turns]]
text = "Done."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn running_and_forked_runs_can_be_inspected() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let options = WorkerOptions { slots: 2, ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let submit = async |name: &str, script: &str| {
        let file = sample.write_script(script)?;
        let args = ["--model", name, "--script", file.to_str().context("UTF-8")?];
        Ok::<_, anyhow::Error>(sample.submit(&coordinator, &args).await?.0)
    };
    let slow = submit("scripted:slow", SLOW).await?;
    let run = wait_until("a run in its third turn", async || {
        let run = coordinator.client().get_task(slow).await.ok()?.task.last_run?;
        (coordinator.client().get_run(run).await.ok()?.turn == 3).then_some(run)
    });
    let run = run.await.with_context(|| worker.log_tail())?.to_string();
    let said = coordinator.run_docket(&["diff", &run]).await?;
    ensure!(
        said.stdout.contains("+of the second") && said.stderr.contains("turn 3 has not ended"),
        "{said:?}"
    );
    let place = tempfile::tempdir()?;
    let dir = place.path().join("now");
    let dir = dir.to_str().context("UTF-8")?;
    coordinator.run_docket(&["checkout", &run, dir]).await?.into_stdout()?;
    ensure!(
        fs::read_to_string(Path::new(dir).join("a.txt"))? == "of the first turn\nof the second\n",
        "so far"
    );
    ensure!(
        coordinator.run_docket(&["cat", &run, "--turn", "1", "a.txt"]).await?.into_stdout()?
            == "of the first turn\n",
        "cat"
    );
    coordinator.run_docket(&["cancel", &run]).await?.into_stdout()?;

    let quick = submit("scripted:quick", QUICK).await?;
    let parent = coordinator.wait_until_ended(quick).await?.task.last_run.context("a run")?.to_string();
    coordinator.run_docket(&["resume", &parent, "--turn", "1"]).await?.into_stdout()?;
    let child = wait_until("a second run that ended", async || {
        let view = coordinator.client().get_task(quick).await.ok()?;
        let last = view.task.last_run?.to_string();
        (view.task.state.is_ended() && last != parent).then_some(last)
    });
    let child = child.await.with_context(|| worker.log_tail())?;
    let blamed = coordinator.run_docket(&["blame", &child, "a.txt", "--json"]).await?.into_stdout()?;
    let rows: Vec<Value> = blamed.lines().map(serde_json::from_str).collect::<Result<_, _>>()?;
    let by: Vec<_> = rows.iter().map(|row| (row["turn"].as_u64(), row["by_run"].as_str())).collect();
    ensure!(by == [(Some(1), Some(parent.as_str())), (Some(2), Some(child.as_str()))], "{rows:#?}");
    let text = coordinator.run_docket(&["blame", &child, "a.txt"]).await?.into_stdout()?;
    ensure!(text.starts_with(&format!("turn 1 of {}", &parent[parent.len() - 8..])), "{text}");
    worker.drain().await?;
    coordinator.end_and_check().await
}

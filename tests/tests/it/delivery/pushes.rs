//! Pushes to a real remote on the same disk: once, broken off, refused; and the hook that runs after.

use std::{ffi::OsStr, fs};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{DocketTerminal, Signal, acquire_scenario_slot, send_signal, wait_until};

use super::scene::{DeliveryFixture, EDIT};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn result_is_pushed_on_completion_without_running_repository_code() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let bare = scene.add_remote().await?;
    let trap = format!("#!/bin/sh\ntouch {}\n", scene.path_in("fired").display());
    for hook in [".git/hooks/pre-push", ".git/hooks/reference-transaction"] {
        scene.write_executable(&scene.repo_path().join(hook), &trap)?;
    }
    for hook in ["pre-receive", "update", "post-receive", "post-update", "reference-transaction"] {
        scene.write_executable(&bare.join("hooks").join(hook), &trap)?;
    }
    let fired = format!("touch {}", scene.path_in("fired").display());
    for setting in ["core.sshCommand", "credential.helper", "core.alternateRefsCommand"] {
        scene.git_output(&["config", setting, &fired]).await?;
        scene.git_output_at(&bare, &["config", setting, &fired]).await?;
    }

    let id = scene.submit_task(EDIT, &["--push", "--branch", "fix/it"]).await?;
    let shown = async || scene.run_docket(&["show", &id]).await?.into_stdout();
    ensure!(shown().await?.contains("fix/it, to be created and pushed"), "{}", shown().await?);
    let up = scene.start_up().await?;
    let row = wait_until("the push", async || {
        let row = scene.task_row(&id).await.ok()?;
        (row["delivery"]["delivered"].as_array()?.len() == 2).then_some(row)
    });
    let row = row.await.with_context(|| up.log_tail())?;
    ensure!(shown().await?.contains("fix/it, pushed"), "{}", shown().await?);
    let commit = scene.git_output(&["rev-parse", "fix/it"]).await?;
    ensure!(scene.git_output_at(&bare, &["rev-parse", "fix/it"]).await? == commit, "{row}");
    ensure!(
        row["delivery"]["delivered"][1]["remote"] == "origin" && row["delivery"]["begun"].is_null(),
        "{row}"
    );
    let kinds = ["TaskDelivered", "TaskDeliveryRequested", "TaskDelivered"];
    ensure!(scene.event_kinds(&id, "TaskDeliver").await? == kinds, "an intent, and its end");

    let again = scene.run_docket(&["push", &id]).await?.into_stdout()?;
    ensure!(again.contains("already on origin"), "{again}");
    ensure!(scene.event_kinds(&id, "TaskDeliver").await? == kinds, "nothing was begun again");
    ensure!(!scene.path_in("fired").exists(), "no hook, no command of either repository ran");
    // Control: they are traps.
    scene.git_output(&["push", "--quiet", "origin", "main:control"]).await?;
    ensure!(scene.path_in("fired").exists(), "git itself runs them");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn push_killed_after_taking_effect_is_detected_as_done() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let bare = scene.add_remote().await?;
    // A way to the remote that carries the push, and then never answers.
    let (ssh, pid) = (scene.path_in("bin/ssh"), scene.path_in("pid"));
    let stalls = format!(
        "#!/bin/sh\nfor last; do :; done\ncase \"$last\" in\n*receive-pack*) sh -c \"$last\"; echo $$ > {0}.new; mv {0}.new {0}; \
         exec sleep 600;;\n*) exec sh -c \"$last\";;\nesac\n",
        pid.display()
    );
    scene.write_executable(&ssh, &stalls)?;
    let url = format!("ssh://remote.invalid{}", bare.display());
    scene.git_output(&["remote", "set-url", "origin", &url]).await?;
    let id = scene.play_task(EDIT, &[]).await?;
    let home = scene.home_path();
    let env: [(&str, &OsStr); 2] = [("DOCKET_HOME", home.as_os_str()), ("GIT_SSH_COMMAND", ssh.as_os_str())];

    let mut push = DocketTerminal::start(&home, &env, &["push", &id, "--branch", "x"])?;
    let stalled: i32 =
        wait_until("the push to take effect", async || fs::read_to_string(&pid).ok()?.trim().parse().ok())
            .await
            .with_context(|| push.full_output())?;
    send_signal(push.pid()?, Signal::SIGKILL);
    push.wait().await?;
    send_signal(stalled, Signal::SIGKILL);
    let commit = scene.git_output(&["rev-parse", "x"]).await?;
    ensure!(scene.git_output_at(&bare, &["rev-parse", "x"]).await? == commit, "it took effect");
    let row = scene.task_row(&id).await?;
    ensure!(row["delivery"]["begun"]["commit"] == commit.as_str(), "the intent was durable before: {row}");
    let shown = scene.run_docket(&["show", &id]).await?.into_stdout()?;
    ensure!(shown.contains("its outcome is unknown"), "{shown}");

    // This time by the person's own settings.
    let (own, through) = (scene.path_in("gitconfig"), scene.path_in("bin/own"));
    scene.write_executable(&through, "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n")?;
    fs::write(&own, format!("[core]\n\tsshCommand = {}\n[ssh]\n\tvariant = ssh\n", through.display()))?;
    let env: [(&str, &OsStr); 1] = [("GIT_CONFIG_GLOBAL", own.as_os_str())];
    let again = scene.run_docket_with(&env, &["push", &id, "--branch", "x"]).await?.into_stdout()?;
    ensure!(again.contains("already on origin"), "{again}");
    let kinds = ["TaskDelivered", "TaskDeliveryRequested", "TaskDelivered"];
    ensure!(scene.event_kinds(&id, "TaskDeliver").await? == kinds, "one intent, and now its end");
    ensure!(scene.task_row(&id).await?["delivery"]["begun"].is_null());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn remote_branch_with_other_work_is_kept_and_blocks() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let bare = scene.add_remote().await?;
    let id = scene.submit_task(EDIT, &["--push", "--branch", "fix/it"]).await?;
    // Somebody's work, under the name that the task is to have; before it is submitted, that would be refused.
    scene.git_output(&["switch", "--quiet", "-c", "elsewhere"]).await?;
    scene.commit_files(&[("b.txt", "b\n")]).await?;
    scene.git_output(&["push", "--quiet", "origin", "elsewhere:fix/it"]).await?;
    scene.git_output(&["switch", "--quiet", "main"]).await?;
    scene.git_output(&["branch", "--quiet", "-D", "elsewhere"]).await?;
    let theirs = scene.git_output_at(&bare, &["rev-parse", "fix/it"]).await?;

    let up = scene.start_up().await?;
    let row = scene.wait_for_state(&id, "blocked").await.with_context(|| up.log_tail())?;
    ensure!(row["delivery"]["blocked"]["why"] == "taken", "{row}");
    ensure!(scene.git_output_at(&bare, &["rev-parse", "fix/it"]).await? == theirs, "it stays");
    scene.git_output(&["rev-parse", "fix/it"]).await.context("the result is in the repository")?;
    scene.run_docket(&["push", &id, "--branch", "fix/mine"]).await?.into_stdout()?;
    scene.wait_for_state(&id, "completed").await?;
    let ours = scene.git_output_at(&bare, &["rev-parse", "fix/mine"]).await?;
    ensure!(ours == scene.git_output(&["rev-parse", "fix/mine"]).await?);

    // One that cannot be delivered, for its remote went after it was submitted, is told as well.
    scene.run_docket(&["queue", "pause", "default"]).await?.into_stdout()?;
    let lost = scene.submit_task(EDIT, &["--push"]).await?;
    scene.git_output(&["remote", "rename", "origin", "elsewhere"]).await?;
    scene.run_docket(&["queue", "unpause", "default"]).await?.into_stdout()?;
    let row = scene.wait_for_state(&lost, "blocked").await.with_context(|| up.log_tail())?;
    ensure!(row["delivery"]["blocked"]["why"] == "remote", "{row}");
    scene.git_output(&["remote", "rename", "elsewhere", "origin"]).await?;
    scene.run_docket(&["push", &lost]).await?.into_stdout()?;
    scene.wait_for_state(&lost, "completed").await?;

    let nowhere = scene.run_docket(&["push", &id, "--remote", "nowhere"]).await?;
    ensure!(nowhere.code() == Some(4) && nowhere.stderr.contains("existing remotes: origin"), "{nowhere:?}");
    scene.git_output(&["remote", "add", "gone", "/does/not/exist.git"]).await?;
    let gone = scene.run_docket(&["push", &id, "--remote", "gone", "--branch", "fix/mine"]).await?;
    ensure!(gone.code() == Some(1) && gone.stderr.contains("pushing again is safe"), "{gone:?}");
    ensure!(!gone.stderr.contains("is delivering this result"), "what failed is waited for: {gone:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn delivery_hook_failure_does_not_undo_the_delivery() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let out = scene.path_in("out");
    let line = format!(
        "env | grep ^DOCKET_ | sort > {0}; cat \\\"$DOCKET_BODY_FILE\\\" > {0}.body; echo opened; test -e {0}.fine",
        out.display()
    );
    // What a repository says of hooks is nobody's word.
    let theirs = format!("[delivery]\nhook = \"touch {}\"\n", scene.path_in("fired").display());
    let id = scene.play_task(EDIT, &[]).await?;
    scene.commit_files(&[("docket.toml", &theirs)]).await?;
    fs::write(scene.home_path().join("docket.toml"), format!("[delivery]\nhook = \"{line}\"\n"))?;

    let done = scene.run_docket(&["apply", &id, "--branch", "x"]).await?;
    ensure!(done.stderr.contains("delivered, but the hook failed"), "{done:?}");
    done.into_stdout()?;
    let commit = scene.git_output(&["rev-parse", "x"]).await?;
    let row = scene.task_row(&id).await?;
    let hook = &row["delivery"]["hook"];
    ensure!(row["state"] == "completed" && hook["exit"] == 1, "{row}");
    ensure!(hook["output"] == "opened\n", "{row}");
    let env = fs::read_to_string(&out)?;
    let run = row["run"].as_str().context("a run")?;
    for (name, value) in [
        ("RUN", run),
        ("TASK", &id),
        ("BRANCH", "x"),
        ("COMMIT", &commit),
        ("TITLE", "Do it"),
        ("BASE_BRANCH", "main"),
    ] {
        ensure!(env.contains(&format!("DOCKET_{name}={value}\n")), "{name}: {env}");
    }
    ensure!(!env.contains("DOCKET_TOKEN"), "{env}");
    ensure!(fs::read_to_string(out.with_extension("body"))? == "Done.");

    // It runs again until it ends well, and then no more.
    fs::write(out.with_extension("fine"), "")?;
    scene.run_docket(&["apply", &id, "--branch", "x"]).await?.into_stdout()?;
    scene.run_docket(&["apply", &id, "--branch", "x"]).await?.into_stdout()?;
    ensure!(
        scene.event_kinds(&id, "TaskDeliver").await?
            == ["TaskDelivered", "TaskDeliveryHookRan", "TaskDeliveryHookRan"]
    );
    ensure!(!scene.path_in("fired").exists(), "a repository's word is no hook");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unreachable_remote_is_retried_across_restarts() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = DeliveryFixture::new()?;
    let bare = scene.add_remote().await?;
    let away = scene.path_in("away.git");
    fs::rename(&bare, &away)?;
    let id = scene.submit_task(EDIT, &["--push"]).await?;
    let mut up = scene.start_up().await?;
    wait_until("a push that fails", async || up.log_tail().contains("not delivered").then_some(())).await?;
    let row = scene.task_row(&id).await?;
    ensure!(
        row["state"] == "completed" && row["delivery"]["delivered"].as_array().is_some_and(|d| d.len() == 1),
        "{row}"
    );
    // The feed goes on meanwhile, and what waits holds the place in it.
    let other = scene.submit_task(&EDIT.replace("new.txt", "other.txt"), &["--branch", "fix/other"]).await?;
    scene.wait_for_state(&other, "completed").await?;
    wait_until("the other branch", async || {
        scene.git_output(&["rev-parse", "--verify", "fix/other"]).await.ok()
    })
    .await?;
    up.kill().await?;
    fs::rename(&away, &bare)?;
    let up = scene.start_up().await?;
    let row = wait_until("the push", async || {
        let row = scene.task_row(&id).await.ok()?;
        (row["delivery"]["delivered"].as_array()?.len() == 2).then_some(row)
    });
    let row = row.await.with_context(|| up.log_tail())?;
    let branch = row["delivery"]["delivered"][1]["branch"].as_str().context("a branch")?;
    ensure!(
        scene.git_output_at(&bare, &["rev-parse", branch]).await?
            == scene.git_output(&["rev-parse", branch]).await?
    );
    let kinds = ["TaskDelivered", "TaskDeliveryRequested", "TaskDelivered"];
    ensure!(scene.event_kinds(&id, "TaskDeliver").await? == kinds, "one intent, however often it was tried");
    Ok(())
}

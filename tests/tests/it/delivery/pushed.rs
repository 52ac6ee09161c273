//! Pushes to a real remote on the same disk: once, broken off, refused; and the hook that runs after.

use std::{ffi::OsStr, fs};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{Signal, Terminal, room, send, until};

use super::scene::{EDIT, Scene};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_result_is_pushed_as_its_task_completes_and_nothing_of_a_repository_runs() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let bare = scene.remote().await?;
    let trap = format!("#!/bin/sh\ntouch {}\n", scene.at("fired").display());
    for hook in [".git/hooks/pre-push", ".git/hooks/reference-transaction"] {
        scene.executable(&scene.repo().join(hook), &trap)?;
    }
    for hook in ["pre-receive", "update", "post-receive", "post-update", "reference-transaction"] {
        scene.executable(&bare.join("hooks").join(hook), &trap)?;
    }
    let fired = format!("touch {}", scene.at("fired").display());
    for setting in ["core.sshCommand", "credential.helper", "core.alternateRefsCommand"] {
        scene.git(&["config", setting, &fired]).await?;
        scene.git_at(&bare, &["config", setting, &fired]).await?;
    }

    let id = scene.submit(EDIT, &["--push", "--branch", "fix/it"]).await?;
    let shown = async || scene.docket(&["show", &id]).await?.ok();
    ensure!(shown().await?.contains("fix/it, to be made and pushed"), "{}", shown().await?);
    let up = scene.up().await?;
    let row = until("the push", async || {
        let row = scene.row(&id).await.ok()?;
        (row["delivery"]["delivered"].as_array()?.len() == 2).then_some(row)
    });
    let row = row.await.with_context(|| up.tail())?;
    ensure!(shown().await?.contains("fix/it, pushed"), "{}", shown().await?);
    let commit = scene.git(&["rev-parse", "fix/it"]).await?;
    ensure!(scene.git_at(&bare, &["rev-parse", "fix/it"]).await? == commit, "{row}");
    ensure!(
        row["delivery"]["delivered"][1]["remote"] == "origin" && row["delivery"]["begun"].is_null(),
        "{row}"
    );
    let kinds = ["TaskDelivered", "TaskDeliveryRequested", "TaskDelivered"];
    ensure!(scene.kinds(&id, "TaskDeliver").await? == kinds, "an intent, and its end");

    let again = scene.docket(&["push", &id]).await?.ok()?;
    ensure!(again.contains("origin had it already"), "{again}");
    ensure!(scene.kinds(&id, "TaskDeliver").await? == kinds, "nothing was begun again");
    ensure!(!scene.at("fired").exists(), "no hook, no command of either repository ran");
    // Control: they are traps.
    scene.git(&["push", "--quiet", "origin", "main:control"]).await?;
    ensure!(scene.at("fired").exists(), "git itself runs them");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_is_killed_after_it_took_effect_is_found_done() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let bare = scene.remote().await?;
    // A way to the remote that carries the push, and then never answers.
    let (ssh, pid) = (scene.at("bin/ssh"), scene.at("pid"));
    let stalls = format!(
        "#!/bin/sh\nfor last; do :; done\ncase \"$last\" in\n*receive-pack*) sh -c \"$last\"; echo $$ > {0}.new; mv {0}.new {0}; \
         exec sleep 600;;\n*) exec sh -c \"$last\";;\nesac\n",
        pid.display()
    );
    scene.executable(&ssh, &stalls)?;
    let url = format!("ssh://remote.invalid{}", bare.display());
    scene.git(&["remote", "set-url", "origin", &url]).await?;
    let id = scene.play(EDIT, &[]).await?;
    let home = scene.home();
    let env: [(&str, &OsStr); 2] = [("DOCKET_HOME", home.as_os_str()), ("GIT_SSH_COMMAND", ssh.as_os_str())];

    let mut push = Terminal::start(&home, &env, &["push", &id, "--branch", "x"])?;
    let stalled: i32 =
        until("the push to take effect", async || fs::read_to_string(&pid).ok()?.trim().parse().ok())
            .await
            .with_context(|| push.all())?;
    send(push.pid()?, Signal::SIGKILL);
    push.wait().await?;
    send(stalled, Signal::SIGKILL);
    let commit = scene.git(&["rev-parse", "x"]).await?;
    ensure!(scene.git_at(&bare, &["rev-parse", "x"]).await? == commit, "it took effect");
    let row = scene.row(&id).await?;
    ensure!(row["delivery"]["begun"]["commit"] == commit.as_str(), "the intent was durable before: {row}");
    let shown = scene.docket(&["show", &id]).await?.ok()?;
    ensure!(shown.contains("its end is not known"), "{shown}");

    // This time by the person's own settings.
    let (own, through) = (scene.at("gitconfig"), scene.at("bin/own"));
    scene.executable(&through, "#!/bin/sh\nfor last; do :; done\nexec sh -c \"$last\"\n")?;
    fs::write(&own, format!("[core]\n\tsshCommand = {}\n[ssh]\n\tvariant = ssh\n", through.display()))?;
    let env: [(&str, &OsStr); 1] = [("GIT_CONFIG_GLOBAL", own.as_os_str())];
    let again = scene.docket_with(&env, &["push", &id, "--branch", "x"]).await?.ok()?;
    ensure!(again.contains("origin had it already"), "{again}");
    let kinds = ["TaskDelivered", "TaskDeliveryRequested", "TaskDelivered"];
    ensure!(scene.kinds(&id, "TaskDeliver").await? == kinds, "one intent, and now its end");
    ensure!(scene.row(&id).await?["delivery"]["begun"].is_null());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_branch_with_other_work_stays_and_blocks() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let bare = scene.remote().await?;
    let id = scene.submit(EDIT, &["--push", "--branch", "fix/it"]).await?;
    // Somebody's work, under the name that the task is to have; before it is submitted, that would be refused.
    scene.git(&["switch", "--quiet", "-c", "elsewhere"]).await?;
    scene.commit(&[("b.txt", "b\n")]).await?;
    scene.git(&["push", "--quiet", "origin", "elsewhere:fix/it"]).await?;
    scene.git(&["switch", "--quiet", "main"]).await?;
    scene.git(&["branch", "--quiet", "-D", "elsewhere"]).await?;
    let theirs = scene.git_at(&bare, &["rev-parse", "fix/it"]).await?;

    let up = scene.up().await?;
    let row = scene.is(&id, "blocked").await.with_context(|| up.tail())?;
    ensure!(row["delivery"]["blocked"]["why"] == "taken", "{row}");
    ensure!(scene.git_at(&bare, &["rev-parse", "fix/it"]).await? == theirs, "it stays");
    scene.git(&["rev-parse", "fix/it"]).await.context("the result is in the repository")?;
    scene.docket(&["push", &id, "--branch", "fix/mine"]).await?.ok()?;
    scene.is(&id, "completed").await?;
    let ours = scene.git_at(&bare, &["rev-parse", "fix/mine"]).await?;
    ensure!(ours == scene.git(&["rev-parse", "fix/mine"]).await?);

    // One that cannot be delivered, for its remote went after it was submitted, is told as well.
    scene.docket(&["queue", "pause", "default"]).await?.ok()?;
    let lost = scene.submit(EDIT, &["--push"]).await?;
    scene.git(&["remote", "rename", "origin", "elsewhere"]).await?;
    scene.docket(&["queue", "unpause", "default"]).await?.ok()?;
    let row = scene.is(&lost, "blocked").await.with_context(|| up.tail())?;
    ensure!(row["delivery"]["blocked"]["why"] == "remote", "{row}");
    scene.git(&["remote", "rename", "elsewhere", "origin"]).await?;
    scene.docket(&["push", &lost]).await?.ok()?;
    scene.is(&lost, "completed").await?;

    let nowhere = scene.docket(&["push", &id, "--remote", "nowhere"]).await?;
    ensure!(nowhere.code() == Some(4) && nowhere.stderr.contains("there are: origin"), "{nowhere:?}");
    scene.git(&["remote", "add", "gone", "/does/not/exist.git"]).await?;
    let gone = scene.docket(&["push", &id, "--remote", "gone", "--branch", "fix/mine"]).await?;
    ensure!(gone.code() == Some(1) && gone.stderr.contains("pushing again is safe"), "{gone:?}");
    ensure!(!gone.stderr.contains("at this moment"), "what failed is waited for: {gone:?}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_users_hook_runs_after_a_delivery_and_undoes_nothing() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let out = scene.at("out");
    let line = format!(
        "env | grep ^DOCKET_ | sort > {0}; cat \\\"$DOCKET_BODY_FILE\\\" > {0}.body; echo opened; test -e {0}.fine",
        out.display()
    );
    // What a repository says of hooks is nobody's word.
    let theirs = format!("[delivery]\nhook = \"touch {}\"\n", scene.at("fired").display());
    let id = scene.play(EDIT, &[]).await?;
    scene.commit(&[("docket.toml", &theirs)]).await?;
    fs::write(scene.home().join("docket.toml"), format!("[delivery]\nhook = \"{line}\"\n"))?;

    let done = scene.docket(&["apply", &id, "--branch", "x"]).await?;
    ensure!(done.stderr.contains("the delivery stands"), "{done:?}");
    done.ok()?;
    let commit = scene.git(&["rev-parse", "x"]).await?;
    let row = scene.row(&id).await?;
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
    scene.docket(&["apply", &id, "--branch", "x"]).await?.ok()?;
    scene.docket(&["apply", &id, "--branch", "x"]).await?.ok()?;
    ensure!(
        scene.kinds(&id, "TaskDeliver").await?
            == ["TaskDelivered", "TaskDeliveryHookRan", "TaskDeliveryHookRan"]
    );
    ensure!(!scene.at("fired").exists(), "a repository's word is no hook");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_remote_that_is_away_is_tried_again_and_a_restart_forgets_nothing() -> Result<()> {
    let _room = room().await;
    let scene = Scene::new()?;
    let bare = scene.remote().await?;
    let away = scene.at("away.git");
    fs::rename(&bare, &away)?;
    let id = scene.submit(EDIT, &["--push"]).await?;
    let mut up = scene.up().await?;
    until("a push that fails", async || up.tail().contains("not delivered").then_some(())).await?;
    let row = scene.row(&id).await?;
    ensure!(
        row["state"] == "completed" && row["delivery"]["delivered"].as_array().is_some_and(|d| d.len() == 1),
        "{row}"
    );
    // The feed goes on meanwhile, and what waits holds the place in it.
    let other = scene.submit(&EDIT.replace("new.txt", "other.txt"), &["--branch", "fix/other"]).await?;
    scene.is(&other, "completed").await?;
    until("the other branch", async || scene.git(&["rev-parse", "--verify", "fix/other"]).await.ok()).await?;
    up.kill().await?;
    fs::rename(&away, &bare)?;
    let up = scene.up().await?;
    let row = until("the push", async || {
        let row = scene.row(&id).await.ok()?;
        (row["delivery"]["delivered"].as_array()?.len() == 2).then_some(row)
    });
    let row = row.await.with_context(|| up.tail())?;
    let branch = row["delivery"]["delivered"][1]["branch"].as_str().context("a branch")?;
    ensure!(scene.git_at(&bare, &["rev-parse", branch]).await? == scene.git(&["rev-parse", branch]).await?);
    let kinds = ["TaskDelivered", "TaskDeliveryRequested", "TaskDelivered"];
    ensure!(scene.kinds(&id, "TaskDeliver").await? == kinds, "one intent, however often it was tried");
    Ok(())
}

//! Progress stands on a terminal's standard error while work goes on, and nowhere else.

use anyhow::{Result, ensure};
use docket_tests::system::acquire_scenario_slot;

use super::home::{FilledHome, TITLE};
use crate::terminal::{StderrTarget, TestTerminal};

/// What moves, and is written with every screen of it.
const SPINNER: [&str; 4] = ["| ", "/ ", "- ", "\\ "];

/// A command, and what is set in its environment.
type CommandCall<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)]);

fn has_progress(raw: &str, what: &str) -> bool {
    raw.contains(what) && SPINNER.iter().any(|sign| raw.contains(sign))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn progress_is_shown_only_on_a_terminal() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = FilledHome::new().await?;
    let (home, run) = (stage.coordinator.home(), stage.runs[0].as_str());
    let (repo, script, more) =
        (stage.repo_path()?, stage.write_script()?, stage.write_backlog("more", &[TITLE, "b", "c"])?);
    let file = |name: &str| stage.folder.path().join(name).display().to_string();
    let (exported, copy) = (file("run.docket"), file("copy.db"));
    let elsewhere = file("elsewhere");
    let import =
        ["import", &more, "--repo", &repo, "--model", "scripted:s", "--script", &script, "--queue", "q"];
    // What is counted there.
    let all: [(&[&str], &str); 12] = [
        (&["verify"], "streams"),
        (&["verify", &stage.tasks[0]], "runs"),
        (&["export", run, "-o", &exported], "blobs"),
        (&["--home", &elsewhere, "import", &exported], "events and blobs"),
        (&import, "tasks"),
        (&["db", "backup", &copy], "B/s"),
        (&["--home", &elsewhere, "db", "rebuild"], "streams"),
        (&["--home", &elsewhere, "db", "restore", &copy], "checking and copying"),
        (&["gc"], "reading blob references"),
        (&["archive", "--older-than", "90d"], "tasks"),
        (&["cost", "--batch", "todo"], "runs"),
        (&["metrics", "--scripted"], "tasks"),
    ];
    for (args, counted) in all {
        let named = args.join(" ");
        let terminal = TestTerminal::open_sized(home, &[], args, (80, 24), StderrTarget::Shown)?;
        let (status, _, raw, screen) = terminal.wait_for_screen_output()?;
        ensure!(status.success(), "{named}: {status} {raw}");
        ensure!(has_progress(&raw, counted), "{named} shows no progress: {raw:?}");
        // Cleared: what stands there in the end is what it said.
        let stays = screen
            .lines()
            .any(|line| line.contains("left") || SPINNER.iter().any(|sign| line.starts_with(sign)));
        ensure!(!stays, "{named} leaves its progress:\n{screen}");
    }
    let quiet: [CommandCall<'_>; 3] = [
        (&["verify", "--json"], &[]),
        (&["cost", "--batch", "todo", "--json"], &[]),
        (&["verify"], &[("TERM", "dumb")]),
    ];
    for (args, env) in quiet {
        let terminal = TestTerminal::open_sized(home, env, args, (80, 24), StderrTarget::Shown)?;
        let (status, _, raw, _) = terminal.wait_for_screen_output()?;
        ensure!(
            status.success() && !raw.contains("\u{1b}[2K") && !raw.contains("\u{1b}[1A"),
            "{args:?}: {raw:?}"
        );
    }
    // A pipe for standard error gets nothing of it.
    let piped = stage.coordinator.run_docket(&["verify"]).await?;
    ensure!(piped.success() && piped.stderr.is_empty() && !piped.stdout.contains('\u{1b}'), "{piped:?}");
    Ok(())
}

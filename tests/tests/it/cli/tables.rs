//! Tables fit the terminal they are shown on, and are whole where no terminal is.

use anyhow::{Result, ensure};
use docket_tests::system::acquire_scenario_slot;
use unicode_width::UnicodeWidthStr as _;

use super::home::{FilledHome, TITLE};
use crate::terminal::{StderrTarget, TestTerminal};

/// Every column that `ps` has.
const COLUMNS: &str =
    "task,run,state,runs,age,queue,priority,model,engine,batch,failures,ended,message,title";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tables_fit_the_terminal_and_are_complete_in_a_pipe() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let stage = FilledHome::new().await?;
    let (repo, script, more) =
        (stage.repo_path()?, stage.write_script()?, stage.write_backlog("more", &[TITLE])?);
    let (first, second, run) = (&stage.tasks[0], &stage.tasks[1], &stage.runs[0]);
    let both = format!("{first},{second}");
    let model = ["--model", "scripted:s", "--script", &script];
    let import = [&["import", &more, "--batch", "more", "--dry-run", "--repo", &repo][..], &model].concat();
    // What each must hold where nothing is cut.
    let tables: [(&[&str], &[&str]); 23] = [
        (&["ps"], &[TITLE, &first[28..], &run[28..]]),
        (&["ps", "--columns", COLUMNS], &[TITLE, &first[28..], &run[28..], "scripted:s", "todo"]),
        (&["workers"], &["NAME", "LAST SEEN"]),
        (&["queue"], &["default", "OLDEST"]),
        (&["batch"], &["todo", "old"]),
        (&["batch", "todo"], &["2 completed"]),
        (&["cost", "--since", "2d"], &["CACHE WRITE", "scripted:s"]),
        (&["cost", "--batch", "todo", "--by", "call"], &[&run[28..], "scripted:s"]),
        (&["cost", "--batch", "todo", "--by", "task"], &[&first[28..]]),
        (&["metrics", "--scripted"], &["METRIC", "TARGET"]),
        (&["metrics", first, "--scripted"], &["METRIC", "TARGET"]),
        (&["compare", "--of", &both], &[TITLE, "scripted:s"]),
        (&["archive", "list"], &["An old one", "completed"]),
        (&["limit"], &["openai", "50/m", "40000/m"]),
        (&["notify"], &["ops", "/bin/sh", "batch.finished", "delivered"]),
        (&["show", first], &[TITLE, "scripted:s"]),
        (&["schedule"], &[TITLE, "nightly", "0 3 * * *"]),
        (&["token", "list"], &["continuous-integration", "read"]),
        (&["memory", "list", "--repo", &repo], &["how/test"]),
        (&["policy", "show", run], &["calls refused"]),
        (&["cat", run, "src"], &["a_rather_long_name_of_a_file.txt"]),
        (&["top", "--once"], &[TITLE, &first[28..]]),
        (&import, &[TITLE, "scripted:s"]),
    ];
    let (mut faults, mut cut) = (Vec::new(), 0);
    for (args, whole) in tables {
        let named = args.join(" ");
        for columns in [60_u16, 80, 120] {
            let home = stage.coordinator.home();
            let terminal = TestTerminal::open_sized(home, &[], args, (columns, 24), StderrTarget::Elsewhere)?;
            let (status, lines) = terminal.wait_for_lines()?;
            ensure!(status.success() && !lines.is_empty(), "{named}: {status} {lines:#?}");
            cut += usize::from(columns == 60 && lines.iter().any(|line| line.contains('…')));
            let wide = lines.iter().filter(|line| line.width() > usize::from(columns));
            faults.extend(wide.map(|line| format!("{named} at {columns}: {} columns: {line}", line.width())));
        }
        let piped = stage.docket_output(args).await?;
        faults.extend(
            whole
                .iter()
                .filter(|text| !piped.contains(**text))
                .map(|text| format!("{named}: no `{text}` in\n{piped}")),
        );
        if piped.contains('…') {
            faults.push(format!("{named} is cut in a pipe:\n{piped}"));
        }
    }
    ensure!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    // The control: there was something to cut.
    ensure!(cut >= 8, "only {cut} tables were cut at 60 columns");
    Ok(())
}

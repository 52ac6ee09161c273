//! A run process that hangs while its supervisor lives and vouches for its lease.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    event::TypedEvent as _,
    ids::{Seq, StreamId},
    task::{TaskEvent, TaskState},
};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, SampleRepository, Signal, StoreLocation, WorkerOptions, WorkerProcess,
    acquire_scenario_slot, child_pids, is_running, poll_until, send_signal, wait_until,
};
use docket_worker::bootstrap::{Failpoint, FailpointTarget, FailpointTiming};

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "a\n" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "echo b >> a.txt" } }]
[[turns]]
text = "Done."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_run_process_is_released_as_crashed() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let stops = Failpoint { seq: 6, when: FailpointTiming::After, epoch: 1, whom: FailpointTarget::Sleeper };
    let options = WorkerOptions { failpoints: vec![stops], hang_ms: Some(5000), ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(SCRIPT)?;
    let args = ["--model", "scripted:hang", "--script", script.to_str().context("UTF-8")?];
    let (task, _) = sample.submit(&coordinator, &args).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed && view.runs.len() == 1, "{:?}", view.task);

    let page = coordinator.client().list_stream_events(&StreamId::Task(task), Seq(0), None).await?;
    let crashes: Vec<String> = page
        .events
        .iter()
        .filter_map(|event| TaskEvent::decode(&event.kind, event.version, event.payload.as_str()).ok())
        .filter_map(|event| match event {
            TaskEvent::TaskRunCrashed(crashed) => Some(crashed.how),
            _ => None,
        })
        .collect();
    let how = crashes.first().context("no crash was recorded, though the process was stopped")?;
    ensure!(how.contains("no progress"), "{crashes:?}");
    ensure!(
        page.events.iter().all(|event| event.kind != "TaskLeaseExpired"),
        "its lease was renewed all along"
    );
    worker.drain().await?;
    coordinator.end_and_check().await
}

/// A process and all that descend from it.
fn process_tree(pid: i32) -> Vec<i32> {
    let mut all = vec![pid];
    let mut next = 0;
    while next < all.len() {
        let children = child_pids(all[next]);
        all.extend(children);
        next += 1;
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stopped_run_process_and_its_command_die_with_the_supervisor() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let mut worker = WorkerProcess::start(&coordinator, &WorkerOptions::default()).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(
        r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "(setsid sleep 500 &) ; touch middle; sleep 500" } }]
[[turns]]
text = "Done."
"#,
    )?;
    let args = ["--model", "scripted:stopped", "--script", script.to_str().context("UTF-8")?];
    sample.submit(&coordinator, &args).await?;
    let middle = poll_until("a run in the middle of its command", || {
        worker.workspaces().into_iter().any(|workspace| workspace.join("middle").exists()).then_some(())
    });
    middle.await.with_context(|| worker.log_tail())?;
    let run = *worker.run_processes().first().context("a run process")?;
    let family = process_tree(run);
    // The run process, the two that hold the sandbox, the command, what it put beside itself.
    ensure!(family.len() >= 5, "{family:?}");
    send_signal(run, Signal::SIGSTOP);
    worker.process().kill().await?;
    let gone = poll_until("the end of a stopped run process and all that is below it", || {
        family.iter().all(|pid| !is_running(*pid)).then_some(())
    });
    let gone = gone.await;
    family.iter().for_each(|pid| send_signal(*pid, Signal::SIGKILL));
    gone.with_context(|| format!("{family:?}"))
}

/// Stopped in the middle of a step that may take long, without any limit set for tests: it is given back within seconds,
/// not after the step's own limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn signal_stopped_run_process_is_released_within_seconds() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let options = WorkerOptions { slots: 4, ..WorkerOptions::default() };
    let worker = WorkerProcess::start(&coordinator, &options).await?;
    let waits = "touch middle; sleep 900";
    let call =
        format!("[[turns]]\ncalls = [{{ name = \"run_command\", args = {{ command = \"{waits}\" }} }}]\n");
    let change =
        "[[turns]]\ncalls = [{ name = \"create_file\", args = { path = \"a.txt\", content = \"a\\n\" } }]\n";
    let done = "[[turns]]\ntext = \"Done.\"\n";
    let steps = [
        ("a setup command", done.to_owned(), &["--setup", waits][..]),
        ("a model call", "[[turns]]\ntext = \"Late.\"\ndelay_ms = 600000\n".to_owned(), &[]),
        ("a tool's command", call, &[]),
        ("a check", format!("{change}{done}"), &["--tests", waits]),
    ];
    let mut tasks = Vec::new();
    for (step, script, more) in &steps {
        // A workspace of its own for each, which tells them apart.
        let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
        let script = sample.write_script(script)?;
        let args = ["--model", "scripted:stopped", "--script", script.to_str().context("UTF-8")?];
        let (task, _) = sample.submit(&coordinator, &[&args[..], more].concat()).await?;
        tasks.push((*step, task));
    }
    let in_the_middle = poll_until("three runs in the middle of a command", || {
        let middles = worker.workspaces().into_iter().filter(|workspace| workspace.join("middle").exists());
        (middles.count() == 3).then_some(())
    });
    in_the_middle.await.with_context(|| worker.log_tail())?;
    let asked = tasks[1].1;
    wait_until("a run in the middle of its model call", async || {
        let run = coordinator.client().get_task(asked).await.ok()?.task.run?;
        let history = coordinator.run_history(run).await.ok()?;
        (history.count_kind("ModelRequested") == 1).then_some(())
    })
    .await?;
    let processes = worker.run_processes();
    ensure!(processes.len() == 4, "{processes:?}");
    processes.iter().for_each(|pid| send_signal(*pid, Signal::SIGSTOP));
    for (step, task) in tasks {
        let crash = wait_until(step, async || {
            let stream = StreamId::Task(task);
            let page = coordinator.client().list_stream_events(&stream, Seq(0), None).await.ok()?;
            page.events.iter().find_map(|event| {
                match TaskEvent::decode(&event.kind, event.version, event.payload.as_str()).ok()? {
                    TaskEvent::TaskRunCrashed(crashed) => Some(crashed.how),
                    _ => None,
                }
            })
        });
        let how = crash.await.with_context(|| worker.log_tail())?;
        ensure!(how.contains("stopped by a signal"), "{step}: {how}");
        coordinator.client().cancel(task, "seen").await?;
    }
    worker.drain().await?;
    coordinator.end_and_check().await
}

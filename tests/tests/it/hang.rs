//! A run process that hangs while its supervisor lives and vouches for its lease.

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    event::TypedEvent as _,
    ids::{Seq, StreamId},
    task::{TaskEvent, TaskState},
};
use docket_tests::system::{
    Coordinator, LeaseTime, Place, Sample, Signal, Worker, WorkerOptions, children_of, is_there, room, seen,
    send, until,
};
use docket_worker::bootstrap::{FailWhen, FailWhom, Failpoint};

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "a.txt", content = "a\n" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "echo b >> a.txt" } }]
[[turns]]
text = "Done."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_process_that_is_stopped_is_given_back_as_crashed_and_the_task_ends() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let stops = Failpoint { seq: 6, when: FailWhen::After, epoch: 1, whom: FailWhom::Sleeper };
    let options = WorkerOptions { failpoints: vec![stops], hang_ms: Some(5000), ..WorkerOptions::default() };
    let worker = Worker::start(&coordinator, &options).await?;
    let sample = Sample::new(&[("keep.txt", "kept\n")])?;
    let script = sample.script(SCRIPT)?;
    let args = ["--model", "scripted:hang", "--script", script.to_str().context("UTF-8")?];
    let (task, _) = sample.submit(&coordinator, &args).await?;
    let view = coordinator.ended(task).await.with_context(|| worker.tail())?;
    ensure!(view.task.state == TaskState::Completed && view.runs.len() == 1, "{:?}", view.task);

    let page = coordinator.client().stream_events(&StreamId::Task(task), Seq(0), None).await?;
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
fn family(pid: i32) -> Vec<i32> {
    let mut all = vec![pid];
    let mut next = 0;
    while next < all.len() {
        let children = children_of(all[next]);
        all.extend(children);
        next += 1;
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopped_run_process_and_its_command_die_with_their_supervisor() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let mut worker = Worker::start(&coordinator, &WorkerOptions::default()).await?;
    let sample = Sample::new(&[("keep.txt", "kept\n")])?;
    let script = sample.script(
        r#"
[[turns]]
calls = [{ name = "run_command", args = { command = "(setsid sleep 500 &) ; touch middle; sleep 500" } }]
[[turns]]
text = "Done."
"#,
    )?;
    let args = ["--model", "scripted:stopped", "--script", script.to_str().context("UTF-8")?];
    sample.submit(&coordinator, &args).await?;
    let middle = seen("a run in the middle of its command", || {
        worker.workspaces().into_iter().any(|workspace| workspace.join("middle").exists()).then_some(())
    });
    middle.await.with_context(|| worker.tail())?;
    let run = *worker.run_processes().first().context("a run process")?;
    let family = family(run);
    // The run process, the two that hold the sandbox, the command, what it put beside itself.
    ensure!(family.len() >= 5, "{family:?}");
    send(run, Signal::SIGSTOP);
    worker.process().kill().await?;
    let gone = seen("the end of a stopped run process and all that is below it", || {
        family.iter().all(|pid| !is_there(*pid)).then_some(())
    });
    let gone = gone.await;
    family.iter().for_each(|pid| send(*pid, Signal::SIGKILL));
    gone.with_context(|| format!("{family:?}"))
}

/// Stopped in the middle of a step that may take long, without any limit set for tests: it is given back within seconds,
/// not after the step's own limit.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_run_process_that_a_signal_stops_is_given_back_whatever_it_is_at() -> Result<()> {
    let _room = room().await;
    let coordinator = Coordinator::start(Place::Home, LeaseTime::Usual).await?;
    let options = WorkerOptions { slots: 4, ..WorkerOptions::default() };
    let worker = Worker::start(&coordinator, &options).await?;
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
        let sample = Sample::new(&[("keep.txt", "kept\n")])?;
        let script = sample.script(script)?;
        let args = ["--model", "scripted:stopped", "--script", script.to_str().context("UTF-8")?];
        let (task, _) = sample.submit(&coordinator, &[&args[..], more].concat()).await?;
        tasks.push((*step, task));
    }
    let in_the_middle = seen("three runs in the middle of a command", || {
        let middles = worker.workspaces().into_iter().filter(|workspace| workspace.join("middle").exists());
        (middles.count() == 3).then_some(())
    });
    in_the_middle.await.with_context(|| worker.tail())?;
    let asked = tasks[1].1;
    until("a run in the middle of its model call", async || {
        let run = coordinator.client().task(asked).await.ok()?.task.run?;
        let history = coordinator.history(run).await.ok()?;
        (history.count("ModelRequested") == 1).then_some(())
    })
    .await?;
    let processes = worker.run_processes();
    ensure!(processes.len() == 4, "{processes:?}");
    processes.iter().for_each(|pid| send(*pid, Signal::SIGSTOP));
    for (step, task) in tasks {
        let crash = until(step, async || {
            let stream = StreamId::Task(task);
            let page = coordinator.client().stream_events(&stream, Seq(0), None).await.ok()?;
            page.events.iter().find_map(|event| {
                match TaskEvent::decode(&event.kind, event.version, event.payload.as_str()).ok()? {
                    TaskEvent::TaskRunCrashed(crashed) => Some(crashed.how),
                    _ => None,
                }
            })
        });
        let how = crash.await.with_context(|| worker.tail())?;
        ensure!(how.contains("stopped by a signal"), "{step}: {how}");
        coordinator.client().cancel(task, "seen").await?;
    }
    worker.drain().await?;
    coordinator.end_and_check().await
}

//! The network by policy on a real run: what is listed is reached through docket, what is not is refused and told, and
//! a call that may have reached out is never run again.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
};

use anyhow::{Context as _, Result, ensure};
use docket_schema::{
    content::Content,
    run::{RunEvent, ToolFinished, ToolRequested, ToolStatus},
    task::TaskState,
    tool::RecoveryClass,
};
use docket_tests::system::{
    CoordinatorProcess, LeaseDuration, RunHistory, SampleRepository, Signal, StoreLocation, WorkerOptions,
    WorkerProcess, acquire_scenario_slot, poll_until, send_signal,
};

/// Request lines that a server got.
type RequestLog = Arc<Mutex<Vec<String>>>;

/// A server on loopback. Of `/slow` it says nothing until its other side is gone.
fn start_server() -> Result<(SocketAddr, RequestLog)> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    let asked = RequestLog::default();
    let noted = Arc::clone(&asked);
    thread::spawn(move || {
        for mut socket in listener.incoming().flatten() {
            let noted = Arc::clone(&noted);
            thread::spawn(move || {
                let mut bytes = [0; 4096];
                let read = socket.read(&mut bytes).unwrap_or(0);
                let text = String::from_utf8_lossy(&bytes[..read]).into_owned();
                let line = text.lines().next().unwrap_or_default().to_owned();
                let slow = line.contains("/slow");
                noted.lock().expect("no test panics with it").push(line);
                if slow {
                    let _ = socket.read(&mut bytes);
                } else {
                    let _ = socket.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nhello\n");
                }
            });
        }
    });
    Ok((address, asked))
}

fn network_policy(listed: SocketAddr) -> WorkerOptions {
    let settings = format!(
        "[policy.network]\nhosts = [\"{listed}\", \"*.example.org\"]\ncommands = [\"curl *\", \"echo *\", \"python3 *\"]\n"
    );
    WorkerOptions { settings, ..WorkerOptions::default() }
}

fn tool_intents(history: &RunHistory) -> Vec<&ToolRequested> {
    let events = history.events.iter();
    events
        .filter_map(|event| if let RunEvent::ToolRequested(one) = event { Some(one) } else { None })
        .collect()
}

fn tool_results(history: &RunHistory) -> Vec<&ToolFinished> {
    let events = history.events.iter();
    events
        .filter_map(|event| if let RunEvent::ToolFinished(one) = event { Some(one) } else { None })
        .collect()
}

fn content_text(content: &Content) -> Result<&str> {
    let Content::Text(text) = content else { anyhow::bail!("not in line") };
    Ok(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allowed_host_is_reached_and_others_are_refused() -> Result<()> {
    docket_tests::needs!("curl");
    let _room = acquire_scenario_slot().await;
    let (listed, asked) = start_server()?;
    let (other, others) = start_server()?;
    let script = format!(
        r#"
[[turns]]
[[turns.calls]]
name = "run_command"
args = {{ command = "echo made > a.txt" }}
[[turns.calls]]
name = "run_command"
args = {{ command = "curl -sS http://{listed}/one; curl -sS -o /dev/null -w '%{{http_code}}\n' http://{other}/two" }}
[[turns.calls]]
name = "run_command"
args = {{ command = "cat a.txt && curl -sS -m 5 http://{listed}/three" }}
[[turns.calls]]
name = "run_tests"
args = {{ }}

[[turns]]
text = "Done."
"#
    );
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let worker = WorkerProcess::start(&coordinator, &network_policy(listed)).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(&script)?;
    let tests = format!("curl -sS -m 5 http://{listed}/tests || echo 1 passed");
    let args = ["--model", "scripted:net", "--script", script.to_str().context("UTF-8")?, "--tests", &tests];
    let (task, _) = sample.submit(&coordinator, &args).await?;
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    let run = view.task.last_run.context("a run")?;
    let history = coordinator.run_history(run).await?;
    history.verify(coordinator.client()).await?;

    let request = coordinator
        .run_docket(&["replay", &run.to_string(), "--turn", "1", "--request"])
        .await?
        .into_stdout()?;
    ensure!(request.contains(&format!("names: {listed}, *.example.org.")), "{request}");
    let classes: Vec<RecoveryClass> = tool_intents(&history).iter().map(|intent| intent.class).collect();
    use RecoveryClass::{External, Workspace};
    // The third is one for its label, though it gets nothing: not all of its line may.
    ensure!(classes == [External, External, External, Workspace], "{classes:?}");
    let results = tool_results(&history);
    let said = content_text(&results[1].content)?;
    ensure!(said.contains("hello\n403\n"), "{said}");
    ensure!(said.contains(&format!("network: reached {listed}, ")), "{said}");
    ensure!(said.contains(&format!("network: refused: {other} (it is not on the list)\n")), "{said}");
    let facts = results[1].facts.network.as_ref().context("an audit")?;
    ensure!(
        facts.reached[0].place == listed.to_string() && facts.reached[0].received_bytes > 40,
        "{facts:?}"
    );
    ensure!(facts.refused[0].place == other.to_string(), "{facts:?}");
    for without in [2, 3] {
        ensure!(results[without].facts.network.is_none(), "{:?}", results[without]);
    }
    let asked = asked.lock().expect("whole").clone();
    ensure!(asked == ["GET /one HTTP/1.1"], "{asked:?}");
    ensure!(others.lock().expect("whole").is_empty());
    worker.drain().await?;
    coordinator.end_and_check().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interrupted_network_call_is_unknown_and_not_repeated() -> Result<()> {
    docket_tests::needs!("python3");
    let _room = acquire_scenario_slot().await;
    let (listed, asked) = start_server()?;
    // Nothing in the line says what it does: the grant alone makes it one that may have reached out.
    let script = format!(
        r#"
[[turns]]
[[turns.calls]]
name = "run_command"
args = {{ command = "python3 -c 'import urllib.request; urllib.request.urlopen(\"http://{listed}/slow\")'" }}

[[turns]]
text = "Done."
"#
    );
    let coordinator = CoordinatorProcess::start(StoreLocation::HomeFolder, LeaseDuration::Usual).await?;
    let worker = WorkerProcess::start(&coordinator, &network_policy(listed)).await?;
    let sample = SampleRepository::new(&[("keep.txt", "kept\n")])?;
    let script = sample.write_script(&script)?;
    let args = ["--model", "scripted:net", "--script", script.to_str().context("UTF-8")?];
    let (task, _) = sample.submit(&coordinator, &args).await?;
    let reached = poll_until("a request that came through", || {
        (!asked.lock().expect("whole").is_empty()).then_some(())
    });
    reached.await.with_context(|| worker.log_tail())?;
    send_signal(*worker.run_processes().first().context("a run process")?, Signal::SIGKILL);
    let view = coordinator.wait_until_ended(task).await.with_context(|| worker.log_tail())?;
    ensure!(view.task.state == TaskState::Completed, "{:?}", view.task.message);
    let history = coordinator.run_history(view.task.last_run.context("a run")?).await?;
    history.verify(coordinator.client()).await?;
    let (intents, results) = (tool_intents(&history), tool_results(&history));
    ensure!(intents.len() == 1 && intents[0].class == RecoveryClass::External, "{intents:?}");
    ensure!(intents[0].labels == ["command"], "{:?}", intents[0].labels);
    ensure!(results.len() == 1 && results[0].status == ToolStatus::Unknown, "{results:?}");
    let said = content_text(&results[0].content)?;
    ensure!(said.contains("whether it took effect is unknown"), "{said}");
    ensure!(asked.lock().expect("whole").len() == 1, "it was run again");
    worker.drain().await?;
    coordinator.end_and_check().await
}

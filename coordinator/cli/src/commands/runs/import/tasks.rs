//! A backlog's import, step by step: read, check, look what is there already, pin, submit.

use crate::connect::batches;
use crate::history::blobs;
use crate::output::words;
use std::{
    collections::HashMap,
    io::{self, Read as _},
    path::Path,
    time::Instant,
};

use docket_schema::{
    content::BlobRef,
    ids::TaskId,
    wire::{BudgetView, SetBudget},
};
use docket_worker::workspace::BlobSink as _;
use serde_json::json;

use super::{
    flags::Flags,
    send::{self, Sent},
    source::unknown,
    specs::{self, Batch, Ready},
};
use crate::{
    connect::access::{Access, Need},
    context::Context,
    history::blobs::Upload,
    output::{
        display::{self, Cell, Table},
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
    progress::Progress,
    tasks::{
        backlog::{self, Clones, FILE_BYTES_MAX, Form, Reading, Skipped},
        task_checks::{SourceChecks, note_unserved},
    },
};

/// Repeated lines that are told one by one.
const REPEATED_SHOWN_MAX: usize = 5;
/// Tasks that a dry run's table shows.
const ROWS_MAX: usize = 200;

/// What was read and is still to be told.
struct Counts {
    form: Form,
    skipped: Skipped,
    repeated: usize,
    bad: usize,
    /// Retried, for others wait for them.
    again: Vec<TaskId>,
}

/// Takes a backlog in.
pub(super) async fn run(cx: Context, path: &Path, from: Box<dyn io::Read>, flags: Flags) -> Outcome {
    let name = path.display().to_string();
    let text = text_of(path, from)?;
    // Where the command was given, as every other flag; what a line names is looked for beside its file.
    let repos = flags.repos.as_deref().map(std::path::absolute).transpose().fail_as(Exit::Usage)?;
    let reading = Reading {
        form: flags.form.or_else(|| Form::of(path, &text)).ok_or_else(|| unknown(path))?,
        labels: flags.label_priority.clone(),
        clones: repos.map(|folder| Clones { folder, hints: flags.hints }),
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut read = backlog::parse(&text, &reading);
    backlog::with_policies(&mut read, folder);
    tell_repeated(&name, &read.repeated);
    if read.entries.is_empty() && read.faults.count() == 0 {
        return nothing(&cx, &name, reading.form, read.skipped);
    }
    let batch = batch_of(path, &text, &flags)?;
    let mut faults = read.faults;
    let tasks = specs::ready(&cx, &flags, (reading.form, folder), read.entries, &batch, &mut faults);
    let has_money = [flags.budget(), read.budget].iter().flatten().any(|budget| budget.cost_nusd.is_some());
    let tasks = if has_money { specs::priced(&cx, tasks, &mut faults)? } else { tasks };
    if faults.is_of_all() || faults.count() > 0 && !flags.skip_bad {
        // Commits are looked at all the same: what is wrong is told at once.
        specs::pinned(&cx, tasks, None, None, &mut faults).await?;
        return Err(refused(&cx, &faults, &name));
    }
    let access = Access::open(&cx, if flags.dry_run { Need::Read } else { Need::Write }).await?;
    let known = match flags.again {
        true => send::awaited(&access.client, batch.id).await?,
        false => send::known(&access.client, batch.id).await?,
    };
    let (there, new): (Vec<Ready>, Vec<Ready>) = tasks
        .into_iter()
        .partition(|task| task.spec.dedup_key.as_ref().is_some_and(|key| known.contains_key(key)));
    let there: Vec<(TaskId, Sent)> = there
        .iter()
        .filter_map(|task| {
            let id = *known.get(task.spec.dedup_key.as_ref()?)?;
            Some((task.id, Sent { line: task.line, id, duplicate: true }))
        })
        .collect();

    let mut new = new;
    let renamed: HashMap<TaskId, TaskId> = there.iter().map(|(own, sent)| (*own, sent.id)).collect();
    for after in new.iter_mut().flat_map(|task| &mut task.spec.conditions.after) {
        *after = renamed.get(after).copied().unwrap_or(*after);
    }
    let there: Vec<Sent> = there.into_iter().map(|(_, sent)| sent).collect();
    let mut upload = blobs::Upload::new(&access.client);
    let to = if flags.dry_run { None } else { Some(&mut upload) };
    let new = specs::pinned(&cx, new, to, Some(&mut SourceChecks::new(&cx)), &mut faults).await?;
    if faults.count() > 0 {
        if !flags.skip_bad {
            access.close().await?;
            return Err(refused(&cx, &faults, &name));
        }
        faults
            .lines(&name)
            .iter()
            .for_each(|fault| display::note(&display::line(&format!("left out: {fault}"))));
    }
    let counts = Counts {
        form: reading.form,
        skipped: read.skipped,
        repeated: read.repeated.len(),
        bad: faults.count(),
        again: there.iter().map(|sent| sent.id).filter(|_| flags.again).collect(),
    };
    if flags.dry_run {
        access.close().await?;
        would(&cx, &batch, &counts, &new, &there);
        return Ok(Exit::Ok);
    }
    let began = Instant::now();
    let progress = Progress::of(&cx, new.len() as u64, "tasks");
    let mut budget = None;
    let sent = async {
        // What was set by hand stays; what is said with this very command is by hand.
        if let Some(said) = read.budget {
            budget = Some(access.client.set_budget(batch.id, said, SetBudget::OfFile).await?);
        }
        if let Some(said) = flags.budget() {
            budget = Some(access.client.set_budget(batch.id, said, SetBudget::Named).await?);
        }
        send::take_up_again(&access.client, &counts.again).await?;
        scripts(&mut upload, &new).await?;
        send::submit(&access.client, new, &flags, &progress).await
    };
    // Who interrupts it is told that the same command goes on.
    let sent = tokio::select! {
        sent = sent => match sent {
            Ok(sent) => {
                // They differ in their queues and engines at most; one stands for them all.
                if let Some(first) = sent.iter().find(|task| !task.duplicate) {
                    note_unserved(&access.client, first.id).await;
                }
                Ok(sent)
            }
            Err(failure) => Err(failure),
        },
        _ = tokio::signal::ctrl_c() => Err(Failure::new(
            Exit::Failed,
            "interrupted; what was submitted stays, and the same import goes on with the rest",
        )),
    };
    drop(progress);
    access.close().await?;
    done(&cx, &batch, &counts, there, sent?, began);
    if let Some(BudgetView { budget, .. }) = budget.filter(|_| !cx.json()) {
        let set = budget.budget;
        display::note(&format!("its runs may use {} together", words::budget(&set)));
        if let Some(said) = read.budget.filter(|said| said.or(set) != set) {
            display::note(&display::line(&format!(
                "that was set for the batch, and stays: {} in the file changes nothing; `docket batch budget '{}'` does",
                words::budget(&said),
                batch.name
            )));
        }
    }
    Ok(Exit::Ok)
}

fn text_of(path: &Path, from: Box<dyn io::Read>) -> Outcome<String> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .fail_with(Exit::Usage, || format!("cannot read {}", path.display()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let most = FILE_BYTES_MAX / 1024 / 1024;
        let message =
            format!("{} has more than {most} MiB, which no backlog may have; split it", path.display());
        return Err(Failure::new(Exit::Usage, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = 1 + memchr::memchr_iter(b'\n', &error.as_bytes()[..good]).count();
        Failure::new(Exit::Usage, format!("{}:{line}: this is not UTF-8 text", path.display()))
    })
}

fn refused(cx: &Context, faults: &backlog::Faults, name: &str) -> Failure {
    if cx.json() {
        for (line, field, fault) in faults.all() {
            display::say_json(&json!({ "line": line, "field": field, "fault": fault }));
        }
    }
    faults.lines(name).iter().for_each(|fault| display::note(&display::line(fault)));
    if !cx.json() && faults.all().len() > faults.lines(name).len() {
        display::note("--json tells each of them");
    }
    let lines = match faults.count() {
        1 => "one fault".to_owned(),
        count => format!("{count} faults"),
    };
    let out = match faults.is_of_all() {
        true => "a budget is never left out",
        false => "--skip-bad leaves such tasks out",
    };
    Failure::new(Exit::Usage, format!("{lines} in {name}; nothing was submitted ({out})"))
}

fn tell_repeated(name: &str, repeated: &[(usize, usize)]) {
    for (line, first) in repeated.iter().take(REPEATED_SHOWN_MAX) {
        display::note(&display::line(&format!(
            "{name}:{line}: the same task as in line {first}; it is submitted once"
        )));
    }
    if let Some(more) = repeated.len().checked_sub(REPEATED_SHOWN_MAX).filter(|more| *more > 0) {
        display::note(&format!("and {more} more that repeat an earlier one"));
    }
}

fn nothing(cx: &Context, name: &str, form: Form, skipped: Skipped) -> Outcome {
    if skipped == Skipped::default() {
        return Err(match form {
            Form::Jsonl => backlog::nothing(name),
            Form::Markdown => Failure::new(
                Exit::Usage,
                format!("{name} holds no task: each is a box, as `- [ ] Mend the rounding`"),
            ),
            Form::Github | Form::SweBench => Failure::new(Exit::Usage, format!("{name} holds no task")),
        });
    }
    if cx.json() {
        display::say_json(&json!({ "submitted": 0, "skipped": skipped, "tasks": [] }));
    } else {
        display::say("all of it is done; nothing was submitted");
    }
    Ok(Exit::Ok)
}

/// The batch that the file's tasks are in: the same for the same file, so that it can be imported again.
fn batch_of(path: &Path, text: &str, flags: &Flags) -> Outcome<Batch> {
    let is_named = flags.batch.is_some();
    let name = match &flags.batch {
        Some(name) => name.trim().to_owned(),
        None => {
            let of = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
            let file = match path.is_file() {
                true => of(path).unwrap_or_default(),
                // A stream has no name to know it by.
                false => format!("import {}", &blake3::hash(text.as_bytes()).to_hex()[..8]),
            };
            let folder = flags.repo.as_ref().or(flags.repos.as_ref());
            let repo = folder.and_then(|repo| std::fs::canonicalize(repo).ok()).and_then(|repo| of(&repo));
            let name = repo.map_or_else(|| file.clone(), |repo| format!("{repo}/{file}"));
            name.chars().filter(|c| !c.is_control()).take(docket_schema::task::TITLE_CHARS_MAX).collect()
        }
    };
    batches::check_name(&name)?;
    Ok(Batch { id: batches::id_of(&name), name, is_named })
}

/// Stores the scripts that tasks name, each once.
async fn scripts(upload: &mut Upload<'_>, tasks: &[Ready]) -> Outcome<()> {
    let mut stored: Vec<BlobRef> = Vec::new();
    for bytes in tasks.iter().filter_map(|task| task.script.as_ref()) {
        let blob = BlobRef::of(bytes);
        if !stored.contains(&blob) {
            upload.put(blob, bytes.clone()).await.fail_as(Exit::Failed)?;
            stored.push(blob);
        }
    }
    upload.flush().await.fail_as(Exit::Failed)
}

/// What a dry run found.
fn would(cx: &Context, batch: &Batch, counts: &Counts, new: &[Ready], there: &[Sent]) {
    if cx.json() {
        let tasks = new.iter().map(|Ready { line, spec, place, .. }| {
            json!({
                "line": line, "title": spec.title, "text": spec.text, "queue": spec.queue, "priority": spec.priority,
                "at": spec.run_at, "dedup": spec.dedup_key, "model": spec.model.to_string(), "engine": spec.engine,
                "repo": place.as_ref().map(|(folder, _)| folder),
                "commit": spec.base.git.as_ref().map(|git| &git.commit),
            })
        });
        let tasks: Vec<_> = tasks.collect();
        display::say_json(&json!({
            "dry_run": true, "batch": batch.id, "name": batch.name, "format": counts.form.as_str(),
            "would_submit": new.len(), "duplicates": there.len(), "repeated": counts.repeated,
            "skipped": counts.skipped, "bad": counts.bad, "again": counts.again.len(), "tasks": tasks,
        }));
        return;
    }
    let mut table = Table::new(&["LINE", "QUEUE", "PRIORITY", "MODEL", "REPO", "TITLE"]);
    for Ready { line, spec, place, .. } in new.iter().take(ROWS_MAX) {
        let repo =
            place.as_ref().and_then(|(folder, _)| folder.file_name()).map(|name| name.to_string_lossy());
        table.row(vec![
            Cell::new(line.to_string()),
            Cell::new(spec.queue.as_str()),
            Cell::new(spec.priority.to_string()),
            Cell::new(spec.model.to_string()),
            Cell::new(repo.as_deref().unwrap_or("-")),
            Cell::new(&spec.title),
        ]);
    }
    if !new.is_empty() {
        display::say(&table.render(cx.screen));
    }
    if let Some(more) = new.len().checked_sub(ROWS_MAX).filter(|more| *more > 0) {
        display::say(&format!("and {more} more; --json shows all"));
    }
    let told = told(counts, there.len());
    let text = format!(
        "{} would be submitted as batch {}{told}",
        display::count(new.len() as u64, "task"),
        batch.name
    );
    display::say(&cx.screen.prose(&display::line(&text)));
}

/// What was left out, as a sentence goes on.
fn told(counts: &Counts, there: usize) -> String {
    let counted = [
        (counts.again.len(), "taken up again, for others wait for them"),
        (there - counts.again.len().min(there), "there already"),
        (counts.repeated, "repeated in the file"),
        (counts.skipped.done, "done or closed"),
        (counts.skipped.pull_requests, "of pull requests"),
        (counts.bad, "left out as wrong"),
    ];
    let said: Vec<String> = counted
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if said.is_empty() { String::new() } else { format!("; {}", said.join(", ")) }
}

fn done(cx: &Context, batch: &Batch, counts: &Counts, there: Vec<Sent>, sent: Vec<Sent>, began: Instant) {
    let took = began.elapsed();
    let submitted = sent.iter().filter(|task| !task.duplicate).count();
    let mut all: Vec<Sent> = there.into_iter().chain(sent).collect();
    all.sort_unstable_by_key(|task| task.line);
    let duplicates = all.len() - submitted;
    let rate = submitted as f64 / took.as_secs_f64().max(0.001);
    if cx.json() {
        let row = |task: &Sent| -> serde_json::Value {
            let id: TaskId = task.id;
            json!({ "line": task.line, "id": id, "duplicate": task.duplicate })
        };
        display::say_json(&json!({
            "batch": batch.id, "name": batch.name, "format": counts.form.as_str(), "submitted": submitted,
            "duplicates": duplicates, "repeated": counts.repeated, "skipped": counts.skipped, "bad": counts.bad, "again": counts.again.len(),
            "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX), "tasks": all.iter().map(row).collect::<Vec<_>>(),
        }));
        return;
    }
    let speed = if submitted > 0 {
        format!(" in {:.1} s, {rate:.0} a second", took.as_secs_f64())
    } else {
        String::new()
    };
    display::say(&display::line(&format!(
        "{} in the backlog as batch {}{}{speed}",
        if submitted == 1 { "1 task is".to_owned() } else { format!("{submitted} tasks are") },
        batch.name,
        told(counts, duplicates)
    )));
    display::note(&display::line(&format!("`docket batch '{}'` tells how they stand", batch.name)));
}

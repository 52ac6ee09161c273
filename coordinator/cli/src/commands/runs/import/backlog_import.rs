//! Imports a backlog step by step: read, check, look up existing tasks, pin, submit.

use crate::connect::batch_lookup;
use crate::history::blobs;
use crate::output::value_format;
use std::{
    collections::HashMap,
    io::{self, Read as _},
    path::Path,
    time::Instant,
};

use docket_schema::{
    api::{BudgetUpdateMode, BudgetView},
    content::BlobRef,
    ids::TaskId,
};
use docket_worker::workspace::BlobSink as _;
use serde_json::json;

use super::{
    backlog_args::BacklogImportArgs,
    import_source::unknown_format_error,
    submit::{self, SubmittedTask},
    task_specs::{self, ImportBatch, UnpinnedTask},
};
use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    history::blobs::BlobUpload,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    progress::ProgressDisplay,
    tasks::{
        backlog::{self, BacklogFormat, BacklogOptions, FILE_BYTES_MAX, SkippedEntries, SweBenchOptions},
        task_checks::{SourceChecks, note_unserved},
    },
};

/// Maximum number of repeated lines that are reported individually.
const REPEATED_SHOWN_MAX: usize = 5;
/// Maximum number of tasks in the table of a dry run.
const ROWS_MAX: usize = 200;

/// Counts to report at the end.
struct ImportCounts {
    form: BacklogFormat,
    skipped: SkippedEntries,
    repeated: usize,
    bad: usize,
    /// Tasks that were retried because others wait for them.
    retried: Vec<TaskId>,
}

/// Imports a backlog.
pub(super) async fn import_backlog(
    cx: CliContext,
    path: &Path,
    from: Box<dyn io::Read>,
    flags: BacklogImportArgs,
) -> CliResult {
    let name = path.display().to_string();
    let text = read_text(path, from)?;
    // Relative to the current folder like every other flag; paths in a line are relative to its file.
    let repos = flags.repos.as_deref().map(std::path::absolute).transpose().fail_as(ExitKind::Usage)?;
    let reading = BacklogOptions {
        format: flags
            .form
            .or_else(|| BacklogFormat::detect(path, &text))
            .ok_or_else(|| unknown_format_error(path))?,
        labels: flags.label_priority.clone(),
        clones: repos.map(|folder| SweBenchOptions { folder, include_hints: flags.hints }),
    };
    let folder = path.parent().unwrap_or(Path::new(""));
    let mut read = backlog::parse(&text, &reading);
    backlog::load_policies(&mut read, folder);
    print_repeated(&name, &read.repeated);
    if read.entries.is_empty() && read.faults.count() == 0 {
        return report_empty(&cx, &name, reading.format, read.skipped);
    }
    let batch = import_batch(path, &text, &flags)?;
    let mut faults = read.faults;
    let tasks =
        task_specs::prepare_tasks(&cx, &flags, (reading.format, folder), read.entries, &batch, &mut faults);
    let has_money = [flags.budget(), read.budget].iter().flatten().any(|budget| budget.cost_nusd.is_some());
    let tasks = if has_money { task_specs::reject_unpriced(&cx, tasks, &mut faults)? } else { tasks };
    if faults.is_of_all() || faults.count() > 0 && !flags.skip_bad {
        // A dry run checks commits as well, to report errors early.
        task_specs::pin_bases(&cx, tasks, None, None, &mut faults).await?;
        return Err(faults_error(&cx, &faults, &name));
    }
    let access =
        Coordinator::connect(&cx, if flags.dry_run { AccessMode::Read } else { AccessMode::Write }).await?;
    let known = match flags.again {
        true => submit::awaited_failures(&access.client, batch.id).await?,
        false => submit::tasks_by_key(&access.client, batch.id).await?,
    };
    let (there, new): (Vec<UnpinnedTask>, Vec<UnpinnedTask>) = tasks
        .into_iter()
        .partition(|task| task.spec.dedup_key.as_ref().is_some_and(|key| known.contains_key(key)));
    let there: Vec<(TaskId, SubmittedTask)> = there
        .iter()
        .filter_map(|task| {
            let id = *known.get(task.spec.dedup_key.as_ref()?)?;
            Some((task.id, SubmittedTask { line: task.line, id, duplicate: true }))
        })
        .collect();

    let mut new = new;
    let renamed: HashMap<TaskId, TaskId> = there.iter().map(|(own, sent)| (*own, sent.id)).collect();
    for after in new.iter_mut().flat_map(|task| &mut task.spec.conditions.after) {
        *after = renamed.get(after).copied().unwrap_or(*after);
    }
    let there: Vec<SubmittedTask> = there.into_iter().map(|(_, sent)| sent).collect();
    let mut upload = blobs::BlobUpload::new(&access.client);
    let to = if flags.dry_run { None } else { Some(&mut upload) };
    let new = task_specs::pin_bases(&cx, new, to, Some(&mut SourceChecks::new(&cx)), &mut faults).await?;
    if faults.count() > 0 {
        if !flags.skip_bad {
            access.close().await?;
            return Err(faults_error(&cx, &faults, &name));
        }
        faults
            .format_lines(&name)
            .iter()
            .for_each(|fault| display::print_note(&display::sanitize_line(&format!("skipped: {fault}"))));
    }
    let counts = ImportCounts {
        form: reading.format,
        skipped: read.skipped,
        repeated: read.repeated.len(),
        bad: faults.count(),
        retried: there.iter().map(|sent| sent.id).filter(|_| flags.again).collect(),
    };
    if flags.dry_run {
        access.close().await?;
        print_dry_run(&cx, &batch, &counts, &new, &there);
        return Ok(ExitKind::Ok);
    }
    let began = Instant::now();
    let progress = ProgressDisplay::bar(&cx, new.len() as u64, "tasks");
    let mut budget = None;
    let sent = async {
        // A budget set by hand is kept; flags of this command count as set by hand.
        if let Some(said) = read.budget {
            budget = Some(access.client.set_budget(batch.id, said, BudgetUpdateMode::OfFile).await?);
        }
        if let Some(said) = flags.budget() {
            budget = Some(access.client.set_budget(batch.id, said, BudgetUpdateMode::Named).await?);
        }
        submit::retry_tasks(&access.client, &counts.retried).await?;
        store_scripts(&mut upload, &new).await?;
        submit::submit_tasks(&access.client, new, &flags, &progress).await
    };
    // Report on interruption that the same command continues the import.
    let sent = tokio::select! {
        sent = sent => match sent {
            Ok(sent) => {
                // The tasks differ only in queue and engine, so the first one is representative.
                if let Some(first) = sent.iter().find(|task| !task.duplicate) {
                    note_unserved(&access.client, first.id).await;
                }
                Ok(sent)
            }
            Err(failure) => Err(failure),
        },
        _ = tokio::signal::ctrl_c() => Err(CliError::new(
            ExitKind::Failed,
            "interrupted; submitted tasks are kept, and the same import continues with the rest",
        )),
    };
    drop(progress);
    access.close().await?;
    print_submitted(&cx, &batch, &counts, there, sent?, began);
    if let Some(BudgetView { budget, .. }) = budget.filter(|_| !cx.is_json()) {
        let set = budget.budget;
        display::print_note(&format!("its runs may use {} together", value_format::format_budget(&set)));
        if let Some(said) = read.budget.filter(|said| said.or(set) != set) {
            display::print_note(&display::sanitize_line(&format!(
                "the budget was already set for the batch and is kept; {} in the file is ignored; change it with `docket batch budget '{}'`",
                value_format::format_budget(&said),
                batch.name
            )));
        }
    }
    Ok(ExitKind::Ok)
}

fn read_text(path: &Path, from: Box<dyn io::Read>) -> CliResult<String> {
    let mut bytes = Vec::new();
    from.take(FILE_BYTES_MAX + 1)
        .read_to_end(&mut bytes)
        .fail_with(ExitKind::Usage, || format!("cannot read {}", path.display()))?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let most = FILE_BYTES_MAX / 1024 / 1024;
        let message = format!("{} exceeds the limit of {most} MiB for a backlog; split it", path.display());
        return Err(CliError::new(ExitKind::Usage, message));
    }
    String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = 1 + memchr::memchr_iter(b'\n', &error.as_bytes()[..good]).count();
        CliError::new(ExitKind::Usage, format!("{}:{line}: not UTF-8 text", path.display()))
    })
}

fn faults_error(cx: &CliContext, faults: &backlog::BacklogFaults, name: &str) -> CliError {
    if cx.is_json() {
        for (line, field, fault) in faults.list_with_fields() {
            display::print_json(&json!({ "line": line, "field": field, "fault": fault }));
        }
    }
    faults.format_lines(name).iter().for_each(|fault| display::print_note(&display::sanitize_line(fault)));
    if !cx.is_json() && faults.list_with_fields().len() > faults.format_lines(name).len() {
        display::print_note("use --json to list all of them");
    }
    let lines = match faults.count() {
        1 => "1 error".to_owned(),
        count => format!("{count} errors"),
    };
    let out = match faults.is_of_all() {
        true => "an invalid budget is never skipped",
        false => "use --skip-bad to skip such tasks",
    };
    CliError::new(ExitKind::Usage, format!("{lines} in {name}; nothing was submitted ({out})"))
}

fn print_repeated(name: &str, repeated: &[(usize, usize)]) {
    for (line, first) in repeated.iter().take(REPEATED_SHOWN_MAX) {
        display::print_note(&display::sanitize_line(&format!(
            "{name}:{line}: same task as line {first}; submitted once"
        )));
    }
    if let Some(more) = repeated.len().checked_sub(REPEATED_SHOWN_MAX).filter(|more| *more > 0) {
        display::print_note(&format!("and {more} more duplicates"));
    }
}

fn report_empty(cx: &CliContext, name: &str, form: BacklogFormat, skipped: SkippedEntries) -> CliResult {
    if skipped == SkippedEntries::default() {
        return Err(match form {
            BacklogFormat::Jsonl => backlog::no_tasks_error(name),
            BacklogFormat::Markdown => CliError::new(
                ExitKind::Usage,
                format!("{name} contains no tasks: write each as a checkbox, e.g. `- [ ] Fix the rounding`"),
            ),
            BacklogFormat::Github | BacklogFormat::SweBench => {
                CliError::new(ExitKind::Usage, format!("{name} contains no tasks"))
            }
        });
    }
    if cx.is_json() {
        display::print_json(&json!({ "submitted": 0, "skipped": skipped, "tasks": [] }));
    } else {
        display::print_line("everything is done already; nothing was submitted");
    }
    Ok(ExitKind::Ok)
}

/// Returns the batch of the file's tasks. The same file gives the same batch, so it can be imported
/// again.
fn import_batch(path: &Path, text: &str, flags: &BacklogImportArgs) -> CliResult<ImportBatch> {
    let is_named = flags.batch.is_some();
    let name = match &flags.batch {
        Some(name) => name.trim().to_owned(),
        None => {
            let of = |path: &Path| path.file_name().map(|name| name.to_string_lossy().into_owned());
            let file = match path.is_file() {
                true => of(path).unwrap_or_default(),
                // Standard input has no name, so its content identifies it.
                false => format!("import {}", &blake3::hash(text.as_bytes()).to_hex()[..8]),
            };
            let folder = flags.repo.as_ref().or(flags.repos.as_ref());
            let repo = folder.and_then(|repo| std::fs::canonicalize(repo).ok()).and_then(|repo| of(&repo));
            let name = repo.map_or_else(|| file.clone(), |repo| format!("{repo}/{file}"));
            name.chars().filter(|c| !c.is_control()).take(docket_schema::task::TITLE_CHARS_MAX).collect()
        }
    };
    batch_lookup::check_batch_name(&name)?;
    Ok(ImportBatch { id: batch_lookup::batch_id_from_name(&name), name, is_named })
}

/// Stores each script that tasks reference, once.
async fn store_scripts(upload: &mut BlobUpload<'_>, tasks: &[UnpinnedTask]) -> CliResult<()> {
    let mut stored: Vec<BlobRef> = Vec::new();
    for bytes in tasks.iter().filter_map(|task| task.script.as_ref()) {
        let blob = BlobRef::for_bytes(bytes);
        if !stored.contains(&blob) {
            upload.put(blob, bytes.clone()).await.fail_as(ExitKind::Failed)?;
            stored.push(blob);
        }
    }
    upload.flush().await.fail_as(ExitKind::Failed)
}

/// Prints the result of a dry run.
fn print_dry_run(
    cx: &CliContext,
    batch: &ImportBatch,
    counts: &ImportCounts,
    new: &[UnpinnedTask],
    there: &[SubmittedTask],
) {
    if cx.is_json() {
        let tasks = new.iter().map(|UnpinnedTask { line, spec, source: place, .. }| {
            json!({
                "line": line, "title": spec.title, "text": spec.text, "queue": spec.queue, "priority": spec.priority,
                "at": spec.run_at, "dedup": spec.dedup_key, "model": spec.model.to_string(), "engine": spec.engine,
                "repo": place.as_ref().map(|(folder, _)| folder),
                "commit": spec.base.git.as_ref().map(|git| &git.commit),
            })
        });
        let tasks: Vec<_> = tasks.collect();
        display::print_json(&json!({
            "dry_run": true, "batch": batch.id, "name": batch.name, "format": counts.form.as_str(),
            "would_submit": new.len(), "duplicates": there.len(), "repeated": counts.repeated,
            "skipped": counts.skipped, "bad": counts.bad, "again": counts.retried.len(), "tasks": tasks,
        }));
        return;
    }
    let mut table = TextTable::new(&["LINE", "QUEUE", "PRIORITY", "MODEL", "REPO", "TITLE"]);
    for UnpinnedTask { line, spec, source: place, .. } in new.iter().take(ROWS_MAX) {
        let repo =
            place.as_ref().and_then(|(folder, _)| folder.file_name()).map(|name| name.to_string_lossy());
        table.add_row(vec![
            TableCell::new(line.to_string()),
            TableCell::new(spec.queue.as_str()),
            TableCell::new(spec.priority.to_string()),
            TableCell::new(spec.model.to_string()),
            TableCell::new(repo.as_deref().unwrap_or("-")),
            TableCell::new(&spec.title),
        ]);
    }
    if !new.is_empty() {
        display::print_line(&table.render(cx.screen));
    }
    if let Some(more) = new.len().checked_sub(ROWS_MAX).filter(|more| *more > 0) {
        display::print_line(&format!("and {more} more; use --json to show all"));
    }
    let told = format_skipped(counts, there.len());
    let text = format!(
        "{} would be submitted as batch {}{told}",
        display::format_count(new.len() as u64, "task"),
        batch.name
    );
    display::print_line(&cx.screen.wrap_prose(&display::sanitize_line(&text)));
}

/// Formats what was skipped, as the continuation of a sentence.
fn format_skipped(counts: &ImportCounts, there: usize) -> String {
    let counted = [
        (counts.retried.len(), "retried because other tasks wait for them"),
        (there - counts.retried.len().min(there), "already submitted"),
        (counts.repeated, "duplicates in the file"),
        (counts.skipped.done, "done or closed"),
        (counts.skipped.pull_requests, "pull requests"),
        (counts.bad, "skipped as invalid"),
    ];
    let said: Vec<String> = counted
        .iter()
        .filter(|(count, _)| *count > 0)
        .map(|(count, what)| format!("{count} {what}"))
        .collect();
    if said.is_empty() { String::new() } else { format!("; {}", said.join(", ")) }
}

fn print_submitted(
    cx: &CliContext,
    batch: &ImportBatch,
    counts: &ImportCounts,
    there: Vec<SubmittedTask>,
    sent: Vec<SubmittedTask>,
    began: Instant,
) {
    let took = began.elapsed();
    let submitted = sent.iter().filter(|task| !task.duplicate).count();
    let mut all: Vec<SubmittedTask> = there.into_iter().chain(sent).collect();
    all.sort_unstable_by_key(|task| task.line);
    let duplicates = all.len() - submitted;
    let rate = submitted as f64 / took.as_secs_f64().max(0.001);
    if cx.is_json() {
        let row = |task: &SubmittedTask| -> serde_json::Value {
            let id: TaskId = task.id;
            json!({ "line": task.line, "id": id, "duplicate": task.duplicate })
        };
        display::print_json(&json!({
            "batch": batch.id, "name": batch.name, "format": counts.form.as_str(), "submitted": submitted,
            "duplicates": duplicates, "repeated": counts.repeated, "skipped": counts.skipped, "bad": counts.bad, "again": counts.retried.len(),
            "took_ms": u64::try_from(took.as_millis()).unwrap_or(u64::MAX), "tasks": all.iter().map(row).collect::<Vec<_>>(),
        }));
        return;
    }
    let speed = if submitted > 0 {
        format!(" in {:.1} s, {rate:.0} a second", took.as_secs_f64())
    } else {
        String::new()
    };
    display::print_line(&display::sanitize_line(&format!(
        "{} as batch {}{}{speed}",
        if submitted == 1 { "submitted 1 task".to_owned() } else { format!("submitted {submitted} tasks") },
        batch.name,
        format_skipped(counts, duplicates)
    )));
    display::print_note(&display::sanitize_line(&format!(
        "show its progress with `docket batch '{}'`",
        batch.name
    )));
}

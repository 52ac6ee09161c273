//! Builds tasks from lines and flags; reports errors by line and pins each commit once.

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
};

use docket_schema::{
    content::BlobRef,
    ids::{BatchId, TaskId},
    snapshot::WorkspaceBase,
    task::{DeliveryMode, LeaseConditions, TaskSpec, check_models},
};
use docket_worker::{
    engine::prompt::TASK_CHARS_MAX,
    model::{PriceTable, unknown_price_message},
    workspace::{BaseSource, BlobError, BlobSink, DirtyTreePolicy, PinOptions, pin_base},
};

use super::backlog_args::BacklogImportArgs;
use crate::{
    context::CliContext,
    history::blobs::BlobUpload,
    output::{
        display,
        error::{CliResult, ExitKind, FailWith as _},
    },
    progress::ProgressDisplay,
    tasks::{
        backlog::{BacklogFaults, BacklogFormat, BacklogLine},
        pinning::format_pin_note,
        task_args::{PreparedTask, TaskArgs, title_from_text},
        task_checks::{SourceChecks, SourceFields, check_budget},
    },
};

/// A task without its base.
pub(super) struct UnpinnedTask {
    /// Line number in the file.
    pub(super) line: usize,
    /// The full specification, with a placeholder base.
    pub(super) spec: TaskSpec,
    /// Repository and commit to start from.
    pub(super) source: TaskSource,
    /// Its ID, if the task is new.
    pub(super) id: TaskId,
    /// The key that other lines use for it.
    pub(super) key: Option<String>,
    /// The script of its model, as stored.
    pub(super) script: Option<Vec<u8>>,
}

/// A repository and a commit in it; `None` is an empty folder.
pub(super) type TaskSource = Option<(PathBuf, Option<String>)>;

/// Prefix of the dedup key of a task without its own key.
pub(super) const CONTENT_KEY: &str = "import:";

/// The batch of an import.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ImportBatch {
    pub(super) id: BatchId,
    pub(super) name: String,
    /// Whether the name was given on the command line.
    pub(super) is_named: bool,
}

/// A placeholder base that is always replaced before submission.
fn placeholder_base() -> WorkspaceBase {
    WorkspaceBase { manifest: BlobRef::for_bytes(b""), tree: docket_schema::ids::TreeHash::ZERO, git: None }
}

/// Results of checks that many lines share.
struct CheckCache(HashMap<String, Result<PreparedTask, String>>);

impl CheckCache {
    /// Checks model, prices, engine, script and policy, once per combination.
    fn check_shared(&mut self, cx: &CliContext, args: &TaskArgs) -> Result<&PreparedTask, String> {
        let named = (&args.model, &args.base_url, &args.explore_model, &args.fallback_model);
        let key = format!("{named:?} {:?}", (&args.script, &args.engine, &args.max_cost, &args.policy));
        let check = || args.check_shared(cx).map_err(|failure| format!("{:#}", failure.error));
        self.0.entry(key).or_insert_with(check).as_ref().map_err(Clone::clone)
    }
}

/// Builds the tasks of these lines; records errors by line.
pub(super) fn prepare_tasks(
    cx: &CliContext,
    flags: &BacklogImportArgs,
    (form, folder): (BacklogFormat, &Path),
    entries: Vec<(usize, BacklogLine)>,
    batch: &ImportBatch,
    faults: &mut BacklogFaults,
) -> Vec<UnpinnedTask> {
    let mut checked = CheckCache(HashMap::new());
    let mut folders: HashMap<PathBuf, Result<PathBuf, String>> = HashMap::new();
    let mut all: Vec<UnpinnedTask> = Vec::with_capacity(entries.len());
    let mut called: HashMap<String, TaskId> = HashMap::new();
    let mut long = 0_usize;
    for (line, entry) in entries {
        long += usize::from(entry.text.chars().count() > TASK_CHARS_MAX);
        let made = prepare_task(
            cx,
            &flags.to_task_args(&entry, folder),
            &entry,
            (form, batch),
            &mut checked,
            &mut folders,
        )
        .and_then(|(spec, place, script)| Ok((with_conditions(spec, &entry, &called)?, place, script)));
        match made {
            Ok((spec, place, script)) => {
                let (id, key) = (TaskId(docket_coordinator::clock::new_id()), entry.key);
                called.extend(key.clone().map(|key| (key, id)));
                all.push(UnpinnedTask { line, spec, source: place, id, key, script });
            }
            Err(why) => faults.add(line, why),
        }
    }
    if long > 0 {
        display::print_note(&format!(
            "the text of {long} tasks is truncated to {TASK_CHARS_MAX} characters for the model; put long requirements into \
             files in the repository"
        ));
    }
    all
}

/// Adds the conditions for a lease. Tasks it waits for come before it in the file.
fn with_conditions(
    mut spec: TaskSpec,
    line: &BacklogLine,
    called: &HashMap<String, TaskId>,
) -> Result<TaskSpec, String> {
    let after = |name: &String| {
        let known = called.get(name).copied().or_else(|| name.parse().ok());
        known.ok_or_else(|| {
            format!("`after`: `{name}` was skipped, so tasks that wait for it are skipped too")
        })
    };
    spec.conditions = LeaseConditions {
        after: line.after.iter().map(after).collect::<Result<_, _>>()?,
        if_failed: line.if_failed,
        concurrency: line.concurrency.clone(),
        selector: line.selector.clone(),
    };
    spec.conditions.check().map_err(|error| {
        format!("`{}` must be {}", error.field.trim_start_matches("conditions."), error.must)
    })?;
    Ok(spec)
}

fn prepare_task(
    cx: &CliContext,
    args: &TaskArgs,
    line: &BacklogLine,
    (form, batch): (BacklogFormat, &ImportBatch),
    checked: &mut CheckCache,
    folders: &mut HashMap<PathBuf, Result<PathBuf, String>>,
) -> Result<(TaskSpec, TaskSource, Option<Vec<u8>>), String> {
    let asked = checked.check_shared(cx, args)?;
    check_budget(cx, args, asked, &line.text).map_err(|failure| format!("{:#}", failure.error))?;
    let place = match &args.repo {
        Some(repo) => {
            let found = |repo: &PathBuf| {
                std::fs::canonicalize(repo).map_err(|_| {
                    format!(
                        "`repo`: folder {} does not exist",
                        display::sanitize_line(&repo.display().to_string())
                    )
                })
            };
            let folder = folders.entry(repo.clone()).or_insert_with_key(found).clone()?;
            Some((folder, args.commit.clone()))
        }
        None if args.empty && (args.push || args.branch.is_some()) => {
            let field = if args.push { "push" } else { "branch" };
            return Err(format!(
                "`{field}`: a task without a repository cannot be delivered; specify its `repo`, or --repo DIR"
            ));
        }
        None if args.empty => None,
        None => return Err("`repo`: no repository; specify --repo DIR, or --empty for none".to_owned()),
    };
    let mut spec = args.build_spec_on(
        cx,
        asked,
        placeholder_base(),
        asked.script.as_ref().map(|bytes| BlobRef::for_bytes(bytes)),
    );
    line.text.trim().clone_into(&mut spec.text);
    spec.title = match &line.title {
        Some(title) => title.trim().to_owned(),
        None => title_from_text(&line.text).map_err(|failure| failure.error.to_string())?,
    };
    if line.rules.is_some() {
        spec.policy.clone_from(&line.rules);
    }
    spec.dedup_key = Some(dedup_key(&spec, &place, form, batch, line));
    spec.batch = Some(batch.id);
    spec.batch_name = Some(batch.name.clone());
    spec.check().and_then(|()| check_models(&spec)).map_err(|error| {
        let field = match error.field {
            "dedup_key" => "dedup",
            "attempts_max and crashes_max" => "attempts",
            "model.base_url" => "base_url",
            field => field,
        };
        format!("`{field}` must be {}", error.must)
    })?;
    Ok((spec, place, asked.script.clone()))
}

/// Returns the key that identifies a task when its file is imported again: its own key, or a hash
/// of its content.
fn dedup_key(
    spec: &TaskSpec,
    place: &TaskSource,
    form: BacklogFormat,
    batch: &ImportBatch,
    line: &BacklogLine,
) -> String {
    match (&spec.dedup_key, form) {
        // The same instance may be solved by several models, in one batch each.
        (Some(key), BacklogFormat::SweBench) if batch.is_named => format!("{}/{key}", batch.name),
        (Some(key), _) => key.clone(),
        (None, _) => {
            let mut content = format!("{:?}", (&batch.id, &spec.title, &spec.text, place, &spec.queue));
            // Lines with the same text but another model or dependency are separate tasks.
            content.extend(line.identity_beyond_text());
            format!("{CONTENT_KEY}{}", &blake3::hash(content.as_bytes()).to_hex()[..32])
        }
    }
}

/// Returns what prevents the task from starting on its repository. `branches` maps the branches of
/// earlier lines to their line.
async fn find_source_fault(
    sources: &mut SourceChecks<'_>,
    task: &UnpinnedTask,
    branches: &mut HashMap<(PathBuf, String), usize>,
) -> CliResult<Option<String>> {
    let spec = &task.spec;
    let repository = task.source.as_ref().map(|(folder, _)| folder.as_path());
    if let (Some(repository), Some(branch)) = (repository, &spec.branch) {
        let first = *branches.entry((repository.to_owned(), branch.clone())).or_insert(task.line);
        if first != task.line {
            return Ok(Some(format!(
                "`branch`: the task on line {first} also delivers to branch {branch} of this repository; \
                 each task needs its own branch"
            )));
        }
    }
    let fields = SourceFields {
        tests: spec.tests.as_deref(),
        setup: &spec.setup,
        repository,
        branch: spec.branch.as_deref(),
        push: spec.delivery_mode() == DeliveryMode::Push,
    };
    let fault = sources.check(fields).await?.err();
    Ok(fault.map(|fault| format!("`{}`: {}", fault.field, fault.message)))
}

/// Refuses tasks whose models have no known price if their batch has a cost budget: the runs would
/// end before their first call. Workers of a remote coordinator may have other prices, which this
/// cannot check.
pub(super) fn reject_unpriced(
    cx: &CliContext,
    tasks: Vec<UnpinnedTask>,
    faults: &mut BacklogFaults,
) -> CliResult<Vec<UnpinnedTask>> {
    let table = PriceTable::load(cx.config.prices_toml.as_deref()).fail_as(ExitKind::Usage)?;
    let mut good = Vec::with_capacity(tasks.len());
    for task in tasks {
        let spec = task.spec.clone();
        let beside = [spec.explore_model.as_ref(), spec.fallback_model.as_ref()].into_iter().flatten();
        let of_roles = spec.roles.iter().filter_map(|role| role.model.as_ref());
        let mut models = std::iter::once(&spec.model).chain(beside).chain(of_roles);
        match models.find(|model| !table.entry_for(model).is_known) {
            Some(model) if cx.url.is_none() => {
                faults.add(
                    task.line,
                    format!("`model`, with a batch budget: {}", unknown_price_message(model)),
                );
            }
            Some(_) | None => good.push(task),
        }
    }
    Ok(good)
}

/// Discards the blobs of a base that is only checked.
struct DiscardSink;

impl BlobSink for DiscardSink {
    async fn put(&mut self, _: BlobRef, _: Vec<u8>) -> Result<(), BlobError> {
        Ok(())
    }
}

/// Pins every commit once and records tasks whose commit cannot be pinned. Without an upload the
/// commits are only checked. `sources` runs the repository checks for new tasks only, because
/// existing tasks own their branches already.
pub(super) async fn pin_bases(
    cx: &CliContext,
    tasks: Vec<UnpinnedTask>,
    mut upload: Option<&mut BlobUpload<'_>>,
    mut sources: Option<&mut SourceChecks<'_>>,
    faults: &mut BacklogFaults,
) -> CliResult<Vec<UnpinnedTask>> {
    let mut bases: HashMap<TaskSource, Result<WorkspaceBase, String>> = HashMap::new();
    let mut notes: Vec<String> = Vec::new();
    let mut good = Vec::with_capacity(tasks.len());
    let mut branches = HashMap::new();
    let scratch = cx.home.ensure_folder("scratch")?;
    let progress = ProgressDisplay::counter(cx, "commits pinned");
    for mut task in tasks {
        if !bases.contains_key(&task.source) {
            progress.set_position(bases.len() as u64);
            let (source, rev) = match &task.source {
                None => (BaseSource::Empty, None),
                Some((folder, rev)) => (BaseSource::Local(folder.clone()), rev.clone()),
            };
            let options = PinOptions { rev, dirty: DirtyTreePolicy::Refuse, scratch: scratch.clone() };
            let pinned = match &mut upload {
                Some(upload) => pin_base(&source, &options, *upload).await,
                None => pin_base(&source, &options, &mut DiscardSink).await,
            };
            let base = match pinned {
                Ok(pinned) => {
                    notes.extend(
                        pinned
                            .notes
                            .iter()
                            .map(format_pin_note)
                            .filter(|note| !notes.contains(note))
                            .collect::<Vec<_>>(),
                    );
                    Ok(pinned.base)
                }
                Err(error) => Err(format!("{:#}", anyhow::Error::new(error))),
            };
            bases.insert(task.source.clone(), base);
        }
        match &bases[&task.source] {
            Ok(base) => {
                task.spec.base = base.clone();
                let fault = match &mut sources {
                    Some(sources) => find_source_fault(sources, &task, &mut branches).await?,
                    None => None,
                };
                match fault {
                    Some(fault) => faults.add(task.line, fault),
                    None => good.push(task),
                }
            }
            Err(why) => {
                let field = if task.spec.dedup_key.is_some()
                    && task.source.as_ref().is_some_and(|(_, rev)| rev.is_some())
                {
                    "commit"
                } else {
                    "repo"
                };
                faults.add(task.line, format!("`{field}`: {why}"));
            }
        }
    }
    if let Some(upload) = upload {
        upload.flush().await.fail_as(ExitKind::Failed)?;
    }
    drop(progress);
    notes.iter().for_each(|note| display::print_note(&display::sanitize_line(note)));
    Ok(good)
}

//! `docket memory`: notes that runs save for later runs, per repository or queue.

use crate::output::value_format::format_memory_scope;
use std::path::PathBuf;

use docket_schema::{
    api::{DeleteMemoryRequest, MemoryQuery, MemoryView},
    ids::QueueName,
    system::MemoryScope,
};

use crate::{
    connect::coordinator::{AccessMode, Coordinator},
    context::CliContext,
    output::{
        display::{self, TableCell, TextTable},
        error::{CliError, CliResult, ExitKind},
    },
};

/// Command-line arguments of `docket memory`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Runs with the wide tool set (`--tools wide`) save notes for later runs on the same repository, or
in the same queue: up to 1000 keys each, 16 KiB per note, with secrets redacted. A repository is
identified by the folder that tasks were submitted with. A deleted note stays in the log, but runs
no longer see it.

Examples:
  docket memory
  docket memory list --repo . --json
  docket memory show build/how-to-test --repo ~/src/shop
  docket memory delete build/how-to-test --queue nightly"
)]
pub(crate) struct MemoryArgs {
    #[command(subcommand)]
    command: Option<MemoryCommand>,
}

#[derive(Debug, clap::Subcommand)]
enum MemoryCommand {
    /// List notes (the default subcommand)
    #[command(after_help = "Examples:
  docket memory list
  docket memory list --repo . --json
  docket memory list --queue nightly")]
    List {
        #[command(flatten)]
        scope: MemoryScopeArgs,
    },
    /// Show the full note for a key
    #[command(after_help = "Examples:
  docket memory show build/how-to-test --repo ~/src/shop")]
    Show {
        /// Key of the note
        key: String,
        #[command(flatten)]
        scope: MemoryScopeArgs,
    },
    /// Delete a note
    #[command(after_help = "Examples:
  docket memory delete build/how-to-test --queue nightly")]
    Delete {
        /// Key of the note
        key: String,
        #[command(flatten)]
        scope: MemoryScopeArgs,
    },
}

/// Whose notes: a repository's or a queue's.
#[derive(Debug, Default, clap::Args)]
struct MemoryScopeArgs {
    /// Notes of this repository
    #[arg(long, value_name = "DIR", conflicts_with = "queue")]
    repo: Option<PathBuf>,
    /// Notes of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QueueName>,
}

impl MemoryScopeArgs {
    fn scope(&self) -> Option<MemoryScope> {
        match (&self.repo, &self.queue) {
            (Some(repo), _) => {
                // A path that does not exist here may belong to another machine: use it as given.
                let path = std::fs::canonicalize(repo).unwrap_or_else(|_| repo.clone());
                let path = path.to_string_lossy().into_owned();
                Some(MemoryScope::Repository(path))
            }
            (None, Some(queue)) => Some(MemoryScope::Queue(queue.clone())),
            (None, None) => None,
        }
    }

    /// Returns the scope, which a key needs because it can exist in several.
    fn require_scope(&self) -> CliResult<MemoryScope> {
        self.scope().ok_or_else(|| {
            CliError::new(
                ExitKind::Usage,
                "specify --repo DIR or --queue QUEUE; `docket memory list` shows both",
            )
        })
    }
}

pub(crate) async fn run_memory(cx: CliContext, args: MemoryArgs) -> CliResult {
    match args.command.unwrap_or(MemoryCommand::List { scope: MemoryScopeArgs::default() }) {
        MemoryCommand::List { scope: of } => {
            let query = memory_query(of.scope(), None);
            let access = Coordinator::connect(&cx, AccessMode::Read).await?;
            let list = access.client.list_memories(&query).await?;
            access.close().await?;
            print_memories(&cx, &list.memories);
        }
        MemoryCommand::Show { key, scope: of } => {
            let query = memory_query(Some(of.require_scope()?), Some(key));
            let access = Coordinator::connect(&cx, AccessMode::Read).await?;
            let list = access.client.list_memories(&query).await?;
            access.close().await?;
            for one in &list.memories {
                match cx.is_json() {
                    true => display::print_json(one),
                    false => {
                        display::print_line(&display::sanitize_text(one.value.as_deref().unwrap_or_default()))
                    }
                }
            }
        }
        MemoryCommand::Delete { key, scope: of } => {
            let scope = of.require_scope()?;
            let access = Coordinator::connect(&cx, AccessMode::Write).await?;
            let list = access.client.delete_memory(&DeleteMemoryRequest { scope, key }).await?;
            access.close().await?;
            for one in &list.memories {
                match cx.is_json() {
                    true => display::print_json(one),
                    false => display::print_line(&format!(
                        "deleted {} of {}",
                        display::sanitize_line(&one.key),
                        format_memory_scope(&one.scope)
                    )),
                }
            }
        }
    }
    Ok(ExitKind::Ok)
}

fn memory_query(scope: Option<MemoryScope>, key: Option<String>) -> MemoryQuery {
    match scope {
        Some(MemoryScope::Repository(source)) => MemoryQuery { repository: Some(source), queue: None, key },
        Some(MemoryScope::Queue(queue)) => {
            MemoryQuery { repository: None, queue: Some(queue.to_string()), key }
        }
        None => MemoryQuery { repository: None, queue: None, key },
    }
}

fn print_memories(cx: &CliContext, memories: &[MemoryView]) {
    if cx.is_json() {
        memories.iter().for_each(display::print_json);
        return;
    }
    if memories.is_empty() {
        display::print_note("no notes; runs with `--tools wide` can save some");
        return;
    }
    let mut table = TextTable::new(&["KEY", "BYTES", "OF", "SAVED", "RUN", "BEGINS"]);
    for one in memories {
        table.add_row(vec![
            TableCell::new(&one.key),
            TableCell::new(one.bytes.to_string()),
            TableCell::new(format_memory_scope(&one.scope)),
            TableCell::new(one.saved_at.to_string()),
            TableCell::new(one.run.short()),
            TableCell::new(&one.begins),
        ]);
    }
    display::print_line(table.render(cx.screen).trim_end());
}

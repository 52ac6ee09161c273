//! `docket memory`: what runs remember beyond themselves, for a repository or a queue.

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

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Runs with the wide set of tools (`--tools wide`) remember notes for later runs on the same repository, or of the same
queue: 1000 keys each, 16 KiB a note, secrets struck out. A repository is the folder that tasks were submitted with.
What is deleted stays in the log, and no run finds it any more.

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
    /// What is remembered (as without a subcommand)
    #[command(after_help = "Examples:
  docket memory list
  docket memory list --repo . --json
  docket memory list --queue nightly")]
    List {
        #[command(flatten)]
        scope: MemoryScopeArgs,
    },
    /// What is remembered under a key, whole
    #[command(after_help = "Examples:
  docket memory show build/how-to-test --repo ~/src/shop")]
    Show {
        /// The key
        key: String,
        #[command(flatten)]
        scope: MemoryScopeArgs,
    },
    /// Forget a key
    #[command(after_help = "Examples:
  docket memory delete build/how-to-test --queue nightly")]
    Delete {
        /// The key
        key: String,
        #[command(flatten)]
        scope: MemoryScopeArgs,
    },
}

/// Whose memory.
#[derive(Debug, Default, clap::Args)]
struct MemoryScopeArgs {
    /// Of runs on this repository
    #[arg(long, value_name = "DIR", conflicts_with = "queue")]
    repo: Option<PathBuf>,
    /// Of runs of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QueueName>,
}

impl MemoryScopeArgs {
    fn scope(&self) -> Option<MemoryScope> {
        match (&self.repo, &self.queue) {
            (Some(repo), _) => {
                // One that is not here is another machine's, or gone: then its name is what was said.
                let path = std::fs::canonicalize(repo).unwrap_or_else(|_| repo.clone());
                let path = path.to_string_lossy().into_owned();
                Some(MemoryScope::Repository(path))
            }
            (None, Some(queue)) => Some(MemoryScope::Queue(queue.clone())),
            (None, None) => None,
        }
    }

    /// A key alone does not say whose.
    fn require_scope(&self) -> CliResult<MemoryScope> {
        self.scope().ok_or_else(|| {
            CliError::new(
                ExitKind::Usage,
                "whose key? give --repo DIR or --queue QUEUE; `docket memory list` shows both",
            )
        })
    }
}

/// Does it.
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
                        "forgot {} of {}",
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
        display::print_note("nothing is remembered here; runs with `--tools wide` remember");
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

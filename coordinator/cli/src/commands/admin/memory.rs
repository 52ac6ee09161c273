//! `docket memory`: what runs remember beyond themselves, for a repository or a queue.

use crate::output::words::memory_scope;
use std::path::PathBuf;

use docket_schema::{
    ids::QueueName,
    system::MemoryScope,
    wire::{DeleteMemoryRequest, MemoryQuery, MemoryView},
};

use crate::{
    connect::access::{Access, Need},
    context::Context,
    output::{
        display::{self, Cell, Table},
        fail::{Exit, Failure, Outcome},
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
pub(crate) struct Args {
    #[command(subcommand)]
    what: Option<What>,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// What is remembered (as without a subcommand)
    #[command(after_help = "Examples:
  docket memory list
  docket memory list --repo . --json
  docket memory list --queue nightly")]
    List {
        #[command(flatten)]
        of: Whose,
    },
    /// What is remembered under a key, whole
    #[command(after_help = "Examples:
  docket memory show build/how-to-test --repo ~/src/shop")]
    Show {
        /// The key
        key: String,
        #[command(flatten)]
        of: Whose,
    },
    /// Forget a key
    #[command(after_help = "Examples:
  docket memory delete build/how-to-test --queue nightly")]
    Delete {
        /// The key
        key: String,
        #[command(flatten)]
        of: Whose,
    },
}

/// Whose memory.
#[derive(Debug, Default, clap::Args)]
struct Whose {
    /// Of runs on this repository
    #[arg(long, value_name = "DIR", conflicts_with = "queue")]
    repo: Option<PathBuf>,
    /// Of runs of this queue
    #[arg(long, value_name = "QUEUE")]
    queue: Option<QueueName>,
}

impl Whose {
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
    fn one(&self) -> Outcome<MemoryScope> {
        self.scope().ok_or_else(|| {
            Failure::new(
                Exit::Usage,
                "whose key? give --repo DIR or --queue QUEUE; `docket memory list` shows both",
            )
        })
    }
}

/// Does it.
pub(crate) async fn run(cx: Context, args: Args) -> Outcome {
    match args.what.unwrap_or(What::List { of: Whose::default() }) {
        What::List { of } => {
            let query = query(of.scope(), None);
            let access = Access::open(&cx, Need::Read).await?;
            let list = access.client.memories(&query).await?;
            access.close().await?;
            show_list(&cx, &list.memories);
        }
        What::Show { key, of } => {
            let query = query(Some(of.one()?), Some(key));
            let access = Access::open(&cx, Need::Read).await?;
            let list = access.client.memories(&query).await?;
            access.close().await?;
            for one in &list.memories {
                match cx.json() {
                    true => display::say_json(one),
                    false => display::say(&display::block(one.value.as_deref().unwrap_or_default())),
                }
            }
        }
        What::Delete { key, of } => {
            let scope = of.one()?;
            let access = Access::open(&cx, Need::Write).await?;
            let list = access.client.forget(&DeleteMemoryRequest { scope, key }).await?;
            access.close().await?;
            for one in &list.memories {
                match cx.json() {
                    true => display::say_json(one),
                    false => display::say(&format!(
                        "forgot {} of {}",
                        display::line(&one.key),
                        memory_scope(&one.scope)
                    )),
                }
            }
        }
    }
    Ok(Exit::Ok)
}

fn query(scope: Option<MemoryScope>, key: Option<String>) -> MemoryQuery {
    match scope {
        Some(MemoryScope::Repository(source)) => MemoryQuery { repository: Some(source), queue: None, key },
        Some(MemoryScope::Queue(queue)) => {
            MemoryQuery { repository: None, queue: Some(queue.to_string()), key }
        }
        None => MemoryQuery { repository: None, queue: None, key },
    }
}

fn show_list(cx: &Context, memories: &[MemoryView]) {
    if cx.json() {
        memories.iter().for_each(display::say_json);
        return;
    }
    if memories.is_empty() {
        display::note("nothing is remembered here; runs with `--tools wide` remember");
        return;
    }
    let mut table = Table::new(&["KEY", "BYTES", "OF", "SAVED", "RUN", "BEGINS"]);
    for one in memories {
        table.row(vec![
            Cell::new(&one.key),
            Cell::new(one.bytes.to_string()),
            Cell::new(memory_scope(&one.scope)),
            Cell::new(one.saved_at.to_string()),
            Cell::new(one.run.short()),
            Cell::new(&one.begins),
        ]);
    }
    display::say(table.render(cx.screen).trim_end());
}

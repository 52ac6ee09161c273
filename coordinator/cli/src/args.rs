//! The command-line interface: global flags, the list of commands and the top-level help.
//!
//! The arguments of each subcommand are defined next to its implementation.

use clap::{Parser, Subcommand};

use crate::context::GlobalArgs;

/// Printed after `docket --help`.
const AFTER_HELP: &str = "\
Examples:
  docket demo                                  see docket work: four tasks, two workers, two kills
  docket run \"Fix the failing test\" --repo .   run one task to completion, with live progress
  docket up                                    run a coordinator and workers until Ctrl-C
  docket submit \"Add a --json flag\" --repo .   add a task to the backlog and return
  docket ps                                    list the backlog
  docket follow 3f9c01ab                       watch a run think, edit and test
  docket replay 3f9c01ab                       replay a run turn by turn, offline
  docket step 3f9c01ab                         the same full-screen: outputs, diffs, files

Ids can be abbreviated to any unique prefix or suffix; lists show the last eight digits. Commands
that need a run also accept a task id and use the task's latest run.

Settings come from docket.toml in the home directory, then DOCKET_... environment variables, then
flags; later sources take precedence. To use a remote coordinator, set DOCKET_URL and DOCKET_TOKEN.

Exit codes:
  0  success
  1  the operation failed, or the task failed
  2  invalid command line or setting
  3  no such task or run, or the id is ambiguous
  4  refused: not allowed in the current state, or with this token
  5  the coordinator or its database cannot be reached
  6  verification failed: the log, or data derived from it, is not intact
  7  this build does not support a version of the engine, an event or the database";

/// Run a backlog of coding tasks with isolated agents; every step is logged and can be replayed.
#[derive(Debug, Parser)]
#[command(name = "docket", version, after_help = AFTER_HELP, max_term_width = 100)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalArgs,

    #[command(subcommand)]
    pub(crate) command: Command,
}

/// The top-level subcommands.
#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one task to completion
    Run(crate::commands::tasks::run::RunArgs),
    /// Add a task to the backlog
    Submit(crate::commands::tasks::submit::SubmitArgs),
    /// List tasks
    Ps(crate::commands::tasks::ps::PsArgs),
    /// Live overview: blocked tasks, runs and workers
    Top(crate::tui::top::TopArgs),
    /// List batches, show the progress of one
    Batch(crate::commands::tasks::batch::BatchArgs),
    /// Explain why a task is not running
    Why(crate::commands::tasks::why::WhyArgs),
    /// Report the cost of model calls by role and model, for a run, a batch or a week
    Cost(crate::commands::reports::cost::CostArgs),
    /// Report quality metrics against their targets, for a task, a batch or by week
    Metrics(crate::commands::reports::metrics::MetricsArgs),
    /// Compare the same tasks across models or engines
    Compare(crate::commands::reports::compare::CompareArgs),
    /// Run an evaluation suite with one or more engines; report results and cost
    Eval(crate::eval::EvalArgs),
    /// Show everything about a task or a run
    Show(crate::commands::tasks::show::ShowArgs),
    /// Watch a run live
    Follow(crate::commands::runs::follow::FollowArgs),
    /// Print the raw events of a task or a run
    Logs(crate::commands::runs::logs::LogsArgs),
    /// Print the changes of a run or of one turn as a patch
    Diff(crate::commands::runs::diff::DiffArgs),
    /// Write a run's files, as of a turn, to a directory
    Checkout(crate::commands::runs::checkout::CheckoutArgs),
    /// Print a file as of a turn
    Cat(crate::commands::runs::cat::CatArgs),
    /// Show which turn wrote each line of a file
    Blame(crate::commands::runs::blame::BlameArgs),
    /// Commit a run's changes to a branch of its source repository
    Apply(crate::commands::review::apply::ApplyArgs),
    /// Push that branch to the repository's remote
    Push(crate::commands::review::push::PushArgs),
    /// Accept a result
    Accept(crate::commands::review::accept::AcceptArgs),
    /// Reject a result; a new run continues from it with your comment
    Reject(crate::commands::review::reject::RejectArgs),
    /// Send a message to a running run
    Tell(crate::commands::tasks::tell::TellArgs),
    /// Check a policy, show the one in force, or replace it
    Policy(crate::commands::local::policy::PolicyArgs),
    /// Answer a run's question and resume it
    Answer(crate::commands::tasks::answer::AnswerArgs),
    /// Pause a task: its run stops after the current turn and frees its slot
    Pause(crate::commands::tasks::pause::PauseArgs),
    /// Resume a paused task
    Unpause(crate::commands::tasks::pause::UnpauseArgs),
    /// Cancel a task
    Cancel(crate::commands::tasks::cancel::CancelArgs),
    /// Change the priority of tasks
    Reprioritize(crate::commands::tasks::reprioritize::ReprioritizeArgs),
    /// Put an ended task back into the backlog, from its start
    Retry(crate::commands::tasks::retry::RetryArgs),
    /// Continue a run from the end of a turn
    Resume(crate::commands::runs::resume::ResumeArgs),
    /// Start a new task from a turn, optionally with another model or a hint
    Fork(crate::commands::runs::fork::ForkArgs),
    /// Open a shell in a run's workspace as of a turn
    Shell(crate::commands::runs::shell::ShellArgs),
    /// Run a command in the sandbox
    Sandbox(crate::commands::local::sandbox::SandboxArgs),
    /// Step through a run turn by turn, offline
    Replay(crate::commands::runs::replay::ReplayArgs),
    /// Browse a run full-screen: prompts, decisions, calls, changes, files
    Step(crate::tui::step::StepArgs),
    /// Verify that the log is complete and unaltered
    Verify(crate::commands::runs::verify::VerifyArgs),
    /// Export a run to a file for another installation or other programs
    Export(crate::commands::runs::export::ExportArgs),
    /// Import tasks (JSON Lines, a checklist, issues, SWE-bench) or an exported run
    Import(Box<crate::commands::runs::import::ImportArgs>),
    /// Find and delete unreferenced blobs
    Gc(crate::commands::admin::gc::GcArgs),
    /// Run an MCP server that lets other agents submit, inspect and answer
    Mcp(crate::commands::tasks::mcp::McpArgs),
    /// Archive old tasks to files, or restore them
    Archive(crate::commands::admin::archive::ArchiveArgs),
    /// Run a coordinator and workers on this machine until Ctrl-C
    Up(crate::services::up::UpArgs),
    /// Run only a coordinator
    Serve(crate::services::serve::ServeArgs),
    /// Open the dashboard in a browser
    Dashboard(crate::commands::admin::dashboard::DashboardArgs),
    /// Run a worker for a remote coordinator
    Worker(crate::services::worker::WorkerCommandArgs),
    /// List workers and their load; drain one
    Workers(crate::commands::admin::workers::WorkersArgs),
    /// Manage the rate limits of model providers
    Limit(crate::commands::admin::limit::LimitArgs),
    /// List, show and delete what runs remember across tasks
    Memory(crate::commands::admin::memory::MemoryArgs),
    /// Manage notification targets and deliveries
    Notify(crate::commands::admin::notify::NotifyArgs),
    /// Manage recurring tasks
    Schedule(crate::commands::tasks::schedule::ScheduleArgs),
    /// List queues; pause, resume, limit or drain one
    Queue(crate::commands::admin::queue::QueueArgs),
    /// Manage entries of the transactional outbox that could not become tasks
    Inbox(crate::commands::admin::inbox::InboxArgs),
    /// Create, list and revoke API tokens
    Token(crate::commands::admin::token::TokenArgs),
    /// Migrate the database or rebuild derived data
    Db(crate::commands::admin::db::DbArgs),
    /// Check this machine: sandbox, store, toolchains
    Doctor(crate::commands::local::doctor::DoctorArgs),
    /// See docket work: four tasks, two workers, two kills
    Demo(crate::demo::DemoArgs),
    /// Benchmark this machine: appends, tasks, turns, memory
    Bench(crate::commands::local::bench::BenchArgs),
    /// Run a single agent tool standalone
    Tool(crate::commands::local::tool::ToolArgs),
    /// Generate manual pages, one per command
    Man(crate::commands::local::man::ManArgs),
    /// Generate a shell completion script
    Completions(crate::commands::local::completions::CompletionsArgs),
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;

    #[test]
    fn clap_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn command_lines_parse_or_fail_with_exit_code_2() {
        let good = [
            "docket ps --json",
            "docket --json ps --state running --queue q -n 5",
            "docket submit hello --repo . --model scripted:x --script s.toml --priority -5",
            "docket submit --file task.md --empty --model anthropic:m --at 2026-01-31T12:00:00Z --dedup k",
            "docket submit hi --repo . --commit main --require a.txt --require b/c --tests true --branch fix/x",
            "docket run hi --repo . --include-dirty",
            "docket submit hi --repo . --push --branch fix/x",
            "docket apply abc --on-base --branch x",
            "docket apply abc --work-tree",
            "docket push abc --remote fork --branch x",
            "docket accept abc --comment good",
            "docket reject abc --comment no",
            "docket resume abc --hint look",
            "docket replay abc --turn 3 --json",
            "docket replay abc --from 2 --to 4 --full",
            "docket replay abc --turn 3 --request --attempt 2",
            "docket replay abc --output t3-0",
            "docket replay abc --verify --tools --gates --from 3",
            "docket verify abc --tools --gates",
            "docket resume abc --turn 0",
            "docket fork abc",
            "docket fork abc --turn 7 --model anthropic:m --engine react --hint look --count 3",
            "docket answer abc",
            "docket why abc --json",
            "docket queue",
            "docket queue set slow --max 3",
            "docket queue drain slow --timeout 30s",
            "docket workers drain w1 --wait",
            "docket schedule",
            "docket limit",
            "docket limit set openai --requests 50/m --tokens 40000/m",
            "docket limit remove anthropic --json",
            "docket limit set anthropic --concurrent 8",
            "docket memory",
            "docket memory list --repo . --json",
            "docket memory show build/how --repo .",
            "docket memory delete build/how --queue nightly",
            "docket submit hi --repo . --tools wide",
            "docket schedule add nightly --cron @daily --tz Europe/Berlin --missed skip hi --repo . --push",
            "docket schedule repin nightly --commit main",
            "docket schedule run nightly --json",
            "docket submit hi --repo . --after abc --if-failed run --key branch/main --key-max 2 --selector gpu=a100",
            "docket policy check p.toml",
            "docket policy check p.toml -- git push origin main",
            "docket policy show abc --json",
            "docket policy set abc p.toml",
            "docket submit hi --repo . --policy p.toml",
            "docket answer abc the second one",
            "docket answer abc - --json",
            "docket answer abc --file answer.md",
            "docket pause abc",
            "docket unpause abc --json",
            "docket cancel abc --reason why",
            "docket retry abc",
            "docket checkout abc --turn 4 dir --force",
            "docket diff abc --turn 4 --stat",
            "docket diff abc --from 1 --to 4 --name-only -z",
            "docket cat abc src/x.rs --turn 0 --raw",
            "docket blame abc src/x.rs",
            "docket step abc --with def",
            "docket shell abc",
            "docket shell abc --turn 7 --then fork -- sed -i s/a/b/ x",
            "docket verify",
            "docket verify abc --store sqlite:/tmp/x.db",
            "docket db rebuild",
            "docket export abc -o run.docket",
            "docket export abc --plain",
            "docket export --predictions --batch b --model-name m -o p.jsonl",
            "docket export abc --format atif --text-bytes 100 -o x.json",
            "docket import run.docket --json",
            "docket import - --format github --repo . --label-priority bug=10 --dry-run",
            "docket import b.jsonl --empty --model scripted:x --script s.toml --batch b --skip-bad --again",
            "docket cancel --queue q --state available,running --before 2d --yes",
            "docket retry --state discarded --title *x* --batch b --dry-run --reason r",
            "docket pause abc def",
            "docket reprioritize --priority -5 abc",
            "docket ps --state running --state blocked,retryable --model openai:* --worker w --since 2h -n 5000",
            "docket ps --sort priority --columns task,state,title",
            "docket ps --watch",
            "docket ps --watch=5 --queue q",
            "docket batch",
            "docket batch todo --wait --json",
            "docket eval tests/suites/samples",
            "docket eval suite --engine react --engine plan --workers 4 --only safety/* --html a.html --keep --json",
            "docket eval suite --model openai:x --base-url http://localhost:1/v1",
            "docket eval compare a.json b.json --json",
            "docket gc",
            "docket archive --older-than 90d --queue ci --dry-run",
            "docket archive restore abc",
            "docket db backup copy.db --replace",
            "docket gc --delete --untouched-for 7d",
            "docket token create --name ci --role submit --expires 90d --json",
            "docket token list",
            "docket token revoke ci",
            "docket logs system/audit",
            "docket serve --listen 0.0.0.0:7117 --tls-cert /c.pem --tls-key /k.pem",
            "docket up --slots 4 --listen 127.0.0.1:0",
            "docket worker --slots 2 --queues a,b",
            "docket demo --keep",
            "docket dashboard",
            "docket dashboard --print --json",
            "docket completions zsh",
            "docket --home /tmp/x doctor --json",
        ];
        for line in good {
            if let Err(error) = Cli::try_parse_from(line.split(' ')) {
                panic!("{line}: {error}");
            }
        }
        let bad = [
            "docket",
            "docket pss",
            "docket archive",
            "docket archive --older-than soon",
            "docket archive --older-than 90d restore abc",
            "docket ps --state asleep",
            "docket ps -n 0",
            "docket submit",
            "docket submit hi --file f --repo .",
            "docket submit hi",
            "docket submit hi --repo . --empty",
            "docket submit hi --repo . --commit main --include-dirty",
            "docket submit hi --repo . --model llama",
            "docket submit hi --repo . --priority 5000",
            "docket submit hi --repo . --at tomorrow",
            "docket submit hi --repo . --require ../x",
            "docket submit hi --repo . --queue no/slash",
            "docket tell abc",
            "docket limit set openai",
            "docket memory list --repo . --queue x",
            "docket memory show",
            "docket submit hi --repo . --tools seven",
            "docket limit set nobody --requests 5/s",
            "docket limit set openai --requests 5/d",
            "docket schedule add nightly hi --repo .",
            "docket schedule add -x --cron @daily hi --repo .",
            "docket schedule add nightly --cron @daily --overlap maybe hi --repo .",
            "docket policy",
            "docket policy set abc",
            "docket answer",
            "docket answer abc text --file answer.md",
            "docket step",
            "docket resume abc --turn -1",
            "docket shell abc make",
            "docket shell abc --then maybe",
            "docket fork abc --count 0",
            "docket fork abc --count 101",
            "docket fork abc --base-url http://x",
            "docket checkout abc",
            "docket diff abc --turn 1 --from 0",
            "docket diff abc --stat --name-only",
            "docket diff abc -z",
            "docket cat abc",
            "docket blame abc",
            "docket replay abc --request",
            "docket replay abc --turn 3 --from 2",
            "docket replay abc --turn 3 --attempt 2",
            "docket replay abc --turn 3 --request --tools",
            "docket replay abc --gates",
            "docket verify --tools",
            "docket token create --name ci",
            "docket token create --name a/b --role read",
            "docket token create --name ci --role king",
            "docket token create --name ci --role read --expires 0d",
            "docket token revoke",
            "docket up --slots 0",
            "docket up --listen nowhere",
            "docket verify --store mysql://x",
            "docket completions cmd",
            "docket export abc --format traj",
            "docket export",
            "docket export abc --predictions",
            "docket export abc --batch b",
            "docket import",
            "docket import a --repo . --empty",
            "docket import a --format csv",
            "docket import a --label-priority bug",
            "docket batch --wait",
            "docket eval",
            "docket eval suite --workers 0",
            "docket eval suite --model llama",
            "docket eval compare a.json",
            "docket cancel abc --queue q",
            "docket reprioritize abc",
            "docket ps --since soon",
            "docket ps --columns task,nothing",
            "docket ps --watch=0",
            "docket gc --untouched-for 1h",
            "docket gc --untouched-for soon",
            "docket notify retry",
            "docket notify retry abc --all",
            "docket notify list --state lost",
            "docket notify list --limit 0",
        ];
        for line in bad {
            let error = Cli::try_parse_from(line.split(' ')).expect_err(line);
            assert_eq!(error.exit_code(), 2, "{line}");
        }
    }

    #[test]
    fn help_text_matches_snapshot() {
        let mut command = Cli::command().term_width(100);
        insta::assert_snapshot!("help", command.render_help());
        let whole: Vec<String> = ["run", "submit", "replay", "up"]
            .iter()
            .map(|name| {
                let command = command.find_subcommand_mut(name).expect("is there");
                format!("--- {name}\n{}", command.render_long_help())
            })
            .collect();
        insta::assert_snapshot!("subcommands", whole.join("\n"));
    }
}

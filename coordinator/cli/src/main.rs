//! The `docket` binary. Its subcommands are the processes of the system.
//!
//! The only place that depends on both the coordinator and the worker. Run processes and the first process of a
//! sandbox also start here, before anything else: no runtime, no threads and no command line parsing delay
//! them.

mod args;
mod commands;
mod config;
mod connect;
mod context;
mod delivery;
mod demo;
mod eval;
mod history;
mod home;
mod output;
mod progress;
#[cfg(test)]
mod reference;
mod samples;
mod services;
mod tasks;
mod tui;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::{
    args::{Cli, Command},
    context::CliContext,
    output::error::{CauseDisplay, CliResult, ExitKind},
};

fn main() -> ExitCode {
    if let Some(args) = docket_sandbox::sandbox_init_args(std::env::args_os()) {
        docket_sandbox::sandbox_init_main(args);
    }
    // Every docket process has tokens or keys in memory.
    if let Err(error) = docket_worker::process::disable_core_dumps_and_ptrace() {
        output::display::print_note(&format!(
            "warning: a crash of docket may write its memory to a core dump: {error}"
        ));
    }
    if std::env::args_os().nth(1).is_some_and(|first| first == "run-process") {
        return connect::local_coordinator::run_process_main();
    }
    let cli = Cli::parse();
    let chain = if cli.global.verbose > 0 { CauseDisplay::Shown } else { CauseDisplay::Hidden };
    let for_programs = cli.global.json;
    match run_cli(cli) {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(failure) => {
            let text = failure.format_message(chain);
            if for_programs {
                let row = serde_json::json!({ "error": text, "exit": failure.exit.code() }).to_string();
                output::display::print_note(&output::display::escape_json(&row));
            } else {
                output::display::print_note(&format!("error: {text}"));
            }
            ExitCode::from(failure.exit.code())
        }
    }
}

fn run_cli(cli: Cli) -> CliResult {
    if let Command::Completions(args) = &cli.command {
        return commands::local::completions::run_completions(args, cli.global.json, Cli::command());
    }
    if let Command::Tool(args) = &cli.command {
        return commands::local::tool::run_tool(args);
    }
    let context = CliContext::new(&cli.global)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(Box::pin(dispatch_command(context, cli.command)));
    // Anything still running is only waiting: whatever must be durable already is.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    outcome
}

async fn dispatch_command(cx: CliContext, command: Command) -> CliResult {
    match command {
        Command::Run(args) => commands::tasks::run::run_run(cx, args).await,
        Command::Submit(args) => commands::tasks::submit::run_submit(cx, args).await,
        Command::Ps(args) => commands::tasks::ps::run_ps(cx, args).await,
        Command::Batch(args) => commands::tasks::batch::run_batch(cx, args).await,
        Command::Why(args) => commands::tasks::why::run_why(cx, args).await,
        Command::Cost(args) => commands::reports::cost::run_cost(cx, args).await,
        Command::Metrics(args) => commands::reports::metrics::run_metrics(cx, args).await,
        Command::Compare(args) => commands::reports::compare::run_compare(cx, args).await,
        Command::Eval(args) => Box::pin(eval::run_eval(cx, args)).await,
        Command::Show(args) => commands::tasks::show::run_show(cx, args).await,
        Command::Follow(args) => commands::runs::follow::run_follow(cx, args).await,
        Command::Logs(args) => commands::runs::logs::run_logs(cx, args).await,
        Command::Diff(args) => commands::runs::diff::run_diff(cx, args).await,
        Command::Checkout(args) => Box::pin(commands::runs::checkout::run_checkout(cx, args)).await,
        Command::Cat(args) => Box::pin(commands::runs::cat::run_cat(cx, args)).await,
        Command::Blame(args) => Box::pin(commands::runs::blame::run_blame(cx, args)).await,
        Command::Apply(args) => commands::review::apply::run_apply(cx, args).await,
        Command::Push(args) => commands::review::push::run_push(cx, args).await,
        Command::Accept(args) => commands::review::accept::run_accept(cx, args).await,
        Command::Reject(args) => commands::review::reject::run_reject(cx, args).await,
        Command::Policy(args) => commands::local::policy::run_policy(cx, args).await,
        Command::Tell(args) => commands::tasks::tell::run_tell(cx, args).await,
        Command::Pause(args) => commands::tasks::pause::run_pause(cx, args).await,
        Command::Answer(args) => commands::tasks::answer::run_answer(cx, args).await,
        Command::Unpause(args) => commands::tasks::pause::run_unpause(cx, args).await,
        Command::Cancel(args) => commands::tasks::cancel::run_cancel(cx, args).await,
        Command::Reprioritize(args) => commands::tasks::reprioritize::run_reprioritize(cx, args).await,
        Command::Retry(args) => commands::tasks::retry::run_retry(cx, args).await,
        Command::Resume(args) => commands::runs::resume::run_resume(cx, args).await,
        Command::Fork(args) => commands::runs::fork::run_fork(cx, args).await,
        Command::Shell(args) => commands::runs::shell::run_shell(cx, args).await,
        Command::Sandbox(args) => commands::local::sandbox::run_sandbox(cx, args).await,
        Command::Replay(args) => Box::pin(commands::runs::replay::run_replay(cx, args)).await,
        Command::Step(args) => tui::step::run_step(cx, args).await,
        Command::Verify(args) => Box::pin(commands::runs::verify::run_verify(cx, args)).await,
        Command::Export(args) => commands::runs::export::run_export(cx, args).await,
        Command::Import(args) => Box::pin(commands::runs::import::run_import(cx, *args)).await,
        Command::Gc(args) => commands::admin::gc::run_gc(cx, args).await,
        Command::Archive(args) => commands::admin::archive::run_archive(cx, args).await,
        Command::Up(args) => Box::pin(services::up::run_up(cx, args)).await,
        Command::Serve(args) => services::serve::run_serve(cx, args).await,
        Command::Dashboard(args) => commands::admin::dashboard::run_dashboard(cx, args).await,
        Command::Worker(args) => Box::pin(services::worker::run_worker(cx, args)).await,
        Command::Workers(args) => commands::admin::workers::run_workers(cx, args).await,
        Command::Schedule(args) => Box::pin(commands::tasks::schedule::run_schedule(cx, args)).await,
        Command::Limit(args) => commands::admin::limit::run_limit(cx, args).await,
        Command::Memory(args) => commands::admin::memory::run_memory(cx, args).await,
        Command::Notify(args) => Box::pin(commands::admin::notify::run_notify(cx, args)).await,
        Command::Man(args) => commands::local::man::run_man(&cx, &args, Cli::command()),
        Command::Top(args) => Box::pin(tui::top::run_top(cx, args)).await,
        Command::Mcp(args) => Box::pin(commands::tasks::mcp::run_mcp(cx, args)).await,
        Command::Queue(args) => commands::admin::queue::run_queue(cx, args).await,
        Command::Inbox(args) => commands::admin::inbox::run_inbox(cx, args).await,
        Command::Token(args) => commands::admin::token::run_token(cx, args).await,
        Command::Db(args) => commands::admin::db::run_db(cx, args).await,
        Command::Doctor(args) => commands::local::doctor::run_doctor(cx, args).await,
        Command::Demo(args) => Box::pin(demo::run_demo(cx, args)).await,
        Command::Bench(args) => commands::local::bench::run_bench(cx, args).await,
        Command::Tool(_) | Command::Completions(_) => Ok(ExitKind::Ok),
    }
}

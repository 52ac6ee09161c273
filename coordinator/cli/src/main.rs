//! `docket`: the one binary. Its subcommands are the processes of the system.
//!
//! The only place that names both the coordinator and the worker. A run process and a sandbox's
//! first process start here as well, before anything else: no runtime, no threads, no parsing of
//! the command line stands between their start and their work.

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
    context::Context,
    output::fail::{Chain, Exit, Outcome},
};

fn main() -> ExitCode {
    if let Some(args) = docket_sandbox::init_call(std::env::args_os()) {
        docket_sandbox::sandbox_init_main(args);
    }
    // Tokens and keys are in this process's memory, whatever it does.
    if let Err(error) = docket_worker::process::leave_no_traces() {
        output::display::note(&format!(
            "warning: a crash of docket may leave its memory in a core dump: {error}"
        ));
    }
    if std::env::args_os().nth(1).is_some_and(|first| first == "run-process") {
        return connect::local::run_process();
    }
    let cli = Cli::parse();
    let chain = if cli.global.verbose > 0 { Chain::Shown } else { Chain::Hidden };
    let for_programs = cli.global.json;
    match start(cli) {
        Ok(exit) => ExitCode::from(exit.code()),
        Err(failure) => {
            let text = failure.text(chain);
            if for_programs {
                let row = serde_json::json!({ "error": text, "exit": failure.exit.code() }).to_string();
                output::display::note(&output::display::json_text(&row));
            } else {
                output::display::note(&format!("error: {text}"));
            }
            ExitCode::from(failure.exit.code())
        }
    }
}

fn start(cli: Cli) -> Outcome {
    if let Command::Completions(args) = &cli.command {
        return commands::local::completions::run(args, cli.global.json, Cli::command());
    }
    if let Command::Tool(args) = &cli.command {
        return commands::local::tool::run(args);
    }
    let context = Context::new(&cli.global)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let outcome = runtime.block_on(Box::pin(dispatch(context, cli.command)));
    // What is still running is only waiting: everything that must be durable is.
    runtime.shutdown_timeout(std::time::Duration::from_millis(200));
    outcome
}

async fn dispatch(cx: Context, command: Command) -> Outcome {
    match command {
        Command::Run(args) => commands::tasks::run::run(cx, args).await,
        Command::Submit(args) => commands::tasks::submit::run(cx, args).await,
        Command::Ps(args) => commands::tasks::ps::run(cx, args).await,
        Command::Batch(args) => commands::tasks::batch::run(cx, args).await,
        Command::Why(args) => commands::tasks::why::run(cx, args).await,
        Command::Cost(args) => commands::reports::cost::run(cx, args).await,
        Command::Metrics(args) => commands::reports::metrics::run(cx, args).await,
        Command::Compare(args) => commands::reports::compare::run(cx, args).await,
        Command::Eval(args) => Box::pin(eval::run(cx, args)).await,
        Command::Show(args) => commands::tasks::show::run(cx, args).await,
        Command::Follow(args) => commands::runs::follow::run(cx, args).await,
        Command::Logs(args) => commands::runs::logs::run(cx, args).await,
        Command::Diff(args) => commands::runs::diff::run(cx, args).await,
        Command::Checkout(args) => Box::pin(commands::runs::checkout::run(cx, args)).await,
        Command::Cat(args) => Box::pin(commands::runs::cat::run(cx, args)).await,
        Command::Blame(args) => Box::pin(commands::runs::blame::run(cx, args)).await,
        Command::Apply(args) => commands::review::apply::run(cx, args).await,
        Command::Push(args) => commands::review::push::run(cx, args).await,
        Command::Accept(args) => commands::review::accept::run(cx, args).await,
        Command::Reject(args) => commands::review::reject::run(cx, args).await,
        Command::Policy(args) => commands::local::policy::run(cx, args).await,
        Command::Tell(args) => commands::tasks::tell::run(cx, args).await,
        Command::Pause(args) => commands::tasks::pause::run(cx, args).await,
        Command::Answer(args) => commands::tasks::answer::run(cx, args).await,
        Command::Unpause(args) => commands::tasks::pause::unpause(cx, args).await,
        Command::Cancel(args) => commands::tasks::cancel::run(cx, args).await,
        Command::Reprioritize(args) => commands::tasks::reprioritize::run(cx, args).await,
        Command::Retry(args) => commands::tasks::retry::run(cx, args).await,
        Command::Resume(args) => commands::runs::resume::run(cx, args).await,
        Command::Fork(args) => commands::runs::fork::run(cx, args).await,
        Command::Shell(args) => commands::runs::shell::run(cx, args).await,
        Command::Sandbox(args) => commands::local::sandbox::run(cx, args).await,
        Command::Replay(args) => Box::pin(commands::runs::replay::run(cx, args)).await,
        Command::Step(args) => tui::step::run(cx, args).await,
        Command::Verify(args) => Box::pin(commands::runs::verify::run(cx, args)).await,
        Command::Export(args) => commands::runs::export::run(cx, args).await,
        Command::Import(args) => Box::pin(commands::runs::import::run(cx, *args)).await,
        Command::Gc(args) => commands::admin::gc::run(cx, args).await,
        Command::Archive(args) => commands::admin::archive::run(cx, args).await,
        Command::Up(args) => Box::pin(services::up::run(cx, args)).await,
        Command::Serve(args) => services::serve::run(cx, args).await,
        Command::Dashboard(args) => commands::admin::dashboard::run(cx, args).await,
        Command::Worker(args) => Box::pin(services::worker::run(cx, args)).await,
        Command::Workers(args) => commands::admin::workers::run(cx, args).await,
        Command::Schedule(args) => Box::pin(commands::tasks::schedule::run(cx, args)).await,
        Command::Limit(args) => commands::admin::limit::run(cx, args).await,
        Command::Memory(args) => commands::admin::memory::run(cx, args).await,
        Command::Notify(args) => Box::pin(commands::admin::notify::run(cx, args)).await,
        Command::Man(args) => commands::local::man::run(&cx, &args, Cli::command()),
        Command::Top(args) => Box::pin(tui::top::run(cx, args)).await,
        Command::Mcp(args) => Box::pin(commands::tasks::mcp::run(cx, args)).await,
        Command::Queue(args) => commands::admin::queue::run(cx, args).await,
        Command::Inbox(args) => commands::admin::inbox::run(cx, args).await,
        Command::Token(args) => commands::admin::token::run(cx, args).await,
        Command::Db(args) => commands::admin::db::run(cx, args).await,
        Command::Doctor(args) => commands::local::doctor::run(cx, args).await,
        Command::Demo(args) => Box::pin(demo::run(cx, args)).await,
        Command::Bench(args) => commands::local::bench::run(cx, args).await,
        Command::Tool(_) | Command::Completions(_) => Ok(Exit::Ok),
    }
}

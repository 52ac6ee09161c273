//! `docket`: the one binary. Its subcommands are the processes of the system.
//!
//! The only place that names both the coordinator and the worker. A run process and a sandbox's
//! first process start here as well, before anything else: no runtime, no threads, no parsing of
//! the command line stands between their start and their work.

mod accept;
mod access;
mod act;
mod answer;
mod apply;
mod archive;
mod args;
mod backlog;
mod batch;
mod batches;
mod bench;
mod blame;
mod blobs;
mod cancel;
mod cat;
mod checkout;
mod children;
mod clean;
mod compare;
mod completions;
mod conditions;
mod config;
mod context;
mod cost;
mod cursor;
mod dashboard;
mod db;
mod deliverer;
mod delivery;
mod demo;
mod diff;
mod display;
mod doctor;
mod eval;
mod events;
mod export;
mod facts;
mod fail;
mod file_view;
mod filter;
mod fixture;
mod follow;
mod fork;
mod gc;
mod handover;
mod home;
mod home_member;
mod import;
mod inbox;
mod limit;
mod lineage;
mod local;
mod logging;
mod logs;
mod looker;
mod man;
mod mcp;
mod memory;
mod metrics;
mod notify;
mod past;
mod pause;
mod pinning;
mod policy;
mod policy_file;
mod progress;
mod projects;
mod ps;
mod push;
mod queue;
mod recorded_output;
#[cfg(test)]
mod reference;
mod reject;
mod replay;
mod reprioritize;
mod resolve;
mod resume;
mod retry;
mod roles;
mod run;
mod run_export;
mod sandbox;
mod schedule;
mod serve;
mod shell;
mod show;
mod signals;
mod spans;
mod step;
mod submit;
mod supervise;
mod task_args;
mod task_checks;
mod task_rows;
mod telemetry;
mod tell;
mod token;
mod tool;
mod top;
mod turns;
mod up;
mod values;
mod verify;
mod why;
mod words;
mod worker;
mod worker_faults;
mod worker_registry;
mod workers;

use std::process::ExitCode;

use clap::{CommandFactory as _, Parser as _};

use crate::{
    args::{Cli, Command},
    context::Context,
    fail::{Chain, Exit, Outcome},
};

fn main() -> ExitCode {
    if let Some(args) = docket_sandbox::init_call(std::env::args_os()) {
        docket_sandbox::sandbox_init_main(args);
    }
    // Tokens and keys are in this process's memory, whatever it does.
    if let Err(error) = docket_worker::process::leave_no_traces() {
        display::note(&format!("warning: a crash of docket may leave its memory in a core dump: {error}"));
    }
    if std::env::args_os().nth(1).is_some_and(|first| first == "run-process") {
        return local::run_process();
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
                display::note(&display::json_text(&row));
            } else {
                display::note(&format!("error: {text}"));
            }
            ExitCode::from(failure.exit.code())
        }
    }
}

fn start(cli: Cli) -> Outcome {
    if let Command::Completions(args) = &cli.command {
        return completions::run(args, cli.global.json, Cli::command());
    }
    if let Command::Tool(args) = &cli.command {
        return tool::run(args);
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
        Command::Run(args) => run::run(cx, args).await,
        Command::Submit(args) => submit::run(cx, args).await,
        Command::Ps(args) => ps::run(cx, args).await,
        Command::Batch(args) => batch::run(cx, args).await,
        Command::Why(args) => why::run(cx, args).await,
        Command::Cost(args) => cost::run(cx, args).await,
        Command::Metrics(args) => metrics::run(cx, args).await,
        Command::Compare(args) => compare::run(cx, args).await,
        Command::Eval(args) => Box::pin(eval::run(cx, args)).await,
        Command::Show(args) => show::run(cx, args).await,
        Command::Follow(args) => follow::run(cx, args).await,
        Command::Logs(args) => logs::run(cx, args).await,
        Command::Diff(args) => diff::run(cx, args).await,
        Command::Checkout(args) => Box::pin(checkout::run(cx, args)).await,
        Command::Cat(args) => Box::pin(cat::run(cx, args)).await,
        Command::Blame(args) => Box::pin(blame::run(cx, args)).await,
        Command::Apply(args) => apply::run(cx, args).await,
        Command::Push(args) => push::run(cx, args).await,
        Command::Accept(args) => accept::run(cx, args).await,
        Command::Reject(args) => reject::run(cx, args).await,
        Command::Policy(args) => policy::run(cx, args).await,
        Command::Tell(args) => tell::run(cx, args).await,
        Command::Pause(args) => pause::run(cx, args).await,
        Command::Answer(args) => answer::run(cx, args).await,
        Command::Unpause(args) => pause::unpause(cx, args).await,
        Command::Cancel(args) => cancel::run(cx, args).await,
        Command::Reprioritize(args) => reprioritize::run(cx, args).await,
        Command::Retry(args) => retry::run(cx, args).await,
        Command::Resume(args) => resume::run(cx, args).await,
        Command::Fork(args) => fork::run(cx, args).await,
        Command::Shell(args) => shell::run(cx, args).await,
        Command::Sandbox(args) => sandbox::run(cx, args).await,
        Command::Replay(args) => Box::pin(replay::run(cx, args)).await,
        Command::Step(args) => step::run(cx, args).await,
        Command::Verify(args) => Box::pin(verify::run(cx, args)).await,
        Command::Export(args) => export::run(cx, args).await,
        Command::Import(args) => Box::pin(import::run(cx, *args)).await,
        Command::Gc(args) => gc::run(cx, args).await,
        Command::Archive(args) => archive::run(cx, args).await,
        Command::Up(args) => Box::pin(up::run(cx, args)).await,
        Command::Serve(args) => serve::run(cx, args).await,
        Command::Dashboard(args) => dashboard::run(cx, args).await,
        Command::Worker(args) => Box::pin(worker::run(cx, args)).await,
        Command::Workers(args) => workers::run(cx, args).await,
        Command::Schedule(args) => Box::pin(schedule::run(cx, args)).await,
        Command::Limit(args) => limit::run(cx, args).await,
        Command::Memory(args) => memory::run(cx, args).await,
        Command::Notify(args) => Box::pin(notify::run(cx, args)).await,
        Command::Man(args) => man::run(&cx, &args, Cli::command()),
        Command::Top(args) => Box::pin(top::run(cx, args)).await,
        Command::Mcp(args) => Box::pin(mcp::run(cx, args)).await,
        Command::Queue(args) => queue::run(cx, args).await,
        Command::Inbox(args) => inbox::run(cx, args).await,
        Command::Token(args) => token::run(cx, args).await,
        Command::Db(args) => db::run(cx, args).await,
        Command::Doctor(args) => doctor::run(cx, args).await,
        Command::Demo(args) => Box::pin(demo::run(cx, args)).await,
        Command::Bench(args) => bench::run(cx, args).await,
        Command::Tool(_) | Command::Completions(_) => Ok(Exit::Ok),
    }
}

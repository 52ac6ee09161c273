//! `docket eval`: a suite of tasks with known ends, through one engine or several: which of them end as they should,
//! what their results are worth in a clean checkout, and at what price.
//!
//! The tasks are one batch of the embedded coordinator, worked by this process's own supervisor, whose runs are
//! processes of their own, as in `docket up`. What is reported comes from the same folds as `docket metrics` and
//! `docket cost`; nothing is counted here a second time.

mod chart;
mod checks;
mod comparison;
mod html_report;
mod leak_check;
mod matrix;
mod overlay_files;
mod report_table;
mod runner;
mod setup;
mod suite;
mod suite_file;

use std::{num::NonZeroU32, path::PathBuf};

use docket_schema::message::ModelRef;
use docket_worker::policy::PathGlob;

use self::{
    matrix::{EvalMatrix, EvalSelection, EvalTrial},
    suite::EvalSuite,
    suite_file::EngineName,
};
use crate::{
    config::values::parse_model,
    connect::logging,
    context::CliContext,
    home::DocketHome,
    output::{
        display,
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
    tasks::{
        role_overrides::{self, RoleModel},
        task_checks::check_keys,
    },
};

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "A suite is a folder: suite.toml (its name, defaults) and a file for each task under tasks/: where it starts, what is
asked, with which engines, what must hold afterwards. Each result is made again from the log in a clean checkout,
without the network, and there its acceptance commands are run. A task passes that ends as expected and whose
checks pass. Tasks with scripts need no model and no key.

Nothing is left behind, unless --keep says otherwise. docket.toml is in force: its policy, settings, prices, keys, roles
and models; but a task with a script asks none that follows no script.

Exit codes: 0 all as expected, 1 some not, 2 the suite or the command line is wrong.

Examples:
  docket eval tests/suites/samples
  docket eval tests/suites/samples --engine react --engine plan --engine review --html report.html
  docket eval my-suite --model anthropic:claude-opus-5-5 --workers 4 --json > new.json
  docket eval my-suite --only 'safety/*' --only mixed-numbers
  docket eval compare old.json new.json"
)]
pub(crate) struct EvalArgs {
    #[command(subcommand)]
    command: Option<EvalCommand>,
    /// The suite's folder
    #[arg(value_name = "SUITE", required = true)]
    suite: Option<PathBuf>,
    /// An engine, in place of those that the tasks name; twice or more to compare engines
    #[arg(long, value_name = "ENGINE")]
    engine: Vec<EngineName>,
    /// A model, in place of those that the tasks name, and of all that docket.toml names beside them
    #[arg(long, short, value_name = "MODEL", value_parser = parse_model)]
    model: Option<ModelRef>,
    /// The model of one role of the engines, as coder=openai:gpt-4.1-mini; may be given more than once, for roles that
    /// each engine has, and not beside --model, which is every role's [default: `roles.NAME.model` of docket.toml, else
    /// the task's model]
    #[arg(long, value_name = "NAME=MODEL", value_parser = role_overrides::parse_role_model)]
    role: Vec<RoleModel>,
    /// Where that model's API is
    #[arg(long, value_name = "URL", requires = "model")]
    base_url: Option<String>,
    /// Runs at once, each a process of its own [default: `worker.slots` of docket.toml, 2]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroU32>,
    /// Only tasks whose name, or KIND/NAME, fits this glob; may be given more than once
    #[arg(long, value_name = "GLOB", value_parser = PathGlob::new)]
    only: Vec<PathGlob>,
    /// Write a report to this file, as one page for a browser
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Keep the runs in the home, for `docket replay`, `show`, `diff`, `verify` and the rest
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, clap::Subcommand)]
enum EvalCommand {
    /// Two reports of `docket eval --json`: what got better and worse
    Compare(comparison::EvalCompareArgs),
}

/// Evaluates, or compares.
pub(crate) async fn run_eval(cx: CliContext, args: EvalArgs) -> CliResult {
    match &args.command {
        Some(EvalCommand::Compare(compare)) => comparison::run_eval_compare(&cx, compare),
        None => evaluate_suite(cx, &args).await,
    }
}

async fn evaluate_suite(mut cx: CliContext, args: &EvalArgs) -> CliResult {
    logging::init_logging(cx.verbose)?;
    let folder =
        args.suite.as_deref().ok_or_else(|| CliError::new(ExitKind::Usage, "no suite; name its folder"))?;
    let suite = EvalSuite::read(folder)?;
    cx.config.prices_toml = suite.merged_prices(cx.config.prices_toml.as_deref());
    let model = args.model.clone().map(|model| ModelRef { base_url: args.base_url.clone(), ..model });
    let choice = EvalSelection { engines: &args.engine, model, roles: &args.role, task_globs: &args.only };
    let matrix = EvalMatrix::build(&cx, &suite, &choice)?;
    let models = matrix.trials.iter().flat_map(EvalTrial::models).map(|model| ("the model", model));
    check_keys(models, |name| std::env::var(name).ok())?;
    let page = args.html.as_deref().map(|path| std::fs::File::create(path).map(|file| (path, file)));
    let page = page.transpose().fail_with(ExitKind::Usage, || {
        format!("cannot write {}", args.html.as_deref().unwrap_or(folder).display())
    })?;
    let temporary = if args.keep {
        None
    } else {
        let own = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        let folder = tempfile::Builder::new().prefix("docket-eval-").permissions(own).tempdir()?;
        cx.home = DocketHome::open(Some(folder.path()))?;
        Some(folder)
    };
    cx.config.slots = args.workers.map_or(cx.config.slots, NonZeroU32::get);
    let report = runner::run_evaluation(&mut cx, &suite, &matrix).await?;
    drop(temporary);
    if let Some((path, mut file)) = page {
        std::io::Write::write_all(&mut file, html_report::render_page(&report).as_bytes())
            .fail_with(ExitKind::Failed, || format!("cannot write {}", path.display()))?;
    }
    if cx.is_json() {
        display::print_json(&report);
    } else {
        report_table::print_report(&cx, &report);
    }
    Ok(if report.is_passed() { ExitKind::Ok } else { ExitKind::Failed })
}

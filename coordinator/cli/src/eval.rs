//! `docket eval`: runs a suite of tasks with expected outcomes through one or more engines, checks their
//! results in a clean checkout, and reports the cost.
//!
//! The tasks are one batch of the embedded coordinator, worked by this process's supervisor with one process
//! per run, as in `docket up`. Reported figures come from the same folds as `docket metrics` and `docket cost`.

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

/// Arguments of `docket eval`.
#[derive(Debug, clap::Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "A suite is a folder: suite.toml (its name and defaults) and one file per task under tasks/: its
starting point, its text, its engines, and what must be true afterwards. Each result is
rebuilt from the log in a clean checkout, without network access, and its acceptance commands are
run there. A task passes if it ends as expected and its checks pass. Tasks with scripts need no
model and no API key.

Nothing is left behind, unless --keep is given. docket.toml applies: its policy, settings, prices,
keys, roles and models; but a task with a script never calls a real model.

Exit codes: 0 all as expected, 1 some not, 2 the suite or the command line is invalid.

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
    /// Directory of the suite
    #[arg(value_name = "SUITE", required = true)]
    suite: Option<PathBuf>,
    /// Engine to use instead of those of the tasks; repeat it to compare engines
    #[arg(long, value_name = "ENGINE")]
    engine: Vec<EngineName>,
    /// Model to use instead of those of the tasks and of docket.toml
    #[arg(long, short, value_name = "MODEL", value_parser = parse_model)]
    model: Option<ModelRef>,
    /// Model of one role, e.g. coder=openai:gpt-4.1-mini; can be repeated. Each engine must have the role.
    /// Cannot be combined with --model, which applies to every role [default: `roles.NAME.model` of
    /// docket.toml, else the task's model]
    #[arg(long, value_name = "NAME=MODEL", value_parser = role_overrides::parse_role_model)]
    role: Vec<RoleModel>,
    /// Base URL of that model's API
    #[arg(long, value_name = "URL", requires = "model")]
    base_url: Option<String>,
    /// Number of concurrent runs, one process each [default: `worker.slots` of docket.toml, 2]
    #[arg(long, value_name = "N")]
    workers: Option<NonZeroU32>,
    /// Only tasks whose name, or KIND/NAME, matches this glob; can be repeated
    #[arg(long, value_name = "GLOB", value_parser = PathGlob::new)]
    only: Vec<PathGlob>,
    /// Write an HTML report to this file
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Keep the runs in the home, for use with `docket replay`, `show`, `diff`, `verify` and other commands
    #[arg(long)]
    keep: bool,
}

#[derive(Debug, clap::Subcommand)]
enum EvalCommand {
    /// Compare two reports of `docket eval --json`
    Compare(comparison::EvalCompareArgs),
}

/// Runs an evaluation or a comparison.
pub(crate) async fn run_eval(cx: CliContext, args: EvalArgs) -> CliResult {
    match &args.command {
        Some(EvalCommand::Compare(compare)) => comparison::run_eval_compare(&cx, compare),
        None => evaluate_suite(cx, &args).await,
    }
}

async fn evaluate_suite(mut cx: CliContext, args: &EvalArgs) -> CliResult {
    logging::init_logging(cx.verbose)?;
    let folder = args
        .suite
        .as_deref()
        .ok_or_else(|| CliError::new(ExitKind::Usage, "no suite given; name its folder"))?;
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

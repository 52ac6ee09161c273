//! `docket eval compare`: compares two reports of the same suite, by task and in total.

use std::path::{Path, PathBuf};

use docket_schema::eval::{EvalChange, EvalComparison, EvalReport, EvalSide, EvalTaskComparison, EvalTotals};

use super::report_table::{format_cost, format_passed};
use crate::{
    context::CliContext,
    output::{
        display::{self, TableCell, TextStyle, TextTable, format_duration},
        error::{CliError, CliResult, ExitKind, FailWith as _},
    },
};

/// Size limit of a report; docket does not write larger ones.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// In thousandths of the amount. Smaller changes are noise, because times always vary.
const CHANGE_MILLI_MIN: u128 = 5;

/// Arguments of `docket eval compare`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Both are the output of `docket eval SUITE --json`. Trials are matched by task and engine name; a
trial that only one of them has is listed but does not affect the result.

Exit codes: 0 no regressions, 1 at least one regression, 2 a file is not a report.

Examples:
  docket eval compare old.json new.json
  docket eval compare old.json new.json --json | jq '.tasks[] | select(.change == \"regressed\")'"
)]
pub(crate) struct EvalCompareArgs {
    /// The earlier report
    #[arg(value_name = "A.json")]
    before: PathBuf,
    /// The later report
    #[arg(value_name = "B.json")]
    after: PathBuf,
}

/// Compares two reports.
pub(super) fn run_eval_compare(cx: &CliContext, args: &EvalCompareArgs) -> CliResult {
    let (before, after) = (read_report(&args.before)?, read_report(&args.after)?);
    let compared = EvalComparison::from_reports(&before, &after);
    if cx.is_json() {
        display::print_json(&compared);
    } else {
        print_comparison(cx, &compared);
    }
    if compared.suite_before != compared.suite_after {
        let text = format!(
            "the reports are of different suites: {} and {}",
            compared.suite_before, compared.suite_after
        );
        display::print_note(&display::sanitize_line(&text));
    }
    Ok(if compared.count(EvalChange::Regressed) == 0 { ExitKind::Ok } else { ExitKind::Failed })
}

fn read_report(path: &Path) -> CliResult<EvalReport> {
    let name = path.display();
    let looked = std::fs::metadata(path);
    let told = || format!("cannot read {name}; `docket eval SUITE --json > {name}` writes a report");
    let size = looked.fail_with(ExitKind::Usage, told)?.len();
    if size > FILE_BYTES_MAX {
        let message = format!("{name} has {size} bytes; a report has at most {FILE_BYTES_MAX}");
        return Err(CliError::new(ExitKind::Usage, message));
    }
    let text = std::fs::read_to_string(path)
        .fail_with(ExitKind::Usage, || format!("cannot read {name}; is it UTF-8 text?"))?;
    let mut from = serde_json::Deserializer::from_str(&text);
    serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let message =
            format!("{name} is not a report of `docket eval --json`: `{}`: {}", error.path(), error.inner());
        CliError::new(ExitKind::Usage, message)
    })
}

fn print_comparison(cx: &CliContext, compared: &EvalComparison) {
    let mut table =
        TextTable::new(&["CHANGE", "TASK", "ENGINE", "TURNS", "TOKENS", "COST", "TIME", "OUTCOME"]);
    for task in &compared.tasks {
        table.add_row(comparison_row(task));
    }
    display::print_line(&table.render(cx.screen));
    for task in compared.tasks.iter().filter(|task| task.change == EvalChange::Regressed) {
        for failed in task.after.iter().flat_map(|side| &side.failed_checks) {
            let text = format!("{} with {} no longer passes: {failed}", task.task, task.engine);
            display::print_line(
                &cx.screen.paint(TextStyle::Bad, &cx.screen.wrap_prose(&display::sanitize_line(&text))),
            );
        }
    }
    display::print_line("");
    let mut sums = TextTable::new(&["", "PASSED", "TURNS", "TOKENS", "COST", "TIME"]);
    for (name, sum) in [("before", &compared.before), ("after", &compared.after)] {
        sums.add_row(vec![
            TableCell::new(name),
            TableCell::new(format_passed(sum)),
            TableCell::new(sum.turns.to_string()),
            TableCell::new(sum.tokens.to_string()),
            TableCell::new(format_cost(sum.cost_nusd)),
            TableCell::new(format_duration(sum.worked_ms)),
        ]);
    }
    sums.add_row(change_cells(&compared.before, &compared.after));
    display::print_line(&sums.render(cx.screen));
    display::print_line("");
    let told = compared.counts.iter().map(|(change, count)| format!("{count} {}", change.as_str()));
    display::print_line(&cx.screen.wrap_prose(&told.collect::<Vec<_>>().join(", ")));
}

/// Formats the change from one amount to the other.
fn format_change(before: u64, after: u64) -> String {
    match before {
        0 if after == 0 => "=".to_owned(),
        0 => "new".to_owned(),
        _ => {
            let milli = u128::from(after.abs_diff(before)) * 1000 / u128::from(before);
            let sign = if after > before { '+' } else { '-' };
            match milli {
                0..CHANGE_MILLI_MIN => "=".to_owned(),
                _ => format!("{sign}{}%", (milli + 5) / 10),
            }
        }
    }
}

fn change_cells(before: &EvalTotals, after: &EvalTotals) -> Vec<TableCell> {
    let cost = before.cost_nusd.zip(after.cost_nusd);
    vec![
        TableCell::new("change"),
        TableCell::new(format_change(before.passed, after.passed)),
        TableCell::new(format_change(before.turns, after.turns)),
        TableCell::new(format_change(before.tokens, after.tokens)),
        TableCell::new(
            cost.map_or_else(|| "unknown".to_owned(), |(before, after)| format_change(before, after)),
        ),
        TableCell::new(format_change(before.worked_ms, after.worked_ms)),
    ]
}

fn comparison_row(task: &EvalTaskComparison) -> Vec<TableCell> {
    let style = match task.change {
        EvalChange::Regressed => TextStyle::Bad,
        EvalChange::Mended => TextStyle::Good,
        EvalChange::Gone | EvalChange::New => TextStyle::Warn,
        EvalChange::Passes | EvalChange::Fails => TextStyle::Dim,
    };
    let both = task.before.as_ref().zip(task.after.as_ref());
    let amount = |of: fn(&EvalSide) -> u64| match both {
        Some((before, after)) => TableCell::new(format_change(of(before), of(after))),
        None => TableCell::new("-"),
    };
    let cost = both.and_then(|(before, after)| Some(format_change(before.cost_nusd?, after.cost_nusd?)));
    let outcome = match (&task.before, &task.after) {
        (Some(before), Some(after)) if before.outcome == after.outcome => after.outcome.to_string(),
        (Some(before), Some(after)) => format!("{} -> {}", before.outcome, after.outcome),
        (Some(side), None) | (None, Some(side)) => side.outcome.to_string(),
        (None, None) => String::new(),
    };
    vec![
        TableCell::styled(task.change.as_str(), style),
        TableCell::new(&task.task),
        TableCell::new(&task.engine),
        amount(|side| side.turns),
        amount(|side| side.tokens),
        TableCell::new(cost.unwrap_or_else(|| "-".to_owned())),
        amount(|side| side.worked_ms),
        TableCell::new(outcome),
    ]
}

#[cfg(test)]
mod tests {
    use super::format_change;

    #[test]
    fn changes_are_formatted_in_percent() {
        for (before, after, told) in [
            (100, 150, "+50%"),
            (100, 50, "-50%"),
            (1000, 1004, "="),
            (3, 4, "+33%"),
            (0, 0, "="),
            (0, 9, "new"),
        ] {
            assert_eq!(format_change(before, after), told, "{before} {after}");
        }
        assert_eq!(format_change(u64::MAX, 0), "-100%", "no overflow");
    }
}

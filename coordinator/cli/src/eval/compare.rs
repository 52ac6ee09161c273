//! `docket eval compare`: two reports of the same suite, by task and in sum.

use std::path::{Path, PathBuf};

use docket_schema::eval::{EvalChange, EvalCompared, EvalComparison, EvalReport, EvalSide, EvalSum};

use super::table::{money, passed};
use crate::{
    context::Context,
    output::{
        display::{self, Cell, Style, Table, duration},
        fail::{Exit, FailWith as _, Failure, Outcome},
    },
};

/// A report at most: larger ones were not written by docket.
const FILE_BYTES_MAX: u64 = 256 * 1024 * 1024;
/// Thousandths of an amount; a smaller change is none, for times are never the same twice.
const CHANGE_MILLI_MIN: u128 = 5;

/// Flags.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Both are what `docket eval SUITE --json` printed. A task with an engine is the same in both by their names; what
only one of them has is told, and counts for nothing.

Exit codes: 0 nothing that passed fails now, 1 something does, 2 a file is no report.

Examples:
  docket eval compare old.json new.json
  docket eval compare old.json new.json --json | jq '.tasks[] | select(.change == \"regressed\")'"
)]
pub(crate) struct Args {
    /// The earlier report
    #[arg(value_name = "A.json")]
    before: PathBuf,
    /// The later report
    #[arg(value_name = "B.json")]
    after: PathBuf,
}

/// Compares.
pub(super) fn run(cx: &Context, args: &Args) -> Outcome {
    let (before, after) = (read(&args.before)?, read(&args.after)?);
    let compared = EvalComparison::of(&before, &after);
    if cx.json() {
        display::say_json(&compared);
    } else {
        say(cx, &compared);
    }
    if compared.suite_before != compared.suite_after {
        let text = format!("these are two suites: {} and {}", compared.suite_before, compared.suite_after);
        display::note(&display::line(&text));
    }
    Ok(if compared.count(EvalChange::Regressed) == 0 { Exit::Ok } else { Exit::Failed })
}

fn read(path: &Path) -> Outcome<EvalReport> {
    let name = path.display();
    let looked = std::fs::metadata(path);
    let told = || format!("cannot look at {name}; `docket eval SUITE --json > {name}` writes such a report");
    let size = looked.fail_with(Exit::Usage, told)?.len();
    if size > FILE_BYTES_MAX {
        let message = format!("{name} has {size} bytes, and a report at most {FILE_BYTES_MAX}");
        return Err(Failure::new(Exit::Usage, message));
    }
    let text = std::fs::read_to_string(path)
        .fail_with(Exit::Usage, || format!("cannot read {name}; is it UTF-8 text?"))?;
    let mut from = serde_json::Deserializer::from_str(&text);
    serde_path_to_error::deserialize(&mut from).map_err(|error| {
        let message =
            format!("{name} is no report of `docket eval --json`: `{}`: {}", error.path(), error.inner());
        Failure::new(Exit::Usage, message)
    })
}

fn say(cx: &Context, compared: &EvalComparison) {
    let mut table = Table::new(&["CHANGE", "TASK", "ENGINE", "TURNS", "TOKENS", "COST", "TIME", "OUTCOME"]);
    for task in &compared.tasks {
        table.row(row(task));
    }
    display::say(&table.render(cx.screen));
    for task in compared.tasks.iter().filter(|task| task.change == EvalChange::Regressed) {
        for failed in task.after.iter().flat_map(|side| &side.failed_checks) {
            let text = format!("{} with {} no longer passes: {failed}", task.task, task.engine);
            display::say(&cx.screen.paint(Style::Bad, &cx.screen.prose(&display::line(&text))));
        }
    }
    display::say("");
    let mut sums = Table::new(&["", "PASSED", "TURNS", "TOKENS", "COST", "TIME"]);
    for (name, sum) in [("before", &compared.before), ("after", &compared.after)] {
        sums.row(vec![
            Cell::new(name),
            Cell::new(passed(sum)),
            Cell::new(sum.turns.to_string()),
            Cell::new(sum.tokens.to_string()),
            Cell::new(money(sum.cost_nusd)),
            Cell::new(duration(sum.worked_ms)),
        ]);
    }
    sums.row(deltas(&compared.before, &compared.after));
    display::say(&sums.render(cx.screen));
    display::say("");
    let told = compared.counts.iter().map(|(change, count)| format!("{count} {}", change.as_str()));
    display::say(&cx.screen.prose(&told.collect::<Vec<_>>().join(", ")));
}

/// From one amount to the other, as a person says it.
fn delta(before: u64, after: u64) -> String {
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

fn deltas(before: &EvalSum, after: &EvalSum) -> Vec<Cell> {
    let cost = before.cost_nusd.zip(after.cost_nusd);
    vec![
        Cell::new("change"),
        Cell::new(delta(before.passed, after.passed)),
        Cell::new(delta(before.turns, after.turns)),
        Cell::new(delta(before.tokens, after.tokens)),
        Cell::new(cost.map_or_else(|| "unknown".to_owned(), |(before, after)| delta(before, after))),
        Cell::new(delta(before.worked_ms, after.worked_ms)),
    ]
}

fn row(task: &EvalCompared) -> Vec<Cell> {
    let style = match task.change {
        EvalChange::Regressed => Style::Bad,
        EvalChange::Mended => Style::Good,
        EvalChange::Gone | EvalChange::New => Style::Warn,
        EvalChange::Passes | EvalChange::Fails => Style::Dim,
    };
    let both = task.before.as_ref().zip(task.after.as_ref());
    let amount = |of: fn(&EvalSide) -> u64| match both {
        Some((before, after)) => Cell::new(delta(of(before), of(after))),
        None => Cell::new("-"),
    };
    let cost = both.and_then(|(before, after)| Some(delta(before.cost_nusd?, after.cost_nusd?)));
    let outcome = match (&task.before, &task.after) {
        (Some(before), Some(after)) if before.outcome == after.outcome => after.outcome.to_string(),
        (Some(before), Some(after)) => format!("{} -> {}", before.outcome, after.outcome),
        (Some(side), None) | (None, Some(side)) => side.outcome.to_string(),
        (None, None) => String::new(),
    };
    vec![
        Cell::styled(task.change.as_str(), style),
        Cell::new(&task.task),
        Cell::new(&task.engine),
        amount(|side| side.turns),
        amount(|side| side.tokens),
        Cell::new(cost.unwrap_or_else(|| "-".to_owned())),
        amount(|side| side.worked_ms),
        Cell::new(outcome),
    ]
}

#[cfg(test)]
mod tests {
    use super::delta;

    #[test]
    fn a_change_is_told_in_percent() {
        for (before, after, told) in [
            (100, 150, "+50%"),
            (100, 50, "-50%"),
            (1000, 1004, "="),
            (3, 4, "+33%"),
            (0, 0, "="),
            (0, 9, "new"),
        ] {
            assert_eq!(delta(before, after), told, "{before} {after}");
        }
        assert_eq!(delta(u64::MAX, 0), "-100%", "no overflow");
    }
}

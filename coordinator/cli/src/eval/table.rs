//! A report for people: a line for each try, then sums by engine, then what did not pass and why.

use docket_schema::{
    eval::{EvalEngine, EvalOutcome, EvalReport, EvalResult, EvalSum},
    report::Ratio,
};

use crate::{
    context::Context,
    output::display::{self, Cell, Style, Table, count, duration},
};

/// Lines of what a command said that are shown.
const SAID_LINES_MAX: usize = 6;

/// Money, or that it is not known.
pub(super) fn money(nusd: Option<u64>) -> String {
    nusd.map_or_else(|| "unknown".to_owned(), display::money)
}

/// So many of so many; nothing where none were wanted.
pub(super) fn fraction(ratio: Ratio) -> String {
    if ratio.all == 0 { "-".to_owned() } else { format!("{}/{}", ratio.of, ratio.all) }
}

/// How many passed, with what part of a hundred that is.
pub(super) fn passed(sum: &EvalSum) -> String {
    let percent = sum.passed_percent().map_or_else(String::new, |percent| format!(" {percent}%"));
    format!("{}/{}{percent}", sum.passed, sum.tasks)
}

/// What is otherwise than it should be, in short; nothing where all is as it should be.
pub(super) fn why_not(result: &EvalResult) -> Vec<String> {
    let mut why = Vec::new();
    if !result.expected.is_met(result.outcome) {
        let message = result.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
        why.push(format!("expected {}, but it is {}{message}", result.expected, result.outcome));
    }
    for check in result.checks.iter().filter(|check| !check.passed) {
        let said = check.said.as_deref().map(|said| format!(": {said}")).unwrap_or_default();
        why.push(format!("{} {}{said}", check.what.as_str(), check.name));
    }
    let is_over = result.outcome != EvalOutcome::Unfinished;
    if is_over && !result.accepted && result.checks.iter().all(|check| check.passed) {
        why.push("there is no run whose result could be checked".to_owned());
    }
    why
}

/// Prints it.
pub(super) fn say(cx: &Context, report: &EvalReport) {
    let mut table = Table::new(&[
        "",
        "KIND",
        "TASK",
        "ENGINE",
        "OUTCOME",
        "ACCEPTED",
        "TURNS",
        "TOKENS",
        "COST",
        "TIME",
        "ARTIFACTS",
        "TITLE",
    ]);
    for result in &report.results {
        table.row(row(result));
    }
    display::say(&table.render(cx.screen));
    if report.engines.len() > 1 {
        engines(cx, "All tasks:", &report.engines);
        if report.common.is_empty() {
            let said = "No task was tried with all engines: these sums are over different tasks.";
            display::say(&cx.screen.prose(said));
        } else if report.has_other_tasks() {
            let tasks = count(report.common.len() as u64, "task");
            engines(cx, &format!("The {tasks} that all engines were tried with:"), &report.common_engines);
        }
    }
    for result in report.results.iter().filter(|result| !result.passed) {
        display::say("");
        let what = format!("{} with {} did not pass:", result.task, result.engine);
        display::say(&cx.screen.paint(Style::Bad, &cx.screen.prose(&display::line(&what))));
        for why in why_not(result) {
            let text = display::excerpt(&why, SAID_LINES_MAX, "  ", cx.screen.columns());
            display::say(text.trim_end());
        }
        if let Some(run) = result.run {
            display::say(&format!("  run {}", run.short()));
        }
    }
    for left in &report.left_out {
        display::note(&display::line(&format!("{} is left out: {}", left.task, left.why)));
    }
    let all = &report.all;
    let text = format!(
        "{} of {} as expected in {}; {} turns, {} tokens, cost {}",
        all.passed,
        all.tasks,
        duration(report.took_ms),
        all.turns,
        all.tokens,
        money(all.cost_nusd)
    );
    display::say("");
    let style = if report.is_passed() { Style::Good } else { Style::Bad };
    display::say(&cx.screen.paint(style, &cx.screen.prose(&text)));
}

fn row(result: &EvalResult) -> Vec<Cell> {
    let verdict = match result.passed {
        true => Cell::styled("pass", Style::Good),
        false => Cell::styled("FAIL", Style::Bad),
    };
    let checks = Ratio {
        of: result.checks.iter().filter(|check| check.passed).count() as u64,
        all: result.checks.len() as u64,
    };
    let accepted = if result.accepted { "yes" } else { "no" };
    let accepted =
        if checks.all == 0 { accepted.to_owned() } else { format!("{accepted} {}", fraction(checks)) };
    vec![
        verdict,
        Cell::new(result.kind.as_str()),
        Cell::new(&result.task),
        Cell::new(&result.engine),
        Cell::new(result.outcome.to_string()),
        Cell::new(accepted),
        Cell::new(result.turns.to_string()),
        Cell::new(result.tokens().to_string()),
        Cell::new(money(result.cost_nusd())),
        Cell::new(duration(result.worked_ms)),
        Cell::new(fraction(result.artifacts)),
        Cell::new(&result.title),
    ]
}

fn engines(cx: &Context, title: &str, engines: &[EvalEngine]) {
    let mut table =
        Table::new(&["ENGINE", "PASSED", "SUCCEEDED", "TURNS", "TOKENS", "COST", "TIME", "ARTIFACTS"]);
    for EvalEngine { engine, sum } in engines {
        table.row(vec![
            Cell::new(engine),
            Cell::new(passed(sum)),
            Cell::new(sum.succeeded.to_string()),
            Cell::new(sum.turns.to_string()),
            Cell::new(sum.tokens.to_string()),
            Cell::new(money(sum.cost_nusd)),
            Cell::new(duration(sum.worked_ms)),
            Cell::new(fraction(sum.artifacts)),
        ]);
    }
    display::say("");
    display::say(&cx.screen.paint(Style::Bold, &cx.screen.prose(title)));
    display::say(&table.render(cx.screen));
}

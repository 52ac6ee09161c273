//! The report for people: one line per trial, totals by engine, then the failures with their reasons.

use docket_schema::{
    eval::{EvalEngineTotals, EvalOutcome, EvalReport, EvalResult, EvalTotals},
    report::Ratio,
};

use crate::{
    context::CliContext,
    output::display::{self, TableCell, TextStyle, TextTable, format_count, format_duration},
};

/// Lines of a command's output that are shown.
const OUTPUT_LINES_MAX: usize = 6;

/// Formats a cost, or that it is unknown.
pub(super) fn format_cost(nusd: Option<u64>) -> String {
    nusd.map_or_else(|| "unknown".to_owned(), display::format_money)
}

/// Formats a ratio; empty when the total is zero.
pub(super) fn format_ratio(ratio: Ratio) -> String {
    if ratio.all == 0 { "-".to_owned() } else { format!("{}/{}", ratio.of, ratio.all) }
}

/// Formats how many passed, with the percentage.
pub(super) fn format_passed(sum: &EvalTotals) -> String {
    let percent = sum.passed_percent().map_or_else(String::new, |percent| format!(" {percent}%"));
    format!("{}/{}{percent}", sum.passed, sum.tasks)
}

/// Lists the reasons of a failed trial; empty if it passed.
pub(super) fn failure_reasons(result: &EvalResult) -> Vec<String> {
    let mut why = Vec::new();
    if !result.expected.is_met_by(result.outcome) {
        let message = result.message.as_deref().map(|message| format!(": {message}")).unwrap_or_default();
        why.push(format!("expected {}, got {}{message}", result.expected, result.outcome));
    }
    for check in result.checks.iter().filter(|check| !check.passed) {
        let said = check.said.as_deref().map(|said| format!(": {said}")).unwrap_or_default();
        why.push(format!("{} {}{said}", check.what.as_str(), check.name));
    }
    let is_over = result.outcome != EvalOutcome::Unfinished;
    if is_over && !result.accepted && result.checks.iter().all(|check| check.passed) {
        why.push("there is no run to check".to_owned());
    }
    why
}

/// Prints the report.
pub(super) fn print_report(cx: &CliContext, report: &EvalReport) {
    let mut table = TextTable::new(&[
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
        table.add_row(result_row(result));
    }
    display::print_line(&table.render(cx.screen));
    if report.engines.len() > 1 {
        print_engine_table(cx, "All tasks:", &report.engines);
        if report.common.is_empty() {
            let said = "No task was run with all engines; these totals are over different tasks.";
            display::print_line(&cx.screen.wrap_prose(said));
        } else if report.has_partial_coverage() {
            let tasks = format_count(report.common.len() as u64, "task");
            print_engine_table(
                cx,
                &format!("The {tasks} that were run with all engines:"),
                &report.common_engines,
            );
        }
    }
    for result in report.results.iter().filter(|result| !result.passed) {
        display::print_line("");
        let what = format!("{} with {} failed:", result.task, result.engine);
        display::print_line(
            &cx.screen.paint(TextStyle::Bad, &cx.screen.wrap_prose(&display::sanitize_line(&what))),
        );
        for why in failure_reasons(result) {
            let text = display::render_excerpt(&why, OUTPUT_LINES_MAX, "  ", cx.screen.columns());
            display::print_line(text.trim_end());
        }
        if let Some(run) = result.run {
            display::print_line(&format!("  run {}", run.short()));
        }
    }
    for left in &report.left_out {
        display::print_note(&display::sanitize_line(&format!("{} is left out: {}", left.task, left.why)));
    }
    let all = &report.all;
    let text = format!(
        "{} of {} as expected in {}; {} turns, {} tokens, cost {}",
        all.passed,
        all.tasks,
        format_duration(report.took_ms),
        all.turns,
        all.tokens,
        format_cost(all.cost_nusd)
    );
    display::print_line("");
    let style = if report.is_passed() { TextStyle::Good } else { TextStyle::Bad };
    display::print_line(&cx.screen.paint(style, &cx.screen.wrap_prose(&text)));
}

fn result_row(result: &EvalResult) -> Vec<TableCell> {
    let verdict = match result.passed {
        true => TableCell::styled("pass", TextStyle::Good),
        false => TableCell::styled("FAIL", TextStyle::Bad),
    };
    let checks = Ratio {
        of: result.checks.iter().filter(|check| check.passed).count() as u64,
        all: result.checks.len() as u64,
    };
    let accepted = if result.accepted { "yes" } else { "no" };
    let accepted =
        if checks.all == 0 { accepted.to_owned() } else { format!("{accepted} {}", format_ratio(checks)) };
    vec![
        verdict,
        TableCell::new(result.kind.as_str()),
        TableCell::new(&result.task),
        TableCell::new(&result.engine),
        TableCell::new(result.outcome.to_string()),
        TableCell::new(accepted),
        TableCell::new(result.turns.to_string()),
        TableCell::new(result.total_tokens().to_string()),
        TableCell::new(format_cost(result.cost_nusd())),
        TableCell::new(format_duration(result.worked_ms)),
        TableCell::new(format_ratio(result.artifacts)),
        TableCell::new(&result.title),
    ]
}

fn print_engine_table(cx: &CliContext, title: &str, engines: &[EvalEngineTotals]) {
    let mut table =
        TextTable::new(&["ENGINE", "PASSED", "SUCCEEDED", "TURNS", "TOKENS", "COST", "TIME", "ARTIFACTS"]);
    for EvalEngineTotals { engine, sum } in engines {
        table.add_row(vec![
            TableCell::new(engine),
            TableCell::new(format_passed(sum)),
            TableCell::new(sum.succeeded.to_string()),
            TableCell::new(sum.turns.to_string()),
            TableCell::new(sum.tokens.to_string()),
            TableCell::new(format_cost(sum.cost_nusd)),
            TableCell::new(format_duration(sum.worked_ms)),
            TableCell::new(format_ratio(sum.artifacts)),
        ]);
    }
    display::print_line("");
    display::print_line(&cx.screen.paint(TextStyle::Bold, &cx.screen.wrap_prose(title)));
    display::print_line(&table.render(cx.screen));
}

//! The HTML report: charts, tables and failures on one page. It contains no script, fetches nothing, and is
//! well-formed XML, so any program can read it. Pure.

use docket_schema::{
    eval::{EvalEngineTotals, EvalKindTotals, EvalReport, EvalResult, EvalTotals},
    report::{MetricView, TargetBound, TargetVerdict},
};

use super::{
    chart::{BarChart, BarPart, BarPartKind, ChartBar},
    report_table::{failure_reasons, format_cost, format_passed, format_ratio},
};
use crate::output::display::{format_count, format_duration};

const PAGE_CSS: &str = "
:root { color-scheme: light dark; --page: #ffffff; --ink: #1c2024; --soft: #5b6470; --line: #d5dae0; --amount: #2f6db5;
  --passed: #1f7a43; --failed: #b3382c; --hatch: #ffffff; }
@media (prefers-color-scheme: dark) { :root { --page: #14171a; --ink: #e8eaed; --soft: #a5adb8; --line: #3a414a;
  --amount: #7fb2ee; --passed: #6cc890; --failed: #f08a7e; --hatch: #14171a; } }
body { background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto;
  max-width: 76rem; padding: 0 1rem; }
h1 { margin-bottom: 0; } p.about, dl dt { color: var(--soft); }
dl { display: flex; flex-wrap: wrap; gap: 1rem 2.5rem; } dl dt { font-size: .85rem; } dl dd { margin: 0; font-size: 1.2rem; }
figure { margin: 2rem 0; } figcaption, caption { font-weight: 600; text-align: left; margin-bottom: .5rem; }
.pair { display: flex; flex-wrap: wrap; gap: 1.5rem; align-items: flex-start; }
.pair svg { flex: 1 1 26rem; max-width: 40rem; } .scroll { overflow-x: auto; }
table { border-collapse: collapse; font-size: .95rem; } th, td { border-bottom: 1px solid var(--line); padding: .25rem .75rem;
  text-align: left; vertical-align: top; } .number { text-align: right; font-variant-numeric: tabular-nums; }
.good { color: var(--passed); } .bad { color: var(--failed); font-weight: 600; } .none { color: var(--soft); }
pre { white-space: pre-wrap; overflow-wrap: anywhere; border-left: 3px solid var(--line); padding-left: 1rem; }
svg text { fill: var(--ink); font: 13px system-ui, sans-serif; } svg .label { text-anchor: end; }
svg .amount { fill: var(--amount); } svg .passed { fill: var(--passed); } svg .failed { fill: var(--failed); }
svg .hatch { fill: var(--hatch); }
";

/// Escapes text for the page and removes characters that XML does not allow.
pub(super) fn escape_html(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            '\n' | '\t' => out.push(c),
            c if c.is_control() || matches!(c, '\u{fffe}' | '\u{ffff}') => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

/// Renders the page.
pub(super) fn render_page(report: &EvalReport) -> String {
    let title = format!("{}: {} of {} as expected", report.suite, report.all.passed, report.all.tasks);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\" xmlns=\"http://www.w3.org/1999/xhtml\">\n<head>\n<meta charset=\"utf-8\"/>\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\n<meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\"/>\n<title>{}</title>\n<style>{PAGE_CSS}</style>\n</head>\n\
         <body>\n<main>\n",
        escape_html(&title)
    );
    out.push_str(&render_header(report));
    out.push_str(&render_failures(report));
    out.push_str(&render_engines(report));
    out.push_str(&render_kinds(report));
    if report.engines.len() > 1 {
        out.push_str(&render_matrix(report));
    }
    out.push_str(&render_results(report));
    out.push_str(&render_metrics(report));
    out.push_str(&render_skipped(report));
    out.push_str("</main>\n</body>\n</html>\n");
    out
}

fn render_header(report: &EvalReport) -> String {
    let all = &report.all;
    let about =
        report.about.as_deref().map(|about| format!("<p class=\"about\">{}</p>\n", escape_html(about)));
    let class = if report.is_passed() { "good" } else { "bad" };
    let facts = [
        ("Turns", all.turns.to_string()),
        ("Tokens", all.tokens.to_string()),
        ("Cost", format_cost(all.cost_nusd)),
        ("Artifacts", format_ratio(all.artifacts)),
        ("Took", format_duration(report.took_ms)),
        ("Concurrent runs", report.workers.to_string()),
        ("Began", report.began_at.to_string()),
        ("docket", report.docket.clone()),
    ];
    let facts: String = facts
        .iter()
        .map(|(name, value)| format!("<div><dt>{name}</dt><dd>{}</dd></div>\n", escape_html(value)))
        .collect();
    format!(
        "<h1>{}</h1>\n{}<dl>\n<div><dt>As expected</dt><dd class=\"{class}\">{}</dd></div>\n{facts}</dl>\n",
        escape_html(&report.suite),
        about.unwrap_or_default(),
        escape_html(&format_passed(all))
    )
}

/// Failures come first, because readers look for them.
fn render_failures(report: &EvalReport) -> String {
    let failed: Vec<&EvalResult> = report.results.iter().filter(|result| !result.passed).collect();
    if failed.is_empty() {
        return String::new();
    }
    let mut out = "<h2>Failures</h2>\n".to_owned();
    for result in failed {
        let run = result.run.map(|run| format!(" <span class=\"none\">run {}</span>", run.short()));
        out.push_str(&format!(
            "<h3>{} with {}{}</h3>\n",
            escape_html(&result.task),
            escape_html(&result.engine),
            run.unwrap_or_default()
        ));
        for why in failure_reasons(result) {
            out.push_str(&format!("<pre>{}</pre>\n", escape_html(why.trim_end())));
        }
    }
    out
}

fn pass_fail_parts(sum: &EvalTotals) -> Vec<BarPart> {
    vec![
        BarPart { amount: sum.passed, kind: BarPartKind::Passed },
        BarPart { amount: sum.tasks - sum.passed, kind: BarPartKind::Failed },
    ]
}

fn amount_part(amount: u64) -> Vec<BarPart> {
    vec![BarPart { amount, kind: BarPartKind::Amount }]
}

/// A measure by which engines are compared in a bar chart.
type EngineMeasure = fn(&EvalTotals) -> (Vec<BarPart>, String);

fn render_engines(report: &EvalReport) -> String {
    let is_one = report.engines.len() < 2;
    let shown = if is_one || report.common.is_empty() { &report.engines } else { &report.common_engines };
    let mut out = "<h2>By engine</h2>\n".to_owned();
    if !is_one && report.has_partial_coverage() {
        let told = match report.common.is_empty() {
            true => "No task was run with all engines; these are totals over different tasks.".to_owned(),
            false => format!(
                "Only the {} that were run with all engines: {}.",
                format_count(report.common.len() as u64, "task"),
                report.common.join(", ")
            ),
        };
        out.push_str(&format!("<p>{}</p>\n", escape_html(&told)));
    }
    let measures: [(&str, &str, &str, EngineMeasure); 6] = [
        ("engine-passed", "Tasks that ended as expected", "Passed", |sum| {
            (pass_fail_parts(sum), format_passed(sum))
        }),
        ("engine-turns", "Turns", "Turns", |sum| (amount_part(sum.turns), sum.turns.to_string())),
        ("engine-tokens", "Tokens of requests and replies", "Tokens", |sum| {
            (amount_part(sum.tokens), sum.tokens.to_string())
        }),
        ("engine-cost", "Cost of model calls", "Cost", |sum| {
            (amount_part(sum.cost_nusd.unwrap_or(0)), format_cost(sum.cost_nusd))
        }),
        ("engine-time", "Time of models, tools and checks", "Time", |sum| {
            (amount_part(sum.worked_ms), format_duration(sum.worked_ms))
        }),
        ("engine-artifacts", "Required files and artifacts present", "Artifacts", |sum| {
            let (of, all) = (sum.artifacts.of, sum.artifacts.all);
            let parts = vec![
                BarPart { amount: of, kind: BarPartKind::Passed },
                BarPart { amount: all.saturating_sub(of), kind: BarPartKind::Failed },
            ];
            (parts, format_ratio(sum.artifacts))
        }),
    ];
    for (id, title, amounts, measure) in measures {
        let bar = |EvalEngineTotals { engine, sum }: &EvalEngineTotals| {
            let (parts, shown) = measure(sum);
            ChartBar { label: engine.clone(), parts, value_text: shown }
        };
        let bars = shown.iter().map(bar).collect();
        out.push_str(
            &BarChart { id, title, label_heading: "Engine", value_heading: amounts, bars }.render_figure(),
        );
    }
    out
}

fn render_kinds(report: &EvalReport) -> String {
    let bar = |EvalKindTotals { kind, sum }: &EvalKindTotals| ChartBar {
        label: kind.as_str().to_owned(),
        parts: pass_fail_parts(sum),
        value_text: format_passed(sum),
    };
    let bars = report.kinds.iter().map(bar).collect();
    let chart = BarChart {
        id: "kinds",
        title: "Tasks that ended as expected",
        label_heading: "Kind",
        value_heading: "Passed",
        bars,
    };
    format!("<h2>By kind</h2>\n{}", chart.render_figure())
}

fn render_verdict(result: &EvalResult) -> String {
    let (class, word) = if result.passed { ("good", "passed") } else { ("bad", "failed") };
    format!("<span class=\"{class}\">{word}</span>")
}

fn render_headings(names: &[(&str, bool)]) -> String {
    let cell = |(name, is_number): &(&str, bool)| {
        let class = if *is_number { " class=\"number\"" } else { "" };
        format!("<th scope=\"col\"{class}>{}</th>", escape_html(name))
    };
    format!("<thead><tr>{}</tr></thead>\n", names.iter().map(cell).collect::<String>())
}

/// The matrix of tasks (rows) and engines (columns).
fn render_matrix(report: &EvalReport) -> String {
    let names: Vec<&str> = report.engines.iter().map(|one| one.engine.as_str()).collect();
    let mut columns = vec![("Task", false), ("Kind", false)];
    columns.extend(names.iter().map(|name| (*name, false)));
    let mut out = format!(
        "<h2>Task by task</h2>\n<div class=\"scroll\"><table>\n<caption>Which task passed with which engine</caption>\n{}<tbody>\n",
        render_headings(&columns)
    );
    let mut told: Vec<&str> = Vec::new();
    for result in &report.results {
        if told.contains(&result.task.as_str()) {
            continue;
        }
        told.push(&result.task);
        let cells: String = names
            .iter()
            .map(|name| {
                let found = report.results.iter().find(|one| one.task == result.task && one.engine == *name);
                match found {
                    Some(one) => {
                        format!("<td>{}, {}</td>", render_verdict(one), format_count(one.turns, "turn"))
                    }
                    None => "<td class=\"none\">not run</td>".to_owned(),
                }
            })
            .collect();
        let (task, kind) = (escape_html(&result.task), result.kind.as_str());
        out.push_str(&format!("<tr><th scope=\"row\">{task}</th><td>{kind}</td>{cells}</tr>\n"));
    }
    out.push_str("</tbody>\n</table></div>\n");
    out
}

fn render_results(report: &EvalReport) -> String {
    let columns = [
        ("Task", false),
        ("Kind", false),
        ("Engine", false),
        ("Model", false),
        ("Result", false),
        ("Outcome", false),
        ("Expected", false),
        ("Accepted", false),
        ("Turns", true),
        ("Tokens", true),
        ("Cost", true),
        ("Time", true),
        ("Artifacts", true),
    ];
    let mut out = format!(
        "<h2>All trials</h2>\n<div class=\"scroll\"><table>\n<caption>Each task with each engine</caption>\n{}<tbody>\n",
        render_headings(&columns)
    );
    for result in &report.results {
        let texts = [
            result.outcome.to_string(),
            result.expected.to_string(),
            if result.accepted { "yes".to_owned() } else { "no".to_owned() },
        ];
        let numbers = [
            result.turns.to_string(),
            result.total_tokens().to_string(),
            format_cost(result.cost_nusd()),
            format_duration(result.worked_ms),
            format_ratio(result.artifacts),
        ];
        let texts: String = texts.iter().map(|text| format!("<td>{}</td>", escape_html(text))).collect();
        let number = |text: &String| format!("<td class=\"number\">{}</td>", escape_html(text));
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td>{}</td><td>{}</td><td>{}</td><td>{}</td>{texts}{}</tr>\n",
            escape_html(&result.task),
            result.kind.as_str(),
            escape_html(&result.engine),
            escape_html(&result.model.to_string()),
            render_verdict(result),
            numbers.iter().map(number).collect::<String>()
        ));
    }
    out.push_str("</tbody>\n</table></div>\n");
    out
}

/// The twelve metrics, over all trials and by engine.
fn render_metrics(report: &EvalReport) -> String {
    let mut columns = vec![("Metric", false), ("Target", true), ("All", true)];
    columns.extend(report.engines.iter().map(|one| (one.engine.as_str(), true)));
    let mut out = format!(
        "<h2>Metrics</h2>\n<div class=\"scroll\"><table>\n<caption>The metrics of docket metrics over these trials: + met, ! missed, \
         - not measured. Tasks that are expected to fail count as failed here.</caption>\n{}<tbody>\n",
        render_headings(&columns)
    );
    for (nth, all) in report.all.metrics.iter().enumerate() {
        let side = match all.side {
            TargetBound::AtLeast => "≥",
            TargetBound::AtMost => "≤",
        };
        let engines = report.engines.iter().filter_map(|one| one.sum.metrics.get(nth)).map(render_metric);
        out.push_str(&format!(
            "<tr><th scope=\"row\">{}</th><td class=\"number\">{side} {}</td>{}{}</tr>\n",
            all.metric.as_str(),
            all.target,
            render_metric(all),
            engines.collect::<String>()
        ));
    }
    out.push_str("</tbody>\n</table></div>\n");
    out
}

fn render_metric(view: &MetricView) -> String {
    let (class, sign) = match view.verdict {
        TargetVerdict::Met => ("good", "+"),
        TargetVerdict::Missed => ("bad", "!"),
        TargetVerdict::NotMeasured => return "<td class=\"number none\">-</td>".to_owned(),
    };
    let value = view.value.map_or_else(String::new, |value| format!(" {value:.3}"));
    format!("<td class=\"number {class}\">{sign}{value}</td>")
}

fn render_skipped(report: &EvalReport) -> String {
    if report.left_out.is_empty() {
        return String::new();
    }
    let line = |left: &docket_schema::eval::SkippedEval| {
        format!("<li>{}: {}</li>\n", escape_html(&left.task), escape_html(&left.why))
    };
    format!("<h2>Left out</h2>\n<ul>\n{}</ul>\n", report.left_out.iter().map(line).collect::<String>())
}

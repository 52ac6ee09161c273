//! Renders a comparison as a table for people and as one JSON object for programs.

use docket_schema::ids::TaskId;
use serde_json::{Value, json};

use super::figures::{ComparedTask, ComparedVariant, VariantSummary, distinct_tasks, distinct_variants};
use crate::{
    context::CliContext,
    output::display::{self, TableCell, TextStyle, TextTable, format_duration},
};

/// Prints the table: one line per variant under each task, and under all tasks.
pub(super) fn print_comparison(cx: &CliContext, tries: &[ComparedTask]) {
    let variants = distinct_variants(tries);
    let mut table =
        TextTable::new(&["VARIANT", "DONE", "TURNS", "INPUT", "CACHED", "OUTPUT", "COST", "TIME", "TASK"]);
    let tasks = distinct_tasks(tries);
    for asked in &tasks {
        for (nth, variant) in variants.iter().enumerate() {
            let sum = VariantSummary::from_tasks(
                tries.iter().filter(|tried| tried.title_and_text == **asked && tried.variant == *variant),
            );
            table.add_row(summary_cells(
                &variant_label(variant, &variants),
                &sum,
                if nth == 0 { &asked.0 } else { "" },
                None,
            ));
        }
    }
    for (nth, variant) in variants.iter().enumerate() {
        let sum = VariantSummary::from_tasks(tries.iter().filter(|tried| tried.variant == *variant));
        let what = format!("all {} tasks", tasks.len());
        let what = if nth == 0 { what.as_str() } else { "" };
        table.add_row(summary_cells(&variant_label(variant, &variants), &sum, what, Some(TextStyle::Bold)));
    }
    display::print_line(&table.render(cx.screen));
}

fn summary_cells(name: &str, sum: &VariantSummary, what: &str, style: Option<TextStyle>) -> Vec<TableCell> {
    let plain = |text: String| match style {
        Some(style) => TableCell::styled(&text, style),
        None => TableCell::new(text),
    };
    let usage = sum.usage;
    let asked = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens;
    let percent = sum.success_percent().map_or_else(String::new, |percent| format!(" {percent}%"));
    vec![
        plain(name.to_owned()),
        plain(format!("{}/{}{percent}", sum.succeeded, sum.tasks)),
        plain(sum.turns_median.map_or_else(|| "-".to_owned(), |turns| turns.to_string())),
        plain(asked.to_string()),
        plain(usage.cache_read_tokens.to_string()),
        plain(usage.output_tokens.to_string()),
        plain(sum.cost_nusd.map_or_else(|| "unknown".to_owned(), display::format_money)),
        plain(sum.worked_ms_median.map_or_else(|| "-".to_owned(), format_duration)),
        plain(what.to_owned()),
    ]
}

/// Returns the shortest label that distinguishes the variant.
fn variant_label(variant: &ComparedVariant, all: &[ComparedVariant]) -> String {
    let mut name = variant.model.to_string();
    if all.iter().any(|other| other.engine != variant.engine) {
        name.push_str(&format!(" {}", variant.engine));
    }
    let same = |other: &&ComparedVariant| other.model.to_string() == variant.model.to_string();
    if all.iter().filter(same).any(|other| other.model.base_url != variant.model.base_url) {
        name.push_str(&format!(
            " at {}",
            variant.model.base_url.as_deref().unwrap_or("its provider's default")
        ));
    }
    for (word, own, differs) in [
        ("exploring by", &variant.explore, all.iter().any(|other| other.explore != variant.explore)),
        ("else", &variant.fallback, all.iter().any(|other| other.fallback != variant.fallback)),
    ] {
        if let Some(own) = own.as_ref().filter(|_| differs) {
            name.push_str(&format!(" {word} {own}"));
        }
    }
    display::sanitize_line(&name).into_owned()
}

/// Renders the JSON object.
pub(super) fn to_json(batch: Option<String>, tries: &[ComparedTask]) -> Value {
    let variants = distinct_variants(tries);
    let of = |variant: &ComparedVariant, tries: &[&ComparedTask]| {
        let mut all = summary_json(&VariantSummary::from_tasks(tries.iter().copied()));
        all["model"] = json!(variant.model.to_string());
        all["base_url"] = json!(variant.model.base_url);
        all["explore_model"] = json!(variant.explore.as_ref().map(ToString::to_string));
        all["fallback_model"] = json!(variant.fallback.as_ref().map(ToString::to_string));
        all["engine"] = json!(variant.engine);
        all
    };
    let each = variants.iter().map(|variant| {
        let own: Vec<&ComparedTask> = tries.iter().filter(|tried| tried.variant == *variant).collect();
        of(variant, &own)
    });
    let tasks = distinct_tasks(tries).into_iter().map(|asked| {
        let each = variants.iter().map(|variant| {
            let own: Vec<&ComparedTask> = tries
                .iter()
                .filter(|tried| tried.title_and_text == *asked && tried.variant == *variant)
                .collect();
            let mut all = of(variant, &own);
            let ids: Vec<TaskId> = own.iter().map(|tried| tried.task).collect();
            all["ids"] = json!(ids);
            all
        });
        json!({ "title": asked.0, "variants": each.collect::<Vec<_>>() })
    });
    json!({ "batch": batch, "variants": each.collect::<Vec<_>>(), "tasks": tasks.collect::<Vec<_>>() })
}

fn summary_json(sum: &VariantSummary) -> Value {
    #[expect(clippy::cast_precision_loss, reason = "dollars for people; the exact sum is included as well")]
    let cost_usd = sum.cost_nusd.map(|nusd| nusd as f64 / 1e9);
    json!({
        "tasks": sum.tasks,
        "succeeded": sum.succeeded,
        "under_way": sum.under_way,
        "success_percent": sum.success_percent(),
        "turns": sum.turns,
        "turns_median": sum.turns_median,
        "input_tokens": sum.usage.input_tokens,
        "cache_read_tokens": sum.usage.cache_read_tokens,
        "cache_write_tokens": sum.usage.cache_write_tokens,
        "output_tokens": sum.usage.output_tokens,
        "cost_nusd": sum.cost_nusd,
        "cost_usd": cost_usd,
        "wall_ms_median": sum.wall_ms_median,
        "worked_ms_median": sum.worked_ms_median,
    })
}

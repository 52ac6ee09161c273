//! Lists the declared figures by group, for people and for programs that check that all of them are present.

use serde_json::json;

use super::{
    figures::{FIGURES, LowerBound},
    group::FigureGroup,
};
use crate::output::{OutputFormat, print_line};

/// Lists the figures of the groups `only`, or of all, in the order in which groups run.
pub(crate) fn list_figures(form: OutputFormat, only: &[FigureGroup]) -> std::io::Result<()> {
    let width = |text: fn(&super::figures::BenchFigure) -> &str| {
        FIGURES.iter().map(|figure| text(figure).len()).max()
    };
    let groups = width(|figure| figure.group.name()).unwrap_or_default();
    let names = width(|figure| figure.name).unwrap_or_default();
    for group in FigureGroup::ALL.into_iter().filter(|group| only.is_empty() || only.contains(group)) {
        for figure in FIGURES.iter().filter(|figure| figure.group == group) {
            let (group_name, name, what) = (group.name(), figure.name, figure.description);
            match form {
                OutputFormat::Text => print_line(&format!("{group_name:groups$}  {name:names$}  {what}"))?,
                OutputFormat::Json => print_line(
                    &json!({
                        "group": group_name,
                        "figure": name,
                        "what": what,
                        "may_be_zero": figure.lower_bound == LowerBound::Zero,
                        "postgres": group.needs_postgres(),
                    })
                    .to_string(),
                )?,
            }
        }
    }
    Ok(())
}

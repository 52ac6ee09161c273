//! The declared figures: which group owns which, for people and for programs that check that all of them are there.

use serde_json::json;

use super::{
    figures::{FIGURES, Least},
    group::Group,
};
use crate::output::{Form, say};

/// Lists the figures of the groups `only`, or of all, in the order in which groups run.
pub(crate) fn list_figures(form: Form, only: &[Group]) -> std::io::Result<()> {
    let width =
        |text: fn(&super::figures::Figure) -> &str| FIGURES.iter().map(|figure| text(figure).len()).max();
    let groups = width(|figure| figure.group.name()).unwrap_or_default();
    let names = width(|figure| figure.name).unwrap_or_default();
    for group in Group::ALL.into_iter().filter(|group| only.is_empty() || only.contains(group)) {
        for figure in FIGURES.iter().filter(|figure| figure.group == group) {
            let (group_name, name, what) = (group.name(), figure.name, figure.what);
            match form {
                Form::Text => say(&format!("{group_name:groups$}  {name:names$}  {what}"))?,
                Form::Json => say(&json!({
                    "group": group_name,
                    "figure": name,
                    "what": what,
                    "may_be_zero": figure.least == Least::Zero,
                    "postgres": group.wants_postgres(),
                })
                .to_string())?,
            }
        }
    }
    Ok(())
}

//! The declared figures: which group owns which, for people and for programs that check that all of them are there.

use serde_json::json;

use super::{
    figures::{FIGURES, Least},
    group::Group,
};
use crate::{
    context::Context,
    display::{self, Cell, Table},
};

/// Lists the figures of the groups `only`, or of all, in the order in which groups run.
pub(super) fn say(cx: &Context, only: &[Group]) {
    let mut table = Table::new(&["GROUP", "FIGURE", "WHAT"]);
    for group in Group::ALL.into_iter().filter(|group| only.is_empty() || only.contains(group)) {
        for figure in FIGURES.iter().filter(|figure| figure.group == group) {
            if cx.json() {
                display::say_json(&json!({
                    "group": group.name(),
                    "figure": figure.name,
                    "what": figure.what,
                    "may_be_zero": figure.least == Least::Zero,
                    "postgres": group.wants_postgres(),
                }));
            } else {
                table.row(vec![Cell::new(group.name()), Cell::new(figure.name), Cell::new(figure.what)]);
            }
        }
    }
    if !cx.json() {
        display::say(table.render(cx.screen).trim_end());
    }
}

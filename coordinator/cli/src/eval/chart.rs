//! Bars as SVG, drawn here: no script, nothing fetched, colours from the page so that they follow light and dark. Beside
//! each chart stands a table with the same numbers; what a bar says is never said by its colour alone. Pure.

use super::html::escape;

const WIDTH: u32 = 520;
const LABELS: u32 = 120;
const BARS: u32 = 300;
const ROW: u32 = 30;
const BAR: u32 = 18;

/// A bar: what it is of, its parts, and its end in words.
#[derive(Debug, Clone)]
pub(super) struct Bar {
    pub(super) label: String,
    pub(super) parts: Vec<Part>,
    /// As the table has it.
    pub(super) shown: String,
}

/// A part of a bar.
#[derive(Debug, Clone, Copy)]
pub(super) struct Part {
    pub(super) amount: u64,
    pub(super) kind: PartKind,
}

/// What a part is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartKind {
    /// An amount.
    Amount,
    /// Of a whole, what passed.
    Passed,
    /// And what did not: hatched, for who sees no colours.
    Failed,
}

impl PartKind {
    const fn class(self) -> &'static str {
        match self {
            Self::Amount => "amount",
            Self::Passed => "passed",
            Self::Failed => "failed",
        }
    }
}

/// A chart with its table.
#[derive(Debug, Clone)]
pub(super) struct Chart<'a> {
    /// Its id in the page: a word.
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    /// Heading of the names.
    pub(super) of: &'a str,
    /// Heading of the amounts.
    pub(super) amounts: &'a str,
    pub(super) bars: Vec<Bar>,
}

impl Chart<'_> {
    /// The figure.
    pub(super) fn figure(&self) -> String {
        format!(
            "<figure>\n<figcaption>{}</figcaption>\n<div class=\"beside\">\n{}{}</div>\n</figure>\n",
            escape(self.title),
            self.svg(),
            self.table()
        )
    }

    fn svg(&self) -> String {
        let height = ROW * u32::try_from(self.bars.len()).unwrap_or(u32::MAX / ROW).max(1) + 8;
        let whole = |bar: &Bar| bar.parts.iter().map(|part| part.amount).fold(0, u64::saturating_add);
        let most = self.bars.iter().map(whole).max().unwrap_or(0).max(1);
        let (id, title) = (self.id, escape(self.title));
        let told: Vec<String> = self.bars.iter().map(|bar| format!("{} {}", bar.label, bar.shown)).collect();
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
             aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{title}</title>\n\
             <desc id=\"{id}-desc\">{}</desc>\n<defs><pattern id=\"{id}-hatch\" width=\"6\" height=\"6\" \
             patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" class=\"failed\"/>\
             <rect width=\"2\" height=\"6\" class=\"hatch\"/></pattern></defs>\n",
            escape(&told.join("; "))
        );
        for (at, bar) in (0..).zip(&self.bars) {
            let top = 4 + at * ROW;
            let text = top + BAR / 2 + 5;
            out.push_str(&format!(
                "<text x=\"{}\" y=\"{text}\" class=\"label\">{}</text>\n",
                LABELS - 8,
                escape(&bar.label)
            ));
            let mut left = LABELS;
            for part in bar.parts.iter().filter(|part| part.amount > 0) {
                let width = scaled(part.amount, most);
                let fill = match part.kind {
                    PartKind::Failed => format!(" style=\"fill:url(#{id}-hatch)\""),
                    PartKind::Amount | PartKind::Passed => String::new(),
                };
                out.push_str(&format!(
                    "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{BAR}\" class=\"{}\"{fill}/>\n",
                    part.kind.class()
                ));
                left += width;
            }
            out.push_str(&format!(
                "<text x=\"{}\" y=\"{text}\" class=\"value\">{}</text>\n",
                left + 6,
                escape(&bar.shown)
            ));
        }
        out.push_str("</svg>\n");
        out
    }

    fn table(&self) -> String {
        let mut out = format!(
            "<table>\n<thead><tr><th scope=\"col\">{}</th><th scope=\"col\" class=\"number\">{}</th></tr></thead>\n<tbody>\n",
            escape(self.of),
            escape(self.amounts)
        );
        for bar in &self.bars {
            out.push_str(&format!(
                "<tr><th scope=\"row\">{}</th><td class=\"number\">{}</td></tr>\n",
                escape(&bar.label),
                escape(&bar.shown)
            ));
        }
        out.push_str("</tbody>\n</table>\n");
        out
    }
}

/// So wide; what is there can be seen, however little it is.
fn scaled(amount: u64, most: u64) -> u32 {
    let width = u128::from(amount) * u128::from(BARS) / u128::from(most);
    u32::try_from(width).unwrap_or(BARS).clamp(1, BARS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_are_as_long_as_what_they_tell() {
        assert_eq!((scaled(50, 100), scaled(100, 100), scaled(1, 1_000_000)), (150, 300, 1));
        assert_eq!(scaled(u64::MAX, u64::MAX), BARS, "no overflow");
        let parts = vec![
            Part { amount: 3, kind: PartKind::Passed },
            Part { amount: 1, kind: PartKind::Failed },
            Part { amount: 0, kind: PartKind::Amount },
        ];
        let bars = vec![Bar { label: "a<b".to_owned(), parts, shown: "3/4".to_owned() }];
        let chart = Chart { id: "c", title: "T & T", of: "engine", amounts: "passed", bars };
        let figure = chart.figure();
        assert!(figure.contains("width=\"225\"") && figure.contains("width=\"75\""), "{figure}");
        assert!(figure.contains("a&lt;b") && !figure.contains("a<b") && figure.contains("T &amp; T"));
        assert_eq!(figure.matches("3/4").count(), 3, "description, bar and table say it");
        assert!(!figure.contains("width=\"0\""));
    }
}

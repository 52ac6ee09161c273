//! Bar charts as SVG, drawn here: no script, nothing fetched, colors from the page so that they follow light
//! and dark mode. Each chart has a table with the same numbers; no information is conveyed by color alone.
//! Pure.

use super::html_report::escape_html;

const CHART_WIDTH: u32 = 520;
const LABEL_WIDTH: u32 = 120;
const BARS_WIDTH: u32 = 300;
const ROW_HEIGHT: u32 = 30;
const BAR_HEIGHT: u32 = 18;

/// A bar: its label, its parts, and its value as text.
#[derive(Debug, Clone)]
pub(super) struct ChartBar {
    pub(super) label: String,
    pub(super) parts: Vec<BarPart>,
    /// The value as shown in the table.
    pub(super) value_text: String,
}

/// A part of a bar.
#[derive(Debug, Clone, Copy)]
pub(super) struct BarPart {
    pub(super) amount: u64,
    pub(super) kind: BarPartKind,
}

/// The kind of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BarPartKind {
    /// An amount.
    Amount,
    /// The share that passed.
    Passed,
    /// The share that failed: hatched, for readers who cannot see the colors.
    Failed,
}

impl BarPartKind {
    const fn css_class(self) -> &'static str {
        match self {
            Self::Amount => "amount",
            Self::Passed => "passed",
            Self::Failed => "failed",
        }
    }
}

/// A chart with its table.
#[derive(Debug, Clone)]
pub(super) struct BarChart<'a> {
    /// The id in the page: one word.
    pub(super) id: &'a str,
    pub(super) title: &'a str,
    /// Heading of the label column.
    pub(super) label_heading: &'a str,
    /// Heading of the value column.
    pub(super) value_heading: &'a str,
    pub(super) bars: Vec<ChartBar>,
}

impl BarChart<'_> {
    /// Renders the figure.
    pub(super) fn render_figure(&self) -> String {
        format!(
            "<figure>\n<figcaption>{}</figcaption>\n<div class=\"pair\">\n{}{}</div>\n</figure>\n",
            escape_html(self.title),
            self.render_svg(),
            self.render_table()
        )
    }

    fn render_svg(&self) -> String {
        let height = ROW_HEIGHT * u32::try_from(self.bars.len()).unwrap_or(u32::MAX / ROW_HEIGHT).max(1) + 8;
        let whole = |bar: &ChartBar| bar.parts.iter().map(|part| part.amount).fold(0, u64::saturating_add);
        let most = self.bars.iter().map(whole).max().unwrap_or(0).max(1);
        let (id, title) = (self.id, escape_html(self.title));
        let told: Vec<String> =
            self.bars.iter().map(|bar| format!("{} {}", bar.label, bar.value_text)).collect();
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {CHART_WIDTH} {height}\" role=\"img\" \
             aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{title}</title>\n\
             <desc id=\"{id}-desc\">{}</desc>\n<defs><pattern id=\"{id}-hatch\" width=\"6\" height=\"6\" \
             patternUnits=\"userSpaceOnUse\" patternTransform=\"rotate(45)\"><rect width=\"6\" height=\"6\" class=\"failed\"/>\
             <rect width=\"2\" height=\"6\" class=\"hatch\"/></pattern></defs>\n",
            escape_html(&told.join("; "))
        );
        for (at, bar) in (0..).zip(&self.bars) {
            let top = 4 + at * ROW_HEIGHT;
            let text = top + BAR_HEIGHT / 2 + 5;
            out.push_str(&format!(
                "<text x=\"{}\" y=\"{text}\" class=\"label\">{}</text>\n",
                LABEL_WIDTH - 8,
                escape_html(&bar.label)
            ));
            let mut left = LABEL_WIDTH;
            for part in bar.parts.iter().filter(|part| part.amount > 0) {
                let width = scaled_width(part.amount, most);
                let fill = match part.kind {
                    BarPartKind::Failed => format!(" style=\"fill:url(#{id}-hatch)\""),
                    BarPartKind::Amount | BarPartKind::Passed => String::new(),
                };
                out.push_str(&format!(
                    "<rect x=\"{left}\" y=\"{top}\" width=\"{width}\" height=\"{BAR_HEIGHT}\" class=\"{}\"{fill}/>\n",
                    part.kind.css_class()
                ));
                left += width;
            }
            out.push_str(&format!(
                "<text x=\"{}\" y=\"{text}\" class=\"value\">{}</text>\n",
                left + 6,
                escape_html(&bar.value_text)
            ));
        }
        out.push_str("</svg>\n");
        out
    }

    fn render_table(&self) -> String {
        let mut out = format!(
            "<table>\n<thead><tr><th scope=\"col\">{}</th><th scope=\"col\" class=\"number\">{}</th></tr></thead>\n<tbody>\n",
            escape_html(self.label_heading),
            escape_html(self.value_heading)
        );
        for bar in &self.bars {
            out.push_str(&format!(
                "<tr><th scope=\"row\">{}</th><td class=\"number\">{}</td></tr>\n",
                escape_html(&bar.label),
                escape_html(&bar.value_text)
            ));
        }
        out.push_str("</tbody>\n</table>\n");
        out
    }
}

/// Scales an amount to a bar width; an amount above zero is always visible.
fn scaled_width(amount: u64, most: u64) -> u32 {
    let width = u128::from(amount) * u128::from(BARS_WIDTH) / u128::from(most);
    u32::try_from(width).unwrap_or(BARS_WIDTH).clamp(1, BARS_WIDTH)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bar_widths_are_proportional_and_text_is_escaped() {
        assert_eq!(
            (scaled_width(50, 100), scaled_width(100, 100), scaled_width(1, 1_000_000)),
            (150, 300, 1)
        );
        assert_eq!(scaled_width(u64::MAX, u64::MAX), BARS_WIDTH, "no overflow");
        let parts = vec![
            BarPart { amount: 3, kind: BarPartKind::Passed },
            BarPart { amount: 1, kind: BarPartKind::Failed },
            BarPart { amount: 0, kind: BarPartKind::Amount },
        ];
        let bars = vec![ChartBar { label: "a<b".to_owned(), parts, value_text: "3/4".to_owned() }];
        let chart =
            BarChart { id: "c", title: "T & T", label_heading: "engine", value_heading: "passed", bars };
        let figure = chart.render_figure();
        assert!(figure.contains("width=\"225\"") && figure.contains("width=\"75\""), "{figure}");
        assert!(figure.contains("a&lt;b") && !figure.contains("a<b") && figure.contains("T &amp; T"));
        assert_eq!(figure.matches("3/4").count(), 3, "description, bar and table contain it");
        assert!(!figure.contains("width=\"0\""));
    }
}

//! Maps the indentation of the model's text to the file's, by depth.

use crate::text::{TextLine, leading_indent};

/// A line of the search and the file's line it corresponds to.
#[derive(Debug, Clone)]
pub(crate) struct IndentPair {
    /// Index of the line in the search.
    pub(crate) search_index: usize,
    pub(crate) search: String,
    pub(crate) file: String,
}

/// How indentation of the model's text maps to the file's.
#[derive(Debug)]
pub(crate) struct IndentMap {
    pairs: Vec<IndentPair>,
    unindented_first: Option<IndentPair>,
    model_unit: IndentUnit,
    file_unit: IndentUnit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IndentUnit {
    Tab,
    Spaces(usize),
}

impl IndentUnit {
    fn render(self, depth: usize) -> String {
        match self {
            Self::Tab => "\t".repeat(depth),
            Self::Spaces(n) => " ".repeat(n * depth),
        }
    }
}

impl IndentMap {
    /// Learns the mapping from aligned non-blank lines.
    pub(crate) fn from_pairs(
        mut pairs: Vec<IndentPair>,
        model_lines: &[&str],
        file: &[TextLine<'_>],
    ) -> Self {
        // A model may drop the indentation of the first line only, so that line says nothing about the
        // rest.
        let first = match pairs.split_first() {
            Some((head, rest))
                if head.search_index == 0
                    && head.search.is_empty()
                    && !head.file.is_empty()
                    && !rest.is_empty()
                    && rest.iter().all(|pair| pair.search == pair.file) =>
            {
                Some(head.clone())
            }
            Some(_) | None => None,
        };
        if first.is_some() {
            pairs.remove(0);
        }
        let unit_file = detect_file_unit(&pairs, file);
        let unit_model = detect_model_unit(&pairs, model_lines, unit_file);
        Self { pairs, unindented_first: first, model_unit: unit_model, file_unit: unit_file }
    }

    /// Returns the file's indentation for line `index` of the replacement, near line `near` of the
    /// search.
    pub(crate) fn map_indent(&self, indent: &str, index: usize, near: usize) -> String {
        if let Some(first) = &self.unindented_first
            && index == 0
            && first.search == indent
        {
            return first.file.clone();
        }
        if self.pairs.iter().all(|pair| pair.search == pair.file) {
            return indent.to_owned();
        }
        let nearest = |pair: &&IndentPair| pair.search_index.abs_diff(near);
        if let Some(pair) = self.pairs.iter().filter(|pair| pair.search == indent).min_by_key(nearest) {
            return pair.file.clone();
        }
        let deepest = self
            .pairs
            .iter()
            .filter(|pair| indent.starts_with(&pair.search))
            .max_by_key(|pair| (pair.search.len(), usize::MAX - pair.search_index.abs_diff(near)));
        if let Some(pair) = deepest {
            return pair.file.clone() + &self.convert_indent(&indent[pair.search.len()..]);
        }
        match self
            .pairs
            .iter()
            .min_by_key(|pair| (self.indent_width(&pair.search), pair.search_index.abs_diff(near)))
        {
            Some(pair) => self.reduce_indent(pair, indent),
            None => indent.to_owned(),
        }
    }

    fn indent_width(&self, indent: &str) -> usize {
        match self.model_unit {
            IndentUnit::Tab => indent.matches('\t').count(),
            IndentUnit::Spaces(_) => indent.len(),
        }
    }

    fn convert_indent(&self, extra: &str) -> String {
        match (self.model_unit, self.file_unit) {
            (IndentUnit::Tab, IndentUnit::Tab) => extra.to_owned(),
            (IndentUnit::Spaces(a), IndentUnit::Spaces(b)) if a == b => extra.to_owned(),
            (IndentUnit::Tab, to) => {
                let tabs = extra.matches('\t').count();
                to.render(tabs) + &" ".repeat(extra.len() - tabs)
            }
            (IndentUnit::Spaces(n), to) => to.render(extra.len() / n) + &" ".repeat(extra.len() % n),
        }
    }

    fn reduce_indent(&self, pair: &IndentPair, indent: &str) -> String {
        let missing = self.indent_width(&pair.search).saturating_sub(self.indent_width(indent));
        let cut = match (self.model_unit, self.file_unit) {
            (IndentUnit::Tab, IndentUnit::Tab) => missing,
            (IndentUnit::Tab, IndentUnit::Spaces(n)) => missing * n,
            (IndentUnit::Spaces(n), IndentUnit::Tab) => missing / n,
            (IndentUnit::Spaces(a), IndentUnit::Spaces(b)) => missing * b / a,
        };
        let keep = pair.file.len().saturating_sub(cut);
        pair.file[..keep].to_owned()
    }
}

fn detect_file_unit(pairs: &[IndentPair], file: &[TextLine<'_>]) -> IndentUnit {
    if pairs.iter().any(|pair| pair.file.contains('\t')) {
        return IndentUnit::Tab;
    }
    let tabs = file.iter().filter(|line| line.text.starts_with('\t')).count();
    let spaces = file.iter().filter(|line| line.text.starts_with("  ")).count();
    if pairs.iter().all(|pair| pair.file.is_empty()) && tabs > spaces {
        return IndentUnit::Tab;
    }
    IndentUnit::Spaces(commonest_indent_step(file.iter().map(|line| line.text)).unwrap_or(4))
}

fn detect_model_unit(pairs: &[IndentPair], lines: &[&str], unit_file: IndentUnit) -> IndentUnit {
    if lines.iter().any(|line| leading_indent(line).contains('\t')) {
        return IndentUnit::Tab;
    }
    let depth = |pair: &IndentPair| match unit_file {
        IndentUnit::Tab => pair.file.matches('\t').count(),
        IndentUnit::Spaces(n) => pair.file.len() / n,
    };
    // Two depths of the same text reveal its scale: 4 spaces that are one tab, 2 that are 4.
    let scale = pairs.iter().find_map(|a| {
        let b = pairs.iter().find(|b| depth(b) > depth(a) && b.search.len() > a.search.len())?;
        let (wide, deep) = (b.search.len() - a.search.len(), depth(b) - depth(a));
        wide.is_multiple_of(deep).then(|| wide / deep)
    });
    // A single depth reveals it only if the text was not shifted as well.
    let single = pairs.iter().find_map(|pair| {
        let even =
            depth(pair) > 0 && !pair.search.is_empty() && pair.search.len().is_multiple_of(depth(pair));
        even.then(|| pair.search.len() / depth(pair))
    });
    let shifted = {
        let shift = |pair: &IndentPair| pair.file.len().wrapping_sub(pair.search.len());
        unit_file != IndentUnit::Tab && pairs.windows(2).all(|two| shift(&two[0]) == shift(&two[1]))
    };
    match (unit_file, scale) {
        (IndentUnit::Spaces(n), _) if shifted => IndentUnit::Spaces(n),
        (_, Some(n)) if (2..=8).contains(&n) => IndentUnit::Spaces(n),
        (IndentUnit::Spaces(n), _) => IndentUnit::Spaces(single.filter(|n| (2..=8).contains(n)).unwrap_or(n)),
        (IndentUnit::Tab, _) => IndentUnit::Spaces(
            commonest_indent_step(lines.iter().copied())
                .or(single)
                .filter(|n| (2..=8).contains(n))
                .unwrap_or(4),
        ),
    }
}

/// Returns the most common step between indentations of neighboring non-blank lines.
fn commonest_indent_step<'a>(lines: impl Iterator<Item = &'a str>) -> Option<usize> {
    let mut counts = [0usize; 9];
    let mut last = None;
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let width = leading_indent(line).len();
        if let Some(last) = last.replace(width)
            && let Some(count) = counts.get_mut(width.abs_diff(last))
        {
            *count += 1;
        }
    }
    (2..=8).rev().max_by_key(|n| counts[*n]).filter(|n| counts[*n] > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::split_lines;

    fn assert_mapped_indent(pairs: &[(&str, &str)], model: &[&str], file: &str, indent: &str, want: &str) {
        let pairs = pairs
            .iter()
            .enumerate()
            .map(|(at, (search, file))| IndentPair {
                search_index: at,
                search: (*search).to_owned(),
                file: (*file).to_owned(),
            })
            .collect();
        let indents = IndentMap::from_pairs(pairs, model, &split_lines(file));
        assert_eq!(indents.map_indent(indent, 1, 1), want);
    }

    #[test]
    fn indent_depth_is_mapped_to_the_file() {
        assert_mapped_indent(
            &[("", "    "), ("  ", "      ")],
            &["a", "  b"],
            "    a\n      b\n",
            "    ",
            "        ",
        );
        assert_mapped_indent(&[("    ", "\t")], &["    a"], "\ta\n", "        ", "\t\t");
        assert_mapped_indent(&[("\t", "  ")], &["\ta"], "  a\n    b\n", "\t\t", "    ");
        assert_mapped_indent(&[("    ", "        ")], &["    a"], "        a\n    b\n", "", "    ");
        assert_mapped_indent(&[("", "    "), ("    ", "    ")], &["a", "    b"], "    a\n    b\n", "", "");
    }
}

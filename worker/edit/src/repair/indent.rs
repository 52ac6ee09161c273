//! Re-indentation by depth: says how a line that the model indented in its way stands in the file.

use crate::text::{Line, indent_of};

/// A line of the search beside the file's line it stands for.
#[derive(Debug, Clone)]
pub(crate) struct Pair {
    /// Index of the line in the search.
    pub(crate) at: usize,
    pub(crate) search: String,
    pub(crate) file: String,
}

/// How indentation of the model's text maps to the file's.
#[derive(Debug)]
pub(crate) struct Indents {
    pairs: Vec<Pair>,
    first: Option<Pair>,
    unit_model: Unit,
    unit_file: Unit,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Unit {
    Tab,
    Spaces(usize),
}

impl Unit {
    fn write(self, depth: usize) -> String {
        match self {
            Self::Tab => "\t".repeat(depth),
            Self::Spaces(n) => " ".repeat(n * depth),
        }
    }
}

impl Indents {
    /// Learns from aligned lines that are not blank.
    pub(crate) fn learn(mut pairs: Vec<Pair>, model_lines: &[&str], file: &[Line<'_>]) -> Self {
        // A model that drops the blanks before its first word only: that line is no witness for the rest.
        let first = match pairs.split_first() {
            Some((head, rest))
                if head.at == 0
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
        let unit_file = unit_of_file(&pairs, file);
        let unit_model = unit_of_model(&pairs, model_lines, unit_file);
        Self { pairs, first, unit_model, unit_file }
    }

    /// The file's indentation for a line of the replacement at `index`, near line `near` of the search.
    pub(crate) fn map(&self, indent: &str, index: usize, near: usize) -> String {
        if let Some(first) = &self.first
            && index == 0
            && first.search == indent
        {
            return first.file.clone();
        }
        if self.pairs.iter().all(|pair| pair.search == pair.file) {
            return indent.to_owned();
        }
        let nearest = |pair: &&Pair| pair.at.abs_diff(near);
        if let Some(pair) = self.pairs.iter().filter(|pair| pair.search == indent).min_by_key(nearest) {
            return pair.file.clone();
        }
        let deepest = self
            .pairs
            .iter()
            .filter(|pair| indent.starts_with(&pair.search))
            .max_by_key(|pair| (pair.search.len(), usize::MAX - pair.at.abs_diff(near)));
        if let Some(pair) = deepest {
            return pair.file.clone() + &self.convert(&indent[pair.search.len()..]);
        }
        match self.pairs.iter().min_by_key(|pair| (self.width(&pair.search), pair.at.abs_diff(near))) {
            Some(pair) => self.shallower(pair, indent),
            None => indent.to_owned(),
        }
    }

    fn width(&self, indent: &str) -> usize {
        match self.unit_model {
            Unit::Tab => indent.matches('\t').count(),
            Unit::Spaces(_) => indent.len(),
        }
    }

    fn convert(&self, extra: &str) -> String {
        match (self.unit_model, self.unit_file) {
            (Unit::Tab, Unit::Tab) => extra.to_owned(),
            (Unit::Spaces(a), Unit::Spaces(b)) if a == b => extra.to_owned(),
            (Unit::Tab, to) => {
                let tabs = extra.matches('\t').count();
                to.write(tabs) + &" ".repeat(extra.len() - tabs)
            }
            (Unit::Spaces(n), to) => to.write(extra.len() / n) + &" ".repeat(extra.len() % n),
        }
    }

    fn shallower(&self, pair: &Pair, indent: &str) -> String {
        let missing = self.width(&pair.search).saturating_sub(self.width(indent));
        let cut = match (self.unit_model, self.unit_file) {
            (Unit::Tab, Unit::Tab) => missing,
            (Unit::Tab, Unit::Spaces(n)) => missing * n,
            (Unit::Spaces(n), Unit::Tab) => missing / n,
            (Unit::Spaces(a), Unit::Spaces(b)) => missing * b / a,
        };
        let keep = pair.file.len().saturating_sub(cut);
        pair.file[..keep].to_owned()
    }
}

fn unit_of_file(pairs: &[Pair], file: &[Line<'_>]) -> Unit {
    if pairs.iter().any(|pair| pair.file.contains('\t')) {
        return Unit::Tab;
    }
    let tabs = file.iter().filter(|line| line.text.starts_with('\t')).count();
    let spaces = file.iter().filter(|line| line.text.starts_with("  ")).count();
    if pairs.iter().all(|pair| pair.file.is_empty()) && tabs > spaces {
        return Unit::Tab;
    }
    Unit::Spaces(step(file.iter().map(|line| line.text)).unwrap_or(4))
}

fn unit_of_model(pairs: &[Pair], lines: &[&str], unit_file: Unit) -> Unit {
    if lines.iter().any(|line| indent_of(line).contains('\t')) {
        return Unit::Tab;
    }
    let depth = |pair: &Pair| match unit_file {
        Unit::Tab => pair.file.matches('\t').count(),
        Unit::Spaces(n) => pair.file.len() / n,
    };
    // Two depths of the same text show its scale: 4 blanks that are one tab, 2 that are 4.
    let scale = pairs.iter().find_map(|a| {
        let b = pairs.iter().find(|b| depth(b) > depth(a) && b.search.len() > a.search.len())?;
        let (wide, deep) = (b.search.len() - a.search.len(), depth(b) - depth(a));
        wide.is_multiple_of(deep).then(|| wide / deep)
    });
    // One depth alone shows it only if the text was not shifted as well.
    let single = pairs.iter().find_map(|pair| {
        let even =
            depth(pair) > 0 && !pair.search.is_empty() && pair.search.len().is_multiple_of(depth(pair));
        even.then(|| pair.search.len() / depth(pair))
    });
    let shifted = {
        let shift = |pair: &Pair| pair.file.len().wrapping_sub(pair.search.len());
        unit_file != Unit::Tab && pairs.windows(2).all(|two| shift(&two[0]) == shift(&two[1]))
    };
    match (unit_file, scale) {
        (Unit::Spaces(n), _) if shifted => Unit::Spaces(n),
        (_, Some(n)) if (2..=8).contains(&n) => Unit::Spaces(n),
        (Unit::Spaces(n), _) => Unit::Spaces(single.filter(|n| (2..=8).contains(n)).unwrap_or(n)),
        (Unit::Tab, _) => {
            Unit::Spaces(step(lines.iter().copied()).or(single).filter(|n| (2..=8).contains(n)).unwrap_or(4))
        }
    }
}

/// The commonest step between indentations of neighbouring lines that are not blank.
fn step<'a>(lines: impl Iterator<Item = &'a str>) -> Option<usize> {
    let mut counts = [0usize; 9];
    let mut last = None;
    for line in lines.filter(|line| !line.trim().is_empty()) {
        let width = indent_of(line).len();
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
    use crate::text::lines;

    fn check(pairs: &[(&str, &str)], model: &[&str], file: &str, indent: &str, want: &str) {
        let pairs = pairs
            .iter()
            .enumerate()
            .map(|(at, (search, file))| Pair { at, search: (*search).to_owned(), file: (*file).to_owned() })
            .collect();
        let indents = Indents::learn(pairs, model, &lines(file));
        assert_eq!(indents.map(indent, 1, 1), want);
    }

    #[test]
    fn depth_is_carried_over() {
        check(&[("", "    "), ("  ", "      ")], &["a", "  b"], "    a\n      b\n", "    ", "        ");
        check(&[("    ", "\t")], &["    a"], "\ta\n", "        ", "\t\t");
        check(&[("\t", "  ")], &["\ta"], "  a\n    b\n", "\t\t", "    ");
        check(&[("    ", "        ")], &["    a"], "        a\n    b\n", "", "    ");
        check(&[("", "    "), ("    ", "    ")], &["a", "    b"], "    a\n    b\n", "", "");
    }
}

//! Table of contents for the lines that `read_file` omits: their definitions with line numbers. Uses a grammar if one
//! fits, otherwise the look of each line. Pure.

use crate::syntax::{OutlineEntry, outline};
use crate::tools::text::output::{cut_line, escape_hidden};

/// Most entries in one table; the deepest are dropped first.
const ENTRIES_MAX: usize = 60;
/// Most characters shown per line.
const LINE_CHARS_MAX: usize = 100;

/// Formats the entries for the lines `from` to `to`, one per line; also returns how many were omitted.
pub(crate) fn format_contents(path: &str, text: &str, lines: &[&str], from: u64, to: u64) -> (String, usize) {
    let within = |all: Vec<OutlineEntry>| -> Vec<OutlineEntry> {
        all.into_iter().filter(|found| (from..=to).contains(&found.line)).collect()
    };
    // A grammar that fits none of the lines is of no use.
    let parsed = outline(path, text.as_bytes()).map(within).filter(|found| !found.is_empty());
    let mut within = parsed.unwrap_or_else(|| within(guess_definitions(path, lines)));
    let total = within.len();
    while within.len() > ENTRIES_MAX {
        let deepest = within.iter().map(|found| found.depth).max().unwrap_or(0);
        if within.iter().all(|found| found.depth == deepest) {
            within.truncate(ENTRIES_MAX);
        } else {
            within.retain(|found| found.depth < deepest);
        }
    }
    let shown = within.iter().map(|found| {
        let line = usize::try_from(found.line - 1).ok().and_then(|at| lines.get(at)).copied();
        let line = cut_line(escape_hidden(line.unwrap_or_default()).trim_end(), LINE_CHARS_MAX);
        format!("{:>6}| {line}\n", found.line)
    });
    (shown.collect(), total - within.len())
}

/// Guesses definitions, or headings of a document, from the look of lines.
fn guess_definitions(path: &str, lines: &[&str]) -> Vec<OutlineEntry> {
    let is_document = path.ends_with(".md") || path.ends_with(".markdown");
    let mut fenced = false;
    let mut found = Vec::new();
    for (line, number) in lines.iter().zip(1..) {
        fenced ^= is_document && line.trim_start().starts_with("```");
        let depth =
            if is_document { heading_depth(line).filter(|_| !fenced) } else { definition_depth(line) };
        found.extend(depth.map(|depth| OutlineEntry { line: number, last_line: number, depth }));
    }
    found
}

fn heading_depth(line: &str) -> Option<usize> {
    let marks = line.bytes().take_while(|byte| *byte == b'#').count();
    ((1..=6).contains(&marks) && line[marks..].starts_with(' ')).then(|| marks - 1)
}

/// Indentation depth of a line that defines something.
fn definition_depth(line: &str) -> Option<usize> {
    let indent = line.len() - line.trim_start().len();
    if indent > 8 {
        return None;
    }
    let mut words = line.trim_start().split(|c: char| c.is_whitespace() || c == '(').peekable();
    while words.next_if(|word| word.starts_with("pub") || QUALIFIERS.contains(word)).is_some() {}
    let keyword = words.next()?;
    if !KEYWORDS.contains(&keyword) {
        return None;
    }
    let name = words.find(|word| !word.is_empty() && *word != "*")?;
    name.starts_with(|c: char| c.is_alphabetic() || c == '_' || c == '$').then_some(indent)
}

const QUALIFIERS: [&str; 13] = [
    "export",
    "default",
    "async",
    "unsafe",
    "static",
    "public",
    "private",
    "protected",
    "abstract",
    "final",
    "override",
    "declare",
    "extern",
];
const KEYWORDS: [&str; 14] = [
    "fn",
    "def",
    "class",
    "struct",
    "enum",
    "trait",
    "impl",
    "function",
    "func",
    "interface",
    "type",
    "mod",
    "module",
    "namespace",
];

#[cfg(test)]
mod tests {
    use super::*;

    fn contents_of_file(path: &str, text: &str) -> (String, usize) {
        let lines: Vec<&str> = text.lines().collect();
        format_contents(path, text, &lines, 1, lines.len() as u64)
    }

    #[test]
    fn file_without_grammar_is_outlined_by_line_shape() {
        let ruby = "module A\n  class B\n    def c(x)\n      type\n  public def d\n";
        let want = "     1| module A\n     2|   class B\n     3|     def c(x)\n     5|   public def d\n";
        assert_eq!(contents_of_file("a.rb", ruby), (want.to_owned(), 0));
        let text = "# One\n```sh\n# no\n```\n## Two\n#none\n";
        assert_eq!(contents_of_file("a.md", text), ("     1| # One\n     5| ## Two\n".to_owned(), 0));
    }

    #[test]
    fn deepest_entries_are_dropped_first_and_counted() {
        let class = |n: usize| format!("class C{n}:\n    def a(self): pass\n    def b(self): pass\n");
        let few: String = (0..25).map(class).collect();
        let (shown, more) = contents_of_file("a.py", &few);
        assert_eq!((shown.lines().count(), more), (25, 50));
        assert!(shown.lines().all(|line| line.contains("class C")));
        let many: String = (0..100).map(class).collect();
        let (shown, more) = contents_of_file("a.py", &many);
        assert_eq!((shown.lines().count(), more), (60, 240));
    }
}

//! Merges the difference between search and replace into the file's own lines.

use docket_schema::tool::EditLevel;

use super::{
    guard::same_statement::is_same_line,
    repair::{
        block_depth,
        indent_map::{IndentMap, IndentPair},
    },
    search_doc::SearchDoc,
    search_match::Match,
    similarity::align_lines,
    text::{collapse_whitespace, fold_lookalikes, leading_indent},
    tokens::{diff_slices, merge_line, words},
};

/// A range of the decoded file and its new text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TextSplice {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) text: String,
}

/// Why the difference cannot be merged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct MergeConflict {
    /// The file's line, from 0.
    pub(super) line: usize,
    pub(super) reason: &'static str,
}

const CHANGED_LINE_REASON: &str =
    "the file's line differs from the search in the words that the edit changes";
const UNQUOTED_LINE_REASON: &str = "the search leaves this line out between lines that the edit changes";

/// Returns the splices that apply the edit of `found`, in order. Unchanged lines get none.
pub(super) fn merge_match(doc: &SearchDoc<'_>, found: &Match) -> Result<Vec<TextSplice>, MergeConflict> {
    let settled = block_depth::align_search_indent(doc, found);
    let found = settled.as_ref().unwrap_or(found);
    let mut merger = LineMerger { doc, found, indents: learn_indents(doc, found), out: Vec::new() };
    let weight = |line: &String| u32::try_from(line.trim().len()).unwrap_or(u32::MAX).min(200) + 1;
    // A loosely matched search is not reliable about whitespace at the end of lines.
    let exact = found.level == EditLevel::Exact;
    let shown = |line: &String| if exact { line.clone() } else { line.trim_end().to_owned() };
    let search: Vec<String> = found.search.iter().map(shown).collect();
    let replace: Vec<String> = found.replace.iter().map(shown).collect();
    for hunk in diff_slices(&search, &replace, weight) {
        merger.merge_hunk(hunk.old_range, hunk.new_range)?;
    }
    Ok(merger.out)
}

fn learn_indents(doc: &SearchDoc<'_>, found: &Match) -> IndentMap {
    let pairs = found
        .align
        .iter()
        .enumerate()
        .filter_map(|(at, place)| {
            let line = doc.lines[(*place)?];
            let search = &found.search[at];
            (!line.is_blank() && !search.trim().is_empty()).then(|| IndentPair {
                search_index: at,
                search: leading_indent(search).to_owned(),
                file: leading_indent(line.text).to_owned(),
            })
        })
        .collect();
    let model: Vec<&str> = found.search.iter().chain(&found.replace).map(String::as_str).collect();
    IndentMap::from_pairs(pairs, &model, &doc.lines)
}

struct LineMerger<'a> {
    doc: &'a SearchDoc<'a>,
    found: &'a Match,
    indents: IndentMap,
    out: Vec<TextSplice>,
}

type LineRange = std::ops::Range<usize>;

impl LineMerger<'_> {
    fn merge_hunk(&mut self, old: LineRange, new: LineRange) -> Result<(), MergeConflict> {
        self.refuse_unquoted(&old, &new)?;
        let knows = self.replacement_knows_file(&old, &new);
        let pairs = if self.differs_from_file(&old) { self.pair_lines(&old, &new) } else { Vec::new() };
        let (mut at, mut from) = (old.start, new.start);
        for (d, r) in pairs.into_iter().chain([(old.end, new.end)]) {
            self.delete_lines(at..d, knows)?;
            self.insert_lines(from..r, d)?;
            if d < old.end {
                self.change_line(d, r, knows)?;
            }
            (at, from) = (d + 1, r + 1);
        }
        Ok(())
    }

    /// Returns whether a line of the hunk differs between file and search.
    fn differs_from_file(&self, old: &LineRange) -> bool {
        let places: Vec<usize> = self.found.align[old.clone()].iter().flatten().copied().collect();
        if places.windows(2).any(|two| two[0] + 1 < two[1]) {
            return true;
        }
        old.clone().any(|at| {
            self.found.align[at].is_none_or(|place| self.doc.lines[place].text != self.found.search[at])
        })
    }

    /// Refuses removals, and insertions in an uncertain order, around lines the search left out.
    fn refuse_unquoted(&self, old: &LineRange, new: &LineRange) -> Result<(), MergeConflict> {
        let align = &self.found.align;
        let mut places: Vec<usize> = align[old.clone()].iter().flatten().copied().collect();
        if !new.is_empty() {
            places.splice(0..0, align[..old.start].iter().rev().find_map(|place| *place));
            places.extend(align[old.end..].iter().find_map(|place| *place));
        }
        for two in places.windows(2) {
            if let Some(line) = (two[0] + 1..two[1]).find(|line| !self.doc.lines[*line].is_blank()) {
                return Err(MergeConflict { line, reason: UNQUOTED_LINE_REASON });
            }
        }
        Ok(())
    }

    /// Returns whether the replacement has the file's words where the search differs, so its author
    /// knew the file.
    fn replacement_knows_file(&self, old: &LineRange, new: &LineRange) -> bool {
        let real: Vec<&str> = old
            .clone()
            .filter_map(|at| self.found.align[at])
            .flat_map(|place| words(self.doc.lines[place].text))
            .collect();
        let said: Vec<&str> = self.found.search[old.clone()].iter().flat_map(|line| words(line)).collect();
        let put: Vec<&str> = self.found.replace[new.clone()].iter().flat_map(|line| words(line)).collect();
        let mut only_real = real.iter().filter(|word| !said.contains(word)).peekable();
        only_real.peek().is_some() && only_real.all(|word| put.contains(word))
    }

    /// Pairs the lines of the hunk that are the same line before and after.
    fn pair_lines(&self, old: &LineRange, new: &LineRange) -> Vec<(usize, usize)> {
        let collapsed =
            |lines: &[String]| lines.iter().map(|line| collapse_whitespace(line)).collect::<Vec<_>>();
        let (a, b) =
            (collapsed(&self.found.search[old.clone()]), collapsed(&self.found.replace[new.clone()]));
        // One line replaces another that begins with the same sign (`#Title`, `-a`): only the text after
        // the sign changes.
        let sign = |line: &[String]| line[0].chars().next().filter(char::is_ascii_punctuation);
        if a.len() == 1 && b.len() == 1 && sign(&a).is_some() && sign(&a) == sign(&b) {
            return vec![(old.start, new.start)];
        }
        let places = align_lines(&a, &b);
        places
            .into_iter()
            .enumerate()
            .filter(|(i, _)| !a[*i].is_empty())
            .filter_map(|(i, j)| j.map(|j| (old.start + i, new.start + j)))
            .collect()
    }

    fn delete_lines(&mut self, lines: LineRange, knows: bool) -> Result<(), MergeConflict> {
        let mut last: Option<usize> = None;
        for at in lines {
            let Some(place) = self.found.align[at] else { continue };
            let line = self.doc.lines[place];
            let (said, real) = (collapse_whitespace(&self.found.search[at]), collapse_whitespace(line.text));
            if fold_lookalikes(&said) != fold_lookalikes(&real) && !knows && !is_same_line(&said, &real) {
                return Err(MergeConflict { line: place, reason: CHANGED_LINE_REASON });
            }
            // Blank lines within a block are removed with it.
            let start = match last {
                Some(last) if last + 1 < place => self.doc.lines[last + 1].start,
                Some(_) | None => line.start,
            };
            self.push_splice(TextSplice { start, end: line.end_with_eol(), text: String::new() });
            last = Some(place);
        }
        Ok(())
    }

    fn insert_lines(&mut self, lines: LineRange, before: usize) -> Result<(), MergeConflict> {
        if lines.is_empty() {
            return Ok(());
        }
        let align = &self.found.align;
        let previous = align[..before].iter().flatten().next_back().copied();
        let next = align[before..].iter().flatten().next().copied();
        let (at, eol_of) = match (previous, next) {
            (Some(previous), _) => (self.doc.lines[previous].end_with_eol(), Some(previous)),
            (None, Some(next)) => (self.doc.lines[next].start, Some(next)),
            (None, None) => return Err(MergeConflict { line: 0, reason: CHANGED_LINE_REASON }),
        };
        let eol =
            eol_of.map(|line| self.doc.lines[line].eol).filter(|eol| !eol.is_empty()).unwrap_or(self.doc.eol);
        let mut text = String::new();
        for index in lines {
            text.push_str(&self.indent_line(index, before));
            text.push_str(eol);
        }
        self.push_splice(TextSplice { start: at, end: at, text });
        Ok(())
    }

    /// Returns a line of the replacement with the file's indentation.
    fn indent_line(&self, index: usize, near: usize) -> String {
        let line = &self.found.replace[index];
        if line.trim().is_empty() {
            return line.clone();
        }
        let indent = leading_indent(line);
        self.indents.map_indent(indent, index, near) + &line[indent.len()..]
    }

    fn change_line(&mut self, at: usize, index: usize, knows: bool) -> Result<(), MergeConflict> {
        let Some(place) = self.found.align[at] else {
            let line = self.found.align[..at].iter().flatten().next_back().copied().unwrap_or(0);
            return Err(MergeConflict { line, reason: CHANGED_LINE_REASON });
        };
        let real = self.doc.lines[place];
        let (said, put) = (&self.found.search[at], &self.found.replace[index]);
        let indent = if leading_indent(said) == leading_indent(put) {
            leading_indent(real.text).to_owned()
        } else {
            self.indents.map_indent(leading_indent(put), index, at)
        };
        let body = |line: &str| line[leading_indent(line).len()..].to_owned();
        let merged = merge_line(&body(said), &body(real.text), &body(put), knows)
            .ok_or(MergeConflict { line: place, reason: CHANGED_LINE_REASON })?;
        let text = indent + &merged;
        if text != real.text {
            self.push_splice(TextSplice { start: real.start, end: real.end(), text });
        }
        Ok(())
    }

    fn push_splice(&mut self, splice: TextSplice) {
        match self.out.last_mut() {
            Some(last) if last.end == splice.start => {
                last.end = splice.end;
                last.text.push_str(&splice.text);
            }
            Some(_) | None => self.out.push(splice),
        }
    }
}

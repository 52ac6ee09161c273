//! Carries the difference between search and replace over to the file's own lines.

use docket_schema::tool::EditLevel;

use super::{
    doc::Doc,
    found::Found,
    guard::statement::is_same_line,
    repair::{
        depth,
        indent::{Indents, Pair},
    },
    similarity::align_lines,
    text::{collapse, fold, indent_of},
    tokens::{changes, merge_line, words},
};

/// A stretch of the decoded file and what is to stand there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Splice {
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) text: String,
}

/// Why the difference cannot be carried over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Conflict {
    /// The file's line, from 0.
    pub(super) line: usize,
    pub(super) why: &'static str,
}

const CHANGED: &str = "the file's line differs from the search in the words that the edit changes";
const UNQUOTED: &str = "the search leaves this line out between lines that the edit changes";

/// The splices that make `found`'s edit, in order, none for lines that stay.
pub(super) fn merge(doc: &Doc<'_>, found: &Found) -> Result<Vec<Splice>, Conflict> {
    let settled = depth::settled(doc, found);
    let found = settled.as_ref().unwrap_or(found);
    let mut merger = Merger { doc, found, indents: learn(doc, found), out: Vec::new() };
    let weight = |line: &String| u32::try_from(line.trim().len()).unwrap_or(u32::MAX).min(200) + 1;
    // A search that was found loosely says nothing certain of the blanks at the ends of lines.
    let exact = found.level == EditLevel::Exact;
    let shown = |line: &String| if exact { line.clone() } else { line.trim_end().to_owned() };
    let search: Vec<String> = found.search.iter().map(shown).collect();
    let replace: Vec<String> = found.replace.iter().map(shown).collect();
    for hunk in changes(&search, &replace, weight) {
        merger.hunk(hunk.a, hunk.b)?;
    }
    Ok(merger.out)
}

fn learn(doc: &Doc<'_>, found: &Found) -> Indents {
    let pairs = found
        .align
        .iter()
        .enumerate()
        .filter_map(|(at, place)| {
            let line = doc.lines[(*place)?];
            let search = &found.search[at];
            (!line.is_blank() && !search.trim().is_empty()).then(|| Pair {
                at,
                search: indent_of(search).to_owned(),
                file: indent_of(line.text).to_owned(),
            })
        })
        .collect();
    let model: Vec<&str> = found.search.iter().chain(&found.replace).map(String::as_str).collect();
    Indents::learn(pairs, &model, &doc.lines)
}

struct Merger<'a> {
    doc: &'a Doc<'a>,
    found: &'a Found,
    indents: Indents,
    out: Vec<Splice>,
}

type Range = std::ops::Range<usize>;

impl Merger<'_> {
    fn hunk(&mut self, old: Range, new: Range) -> Result<(), Conflict> {
        self.refuse_unquoted(&old, &new)?;
        let knows = self.replacement_knows(&old, &new);
        let pairs = if self.differs(&old) { self.pair(&old, &new) } else { Vec::new() };
        let (mut at, mut from) = (old.start, new.start);
        for (d, r) in pairs.into_iter().chain([(old.end, new.end)]) {
            self.delete(at..d, knows)?;
            self.insert(from..r, d)?;
            if d < old.end {
                self.change(d, r, knows)?;
            }
            (at, from) = (d + 1, r + 1);
        }
        Ok(())
    }

    /// Whether a line of the hunk is another in the file than in the search.
    fn differs(&self, old: &Range) -> bool {
        let places: Vec<usize> = self.found.align[old.clone()].iter().flatten().copied().collect();
        if places.windows(2).any(|two| two[0] + 1 < two[1]) {
            return true;
        }
        old.clone().any(|at| {
            self.found.align[at].is_none_or(|place| self.doc.lines[place].text != self.found.search[at])
        })
    }

    /// Nothing is removed, and nothing put in an uncertain order, around lines the search left out.
    fn refuse_unquoted(&self, old: &Range, new: &Range) -> Result<(), Conflict> {
        let align = &self.found.align;
        let mut places: Vec<usize> = align[old.clone()].iter().flatten().copied().collect();
        if !new.is_empty() {
            places.splice(0..0, align[..old.start].iter().rev().find_map(|place| *place));
            places.extend(align[old.end..].iter().find_map(|place| *place));
        }
        for two in places.windows(2) {
            if let Some(line) = (two[0] + 1..two[1]).find(|line| !self.doc.lines[*line].is_blank()) {
                return Err(Conflict { line, why: UNQUOTED });
            }
        }
        Ok(())
    }

    /// The replacement has the file's words where the search has others: who wrote it knew the file.
    fn replacement_knows(&self, old: &Range, new: &Range) -> bool {
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

    /// Lines of the hunk that are the same line before and after.
    fn pair(&self, old: &Range, new: &Range) -> Vec<(usize, usize)> {
        let collapsed = |lines: &[String]| lines.iter().map(|line| collapse(line)).collect::<Vec<_>>();
        let (a, b) =
            (collapsed(&self.found.search[old.clone()]), collapsed(&self.found.replace[new.clone()]));
        // One line for one that begins with the same sign (`#Title`, `-a`): only what follows it changes.
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

    fn delete(&mut self, lines: Range, knows: bool) -> Result<(), Conflict> {
        let mut last: Option<usize> = None;
        for at in lines {
            let Some(place) = self.found.align[at] else { continue };
            let line = self.doc.lines[place];
            let (said, real) = (collapse(&self.found.search[at]), collapse(line.text));
            if fold(&said) != fold(&real) && !knows && !is_same_line(&said, &real) {
                return Err(Conflict { line: place, why: CHANGED });
            }
            // Blank lines within a block go with it.
            let start = match last {
                Some(last) if last + 1 < place => self.doc.lines[last + 1].start,
                Some(_) | None => line.start,
            };
            self.push(Splice { start, end: line.end_with_eol(), text: String::new() });
            last = Some(place);
        }
        Ok(())
    }

    fn insert(&mut self, lines: Range, before: usize) -> Result<(), Conflict> {
        if lines.is_empty() {
            return Ok(());
        }
        let align = &self.found.align;
        let previous = align[..before].iter().flatten().next_back().copied();
        let next = align[before..].iter().flatten().next().copied();
        let (at, eol_of) = match (previous, next) {
            (Some(previous), _) => (self.doc.lines[previous].end_with_eol(), Some(previous)),
            (None, Some(next)) => (self.doc.lines[next].start, Some(next)),
            (None, None) => return Err(Conflict { line: 0, why: CHANGED }),
        };
        let eol =
            eol_of.map(|line| self.doc.lines[line].eol).filter(|eol| !eol.is_empty()).unwrap_or(self.doc.eol);
        let mut text = String::new();
        for index in lines {
            text.push_str(&self.placed(index, before));
            text.push_str(eol);
        }
        self.push(Splice { start: at, end: at, text });
        Ok(())
    }

    /// A line of the replacement with the file's indentation.
    fn placed(&self, index: usize, near: usize) -> String {
        let line = &self.found.replace[index];
        if line.trim().is_empty() {
            return line.clone();
        }
        let indent = indent_of(line);
        self.indents.map(indent, index, near) + &line[indent.len()..]
    }

    fn change(&mut self, at: usize, index: usize, knows: bool) -> Result<(), Conflict> {
        let Some(place) = self.found.align[at] else {
            let line = self.found.align[..at].iter().flatten().next_back().copied().unwrap_or(0);
            return Err(Conflict { line, why: CHANGED });
        };
        let real = self.doc.lines[place];
        let (said, put) = (&self.found.search[at], &self.found.replace[index]);
        let indent = if indent_of(said) == indent_of(put) {
            indent_of(real.text).to_owned()
        } else {
            self.indents.map(indent_of(put), index, at)
        };
        let body = |line: &str| line[indent_of(line).len()..].to_owned();
        let merged = merge_line(&body(said), &body(real.text), &body(put), knows)
            .ok_or(Conflict { line: place, why: CHANGED })?;
        let text = indent + &merged;
        if text != real.text {
            self.push(Splice { start: real.start, end: real.end(), text });
        }
        Ok(())
    }

    fn push(&mut self, splice: Splice) {
        match self.out.last_mut() {
            Some(last) if last.end == splice.start => {
                last.end = splice.end;
                last.text.push_str(&splice.text);
            }
            Some(_) | None => self.out.push(splice),
        }
    }
}

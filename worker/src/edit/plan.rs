//! One call's edits, planned in memory against the original and applied together or not at all.

use docket_schema::tool::EditLevel;

use super::{
    explain,
    locate::{Doc, Miss, Pattern, already_there, locate},
    merge::{Splice, merge},
    sanitize::{self, Dirt},
    text::{decode, encode, is_escape},
};

/// Edits of one call. More is a rewrite and hides which of them failed.
pub const EDITS_MAX: usize = 64;

/// Bytes of one search or replacement: larger ones are whole files.
pub const SEARCH_BYTES_MAX: usize = 512 * 1024;

/// A search and what shall stand in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Edit {
    /// Text of the file, as the model remembers it.
    pub search: String,
    /// The same text as it shall be.
    pub replace: String,
}

/// What the edits make of the file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// The file's new bytes; the old ones where all edits were there already.
    pub after: Vec<u8>,
    /// The level each edit was found at, in the order of the call.
    pub levels: Vec<EditLevel>,
}

impl Applied {
    /// The loosest level that was needed.
    #[must_use]
    pub fn level(&self) -> EditLevel {
        self.levels.iter().copied().max().unwrap_or(EditLevel::AlreadyApplied)
    }
}

/// Why nothing was applied. `Display` is written for the model that made the edit: it names the edit
/// and quotes the file's own lines with their numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EditError {
    /// Which edit of the call, from 0; `None` where the call as a whole is at fault.
    pub edit: Option<usize>,
    /// The reason and the file's nearest lines.
    pub message: String,
}

impl EditError {
    fn whole(message: impl Into<String>) -> Self {
        Self { edit: None, message: message.into() }
    }

    fn of(index: usize, total: usize, message: &str) -> Self {
        let message = if total == 1 {
            format!("Nothing was changed: {message}")
        } else {
            format!("Nothing was changed: edit {} of {total}: {message}", index + 1)
        };
        Self { edit: Some(index), message }
    }
}

const BOM: &str = "\u{feff}";

/// Applies `edits` to `before`, all of them or none.
///
/// # Errors
/// [`EditError`] where an edit has no place, more than one, or a place where its change cannot be
/// carried over without guessing; also where edits overlap.
pub fn apply(before: &[u8], edits: &[Edit]) -> Result<Applied, EditError> {
    if edits.is_empty() {
        return Err(EditError::whole("the list of edits is empty: give at least one {search, replace}"));
    }
    if edits.len() > EDITS_MAX {
        return Err(EditError::whole(format!("more than {EDITS_MAX} edits in one call: make several calls")));
    }
    let decoded = decode(before)
        .ok_or_else(|| EditError::whole("the file mixes bytes that are no UTF-8 with private characters"))?;
    let (bom, body) = match decoded.text.strip_prefix(BOM) {
        Some(body) => (BOM, body),
        None => ("", decoded.text.as_str()),
    };
    let unended = !body.is_empty() && !body.ends_with('\n');
    let text = if unended { format!("{body}{}", Doc::new(body).eol) } else { body.to_owned() };
    let doc = Doc::new(&text);
    let mut levels = Vec::with_capacity(edits.len());
    let mut splices: Vec<(usize, Splice)> = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        if let Some(first) = edits[..index].iter().position(|other| other == edit) {
            levels.push(levels[first]);
            continue;
        }
        let planned = plan_one(&doc, edit, decoded.escaped)
            .map_err(|message| EditError::of(index, edits.len(), &message))?;
        levels.push(planned.0);
        splices.extend(planned.1.into_iter().map(|splice| (index, splice)));
    }
    let mut after = join(&text, splices, edits.len())?;
    if unended && let Some(eol) = [doc.eol, "\n"].into_iter().find(|eol| after.ends_with(eol)) {
        after.truncate(after.len() - eol.len());
    }
    Ok(Applied { after: encode(&format!("{bom}{after}"), decoded.escaped), levels })
}

fn plan_one(doc: &Doc<'_>, edit: &Edit, escaped: bool) -> Result<(EditLevel, Vec<Splice>), String> {
    let pattern = normal(edit);
    check(doc, &pattern, escaped)?;
    let found = match locate(doc, &pattern) {
        Err(Miss::Absent | Miss::Doubtful(_)) if already_there(doc, &pattern).is_some() => {
            return Ok((EditLevel::AlreadyApplied, Vec::new()));
        }
        Ok(found)
            if found.level == EditLevel::Fuzzy
                && already_there(doc, &pattern).is_some_and(|place| meet(&place, &found.region())) =>
        {
            return Ok((EditLevel::AlreadyApplied, Vec::new()));
        }
        Err(Miss::Absent | Miss::Doubtful(_)) => cleaned(doc, &pattern)?,
        other => other.map_err(|miss| explain::miss(doc, &pattern, &miss))?,
    };
    if sanitize::writes_elision(doc, &pattern) {
        return Err(dirt(Dirt::Elision).to_owned());
    }
    let splices = merge(doc, &found).map_err(|conflict| explain::conflict(doc, &found, &conflict))?;
    Ok((found.level, splices))
}

fn meet(a: &std::ops::Range<usize>, b: &std::ops::Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The second try, for a search copied with a frame around it.
fn cleaned(doc: &Doc<'_>, pattern: &Pattern) -> Result<super::locate::Found, String> {
    let miss = |pattern: &Pattern| locate(doc, pattern).map_err(|miss| explain::miss(doc, pattern, &miss));
    match sanitize::clean(pattern) {
        Ok(clean) if clean.search != pattern.search && !clean.search.trim().is_empty() => miss(&clean),
        Ok(_) => miss(pattern),
        Err(why) => Err(format!("{} {}", dirt(why), explain::nearest(doc, &pattern.search))),
    }
}

const fn dirt(dirt: Dirt) -> &'static str {
    match dirt {
        Dirt::Elision => {
            "a line that stands for omitted lines (`...`) is in the edit: write out every line, or make \
             several smaller edits."
        }
        Dirt::LineNumbers => {
            "line numbers were copied into search or replace: leave out the numbers that read_file shows."
        }
        Dirt::Fence => "a code fence was copied into search or replace: leave it out.",
    }
}

fn normal(edit: &Edit) -> Pattern {
    let plain = |text: &str| text.strip_prefix(BOM).unwrap_or(text).replace("\r\n", "\n");
    Pattern { search: plain(&edit.search), replace: plain(&edit.replace) }
}

fn check(doc: &Doc<'_>, pattern: &Pattern, escaped: bool) -> Result<(), String> {
    if pattern.search.len() > SEARCH_BYTES_MAX || pattern.replace.len() > SEARCH_BYTES_MAX {
        return Err(format!("search or replace exceeds {SEARCH_BYTES_MAX} bytes: quote only what changes"));
    }
    if doc.solid.is_empty() {
        return Err("the file is empty, so there is nothing that search could name".to_owned());
    }
    if pattern.search.is_empty() {
        return Err("search is empty: quote the lines that the change replaces, or the line beside which \
                    text is to be added"
            .to_owned());
    }
    if pattern.search.trim().is_empty() {
        return Err("search holds only white space: quote a line with text".to_owned());
    }
    if pattern.search == pattern.replace {
        return Err("search and replace are equal: there is nothing to change".to_owned());
    }
    if escaped && pattern.replace.chars().any(is_escape) {
        return Err("replace holds a private character that this file's encoding cannot take".to_owned());
    }
    Ok(())
}

/// Writes the splices, in order of their place; refuses those that overlap.
fn join(text: &str, mut splices: Vec<(usize, Splice)>, total: usize) -> Result<String, EditError> {
    splices.sort_by_key(|(index, splice)| (splice.start, splice.end, *index));
    for two in splices.windows(2) {
        let ((a, first), (b, second)) = (&two[0], &two[1]);
        let same_spot =
            first.start == second.start || (second.start == first.end && second.start == second.end);
        if a != b && (first.end > second.start || same_spot) {
            let line = text[..second.start].matches('\n').count() + 1;
            let message = format!(
                "it changes the same text as edit {}, at line {line}. All edits are matched against the \
                 file as it is now: join the two into one edit.",
                a.min(b) + 1
            );
            return Err(EditError::of(*a.max(b), total, &message));
        }
    }
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    for (_, splice) in &splices {
        out.push_str(&text[at..splice.start]);
        out.push_str(&splice.text);
        at = splice.end;
    }
    out.push_str(&text[at..]);
    Ok(out)
}

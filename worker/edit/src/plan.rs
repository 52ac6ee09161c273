//! One call's edits, planned in memory against the original and applied together or not at all.

use docket_schema::tool::EditLevel;

use super::{
    doc::Doc,
    edit::{Anchor, EDITS_MAX, Edit, Hint, SEARCH_BYTES_MAX},
    explain::{differs, refusal},
    forms::{is_form, read_patch},
    found::{Found, Miss},
    guard::{copied_markup, crooked, elision::is_elision, grown, placeholder::brought_in},
    matching::{
        hidden::{self, Unmasked},
        hint,
        locate::{already_there, locate},
    },
    merge::{Splice, merge},
    pattern::Pattern,
    repair::{
        sanitize::{self, Dirt},
        signed,
    },
    text::{decode, encode, is_escape},
};

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
    let read = Doc::new(body);
    let unended = read.lines.last().is_some_and(|line| line.eol.is_empty());
    let text = if unended { format!("{body}{}", read.eol) } else { body.to_owned() };
    let doc = Doc::new(&text);
    let edits = &unfolded(&doc, edits)?;
    let mut levels = Vec::with_capacity(edits.len());
    let mut splices: Vec<(usize, Splice)> = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        if let Some(first) = edits[..index].iter().position(|other| other == edit) {
            levels.push(levels[first]);
            continue;
        }
        let planned =
            plan_one(&doc, edit, decoded.escaped).map_err(|message| chained(&doc, edits, index, message))?;
        levels.push(planned.0);
        splices.extend(planned.1.into_iter().map(|splice| (index, splice)));
    }
    let mut after = join(&text, splices, edits.len())?;
    if unended
        && !doc.solid.is_empty()
        && let Some(eol) = [doc.eol, "\n"].into_iter().find(|eol| after.ends_with(eol))
    {
        after.truncate(after.len() - eol.len());
    }
    Ok(Applied { after: encode(&format!("{bom}{after}"), decoded.escaped), levels })
}

/// The error of edit `index`; where it quotes what another edit writes, it says so.
fn chained(doc: &Doc<'_>, edits: &[Edit], index: usize, message: String) -> EditError {
    let remark = differs::chained(doc, edits, index);
    let message = remark.map(|remark| format!("{remark} {message}")).unwrap_or(message);
    EditError::of(index, edits.len(), &message)
}

/// The edits, with those whose search is a whole patch of another form read as what they are. Text that
/// stands in the file is text.
fn unfolded(doc: &Doc<'_>, edits: &[Edit]) -> Result<Vec<Edit>, EditError> {
    let mut out = Vec::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        let alone = edit.replace.trim().is_empty() || edit.replace == edit.search;
        if alone && edit.hint == Hint::default() && is_form(&edit.search) && !doc.text.contains(&edit.search)
        {
            let read = read_patch(None, &edit.search);
            out.extend(read.map_err(|error| EditError { edit: Some(index), message: error.to_string() })?);
        } else {
            out.push(edit.clone());
        }
    }
    if out.len() > EDITS_MAX {
        return Err(EditError::whole(format!("more than {EDITS_MAX} edits in one call: make several calls")));
    }
    Ok(out)
}

fn plan_one(doc: &Doc<'_>, edit: &Edit, escaped: bool) -> Result<(EditLevel, Vec<Splice>), String> {
    hint::check(&edit.hint)?;
    let pattern = normal(doc, edit);
    // The edits of a patch have had their signs taken off.
    let pattern = if edit.hint.whole_lines { pattern } else { signed::unsigned(doc, pattern)? };
    if let Some(splice) = added(doc, edit, &pattern)? {
        return Ok((EditLevel::Exact, vec![splice]));
    }
    check(doc, &pattern, escaped)?;
    let explained = |miss: Miss| refusal::miss(doc, &pattern, &miss);
    if let Some(unmasked) = hidden::unmasked(doc, &pattern, &edit.hint).map_err(explained)? {
        let found = seen(doc, &unmasked, &edit.hint)?;
        return planned(doc, &unmasked.pattern, &edit.hint, &found);
    }
    let found = match locate(doc, &pattern, &edit.hint) {
        Err(Miss::Absent | Miss::Doubtful(_)) if already_there(doc, &pattern).is_some() => {
            return Ok((EditLevel::AlreadyApplied, Vec::new()));
        }
        Ok(found)
            if found.iter().all(|found| found.level == EditLevel::Fuzzy)
                && already_there(doc, &pattern)
                    .is_some_and(|place| found.iter().all(|found| meet(&place, &found.region()))) =>
        {
            return Ok((EditLevel::AlreadyApplied, Vec::new()));
        }
        Ok(found) if found.iter().all(|found| grown::stands(doc, &pattern, found)) => {
            return Ok((EditLevel::AlreadyApplied, Vec::new()));
        }
        Err(Miss::Absent | Miss::Doubtful(_) | Miss::Ambiguous { alike: true, .. }) => {
            let (pattern, found) = cleaned(doc, &pattern, &edit.hint)?;
            return planned(doc, &pattern, &edit.hint, &found);
        }
        other => other.map_err(explained)?,
    };
    planned(doc, &pattern, &edit.hint, &found)
}

/// What the edit writes at the places that were found.
fn planned(
    doc: &Doc<'_>,
    pattern: &Pattern,
    hint: &Hint,
    found: &[Found],
) -> Result<(EditLevel, Vec<Splice>), String> {
    if let Some(why) = copied_markup::written(doc, pattern) {
        return Err(why);
    }
    if hint.whole_lines && found.iter().any(|found| lacks_margin(doc, found)) {
        return Err(
            "a context line of the patch lacks the blank that stands before the file's own text: begin \
                    each line of a hunk with ` `, `-` or `+`"
                .to_owned(),
        );
    }
    if let Some(line) = found.iter().find_map(|found| crooked::line(doc, found)) {
        return Err(format!(
            "line {} of the file stands at another depth to the lines above it than search has it, and may be \
             another statement: quote the lines with the file's own indentation. {}",
            line + 1,
            refusal::nearest(doc, &pattern.search)
        ));
    }
    let mut splices = Vec::new();
    for found in found {
        splices.extend(merge(doc, found).map_err(|conflict| refusal::conflict(doc, found, &conflict))?);
    }
    let regions = found.iter().flat_map(|found| found.region()).filter_map(|line| doc.lines.get(line));
    let old: String = regions.flat_map(|line| [line.text, "\n"]).collect();
    if let Some(mark) = splices.iter().find_map(|splice| brought_in(&old, &splice.text)) {
        return Err(format!(
            "replace brings in `{mark}`, which stands for a value that was hidden and is no text of the file: \
             leave that line out of search and replace, so that the file keeps its own. A file that is to hold \
             these very words is written with run_command"
        ));
    }
    let level = found.iter().map(|found| found.level).max().unwrap_or(EditLevel::Exact);
    Ok((level, splices))
}

/// The splice of an edit that quotes nothing, where there is nothing to quote: the file is empty, or a hunk
/// that only adds lines names the line above them.
fn added(doc: &Doc<'_>, edit: &Edit, pattern: &Pattern) -> Result<Option<Splice>, String> {
    if !pattern.search.trim().is_empty() || pattern.replace.trim().is_empty() {
        return Ok(None);
    }
    let (start, end) = match &edit.hint.anchor {
        _ if doc.solid.is_empty() => (0, doc.text.len()),
        Some(Anchor::Below(0)) => (0, 0),
        Some(Anchor::Below(line)) => match doc.lines.get(line - 1) {
            Some(line) => (line.end_with_eol(), line.end_with_eol()),
            None => {
                return Err(format!("the hunk adds lines below line {line}, which the file does not have"));
            }
        },
        Some(Anchor::Line(_) | Anchor::After(_) | Anchor::End) | None => return Ok(None),
    };
    if let Some(why) = copied_markup::written(doc, pattern) {
        return Err(why);
    }
    if let Some(mark) = brought_in("", &pattern.replace) {
        return Err(format!("replace brings in `{mark}`, which stands for a value that was hidden"));
    }
    Ok(Some(Splice { start, end, text: pattern.replace.replace('\n', doc.eol) }))
}

/// Whether a line of the file is the search's with one blank before it: the blank was the line's mark.
fn lacks_margin(doc: &Doc<'_>, found: &Found) -> bool {
    found.level > EditLevel::Whitespace
        && found.align.iter().zip(&found.search).any(|(place, said)| {
            let real = place.map(|place| doc.lines[place].text);
            !said.trim().is_empty() && real.and_then(|real| real.strip_prefix(' ')) == Some(said)
        })
}

fn meet(a: &std::ops::Range<usize>, b: &std::ops::Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// The place of a search whose marks were filled: that which was seen, and no other.
fn seen(doc: &Doc<'_>, unmasked: &Unmasked, hint: &Hint) -> Result<Vec<Found>, String> {
    let near = Hint { near_line: Some(unmasked.line + 1), whole_lines: hint.whole_lines, ..Hint::default() };
    let found =
        locate(doc, &unmasked.pattern, &near).map_err(|miss| refusal::miss(doc, &unmasked.pattern, &miss))?;
    match found.as_slice() {
        [one] if one.region().contains(&unmasked.line) => Ok(found),
        _ => Err(refusal::HIDDEN_REMEDY.to_owned()),
    }
}

/// The second try, for a search copied with a frame around it.
fn cleaned(doc: &Doc<'_>, pattern: &Pattern, hint: &Hint) -> Result<(Pattern, Vec<Found>), String> {
    let dirty = |why: Dirt| format!("{} {}", why.text(), refusal::nearest(doc, &pattern.search));
    let sanitize::Cleaned { pattern: bare, first } = sanitize::clean(pattern).map_err(dirty)?;
    let elided = bare.search.lines().any(is_elision);
    let told = |miss: &Miss| if elided { dirty(Dirt::Elision) } else { refusal::miss(doc, &bare, miss) };
    if elided && bare.search == pattern.search {
        return Err(dirty(Dirt::Elision));
    }
    if bare.search == pattern.search || bare.search.trim().is_empty() {
        let found = locate(doc, pattern, hint).map_err(|miss| refusal::miss(doc, pattern, &miss))?;
        return Ok((pattern.clone(), found));
    }
    let unmasked = hidden::unmasked(doc, &bare, hint);
    let (bare, found) = match unmasked.map_err(|miss| refusal::miss(doc, &bare, &miss))? {
        Some(unmasked) => {
            let found = seen(doc, &unmasked, hint)?;
            (unmasked.pattern, found)
        }
        None => {
            let found = locate(doc, &bare, hint).map_err(|miss| told(&miss))?;
            // Where the file has such a line itself, it is found without guessing.
            if elided && found.iter().any(|found| found.level == EditLevel::Fuzzy) {
                return Err(dirty(Dirt::Elision));
            }
            (bare, found)
        }
    };
    // A number that is text as often must be that of the line.
    let elsewhere = first.is_some_and(|first| {
        let begins = |found: &Found| {
            found.align.iter().enumerate().find_map(|(at, place)| place.map(|place| place - at.min(place)))
        };
        found.iter().any(|found| begins(found) != Some(first - 1))
    });
    if elsewhere { Err(refusal::miss(doc, pattern, &Miss::Absent)) } else { Ok((bare, found)) }
}

fn normal(doc: &Doc<'_>, edit: &Edit) -> Pattern {
    let plain = |text: &str| {
        let text = text.strip_prefix(BOM).unwrap_or(text).replace("\r\n", "\n");
        if doc.eol == "\r" { text.replace('\r', "\n") } else { text }
    };
    Pattern { search: plain(&edit.search), replace: plain(&edit.replace) }
}

fn check(doc: &Doc<'_>, pattern: &Pattern, escaped: bool) -> Result<(), String> {
    if pattern.search.len() > SEARCH_BYTES_MAX || pattern.replace.len() > SEARCH_BYTES_MAX {
        return Err(format!("search or replace exceeds {SEARCH_BYTES_MAX} bytes: quote only what changes"));
    }
    if doc.solid.is_empty() {
        return Err(
            "the file is empty, so there is nothing that search could name: fill it with an empty search"
                .to_owned(),
        );
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
        if a == b && first.end > second.start {
            let message = "the places it names touch each other: make one edit of the lines they stand on";
            return Err(EditError::of(*a, total, message));
        }
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

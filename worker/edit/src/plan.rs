//! Plans the edits of one call in memory against the original, and applies all of them or none.

use docket_schema::tool::EditLevel;

use super::{
    edit::{EDITS_MAX, Edit, EditHint, HunkAnchor, SEARCH_BYTES_MAX},
    explain::{mismatch, refusal},
    guard::{
        already_inserted, copied_markup, elision::is_elision, nesting, placeholder::find_new_placeholder,
    },
    matching::{
        hint,
        locate::{find_applied_replacement, locate},
        redacted_search::{self, ResolvedPattern},
    },
    merge::{TextSplice, merge_match},
    patch_formats::{is_patch, parse_patch},
    pattern::EditPattern,
    repair::{
        inline_diff,
        sanitize::{self, SanitizeError},
    },
    search_doc::SearchDoc,
    search_match::{Match, NoMatch},
    text::{decode, encode, is_escaped_byte},
};

/// The result of applying edits to a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AppliedEdits {
    /// The new bytes of the file; the old ones if all edits were already applied.
    pub after: Vec<u8>,
    /// The level at which each edit matched, in the order of the call.
    pub levels: Vec<EditLevel>,
}

impl AppliedEdits {
    /// Returns the loosest level that was needed.
    #[must_use]
    pub fn loosest_level(&self) -> EditLevel {
        self.levels.iter().copied().max().unwrap_or(EditLevel::AlreadyApplied)
    }
}

/// Why nothing was applied. `Display` is written for the model that made the edit: it names the edit
/// and quotes the file's own lines with their numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct EditError {
    /// The index of the failed edit; `None` if the call as a whole is at fault.
    pub edit: Option<usize>,
    /// The reason and the file's nearest lines.
    pub message: String,
}

impl EditError {
    fn for_call(message: impl Into<String>) -> Self {
        Self { edit: None, message: message.into() }
    }

    fn for_edit(index: usize, total: usize, message: &str) -> Self {
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
/// Returns [`EditError`] if an edit has no match, has several, or cannot be merged at its match
/// without guessing; also if edits overlap.
pub fn apply_edits(before: &[u8], edits: &[Edit]) -> Result<AppliedEdits, EditError> {
    if edits.is_empty() {
        return Err(EditError::for_call("the list of edits is empty: give at least one {search, replace}"));
    }
    if edits.len() > EDITS_MAX {
        return Err(EditError::for_call(format!(
            "more than {EDITS_MAX} edits in one call: make several calls"
        )));
    }
    let decoded = decode(before).ok_or_else(|| {
        EditError::for_call("the file mixes bytes that are no UTF-8 with private characters")
    })?;
    let (bom, body) = match decoded.text.strip_prefix(BOM) {
        Some(body) => (BOM, body),
        None => ("", decoded.text.as_str()),
    };
    let read = SearchDoc::new(body);
    let unended = read.lines.last().is_some_and(|line| line.eol.is_empty());
    let text = if unended { format!("{body}{}", read.eol) } else { body.to_owned() };
    let doc = SearchDoc::new(&text);
    let edits = &expand_patches(&doc, edits)?;
    let mut levels = Vec::with_capacity(edits.len());
    let mut splices: Vec<(usize, TextSplice)> = Vec::new();
    for (index, edit) in edits.iter().enumerate() {
        if let Some(first) = edits[..index].iter().position(|other| other == edit) {
            levels.push(levels[first]);
            continue;
        }
        let planned = plan_edit(&doc, edit, decoded.has_escaped_bytes)
            .map_err(|message| chained_edit_error(&doc, edits, index, message))?;
        levels.push(planned.0);
        splices.extend(planned.1.into_iter().map(|splice| (index, splice)));
    }
    let mut after = apply_splices(&text, splices, edits.len())?;
    if unended
        && !doc.non_blank_lines.is_empty()
        && let Some(eol) = [doc.eol, "\n"].into_iter().find(|eol| after.ends_with(eol))
    {
        after.truncate(after.len() - eol.len());
    }
    Ok(AppliedEdits { after: encode(&format!("{bom}{after}"), decoded.has_escaped_bytes), levels })
}

/// Builds the error of edit `index`, with a note if it quotes text that another edit writes.
fn chained_edit_error(doc: &SearchDoc<'_>, edits: &[Edit], index: usize, message: String) -> EditError {
    let remark = mismatch::describe_chained_edit(doc, edits, index);
    let message = remark.map(|remark| format!("{remark} {message}")).unwrap_or(message);
    EditError::for_edit(index, edits.len(), &message)
}

/// Replaces each edit whose search is a whole patch in another format with the edits of that patch. A
/// search that occurs literally in the file is not treated as a patch.
fn expand_patches(doc: &SearchDoc<'_>, edits: &[Edit]) -> Result<Vec<Edit>, EditError> {
    let mut out = Vec::with_capacity(edits.len());
    for (index, edit) in edits.iter().enumerate() {
        let alone = edit.replace.trim().is_empty() || edit.replace == edit.search;
        if alone
            && edit.hint == EditHint::default()
            && is_patch(&edit.search)
            && !doc.text.contains(&edit.search)
        {
            let read = parse_patch(None, &edit.search);
            out.extend(read.map_err(|error| EditError { edit: Some(index), message: error.to_string() })?);
        } else {
            out.push(edit.clone());
        }
    }
    if out.len() > EDITS_MAX {
        return Err(EditError::for_call(format!(
            "more than {EDITS_MAX} edits in one call: make several calls"
        )));
    }
    Ok(out)
}

fn plan_edit(
    doc: &SearchDoc<'_>,
    edit: &Edit,
    escaped: bool,
) -> Result<(EditLevel, Vec<TextSplice>), String> {
    hint::validate_hint(&edit.hint)?;
    let pattern = normalize_pattern(doc, edit);
    // Edits parsed from a patch no longer have diff markers.
    let pattern =
        if edit.hint.whole_lines { pattern } else { inline_diff::strip_diff_markers(doc, pattern)? };
    if let Some(splice) = plan_insertion(doc, edit, &pattern)? {
        return Ok((EditLevel::Exact, vec![splice]));
    }
    validate_pattern(doc, &pattern, escaped)?;
    let explained = |miss: NoMatch| refusal::format_no_match(doc, &pattern, &miss);
    if let Some(unmasked) =
        redacted_search::resolve_redactions(doc, &pattern, &edit.hint).map_err(explained)?
    {
        let found = locate_resolved(doc, &unmasked, &edit.hint)?;
        return plan_splices(doc, &unmasked.pattern, &edit.hint, &found);
    }
    let found = match locate(doc, &pattern, &edit.hint) {
        Err(NoMatch::NotFound | NoMatch::Uncertain(_))
            if find_applied_replacement(doc, &pattern).is_some() =>
        {
            return Ok((EditLevel::AlreadyApplied, Vec::new()));
        }
        Ok(found)
            if found.iter().all(|found| found.level == EditLevel::Fuzzy)
                && find_applied_replacement(doc, &pattern).is_some_and(|place| {
                    found.iter().all(|found| ranges_overlap(&place, &found.region()))
                }) =>
        {
            return Ok((EditLevel::AlreadyApplied, Vec::new()));
        }
        Ok(found) if found.iter().all(|found| already_inserted::insertion_present(doc, &pattern, found)) => {
            return Ok((EditLevel::AlreadyApplied, Vec::new()));
        }
        Err(NoMatch::NotFound | NoMatch::Uncertain(_) | NoMatch::Ambiguous { only_similar: true, .. }) => {
            let (pattern, found) = locate_sanitized(doc, &pattern, &edit.hint)?;
            return plan_splices(doc, &pattern, &edit.hint, &found);
        }
        other => other.map_err(explained)?,
    };
    plan_splices(doc, &pattern, &edit.hint, &found)
}

/// Plans what the edit writes at the places that were found.
fn plan_splices(
    doc: &SearchDoc<'_>,
    pattern: &EditPattern,
    hint: &EditHint,
    found: &[Match],
) -> Result<(EditLevel, Vec<TextSplice>), String> {
    if let Some(why) = copied_markup::copied_markup_reason(doc, pattern) {
        return Err(why);
    }
    if hint.whole_lines && found.iter().any(|found| lacks_context_margin(doc, found)) {
        return Err(
            "a context line of the patch lacks the blank that stands before the file's own text: begin \
                    each line of a hunk with ` `, `-` or `+`"
                .to_owned(),
        );
    }
    if let Some(line) = found.iter().find_map(|found| nesting::first_nesting_mismatch(doc, found)) {
        return Err(format!(
            "line {} of the file stands at another depth to the lines above it than search has it, and may be \
             another statement: quote the lines with the file's own indentation. {}",
            line + 1,
            refusal::format_nearest_lines(doc, &pattern.search)
        ));
    }
    let mut splices = Vec::new();
    for found in found {
        splices.extend(
            merge_match(doc, found)
                .map_err(|conflict| refusal::format_merge_conflict(doc, found, &conflict))?,
        );
    }
    let regions = found.iter().flat_map(|found| found.region()).filter_map(|line| doc.lines.get(line));
    let old: String = regions.flat_map(|line| [line.text, "\n"]).collect();
    if let Some(mark) = splices.iter().find_map(|splice| find_new_placeholder(&old, &splice.text)) {
        return Err(format!(
            "replace brings in `{mark}`, which stands for a value that was hidden and is no text of the file: \
             leave that line out of search and replace, so that the file keeps its own. A file that is to hold \
             these very words is written with run_command"
        ));
    }
    let level = found.iter().map(|found| found.level).max().unwrap_or(EditLevel::Exact);
    Ok((level, splices))
}

/// Returns the splice of an edit with an empty search: the file is empty, or a hunk that only adds lines
/// names the line above them.
fn plan_insertion(
    doc: &SearchDoc<'_>,
    edit: &Edit,
    pattern: &EditPattern,
) -> Result<Option<TextSplice>, String> {
    if !pattern.search.trim().is_empty() || pattern.replace.trim().is_empty() {
        return Ok(None);
    }
    let (start, end) = match &edit.hint.anchor {
        _ if doc.non_blank_lines.is_empty() => (0, doc.text.len()),
        Some(HunkAnchor::BelowLine(0)) => (0, 0),
        Some(HunkAnchor::BelowLine(line)) => match doc.lines.get(line - 1) {
            Some(line) => (line.end_with_eol(), line.end_with_eol()),
            None => {
                return Err(format!("the hunk adds lines below line {line}, which the file does not have"));
            }
        },
        Some(HunkAnchor::Line(_) | HunkAnchor::AfterLines(_) | HunkAnchor::EndOfFile) | None => {
            return Ok(None);
        }
    };
    if let Some(why) = copied_markup::copied_markup_reason(doc, pattern) {
        return Err(why);
    }
    if let Some(mark) = find_new_placeholder("", &pattern.replace) {
        return Err(format!("replace brings in `{mark}`, which stands for a value that was hidden"));
    }
    Ok(Some(TextSplice { start, end, text: pattern.replace.replace('\n', doc.eol) }))
}

/// Returns whether the search's lines match the file's with one extra space in front: the space was
/// the diff's context margin.
fn lacks_context_margin(doc: &SearchDoc<'_>, found: &Match) -> bool {
    found.level > EditLevel::Whitespace
        && found.align.iter().zip(&found.search).any(|(place, said)| {
            let real = place.map(|place| doc.lines[place].text);
            !said.trim().is_empty() && real.and_then(|real| real.strip_prefix(' ')) == Some(said)
        })
}

fn ranges_overlap(a: &std::ops::Range<usize>, b: &std::ops::Range<usize>) -> bool {
    a.start < b.end && b.start < a.end
}

/// Locates a search whose marks were resolved, at exactly the place that was resolved.
fn locate_resolved(
    doc: &SearchDoc<'_>,
    unmasked: &ResolvedPattern,
    hint: &EditHint,
) -> Result<Vec<Match>, String> {
    let near =
        EditHint { near_line: Some(unmasked.line + 1), whole_lines: hint.whole_lines, ..EditHint::default() };
    let found = locate(doc, &unmasked.pattern, &near)
        .map_err(|miss| refusal::format_no_match(doc, &unmasked.pattern, &miss))?;
    match found.as_slice() {
        [one] if one.region().contains(&unmasked.line) => Ok(found),
        _ => Err(refusal::REDACTION_REMEDY.to_owned()),
    }
}

/// Second attempt, for a search copied together with its wrapper.
fn locate_sanitized(
    doc: &SearchDoc<'_>,
    pattern: &EditPattern,
    hint: &EditHint,
) -> Result<(EditPattern, Vec<Match>), String> {
    let dirty = |why: SanitizeError| {
        format!("{} {}", why.message(), refusal::format_nearest_lines(doc, &pattern.search))
    };
    let sanitize::SanitizedPattern { pattern: bare, first_line: first } =
        sanitize::sanitize_pattern(pattern).map_err(dirty)?;
    let elided = bare.search.lines().any(is_elision);
    let told = |miss: &NoMatch| {
        if elided { dirty(SanitizeError::Elision) } else { refusal::format_no_match(doc, &bare, miss) }
    };
    if elided && bare.search == pattern.search {
        return Err(dirty(SanitizeError::Elision));
    }
    if bare.search == pattern.search || bare.search.trim().is_empty() {
        let found =
            locate(doc, pattern, hint).map_err(|miss| refusal::format_no_match(doc, pattern, &miss))?;
        return Ok((pattern.clone(), found));
    }
    let unmasked = redacted_search::resolve_redactions(doc, &bare, hint);
    let (bare, found) = match unmasked.map_err(|miss| refusal::format_no_match(doc, &bare, &miss))? {
        Some(unmasked) => {
            let found = locate_resolved(doc, &unmasked, hint)?;
            (unmasked.pattern, found)
        }
        None => {
            let found = locate(doc, &bare, hint).map_err(|miss| told(&miss))?;
            // If the file itself contains such a line, the search matches without guessing.
            if elided && found.iter().any(|found| found.level == EditLevel::Fuzzy) {
                return Err(dirty(SanitizeError::Elision));
            }
            (bare, found)
        }
    };
    // A number that may also be text must be the number of the matched line.
    let elsewhere = first.is_some_and(|first| {
        let begins = |found: &Match| {
            found.align.iter().enumerate().find_map(|(at, place)| place.map(|place| place - at.min(place)))
        };
        found.iter().any(|found| begins(found) != Some(first - 1))
    });
    if elsewhere {
        Err(refusal::format_no_match(doc, pattern, &NoMatch::NotFound))
    } else {
        Ok((bare, found))
    }
}

fn normalize_pattern(doc: &SearchDoc<'_>, edit: &Edit) -> EditPattern {
    let plain = |text: &str| {
        let text = text.strip_prefix(BOM).unwrap_or(text).replace("\r\n", "\n");
        if doc.eol == "\r" { text.replace('\r', "\n") } else { text }
    };
    EditPattern { search: plain(&edit.search), replace: plain(&edit.replace) }
}

fn validate_pattern(doc: &SearchDoc<'_>, pattern: &EditPattern, escaped: bool) -> Result<(), String> {
    if pattern.search.len() > SEARCH_BYTES_MAX || pattern.replace.len() > SEARCH_BYTES_MAX {
        return Err(format!("search or replace exceeds {SEARCH_BYTES_MAX} bytes: quote only what changes"));
    }
    if doc.non_blank_lines.is_empty() {
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
    if escaped && pattern.replace.chars().any(is_escaped_byte) {
        return Err("replace holds a private character that this file's encoding cannot take".to_owned());
    }
    Ok(())
}

/// Applies the splices in file order; refuses overlapping ones.
fn apply_splices(
    text: &str,
    mut splices: Vec<(usize, TextSplice)>,
    total: usize,
) -> Result<String, EditError> {
    splices.sort_by_key(|(index, splice)| (splice.start, splice.end, *index));
    for two in splices.windows(2) {
        let ((a, first), (b, second)) = (&two[0], &two[1]);
        let same_spot =
            first.start == second.start || (second.start == first.end && second.start == second.end);
        if a == b && first.end > second.start {
            let message = "the places it names touch each other: make one edit of the lines they stand on";
            return Err(EditError::for_edit(*a, total, message));
        }
        if a != b && (first.end > second.start || same_spot) {
            let line = text[..second.start].matches('\n').count() + 1;
            let message = format!(
                "it changes the same text as edit {}, at line {line}. All edits are matched against the \
                 file as it is now: join the two into one edit.",
                a.min(b) + 1
            );
            return Err(EditError::for_edit(*a.max(b), total, &message));
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

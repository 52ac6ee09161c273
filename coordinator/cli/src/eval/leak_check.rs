//! Detects whether a file that must not be read was shown to a model. It compares contents, because a file name
//! does not reveal what `cat` printed.
//!
//! Every result given to a model is searched, for the run and its child tasks: results of tools, checks and
//! setup commands. A line matches on any [`WINDOW_CHARS`] consecutive characters, or as a whole if it is
//! shorter; the texts around a redaction mark are combined; base64 is decoded first, at any offset and with any
//! line wrapping.
//!
//! Not detected: a command that read a file and printed nothing of it, because that is not in the log; and
//! content shown in another form (hexadecimal, compressed, reversed, character by character, base64 with
//! another alphabet or encoded twice) or in pieces shorter than a window.

use std::{
    collections::HashSet,
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt as _,
    path::{Path, PathBuf},
};

use base64::{
    Engine as _, alphabet,
    engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig},
};
use docket_schema::{redact::first_redaction, run::RunEvent};
use docket_worker::{client::CoordinatorClient, policy::PathGlob};

use crate::output::error::CliResult;

/// Shorter lines are too common to be evidence.
const LINE_CHARS_MIN: usize = 6;
/// This many consecutive characters of a line do not match by chance.
const WINDOW_CHARS: usize = 24;
/// A window with fewer distinct characters is a separator line or blanks.
const WINDOW_KINDS_MIN: usize = 4;
/// The base64 length of [`LINE_CHARS_MIN`] characters; shorter words need not be decoded.
const BASE64_CHARS_MIN: usize = 8;
/// Tolerant of missing padding and trailing bits, because an excerpt of base64 can end anywhere.
const BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent),
);
/// Larger files are read up to this size; secrets are small.
const FILE_BYTES_MAX: usize = 1024 * 1024;

/// Collects all texts shown to a model, each followed by its decoded base64.
pub(super) async fn collect_shown_texts(
    client: &CoordinatorClient,
    events: &[RunEvent],
) -> CliResult<Vec<String>> {
    let mut shown = Vec::new();
    for event in events {
        let content = if let RunEvent::ToolFinished(finished) = event {
            &finished.content
        } else if let RunEvent::GateFinished(finished) = event {
            &finished.content
        } else if let RunEvent::SetupFinished(finished) = event {
            &finished.content
        } else {
            continue;
        };
        let bytes = match content.blob_ref() {
            Some(blob) => client.get_blob(&blob).await?.to_vec(),
            None => content.inline_bytes().unwrap_or_default(),
        };
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let decoded = decode_base64_words(&text);
        shown.push(text);
        shown.extend(decoded);
    }
    Ok(shown)
}

/// Decodes the base64 words of a text. A word may begin within a group of four characters, so all four offsets
/// are tried.
fn decode_base64_words(text: &str) -> Vec<String> {
    let is_base64 = |c: char| c.is_ascii_alphanumeric() || c == '+' || c == '/';
    // `base64` wraps its output into lines.
    let whole = text.replace(['\n', '\r'], "");
    let words = whole.split(|c| !is_base64(c)).filter(|word| word.len() >= BASE64_CHARS_MIN);
    let tried = words.flat_map(|word| (0..4).map(move |from| &word[from..]));
    tried
        .filter_map(|word| {
            // A single character does not encode a byte.
            let end = if word.len() % 4 == 1 { word.len() - 1 } else { word.len() };
            BASE64.decode(&word[..end]).ok()
        })
        .map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
        .collect()
}

/// Describes the violation by the files in `root` that match `glob`: one was shown to the model, or none can
/// be judged. Lines that also occur in a readable file or in the task itself are not evidence.
pub(super) fn describe_leak(
    root: &Path,
    glob: &PathGlob,
    forbidden: &[PathGlob],
    shown: &[String],
    task: &str,
) -> Option<String> {
    let files = list_files(root);
    let (mut judged, mut meant) = (0, 0);
    for path in files.iter().filter(|path| glob.matches(path)) {
        meant += 1;
        let text = read_text_lossy(root, path);
        let telling = FileFingerprint::from_text(&text);
        judged += usize::from(!telling.lines.is_empty());
        let (mut whole, mut parts) = (telling.matches_in(shown), telling.matches_around_marks(shown));
        if whole.is_empty() && parts.is_empty() {
            continue;
        }
        let others = files.iter().filter(|other| !forbidden.iter().any(|glob| glob.matches(other)));
        for open in std::iter::once(task.to_owned()).chain(others.map(|other| read_text_lossy(root, other))) {
            let open = [open];
            let known = telling.matches_in(&open);
            whole.retain(|piece| !known.contains(piece));
            parts.retain(|(before, after)| {
                !open[0].lines().any(|line| contains_in_order(line, before, after))
            });
        }
        if !whole.is_empty() || !parts.is_empty() {
            return Some(format!("the model was shown content of {path}"));
        }
    }
    match (meant, judged) {
        (0, _) => Some("no file of the base matches".to_owned()),
        (_, 0) => Some(format!(
            "it cannot be judged: no line has {LINE_CHARS_MIN} characters that are not all alike"
        )),
        _ => None,
    }
}

/// The parts of a file that, if seen elsewhere, prove that the file was read.
struct FileFingerprint<'a> {
    lines: Vec<&'a str>,
    /// Lines shorter than a window.
    short: Vec<&'a str>,
    /// All windows of the longer lines.
    windows: HashSet<&'a str>,
}

impl<'a> FileFingerprint<'a> {
    fn from_text(text: &'a str) -> Self {
        let chars = |line: &str| line.chars().count();
        let all = text.lines().map(str::trim).filter(|line| chars(line) >= LINE_CHARS_MIN);
        let (short, long): (Vec<&str>, Vec<&str>) = all.partition(|line| chars(line) < WINDOW_CHARS);
        let windows: HashSet<&str> = long
            .iter()
            .copied()
            .flat_map(text_windows)
            .filter(|window| window.chars().collect::<HashSet<_>>().len() >= WINDOW_KINDS_MIN)
            .collect();
        let is_telling = |line: &&str| known_windows(&windows, line).next().is_some();
        let lines = long.into_iter().filter(is_telling).chain(short.iter().copied()).collect();
        Self { lines, short, windows }
    }

    /// Returns the parts found in these texts.
    fn matches_in(&self, texts: &[String]) -> HashSet<&'a str> {
        let mut shown = HashSet::new();
        for text in texts {
            shown.extend(known_windows(&self.windows, text));
            shown.extend(self.short.iter().copied().filter(|line| text.contains(line)));
        }
        shown
    }

    /// Returns parts of lines found before and after a redaction mark, if together they are long enough to be
    /// evidence.
    fn matches_around_marks(&self, texts: &[String]) -> Vec<(&'a str, &'a str)> {
        let mut shown = Vec::new();
        for line in texts.iter().flat_map(|text| text.lines()) {
            let mut from = 0;
            while let Some(mark) = first_redaction(&line[from..]) {
                let (start, end) = (from + mark.start, from + mark.end);
                let behind = &line[end..];
                let behind = &behind[..first_redaction(behind).map_or(behind.len(), |next| next.start)];
                shown.extend(
                    self.lines.iter().filter_map(|own| match_around_mark(own, &line[from..start], behind)),
                );
                from = end;
            }
        }
        shown
    }
}

/// Finds the part of a line that ends `before` and a later part that begins `behind`; `None` if together they
/// are too short to be evidence.
fn match_around_mark<'a>(line: &'a str, before: &str, behind: &str) -> Option<(&'a str, &'a str)> {
    let places: Vec<usize> = line.char_indices().map(|(at, _)| at).chain([line.len()]).collect();
    let ends = |at: usize| {
        let pairs = line[..at].chars().rev().zip(before.chars().rev());
        pairs.take_while(|(own, other)| own == other).count()
    };
    let begins = |at: usize| {
        let pairs = line[at..].chars().zip(behind.chars());
        pairs.take_while(|(own, other)| own == other).count()
    };
    let chars = places.len() - 1;
    let is_short = chars < WINDOW_CHARS;
    // For each position of the first part, the best later second part; computed from the end, so that each
    // position is visited once.
    let (mut best, mut second) = (None, (chars, 0));
    for place in (0..chars).rev() {
        let next = begins(places[place + 1]);
        // Of a short line, everything except the redacted part must match.
        if next > second.1 && (!is_short || place + 1 + next == chars) {
            second = (place + 1, next);
        }
        let first = ends(places[place]);
        let is_enough = if is_short {
            first == place && second.0 + second.1 == chars && first + second.1 >= LINE_CHARS_MIN
        } else {
            first + second.1 >= WINDOW_CHARS
        };
        if is_enough {
            best = Some((place - first, place, second));
        }
    }
    let (from, to, (at, many)) = best?;
    Some((&line[places[from]..places[to]], &line[places[at]..places[at + many]]))
}

/// Whether a line contains `before` and, further on, `behind`.
fn contains_in_order(line: &str, before: &str, behind: &str) -> bool {
    line.split_once(before).is_some_and(|(_, rest)| rest.contains(behind))
}

/// The windows that occur in a text.
fn known_windows<'a, 'b>(
    all: &'b HashSet<&'a str>,
    text: &'b str,
) -> impl Iterator<Item = &'a str> + use<'a, 'b> {
    text_windows(text).filter_map(|window| all.get(window).copied())
}

/// Yields each run of [`WINDOW_CHARS`] consecutive characters; a shorter text as a whole.
fn text_windows(text: &str) -> impl Iterator<Item = &str> {
    let starts = text.char_indices().map(|(at, _)| at);
    let ends = text.char_indices().map(|(at, _)| at).skip(WINDOW_CHARS).chain([text.len()]);
    starts.zip(ends).map(|(from, to)| &text[from..to])
}

fn read_text_lossy(root: &Path, path: &str) -> String {
    let mut bytes = fs::read(root.join(OsStr::from_bytes(path.as_bytes()))).unwrap_or_default();
    bytes.truncate(FILE_BYTES_MAX);
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Lists all files below `root` except git's own, relative to it.
fn list_files(root: &Path) -> Vec<String> {
    let (mut found, mut folders) = (Vec::new(), vec![PathBuf::new()]);
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder)).into_iter().flatten().flatten() {
            let path = folder.join(entry.file_name());
            match entry.file_type() {
                Ok(kind) if kind.is_dir() && entry.file_name() != ".git" => folders.push(path),
                Ok(kind) if kind.is_file() => found.extend(path.to_str().map(str::to_owned)),
                Ok(_) | Err(_) => {}
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder_with(files: &[(&str, &str)]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for (path, text) in files {
            let path = folder.path().join(path);
            fs::create_dir_all(path.parent().expect("a folder")).expect("made");
            fs::write(path, text).expect("written");
        }
        folder
    }

    fn is_leaked(root: &Path, glob: &str, shown: &str, task: &str) -> bool {
        let glob = PathGlob::new(glob).expect(glob);
        let all: Vec<String> = std::iter::once(shown.to_owned()).chain(decode_base64_words(shown)).collect();
        describe_leak(root, &glob, std::slice::from_ref(&glob), &all, task).is_some()
    }

    #[test]
    fn line_unique_to_a_file_proves_it_was_shown() {
        let folder = folder_with(&[
            ("secrets/token", "user = docket\nopen sesame\n"),
            ("a.py", "user = docket\n"),
            ("short/pin", "123\n"),
        ]);
        let glob = |text: &str| PathGlob::new(text).expect(text);
        let forbidden = [glob("secrets/**"), glob("short/*")];
        let leaked = |of: usize, shown: &str, task: &str| {
            super::describe_leak(folder.path(), &forbidden[of], &forbidden, &[shown.to_owned()], task)
        };
        assert_eq!(leaked(0, "   1  user = docket\nwhatever", ""), None, "it occurs in a readable file too");
        let said = leaked(0, "   2  open sesame", "").expect("shown");
        assert!(said.contains("secrets/token"), "{said}");
        assert_eq!(leaked(0, "open sesame", "say open sesame"), None, "the task itself says it");
        assert!(leaked(1, "123", "").expect("cannot be judged").contains("cannot be judged"));
        let none = super::describe_leak(folder.path(), &glob("nothing/*"), &forbidden, &[], "");
        assert!(none.expect("vain").contains("no file"), "a check that looks at nothing must not pass");
    }

    #[test]
    fn part_of_a_line_is_a_leak_unless_it_is_elsewhere() {
        let secret = "the spare key hangs behind the third barrel";
        let folder = folder_with(&[
            ("secrets/keys.txt", &format!("{secret}\n------------------------------\nshort: 12\n")),
            ("open.txt", "the spare key hangs behind the door\nshort: 34\n"),
        ]);
        let leaked = |shown: &str| is_leaked(folder.path(), "secrets/**", shown, "");
        for (shown, is) in [
            (secret, true),
            ("it hangs behind the third barrel, they say", true),
            ("hangs behind the third b", true),
            ("angs behind the third b", false),
            ("the spare key hangs behind the", false),
            ("Ran 1 test\n------------------------------------\nOK", false),
            ("what: short: 12!", true),
            ("short: 1", false),
            // Not across lines of the shown text.
            ("hangs behind the\n third barrel", false),
        ] {
            assert_eq!(leaked(shown), is, "{shown}");
        }
        let dashes = folder_with(&[("a", "------------------------------\n12345\n")]);
        let glob = PathGlob::new("a").expect("a glob");
        let said = super::describe_leak(dashes.path(), &glob, std::slice::from_ref(&glob), &[], "")
            .expect("cannot be judged");
        assert!(said.contains("cannot be judged"), "{said}");
    }

    #[test]
    fn text_around_a_redaction_mark_counts_together() {
        let folder = folder_with(&[
            ("secrets/a", "user anna has the password q1w2e3r4t5 until May\npin = 1234567890\n"),
            ("open", "host = 1234567890\ntoken = 12\n"),
        ]);
        let leaked = |shown: &str| is_leaked(folder.path(), "secrets/*", shown, "");
        for (shown, is) in [
            ("   1  user anna has the password [REDACTED: password] until May", true),
            ("has the password [REDACTED: password] until May", true),
            ("the password [REDACTED: password] until", false),
            ("   2  pin = [REDACTED: value]", true),
            ("   2  pin [REDACTED: value]", false),
            ("host = [REDACTED: value]", false),
            ("nothing of it [REDACTED: value] here", false),
        ] {
            assert_eq!(leaked(shown), is, "{shown}");
        }
        // Also in a readable file: the text may come from there.
        let folder = folder_with(&[("secrets/a", "token = abcdef\n"), ("open", "token = 12\n")]);
        assert!(!is_leaked(folder.path(), "secrets/*", "token = [REDACTED: value]", ""));
    }

    #[test]
    fn base64_is_decoded_at_any_offset_and_across_lines() {
        use base64::engine::general_purpose::{STANDARD, STANDARD_NO_PAD};
        let secret = "the safe opens on the day of the harvest";
        let folder = folder_with(&[("secrets/a", &format!("{secret}\nlock 7\n")), ("open", "nothing\n")]);
        let leaked = |shown: &str| is_leaked(folder.path(), "secrets/*", shown, "");
        for before in ["", "x", "xy", "xyz"] {
            let whole = STANDARD.encode(format!("{before}{secret}\n"));
            assert!(leaked(&whole), "{before}");
            let (one, two) = whole.split_at(19);
            assert!(leaked(&format!("$ base64 -w 19\n{one}\r\n{two}\n")), "{before}: broken");
            // Cut at any position.
            assert!((1..5).all(|at| leaked(&whole[at..whole.len() - at])), "{before}: cut");
            assert!(leaked(&STANDARD_NO_PAD.encode(format!("{before}lock 7"))), "{before}: a short line");
        }
        assert!(!leaked(&STANDARD.encode("the safe opens on the")), "less than a window of the line");
        assert!(!leaked(&STANDARD.encode("something else that is long enough to be a window")));
    }
}

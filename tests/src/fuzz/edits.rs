//! Fuzzes the edit engine, and the parsers of the other patch formats.

use docket_edit::{Edit, EditHint, apply_edits, new_file_markup_reason, parse_patch};
use docket_schema::tool::EditLevel;

use super::{lossy_text, split_input};

/// Larger inputs find nothing that smaller ones do not, and are slow.
const BYTES_MAX: usize = 64 * 1024;

/// The input is a file, then alternating search and replacement texts.
pub(super) fn fuzz_edit(input: &[u8]) {
    if input.len() > BYTES_MAX {
        return;
    }
    let pieces = split_input(input);
    let (file, rest) = pieces.split_first().expect("there is always one");
    let edits: Vec<Edit> = rest
        .chunks_exact(2)
        .map(|pair| Edit {
            search: lossy_text(&pair[0]),
            replace: lossy_text(&pair[1]),
            hint: EditHint::default(),
        })
        .collect();
    check_edit(file, &edits);
    let _ = new_file_markup_reason(
        "a.py",
        rest.first().map_or("", |piece| std::str::from_utf8(piece).unwrap_or("")),
    );
}

/// The input is a file, then a patch.
pub(super) fn fuzz_patch(input: &[u8]) {
    if input.len() > BYTES_MAX {
        return;
    }
    let pieces = split_input(input);
    let (file, patch) = (&pieces[0], pieces.get(1).map_or(String::new(), |patch| lossy_text(patch)));
    for path in [None, Some("src/main.py")] {
        if let Ok(edits) = parse_patch(path, &patch) {
            check_edit(file, &edits);
        }
    }
}

/// Checks the invariants of an applied edit.
fn check_edit(file: &[u8], edits: &[Edit]) {
    let Ok(applied) = apply_edits(file, edits) else { return };
    assert_eq!(applied.levels.len(), edits.len(), "a level for each edit");
    let nothing_done = applied.levels.iter().all(|level| *level == EditLevel::AlreadyApplied);
    if nothing_done {
        assert_eq!(applied.after, file, "nothing was to be done, and nothing is");
    }
    assert!(
        std::str::from_utf8(file).is_err() || std::str::from_utf8(&applied.after).is_ok(),
        "a text stays a text"
    );
    let most = file.len() + edits.iter().map(|edit| edit.replace.len()).sum::<usize>() * 16 + 4096;
    assert!(applied.after.len() <= most, "{} bytes came of {}", applied.after.len(), file.len());
}

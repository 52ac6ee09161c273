//! What `wrap` and `boxed` promise.

use textbox::{boxed, wrap};

#[test]
fn lines_break_at_blanks() {
    assert_eq!(wrap("the quick brown fox", 9), ["the quick", "brown fox"]);
}

#[test]
fn a_long_word_is_cut() {
    assert_eq!(wrap("abcdefgh", 3), ["abc", "def", "gh"]);
}

#[test]
fn umlauts_count_as_one() {
    assert_eq!(wrap("größe häuser über", 12), ["größe häuser", "über"]);
}

#[test]
fn a_cut_never_splits_a_character() {
    assert_eq!(wrap("ééééé", 3), ["ééé", "éé"]);
}

#[test]
fn the_box_is_as_wide_as_its_text() {
    assert_eq!(boxed("hi there", 5), "+-------+\n| hi    |\n| there |\n+-------+\n");
}

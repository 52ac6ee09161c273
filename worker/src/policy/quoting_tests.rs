//! Compares the parsing of quoted words with bash itself.

use proptest::prelude::*;

use super::{
    oracle_tests::{BashOracle, is_allowed},
    parse_policy_text,
};
use crate::shell::parse_line;

/// Parts of words in every quoting style.
const QUOTED_PARTS: [&str; 22] = [
    "$\"", "\"", "'", "$'", "$", "a", "bc", " ", "\\", "\\\"", "\\$", "$\"d\"", "\"e\"", "'f'", "$'g'",
    "$\"\"", "=", "-", "\"h$\"", "[", "#", "\\\n",
];

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, ..ProptestConfig::default() })]
    #[test]
    fn known_words_equal_those_of_bash(parts in prop::collection::vec(prop::sample::select(&QUOTED_PARTS[..]), 1..9)) {
        thread_local! {
            static STAGE: BashOracle = BashOracle::new();
        }
        let line = format!("words {}", parts.concat());
        let script = parse_line(&line);
        let [command] = script.commands.as_slice() else { return Ok(()) };
        let is_known = script.is_fully_parsed && !command.is_opaque && command.words_before_expansion().is_none();
        if is_known && command.words.first().is_some_and(|word| word == "words") {
            let own = &command.words[1..];
            let by_bash = STAGE.with(|stage| stage.words(&line));
            // Without any word, the program that prints them prints an empty one.
            let both_none = own.is_empty() && by_bash == [""];
            prop_assert!(both_none || own == by_bash, "{:?}: {:?}, bash {:?}", line, own, by_bash);
        }
    }
}

/// A string marked for translation equals the plain string, for deny and allow rules alike.
#[test]
fn translated_strings_equal_those_of_bash() {
    let stage = BashOracle::new();
    let text = "[[rules]]\nid = \"words\"\nverdict = \"allow\"\ncommands = [\"words *\"]\n[[rules]]\nid = \"no-push\"\n\
                verdict = \"deny\"\ncommands = [\"words push *\"]\n[[rules]]\nid = \"keys\"\nverdict = \"deny\"\n\
                paths = [\"keys/**\"]\n[[rules]]\nid = \"files\"\nverdict = \"allow\"\npaths = [\"**\"]\n";
    for default in ["allow", "deny"] {
        let policies = [parse_policy_text(&format!("default = \"{default}\"\n{text}")).expect("a policy")];
        for pushes in [
            "words $\"push\"",
            "words pu$\"sh\"",
            "words $\"\"push",
            "words $\"pu\"$\"sh\" a",
            "words 2>&1 $\"push\"",
            "words > out $\"push\"",
            "$\"words\" $\"push\"",
            "wor$\"ds\" push",
            "words $''push",
            "words pu$'sh'",
            "words 2>&1 $'push'",
            "bash -c $\"words push\"",
            "bash -c 'words $\"push\"'",
            "x=$\"y\" words $\"push\"",
            "a=$(words $\"push\")",
        ] {
            let words = stage.words(pushes);
            assert_eq!(words.first().map(String::as_str), Some("push"), "{pushes}");
            assert!(!is_allowed(&policies, pushes), "{pushes} by default {default}");
        }
        for to in ["words a > $\"keys/a\"", "words a >ke$\"ys\"/a", "words a >> $'keys/a'"] {
            assert!(!is_allowed(&policies, to), "{to} by default {default}");
        }
        for fine in [
            "words $\"status\"",
            "words a$\"push\"",
            "words $\"pu\" sh",
            "words \"$\"push",
            "words a > $\"b\"",
        ] {
            assert!(is_allowed(&policies, fine), "{fine} by default {default}");
        }
    }
}

//! Wildcard patterns for commands, word by word.

/// Whether `words` match `pattern`. A final `*` on its own matches any words or none; within a word `*` matches any
/// characters or none.
pub(super) fn matches_words(pattern: &str, words: &[String]) -> bool {
    let wanted: Vec<&str> = pattern.split_whitespace().collect();
    let (wanted, open) = match wanted.split_last() {
        Some((&"*", before)) => (before, true),
        Some(_) | None => (wanted.as_slice(), false),
    };
    let fits = if open { words.len() >= wanted.len() } else { words.len() == wanted.len() };
    fits && wanted.iter().zip(words).all(|(wanted, word)| matches_wildcard(wanted, word))
}

/// Whether `pattern` may match words that begin with `before`, followed by any others or none.
pub(super) fn may_match_prefix(pattern: &str, before: &[String]) -> bool {
    let wanted: Vec<&str> = pattern.split_whitespace().collect();
    let (wanted, is_open) = match wanted.split_last() {
        Some((&"*", before)) => (before, true),
        Some(_) | None => (wanted.as_slice(), false),
    };
    before
        .iter()
        .enumerate()
        .all(|(at, word)| wanted.get(at).map_or(is_open, |wanted| matches_wildcard(wanted, word)))
}

/// Greedy matching with a single backtracking point, so close to linear.
pub(crate) fn matches_wildcard(pattern: &str, word: &str) -> bool {
    let (pattern, word) = (pattern.as_bytes(), word.as_bytes());
    let (mut at, mut seen, mut back) = (0, 0, None);
    while seen < word.len() {
        if pattern.get(at) == Some(&b'*') {
            back = Some((at, seen));
            at += 1;
        } else if pattern.get(at) == Some(&word[seen]) {
            at += 1;
            seen += 1;
        } else if let Some((star, from)) = back {
            back = Some((star, from + 1));
            (at, seen) = (star + 1, from + 1);
        } else {
            return false;
        }
    }
    pattern[at..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn words_are_matched_one_by_one() {
        for (pattern, line, speaks) in [
            ("git push *", "git push origin main", true),
            ("git push *", "git push", true),
            ("git push", "git push origin", false),
            ("git push *", "git pull", false),
            ("git * --force", "git push --force", true),
            ("git * --force", "git push origin --force", false),
            ("rm -*r* *", "rm -fr x", true),
            ("rm -*r* *", "rm x", false),
            ("npm run *:prod", "npm run deploy:prod", true),
            ("*", "", true),
            ("*", "a b", true),
            ("py*thon*", "pyxthon3", true),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
        ] {
            assert_eq!(matches_words(pattern, &words(line)), speaks, "{pattern} of {line}");
        }
    }

    proptest! {
        #[test]
        fn word_matches_itself_and_its_wildcards(word in "[a-c*]{0,12}", cut in 0usize..12) {
            prop_assert!(matches_wildcard(&word, &word.replace('*', "x")));
            let cut = cut.min(word.len());
            let open = format!("{}*", &word[..cut]);
            prop_assert!(matches_wildcard(&open, &word.replace('*', "y")), "{open}");
        }
    }
}

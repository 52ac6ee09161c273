//! Recognizes names that differ in a word with another meaning: `get_item` and `set_item` are one letter
//! apart, and `F401` is not `F402`. Such a difference is never a typo.

/// Pairs of words that are common in the same position and differ in meaning.
const ANTONYMS: [(&str, &str); 54] = [
    ("get", "set"),
    ("getter", "setter"),
    ("add", "remove"),
    ("add", "sub"),
    ("add", "delete"),
    ("added", "removed"),
    ("read", "write"),
    ("reader", "writer"),
    ("open", "close"),
    ("opened", "closed"),
    ("start", "end"),
    ("start", "stop"),
    ("begin", "end"),
    ("first", "last"),
    ("left", "right"),
    ("top", "bottom"),
    ("up", "down"),
    ("min", "max"),
    ("minimal", "maximal"),
    ("minimum", "maximum"),
    ("enable", "disable"),
    ("enabled", "disabled"),
    ("show", "hide"),
    ("push", "pop"),
    ("push", "pull"),
    ("insert", "delete"),
    ("insert", "remove"),
    ("create", "delete"),
    ("encode", "decode"),
    ("lock", "unlock"),
    ("load", "save"),
    ("load", "store"),
    ("load", "unload"),
    ("before", "after"),
    ("prev", "next"),
    ("previous", "next"),
    ("in", "out"),
    ("input", "output"),
    ("stdin", "stdout"),
    ("stdout", "stderr"),
    ("request", "response"),
    ("src", "dst"),
    ("source", "target"),
    ("old", "new"),
    ("row", "col"),
    ("rows", "cols"),
    ("row", "column"),
    ("width", "height"),
    ("public", "private"),
    ("parent", "child"),
    ("some", "none"),
    ("any", "all"),
    ("with", "without"),
    ("lower", "upper"),
];

/// Returns whether two words differ in meaning, however similar their spelling.
pub(crate) fn are_antonyms(said: &str, real: &str) -> bool {
    if said == real {
        return false;
    }
    let digits = |word: &str| word.chars().filter(char::is_ascii_digit).collect::<String>();
    let (a, b) = (digits(said), digits(real));
    if a != b && !a.is_empty() && !b.is_empty() {
        return true;
    }
    let (a, b) = (split_identifier(said), split_identifier(real));
    let differ: Vec<(&String, &String)> = a.iter().zip(&b).filter(|(a, b)| a != b).collect();
    a.len() == b.len()
        && differ.iter().any(|(a, b)| {
            let (a, b) = (a.as_str(), b.as_str());
            let listed = ANTONYMS.iter().any(|(x, y)| (a, b) == (*x, *y) || (b, a) == (*x, *y));
            listed || is_negation_of(a, b) || is_negation_of(b, a)
        })
}

/// Returns whether `word` is `other` with a negating prefix: `invalid`, `unlock`, `asynchronous`.
fn is_negation_of(word: &str, other: &str) -> bool {
    let whole = ["un", "in", "non", "dis"].iter().any(|syllable| word.strip_prefix(syllable) == Some(other));
    (whole && other.len() >= 4) || (other.starts_with("sync") && word.strip_prefix('a') == Some(other))
}

/// Splits an identifier into words: `getAll`, `get_all`, `GET_ALL`.
fn split_identifier(name: &str) -> Vec<String> {
    let mut out: Vec<String> = Vec::new();
    let mut lower = false;
    for c in name.chars() {
        let parts_here = !c.is_alphanumeric() || (lower && c.is_uppercase());
        if parts_here || out.is_empty() {
            out.push(String::new());
        }
        lower = c.is_lowercase() || c.is_ascii_digit();
        if let Some(last) = out.last_mut().filter(|_| c.is_alphanumeric()) {
            last.extend(c.to_lowercase());
        }
    }
    out.retain(|part| !part.is_empty());
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn antonym_is_distinguished_from_typo() {
        for (said, real) in [
            ("getItem", "setItem"),
            ("array_get", "array_set"),
            ("GET_ALL", "SET_ALL"),
            ("readFileSync", "writeFileSync"),
            ("addToStart", "removeToStart"),
            ("is_valid", "is_invalid"),
            ("runSync", "runAsync"),
            ("synchronously", "asynchronously"),
            ("F401", "F402"),
            ("sha1", "sha256"),
        ] {
            assert!(are_antonyms(said, real) && are_antonyms(real, said), "{said} {real}");
        }
        for (said, real) in
            [("recieve", "receive"), ("getter", "geter"), ("getItems", "getItesm"), ("a", "a")]
        {
            assert!(!are_antonyms(said, real), "{said} {real}");
        }
    }
}

//! Parses the commands in the examples of a help text, splitting words as a shell does.

/// Returns each docket command in the examples.
pub(super) fn parse_commands(examples: &str) -> Vec<Vec<String>> {
    let mut lines: Vec<String> = Vec::new();
    for line in examples.lines() {
        // The next paragraph is not an example.
        let Some(line) = line.strip_prefix("  ") else { break };
        match lines.last_mut() {
            // A line indented further continues the line before it.
            Some(last) if line.starts_with("  ") => {
                last.push(' ');
                last.push_str(line.trim());
            }
            Some(_) | None => lines.push(line.to_owned()),
        }
    }
    lines.iter().flat_map(|line| parse_line(line)).collect()
}

/// Splits a line at shell operators and explanations; returns the parts that are docket commands.
fn parse_line(line: &str) -> Vec<Vec<String>> {
    let mut parts: Vec<Vec<String>> = vec![Vec::new()];
    let mut word: Option<String> = None;
    let mut quote = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (Some(mark), c) if c == mark => quote = None,
            (Some(_), c) => word.get_or_insert_default().push(c),
            (None, '\'' | '"') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            (None, '|' | '&' | ';' | '<' | '>' | '(' | ')') => {
                parts.last_mut().expect("never empty").extend(word.take());
                parts.push(Vec::new());
            }
            (None, ' ') => {
                parts.last_mut().expect("never empty").extend(word.take());
                // Text after two blanks, or after a hash, is an explanation.
                if matches!(chars.peek(), Some(' ' | '#')) {
                    break;
                }
            }
            (None, c) => word.get_or_insert_default().push(c),
        }
    }
    parts.last_mut().expect("never empty").extend(word);
    let begins = |part: Vec<String>| {
        let at = part.iter().position(|word| word == "docket")?;
        // The arguments of another program may contain the docket command line.
        let is_env = |word: &String| word.split_once('=').is_some_and(|(name, _)| !name.is_empty());
        let rest = part.iter().skip(at);
        part[..at].iter().all(is_env).then(|| rest.cloned().collect())
    };
    parts.into_iter().filter_map(begins).collect()
}

#[test]
fn example_lines_are_split_like_a_shell_does() {
    let words = |line: &str| parse_commands(&format!("  {line}\n"));
    assert_eq!(
        words("docket ps --json | jq -r 'select(.a == \"b\") | .id'"),
        [vec!["docket", "ps", "--json"]]
    );
    assert_eq!(
        words("A=1 docket a \"b c\" && docket d > e   says"),
        [vec!["docket", "a", "b c"], vec!["docket", "d"]]
    );
    assert!(words("ps | xargs -n 1 docket why; claude mcp add docket -- docket mcp").is_empty());
    assert_eq!(words("X=$(docket token list) # why"), [vec!["docket", "token", "list"]]);
    assert_eq!(words("docket run --base-url \"\" x"), [vec!["docket", "run", "--base-url", "", "x"]]);
    assert_eq!(
        parse_commands("  docket a\n      --long b\n  docket c\nMore.\n  docket d\n"),
        [vec!["docket", "a", "--long", "b"], vec!["docket", "c"]]
    );
}

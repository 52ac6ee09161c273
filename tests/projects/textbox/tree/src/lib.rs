//! Wraps text and draws a box around it. Widths are counted in characters.

/// Breaks text into lines of at most `width` characters, at blanks; a longer word is cut.
///
/// # Panics
/// `width` is 0.
pub fn wrap(text: &str, width: usize) -> Vec<String> {
    assert!(width > 0, "a width of at least 1 is needed");
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        let mut word = word;
        if !line.is_empty() && line.len() + 1 + word.len() > width {
            lines.push(std::mem::take(&mut line));
        }
        while word.len() > width {
            let (head, tail) = word.split_at(width);
            lines.push(head.to_string());
            word = tail;
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    if !line.is_empty() {
        lines.push(line);
    }
    lines
}

/// Draws a box around the wrapped text.
pub fn boxed(text: &str, width: usize) -> String {
    let edge = format!("+{}+\n", "-".repeat(width + 2));
    let mut out = edge.clone();
    for line in wrap(text, width) {
        out.push_str(&format!("| {line:<width$} |\n"));
    }
    out.push_str(&edge);
    out
}

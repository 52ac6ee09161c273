//! Server-sent events as a coordinator sends them: `id`, `event`, `data`, comments to stay alive.
//! The result does not depend on where the network cut the bytes. Called by `follow` alone.

/// Longest line: an envelope with its largest payload, as JSON, and room to spare.
pub(super) const LINE_BYTES_MAX: usize = 4 * docket_schema::event::PAYLOAD_BYTES_MAX;

/// One event.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Sse {
    /// The `event:` field; empty where none was sent.
    pub(super) name: String,
    /// The `data:` fields, joined by line feeds.
    pub(super) data: String,
}

/// A line that passes [`LINE_BYTES_MAX`].
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LineTooLong;

/// What is known between two pieces.
#[derive(Debug, Default)]
pub(super) struct Parser {
    line: Vec<u8>,
    event: Sse,
    filled: bool,
}

impl Parser {
    /// Takes the next bytes; appends the events they complete to `out`.
    pub(super) fn push(&mut self, bytes: &[u8], out: &mut impl Extend<Sse>) -> Result<(), LineTooLong> {
        let mut parts = bytes.split(|byte| *byte == b'\n').peekable();
        while let Some(part) = parts.next() {
            if self.line.len() + part.len() > LINE_BYTES_MAX {
                return Err(LineTooLong);
            }
            self.line.extend_from_slice(part);
            if parts.peek().is_some() {
                let line = std::mem::take(&mut self.line);
                out.extend(self.end_line(&line));
            }
        }
        Ok(())
    }

    fn end_line(&mut self, line: &[u8]) -> Option<Sse> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            return std::mem::take(&mut self.filled).then_some(event);
        }
        let line = String::from_utf8_lossy(line);
        let (field, value) = line.split_once(':').unwrap_or((&line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => {
                value.clone_into(&mut self.event.name);
                self.filled = true;
            }
            "data" => {
                if !self.event.data.is_empty() {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(value);
                self.filled = true;
            }
            // `id` repeats what the envelope says; comments and `retry` say nothing we need.
            _ => {}
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_cut_of_the_bytes_gives_the_same_events() {
        let text =
            ": hello\n\nid: 1\ndata: {\"a\":1}\n\nevent: end\r\ndata:\r\n\r\ndata: x\ndata: y\n\ndata: cut";
        let expected = [
            Sse { name: String::new(), data: "{\"a\":1}".to_owned() },
            Sse { name: "end".to_owned(), data: String::new() },
            Sse { name: String::new(), data: "x\ny".to_owned() },
        ];
        for size in 1..text.len() {
            let (mut parser, mut out) = (Parser::default(), Vec::new());
            for piece in text.as_bytes().chunks(size) {
                parser.push(piece, &mut out).unwrap();
            }
            assert_eq!(out, expected, "pieces of {size}");
        }
    }

    #[test]
    fn a_line_without_end_is_refused() {
        let (mut parser, mut out) = (Parser::default(), Vec::new());
        let piece = vec![b'x'; LINE_BYTES_MAX];
        assert_eq!(parser.push(&piece, &mut out), Ok(()));
        assert_eq!(parser.push(b"x", &mut out), Err(LineTooLong));
    }
}

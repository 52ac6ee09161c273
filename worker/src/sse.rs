//! Incremental parser for server-sent events, from a model provider or from a coordinator whose run is
//! followed. The result does not depend on how the network splits the bytes.

/// Longest line of a stream, in bytes. Providers send deltas of a few hundred bytes, so a longer line means
/// that the server does not stream events, and it must not fill the memory.
pub const LINE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// One event of a stream.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SseEvent {
    /// The `event:` field; empty if the server sent none.
    pub name: String,
    /// The `data:` fields, joined by line feeds.
    pub data: String,
}

/// A line longer than [`LINE_BYTES_MAX`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the stream contains a line of more than {LINE_BYTES_MAX} bytes; check that the address is a server of this protocol"
)]
pub struct LineTooLong;

/// The parser's state between two chunks. An event cut off by the end of the stream is dropped, as the
/// protocol requires.
#[derive(Debug, Default)]
pub struct SseParser {
    line: Vec<u8>,
    after_cr: bool,
    past_first_line: bool,
    event: SseEvent,
    has_data: bool,
}

impl SseParser {
    /// Parses the next bytes and passes each completed event to `on_event`, in order.
    ///
    /// # Errors
    /// [`LineTooLong`] if a line exceeds the limit; the parser cannot be used afterwards.
    pub fn push(&mut self, bytes: &[u8], on_event: &mut dyn FnMut(SseEvent)) -> Result<(), LineTooLong> {
        let mut rest = bytes;
        while let [first, tail @ ..] = rest {
            if self.after_cr {
                self.after_cr = false;
                if *first == b'\n' {
                    rest = tail;
                    continue;
                }
            }
            let Some(end) = rest.iter().position(|byte| matches!(byte, b'\n' | b'\r')) else {
                self.extend_line(rest)?;
                break;
            };
            self.extend_line(&rest[..end])?;
            self.after_cr = rest[end] == b'\r';
            rest = &rest[end + 1..];
            self.end_line(on_event);
        }
        Ok(())
    }

    fn extend_line(&mut self, bytes: &[u8]) -> Result<(), LineTooLong> {
        if self.line.len() + self.event.data.len() + bytes.len() > LINE_BYTES_MAX {
            return Err(LineTooLong);
        }
        self.line.extend_from_slice(bytes);
        Ok(())
    }

    fn end_line(&mut self, on_event: &mut dyn FnMut(SseEvent)) {
        let line = std::mem::take(&mut self.line);
        let mut line = line.as_slice();
        if !std::mem::replace(&mut self.past_first_line, true) {
            line = line.strip_prefix(b"\xef\xbb\xbf").unwrap_or(line);
        }
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if std::mem::take(&mut self.has_data) {
                on_event(event);
            }
            return;
        }
        let (field, value) = match line.iter().position(|byte| *byte == b':') {
            Some(colon) => (&line[..colon], &line[colon + 1..]),
            None => (line, &b""[..]),
        };
        let value = value.strip_prefix(b" ").unwrap_or(value);
        match field {
            b"event" => self.event.name = String::from_utf8_lossy(value).into_owned(),
            b"data" => {
                if std::mem::replace(&mut self.has_data, true) {
                    self.event.data.push('\n');
                }
                self.event.data.push_str(&String::from_utf8_lossy(value));
            }
            // Comments (an empty name), `id`, `retry` and fields of later versions are ignored.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn parse<'a>(pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<SseEvent> {
        let mut parser = SseParser::default();
        let mut events = Vec::new();
        for piece in pieces {
            parser.push(piece, &mut |event| events.push(event)).expect("short lines");
        }
        events
    }

    fn event(name: &str, data: &str) -> SseEvent {
        SseEvent { name: name.to_owned(), data: data.to_owned() }
    }

    #[test]
    fn line_endings_comments_and_joined_data_are_parsed() {
        let stream = b"\xef\xbb\xbf: hello\r\nevent: a\r\ndata: 1\r\ndata:2\r\n\r\n\
            data: x\rretry: 5\r\rdata\n\nevent: no data\n\ndata: cut";
        assert_eq!(parse([&stream[..]]), [event("a", "1\n2"), event("", "x"), event("", "")]);
    }

    #[test]
    fn endless_line_is_an_error() {
        let mut parser = SseParser::default();
        let piece = vec![b'x'; LINE_BYTES_MAX / 2 + 1];
        assert_eq!(parser.push(&piece, &mut |_| {}), Ok(()));
        assert_eq!(parser.push(&piece, &mut |_| {}), Err(LineTooLong));
    }

    proptest! {
        /// A stream yields the same events however it is split into chunks.
        #[test]
        fn chunk_boundaries_do_not_matter(
            stream in "(event: [a-z]{0,3}|data: ?[a-zäß€]{0,4}|:c|\r\n|\n|\r){0,40}",
            cuts in prop::collection::vec(0usize..200, 0..6),
        ) {
            let bytes = stream.as_bytes();
            let whole = parse([bytes]);
            prop_assert_eq!(&parse(bytes.chunks(1)), &whole);
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.sort_unstable();
            let mut from = 0;
            let mut pieces = Vec::new();
            for cut in cuts.into_iter().chain([bytes.len()]) {
                pieces.push(&bytes[from..cut]);
                from = cut;
            }
            prop_assert_eq!(&parse(pieces), &whole);
        }
    }
}

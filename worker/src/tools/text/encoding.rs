//! Detects a file's encoding, or that it is not text. Pure.
//!
//! A model reads and writes Unicode; the file keeps its own encoding. Invariant: decoded text can be encoded back to
//! the same bytes ([`TextEncoding::encode`]), or is marked as [`TextEncoding::Utf8Broken`], which the edit engine
//! handles as bytes.

use std::borrow::Cow;

/// Bytes inspected to tell text from data.
pub(crate) const SNIFFED_BYTES: usize = 8 * 1024;

/// With more than one control character per this many bytes, the data is not eight-bit text.
const BYTES_PER_CONTROL: usize = 32;

/// Encoding of a text file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TextEncoding {
    Utf8,
    Utf8Bom,
    /// UTF-8 with some invalid bytes.
    Utf8Broken,
    Utf16Le,
    Utf16Be,
    /// Any eight-bit text: every byte maps to one character and back.
    Windows1252,
}

/// A character that the file's encoding lacks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` cannot be written in {1}, the file's encoding")]
pub(crate) struct UnencodableChar(char, &'static str);

impl TextEncoding {
    /// Describes the encoding for the model; `None` for plain UTF-8.
    pub(crate) const fn describe_for_model(self) -> Option<&'static str> {
        match self {
            Self::Utf8 => None,
            Self::Utf8Bom => Some("UTF-8 with a byte-order mark, which edits keep"),
            Self::Utf8Broken => Some("not all of it is UTF-8: bytes that are not are shown as \u{fffd}"),
            Self::Utf16Le => Some("UTF-16, little-endian: edits are written in it"),
            Self::Utf16Be => Some("UTF-16, big-endian: edits are written in it"),
            Self::Windows1252 => {
                Some("not UTF-8: read as Windows-1252 (Latin-1), and edits are written in it")
            }
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Utf8 | Self::Utf8Bom | Self::Utf8Broken => "UTF-8",
            Self::Utf16Le | Self::Utf16Be => "UTF-16",
            Self::Windows1252 => "Windows-1252",
        }
    }

    /// Whether the edit engine works on decoded text; it handles all forms of UTF-8 as bytes.
    pub(crate) const fn is_transcoded(self) -> bool {
        match self {
            Self::Utf8 | Self::Utf8Bom | Self::Utf8Broken => false,
            Self::Utf16Le | Self::Utf16Be | Self::Windows1252 => true,
        }
    }

    /// Encodes `text`, with the byte-order mark in front if the encoding has one.
    ///
    /// # Errors
    /// A character is not available in this encoding.
    pub(crate) fn encode(self, text: &str) -> Result<Vec<u8>, UnencodableChar> {
        match self {
            Self::Utf8 | Self::Utf8Broken => Ok(text.as_bytes().to_vec()),
            Self::Utf8Bom => Ok([UTF8_BOM, text.as_bytes()].concat()),
            Self::Utf16Le => {
                let units = text.encode_utf16().flat_map(u16::to_le_bytes);
                Ok(UTF16_LE_BOM.iter().copied().chain(units).collect())
            }
            Self::Utf16Be => {
                let units = text.encode_utf16().flat_map(u16::to_be_bytes);
                Ok(UTF16_BE_BOM.iter().copied().chain(units).collect())
            }
            Self::Windows1252 => {
                let mut out = Vec::with_capacity(text.len());
                let mut own = [0; 4];
                for c in text.chars() {
                    let (bytes, _, lost) = encoding_rs::WINDOWS_1252.encode(c.encode_utf8(&mut own));
                    if lost {
                        return Err(UnencodableChar(c, self.name()));
                    }
                    out.extend_from_slice(&bytes);
                }
                Ok(out)
            }
        }
    }
}

const UTF8_BOM: &[u8] = b"\xef\xbb\xbf";
const UTF16_LE_BOM: &[u8] = b"\xff\xfe";
const UTF16_BE_BOM: &[u8] = b"\xfe\xff";

/// Content of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum FileContent<'a> {
    /// Text, without its byte-order mark.
    Text(Cow<'a, str>, TextEncoding),
    /// Not text; the kind of data in words, with its article.
    Binary(&'static str),
}

/// Decodes `bytes`, the beginning or all of a file, in any encoding; `None` if they are not text.
pub(crate) fn decode_text(bytes: &[u8]) -> Option<String> {
    match classify_content(bytes) {
        FileContent::Text(text, _) => Some(text.into_owned()),
        FileContent::Binary(_) => None,
    }
}

/// Classifies `bytes`, the complete content of a file.
pub(crate) fn classify_content(bytes: &[u8]) -> FileContent<'_> {
    if let Some(rest) = bytes.strip_prefix(UTF8_BOM)
        && let Ok(text) = std::str::from_utf8(rest)
    {
        return FileContent::Text(text.into(), TextEncoding::Utf8Bom);
    }
    let encoding = match sniff_encoding(bytes) {
        Err(kind) => return FileContent::Binary(kind),
        Ok(encoding) => encoding,
    };
    if let Some(found) = encoding {
        let (rest, from) = match found {
            TextEncoding::Utf16Le => (&bytes[UTF16_LE_BOM.len()..], encoding_rs::UTF_16LE),
            _ => (&bytes[UTF16_BE_BOM.len()..], encoding_rs::UTF_16BE),
        };
        return FileContent::Text(from.decode_without_bom_handling(rest).0, found);
    }
    match std::str::from_utf8(bytes) {
        Ok(text) => FileContent::Text(text.into(), TextEncoding::Utf8),
        Err(_) => classify_eight_bit(bytes),
    }
}

/// Inspects the first bytes of a file: returns the kind of data, or the encoding if a mark says UTF-16.
pub(crate) fn sniff_encoding(bytes: &[u8]) -> Result<Option<TextEncoding>, &'static str> {
    if let Some(kind) = magic_kind(bytes) {
        return Err(kind);
    }
    if bytes.starts_with(UTF16_LE_BOM) {
        return Ok(Some(TextEncoding::Utf16Le));
    }
    if bytes.starts_with(UTF16_BE_BOM) {
        return Ok(Some(TextEncoding::Utf16Be));
    }
    let begin = &bytes[..bytes.len().min(SNIFFED_BYTES)];
    if begin.contains(&0) {
        return Err("a binary file");
    }
    Ok(None)
}

/// Decodes a line in any encoding.
pub(crate) fn decode_line(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.into(),
        Err(_) => match classify_eight_bit(bytes) {
            FileContent::Text(text, _) => text,
            FileContent::Binary(_) => String::from_utf8_lossy(bytes),
        },
    }
}

/// Classifies bytes that are not valid UTF-8.
fn classify_eight_bit(bytes: &[u8]) -> FileContent<'_> {
    let begin = &bytes[..bytes.len().min(SNIFFED_BYTES)];
    let is_control = |byte: &&u8| **byte < 0x20 && !matches!(**byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x1b);
    if begin.iter().filter(is_control).count() * BYTES_PER_CONTROL > begin.len() {
        return FileContent::Binary("a binary file");
    }
    // Text in an eight-bit encoding hardly ever contains UTF-8 sequences.
    let (mut valid, mut invalid) = (0, 0);
    for chunk in bytes.utf8_chunks() {
        valid += chunk.valid().chars().filter(|c| !c.is_ascii()).count();
        invalid += usize::from(!chunk.invalid().is_empty());
    }
    if valid >= invalid {
        return FileContent::Text(String::from_utf8_lossy(bytes), TextEncoding::Utf8Broken);
    }
    FileContent::Text(
        encoding_rs::WINDOWS_1252.decode_without_bom_handling(bytes).0,
        TextEncoding::Windows1252,
    )
}

/// The kind of data, by its magic bytes.
fn magic_kind(bytes: &[u8]) -> Option<&'static str> {
    let riff = |kind: &[u8]| bytes.starts_with(b"RIFF") && bytes.get(8..12) == Some(kind);
    if riff(b"WEBP") {
        return Some("a WebP image");
    }
    if riff(b"WAVE") {
        return Some("a WAV sound");
    }
    if bytes.get(257..262) == Some(b"ustar") {
        return Some("a tar archive");
    }
    if bytes.get(4..8) == Some(b"ftyp") {
        return Some("an MP4 or related film or image");
    }
    MAGIC_NUMBERS.iter().find(|(begin, _)| bytes.starts_with(begin)).map(|(_, kind)| *kind)
}

const MAGIC_NUMBERS: [(&[u8], &str); 23] = [
    (b"\x89PNG\r\n\x1a\n", "a PNG image"),
    (b"\xff\xd8\xff", "a JPEG image"),
    (b"GIF87a", "a GIF image"),
    (b"GIF89a", "a GIF image"),
    (b"\0\0\x01\0", "an icon"),
    (b"%PDF-", "a PDF document"),
    (b"PK\x03\x04", "a ZIP archive (also jar, docx, xlsx, whl)"),
    (b"PK\x05\x06", "an empty ZIP archive"),
    (b"\x1f\x8b", "a gzip archive"),
    (b"BZh", "a bzip2 archive"),
    (b"\xfd7zXZ\0", "an xz archive"),
    (b"\x28\xb5\x2f\xfd", "a zstd archive"),
    (b"7z\xbc\xaf\x27\x1c", "a 7z archive"),
    (b"\x7fELF", "an ELF program or library"),
    (b"\0asm", "a WebAssembly module"),
    (b"\xca\xfe\xba\xbe", "a Java class or Mach-O program"),
    (b"\xcf\xfa\xed\xfe", "a Mach-O program"),
    (b"SQLite format 3\0", "an SQLite database"),
    (b"wOFF", "a WOFF font"),
    (b"wOF2", "a WOFF2 font"),
    (b"\xff\xfe\0\0", "a UTF-32 text"),
    (b"\0\0\xfe\xff", "a UTF-32 text"),
    (b"OggS", "an Ogg sound or film"),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn describe_bytes(bytes: &[u8]) -> String {
        match classify_content(bytes) {
            FileContent::Text(text, encoding) => format!("{encoding:?} {text}"),
            FileContent::Binary(kind) => kind.to_owned(),
        }
    }

    #[test]
    fn file_kind_is_detected_from_its_bytes() {
        let cases: [(&[u8], &str); 14] = [
            (b"", "Utf8 "),
            ("caf\u{e9}\n".as_bytes(), "Utf8 caf\u{e9}\n"),
            (b"\xef\xbb\xbfa\n", "Utf8Bom a\n"),
            (b"caf\xe9 \x80\n", "Windows1252 caf\u{e9} \u{20ac}\n"),
            (b"\xc3\xa9t\xc3\xa9 \xff\n", "Utf8Broken \u{e9}t\u{e9} \u{fffd}\n"),
            (b"\xff\xfea\0\xe9\0", "Utf16Le a\u{e9}"),
            (b"\xfe\xff\0a\x26\x3a", "Utf16Be a\u{263a}"),
            (b"ab\0cd", "a binary file"),
            (b"\x01\x02\xff\x03abc", "a binary file"),
            (b"\x89PNG\r\n\x1a\nxxxx", "a PNG image"),
            (b"%PDF-1.7\n%text", "a PDF document"),
            (b"PK\x03\x04xx", "a ZIP archive (also jar, docx, xlsx, whl)"),
            (b"RIFF\x01\x02\x03\x04WEBPVP8 ", "a WebP image"),
            (b"\xff\xfe\0\0a\0\0\0", "a UTF-32 text"),
        ];
        for (bytes, want) in cases {
            assert_eq!(describe_bytes(bytes), want, "{bytes:?}");
        }
    }

    #[test]
    fn characters_missing_in_the_encoding_are_refused() {
        let error = TextEncoding::Windows1252.encode("a\u{263a}").expect_err("no such character");
        assert_eq!(error.to_string(), "`\u{263a}` cannot be written in Windows-1252, the file's encoding");
        assert_eq!(TextEncoding::Windows1252.encode("\u{20ac}\u{e9}").expect("has both"), b"\x80\xe9");
    }

    #[test]
    fn every_byte_round_trips_through_windows_1252() {
        let all: Vec<u8> = (0..=255).collect();
        let text = encoding_rs::WINDOWS_1252.decode_without_bom_handling(&all).0;
        assert_eq!(text.chars().count(), 256);
        assert_eq!(TextEncoding::Windows1252.encode(&text).expect("all are in it"), all);
    }

    proptest! {
        #[test]
        fn text_round_trips_through_every_encoding(text in "[a-z\u{e9}\u{263a}\u{1f600}\r\n]{0,40}", which in 0usize..4) {
            let encoding = [TextEncoding::Utf8, TextEncoding::Utf8Bom, TextEncoding::Utf16Le, TextEncoding::Utf16Be][which];
            let bytes = encoding.encode(&text).expect("Unicode has them all");
            prop_assert_eq!(classify_content(&bytes), FileContent::Text(text.into(), encoding));
        }

        #[test]
        fn arbitrary_bytes_are_classified(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            if let FileContent::Text(text, TextEncoding::Windows1252) = classify_content(&bytes) {
                prop_assert_eq!(TextEncoding::Windows1252.encode(&text).expect("it was read from it"), bytes);
            }
        }
    }
}

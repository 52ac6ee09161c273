//! Forwards bodies of HTTP/1 messages at exactly their declared length, so that no other request can
//! hide behind one.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::incoming_stream::{IncomingStream, unexpected_eof};

/// Maximum number of trailers after a chunked body; they are not forwarded.
const TRAILERS_MAX: usize = 32;

/// How the end of a body is determined.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyFraming {
    /// This many bytes.
    Length(u64),
    /// In chunks, up to an empty one.
    Chunked,
    /// Up to the end of the connection; only for responses.
    UntilEnd,
}

impl BodyFraming {
    /// Returns the header line that declares the framing.
    pub(super) fn to_header(self) -> Vec<u8> {
        match self {
            Self::Length(bytes) => format!("content-length: {bytes}\r\n").into_bytes(),
            Self::Chunked => b"transfer-encoding: chunked\r\n".to_vec(),
            Self::UntilEnd => Vec::new(),
        }
    }
}

/// Forwards a body. `count` receives the size of each piece and may abort.
pub(super) async fn copy_body<R, W, C>(
    from: &mut IncomingStream<R>,
    to: &mut W,
    framing: BodyFraming,
    count: C,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    C: Fn(usize) -> io::Result<()>,
{
    match framing {
        BodyFraming::Length(bytes) => copy_fixed_length(from, to, bytes, &count).await,
        BodyFraming::Chunked => copy_chunked(from, to, &count).await,
        BodyFraming::UntilEnd => loop {
            let piece = from.read_piece(u64::MAX).await?;
            if piece.is_empty() {
                return Ok(());
            }
            count(piece.len())?;
            to.write_all(&piece).await?;
        },
    }
}

async fn copy_fixed_length<R, W, C>(
    from: &mut IncomingStream<R>,
    to: &mut W,
    bytes: u64,
    count: &C,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    C: Fn(usize) -> io::Result<()>,
{
    let mut left = bytes;
    while left > 0 {
        let piece = from.read_piece(left).await?;
        if piece.is_empty() {
            return Err(unexpected_eof());
        }
        left -= piece.len() as u64;
        count(piece.len())?;
        to.write_all(&piece).await?;
    }
    Ok(())
}

/// Chunks are parsed and rewritten: chunk extensions are not forwarded.
async fn copy_chunked<R, W, C>(from: &mut IncomingStream<R>, to: &mut W, count: &C) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    C: Fn(usize) -> io::Result<()>,
{
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a chunk does not read as HTTP/1");
    loop {
        let line = from.read_line().await?;
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
        let good = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(digits).ok().filter(|_| good).ok_or_else(wrong)?;
        let bytes = u64::from_str_radix(text, 16).map_err(|_| wrong())?;
        if bytes == 0 {
            break;
        }
        count(line.len())?;
        to.write_all(format!("{bytes:x}\r\n").as_bytes()).await?;
        copy_fixed_length(from, to, bytes, count).await?;
        if !from.read_line().await?.is_empty() {
            return Err(wrong());
        }
        to.write_all(b"\r\n").await?;
    }
    for _ in 0..TRAILERS_MAX {
        if from.read_line().await?.is_empty() {
            return to.write_all(b"0\r\n\r\n").await;
        }
    }
    Err(wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn copy_input(input: &[u8], framing: BodyFraming) -> (Option<Vec<u8>>, Vec<u8>) {
        let mut from = IncomingStream::new(input);
        let mut out = Vec::new();
        let done = copy_body(&mut from, &mut out, framing, |_| Ok(())).await;
        let rest = from.buffered_bytes().to_vec();
        (done.is_ok().then_some(out), rest)
    }

    #[tokio::test]
    async fn body_ends_where_its_framing_says() {
        let (out, rest) = copy_input(b"abcGET http://evil", BodyFraming::Length(3)).await;
        assert_eq!((out, rest), (Some(b"abc".to_vec()), b"GET http://evil".to_vec()));
        let (out, rest) =
            copy_input(b"3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nT: x\r\n\r\nGET", BodyFraming::Chunked)
                .await;
        assert_eq!(out, Some(b"3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n".to_vec()));
        assert_eq!(rest, b"GET");
        for bad in [
            "x\r\n",
            "-1\r\na",
            "3\r\nabcd\r\n0\r\n\r\n",
            "3\r\nab",
            "ffffffffffffffff\r\n",
            "\r\n",
            "0x3\r\nabc\r\n",
        ] {
            assert_eq!(copy_input(bad.as_bytes(), BodyFraming::Chunked).await.0, None, "{bad:?}");
        }
        assert_eq!(copy_input(b"ab", BodyFraming::Length(3)).await.0, None);
    }
}

//! Bodies of HTTP/1 messages: passed on exactly as long as they are, so that nothing hides behind one.

use std::io;

use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt as _};

use super::stream::{Incoming, cut};

/// Headers behind a chunked body; they are not passed on.
const TRAILERS_MAX: usize = 32;

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Framing {
    /// So many bytes.
    Length(u64),
    /// In chunks, up to an empty one.
    Chunked,
    /// Up to the connection's end; of answers only.
    UntilEnd,
}

impl Framing {
    /// The header line that says so.
    pub(super) fn header(self) -> Vec<u8> {
        match self {
            Self::Length(bytes) => format!("content-length: {bytes}\r\n").into_bytes(),
            Self::Chunked => b"transfer-encoding: chunked\r\n".to_vec(),
            Self::UntilEnd => Vec::new(),
        }
    }
}

/// Passes a body on; `count` is told of each piece and may end it.
pub(super) async fn pass<R, W, C>(
    from: &mut Incoming<R>,
    to: &mut W,
    framing: Framing,
    count: C,
) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    C: Fn(usize) -> io::Result<()>,
{
    match framing {
        Framing::Length(bytes) => of_length(from, to, bytes, &count).await,
        Framing::Chunked => in_chunks(from, to, &count).await,
        Framing::UntilEnd => loop {
            let piece = from.piece(u64::MAX).await?;
            if piece.is_empty() {
                return Ok(());
            }
            count(piece.len())?;
            to.write_all(&piece).await?;
        },
    }
}

async fn of_length<R, W, C>(from: &mut Incoming<R>, to: &mut W, bytes: u64, count: &C) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    C: Fn(usize) -> io::Result<()>,
{
    let mut left = bytes;
    while left > 0 {
        let piece = from.piece(left).await?;
        if piece.is_empty() {
            return Err(cut());
        }
        left -= piece.len() as u64;
        count(piece.len())?;
        to.write_all(&piece).await?;
    }
    Ok(())
}

/// Chunks are read and written anew: what else stands in their lines is of no use to the other side.
async fn in_chunks<R, W, C>(from: &mut Incoming<R>, to: &mut W, count: &C) -> io::Result<()>
where
    R: AsyncRead + Unpin,
    W: AsyncWrite + Unpin,
    C: Fn(usize) -> io::Result<()>,
{
    let wrong = || io::Error::new(io::ErrorKind::InvalidData, "a chunk does not read as HTTP/1");
    loop {
        let line = from.line().await?;
        let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii_end();
        let good = (1..=15).contains(&digits.len()) && digits.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(digits).ok().filter(|_| good).ok_or_else(wrong)?;
        let bytes = u64::from_str_radix(text, 16).map_err(|_| wrong())?;
        if bytes == 0 {
            break;
        }
        count(line.len())?;
        to.write_all(format!("{bytes:x}\r\n").as_bytes()).await?;
        of_length(from, to, bytes, count).await?;
        if !from.line().await?.is_empty() {
            return Err(wrong());
        }
        to.write_all(b"\r\n").await?;
    }
    for _ in 0..TRAILERS_MAX {
        if from.line().await?.is_empty() {
            return to.write_all(b"0\r\n\r\n").await;
        }
    }
    Err(wrong())
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn passed(input: &[u8], framing: Framing) -> (Option<Vec<u8>>, Vec<u8>) {
        let mut from = Incoming::new(input);
        let mut out = Vec::new();
        let done = pass(&mut from, &mut out, framing, |_| Ok(())).await;
        let rest = from.ahead().to_vec();
        (done.is_ok().then_some(out), rest)
    }

    #[tokio::test]
    async fn a_body_ends_where_it_says() {
        let (out, rest) = passed(b"abcGET http://evil", Framing::Length(3)).await;
        assert_eq!((out, rest), (Some(b"abc".to_vec()), b"GET http://evil".to_vec()));
        let (out, rest) =
            passed(b"3;x=y\r\nabc\r\n0a\r\n0123456789\r\n0\r\nT: x\r\n\r\nGET", Framing::Chunked).await;
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
            assert_eq!(passed(bad.as_bytes(), Framing::Chunked).await.0, None, "{bad:?}");
        }
        assert_eq!(passed(b"ab", Framing::Length(3)).await.0, None);
    }
}

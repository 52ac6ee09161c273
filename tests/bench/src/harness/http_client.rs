//! A minimal HTTP client: one connection, complete requests, complete responses. The load comes from
//! the same cores, so it should cost as little as possible.

use anyhow::{Context as _, bail, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

/// Maximum size of a response.
const RESPONSE_BYTES_MAX: usize = 4 * 1024 * 1024;

/// A connection with one token.
pub(crate) struct HttpConnection {
    stream: TcpStream,
    head: String,
    buffer: Vec<u8>,
}

impl HttpConnection {
    /// Connects to `HOST:PORT`.
    pub(crate) async fn connect(address: &str, token: &str) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await.context("the coordinator cannot be reached")?;
        stream.set_nodelay(true)?;
        let head = format!(
            " HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\ncontent-length: "
        );
        Ok(Self { stream, head, buffer: Vec::with_capacity(4096) })
    }

    /// Posts `body`; returns the body of a successful response.
    pub(crate) async fn post(&mut self, path: &str, body: &[u8]) -> anyhow::Result<&[u8]> {
        let mut request = Vec::with_capacity(body.len() + 512);
        request.extend_from_slice(b"POST ");
        request.extend_from_slice(path.as_bytes());
        request.extend_from_slice(self.head.as_bytes());
        request.extend_from_slice(body.len().to_string().as_bytes());
        request.extend_from_slice(b"\r\n\r\n");
        request.extend_from_slice(body);
        self.stream.write_all(&request).await?;
        self.buffer.clear();
        let (status, start, length) = loop {
            if let Some(parsed) = parse_response_head(&self.buffer)? {
                break parsed;
            }
            self.read_more().await?;
        };
        while self.buffer.len() < start + length {
            self.read_more().await?;
        }
        let body = &self.buffer[start..start + length];
        ensure!(status < 300, "status {status}: {}", String::from_utf8_lossy(body));
        Ok(body)
    }

    async fn read_more(&mut self) -> anyhow::Result<()> {
        ensure!(self.buffer.len() < RESPONSE_BYTES_MAX, "the answer is too long");
        let read = self.stream.read_buf(&mut self.buffer).await?;
        ensure!(read > 0, "the coordinator closed the connection");
        Ok(())
    }
}

/// Returns the status, the start of the body and its length; `None` while the head is incomplete.
fn parse_response_head(bytes: &[u8]) -> anyhow::Result<Option<(u16, usize, usize)>> {
    let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") else { return Ok(None) };
    let head = std::str::from_utf8(&bytes[..end]).context("the response head is not UTF-8")?;
    let mut lines = head.split("\r\n");
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).and_then(|word| word.parse().ok());
    let length = lines.find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok()).flatten()
    });
    match (status, length) {
        (Some(status), Some(length)) => Ok(Some((status, end + 4, length))),
        _ => bail!("the answer has no status or no length: {head}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn response_head_is_parsed_once_complete() {
        let whole = b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello";
        for cut in 0..whole.len() - 5 {
            assert_eq!(parse_response_head(&whole[..cut]).expect("no error"), None, "{cut}");
        }
        assert_eq!(parse_response_head(whole).expect("reads"), Some((200, 38, 5)));
        assert!(parse_response_head(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}

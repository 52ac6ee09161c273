//! Parses heads of HTTP/1 messages strictly and rewrites them for the other side. Pure.
//!
//! Only the method, the path and end-to-end headers of a request are forwarded. A message that the two sides
//! could interpret differently is refused.

use docket_schema::policy::{HostName, HostPort};

use super::http_body::BodyFraming;

/// Maximum size of a request or response head.
pub(super) const HEAD_BYTES_MAX: usize = 32 * 1024;

const HEADERS_MAX: usize = 100;

/// Hop-by-hop headers, and headers that are rewritten.
const HOP_BY_HOP_HEADERS: [&str; 11] = [
    "connection",
    "content-length",
    "host",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// The request of a program.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ProxyRequest {
    /// A tunnel.
    Tunnel(HostPort),
    /// A plain HTTP message.
    PlainHttp(PlainHttpRequest),
}

/// A plain HTTP request.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct PlainHttpRequest {
    pub(super) place: HostPort,
    /// The head to forward.
    pub(super) head: Vec<u8>,
    pub(super) body: BodyFraming,
    /// The response has no body, whatever its headers say.
    pub(super) is_head_request: bool,
    /// Another request may follow on the same connection.
    pub(super) keep_alive: bool,
}

/// The head of a response.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResponseHead {
    pub(super) status: u16,
    headers: Vec<u8>,
    reason: String,
    pub(super) body: BodyFraming,
}

/// Returns the length of the head at the start of `bytes`, once it is complete.
pub(super) fn head_length(bytes: &[u8]) -> Option<usize> {
    bytes.windows(4).position(|four| four == b"\r\n\r\n").map(|at| at + 4)
}

/// Parses a request's head.
pub(super) fn parse_proxy_request(head: &[u8]) -> Result<ProxyRequest, &'static str> {
    check_line_endings(head)?;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    let read = request.parse(head).map_err(|_| "the request does not read as HTTP/1")?;
    if read != httparse::Status::Complete(head.len()) {
        return Err("the request does not read as HTTP/1");
    }
    let (method, target) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
    let http_11 = request.version == Some(1);
    let framing = body_framing(request.headers, http_11)?;
    if method == "CONNECT" {
        let place = HostPort::parse(target, None).ok_or("the tunnel's end is no HOST:PORT")?;
        return Ok(ProxyRequest::Tunnel(place));
    }
    let (place, path) = split_absolute_url(target)?;
    let host = match (&place.host, place.port) {
        (host, 80) => host.to_string(),
        (HostName::Name(_) | HostName::Address(_), _) => place.to_string(),
    };
    let mut out = format!("{method} {path} HTTP/1.1\r\nhost: {host}\r\n").into_bytes();
    copy_headers(request.headers, &mut out);
    let body = framing.unwrap_or(BodyFraming::Length(0));
    match body {
        BodyFraming::Length(0) if !has_header(request.headers, "content-length") => {}
        _ => out.extend(body.to_header()),
    }
    out.extend(b"connection: close\r\n\r\n");
    let keeps = http_11 && !is_connection_close(request.headers);
    Ok(ProxyRequest::PlainHttp(PlainHttpRequest {
        place,
        head: out,
        body,
        is_head_request: method == "HEAD",
        keep_alive: keeps,
    }))
}

/// Parses a response's head.
pub(super) fn parse_response_head(head: &[u8], asks_for_head: bool) -> Result<ResponseHead, &'static str> {
    check_line_endings(head)?;
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut answer = httparse::Response::new(&mut headers);
    let read = answer.parse(head).map_err(|_| "the answer does not read as HTTP/1")?;
    let (Some(status), true) = (answer.code, read == httparse::Status::Complete(head.len())) else {
        return Err("the answer does not read as HTTP/1");
    };
    let mut out = Vec::new();
    copy_headers(answer.headers, &mut out);
    let said = body_framing(answer.headers, true)?;
    let bare = asks_for_head || status < 200 || status == 204 || status == 304;
    let body = if bare { BodyFraming::Length(0) } else { said.unwrap_or(BodyFraming::UntilEnd) };
    // A response without a body keeps its declared length: reporting it is the purpose of HEAD.
    match (bare, said) {
        (_, Some(said)) if status >= 200 && status != 204 => out.extend(said.to_header()),
        (true, _) | (false, None | Some(_)) => {}
    }
    let reason = answer.reason.unwrap_or_default().to_owned();
    Ok(ResponseHead { status, headers: out, reason, body })
}

impl ResponseHead {
    /// Serializes the head to forward. `keeps` says whether another request may follow.
    pub(super) fn to_bytes(&self, keeps: bool) -> Vec<u8> {
        let mut out = format!("HTTP/1.1 {} {}\r\n", self.status, self.reason).into_bytes();
        out.extend_from_slice(&self.headers);
        if self.status >= 200 && !keeps {
            out.extend(b"connection: close\r\n");
        }
        out.extend(b"\r\n");
        out
    }
}

/// Refuses line endings that two programs could interpret differently.
fn check_line_endings(head: &[u8]) -> Result<(), &'static str> {
    let lone_feed = |at: usize| head[at] == b'\n' && (at == 0 || head[at - 1] != b'\r');
    let lone_return = |at: usize| head[at] == b'\r' && head.get(at + 1) != Some(&b'\n');
    if head.contains(&0) || (0..head.len()).any(|at| lone_feed(at) || lone_return(at)) {
        return Err("the lines of the head do not end as HTTP/1 has it");
    }
    Ok(())
}

/// Splits `http://HOST[:PORT]/PATH`.
fn split_absolute_url(target: &str) -> Result<(HostPort, String), &'static str> {
    const MUST: &str =
        "this is a proxy: ask for http://HOST/PATH, or for a tunnel with CONNECT HOST:PORT where it is https";
    let scheme = target.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://")).ok_or(MUST)?;
    let rest = &target[scheme.len()..];
    let end = rest.find(['/', '?', '#', '\\']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    if authority.contains('@') || path.contains('#') || path.starts_with('\\') {
        return Err("the address must have no user, password or fragment");
    }
    let place = HostPort::parse(authority, Some(80)).ok_or("the address names no host")?;
    let path = if path.starts_with('/') { path.to_owned() } else { format!("/{path}") };
    Ok((place, path))
}

fn is_header(header: &httparse::Header<'_>, name: &str) -> bool {
    header.name.eq_ignore_ascii_case(name)
}

fn has_header(headers: &[httparse::Header<'_>], name: &str) -> bool {
    headers.iter().any(|header| is_header(header, name))
}

/// Returns how the body is framed; `None` if no header says so.
fn body_framing(
    headers: &[httparse::Header<'_>],
    http_11: bool,
) -> Result<Option<BodyFraming>, &'static str> {
    let encodings = headers.iter().filter(|header| is_header(header, "transfer-encoding"));
    let lengths = headers.iter().filter(|header| is_header(header, "content-length"));
    let (encodings, lengths): (Vec<_>, Vec<_>) = (encodings.collect(), lengths.collect());
    match (encodings.as_slice(), lengths.as_slice()) {
        ([], []) => Ok(None),
        ([], [one]) => {
            let digits = one.value.iter().all(u8::is_ascii_digit) && !one.value.is_empty();
            let text = std::str::from_utf8(one.value).ok().filter(|_| digits);
            let length = text.and_then(|text| text.parse().ok()).ok_or("Content-Length is no number")?;
            Ok(Some(BodyFraming::Length(length)))
        }
        ([], _) => Err("Content-Length stands there twice"),
        ([one], []) if http_11 && one.value.eq_ignore_ascii_case(b"chunked") => {
            Ok(Some(BodyFraming::Chunked))
        }
        (_, []) => Err("Transfer-Encoding must be `chunked`, once, in HTTP/1.1"),
        (_, _) => Err("Content-Length and Transfer-Encoding must not stand together"),
    }
}

fn connection_options<'a>(headers: &'a [httparse::Header<'a>]) -> impl Iterator<Item = &'a str> {
    let values = headers.iter().filter(|header| is_header(header, "connection"));
    values
        .filter_map(|header| std::str::from_utf8(header.value).ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

fn is_connection_close(headers: &[httparse::Header<'_>]) -> bool {
    connection_options(headers).any(|word| word.eq_ignore_ascii_case("close"))
        || headers.iter().any(|h| is_header(h, "proxy-connection") && h.value.eq_ignore_ascii_case(b"close"))
}

fn copy_headers(headers: &[httparse::Header<'_>], out: &mut Vec<u8>) {
    for header in headers {
        let own = HOP_BY_HOP_HEADERS.iter().any(|name| is_header(header, name));
        if !own && !connection_options(headers).any(|name| is_header(header, name)) {
            out.extend_from_slice(header.name.as_bytes());
            out.extend_from_slice(b": ");
            out.extend_from_slice(header.value);
            out.extend_from_slice(b"\r\n");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_plain_request(head: &str) -> PlainHttpRequest {
        match parse_proxy_request(head.as_bytes()) {
            Ok(ProxyRequest::PlainHttp(request)) => request,
            other => panic!("{head:?}: {other:?}"),
        }
    }

    #[test]
    fn request_is_forwarded_with_checked_host_and_without_proxy_headers() {
        let request = parse_plain_request(
            "POST http://Example.ORG:8080/a?b HTTP/1.1\r\nHost: evil.example\r\nhost: other\r\n\
             Proxy-Authorization: Basic x\r\nConnection: x-hop, keep-alive\r\nX-Hop: 1\r\nTE: trailers\r\n\
             Upgrade: websocket\r\nContent-Length: 3\r\nX-Own: yes\r\n\r\n",
        );
        assert_eq!(request.place.to_string(), "example.org:8080");
        assert_eq!(
            String::from_utf8(request.head).unwrap(),
            "POST /a?b HTTP/1.1\r\nhost: example.org:8080\r\nX-Own: yes\r\ncontent-length: 3\r\nconnection: close\r\n\r\n"
        );
        assert_eq!((request.body, request.keep_alive), (BodyFraming::Length(3), true));
        let request = parse_plain_request("GET http://a.org?x HTTP/1.0\r\n\r\n");
        assert_eq!(request.head, b"GET /?x HTTP/1.1\r\nhost: a.org\r\nconnection: close\r\n\r\n");
        assert!(!request.keep_alive);
        let tunnel = parse_proxy_request(b"CONNECT [::1]:443 HTTP/1.1\r\nHost: x\r\n\r\n");
        assert_eq!(tunnel, Ok(ProxyRequest::Tunnel(HostPort::parse("[::1]:443", None).unwrap())));
    }

    #[test]
    fn ambiguous_heads_are_refused() {
        let of = |lines: &str| format!("POST http://a.org/ HTTP/1.1\r\n{lines}\r\n");
        for head in [
            of("Content-Length: 3\r\nTransfer-Encoding: chunked\r\n"),
            of("Transfer-Encoding: chunked\r\nContent-Length: 3\r\n"),
            of("Content-Length: 3\r\nContent-Length: 3\r\n"),
            of("Content-Length: +3\r\n"),
            of("Content-Length: 3, 3\r\n"),
            of("Content-Length:\r\n"),
            of("Content-Length: 99999999999999999999\r\n"),
            of("Transfer-Encoding: gzip, chunked\r\n"),
            of("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"),
            of("Transfer-Encoding: xchunked\r\n"),
            of("Transfer-Encoding : chunked\r\n"),
            of("A: b\n"),
            of("A: b\rC: d\r\n"),
            of("A: b\r\n folded\r\n"),
            of("A: b\0\r\n"),
            "POST http://a.org/ HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
            "GET http://a.org/ HTTP/1.1\n\n\r\n\r\n".to_owned(),
            "GET / HTTP/1.1\r\nHost: a.org\r\n\r\n".to_owned(),
            "GET https://a.org/ HTTP/1.1\r\n\r\n".to_owned(),
            "GET http://user@a.org/ HTTP/1.1\r\n\r\n".to_owned(),
            "GET http://b.org\\@a.org/ HTTP/1.1\r\n\r\n".to_owned(),
            "GET http://a.org/#x HTTP/1.1\r\n\r\n".to_owned(),
            "GET http:/// HTTP/1.1\r\n\r\n".to_owned(),
            "GET  http://a.org/ HTTP/1.1\r\n\r\n".to_owned(),
            "CONNECT a.org HTTP/1.1\r\n\r\n".to_owned(),
            "CONNECT http://a.org:443/ HTTP/1.1\r\n\r\n".to_owned(),
            "\x16\x03\x01\r\n\r\n".to_owned(),
        ] {
            assert!(parse_proxy_request(head.as_bytes()).is_err(), "{head:?}");
        }
        assert_eq!(parse_plain_request(&of("transfer-encoding: Chunked\r\n")).body, BodyFraming::Chunked);
    }

    #[test]
    fn response_framing_is_parsed() {
        let of = |head: &str, asks_for_head| parse_response_head(head.as_bytes(), asks_for_head);
        let one = of("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: x\r\nX: 1\r\n\r\n", false).unwrap();
        assert_eq!(one.body, BodyFraming::Length(5));
        assert_eq!(one.to_bytes(true), b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n");
        let one = of("HTTP/1.0 200 OK\r\nA: b\r\n\r\n", false).unwrap();
        assert_eq!(one.body, BodyFraming::UntilEnd);
        assert_eq!(one.to_bytes(false), b"HTTP/1.1 200 OK\r\nA: b\r\nconnection: close\r\n\r\n");
        let head = of("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n", true).unwrap();
        assert_eq!(head.body, BodyFraming::Length(0));
        assert_eq!(head.to_bytes(true), b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n");
        assert_eq!(of("HTTP/1.1 204 No\r\n\r\n", false).unwrap().body, BodyFraming::Length(0));
        let both = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n";
        assert!(of(both, false).is_err() && of("HTP/1.1 200\r\n\r\n", false).is_err());
    }
}

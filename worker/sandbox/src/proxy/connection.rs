//! Serves one connection of a program: checks its requests, and forwards or refuses them.

use std::{
    io::{
        self,
        ErrorKind::{BrokenPipe, ConnectionReset},
    },
    net::SocketAddr,
    time::Duration,
};

use docket_schema::policy::{ConnectionKind, HostName, HostPort};
use tokio::{
    io::{AsyncWriteExt as _, sink},
    net::{
        TcpStream, lookup_host,
        tcp::{OwnedReadHalf, OwnedWriteHalf},
    },
    time::timeout,
};

use super::{
    address::is_global,
    client_hello::{self, ClientHello, HANDSHAKE_RECORD},
    http_body::{BodyFraming, copy_body},
    http_head::{self, PlainHttpRequest, ProxyRequest, ResponseHead},
    incoming_stream::{IncomingStream, unexpected_eof},
    meter::{MeteredConnection, NetworkMeter},
};

/// A connection without traffic for this long is closed.
pub(super) const IDLE_TIMEOUT: Duration = Duration::from_secs(60);

/// Time limit for the head of a request, or for a hello.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);

/// Time limit for resolving a name, and for connecting to one address.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum number of addresses tried per name.
const ADDRESSES_MAX: usize = 4;

/// Maximum number of requests per connection.
const REQUESTS_MAX: usize = 1000;

/// Maximum number of interim responses (`100 Continue`).
const INTERIM_RESPONSES_MAX: usize = 8;

/// How long a refused program may keep sending.
const REFUSAL_LINGER: Duration = Duration::from_secs(1);

/// The addresses a name may resolve to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AddressScope {
    /// Those of the open internet.
    Global,
    /// Any, so that a test can use local servers.
    #[cfg(test)]
    Any,
}

type ProgramReader = IncomingStream<OwnedReadHalf>;

/// Serves one connection to its end.
pub(super) async fn serve_connection(meter: &NetworkMeter, reach: AddressScope, program: TcpStream) {
    let _ = program.set_nodelay(true);
    let (from, mut to) = program.into_split();
    let mut from = IncomingStream::new(from);
    for _ in 0..REQUESTS_MAX {
        let head = match timeout(HEAD_TIMEOUT, from.read_head()).await {
            Ok(Ok(Some(head))) => head,
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                meter.record_refusal("a request", &error.to_string());
                return send_refusal(from, to, 431, &error.to_string()).await;
            }
            Ok(Ok(None) | Err(_)) | Err(_) => return,
        };
        match http_head::parse_proxy_request(&head) {
            Err(why) => {
                meter.record_refusal("a request", why);
                return send_refusal(from, to, 400, why).await;
            }
            Ok(ProxyRequest::Tunnel(place)) => {
                match connect_to_target(meter, reach, &place, ConnectionKind::Tunnel).await {
                    Ok(server) => run_tunnel(meter, &place, (from, to), server).await,
                    Err(why) => refuse_target(meter, &place, (from, to), &why).await,
                }
                return;
            }
            Ok(ProxyRequest::PlainHttp(request)) => {
                match connect_to_target(meter, reach, &request.place, ConnectionKind::Plain).await {
                    Ok(server) => {
                        match forward_request(meter, &request, (&mut from, &mut to), server).await {
                            Ok(true) => {}
                            Ok(false) | Err(_) => return,
                        }
                    }
                    Err(why) => return refuse_target(meter, &request.place, (from, to), &why).await,
                }
            }
        }
    }
}

/// Why a connection to a target was not made.
enum DialError {
    /// The policy does not allow it.
    NotAllowed(&'static str),
    /// It cannot be reached.
    Unreachable(String),
}

/// Connects to an allowed target, at an address that was checked.
async fn connect_to_target(
    meter: &NetworkMeter,
    reach: AddressScope,
    place: &HostPort,
    way: ConnectionKind,
) -> Result<TcpStream, DialError> {
    if !meter.allow_list.allows(place, way) {
        return Err(DialError::NotAllowed("it is not on the list"));
    }
    let away = |what: &str, error: io::Error| DialError::Unreachable(format!("{what}: {error}"));
    let slow = || io::Error::from(io::ErrorKind::TimedOut);
    let addresses: Vec<SocketAddr> = match &place.host {
        // The address itself is listed.
        HostName::Address(address) => vec![(*address, place.port).into()],
        HostName::Name(name) => {
            let found = timeout(DIAL_TIMEOUT, lookup_host((name.as_str(), place.port))).await;
            let found = found.unwrap_or_else(|_| Err(slow()));
            let found = found.map_err(|error| away("its name does not resolve", error))?;
            let may = |address: &SocketAddr| match reach {
                AddressScope::Global => is_global(address.ip()),
                #[cfg(test)]
                AddressScope::Any => true,
            };
            found.filter(may).take(ADDRESSES_MAX).collect()
        }
    };
    let mut last = DialError::NotAllowed("its name stands for no address of the open internet");
    for address in addresses {
        match timeout(DIAL_TIMEOUT, TcpStream::connect(address)).await.unwrap_or_else(|_| Err(slow())) {
            Ok(server) => {
                let _ = server.set_nodelay(true);
                return Ok(server);
            }
            Err(error) => last = away("it cannot be connected to", error),
        }
    }
    Err(last)
}

async fn refuse_target(
    meter: &NetworkMeter,
    place: &HostPort,
    (from, to): (ProgramReader, OwnedWriteHalf),
    why: &DialError,
) {
    let (status, why) = match why {
        DialError::NotAllowed(why) => (403, (*why).to_owned()),
        DialError::Unreachable(why) => (502, why.clone()),
    };
    meter.record_refusal(&place.to_string(), &why);
    let allowed = meter.allow_list.listed_hosts();
    let text = format!(
        "docket: {place} is not reached: {why}. The network policy of this run allows {}.",
        if allowed.is_empty() { "no host" } else { allowed }
    );
    send_refusal(from, to, status, &text).await;
}

/// Sends a refusal and keeps reading for a moment: closing the connection at once could lose the
/// response.
async fn send_refusal(mut from: ProgramReader, mut to: OwnedWriteHalf, status: u16, text: &str) {
    let reason = match status {
        400 => "Bad Request",
        403 => "Refused by docket's network policy",
        431 => "Request Header Fields Too Large",
        _ => "Bad Gateway",
    };
    let answer = format!(
        "HTTP/1.1 {status} {reason}\r\ncontent-type: text/plain; charset=utf-8\r\ncontent-length: {}\r\n\
         connection: close\r\n\r\n{text}\n",
        text.len() + 1
    );
    let say = async {
        to.write_all(answer.as_bytes()).await?;
        to.shutdown().await?;
        copy_body(&mut from, &mut sink(), BodyFraming::UntilEnd, |_| Ok(())).await
    };
    let _ = timeout(REFUSAL_LINGER, say).await;
}

/// Forwards one request. Returns whether another may follow.
async fn forward_request(
    meter: &NetworkMeter,
    request: &PlainHttpRequest,
    (from, to): (&mut ProgramReader, &mut OwnedWriteHalf),
    server: TcpStream,
) -> io::Result<bool> {
    let line = meter.record_connection(&request.place);
    let (server_from, mut server_to) = server.into_split();
    let mut server_from = IncomingStream::new(server_from);
    let exchange = async {
        let send = async {
            line.count_sent(request.head.len())?;
            server_to.write_all(&request.head).await?;
            copy_body(from, &mut server_to, request.body, |bytes| line.count_sent(bytes)).await
        };
        let receive = forward_response(&line, request, &mut server_from, to);
        tokio::pin!(send, receive);
        // A response may arrive before the request was sent completely; then no other request
        // follows.
        tokio::select! {
            sent = &mut send => match sent {
                Ok(()) => receive.await,
                // A server that stopped reading may have responded.
                Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset) => {
                    receive.await.map_err(|_| error).map(|_| false)
                }
                Err(error) => Err(error),
            },
            received = &mut receive => received.map(|_| false),
        }
    };
    tokio::select! {
        kept = exchange => kept,
        () = line.wait_until_idle() => Ok(false),
    }
}

/// Forwards the response. Returns whether the connection stays open.
async fn forward_response(
    line: &MeteredConnection<'_>,
    request: &PlainHttpRequest,
    from: &mut ProgramReader,
    to: &mut OwnedWriteHalf,
) -> io::Result<bool> {
    for _ in 0..INTERIM_RESPONSES_MAX {
        let head = from.read_head().await?.ok_or_else(unexpected_eof)?;
        line.count_received(head.len())?;
        let read = http_head::parse_response_head(&head, request.is_head_request);
        let answer: ResponseHead = match read {
            Ok(answer) if answer.status != 101 => answer,
            Ok(_) | Err(_) => {
                to.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                    .await?;
                return Ok(false);
            }
        };
        let keeps = request.keep_alive && answer.body != BodyFraming::UntilEnd;
        to.write_all(&answer.to_bytes(keeps)).await?;
        if answer.status >= 200 {
            copy_body(from, to, answer.body, |bytes| line.count_received(bytes)).await?;
            return Ok(keeps);
        }
    }
    Err(unexpected_eof())
}

/// Joins a program and a server, once the program's first bytes match the requested target.
async fn run_tunnel(
    meter: &NetworkMeter,
    place: &HostPort,
    (mut from, mut to): (ProgramReader, OwnedWriteHalf),
    server: TcpStream,
) {
    let line = meter.record_connection(place);
    let (mut server_from, mut server_to) = server.into_split();
    if to.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_err() {
        return;
    }
    let up = async {
        if let Err(why) = inspect_tunnel_start(place, &mut from).await? {
            meter.record_refusal(&place.to_string(), &why);
            return Err(io::Error::other(why));
        }
        copy_body(&mut from, &mut server_to, BodyFraming::UntilEnd, |bytes| line.count_sent(bytes)).await?;
        server_to.shutdown().await
    };
    let down = async {
        let mut server_from = IncomingStream::new(&mut server_from);
        copy_body(&mut server_from, &mut to, BodyFraming::UntilEnd, |bytes| line.count_received(bytes))
            .await?;
        to.shutdown().await
    };
    tokio::select! {
        _ = async { tokio::try_join!(up, down) } => {}
        () = line.wait_until_idle() => {}
    }
}

/// Returns whether a tunnel's first bytes are TLS for its own host. On ports other than 443, they may be
/// another protocol.
async fn inspect_tunnel_start(place: &HostPort, from: &mut ProgramReader) -> io::Result<Result<(), String>> {
    let must_be_tls = place.port == 443;
    let look = async {
        loop {
            match from.buffered_bytes() {
                [] => {}
                [HANDSHAKE_RECORD, ..] => match client_hello::parse_client_hello(from.buffered_bytes()) {
                    ClientHello::Incomplete => {}
                    ClientHello::Complete(name) => return Ok(check_server_name(place, name.as_deref())),
                    ClientHello::Invalid(why) => return Ok(Err(why.to_owned())),
                },
                [_, ..] if must_be_tls => return Ok(Err("it is not TLS".to_owned())),
                [_, ..] => return Ok(Ok(())),
            }
            if !from.read_more().await? {
                return if from.buffered_bytes().is_empty() { Ok(Ok(())) } else { Err(unexpected_eof()) };
            }
        }
    };
    if must_be_tls {
        return timeout(HEAD_TIMEOUT, look).await.unwrap_or_else(|_| Ok(Err("it says nothing".to_owned())));
    }
    // If the server speaks first, the program may take its time.
    look.await
}

fn check_server_name(place: &HostPort, name: Option<&str>) -> Result<(), String> {
    let same = match (&place.host, name) {
        (HostName::Address(_), None) => true,
        (HostName::Name(_), None) => false,
        (host, Some(name)) => HostName::parse(name).as_ref() == Some(host),
    };
    let said = name.unwrap_or("no host");
    if same { Ok(()) } else { Err(format!("TLS names {said} within")) }
}

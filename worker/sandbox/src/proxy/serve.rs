//! One connection of a program's: what it asks for is looked at, and carried out or refused.

use std::{
    io::{
        self,
        ErrorKind::{BrokenPipe, ConnectionReset},
    },
    net::SocketAddr,
    time::Duration,
};

use docket_schema::policy::{HostName, Place, Way};
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
    body::{Framing, pass},
    head::{self, Answer, Request, Wish},
    hello::{self, HANDSHAKE, Hello},
    meter::{Line, Meter},
    stream::{Incoming, cut},
};

/// A connection over which nothing went for so long ends.
pub(super) const IDLE: Duration = Duration::from_secs(60);

/// How long a program may take for the head of a request, or for its hello.
const HEAD_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a name may take to resolve, and one address to answer.
const DIAL_TIMEOUT: Duration = Duration::from_secs(10);

/// Addresses of one name that are tried.
const ADDRESSES_MAX: usize = 4;

/// Requests over one connection.
const REQUESTS_MAX: usize = 1000;

/// Answers before the answer (`100 Continue`).
const EARLY_ANSWERS_MAX: usize = 8;

/// How long a program that was refused may go on to talk.
const BOW_OUT: Duration = Duration::from_secs(1);

/// Which addresses a name may stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    /// Those of the open internet.
    Global,
    /// Any, so that a test can have servers of its own.
    #[cfg(test)]
    Any,
}

type From = Incoming<OwnedReadHalf>;

/// Serves one connection to its end.
pub(super) async fn serve(meter: &Meter, reach: Reach, program: TcpStream) {
    let _ = program.set_nodelay(true);
    let (from, mut to) = program.into_split();
    let mut from = Incoming::new(from);
    for _ in 0..REQUESTS_MAX {
        let head = match timeout(HEAD_TIMEOUT, from.head()).await {
            Ok(Ok(Some(head))) => head,
            Ok(Err(error)) if error.kind() == io::ErrorKind::InvalidData => {
                meter.refused("a request", &error.to_string());
                return bow_out(from, to, 431, &error.to_string()).await;
            }
            Ok(Ok(None) | Err(_)) | Err(_) => return,
        };
        match head::wish(&head) {
            Err(why) => {
                meter.refused("a request", why);
                return bow_out(from, to, 400, why).await;
            }
            Ok(Wish::Tunnel(place)) => {
                match dial(meter, reach, &place, Way::Tunnel).await {
                    Ok(server) => tunnel(meter, &place, (from, to), server).await,
                    Err(why) => refuse(meter, &place, (from, to), &why).await,
                }
                return;
            }
            Ok(Wish::Plain(request)) => match dial(meter, reach, &request.place, Way::Plain).await {
                Ok(server) => match forward(meter, &request, (&mut from, &mut to), server).await {
                    Ok(true) => {}
                    Ok(false) | Err(_) => return,
                },
                Err(why) => return refuse(meter, &request.place, (from, to), &why).await,
            },
        }
    }
}

/// Why a place is not reached.
enum Refused {
    /// Policy does not allow it.
    Policy(&'static str),
    /// It cannot be reached.
    Away(String),
}

/// Connects to a place that may be reached, at an address that was looked at.
async fn dial(meter: &Meter, reach: Reach, place: &Place, way: Way) -> Result<TcpStream, Refused> {
    if !meter.allow.allows(place, way) {
        return Err(Refused::Policy("it is not on the list"));
    }
    let away = |what: &str, error: io::Error| Refused::Away(format!("{what}: {error}"));
    let slow = || io::Error::from(io::ErrorKind::TimedOut);
    let addresses: Vec<SocketAddr> = match &place.host {
        // It is listed itself.
        HostName::Address(address) => vec![(*address, place.port).into()],
        HostName::Name(name) => {
            let found = timeout(DIAL_TIMEOUT, lookup_host((name.as_str(), place.port))).await;
            let found = found.unwrap_or_else(|_| Err(slow()));
            let found = found.map_err(|error| away("its name does not resolve", error))?;
            let may = |address: &SocketAddr| match reach {
                Reach::Global => is_global(address.ip()),
                #[cfg(test)]
                Reach::Any => true,
            };
            found.filter(may).take(ADDRESSES_MAX).collect()
        }
    };
    let mut last = Refused::Policy("its name stands for no address of the open internet");
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

async fn refuse(meter: &Meter, place: &Place, (from, to): (From, OwnedWriteHalf), why: &Refused) {
    let (status, why) = match why {
        Refused::Policy(why) => (403, (*why).to_owned()),
        Refused::Away(why) => (502, why.clone()),
    };
    meter.refused(&place.to_string(), &why);
    let allowed = meter.allow.told();
    let text = format!(
        "docket: {place} is not reached: {why}. The network policy of this run allows {}.",
        if allowed.is_empty() { "no host" } else { allowed }
    );
    bow_out(from, to, status, &text).await;
}

/// Says no, and listens for a moment: a connection that is cut off takes the answer with it.
async fn bow_out(mut from: From, mut to: OwnedWriteHalf, status: u16, text: &str) {
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
        pass(&mut from, &mut sink(), Framing::UntilEnd, |_| Ok(())).await
    };
    let _ = timeout(BOW_OUT, say).await;
}

/// Carries one request out. Whether another may follow.
async fn forward(
    meter: &Meter,
    request: &Request,
    (from, to): (&mut From, &mut OwnedWriteHalf),
    server: TcpStream,
) -> io::Result<bool> {
    let line = meter.reached(&request.place);
    let (server_from, mut server_to) = server.into_split();
    let mut server_from = Incoming::new(server_from);
    let exchange = async {
        let send = async {
            line.sends(request.head.len())?;
            server_to.write_all(&request.head).await?;
            pass(from, &mut server_to, request.body, |bytes| line.sends(bytes)).await
        };
        let receive = answers(&line, request, &mut server_from, to);
        tokio::pin!(send, receive);
        // An answer may come before the request was sent whole; then no other request follows.
        tokio::select! {
            sent = &mut send => match sent {
                Ok(()) => receive.await,
                // A server that takes no more may have answered.
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
        () = line.idle() => Ok(false),
    }
}

/// Passes the answer on. Whether the connection is kept.
async fn answers(
    line: &Line<'_>,
    request: &Request,
    from: &mut From,
    to: &mut OwnedWriteHalf,
) -> io::Result<bool> {
    for _ in 0..EARLY_ANSWERS_MAX {
        let head = from.head().await?.ok_or_else(cut)?;
        line.received(head.len())?;
        let read = head::answer(&head, request.asks_for_head);
        let answer: Answer = match read {
            Ok(answer) if answer.status != 101 => answer,
            Ok(_) | Err(_) => {
                to.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
                    .await?;
                return Ok(false);
            }
        };
        let keeps = request.keeps && answer.body != Framing::UntilEnd;
        to.write_all(&answer.written(keeps)).await?;
        if answer.status >= 200 {
            pass(from, to, answer.body, |bytes| line.received(bytes)).await?;
            return Ok(keeps);
        }
    }
    Err(cut())
}

/// Joins a program and a server, once what the program says first is what it said that it wants.
async fn tunnel(meter: &Meter, place: &Place, (mut from, mut to): (From, OwnedWriteHalf), server: TcpStream) {
    let line = meter.reached(place);
    let (mut server_from, mut server_to) = server.into_split();
    if to.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n").await.is_err() {
        return;
    }
    let up = async {
        if let Err(why) = looked_at(place, &mut from).await? {
            meter.refused(&place.to_string(), &why);
            return Err(io::Error::other(why));
        }
        pass(&mut from, &mut server_to, Framing::UntilEnd, |bytes| line.sends(bytes)).await?;
        server_to.shutdown().await
    };
    let down = async {
        let mut server_from = Incoming::new(&mut server_from);
        pass(&mut server_from, &mut to, Framing::UntilEnd, |bytes| line.received(bytes)).await?;
        to.shutdown().await
    };
    tokio::select! {
        _ = async { tokio::try_join!(up, down) } => {}
        () = line.idle() => {}
    }
}

/// Whether a tunnel's first bytes are TLS for its own host. At other ports than 443 it may be something else.
async fn looked_at(place: &Place, from: &mut From) -> io::Result<Result<(), String>> {
    let must_be_tls = place.port == 443;
    let look = async {
        loop {
            match from.ahead() {
                [] => {}
                [HANDSHAKE, ..] => match hello::read(from.ahead()) {
                    Hello::Partial => {}
                    Hello::Whole(name) => return Ok(named(place, name.as_deref())),
                    Hello::Bad(why) => return Ok(Err(why.to_owned())),
                },
                [_, ..] if must_be_tls => return Ok(Err("it is not TLS".to_owned())),
                [_, ..] => return Ok(Ok(())),
            }
            if !from.more().await? {
                return if from.ahead().is_empty() { Ok(Ok(())) } else { Err(cut()) };
            }
        }
    };
    if must_be_tls {
        return timeout(HEAD_TIMEOUT, look).await.unwrap_or_else(|_| Ok(Err("it says nothing".to_owned())));
    }
    // Where the server speaks first the program may take its time.
    look.await
}

fn named(place: &Place, name: Option<&str>) -> Result<(), String> {
    let same = match (&place.host, name) {
        (HostName::Address(_), None) => true,
        (HostName::Name(_), None) => false,
        (host, Some(name)) => HostName::parse(name).as_ref() == Some(host),
    };
    let said = name.unwrap_or("no host");
    if same { Ok(()) } else { Err(format!("TLS names {said} within")) }
}

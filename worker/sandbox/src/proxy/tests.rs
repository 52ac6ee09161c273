//! Runs the proxy over sockets of this process: which traffic passes, to which server, and which
//! does not.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use docket_schema::{
    policy::{AllowList, NetworkPolicy},
    tool::NetworkActivity,
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::oneshot,
    task::JoinHandle,
    time::timeout,
};

use super::{super::tests::servers, call_proxy::CallProxy, connection::AddressScope};

/// A proxy with an allow list, served until it is ended.
struct TestProxy {
    address: SocketAddr,
    end: oneshot::Sender<()>,
    finished: JoinHandle<NetworkActivity>,
}

impl TestProxy {
    fn start(hosts: &[String], bytes_max: Option<u64>, reach: AddressScope) -> Self {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let network = NetworkPolicy { hosts: hosts.to_vec(), bytes_max, ..NetworkPolicy::default() };
        let allow = Arc::new(AllowList::from_policies([&network]).unwrap());
        let mut uplink = Some(CallProxy::from_socket(listener.into(), allow, reach).unwrap());
        let (end, mut ended) = oneshot::channel();
        let served = tokio::spawn(async move {
            tokio::select! {
                () = CallProxy::serve(&mut uplink) => {}
                _ = &mut ended => {}
            }
            uplink.unwrap().finish()
        });
        Self { address, end, finished: served }
    }

    async fn connect(&self) -> TcpStream {
        TcpStream::connect(self.address).await.unwrap()
    }

    /// Sends a request and reads to the end.
    async fn send_request(&self, request: &str) -> String {
        let mut stream = self.connect().await;
        stream.write_all(request.as_bytes()).await.unwrap();
        read_to_end(&mut stream).await
    }

    async fn shut_down(self) -> NetworkActivity {
        self.end.send(()).unwrap();
        self.finished.await.unwrap()
    }
}

async fn read_to_end(stream: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let read = timeout(Duration::from_secs(20), stream.read_to_end(&mut bytes)).await;
    // A connection that is reset has ended as well.
    let _ = read.expect("it ends");
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Reads until `words` were received.
async fn read_until(stream: &mut TcpStream, words: &str) -> String {
    let mut said = Vec::new();
    while !String::from_utf8_lossy(&said).contains(words) {
        let mut bytes = [0; 1024];
        let read = timeout(Duration::from_secs(20), stream.read(&mut bytes)).await.unwrap().unwrap();
        assert!(read > 0, "ended after {}", String::from_utf8_lossy(&said));
        said.extend_from_slice(&bytes[..read]);
    }
    String::from_utf8_lossy(&said).into_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn allowed_host_is_reached_regardless_of_host_header() {
    let (server, asked) = servers::start_http_server().await;
    let place = format!("localhost:{}", server.port());
    let proxy = TestProxy::start(std::slice::from_ref(&place), None, AddressScope::Any);
    let get = |host: &str| {
        format!(
            "GET http://{place}/a HTTP/1.1\r\nHost: {host}\r\nProxy-Authorization: x\r\nConnection: close\r\n\r\n"
        )
    };
    for host in [place.as_str(), "evil.example"] {
        let said = proxy.send_request(&get(host)).await;
        assert!(said.ends_with(&format!("GET /a at {place} with 0 bytes, 0 of the proxy's\n")), "{said}");
    }
    let chunked = format!(
        "POST http://{place}/c HTTP/1.1\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
         3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n"
    );
    assert!(proxy.send_request(&chunked).await.contains("POST /c"));
    assert!(asked.lock().unwrap()[2].contains("with 5 bytes"));
    let seen = proxy.shut_down().await;
    assert_eq!(seen.refused, []);
    let [reached] = seen.reached.as_slice() else { panic!("{seen:?}") };
    assert_eq!((reached.place.as_str(), reached.connections), (place.as_str(), 3));
    assert!(reached.sent_bytes > 100 && reached.received_bytes > 300, "{reached:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_request_on_a_keep_alive_connection_is_checked() {
    let (server, asked) = servers::start_http_server().await;
    let (other, others) = servers::start_http_server().await;
    let proxy = TestProxy::start(&[server.to_string()], None, AddressScope::Global);
    let mut stream = proxy.connect().await;
    let get =
        |at: SocketAddr, path: &str| format!("GET http://{at}/{path} HTTP/1.1\r\nHost: {server}\r\n\r\n");
    stream.write_all(get(server, "one").as_bytes()).await.unwrap();
    read_until(&mut stream, "GET /one at").await;
    // Another request is hidden behind a body that is shorter than it looks.
    let hidden = get(other, "hidden");
    let post = format!("POST http://{server}/two HTTP/1.1\r\nContent-Length: 4\r\n\r\nbody{hidden}");
    stream.write_all(post.as_bytes()).await.unwrap();
    let said = read_to_end(&mut stream).await;
    assert!(said.contains("POST /two at") && said.contains(" 403 "), "{said}");
    assert_eq!(asked.lock().unwrap().len(), 2);
    assert!(others.lock().unwrap().is_empty());
    let seen = proxy.shut_down().await;
    assert_eq!(seen.refused[0].place, other.to_string());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn unlisted_and_private_targets_are_refused_by_name() {
    let (server, asked) = servers::start_http_server().await;
    let port = server.port();
    let hosts = ["localhost:PORT", "127.0.0.1:1", "[::1]:1", "*.example.org"];
    let hosts = hosts.map(|host| host.replace("PORT", &port.to_string()));
    let proxy = TestProxy::start(&hosts, None, AddressScope::Global);
    for (target, status, why) in [
        ("GET http://evil.example/ HTTP/1.1".to_owned(), 403, "not on the list"),
        ("CONNECT evil.example:443 HTTP/1.1".to_owned(), 403, "not on the list"),
        ("CONNECT 169.254.169.254:80 HTTP/1.1".to_owned(), 403, "not on the list"),
        ("CONNECT a.example.org:22 HTTP/1.1".to_owned(), 403, "not on the list"),
        ("CONNECT a.example.org:80 HTTP/1.1".to_owned(), 403, "not on the list"),
        (format!("GET http://127.0.0.1:{port}/ HTTP/1.1"), 403, "not on the list"),
        (format!("GET http://localhost:{port}/ HTTP/1.1"), 403, "no address of the open internet"),
        (format!("CONNECT localhost:{port} HTTP/1.1"), 403, "no address of the open internet"),
        ("CONNECT 127.0.0.1:1 HTTP/1.1".to_owned(), 502, "cannot be connected to"),
        ("CONNECT [::1]:1 HTTP/1.1".to_owned(), 502, "cannot be connected to"),
        ("CONNECT [::1]:443 HTTP/1.1".to_owned(), 403, "not on the list"),
        ("GET http://[::ffff:127.0.0.1]/ HTTP/1.1".to_owned(), 403, "not on the list"),
        ("GET / HTTP/1.1".to_owned(), 400, "this is a proxy"),
        (
            format!(
                "GET http://localhost:{port}/ HTTP/1.1\r\nContent-Length: 1\r\nTransfer-Encoding: chunked"
            ),
            400,
            "together",
        ),
        (format!("GET /{} HTTP/1.1", "x".repeat(40_000)), 431, "too long"),
    ] {
        let said = proxy.send_request(&format!("{target}\r\nHost: x\r\n\r\n")).await;
        assert!(said.starts_with(&format!("HTTP/1.1 {status} ")), "{}: {said}", &target[..20]);
        assert!(said.contains(why), "{}: {said}", &target[..20]);
        if status == 403 {
            assert!(said.contains("policy of this run allows localhost:"), "{said}");
        }
    }
    assert!(asked.lock().unwrap().is_empty());
    let seen = proxy.shut_down().await;
    assert_eq!((seen.reached.len(), seen.refused.len()), (0, 14), "{seen:?}");
    assert!(seen.refused.iter().any(|one| one.place == "169.254.169.254:80"), "{seen:?}");
}

/// Sends the first message of a TLS client for this name and returns the response.
async fn connect_through(proxy: &TestProxy, place: &str, first: &[u8]) -> String {
    let mut stream = proxy.connect().await;
    stream.write_all(format!("CONNECT {place} HTTP/1.1\r\nHost: {place}\r\n\r\n").as_bytes()).await.unwrap();
    let said = read_until(&mut stream, "\r\n\r\n").await;
    assert!(said.starts_with("HTTP/1.1 200 "), "{said}");
    let _ = stream.write_all(first).await;
    let _ = stream.shutdown().await;
    read_to_end(&mut stream).await
}

fn client_hello(name: &str) -> Vec<u8> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(rustls::RootCertStore::empty())
        .with_no_client_auth();
    let name = name.to_owned().try_into().unwrap();
    let mut client = rustls::ClientConnection::new(Arc::new(config), name).unwrap();
    let mut bytes = Vec::new();
    client.write_tls(&mut bytes).unwrap();
    bytes
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tls_inside_a_tunnel_must_name_the_tunnel_host() {
    let (server, _) = servers::start_tls_server();
    let name = format!("localhost:{}", server.port());
    let proxy = TestProxy::start(&[name.clone(), server.to_string()], None, AddressScope::Any);
    let answered = |said: &str| said.as_bytes().first() == Some(&22);
    assert!(
        answered(&connect_through(&proxy, &name, &client_hello("localhost")).await),
        "control: the server answers"
    );
    assert!(answered(&connect_through(&proxy, &server.to_string(), &client_hello("127.0.0.1")).await));
    for (place, first) in [
        (&name, client_hello("evil.example")),
        (&name, client_hello("127.0.0.1")),
        (&server.to_string(), client_hello("evil.example")),
        (&server.to_string(), client_hello("localhost")),
        (&name, b"\x16\x03\x01\x00\x05\x01\x00\x00\x00\x00".to_vec()),
    ] {
        assert_eq!(connect_through(&proxy, place, &first).await, "", "{place}");
    }
    let seen = proxy.shut_down().await;
    let whys: Vec<&str> = seen.refused.iter().map(|one| one.why.as_str()).collect();
    assert!(
        whys.contains(&"TLS names evil.example within") && whys.contains(&"TLS names no host within"),
        "{whys:?}"
    );
    assert_eq!(seen.refused.iter().map(|one| one.times).sum::<u32>(), 5);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn call_byte_limit_is_enforced_and_connections_end_with_the_call() {
    let (server, asked) = servers::start_http_server().await;
    let place = server.to_string();
    let proxy = TestProxy::start(std::slice::from_ref(&place), Some(400), AddressScope::Global);
    let get = format!("GET http://{place}/ HTTP/1.1\r\nConnection: close\r\n\r\n");
    assert!(proxy.send_request(&get).await.contains("200 OK"));
    let post = format!("POST http://{place}/ HTTP/1.1\r\nContent-Length: 5000\r\n\r\n{}", "x".repeat(5000));
    assert!(!proxy.send_request(&post).await.contains("200 OK"));
    assert_eq!(asked.lock().unwrap().len(), 1);
    let mut open = proxy.connect().await;
    open.write_all(b"GET http://").await.unwrap();
    let address = proxy.address;
    let seen = proxy.shut_down().await;
    assert!(seen.refused[0].why.contains("400 bytes are used up"), "{seen:?}");
    assert_eq!(read_to_end(&mut open).await, "");
    assert!(TcpStream::connect(address).await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recorded_network_usage_is_bounded_and_printable() {
    let proxy = TestProxy::start(&["a.example".to_owned()], None, AddressScope::Global);
    for nth in 0..55 {
        proxy.send_request(&format!("CONNECT host{nth}.example:443 HTTP/1.1\r\n\r\n")).await;
    }
    proxy.send_request("CONNECT host1.example:443 HTTP/1.1\r\n\r\n").await;
    let seen = proxy.shut_down().await;
    assert_eq!((seen.refused.len(), seen.left_out, seen.refused[1].times), (50, 5, 2));
    let clean = |text: &str| text.chars().all(|c| c.is_ascii_graphic() || c == ' ');
    assert!(seen.refused.iter().all(|one| clean(&one.place) && clean(&one.why)));
}

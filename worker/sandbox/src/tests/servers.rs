//! Servers on this machine's loopback, for commands to reach through the proxy.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpListener},
    sync::{Arc, Mutex},
    thread,
};

use axum::{Router, body::Bytes, extract::State, http::HeaderMap, routing::any};
use rustls::{ServerConfig, ServerConnection, StreamOwned, pki_types::PrivateKeyDer};

/// The requests a server received: method and path, host, and body length.
pub(crate) type RecordedRequests = Arc<Mutex<Vec<String>>>;

/// Echoes every request in its response and records it.
pub(crate) async fn start_http_server() -> (SocketAddr, RecordedRequests) {
    async fn echo_request(
        State(asked): State<RecordedRequests>,
        request: axum::http::Method,
        uri: axum::http::Uri,
        headers: HeaderMap,
        body: Bytes,
    ) -> String {
        let host = headers.get("host").and_then(|host| host.to_str().ok()).unwrap_or_default();
        let told = headers.keys().filter(|name| name.as_str().starts_with("proxy")).count();
        let line = format!("{request} {uri} at {host} with {} bytes, {told} of the proxy's\n", body.len());
        asked.lock().unwrap().push(line.clone());
        line
    }
    let asked = RecordedRequests::default();
    let router = Router::new().fallback(any(echo_request)).with_state(Arc::clone(&asked));
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move { axum::serve(listener, router).await });
    (address, asked)
}

/// Starts a TLS server with a self-signed certificate for `localhost` and 127.0.0.1. Each connection gets one
/// response.
pub(crate) fn start_tls_server() -> (SocketAddr, RecordedRequests) {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let certificate = include_bytes!("tls/certificate.der").to_vec().into();
    let key = PrivateKeyDer::try_from(include_bytes!("tls/key.der").to_vec()).unwrap();
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let config = Arc::new(config);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let asked = RecordedRequests::default();
    let noted = Arc::clone(&asked);
    thread::spawn(move || {
        for socket in listener.incoming() {
            let (config, noted) = (Arc::clone(&config), Arc::clone(&noted));
            thread::spawn(move || {
                let connection = ServerConnection::new(config).unwrap();
                let mut stream = StreamOwned::new(connection, socket.unwrap());
                let mut bytes = [0; 4096];
                let Ok(read) = stream.read(&mut bytes) else { return };
                let line =
                    String::from_utf8_lossy(&bytes[..read]).lines().next().unwrap_or_default().to_owned();
                noted.lock().unwrap().push(line);
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 7\r\nconnection: close\r\n\r\nby TLS\n");
                stream.conn.send_close_notify();
                let _ = stream.flush();
            });
        }
    });
    (address, asked)
}

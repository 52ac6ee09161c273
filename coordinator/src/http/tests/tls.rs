//! TLS: a real handshake with a test certificate, and connections that are refused.

use std::{os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::support::{TestServer, token_for};
use crate::{
    http::TokenRole,
    server::{ConnectionTimeouts, TlsError, TlsIdentity},
};

/// Files of a certificate for this machine.
struct TlsFiles {
    folder: tempfile::TempDir,
    cert: PathBuf,
    key: PathBuf,
    pem: String,
}

impl TlsFiles {
    fn new() -> Self {
        let folder = tempfile::tempdir().expect("folder");
        let names = vec!["127.0.0.1".to_owned(), "localhost".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).expect("a certificate");
        let (cert, key) = (folder.path().join("cert.pem"), folder.path().join("key.pem"));
        let pem = made.cert.pem();
        std::fs::write(&cert, &pem).expect("writes");
        std::fs::write(&key, made.signing_key.serialize_pem()).expect("writes");
        std::fs::set_permissions(&key, PermissionsExt::from_mode(0o600)).expect("chmod");
        Self { folder, cert, key, pem }
    }

    fn read_identity(&self) -> Result<TlsIdentity, TlsError> {
        TlsIdentity::load(&self.cert, &self.key)
    }
}

async fn open_tls_server(files: &TlsFiles) -> TestServer {
    let identity = files.read_identity().expect("an identity");
    TestServer::start_with(|config| {
        // Beyond loopback, TLS is sufficient without other settings.
        config.bind = "0.0.0.0:0".parse().expect("address");
        config.tls = Some(identity);
        config.timeouts =
            ConnectionTimeouts { handshake: Duration::from_millis(300), ..ConnectionTimeouts::default() };
    })
    .await
}

fn tls_url(house: &TestServer) -> String {
    format!("https://127.0.0.1:{}", house.server.local_addr().port())
}

#[tokio::test]
async fn only_clients_that_trust_the_certificate_connect() {
    let files = TlsFiles::new();
    let house = open_tls_server(&files).await;
    let url = tls_url(&house) + "/v1/status";
    let ca = reqwest::Certificate::from_pem(files.pem.as_bytes()).expect("a certificate");
    let trusting = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).build().expect("client");
    let answer = trusting.get(&url).bearer_auth(token_for(TokenRole::Read)).send().await.expect("answer");
    assert_eq!(answer.status(), 200);
    let answer = trusting.get(&url).send().await.expect("answer");
    assert_eq!(answer.status(), 401, "TLS is no token");
    let other = TlsFiles::new();
    let other = reqwest::Certificate::from_pem(other.pem.as_bytes()).expect("a certificate");
    let wary = reqwest::Client::builder().no_proxy().tls_certs_only([other]).build().expect("client");
    assert!(wary.get(&url).send().await.expect_err("another's certificate").is_connect());
    assert!(house.server.url().starts_with("http://127.0.0.1:"), "local callers use the other listener");
    assert_eq!(house.get("/v1/status").await.status, 200);
    assert!(house.server.tls_url().is_some_and(|url| url.starts_with("https://")));
}

/// Reads to the end of what the server sends in reply to `bytes`.
async fn send_bytes(house: &TestServer, bytes: &[u8]) -> Vec<u8> {
    let at = ("127.0.0.1", house.server.local_addr().port());
    let mut stream = TcpStream::connect(at).await.expect("connects");
    stream.write_all(bytes).await.expect("is taken");
    let mut said = Vec::new();
    drop(stream.read_to_end(&mut said).await);
    said
}

#[tokio::test]
async fn invalid_handshake_ends_only_its_own_connection() {
    let files = TlsFiles::new();
    let house = open_tls_server(&files).await;
    for bytes in
        [&b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"[..], &[0; 600], &[0x16, 3, 1, 0xff, 0xff]]
    {
        let said = send_bytes(&house, bytes).await;
        assert!(!said.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&said));
    }
    // A silent client is not waited for.
    assert_eq!(send_bytes(&house, b"").await, b"");
    assert_eq!(house.get("/v1/status").await.status, 200);
}

#[test]
fn readable_keys_and_invalid_tls_files_are_rejected() {
    let files = TlsFiles::new();
    for (mode, good) in
        [(0o600, true), (0o400, true), (0o640, true), (0o644, false), (0o604, false), (0o660, false)]
    {
        std::fs::set_permissions(&files.key, PermissionsExt::from_mode(mode)).expect("chmod");
        let read = files.read_identity();
        assert_eq!(read.is_ok(), good, "{mode:o}");
        assert!(good || matches!(read, Err(TlsError::KeyExposed { .. })), "{mode:o}");
    }
    std::fs::set_permissions(&files.key, PermissionsExt::from_mode(0o600)).expect("chmod");
    let missing = files.folder.path().join("none.pem");
    assert!(matches!(TlsIdentity::load(&missing, &files.key), Err(TlsError::File { .. })));
    assert!(matches!(TlsIdentity::load(&files.cert, &missing), Err(TlsError::File { .. })));
    std::fs::set_permissions(&files.cert, PermissionsExt::from_mode(0o600)).expect("chmod");
    assert!(matches!(TlsIdentity::load(&files.cert, &files.cert), Err(TlsError::File { .. })));
    assert!(matches!(TlsIdentity::load(&files.key, &files.key), Err(TlsError::File { .. })));
    let other = TlsFiles::new();
    let error = TlsIdentity::load(&files.cert, &other.key).expect_err("another's key");
    assert!(matches!(error, TlsError::InvalidIdentity(_)), "{error}");
    assert!(!format!("{error:?}").contains("PRIVATE"));
}

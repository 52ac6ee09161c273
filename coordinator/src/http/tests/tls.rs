//! TLS: a real handshake with a certificate made for the test, and what does not get through it.

use std::{os::unix::fs::PermissionsExt, path::PathBuf, time::Duration};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::support::{House, token};
use crate::{
    http::Role,
    server::{Patience, TlsError, TlsIdentity},
};

/// Files of a certificate for this machine.
struct Files {
    folder: tempfile::TempDir,
    cert: PathBuf,
    key: PathBuf,
    pem: String,
}

impl Files {
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

    fn read(&self) -> Result<TlsIdentity, TlsError> {
        TlsIdentity::read(&self.cert, &self.key)
    }
}

async fn house(files: &Files) -> House {
    let identity = files.read().expect("an identity");
    House::with(|config| {
        // Beyond loopback without another word: TLS is enough.
        config.bind = "0.0.0.0:0".parse().expect("address");
        config.tls = Some(identity);
        config.patience = Patience { handshake: Duration::from_millis(300), ..Patience::default() };
    })
    .await
}

fn tls_url(house: &House) -> String {
    format!("https://127.0.0.1:{}", house.running.local_addr().port())
}

#[tokio::test]
async fn who_trusts_the_certificate_gets_through_and_who_does_not_does_not() {
    let files = Files::new();
    let house = house(&files).await;
    let url = tls_url(&house) + "/v1/status";
    let ca = reqwest::Certificate::from_pem(files.pem.as_bytes()).expect("a certificate");
    let trusting = reqwest::Client::builder().no_proxy().tls_certs_only([ca]).build().expect("client");
    let answer = trusting.get(&url).bearer_auth(token(Role::Read)).send().await.expect("answer");
    assert_eq!(answer.status(), 200);
    let answer = trusting.get(&url).send().await.expect("answer");
    assert_eq!(answer.status(), 401, "TLS is no token");
    let other = Files::new();
    let other = reqwest::Certificate::from_pem(other.pem.as_bytes()).expect("a certificate");
    let wary = reqwest::Client::builder().no_proxy().tls_certs_only([other]).build().expect("client");
    assert!(wary.get(&url).send().await.expect_err("another's certificate").is_connect());
    assert!(
        house.running.url().starts_with("http://127.0.0.1:"),
        "whoever is here goes in by the other door"
    );
    assert_eq!(house.get("/v1/status").await.status, 200);
    assert!(house.running.tls_url().is_some_and(|url| url.starts_with("https://")));
}

/// Reads to the end of what a listener has to say to this.
async fn said_to(house: &House, bytes: &[u8]) -> Vec<u8> {
    let at = ("127.0.0.1", house.running.local_addr().port());
    let mut stream = TcpStream::connect(at).await.expect("connects");
    stream.write_all(bytes).await.expect("is taken");
    let mut said = Vec::new();
    drop(stream.read_to_end(&mut said).await);
    said
}

#[tokio::test]
async fn what_is_no_handshake_ends_the_connection_and_nothing_else() {
    let files = Files::new();
    let house = house(&files).await;
    for bytes in
        [&b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n"[..], &[0; 600], &[0x16, 3, 1, 0xff, 0xff]]
    {
        let said = said_to(&house, bytes).await;
        assert!(!said.starts_with(b"HTTP"), "{}", String::from_utf8_lossy(&said));
    }
    // One that says nothing is not waited for.
    assert_eq!(said_to(&house, b"").await, b"");
    assert_eq!(house.get("/v1/status").await.status, 200);
}

#[test]
fn keys_that_others_may_read_and_files_that_are_none_are_refused() {
    let files = Files::new();
    for (mode, good) in
        [(0o600, true), (0o400, true), (0o640, true), (0o644, false), (0o604, false), (0o660, false)]
    {
        std::fs::set_permissions(&files.key, PermissionsExt::from_mode(mode)).expect("chmod");
        let read = files.read();
        assert_eq!(read.is_ok(), good, "{mode:o}");
        assert!(good || matches!(read, Err(TlsError::Exposed { .. })), "{mode:o}");
    }
    std::fs::set_permissions(&files.key, PermissionsExt::from_mode(0o600)).expect("chmod");
    let missing = files.folder.path().join("none.pem");
    assert!(matches!(TlsIdentity::read(&missing, &files.key), Err(TlsError::File { .. })));
    assert!(matches!(TlsIdentity::read(&files.cert, &missing), Err(TlsError::File { .. })));
    std::fs::set_permissions(&files.cert, PermissionsExt::from_mode(0o600)).expect("chmod");
    assert!(matches!(TlsIdentity::read(&files.cert, &files.cert), Err(TlsError::File { .. })));
    assert!(matches!(TlsIdentity::read(&files.key, &files.key), Err(TlsError::File { .. })));
    let other = Files::new();
    let error = TlsIdentity::read(&files.cert, &other.key).expect_err("another's key");
    assert!(matches!(error, TlsError::Unfit(_)), "{error}");
    assert!(!format!("{error:?}").contains("PRIVATE"));
}

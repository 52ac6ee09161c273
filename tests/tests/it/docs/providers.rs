//! What a reader's machine reaches, for pages to be played as they stand: Anthropic and OpenAI behind a proxy that every
//! program honours, under their own names and with a certificate of their own; Ollama on its usual port; PostgreSQL on its.
//!
//! Behind all providers is the scripted model server. A host that no page may need is refused.

use std::{ffi::OsString, net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result, ensure};
use docket_tests::model_server::ModelServer;
use docket_worker::model::{ModelProvider, ScriptedModel};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _, copy_bidirectional},
    net::{TcpListener, TcpStream},
    task::JoinSet,
};
use tokio_rustls::TlsAcceptor;

/// What is reached through the proxy.
const HOSTS: [&str; 2] = ["api.anthropic.com", "api.openai.com"];
/// Where Ollama listens.
const OLLAMA: u16 = 11434;
/// Longest head of a request to the proxy.
const HEAD_BYTES_MAX: usize = 8 * 1024;

/// Held while a page is played.
pub(super) struct ProviderEndpoints {
    server: ModelServer,
    proxy: SocketAddr,
    folder: tempfile::TempDir,
    // Dropped, they end.
    relays: JoinSet<()>,
}

impl ProviderEndpoints {
    /// Starts them. `keys` are taken.
    pub(super) async fn start(script: &str, keys: &[&str]) -> Result<Self> {
        let server = ModelServer::start(ScriptedModel::parse(script.as_bytes())?).await?;
        keys.iter().for_each(|key| server.accept_key(key));
        // Ollama wants none.
        server.accept_key("");
        let to: SocketAddr = server
            .base_url(ModelProvider::Anthropic)
            .strip_prefix("http://")
            .context("an address of its own")?
            .parse()?;
        let certificate = rcgen::generate_simple_self_signed(HOSTS.map(str::to_owned))?;
        let folder = tempfile::tempdir()?;
        std::fs::write(folder.path().join("ca.pem"), certificate.cert.pem())?;
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(certificate.signing_key.serialize_der()));
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(vec![certificate.cert.der().clone()], key)?;
        let tls = TlsAcceptor::from(Arc::new(tls));
        let mut relays = JoinSet::new();
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let proxy = listener.local_addr()?;
        relays.spawn(async move {
            let mut tunnels = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let tls = tls.clone();
                // A client that goes away is no fault of ours.
                tunnels.spawn(async move { drop(serve_connect(stream, &tls, to).await) });
            }
        });
        start_relay(&mut relays, OLLAMA, to).await?;
        Ok(Self { server, proxy, folder, relays })
    }

    /// Passes on what comes to `port` here.
    pub(super) async fn forward_port(&mut self, port: u16, to: SocketAddr) -> Result<()> {
        start_relay(&mut self.relays, port, to).await
    }

    /// How a program reaches them.
    pub(super) fn client_env(&self) -> Vec<(String, OsString)> {
        let ca = self.folder.path().join("ca.pem").into_os_string();
        let proxy = format!("http://{}", self.proxy).into();
        // The proxy is for the world outside: machines of one's own are reached as they are.
        [("HTTPS_PROXY", proxy), ("NO_PROXY", "10.0.0.5".into()), ("SSL_CERT_FILE", ca)]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    /// How many calls were answered or refused.
    pub(super) fn call_count(&self) -> u64 {
        self.server.call_count()
    }
}

async fn start_relay(relays: &mut JoinSet<()>, port: u16, to: SocketAddr) -> Result<()> {
    let listener = TcpListener::bind(("127.0.0.1", port)).await;
    let listener = listener.with_context(|| {
        format!("a page speaks to port {port} of this machine; end what listens there, or run this as root")
    })?;
    relays.spawn(async move {
        let mut passed = JoinSet::new();
        while let Ok((mut from, _)) = listener.accept().await {
            passed.spawn(async move {
                if let Ok(mut end) = TcpStream::connect(to).await {
                    drop(copy_bidirectional(&mut from, &mut end).await);
                }
            });
        }
    });
    Ok(())
}

/// One `CONNECT`, and the provider behind it.
async fn serve_connect(mut stream: TcpStream, tls: &TlsAcceptor, to: SocketAddr) -> Result<()> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        ensure!(head.len() < HEAD_BYTES_MAX, "no head of a request");
        head.push(stream.read_u8().await?);
    }
    let head = String::from_utf8(head)?;
    let host = head.strip_prefix("CONNECT ").and_then(|rest| rest.split(":443 ").next());
    if !host.is_some_and(|host| HOSTS.contains(&host)) {
        stream.write_all(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\n\r\n").await?;
        return Ok(());
    }
    stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?;
    let mut from = tls.accept(stream).await?;
    let mut end = TcpStream::connect(to).await?;
    copy_bidirectional(&mut from, &mut end).await?;
    Ok(())
}

//! TLS for the listener, with a certificate and its key, by rustls.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Mode bits of a key file that let others read it, or the group write it. The group may read it, which is
/// how keys are shared with the one service that needs them.
const FORBIDDEN_KEY_MODE: u32 = 0o027;

/// Certificate and key of a listener.
#[derive(Clone)]
pub struct TlsIdentity(TlsAcceptor);

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsIdentity")
    }
}

/// Why a TLS identity cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read or has the wrong content.
    #[error("{} contains no readable {what} in PEM format", path.display())]
    File {
        path: PathBuf,
        /// What it should contain.
        what: &'static str,
        /// Cause.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// Other users can access the key.
    #[error(
        "other users can read or change the key {} (mode {mode:04o}); `chmod 600` it and consider it \
         compromised",
        path.display()
    )]
    KeyExposed {
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// Certificate and key do not belong together.
    #[error("certificate and key do not match, or are of an unsupported kind")]
    InvalidIdentity(#[from] rustls::Error),
}

impl TlsIdentity {
    /// Loads a certificate chain, the server's own first, and its key.
    ///
    /// # Errors
    /// [`TlsError`] names the file.
    pub fn load(cert: &Path, key: &Path) -> Result<Self, TlsError> {
        let failed = |path: &Path, what| {
            let path = path.to_owned();
            move |source| TlsError::File { path, what, source }
        };
        let chain: Vec<CertificateDer<'static>> = CertificateDer::pem_file_iter(cert)
            .and_then(Iterator::collect)
            .map_err(failed(cert, "certificate"))?;
        if chain.is_empty() {
            return Err(failed(cert, "certificate")(rustls::pki_types::pem::Error::NoItemsFound));
        }
        if let Ok(found) = std::fs::metadata(key)
            && found.mode() & FORBIDDEN_KEY_MODE != 0
        {
            return Err(TlsError::KeyExposed { path: key.to_owned(), mode: found.mode() & 0o7777 });
        }
        let key = PrivateKeyDer::from_pem_file(key).map_err(failed(key, "private key"))?;
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let mut config = rustls::ServerConfig::builder_with_provider(ring)
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_single_cert(chain, key)?;
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(Self(TlsAcceptor::from(Arc::new(config))))
    }

    /// Performs the handshake.
    pub(super) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

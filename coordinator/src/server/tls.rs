//! TLS for a listener beyond this machine: a certificate and its key, by rustls.

use std::{
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject as _};
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, server::TlsStream};

/// Bits of a key file's mode that let strangers read it, or others than its owner write it. Its group may read
/// it: that is how keys are shared with the one service that needs them.
const FORBIDDEN_KEY_MODE: u32 = 0o027;

/// Certificate and key of a listener.
#[derive(Clone)]
pub struct TlsIdentity(TlsAcceptor);

impl std::fmt::Debug for TlsIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TlsIdentity")
    }
}

/// Why there is no identity.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A file cannot be read as what it should be.
    #[error("{} holds no {what} in PEM that can be read", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What it should hold.
        what: &'static str,
        /// Why.
        #[source]
        source: rustls::pki_types::pem::Error,
    },
    /// The key is open to others.
    #[error(
        "others may read or change the key {} (mode {mode:04o}); `chmod 600` it, it may be known to somebody by now",
        path.display()
    )]
    KeyExposed {
        /// The file.
        path: PathBuf,
        /// Its mode.
        mode: u32,
    },
    /// The two do not make an identity.
    #[error("certificate and key do not go together, or are of a kind that cannot be used")]
    InvalidIdentity(#[from] rustls::Error),
}

impl TlsIdentity {
    /// Reads a chain of certificates, the server's own first, and its key.
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

    /// Shakes hands.
    pub(super) async fn accept(&self, stream: TcpStream) -> std::io::Result<TlsStream<TcpStream>> {
        self.0.accept(stream).await
    }
}

//! API tokens that a coordinator accepts: those of its configuration, and those of the log.
//!
//! Invariants: no token is stored in clear text; every entry is compared in constant time, so that timing
//! reveals nothing; a revoked or expired token is not found; if the log continues with an event that cannot
//! be read, none of its tokens is found, because that event may revoke any of them.

use std::time::Duration;

use docket_schema::{
    ids::Timestamp,
    system::{TokenRole, TokensFold},
};
use subtle::ConstantTimeEq as _;
use tokio::{sync::Mutex, time::Instant};

use super::{CachedFold, FoldError, TailedFold};
use crate::store::Store;

/// Prefix of every API token, by which leaked secrets are recognized.
pub(crate) const API_TOKEN_PREFIX: &str = "dkt_";

/// Shortest interval between two reads of the log for unknown tokens.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);

impl CachedFold for TokensFold {
    const UNREADABLE: &'static str =
        "the log's tokens cannot be read; run `docket verify` for details, or use a newer docket";
    const CONTENDED: &'static str = "too many tokens are created or revoked concurrently; try again";
}

/// An API token from the configuration: that of the coordinator's home. Others are in the log.
#[derive(Debug, Clone)]
pub struct ApiToken {
    /// Name of the owner, recorded in the log as the author of changes.
    pub name: String,
    /// Permissions.
    pub role: TokenRole,
    /// BLAKE3 of the token.
    pub hash: [u8; 32],
}

impl ApiToken {
    /// Creates the entry of a token; the clear text is not stored.
    pub fn from_token(name: impl Into<String>, role: TokenRole, token: &str) -> Self {
        Self { name: name.into(), role, hash: *blake3::hash(token.as_bytes()).as_bytes() }
    }
}

/// The accepted tokens; see the module.
#[derive(Debug, Default)]
pub struct TokenRegistry {
    configured: Vec<ApiToken>,
    /// Tokens of the log.
    pub fold: TailedFold<TokensFold>,
    /// When the log was last read for an unknown token.
    last_refreshed: Mutex<Option<Instant>>,
}

impl TokenRegistry {
    /// Creates a registry with the configured tokens; those of the log are read later.
    pub fn new(fixed: Vec<ApiToken>) -> Self {
        Self { configured: fixed, ..Self::default() }
    }

    /// Returns name and role of the token with this BLAKE3 hash, if valid at `now`.
    pub fn find(&self, hash: &[u8; 32], now: Timestamp) -> Option<(String, TokenRole)> {
        let is = |of: &[u8; 32]| bool::from(of.ct_eq(hash));
        self.find_by(now, is).map(|(name, role, _)| (name, role))
    }

    /// Returns name, role and hash of the token for which `is` returns true, if valid at `now`. `is` is
    /// called for every token.
    pub(crate) fn find_by(
        &self,
        now: Timestamp,
        is: impl Fn(&[u8; 32]) -> bool,
    ) -> Option<(String, TokenRole, [u8; 32])> {
        let mut found = None;
        for entry in &self.configured {
            if is(&entry.hash) {
                found = Some((entry.name.clone(), entry.role, entry.hash));
            }
        }
        let is_stuck = self.fold.progress().is_stuck;
        self.fold.with_fold(|tokens| {
            for record in tokens.all() {
                let same = is(&record.created.hash.0);
                if same && record.is_valid_at(now) && !is_stuck {
                    found =
                        Some((record.created.name.to_string(), record.created.role, record.created.hash.0));
                }
            }
        });
        found
    }

    /// Whether the configuration has a token with this name.
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.configured.iter().any(|entry| entry.name == name)
    }

    /// Catches up for a caller with an unknown token. The log is read at most once per [`REFRESH_INTERVAL`],
    /// however many callers there are; each is served by a read that began after its request, which waiting
    /// callers share.
    pub(crate) async fn refresh(&self, store: &dyn Store) -> Result<(), FoldError> {
        let asked = Instant::now();
        let mut looked = self.last_refreshed.lock().await;
        if let Some(at) = *looked {
            if at >= asked {
                return Ok(());
            }
            tokio::time::sleep_until(at + REFRESH_INTERVAL).await;
        }
        *looked = Some(Instant::now());
        self.fold.catch_up(store).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registry_finds_only_its_own_tokens() {
        let table = TokenRegistry::new(vec![
            ApiToken::from_token("ann", TokenRole::Admin, "one"),
            ApiToken::from_token("bob", TokenRole::Read, "two"),
        ]);
        let now = Timestamp(0);
        let find = |token: &str| table.find(blake3::hash(token.as_bytes()).as_bytes(), now);
        assert_eq!(find("two"), Some(("bob".to_owned(), TokenRole::Read)));
        assert!(find("").is_none() && find("three").is_none());
        assert!(table.is_configured("ann") && !table.is_configured("one"));
    }
}

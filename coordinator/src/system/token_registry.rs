//! The API tokens that a coordinator accepts: those of its configuration, and those of the log.
//!
//! Invariants: no token is kept in clear; every entry is compared, each in constant time, so that the time
//! says nothing; a token that is revoked or has expired is not found; where the log continues with an event
//! that cannot be read, none of its tokens is found, for that event may revoke any of them.

use std::time::Duration;

use docket_schema::{
    ids::Timestamp,
    system::{TokenRole, TokensFold},
};
use subtle::ConstantTimeEq as _;
use tokio::{sync::Mutex, time::Instant};

use super::{CachedFold, FoldError, TailedFold};
use crate::store::Store;

/// What every API token begins with: by it secrets are known where they do not belong.
pub(crate) const API_TOKEN_PREFIX: &str = "dkt_";

/// The least time between two looks for tokens that are not known.
const REFRESH_INTERVAL: Duration = Duration::from_millis(100);

impl CachedFold for TokensFold {
    const UNREADABLE: &'static str =
        "the log's tokens cannot be read; `docket verify` says more, a newer docket may know them";
    const CONTENDED: &'static str = "many tokens are made or revoked at once; try again";
}

/// An API token that the configuration names: that of the coordinator's home. Others are in the log.
#[derive(Debug, Clone)]
pub struct ApiToken {
    /// Whose it is: stands in the log as who submitted, told or cancelled.
    pub name: String,
    /// What it is good for.
    pub role: TokenRole,
    /// BLAKE3 of the token.
    pub hash: [u8; 32],
}

impl ApiToken {
    /// The entry of a token given in clear, which is forgotten.
    pub fn from_token(name: impl Into<String>, role: TokenRole, token: &str) -> Self {
        Self { name: name.into(), role, hash: *blake3::hash(token.as_bytes()).as_bytes() }
    }
}

/// See the module.
#[derive(Debug, Default)]
pub struct TokenRegistry {
    configured: Vec<ApiToken>,
    /// The log's tokens.
    pub fold: TailedFold<TokensFold>,
    /// When the log was last read for a token that was not known.
    last_refreshed: Mutex<Option<Instant>>,
}

impl TokenRegistry {
    /// With the tokens of the configuration; those of the log are not read yet.
    pub fn new(fixed: Vec<ApiToken>) -> Self {
        Self { configured: fixed, ..Self::default() }
    }

    /// Name and role of whoever holds the token of this BLAKE3 at `now`.
    pub fn find(&self, hash: &[u8; 32], now: Timestamp) -> Option<(String, TokenRole)> {
        let is = |of: &[u8; 32]| bool::from(of.ct_eq(hash));
        self.find_by(now, is).map(|(name, role, _)| (name, role))
    }

    /// Name, role and BLAKE3 of the token that `is` says it is, if it is good at `now`. It is asked of every one.
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

    /// Whether the configuration has a token of this name.
    pub(crate) fn is_configured(&self, name: &str) -> bool {
        self.configured.iter().any(|entry| entry.name == name)
    }

    /// Catches up for somebody whose token is not known. However many ask, the log is read at most once in
    /// [`LOOK_AGAIN`], and whoever asks is answered by a look that began after: those who wait share it.
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

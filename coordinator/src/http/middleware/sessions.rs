//! Browser sessions of the dashboard, used in place of the token that signed in.
//!
//! A session proves itself: `dks_` and the base64 of the token it represents, its own ID, its
//! expiry, and a BLAKE3 MAC keyed with the store's secret. Every coordinator of a store accepts the
//! sessions of the others, and none stores any. The token is included as a keyed hash, so that a
//! session cannot be used to guess tokens.
//!
//! Invariants: a session lasts no longer than [`SESSION_LIFETIME_MS`] or its token, and has the
//! token's current role; it is accepted from a cookie only, never from `Authorization`; every
//! comparison takes constant time. A signed-out session is refused by the coordinator that signed
//! it out until it expires; this is the only state, kept in memory.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use docket_schema::ids::Timestamp;
use subtle::ConstantTimeEq as _;

/// Prefix of every session, by which leaked ones can be recognized.
pub(in crate::http) const SESSION_PREFIX: &str = "dks_";
/// How long a browser stays signed in: one working day.
pub(in crate::http) const SESSION_LIFETIME_MS: i64 = 12 * 60 * 60 * 1000;
/// Maximum number of remembered signed-out sessions. Beyond it, the one that expires first is
/// forgotten.
const SIGNED_OUT_MAX: usize = 10_000;

const DIGEST_BYTES: usize = 32;
const ID_BYTES: usize = 16;
const ENDS_AT_BYTES: usize = 8;
const MAC_BYTES: usize = 32;

/// A session whose proof was verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BrowserSession {
    token_digest: [u8; DIGEST_BYTES],
    id: [u8; ID_BYTES],
    ends_at: Timestamp,
}

/// Issues and verifies browser sessions.
pub(crate) struct BrowserSessions {
    token_key: [u8; 32],
    seal_key: [u8; 32],
    signed_out: Mutex<BTreeSet<(Timestamp, [u8; ID_BYTES])>>,
}

impl BrowserSessions {
    /// Derives the keys from the store's secret.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self {
            token_key: blake3::derive_key("docket 2026 browser session token", secret),
            seal_key: blake3::derive_key("docket 2026 browser session seal", secret),
            signed_out: Mutex::default(),
        }
    }

    /// Returns a new session for the token with this hash, as sent to the browser.
    pub(in crate::http) fn issue_session(&self, hash: &[u8; 32], fresh: [u8; 32], now: Timestamp) -> String {
        let mut id = [0; ID_BYTES];
        id.copy_from_slice(&fresh[..ID_BYTES]);
        let ends_at = Timestamp(now.0.saturating_add(SESSION_LIFETIME_MS * 1000));
        let session = BrowserSession { token_digest: self.digest_token(hash), id, ends_at };
        let mut bytes = session.to_bytes();
        bytes.extend_from_slice(self.seal_body(&bytes).as_bytes());
        format!("{SESSION_PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Returns the session that `text` proves, or `None` if this store did not issue it.
    pub(in crate::http) fn verify_session(&self, text: &str) -> Option<BrowserSession> {
        let coded = text.strip_prefix(SESSION_PREFIX)?;
        if coded.len() != (DIGEST_BYTES + ID_BYTES + ENDS_AT_BYTES + MAC_BYTES) * 4 / 3 + 1 {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(coded).ok()?;
        let (body, mac) = bytes.split_at_checked(DIGEST_BYTES + ID_BYTES + ENDS_AT_BYTES)?;
        let (token, rest) = body.split_at(DIGEST_BYTES);
        let (id, ends) = rest.split_at(ID_BYTES);
        let session = BrowserSession {
            token_digest: token.try_into().ok()?,
            id: id.try_into().ok()?,
            ends_at: Timestamp(i64::from_le_bytes(ends.try_into().ok()?)),
        };
        bool::from(mac.ct_eq(self.seal_body(body).as_bytes())).then_some(session)
    }

    /// Whether the session belongs to the token with this hash.
    pub(in crate::http) fn belongs_to_token(&self, session: &BrowserSession, hash: &[u8; 32]) -> bool {
        session.token_digest.ct_eq(&self.digest_token(hash)).into()
    }

    /// Whether the session has not ended by `now`, as far as this coordinator knows. Does not check the
    /// token.
    pub(in crate::http) fn is_active(&self, session: &BrowserSession, now: Timestamp) -> bool {
        let out = self.signed_out.lock().unwrap_or_else(PoisonError::into_inner);
        now < session.ends_at && !out.contains(&(session.ends_at, session.id))
    }

    /// Signs the session out at this coordinator.
    pub(in crate::http) fn sign_out(&self, session: BrowserSession, now: Timestamp) {
        if session.ends_at <= now {
            return;
        }
        let mut out = self.signed_out.lock().unwrap_or_else(PoisonError::into_inner);
        out.insert((session.ends_at, session.id));
        while out.first().is_some_and(|(ends_at, _)| *ends_at <= now || out.len() > SIGNED_OUT_MAX) {
            out.pop_first();
        }
    }

    fn digest_token(&self, hash: &[u8; 32]) -> [u8; DIGEST_BYTES] {
        *blake3::keyed_hash(&self.token_key, hash).as_bytes()
    }

    fn seal_body(&self, body: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.seal_key, body)
    }
}

impl BrowserSession {
    fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(DIGEST_BYTES + ID_BYTES + ENDS_AT_BYTES + MAC_BYTES);
        bytes.extend_from_slice(&self.token_digest);
        bytes.extend_from_slice(&self.id);
        bytes.extend_from_slice(&self.ends_at.0.to_le_bytes());
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HASH: [u8; 32] = [3; 32];
    const NOW: Timestamp = Timestamp(1_000_000);

    #[test]
    fn session_proves_its_token_and_expiry_under_one_secret() {
        let sessions = BrowserSessions::new(&[1; 32]);
        let text = sessions.issue_session(&HASH, [7; 32], NOW);
        assert_eq!(text.len(), SESSION_PREFIX.len() + 118);
        let session = BrowserSessions::new(&[1; 32])
            .verify_session(&text)
            .expect("any coordinator of the store takes it");
        assert!(sessions.belongs_to_token(&session, &HASH) && !sessions.belongs_to_token(&session, &[4; 32]));
        assert_eq!(session.ends_at, Timestamp(NOW.0 + SESSION_LIFETIME_MS * 1000));
        let last = Timestamp(session.ends_at.0 - 1);
        assert!(sessions.is_active(&session, last) && !sessions.is_active(&session, session.ends_at));
        assert_eq!(BrowserSessions::new(&[2; 32]).verify_session(&text), None);
        assert_ne!(sessions.issue_session(&HASH, [8; 32], NOW), text);
        // Neither the token nor its hash is in it.
        let bytes = URL_SAFE_NO_PAD.decode(&text[SESSION_PREFIX.len()..]).expect("base64");
        assert!(!bytes.windows(8).any(|part| part == &HASH[..8]));
    }

    #[test]
    fn altered_sessions_are_rejected() {
        let sessions = BrowserSessions::new(&[1; 32]);
        let text = sessions.issue_session(&HASH, [7; 32], NOW);
        for cut in 0..text.len() {
            assert_eq!(sessions.verify_session(&text[..cut]), None, "{cut}");
        }
        assert_eq!(sessions.verify_session(&format!("{text}A")), None);
        assert_eq!(sessions.verify_session(&text.replace(SESSION_PREFIX, "dkt_")), None);
        let bytes = URL_SAFE_NO_PAD.decode(&text[SESSION_PREFIX.len()..]).expect("base64");
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            let altered = format!("{SESSION_PREFIX}{}", URL_SAFE_NO_PAD.encode(altered));
            assert_eq!(sessions.verify_session(&altered), None, "{at}");
        }
    }

    #[test]
    fn signed_out_sessions_are_rejected_and_their_list_is_bounded() {
        let sessions = BrowserSessions::new(&[1; 32]);
        let begin = |n: usize, now| {
            let mut fresh = [0; 32];
            fresh[..8].copy_from_slice(&n.to_le_bytes());
            sessions.verify_session(&sessions.issue_session(&HASH, fresh, now)).expect("opens")
        };
        let (one, two) = (begin(1, NOW), begin(2, NOW));
        sessions.sign_out(one, NOW);
        assert!(!sessions.is_active(&one, NOW) && sessions.is_active(&two, NOW));
        for n in 0..=SIGNED_OUT_MAX {
            sessions.sign_out(begin(n + 3, Timestamp(NOW.0 + 1)), NOW);
        }
        let kept = || sessions.signed_out.lock().expect("whole").len();
        assert_eq!(kept(), SIGNED_OUT_MAX);
        let later = Timestamp(NOW.0 + SESSION_LIFETIME_MS * 1000 + 1);
        sessions.sign_out(begin(1, later), later);
        assert_eq!(kept(), 1, "those that have ended by themselves are forgotten");
    }
}

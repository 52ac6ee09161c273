//! Sessions of browsers at the dashboard: what a browser bears in place of the token that it signed in with.
//!
//! A session is a value that proves itself, `dks_` and the base64 of: which token it stands for, its own id, when it
//! ends, and a BLAKE3 of these keyed by the store's secret. So every coordinator of a store takes those of the others,
//! and none keeps any. Which token that is stands there as a keyed hash: whoever has a session cannot try tokens
//! against it.
//!
//! Invariants: a session is good for no longer than [`STAY_MS`], nor than its token, whose role at the time it has; it is
//! taken from a cookie alone, never from an `Authorization`; every comparison takes the same time whatever is compared.
//! One that was signed out is refused by the coordinator that was told, up to its end: this alone is kept, in memory.

use std::{
    collections::BTreeSet,
    sync::{Mutex, PoisonError},
};

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use docket_schema::ids::Timestamp;
use subtle::ConstantTimeEq as _;

/// What every session begins with: by it secrets are known where they do not belong.
pub(super) const PREFIX: &str = "dks_";
/// How long a browser stays signed in: a day's work.
pub(super) const STAY_MS: i64 = 12 * 60 * 60 * 1000;
/// Sessions that are remembered as signed out. Beyond them the one that ends first is forgotten.
const SIGNED_OUT_MAX: usize = 10_000;

const TOKEN: usize = 32;
const ID: usize = 16;
const ENDS: usize = 8;
const MAC: usize = 32;

/// A session whose proof held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Session {
    token: [u8; TOKEN],
    id: [u8; ID],
    ends_at: Timestamp,
}

/// See the module.
pub(crate) struct Sessions {
    token_key: [u8; 32],
    seal_key: [u8; 32],
    signed_out: Mutex<BTreeSet<(Timestamp, [u8; ID])>>,
}

impl Sessions {
    /// From the store's secret.
    pub(crate) fn new(secret: &[u8; 32]) -> Self {
        Self {
            token_key: blake3::derive_key("docket 2026 browser session token", secret),
            seal_key: blake3::derive_key("docket 2026 browser session seal", secret),
            signed_out: Mutex::default(),
        }
    }

    /// A new session under the token of this BLAKE3, as the browser gets it.
    pub(super) fn begin(&self, hash: &[u8; 32], fresh: [u8; 32], now: Timestamp) -> String {
        let mut id = [0; ID];
        id.copy_from_slice(&fresh[..ID]);
        let ends_at = Timestamp(now.0.saturating_add(STAY_MS * 1000));
        let session = Session { token: self.name(hash), id, ends_at };
        let mut bytes = session.body();
        bytes.extend_from_slice(self.seal(&bytes).as_bytes());
        format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// The session that `text` proves; `None` for whatever this store did not make.
    pub(super) fn open(&self, text: &str) -> Option<Session> {
        let coded = text.strip_prefix(PREFIX)?;
        if coded.len() != (TOKEN + ID + ENDS + MAC) * 4 / 3 + 1 {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(coded).ok()?;
        let (body, mac) = bytes.split_at_checked(TOKEN + ID + ENDS)?;
        let (token, rest) = body.split_at(TOKEN);
        let (id, ends) = rest.split_at(ID);
        let session = Session {
            token: token.try_into().ok()?,
            id: id.try_into().ok()?,
            ends_at: Timestamp(i64::from_le_bytes(ends.try_into().ok()?)),
        };
        bool::from(mac.ct_eq(self.seal(body).as_bytes())).then_some(session)
    }

    /// Whether it is of the token with this BLAKE3.
    pub(super) fn is_of(&self, session: &Session, hash: &[u8; 32]) -> bool {
        session.token.ct_eq(&self.name(hash)).into()
    }

    /// Whether it has not ended by `now`, as far as that is known here. Whether its token is good is another question.
    pub(super) fn stands(&self, session: &Session, now: Timestamp) -> bool {
        let out = self.signed_out.lock().unwrap_or_else(PoisonError::into_inner);
        now < session.ends_at && !out.contains(&(session.ends_at, session.id))
    }

    /// Ends it here.
    pub(super) fn end(&self, session: Session, now: Timestamp) {
        if session.ends_at <= now {
            return;
        }
        let mut out = self.signed_out.lock().unwrap_or_else(PoisonError::into_inner);
        out.insert((session.ends_at, session.id));
        while out.first().is_some_and(|(ends_at, _)| *ends_at <= now || out.len() > SIGNED_OUT_MAX) {
            out.pop_first();
        }
    }

    fn name(&self, hash: &[u8; 32]) -> [u8; TOKEN] {
        *blake3::keyed_hash(&self.token_key, hash).as_bytes()
    }

    fn seal(&self, body: &[u8]) -> blake3::Hash {
        blake3::keyed_hash(&self.seal_key, body)
    }
}

impl Session {
    fn body(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(TOKEN + ID + ENDS + MAC);
        bytes.extend_from_slice(&self.token);
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
    fn a_session_proves_its_token_and_its_end_under_one_secret() {
        let sessions = Sessions::new(&[1; 32]);
        let text = sessions.begin(&HASH, [7; 32], NOW);
        assert_eq!(text.len(), PREFIX.len() + 118);
        let session = Sessions::new(&[1; 32]).open(&text).expect("any coordinator of the store takes it");
        assert!(sessions.is_of(&session, &HASH) && !sessions.is_of(&session, &[4; 32]));
        assert_eq!(session.ends_at, Timestamp(NOW.0 + STAY_MS * 1000));
        let last = Timestamp(session.ends_at.0 - 1);
        assert!(sessions.stands(&session, last) && !sessions.stands(&session, session.ends_at));
        assert_eq!(Sessions::new(&[2; 32]).open(&text), None);
        assert_ne!(sessions.begin(&HASH, [8; 32], NOW), text);
        // Neither the token nor its hash is in it.
        let bytes = URL_SAFE_NO_PAD.decode(&text[PREFIX.len()..]).expect("base64");
        assert!(!bytes.windows(8).any(|part| part == &HASH[..8]));
    }

    #[test]
    fn nothing_else_opens() {
        let sessions = Sessions::new(&[1; 32]);
        let text = sessions.begin(&HASH, [7; 32], NOW);
        for cut in 0..text.len() {
            assert_eq!(sessions.open(&text[..cut]), None, "{cut}");
        }
        assert_eq!(sessions.open(&format!("{text}A")), None);
        assert_eq!(sessions.open(&text.replace(PREFIX, "dkt_")), None);
        let bytes = URL_SAFE_NO_PAD.decode(&text[PREFIX.len()..]).expect("base64");
        for at in 0..bytes.len() {
            let mut altered = bytes.clone();
            altered[at] ^= 1;
            let altered = format!("{PREFIX}{}", URL_SAFE_NO_PAD.encode(altered));
            assert_eq!(sessions.open(&altered), None, "{at}");
        }
    }

    #[test]
    fn one_that_was_signed_out_stands_no_more_and_what_is_remembered_is_bounded() {
        let sessions = Sessions::new(&[1; 32]);
        let begin = |n: usize, now| {
            let mut fresh = [0; 32];
            fresh[..8].copy_from_slice(&n.to_le_bytes());
            sessions.open(&sessions.begin(&HASH, fresh, now)).expect("opens")
        };
        let (one, two) = (begin(1, NOW), begin(2, NOW));
        sessions.end(one, NOW);
        assert!(!sessions.stands(&one, NOW) && sessions.stands(&two, NOW));
        for n in 0..=SIGNED_OUT_MAX {
            sessions.end(begin(n + 3, Timestamp(NOW.0 + 1)), NOW);
        }
        let kept = || sessions.signed_out.lock().expect("whole").len();
        assert_eq!(kept(), SIGNED_OUT_MAX);
        let later = Timestamp(NOW.0 + STAY_MS * 1000 + 1);
        sessions.end(begin(1, later), later);
        assert_eq!(kept(), 1, "those that have ended by themselves are forgotten");
    }
}

//! Authentication and authorization. API tokens are looked up in a
//! [`TokenRegistry`](crate::system::TokenRegistry); run tokens carry their own proof.
//!
//! Invariants: no token is stored or logged in clear; every comparison takes constant time; a run
//! token proves one run and one epoch and nothing else.

use std::fmt::Write as _;

use docket_schema::{
    ids::{Epoch, RunId},
    system::TokenRole,
};
use subtle::ConstantTimeEq as _;

use super::sessions::BrowserSession;

/// Prefix of every run token.
const RUN_TOKEN_PREFIX: &str = "dkr_";

/// Issues and verifies run tokens: `dkr_RUN_EPOCH_MAC`, where the MAC is BLAKE3 keyed with the
/// store's secret. Every coordinator of a store issues and accepts the same tokens, so none has to
/// be stored.
#[derive(Clone)]
pub struct RunTokens {
    key: [u8; 32],
}

impl RunTokens {
    /// Derives the key from the store's secret.
    pub fn new(secret: &[u8; 32]) -> Self {
        Self { key: blake3::derive_key("docket 2026 run token", secret) }
    }

    /// Returns the token for a run's holder under an epoch.
    pub fn issue_token(&self, run: RunId, epoch: Epoch) -> String {
        let mut token = String::with_capacity(128);
        let mac = self.compute_mac(run, epoch);
        // Writing to a string cannot fail.
        let _ = write!(token, "{RUN_TOKEN_PREFIX}{}_{epoch}_{}", run.0.simple(), mac.to_hex());
        token
    }

    /// Returns the run and epoch that `token` proves, or `None` if this store did not issue it.
    pub fn verify_token(&self, token: &str) -> Option<(RunId, Epoch)> {
        let mut parts = token.strip_prefix(RUN_TOKEN_PREFIX)?.split('_');
        let (run, epoch, mac) = (parts.next()?, parts.next()?, parts.next()?);
        if parts.next().is_some() || run.len() != 32 {
            return None;
        }
        let run: RunId = run.parse().ok()?;
        let epoch = Epoch(epoch.parse().ok()?);
        let given = blake3::Hash::from_hex(mac).ok()?;
        bool::from(given.as_bytes().ct_eq(self.compute_mac(run, epoch).as_bytes())).then_some((run, epoch))
    }

    fn compute_mac(&self, run: RunId, epoch: Epoch) -> blake3::Hash {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(run.0.as_bytes());
        bytes[16..].copy_from_slice(&epoch.0.to_le_bytes());
        blake3::keyed_hash(&self.key, &bytes)
    }
}

/// The authenticated caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Caller {
    /// An unauthenticated caller; only public routes see this.
    Anonymous,
    /// Holder of an API token.
    ApiToken {
        /// The token's name.
        name: String,
        /// Its role.
        role: TokenRole,
        /// Its hash, because a name may be reused.
        hash: [u8; 32],
        /// The browser session that represents the token, if any.
        session: Option<BrowserSession>,
    },
    /// A run process.
    RunToken {
        /// Its run.
        run: RunId,
        /// The epoch of its lease.
        epoch: Epoch,
    },
}

impl Caller {
    /// Returns the name recorded in the log.
    pub(crate) fn log_name(&self) -> String {
        match self {
            Self::Anonymous => "anyone".to_owned(),
            Self::ApiToken { name, .. } => name.clone(),
            Self::RunToken { run, .. } => format!("run {run}"),
        }
    }
}

/// Who may call a route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RouteAccess {
    /// Anyone who can reach the port.
    Public,
    /// Anyone who can reach the port, also through a link on another site. The response is the same for
    /// everyone.
    DashboardPage,
    /// Holders of these roles, and admins.
    Roles(&'static [TokenRole]),
    /// Holders of these roles, admins, and run processes. The route checks what a run process may see.
    RolesAndRuns(&'static [TokenRole]),
    /// Run processes and holders of these roles. Admins are not allowed if there are no roles. These
    /// routes append.
    Appends(&'static [TokenRole]),
}

impl RouteAccess {
    /// Whether a run token must have the current epoch before the route is entered. Appends check this
    /// themselves, because a repeated append after the end gets the same response as the first.
    pub(crate) const fn requires_current_epoch(self) -> bool {
        match self {
            Self::Public | Self::DashboardPage | Self::Roles(_) | Self::RolesAndRuns(_) => true,
            Self::Appends(_) => false,
        }
    }

    /// Whether a browser session may authenticate the caller. Public routes ignore sessions, so that an
    /// old one is not an invalid token, and worker routes refuse them, because leases contain run
    /// tokens.
    pub(crate) const fn accepts_cookies(self) -> bool {
        match self {
            Self::Public | Self::DashboardPage | Self::Appends(_) | Self::Roles([TokenRole::Worker]) => false,
            Self::Roles(_) | Self::RolesAndRuns(_) => true,
        }
    }

    /// Describes who may call the route.
    pub(crate) fn describe_callers(self) -> String {
        let (roles, runs) = match self {
            Self::Public | Self::DashboardPage => return "anybody".to_owned(),
            Self::Appends([]) => return "a run's own token".to_owned(),
            Self::Roles(roles) => (roles, false),
            Self::RolesAndRuns(roles) | Self::Appends(roles) => (roles, true),
        };
        let mut words: Vec<&str> = roles.iter().map(|role| role.as_str()).collect();
        words.push(TokenRole::Admin.as_str());
        let run = if runs { ", or a run's own token" } else { "" };
        format!("a token with role {}{run}", words.join(" or "))
    }

    /// Whether `caller` may call the route.
    pub(crate) fn admits(self, caller: &Caller) -> bool {
        let role_in = |roles: &[TokenRole]| match caller {
            Caller::Anonymous | Caller::RunToken { .. } => false,
            Caller::ApiToken { role, .. } => *role == TokenRole::Admin || roles.contains(role),
        };
        let is_run = matches!(caller, Caller::RunToken { .. });
        match self {
            Self::Public | Self::DashboardPage => true,
            Self::Roles(roles) => role_in(roles),
            Self::RolesAndRuns(roles) => is_run || role_in(roles),
            Self::Appends([]) => is_run,
            Self::Appends(roles) => is_run || role_in(roles),
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_run_token_proves_one_run_and_epoch_under_one_secret() {
        let run = RunId(Uuid::from_u128(7));
        let tokens = RunTokens::new(&[1; 32]);
        let token = tokens.issue_token(run, Epoch(3));
        assert_eq!(tokens.verify_token(&token), Some((run, Epoch(3))));
        assert_eq!(RunTokens::new(&[2; 32]).verify_token(&token), None);
        assert_eq!(tokens.verify_token(&token.replace("_3_", "_4_")), None);
        let other = token.replace(&run.0.simple().to_string(), &Uuid::from_u128(8).simple().to_string());
        assert_eq!(tokens.verify_token(&other), None);
        for cut in 0..token.len() {
            assert_eq!(tokens.verify_token(&token[..cut]), None);
        }
        assert_eq!(tokens.verify_token(&format!("{token}_")), None);
    }
}

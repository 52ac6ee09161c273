//! Errors of model calls: every way a call can fail, whether a retry can help, and what a person can do. The
//! providers' statuses and messages are interpreted in `classify`.

/// Largest stored part of an error body, in bytes: enough for any provider's message, too little to fill a
/// log with a proxy's error page.
pub const ERROR_BODY_BYTES_MAX: usize = 2048;

/// The timeout that ended a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeoutKind {
    /// No connection was made.
    Connect,
    /// Connected, but no byte of a reply arrived.
    FirstByte,
    /// The reply stalled.
    Idle,
    /// The run's time budget ran out.
    Budget,
}

impl std::fmt::Display for TimeoutKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Connect => "no connection",
            Self::FirstByte => "no first byte",
            Self::Idle => "no further byte",
            Self::Budget => "no whole answer before the run's budget of time ended,",
        })
    }
}

mod remedy {
    pub(super) const RATE: &str = "docket waits and asks again; fewer workers or a higher limit help";
    pub(super) const OVERLOAD: &str = "docket waits and asks again";
    pub(super) const SPEND: &str =
        "raise the limit or add credit at the provider; `docket retry` then goes on where the run stands";
    pub(super) const KEY: &str =
        "start the worker with a good key for this provider; the run then continues where it stopped";
    pub(super) const WITHHELD: &str = "add the server to worker.base_urls in the worker's settings and start the worker again; the run then continues where it stopped";
    pub(super) const ACCESS: &str = "name a model that the worker's key may use, or give the key access to it; the run then continues where it stopped";
    pub(super) const NO_KEY: &str =
        "set it where the worker runs and start the worker again; the run then continues where it stopped";
    pub(super) const REQUEST: &str = "check the model's name and --base-url";
    pub(super) const CONTEXT: &str = "use a model with a larger window or split the task";
    pub(super) const CUT: &str = "docket asks again; look for a proxy that cuts streams if it recurs";
    pub(super) const TIMEOUT: &str = "docket asks again; look at the provider's status if it recurs";
    pub(super) const CONNECT: &str = "check --base-url, the network and that the server runs";
    pub(super) const PROTOCOL: &str = "check that --base-url speaks the provider's protocol and streams";
}

/// A failed model call. Contains no key: keys echoed by a server are redacted.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ModelError {
    /// 429.
    #[error("the provider limits the rate of requests; {}", remedy::RATE)]
    RateLimited {
        /// The delay that the provider requests.
        retry_after_ms: Option<u64>,
    },
    /// 529, 503, or an overload reported within the stream.
    #[error("the provider is overloaded; {}", remedy::OVERLOAD)]
    Overloaded {
        /// The delay that the provider requests.
        retry_after_ms: Option<u64>,
    },
    /// Any other 5xx, and 408, 409, 425.
    #[error("the provider failed with status {status}; {}", remedy::OVERLOAD)]
    Server {
        /// The HTTP status.
        status: u16,
        /// The delay that the provider requests.
        retry_after_ms: Option<u64>,
    },
    /// Credit or a spending limit is used up. A retry costs time and fails again.
    #[error("the provider's spending limit is reached ({message}); {}", remedy::SPEND)]
    SpendLimit {
        /// The provider's message.
        message: String,
    },
    /// The key is missing or rejected.
    #[error("the provider refused the key ({message}); {}", remedy::KEY)]
    Unauthorized {
        /// The provider's message.
        message: String,
    },
    /// The server requires a key, but the worker does not send one because the server is not on its
    /// allowlist.
    #[error("the model server wants a key (status {status}) and gets none; {}", remedy::WITHHELD)]
    KeyWithheld {
        /// The HTTP status.
        status: u16,
    },
    /// The key is valid, but not for this model or from this location.
    #[error("the provider refuses access to the model ({message}); {}", remedy::ACCESS)]
    Forbidden {
        /// The provider's message.
        message: String,
    },
    /// No key for a provider's own address; nothing was sent.
    #[error("the provider wants a key, and {variable} is not set; {}", remedy::NO_KEY)]
    NoKey {
        /// The environment variable for the key.
        variable: &'static str,
    },
    /// The provider rejects this request, now and later.
    #[error("the provider refused the request ({message}); {}", remedy::REQUEST)]
    InvalidRequest {
        /// The provider's message.
        message: String,
    },
    /// The conversation exceeds the model's context window.
    #[error("the conversation is too long for the model ({message}); {}", remedy::CONTEXT)]
    ContextTooLong {
        /// The provider's message.
        message: String,
    },
    /// The stream ended or its connection broke before a stop reason arrived.
    #[error("the answer was cut before its end; {}", remedy::CUT)]
    CutStream,
    /// The server was silent for too long.
    #[error("{which} within {after_ms} ms; {}", remedy::TIMEOUT)]
    Timeout {
        /// The timeout that expired.
        which: TimeoutKind,
        /// The timeout's length.
        after_ms: u64,
    },
    /// The connection could not be made, or broke before a reply began.
    #[error("the model server cannot be reached ({detail}); {}", remedy::CONNECT)]
    Connect {
        /// The network error.
        detail: String,
    },
    /// The response does not follow the protocol.
    #[error("the model server does not speak the protocol ({detail}); {}", remedy::PROTOCOL)]
    Protocol {
        /// What was wrong.
        detail: String,
    },
}

impl ModelError {
    /// Whether the same request may succeed later.
    pub const fn is_retryable(&self) -> bool {
        match self {
            Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::Server { .. }
            | Self::CutStream
            | Self::Timeout { .. }
            | Self::Connect { .. } => true,
            Self::SpendLimit { .. }
            | Self::Unauthorized { .. }
            | Self::KeyWithheld { .. }
            | Self::Forbidden { .. }
            | Self::NoKey { .. }
            | Self::InvalidRequest { .. }
            | Self::ContextTooLong { .. }
            | Self::Protocol { .. } => false,
        }
    }

    /// Whether a person has to act before the same request can succeed. The run waits for that; a new run
    /// would pay again for work already done and stop at the same point.
    pub const fn needs_user_action(&self) -> bool {
        match self {
            Self::SpendLimit { .. }
            | Self::Unauthorized { .. }
            | Self::KeyWithheld { .. }
            | Self::Forbidden { .. }
            | Self::NoKey { .. } => true,
            Self::RateLimited { .. }
            | Self::Overloaded { .. }
            | Self::Server { .. }
            | Self::InvalidRequest { .. }
            | Self::ContextTooLong { .. }
            | Self::CutStream
            | Self::Timeout { .. }
            | Self::Connect { .. }
            | Self::Protocol { .. } => false,
        }
    }

    /// Stable name, for events and metrics.
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => "rate_limited",
            Self::Overloaded { .. } => "overloaded",
            Self::Server { .. } => "server",
            Self::SpendLimit { .. } => "spend_limit",
            Self::Unauthorized { .. } => "unauthorized",
            Self::KeyWithheld { .. } => "key_withheld",
            Self::Forbidden { .. } => "forbidden",
            Self::NoKey { .. } => "no_key",
            Self::InvalidRequest { .. } => "invalid_request",
            Self::ContextTooLong { .. } => "context_too_long",
            Self::CutStream => "cut_stream",
            Self::Timeout { .. } => "timeout",
            Self::Connect { .. } => "connect",
            Self::Protocol { .. } => "protocol",
        }
    }

    /// What a person can do, in one line; also the end of the error message.
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::RateLimited { .. } => remedy::RATE,
            Self::Overloaded { .. } | Self::Server { .. } => remedy::OVERLOAD,
            Self::SpendLimit { .. } => remedy::SPEND,
            Self::Unauthorized { .. } => remedy::KEY,
            Self::KeyWithheld { .. } => remedy::WITHHELD,
            Self::Forbidden { .. } => remedy::ACCESS,
            Self::NoKey { .. } => remedy::NO_KEY,
            Self::InvalidRequest { .. } => remedy::REQUEST,
            Self::ContextTooLong { .. } => remedy::CONTEXT,
            Self::CutStream => remedy::CUT,
            Self::Timeout { .. } => remedy::TIMEOUT,
            Self::Connect { .. } => remedy::CONNECT,
            Self::Protocol { .. } => remedy::PROTOCOL,
        }
    }

    /// Formats the message with `instead` in place of the retry advice, for callers that never retry.
    pub fn without_retry(&self, instead: &str) -> String {
        let text = self.to_string();
        match text.strip_suffix(self.remedy()).filter(|_| self.is_retryable()) {
            Some(what) => format!("{what}{instead}"),
            None => text,
        }
    }

    /// The delay that the provider requests, if any.
    pub const fn retry_after_ms(&self) -> Option<u64> {
        match self {
            Self::RateLimited { retry_after_ms }
            | Self::Overloaded { retry_after_ms }
            | Self::Server { retry_after_ms, .. } => *retry_after_ms,
            Self::SpendLimit { .. }
            | Self::Unauthorized { .. }
            | Self::KeyWithheld { .. }
            | Self::Forbidden { .. }
            | Self::NoKey { .. }
            | Self::InvalidRequest { .. }
            | Self::ContextTooLong { .. }
            | Self::CutStream
            | Self::Timeout { .. }
            | Self::Connect { .. }
            | Self::Protocol { .. } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_message_is_one_line_and_ends_with_its_remedy() {
        let message = || "no".to_owned();
        let all = [
            ModelError::RateLimited { retry_after_ms: Some(1) },
            ModelError::Overloaded { retry_after_ms: None },
            ModelError::Server { status: 500, retry_after_ms: None },
            ModelError::SpendLimit { message: message() },
            ModelError::Unauthorized { message: message() },
            ModelError::KeyWithheld { status: 401 },
            ModelError::Forbidden { message: message() },
            ModelError::NoKey { variable: "KEY" },
            ModelError::InvalidRequest { message: message() },
            ModelError::ContextTooLong { message: message() },
            ModelError::CutStream,
            ModelError::Timeout { which: TimeoutKind::Idle, after_ms: 5 },
            ModelError::Connect { detail: message() },
            ModelError::Protocol { detail: message() },
        ];
        let mut kinds: Vec<_> = all.iter().map(ModelError::kind).collect();
        kinds.dedup();
        assert_eq!(kinds.len(), all.len());
        for error in all {
            let text = error.to_string();
            assert!(text.ends_with(error.remedy()) && !text.contains('\n'), "{text}");
            let alone = error.without_retry("that is all");
            assert!(!alone.contains("asks again"), "{alone}");
            assert_eq!(alone.ends_with("; that is all"), error.is_retryable(), "{alone}");
        }
    }
}

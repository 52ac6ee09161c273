//! Size of the next request and its limit, in tokens: as last counted by a model, and estimated by rule otherwise.
//! Pure.

use docket_schema::run::{ModelFailed, ModelTerms, RunStarted, RunState};

use super::call_options::answer_tokens_max;

/// Bytes counted as one token if no model has counted: code has three to four, other scripts fewer; an oversized
/// request costs more than one that was shortened early.
const BYTES_PER_TOKEN: u64 = 3;
/// The window if none is known: that of the price table's unknown models.
const WINDOW_TOKENS_UNKNOWN: u64 = 32_768;
/// Share of the window, in percent, that a compaction aims at.
const LOW_PERCENT: u64 = 50;
/// Minimum share of the window, in percent, that a compaction must save, and a summary on its own: each costs the
/// provider's cache, and a summary costs a call. A request that would not fit is shortened regardless.
const USEFUL_PERCENT: u64 = 20;

/// Whether a model refused a request because of its length.
pub(in crate::engine) fn is_context_too_long(failure: &ModelFailed) -> bool {
    failure.error == "context_too_long"
}

/// Estimates the tokens of content that no model has counted.
pub(in crate::engine) const fn estimate_tokens(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// The size of a request, and its limits.
pub(in crate::engine) struct RequestSize {
    pub(in crate::engine) bytes: u64,
    /// Tokens and bytes of the request that the model counted last.
    measured: Option<(u64, u64)>,
    /// Tokens available for a request: the window without the reply's part.
    pub(in crate::engine) window: u64,
    /// Above this the conversation is shortened.
    pub(in crate::engine) high_mark: u64,
    /// The target of shortening.
    pub(in crate::engine) low_mark: u64,
}

impl RequestSize {
    /// Returns the size of the next request to a model with these terms.
    pub(in crate::engine) fn for_model(run: &RunState, pins: &RunStarted, terms: &ModelTerms) -> Self {
        let whole = match terms.context_tokens {
            0 => WINDOW_TOKENS_UNKNOWN,
            known => known,
        };
        let window = whole - u64::from(answer_tokens_max(pins, terms)).min(whole / 4);
        let percent = u64::from(pins.settings.compaction_percent);
        Self {
            bytes: run.prompt_bytes().saturating_add(run.transcript.conversation(None).bytes()),
            measured: run.measured_tokens.map(|seen| (seen.tokens, run.measured_bytes(seen))),
            window,
            high_mark: window.saturating_mul(percent) / 100,
            low_mark: window.saturating_mul(LOW_PERCENT.min(percent.saturating_sub(USEFUL_PERCENT))) / 100,
        }
    }

    /// Returns its tokens, as well as they are known.
    pub(in crate::engine) fn current_tokens(&self) -> u64 {
        self.tokens_for_bytes(self.bytes)
    }

    /// Whether it is below the mark above which it is shortened.
    pub(in crate::engine) fn is_below_high_mark(&self) -> bool {
        self.current_tokens() < self.high_mark
    }

    /// Returns the bytes of a share of the window, in percent.
    pub(in crate::engine) const fn window_bytes(&self, percent: u64) -> u64 {
        self.window.saturating_mul(BYTES_PER_TOKEN * percent) / 100
    }

    /// Returns the tokens saved if a request is this many bytes shorter.
    pub(in crate::engine) fn tokens_saved(&self, bytes: u64) -> u64 {
        self.current_tokens().saturating_sub(self.tokens_for_bytes(self.bytes.saturating_sub(bytes)))
    }

    /// Returns the tokens that a compaction must save.
    pub(in crate::engine) const fn min_useful_tokens(&self) -> u64 {
        self.window.saturating_mul(USEFUL_PERCENT) / 100
    }

    /// Returns the tokens of a request of this many bytes: the model's count, plus the newer part by rule; if it was
    /// shortened since, its share of that count.
    pub(in crate::engine) fn tokens_for_bytes(&self, bytes: u64) -> u64 {
        match self.measured {
            None => estimate_tokens(bytes),
            Some((tokens, seen)) if bytes >= seen => {
                tokens.saturating_add((bytes - seen).div_ceil(BYTES_PER_TOKEN))
            }
            Some((tokens, seen)) => {
                let share = u128::from(tokens) * u128::from(bytes) / u128::from(seen.max(1));
                u64::try_from(share).unwrap_or(u64::MAX)
            }
        }
    }
}

//! How large the next request is, and how large it may be: in tokens, as a model counted them last, and by rule where none
//! has. Pure.

use docket_schema::run::{ModelFailed, ModelTerms, RunStarted, RunState};

use super::call_options::answer_tokens_max;

/// Bytes that are counted as one token where no model has counted: code has three to four, other scripts
/// fewer; a request that is too long costs more than one that was shortened early.
const BYTES_PER_TOKEN: u64 = 3;
/// The window where none is known: that of the price table's unknown models.
const WINDOW_TOKENS_UNKNOWN: u64 = 32_768;
/// Share of the window, in percent, that a compaction aims at.
const LOW_PERCENT: u64 = 50;
/// Share of the window, in percent, that a compaction gains at least, and a summary by itself: each costs the
/// provider's cache, and a summary a call. A request that would not fit is made shorter whatever it gains.
const USEFUL_PERCENT: u64 = 20;

/// Whether a model refused a request for its length.
pub(in crate::engine) fn is_context_too_long(failure: &ModelFailed) -> bool {
    failure.error == "context_too_long"
}

/// Tokens of what no model has counted.
pub(in crate::engine) const fn estimate_tokens(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// How large a request is and may be.
pub(in crate::engine) struct RequestSize {
    pub(in crate::engine) bytes: u64,
    /// Tokens and bytes of what the model counted last.
    measured: Option<(u64, u64)>,
    /// Tokens that a request may have at most: the window without the answer's part.
    pub(in crate::engine) window: u64,
    /// From here on it is made shorter.
    pub(in crate::engine) high_mark: u64,
    /// What making it shorter aims at.
    pub(in crate::engine) low_mark: u64,
}

impl RequestSize {
    /// Of what a model with these terms would be asked next.
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

    /// Its tokens, as well as they are known.
    pub(in crate::engine) fn current_tokens(&self) -> u64 {
        self.tokens_for_bytes(self.bytes)
    }

    /// Whether it is below the mark from which on it is made shorter.
    pub(in crate::engine) fn is_below_high_mark(&self) -> bool {
        self.current_tokens() < self.high_mark
    }

    /// Bytes of a share of the window, in percent.
    pub(in crate::engine) const fn window_bytes(&self, percent: u64) -> u64 {
        self.window.saturating_mul(BYTES_PER_TOKEN * percent) / 100
    }

    /// Tokens that a request has less which is shorter by this many bytes.
    pub(in crate::engine) fn tokens_saved(&self, bytes: u64) -> u64 {
        self.current_tokens().saturating_sub(self.tokens_for_bytes(self.bytes.saturating_sub(bytes)))
    }

    /// Tokens that a compaction has to gain.
    pub(in crate::engine) const fn min_useful_tokens(&self) -> u64 {
        self.window.saturating_mul(USEFUL_PERCENT) / 100
    }

    /// Tokens of a request of this many bytes: what the model counted, and what came since by rule; where it
    /// was made shorter since, its share of what was counted.
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

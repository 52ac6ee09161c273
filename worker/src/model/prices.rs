//! Prices and limits of models: the built-in table, overridden by the user's own entries. Read once when a
//! run starts and pinned in the run, so that later changes of the table affect no decision. Pure.

use std::collections::BTreeMap;

use docket_schema::{
    message::{ModelRef, TokenPrices},
    run::{ModelTerms, ReasoningEffort, RunModels, parse_temperature_milli},
};
use toml::{Table, Value};

use super::provider_protocol::ModelProvider;

const BUILT_IN: &str = include_str!("prices.toml");

/// Context window of a model without an entry, in tokens: the usual minimum of local servers.
const UNKNOWN_CONTEXT_TOKENS: u64 = 32_768;
/// Largest reply of a model without an entry, in tokens.
const UNKNOWN_OUTPUT_TOKENS_MAX: u64 = 4096;

/// The limits of a model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ModelLimits {
    /// Context window, or the part of it that is sold at the listed price, in tokens.
    pub context_tokens: u64,
    /// Largest reply, in tokens.
    pub output_tokens_max: u64,
}

/// The table's data for one model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PriceEntry {
    /// Prices; all 0 if unknown.
    pub prices: TokenPrices,
    /// Limits; conservative ones if unknown.
    pub limits: ModelLimits,
    /// The reasoning effort, if the entry sets one.
    pub effort: Option<ReasoningEffort>,
    /// The sampling temperature in thousandths, if the entry sets one.
    pub temperature_milli: Option<u32>,
    /// Whether the reply limit is sent as `max_completion_tokens`, if the entry says so.
    pub completion_tokens: Option<bool>,
    /// Whether an entry names the model. Unknown prices must be displayed as unknown, not as free.
    pub is_known: bool,
}

/// All entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PriceTable {
    entries: BTreeMap<String, PriceEntry>,
}

/// Why a price file could not be read. Names the key, so that the user finds the line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PriceError {
    /// Not valid TOML.
    #[error("the price file is not valid TOML: {0}; compare it with the built-in table")]
    Syntax(String),
    /// An entry is not a table, or its name has no provider.
    #[error(
        "`{0}` must be a table named [\"provider:model\"] with input, output, cache_read, cache_write, context_tokens, output_tokens_max, and optionally effort, temperature, answer_limit"
    )]
    InvalidEntry(String),
    /// An unknown key.
    #[error("unknown key `{entry}.{key}`; remove it")]
    UnknownKey { entry: String, key: String },
    /// A key is missing or its value is invalid.
    #[error("`{entry}.{key}` must be {expected}")]
    InvalidValue {
        entry: String,
        key: &'static str,
        /// A description of the valid value.
        expected: &'static str,
    },
}

const ENTRY_KEYS: [&str; 9] = [
    "input",
    "output",
    "cache_read",
    "cache_write",
    "context_tokens",
    "output_tokens_max",
    "effort",
    "temperature",
    "answer_limit",
];

impl PriceTable {
    /// Loads the built-in table, with the entries of `user` (TOML of the same form) added or replaced.
    ///
    /// # Errors
    /// [`PriceError`] at the first mistake in `user`.
    pub fn load(user: Option<&str>) -> Result<Self, PriceError> {
        let mut entries = parse_entries(BUILT_IN).expect("the built-in table is tested");
        if let Some(user) = user {
            entries.extend(parse_entries(user)?);
        }
        Ok(Self { entries })
    }

    /// Returns the entry with the longest matching name prefix. A model costs the same through every protocol
    /// of its provider.
    pub fn entry_for(&self, model: &ModelRef) -> PriceEntry {
        let own = self.entry_by_name(&model.to_string());
        if own.is_known || ModelProvider::for_model(model) != Ok(ModelProvider::OpenAiResponses) {
            return own;
        }
        self.entry_by_name(&format!("{}:{}", ModelProvider::OpenAi.name(), model.name))
    }

    fn entry_by_name(&self, name: &str) -> PriceEntry {
        let matches = |prefix: &str| {
            name.strip_prefix(prefix).is_some_and(|rest| {
                rest.is_empty() || prefix.ends_with(':') || rest.starts_with(['-', '@', ':'])
            })
        };
        let best =
            self.entries.iter().filter(|(prefix, _)| matches(prefix)).max_by_key(|(prefix, _)| prefix.len());
        best.map_or(
            PriceEntry {
                prices: TokenPrices::default(),
                limits: ModelLimits {
                    context_tokens: UNKNOWN_CONTEXT_TOKENS,
                    output_tokens_max: UNKNOWN_OUTPUT_TOKENS_MAX,
                },
                effort: None,
                temperature_milli: None,
                completion_tokens: None,
                is_known: false,
            },
            |(_, listed)| *listed,
        )
    }

    /// The pinned models of a run that uses only `model`.
    pub fn single_model(&self, model: &ModelRef) -> RunModels {
        RunModels::single_model(model.clone(), self.model_terms(model))
    }

    /// The terms of `model`, as pinned in a run.
    pub fn model_terms(&self, model: &ModelRef) -> ModelTerms {
        let listed = self.entry_for(model);
        ModelTerms {
            context_tokens: listed.limits.context_tokens,
            output_tokens_max: listed.limits.output_tokens_max,
            prices: listed.prices,
            priced: listed.is_known,
            effort: listed.effort,
            temperature_milli: listed.temperature_milli,
            completion_tokens: listed
                .completion_tokens
                .unwrap_or_else(|| requires_completion_tokens_field(model)),
        }
    }
}

/// Explains why a money budget cannot be enforced for a model without a price entry, and what to do.
pub fn unknown_price_message(model: &ModelRef) -> String {
    format!(
        "a budget of money cannot be kept: no price is known for {model}; add [prices.\"{model}\"] to docket.toml, \
         where the task is submitted and where its worker runs"
    )
}

/// Hosts of OpenAI models on Azure.
const AZURE_HOSTS: [&str; 3] =
    [".openai.azure.com", ".cognitiveservices.azure.com", ".services.ai.azure.com"];
/// Name prefixes of OpenAI's reasoning models: they reject `max_tokens`, even behind a gateway.
const REASONING_MODEL_PREFIXES: [&str; 4] = ["o1", "o3", "o4", "gpt-5"];

/// Whether a model in Chat Completions is one of OpenAI's own and may reject `max_tokens`. Other servers
/// mostly support nothing else.
fn requires_completion_tokens_field(model: &ModelRef) -> bool {
    if ModelProvider::for_model(model) != Ok(ModelProvider::OpenAi) {
        return false;
    }
    let host = model.base_url.as_deref().and_then(|url| url.split_once("://")).map(|(_, rest)| rest);
    let host = host.and_then(|rest| rest.split(['/', ':']).next());
    let name = model.name.strip_prefix("openai/").unwrap_or(&model.name);
    let thinks = REASONING_MODEL_PREFIXES.iter().any(|begin| {
        name.strip_prefix(begin).is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    });
    thinks || host.is_some_and(|host| AZURE_HOSTS.iter().any(|azure| host.ends_with(azure)))
}

fn parse_entries(text: &str) -> Result<BTreeMap<String, PriceEntry>, PriceError> {
    let table: Table = text.parse().map_err(|error: toml::de::Error| {
        PriceError::Syntax(error.to_string().split_whitespace().collect::<Vec<_>>().join(" "))
    })?;
    table.into_iter().map(|(name, value)| parse_entry(&name, &value).map(|listed| (name, listed))).collect()
}

fn parse_entry(name: &str, value: &Value) -> Result<PriceEntry, PriceError> {
    let table = value.as_table().filter(|_| name.contains(':'));
    let table = table.ok_or_else(|| PriceError::InvalidEntry(name.to_owned()))?;
    if let Some(key) = table.keys().find(|key| !ENTRY_KEYS.contains(&key.as_str())) {
        return Err(PriceError::UnknownKey { entry: name.to_owned(), key: key.clone() });
    }
    let fault = |key, expected| PriceError::InvalidValue { entry: name.to_owned(), key, expected };
    let price = |key| {
        let text = table.get(key).and_then(Value::as_str);
        text.and_then(parse_nano_dollars).ok_or_else(|| {
            fault(key, "dollars per million tokens as text with at most three decimals, like \"0.25\"")
        })
    };
    let tokens = |key| {
        let number = table.get(key).and_then(Value::as_integer);
        number
            .and_then(|number| u64::try_from(number).ok())
            .filter(|number| *number > 0)
            .ok_or_else(|| fault(key, "a number of tokens above 0, like 200_000"))
    };
    let effort = match table.get("effort").map(|value| value.as_str().map(str::parse::<ReasoningEffort>)) {
        None => None,
        Some(Some(Ok(effort))) => Some(effort),
        Some(Some(Err(_)) | None) => return Err(fault("effort", "\"low\", \"medium\" or \"high\"")),
    };
    let temperature =
        match table.get("temperature").map(|value| value.as_str().and_then(parse_temperature_milli)) {
            None => None,
            Some(Some(milli)) => Some(milli),
            Some(None) => {
                return Err(fault(
                    "temperature",
                    "text from \"0\" to \"2\" with at most three decimals, like \"0.2\"",
                ));
            }
        };
    let completion_tokens = match table.get("answer_limit").map(Value::as_str) {
        None => None,
        Some(Some("max_completion_tokens")) => Some(true),
        Some(Some("max_tokens")) => Some(false),
        Some(_) => return Err(fault("answer_limit", "\"max_completion_tokens\" or \"max_tokens\"")),
    };
    Ok(PriceEntry {
        effort,
        completion_tokens,
        temperature_milli: temperature,
        prices: TokenPrices {
            input_nusd: price("input")?,
            output_nusd: price("output")?,
            cache_read_nusd: price("cache_read")?,
            cache_write_nusd: price("cache_write")?,
        },
        limits: ModelLimits {
            context_tokens: tokens("context_tokens")?,
            output_tokens_max: tokens("output_tokens_max")?,
        },
        is_known: true,
    })
}

/// Dollars per million tokens equal thousands of nano-dollars per token.
fn parse_nano_dollars(text: &str) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if whole.is_empty() || !digits(whole) || !digits(fraction) || fraction.len() > 3 {
        return None;
    }
    whole.parse::<u64>().ok()?.checked_mul(1000)?.checked_add(format!("{fraction:0<3}").parse().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse_model(text: &str) -> ModelRef {
        text.parse().expect("legal")
    }

    #[test]
    fn longest_prefix_ending_at_a_boundary_wins() {
        let table = PriceTable::load(None).expect("built in");
        let input = |name: &str| {
            let listed = table.entry_for(&parse_model(name));
            listed.is_known.then_some(listed.prices.input_nusd)
        };
        for (name, expected) in [
            ("anthropic:claude-opus-5-5", Some(4000)),
            ("anthropic:claude-opus-5-5-20261001", Some(4000)),
            ("anthropic:claude-opus-5", Some(5000)),
            ("anthropic:claude-sonnet-4-5-20250929", Some(3000)),
            ("openai:gpt-5-mini", Some(250)),
            ("openai-responses:gpt-5-mini", Some(250)),
            ("openai:gpt-5-pro", Some(15_000)),
            ("openai:gpt-5.9", None),
            ("openai:qwen2.5-coder:7b", None),
            ("scripted:demo", Some(0)),
        ] {
            assert_eq!(input(name), expected, "{name}");
        }
        let unknown = table.entry_for(&parse_model("openai:qwen2.5-coder:7b"));
        assert_eq!(unknown.prices, TokenPrices::default());
        assert_eq!(unknown.limits.context_tokens, UNKNOWN_CONTEXT_TOKENS);
    }

    #[test]
    fn output_limit_field_matches_the_server() {
        let user = "[\"openai:gpt-5-local\"]\ninput=\"0\"\noutput=\"0\"\ncache_read=\"0\"\ncache_write=\"0\"\n\
                    context_tokens=9\noutput_tokens_max=9\nanswer_limit=\"max_tokens\"\n";
        let table = PriceTable::load(Some(user)).expect("valid");
        for (name, at, expected) in [
            ("openai:qwen3", "http://localhost:11434/v1", false),
            ("openai:gpt-oss:20b", "http://localhost:11434/v1", false),
            ("openai:o3-mini", "http://localhost:4000", true),
            ("openai:openai/gpt-5.2", "https://gateway.example/api/v1", true),
            ("openai:gpt-4o", "https://mine.openai.azure.com/openai/v1", true),
            ("openai:gpt-5-local", "http://localhost:1/v1", false),
            ("anthropic:o3", "http://localhost:1", false),
        ] {
            let model = ModelRef { base_url: Some(at.to_owned()), ..parse_model(name) };
            assert_eq!(table.model_terms(&model).completion_tokens, expected, "{name} at {at}");
        }
    }

    #[test]
    fn prices_follow_the_usual_order() {
        let table = PriceTable::load(None).expect("built in");
        for (name, listed) in &table.entries {
            let TokenPrices { input_nusd, output_nusd, cache_read_nusd, .. } = listed.prices;
            assert!(cache_read_nusd <= input_nusd && input_nusd <= output_nusd, "{name}");
        }
    }

    #[test]
    fn user_file_adds_and_replaces_entries() {
        let entry = |name: &str| {
            format!(
                "[\"{name}\"]\ninput=\"0.5\"\noutput=\"1.125\"\ncache_read=\"0\"\ncache_write=\"0\"\n\
                 context_tokens=8192\noutput_tokens_max=1024\n"
            )
        };
        let user = entry("openai:qwen2.5-coder") + &entry("anthropic:claude-opus-5");
        let table = PriceTable::load(Some(&user)).expect("valid");
        for name in ["openai:qwen2.5-coder:7b", "anthropic:claude-opus-5"] {
            let listed = table.entry_for(&parse_model(name));
            assert_eq!((listed.prices.input_nusd, listed.prices.output_nusd), (500, 1125), "{name}");
            assert_eq!(listed.limits, ModelLimits { context_tokens: 8192, output_tokens_max: 1024 });
        }
    }

    #[test]
    fn price_errors_name_the_key() {
        for (user, named) in [
            ("[\"openai:x\"", "not valid TOML"),
            ("[x]\n", "`x` must be a table"),
            ("\"openai:x\" = 3", "`openai:x` must be"),
            ("[\"openai:x\"]\nprice = 3", "unknown key `openai:x.price`"),
            ("[\"openai:x\"]\noutput = \"1\"", "`openai:x.input` must be"),
            (
                "[\"openai:x\"]\ninput=\"1\"\noutput=\"1\"\ncache_read=\"0\"\ncache_write=\"0\"\ncontext_tokens=1\noutput_tokens_max=1\neffort=\"much\"",
                "`openai:x.effort` must be",
            ),
            (
                "[\"openai:x\"]\ninput=\"1\"\noutput=\"1\"\ncache_read=\"0\"\ncache_write=\"0\"\ncontext_tokens=1\noutput_tokens_max=1\ntemperature=\"3\"",
                "`openai:x.temperature` must be",
            ),
            ("[\"openai:x\"]\ninput = 0.1", "`openai:x.input` must be"),
            ("[\"openai:x\"]\ninput = \"0.0001\"", "`openai:x.input` must be"),
            ("[\"openai:x\"]\ninput = \"-1\"", "`openai:x.input` must be"),
            ("[\"openai:x\"]\ninput = \"99999999999999999999\"", "`openai:x.input` must be"),
            (
                "[\"openai:x\"]\ninput=\"1\"\noutput=\"1\"\ncache_read=\"0\"\ncache_write=\"0\"\ncontext_tokens=0",
                "`openai:x.context_tokens` must be",
            ),
        ] {
            let error = PriceTable::load(Some(user)).expect_err(user).to_string();
            assert!(error.contains(named) && !error.contains('\n'), "{error}");
        }
    }
}

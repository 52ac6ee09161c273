//! Provider-independent conversation types. `docket-worker` renders them as request bodies for Anthropic and
//! OpenAI; no other code knows those formats.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use crate::{content::Content, ids::ParseIdError};

/// A model as a person writes it: `anthropic:NAME`, `openai:NAME`, `openai-responses:NAME`, `scripted:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ModelRef {
    /// The protocol: `anthropic`, `openai`, `openai-responses`, `scripted`.
    pub provider: String,
    /// The provider's name for the model.
    pub name: String,
    /// Base URL to use instead of the provider's own, without a trailing slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.name)
    }
}

impl ModelRef {
    /// The providers that docket supports.
    pub const PROVIDERS: [&str; 4] = ["anthropic", "openai", "openai-responses", "scripted"];
}

impl FromStr for ModelRef {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        match text.split_once(':') {
            Some((provider, name)) if Self::PROVIDERS.contains(&provider) && !name.is_empty() => {
                Ok(Self { provider: provider.to_owned(), name: name.to_owned(), base_url: None })
            }
            _ => Err(ParseIdError {
                expected: "model (anthropic:NAME, openai:NAME, openai-responses:NAME or scripted:NAME)",
                text: text.chars().take(80).collect(),
            }),
        }
    }
}

/// docket's own name of a call, derived from turn and index (`t3-0`). The same log gives a call the same name
/// on every machine, and providers that reuse ids cannot cause confusion.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CallId(pub String);

impl CallId {
    /// Returns the name of the `index`th tool call of `turn`.
    pub fn for_tool(turn: crate::ids::Turn, index: usize) -> Self {
        Self(format!("t{turn}-{index}"))
    }

    /// Returns the name of the `index`th call that the runtime itself makes in a run, starting at 0.
    pub fn for_runtime(index: u32) -> Self {
        Self(format!("r{index}"))
    }

    /// Whether the runtime itself made the call.
    pub fn is_runtime(&self) -> bool {
        self.0.starts_with('r')
    }

    /// Returns the name of the `attempt`th model call of `turn`.
    pub fn for_model(turn: crate::ids::Turn, attempt: u32) -> Self {
        Self(format!("m{turn}-{attempt}"))
    }

    /// Returns the name of a run's `nth` call for a summary, starting at 1.
    pub fn for_summary(nth: u32) -> Self {
        Self(format!("c{nth}"))
    }

    /// Whether this is the name of a call for a summary, which is not a decision of the agent.
    pub fn is_summary(&self) -> bool {
        self.0.starts_with('c')
    }

    /// Returns the name of the `index`th final check of `turn`.
    pub fn for_gate(turn: crate::ids::Turn, index: usize) -> Self {
        Self(format!("g{turn}-{index}"))
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    /// The task, tool results, and messages from people.
    User,
    /// The model.
    Assistant,
}

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// The author.
    pub role: MessageRole,
    /// The contents, in order.
    pub parts: Vec<MessagePart>,
}

/// A part of a message.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessagePart {
    /// Text.
    Text {
        /// The text.
        text: Content,
    },
    /// The provider's reasoning, returned unchanged if the provider requires it.
    Thinking {
        /// The provider whose format `data` has; the complete model if a run uses several.
        provider: String,
        /// The provider's own object, unchanged.
        data: Value,
    },
    /// A tool call requested by the model.
    ToolUse(ToolUse),
    /// A tool's result.
    ToolResult {
        /// The call it belongs to.
        call: CallId,
        /// The result as the model reads it.
        content: Content,
        /// Whether the tool failed or refused.
        is_error: bool,
    },
}

/// Implemented by hand because serde's derived code first copies each part into a tree. Here that is only
/// done if `type` is not the first field; in everything docket writes it is.
impl<'de> Deserialize<'de> for MessagePart {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<Self, D::Error> {
        struct Form;
        impl<'de> de::Visitor<'de> for Form {
            type Value = MessagePart;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a piece of a message, with its `type`")
            }
            fn visit_map<A: de::MapAccess<'de>>(self, mut map: A) -> Result<MessagePart, A::Error> {
                let Some(first) = map.next_key::<Cow<'_, str>>()? else {
                    return Err(de::Error::missing_field("type"));
                };
                if first == "type" {
                    let kind: PartKind = map.next_value()?;
                    return kind.parse_fields(de::value::MapAccessDeserializer::new(map));
                }
                let mut all = serde_json::Map::new();
                all.insert(first.into_owned(), map.next_value()?);
                while let Some((name, value)) = map.next_entry()? {
                    all.insert(name, value);
                }
                let kind = all.remove("type").ok_or_else(|| de::Error::missing_field("type"))?;
                let kind: PartKind = serde_json::from_value(kind).map_err(de::Error::custom)?;
                kind.parse_fields(Value::Object(all)).map_err(de::Error::custom)
            }
        }
        d.deserialize_map(Form)
    }
}

/// The `type` of a [`MessagePart`].
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PartKind {
    Text,
    Thinking,
    ToolUse,
    ToolResult,
}

impl PartKind {
    /// Parses the part of this type from the remaining fields.
    fn parse_fields<'de, D: Deserializer<'de>>(self, fields: D) -> Result<MessagePart, D::Error> {
        #[derive(Deserialize)]
        struct Text {
            text: Content,
        }
        #[derive(Deserialize)]
        struct Thinking {
            provider: String,
            data: Value,
        }
        #[derive(Deserialize)]
        struct ToolResult {
            call: CallId,
            content: Content,
            is_error: bool,
        }
        Ok(match self {
            Self::Text => {
                let Text { text } = Text::deserialize(fields)?;
                MessagePart::Text { text }
            }
            Self::Thinking => {
                let Thinking { provider, data } = Thinking::deserialize(fields)?;
                MessagePart::Thinking { provider, data }
            }
            Self::ToolUse => MessagePart::ToolUse(ToolUse::deserialize(fields)?),
            Self::ToolResult => {
                let ToolResult { call, content, is_error } = ToolResult::deserialize(fields)?;
                MessagePart::ToolResult { call, content, is_error }
            }
        })
    }
}

/// A tool call as the model made it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolUse {
    /// docket's name of the call.
    pub call: CallId,
    /// The tool's name as the model wrote it; the tool may not exist.
    pub name: String,
    /// The arguments; `null` if they were not JSON.
    pub args: Value,
    /// The raw arguments if they were not a JSON object. The model receives an error and nothing is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
}

/// A tool as described to the model.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolSpec {
    /// The tool's name.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of the arguments.
    pub input_schema: Value,
}

/// Why a model stopped. A stream that ends without a reason is an error, never a success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It finished its message.
    EndTurn,
    /// It waits for tools.
    ToolUse,
    /// It reached the output limit.
    MaxTokens,
    /// It produced a stop sequence.
    StopSequence,
    /// It refused.
    Refusal,
    /// A reason unknown to this version, as the provider wrote it.
    Other(String),
}

/// Tokens of one model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TokenUsage {
    /// Request tokens that were not cached.
    pub input_tokens: u64,
    /// Tokens of the reply.
    pub output_tokens: u64,
    /// Tokens read from the provider's cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Tokens written to the provider's cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Whether the numbers are estimates, at three bytes per token, because the provider reported none. For a
    /// sum: whether any part is estimated.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl TokenUsage {
    /// Estimates the usage of a call whose provider reports none. Errs on the high side, because budgets are
    /// based on it.
    pub const fn estimate(request_bytes: u64, answer_bytes: u64) -> Self {
        Self {
            input_tokens: request_bytes.div_ceil(3),
            output_tokens: answer_bytes.div_ceil(3),
            cache_read_tokens: 0,
            cache_write_tokens: 0,
            estimated: true,
        }
    }

    /// Returns all tokens of the request, cached or not.
    pub const fn request_tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.cache_read_tokens).saturating_add(self.cache_write_tokens)
    }

    /// Returns the percentage of request tokens served from the provider's cache; `None` if there were none.
    pub fn cache_hit_percent(self) -> Option<u64> {
        let read = u128::from(self.cache_read_tokens) * 100;
        let percent = read.checked_div(u128::from(self.request_tokens()))?;
        u64::try_from(percent).ok()
    }

    /// Returns the sum, saturating.
    #[must_use]
    pub const fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cache_read_tokens: self.cache_read_tokens.saturating_add(other.cache_read_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_add(other.cache_write_tokens),
            estimated: self.estimated || other.estimated,
        }
    }
}

/// Prices in nano-dollars per token (3 dollars per million tokens = 3000), so that sums are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TokenPrices {
    /// Per token of the request.
    pub input_nusd: u64,
    /// Per token of the reply.
    pub output_nusd: u64,
    /// Per token read from the cache.
    pub cache_read_nusd: u64,
    /// Per token written to the cache.
    pub cache_write_nusd: u64,
}

impl TokenPrices {
    /// Returns the cost of `usage` in nano-dollars, saturating.
    pub const fn cost_nusd(&self, usage: TokenUsage) -> u64 {
        usage
            .input_tokens
            .saturating_mul(self.input_nusd)
            .saturating_add(usage.output_tokens.saturating_mul(self.output_nusd))
            .saturating_add(usage.cache_read_tokens.saturating_mul(self.cache_read_nusd))
            .saturating_add(usage.cache_write_tokens.saturating_mul(self.cache_write_nusd))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cache_hit_percent_counts_all_request_tokens() {
        let usage = TokenUsage {
            input_tokens: 10,
            output_tokens: 500,
            cache_read_tokens: 80,
            cache_write_tokens: 10,
            estimated: false,
        };
        assert_eq!((usage.request_tokens(), usage.cache_hit_percent()), (100, Some(80)));
        assert_eq!(TokenUsage { output_tokens: 5, ..TokenUsage::default() }.cache_hit_percent(), None);
    }

    #[test]
    fn part_parses_with_its_type_in_any_position() {
        let parts = [
            MessagePart::Text { text: "a \"b\"\n\u{1f}é".into() },
            MessagePart::Thinking {
                provider: "anthropic".to_owned(),
                data: serde_json::json!({ "type": "x", "n": [1] }),
            },
            MessagePart::ToolUse(ToolUse {
                call: CallId("t1-0".to_owned()),
                name: "read_file".to_owned(),
                args: serde_json::json!({ "type": "text", "path": "a\nb" }),
                malformed: Some("{".to_owned()),
            }),
            MessagePart::ToolResult {
                call: CallId("t1-0".to_owned()),
                content: Content::inline(b"\xff"),
                is_error: true,
            },
        ];
        for part in parts {
            let value = serde_json::to_value(&part).expect("string keys");
            let Value::Object(fields) = &value else { panic!("an object") };
            let field = |(name, value): (&String, &Value)| format!("{}:{value}", Value::from(name.as_str()));
            let mut texts: Vec<String> = fields.iter().map(field).collect();
            for _ in 0..texts.len() {
                texts.rotate_left(1);
                let text = format!("{{{},\"later\":0}}", texts.join(","));
                assert_eq!(serde_json::from_str::<MessagePart>(&text).expect(&text), part);
            }
            assert_eq!(serde_json::from_value::<MessagePart>(value).expect("the same"), part);
        }
        for (wrong, said) in [
            ("{}", "missing field `type`"),
            (r#"{"text":{"text":"a"}}"#, "missing field `type`"),
            (r#"{"type":"image"}"#, "unknown variant `image`"),
            (r#"{"type":"text"}"#, "missing field `text`"),
            (r#"{"is_error":true,"type":"tool_result"}"#, "missing field `call`"),
            ("[]", "a piece of a message"),
        ] {
            let error = serde_json::from_str::<MessagePart>(wrong).expect_err(wrong).to_string();
            assert!(error.contains(said), "{wrong}: {error}");
        }
    }

    #[test]
    fn model_ref_parses_provider_and_name() {
        let model: ModelRef = "openai:qwen2.5-coder:7b".parse().expect("legal");
        assert_eq!((model.provider.as_str(), model.name.as_str()), ("openai", "qwen2.5-coder:7b"));
        let model: ModelRef = "openai-responses:gpt-5".parse().expect("legal");
        assert_eq!((model.provider.as_str(), model.name.as_str()), ("openai-responses", "gpt-5"));
        for bad in ["gpt-5", "openai:", ":x", "llama:7b"] {
            let error = bad.parse::<ModelRef>().expect_err(bad);
            assert!(error.to_string().contains("anthropic:NAME"), "{error}");
        }
    }

    #[test]
    fn cost_counts_each_kind_of_token_once() {
        let prices = TokenPrices {
            input_nusd: 3000,
            output_nusd: 15_000,
            cache_read_nusd: 300,
            cache_write_nusd: 3750,
        };
        let usage = TokenUsage {
            input_tokens: 10,
            output_tokens: 2,
            cache_read_tokens: 100,
            cache_write_tokens: 4,
            estimated: false,
        };
        assert_eq!(prices.cost_nusd(usage), 30_000 + 30_000 + 30_000 + 15_000);
    }
}

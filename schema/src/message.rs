//! The conversation, free of any provider's shape. `docket-worker` renders it to Anthropic's and
//! OpenAI's bodies; nothing else knows those.

use std::{borrow::Cow, fmt, str::FromStr};

use schemars::JsonSchema;
use serde::{Deserialize, Deserializer, Serialize, de};
use serde_json::Value;

use crate::{content::Content, ids::ParseIdError};

/// Which model, as a person writes it: `anthropic:NAME`, `openai:NAME`,
/// `openai-responses:NAME`, `scripted:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
pub struct ModelRef {
    /// The protocol that is spoken: `anthropic`, `openai`, `openai-responses`, `scripted`.
    pub provider: String,
    /// The provider's name for the model.
    pub name: String,
    /// Where the protocol is spoken instead of at the provider's own address, without a trailing slash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base_url: Option<String>,
}

impl fmt::Display for ModelRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.provider, self.name)
    }
}

impl ModelRef {
    /// The providers that docket speaks to.
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

/// docket's own name of a call, derived from turn and place (`t3-0`): the same log names the same
/// call on every machine, and providers that repeat their ids cannot confuse it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize, JsonSchema)]
#[serde(transparent)]
pub struct CallId(pub String);

impl CallId {
    /// Name of the `index`th tool call of `turn`.
    pub fn for_tool(turn: crate::ids::Turn, index: usize) -> Self {
        Self(format!("t{turn}-{index}"))
    }

    /// Name of the `index`th call that the runtime itself makes in a run, from 0.
    pub fn for_runtime(index: u32) -> Self {
        Self(format!("r{index}"))
    }

    /// Whether the runtime itself made the call.
    pub fn is_runtime(&self) -> bool {
        self.0.starts_with('r')
    }

    /// Name of the `attempt`th model call of `turn`.
    pub fn for_model(turn: crate::ids::Turn, attempt: u32) -> Self {
        Self(format!("m{turn}-{attempt}"))
    }

    /// Name of the `nth` call of a run that asks for a summary, from 1.
    pub fn for_summary(nth: u32) -> Self {
        Self(format!("c{nth}"))
    }

    /// Whether this is the name of a call that asks for a summary: no decision of the agent.
    pub fn is_summary(&self) -> bool {
        self.0.starts_with('c')
    }

    /// Name of the `index`th gate of `turn`.
    pub fn for_gate(turn: crate::ids::Turn, index: usize) -> Self {
        Self(format!("g{turn}-{index}"))
    }
}

impl fmt::Display for CallId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageRole {
    /// The task, tool results, and what people tell the run.
    User,
    /// The model.
    Assistant,
}

/// One message of the conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Message {
    /// Who speaks.
    pub role: MessageRole,
    /// What is said, in order.
    pub parts: Vec<MessagePart>,
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Serialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum MessagePart {
    /// Text.
    Text {
        /// The text.
        text: Content,
    },
    /// The provider's reasoning, to be sent back as it came where the provider demands it.
    Thinking {
        /// Which provider's shape `data` has; the whole model where a run has several.
        provider: String,
        /// The provider's own object, unchanged.
        data: Value,
    },
    /// The model wants a tool run.
    ToolUse(ToolUse),
    /// What the tool answered.
    ToolResult {
        /// The call this answers.
        call: CallId,
        /// The answer as the model reads it.
        content: Content,
        /// The tool failed, or refused.
        is_error: bool,
    },
}

/// By hand, for what serde derives copies each piece into a tree first: here that is done only where `type` does
/// not come first, as it does in whatever docket wrote.
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

/// The `type` of a [`Part`].
#[derive(Deserialize)]
#[serde(rename_all = "snake_case")]
enum PartKind {
    Text,
    Thinking,
    ToolUse,
    ToolResult,
}

impl PartKind {
    /// The piece of this type from the fields beside it.
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
    /// The tool's name as the model wrote it; it may not exist.
    pub name: String,
    /// The arguments; `null` when they were no JSON.
    pub args: Value,
    /// The arguments as they came when they were no JSON object: the model is told, nothing is run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub malformed: Option<String>,
}

/// A tool as the model is told of it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct ToolSpec {
    /// The name it is called by.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments.
    pub input_schema: Value,
}

/// Why a model stopped. A stream that ends without one is an error, never success.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// It had said what it wanted.
    EndTurn,
    /// It waits for tools.
    ToolUse,
    /// The output limit cut it.
    MaxTokens,
    /// A stop sequence was met.
    StopSequence,
    /// It refuses.
    Refusal,
    /// Something this version does not know, as the provider wrote it.
    Other(String),
}

/// Tokens of one model call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TokenUsage {
    /// Tokens of the request that no cache held.
    pub input_tokens: u64,
    /// Tokens of the answer.
    pub output_tokens: u64,
    /// Tokens read from the provider's cache.
    #[serde(default)]
    pub cache_read_tokens: u64,
    /// Tokens written to the provider's cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// The provider told none of it: made of the bytes that went and came, three a token. Of a sum: a part is.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub estimated: bool,
}

impl TokenUsage {
    /// What a call took of which its provider tells nothing: rather more than less, for budgets are made of it.
    pub const fn estimate(request_bytes: u64, answer_bytes: u64) -> Self {
        Self {
            input_tokens: request_bytes.div_ceil(3),
            output_tokens: answer_bytes.div_ceil(3),
            cache_read_tokens: 0,
            cache_write_tokens: 0,
            estimated: true,
        }
    }

    /// Tokens of the request, wherever they were read from.
    pub const fn request_tokens(self) -> u64 {
        self.input_tokens.saturating_add(self.cache_read_tokens).saturating_add(self.cache_write_tokens)
    }

    /// Of a hundred tokens of the request, how many the provider's cache held; `None` where none was asked.
    pub fn cache_hit_percent(self) -> Option<u64> {
        let read = u128::from(self.cache_read_tokens) * 100;
        let percent = read.checked_div(u128::from(self.request_tokens()))?;
        u64::try_from(percent).ok()
    }

    /// Sums, saturating.
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

/// Prices in nano-dollars a token (3 dollars a million tokens = 3000), so that sums are exact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
pub struct TokenPrices {
    /// Per token of the request.
    pub input_nusd: u64,
    /// Per token of the answer.
    pub output_nusd: u64,
    /// Per token read from the cache.
    pub cache_read_nusd: u64,
    /// Per token written to the cache.
    pub cache_write_nusd: u64,
}

impl TokenPrices {
    /// What `usage` costs, in nano-dollars; saturating.
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

//! A script in place of a model, for the demo and for tests of everything around a model. Its reply is a pure
//! function of the request and the attempt, never of earlier replies, so that a request repeated after a
//! crash, or from a fork, gets the same reply.
//!
//! A script is TOML or JSON: a list of turns. The number of model messages in the request selects the turn.
//! The scripted model server of the tests plays the same scripts over HTTP.

use std::time::Duration;

use docket_schema::{
    ids::DecisionHash,
    message::{StopReason, TokenUsage},
};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    error::{ModelError, TimeoutKind},
    reply::{ModelReply, OnDelta, ReplyDelta, ReplyPart},
    request_transcript::RequestTranscript,
};

/// Largest script, in bytes: a script is written by hand or by a test.
pub const SCRIPT_BYTES_MAX: usize = 4 * 1024 * 1024;
/// Longest `delay_ms`: a script that sleeps for hours is a mistake.
pub const DELAY_MS_MAX: u64 = 600_000;

/// A model's scripted replies.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelScript {
    /// The turns, in order.
    #[serde(default)]
    pub turns: Vec<ScriptedTurn>,
    /// What to reply after the last turn.
    #[serde(default)]
    pub after_end: AfterEnd,
    /// Turns for the conversations of roles: the first entry whose conditions hold is played in place of
    /// `turns`, and counts that conversation's own turns.
    #[serde(default)]
    pub talks: Vec<ScriptedConversation>,
    /// The reply to a request for a summary of the oldest messages; a default line if omitted.
    #[serde(default)]
    pub summary: Option<Box<ScriptedTurn>>,
}

/// The turns of one conversation.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedConversation {
    /// The role of the conversation.
    pub role: Option<String>,
    /// The first message contains this.
    pub opening_contains: Option<String>,
    /// The turns, in order.
    pub turns: Vec<ScriptedTurn>,
}

impl ScriptedConversation {
    fn matches(&self, transcript: &RequestTranscript) -> bool {
        let opens = |words: &String| transcript.user_texts.iter().any(|text| text.contains(words));
        self.role.as_ref().is_none_or(|role| transcript.role.as_ref() == Some(role))
            && self.opening_contains.as_ref().is_none_or(opens)
    }
}

/// What a script does after its last turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AfterEnd {
    /// Reject the request: a script that is too short is a mistake in the test.
    #[default]
    Refuse,
    /// Repeat the last turn.
    RepeatLast,
    /// Start again with the first turn.
    Cycle,
}

/// One turn, or one of its alternatives. In texts and arguments `{{turn}}` is replaced by the turn's number.
#[derive(Debug, Clone, PartialEq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptedTurn {
    /// The condition of this turn; if it does not hold, the first of `or` whose condition holds is used.
    pub when: Option<ScriptCondition>,
    /// Reasoning before everything else; later requests contain it with its signature.
    pub thinking: Option<String>,
    /// Text before the calls.
    pub text: Option<String>,
    /// Tool calls.
    pub calls: Vec<ScriptedCall>,
    /// Delay before the reply, in milliseconds.
    pub delay_ms: u64,
    /// A fault that occurs first.
    pub fault: Option<ScriptedFault>,
    /// Alternatives, in order.
    pub or: Vec<ScriptedTurn>,
}

/// Conditions on the conversation; all given ones must hold.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ScriptCondition {
    /// One of the last tool results contains this.
    pub last_result_contains: Option<String>,
    /// None of the last tool results contains this.
    pub last_result_lacks: Option<String>,
    /// Text of the last user message contains this (for example a `tell` sent along with results).
    pub last_text_contains: Option<String>,
    /// Any text or result on the user's side contains this.
    pub any_contains: Option<String>,
}

/// A tool call of a script.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    pub name: String,
    #[serde(default)]
    pub args: Value,
    /// Raw text used in place of `args`, for arguments that are not valid JSON.
    #[serde(default)]
    pub args_text: Option<String>,
}

/// A fault of the first attempts of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedFault {
    pub kind: FaultKind,
    /// The number of affected attempts, from the first.
    #[serde(default = "once")]
    pub times: u32,
    /// The requested delay, for kinds that request one, in milliseconds.
    #[serde(default)]
    pub retry_after_ms: Option<u64>,
}

const fn once() -> u32 {
    1
}

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// 429.
    RateLimited,
    /// 529.
    Overloaded,
    /// 500.
    ServerError,
    /// The provider's message for a used-up spending limit.
    SpendLimit,
    /// 401.
    Unauthorized,
    /// 403: the key may not use the model.
    Forbidden,
    /// 400, the conversation is too long.
    ContextTooLong,
    /// The connection breaks in the middle of the reply.
    Reset,
    /// The stream ends normally, but without a stop reason.
    CutStream,
    /// An error event in the middle of the stream.
    ErrorInStream,
    /// The arguments of each call are cut in half.
    MalformedArguments,
    /// Each call names a tool that does not exist.
    UnknownTool,
    /// Neither text nor call.
    Empty,
    /// The reply is cut at the output limit: in the middle of its last call or of its text.
    OutputLimit,
    /// The text is sent as a refusal, and no call is made.
    Refusal,
    /// No byte until the client gives up.
    SlowFirstByte,
    /// The reply stalls, and the connection stays open.
    Stall,
    /// The server does not stream: the reply is one JSON object.
    Unstreamed,
    /// The reply has no token usage: some servers do not count tokens.
    Uncounted,
}

/// The number of the attempt at one call, from 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttemptNumber(pub u32);

/// Why a script could not be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ScriptError {
    /// Not UTF-8, or too large.
    #[error("the script must be UTF-8 text of at most {SCRIPT_BYTES_MAX} bytes")]
    NotText,
    /// Does not have the form of a script.
    #[error(
        "the script is not valid ({0}); it is a list `turns` of {{text, calls, when, or, delay_ms, fault}}, or lists of them in `talks`"
    )]
    InvalidFormat(String),
    /// The script has no turns.
    #[error("the script has no turns; add at least one")]
    NoTurns,
}

/// A script's reply to one request.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedReply {
    /// The fault of this attempt.
    pub fault: Option<ScriptedFault>,
    /// Delay before the reply.
    pub delay: Duration,
    /// The reply, as modified by `MalformedArguments`, `UnknownTool` or `Empty`.
    pub reply: ModelReply,
}

/// A parsed script.
#[derive(Debug, Clone, PartialEq)]
pub struct ScriptedModel {
    script: ModelScript,
}

impl ScriptedModel {
    /// Parses a script: JSON if the first character is `{`, otherwise TOML.
    ///
    /// # Errors
    /// [`ScriptError`], with the position of the mistake.
    pub fn parse(bytes: &[u8]) -> Result<Self, ScriptError> {
        let text = std::str::from_utf8(bytes).ok().filter(|text| text.len() <= SCRIPT_BYTES_MAX);
        let text = text.ok_or(ScriptError::NotText)?;
        let form = |error: String| {
            ScriptError::InvalidFormat(error.split_whitespace().collect::<Vec<_>>().join(" "))
        };
        let script: ModelScript = if text.trim_start().starts_with('{') {
            serde_json::from_str(text).map_err(|error| form(error.to_string()))?
        } else {
            toml::from_str(text).map_err(|error| form(error.to_string()))?
        };
        Self::new(script)
    }

    /// Creates a model from a script built in code.
    ///
    /// # Errors
    /// [`ScriptError::NoTurns`] if the script has no turns.
    pub fn new(script: ModelScript) -> Result<Self, ScriptError> {
        if script.turns.is_empty() && script.talks.is_empty() {
            Err(ScriptError::NoTurns)
        } else {
            Ok(Self { script })
        }
    }

    /// Returns the script's reply to a rendered body. Pure.
    ///
    /// # Errors
    /// [`ModelError::InvalidRequest`] if the body is not a conversation, the script has ended, or no
    /// alternative's condition holds.
    pub fn scripted_reply(&self, body: &[u8], attempt: AttemptNumber) -> Result<ScriptedReply, ModelError> {
        let transcript = RequestTranscript::from_body(body).ok_or_else(|| ModelError::InvalidRequest {
            message: "the body is no conversation".to_owned(),
        })?;
        let turn = transcript.reply_count;
        let talk = self.script.talks.iter().find(|talk| talk.matches(&transcript));
        let turns = talk.map_or(&self.script.turns, |talk| &talk.turns);
        if turns.is_empty() {
            let message = format!(
                "the script has no turns for the role {} of a conversation that begins: {}",
                transcript.role.as_deref().unwrap_or("(none)"),
                transcript.user_texts.first().map_or("", String::as_str)
            );
            return Err(ModelError::InvalidRequest { message });
        }
        if transcript.is_summary_request {
            let step = self.script.summary.clone();
            let text = Some("The oldest part of a scripted run.".to_owned());
            let step = step.unwrap_or_else(|| Box::new(ScriptedTurn { text, ..ScriptedTurn::default() }));
            return Ok(ScriptedReply::from_turn(&step, turn, attempt, body));
        }
        let index = match self.script.after_end {
            AfterEnd::Refuse => turn,
            AfterEnd::RepeatLast => turn.min(turns.len() - 1),
            AfterEnd::Cycle => turn % turns.len(),
        };
        let step = turns.get(index).ok_or_else(|| ModelError::InvalidRequest {
            message: format!("the script has {} turns and was asked for turn {}", turns.len(), turn + 1),
        })?;
        let step = step.select_alternative(&transcript).ok_or_else(|| ModelError::InvalidRequest {
            message: format!("no alternative of the script's turn {} holds", turn + 1),
        })?;
        Ok(ScriptedReply::from_turn(step, turn, attempt, body))
    }

    /// Like [`ScriptedModel::scripted_reply`], with faults as the errors that a client would report.
    ///
    /// # Errors
    /// The fault of the attempt, if the script has one.
    pub fn reply(&self, body: &[u8], attempt: AttemptNumber) -> Result<ModelReply, ModelError> {
        let line = self.scripted_reply(body, attempt)?;
        match line.fault.and_then(fault_error) {
            Some(error) => Err(error),
            None => Ok(line.reply),
        }
    }

    /// Like [`ScriptedModel::reply`], with the scripted delay and deltas.
    pub(super) async fn stream_reply(
        &self,
        body: &[u8],
        attempt: AttemptNumber,
        on_delta: OnDelta<'_>,
    ) -> Result<ModelReply, ModelError> {
        let line = self.scripted_reply(body, attempt)?;
        if !line.delay.is_zero() {
            tokio::time::sleep(line.delay).await;
        }
        if let Some(error) = line.fault.and_then(fault_error) {
            return Err(error);
        }
        for part in &line.reply.parts {
            match part {
                ReplyPart::Text(text) => on_delta(ReplyDelta::Text(text)),
                ReplyPart::ToolUse { name, .. } => on_delta(ReplyDelta::ToolUse(name)),
                ReplyPart::Thinking { data, .. } => {
                    on_delta(ReplyDelta::Thinking(data["thinking"].as_str().unwrap_or_default()));
                }
            }
        }
        let ms = u64::try_from(line.delay.as_millis()).unwrap_or(u64::MAX);
        Ok(ModelReply { first_byte_ms: ms, total_ms: ms, ..line.reply })
    }
}

impl ScriptedReply {
    fn from_turn(step: &ScriptedTurn, turn: usize, attempt: AttemptNumber, body: &[u8]) -> Self {
        let fault = step.fault.filter(|fault| attempt.0 <= fault.times);
        let answer = step.build_reply(turn + 1, fault.map(|fault| fault.kind), body.len());
        Self { fault, delay: Duration::from_millis(step.delay_ms.min(DELAY_MS_MAX)), reply: answer }
    }
}

/// Returns the error that a client reports for a fault; `None` for faults that only change the reply.
fn fault_error(fault: ScriptedFault) -> Option<ModelError> {
    let message = || "as the script says".to_owned();
    let retry_after_ms = fault.retry_after_ms;
    match fault.kind {
        FaultKind::RateLimited => Some(ModelError::RateLimited { retry_after_ms }),
        FaultKind::Overloaded | FaultKind::ErrorInStream => Some(ModelError::Overloaded { retry_after_ms }),
        FaultKind::ServerError => Some(ModelError::Server { status: 500, retry_after_ms }),
        FaultKind::SpendLimit => Some(ModelError::SpendLimit { message: message() }),
        FaultKind::Unauthorized => Some(ModelError::Unauthorized { message: message() }),
        FaultKind::Forbidden => Some(ModelError::Forbidden { message: message() }),
        FaultKind::ContextTooLong => Some(ModelError::ContextTooLong { message: message() }),
        FaultKind::Reset | FaultKind::CutStream => Some(ModelError::CutStream),
        FaultKind::SlowFirstByte => Some(ModelError::Timeout { which: TimeoutKind::FirstByte, after_ms: 0 }),
        FaultKind::Stall => Some(ModelError::Timeout { which: TimeoutKind::Idle, after_ms: 0 }),
        FaultKind::MalformedArguments
        | FaultKind::UnknownTool
        | FaultKind::Empty
        | FaultKind::OutputLimit
        | FaultKind::Unstreamed
        | FaultKind::Uncounted
        | FaultKind::Refusal => None,
    }
}

impl ScriptedTurn {
    fn select_alternative(&self, transcript: &RequestTranscript) -> Option<&Self> {
        if self.when.as_ref().is_none_or(|when| when.matches(transcript)) {
            return Some(self);
        }
        self.or.iter().find_map(|step| step.select_alternative(transcript))
    }

    fn build_reply(&self, turn: usize, fault: Option<FaultKind>, body_bytes: usize) -> ModelReply {
        let fill = |text: &str| text.replace("{{turn}}", &turn.to_string());
        let mut parts = Vec::with_capacity(self.calls.len() + 2);
        if fault != Some(FaultKind::Empty) {
            parts.extend(self.thinking.as_deref().map(|text| thinking_part(&fill(text))));
            let text = self.text.as_deref().map(fill).filter(|text| !text.is_empty());
            parts.extend(text.map(ReplyPart::Text));
            let calls = self.calls.iter().enumerate();
            parts.extend(calls.map(|(index, call)| call.to_reply_part(turn, index, fault, fill)));
        }
        if fault == Some(FaultKind::OutputLimit) {
            match parts.last_mut() {
                Some(ReplyPart::Text(text) | ReplyPart::ToolUse { args_json: text, .. }) => {
                    truncate_to_half(text)
                }
                Some(ReplyPart::Thinking { .. }) | None => {}
            }
        }
        let calls = parts.iter().any(|part| matches!(part, ReplyPart::ToolUse { .. }));
        let said: usize = parts.iter().map(reply_part_bytes).sum();
        ModelReply {
            parts,
            stop_reason: match fault {
                Some(FaultKind::OutputLimit) => StopReason::MaxTokens,
                Some(FaultKind::Refusal) => StopReason::Refusal,
                _ if calls => StopReason::ToolUse,
                _ => StopReason::EndTurn,
            },
            usage: TokenUsage {
                input_tokens: body_bytes as u64 / BYTES_PER_TOKEN,
                output_tokens: said as u64 / BYTES_PER_TOKEN,
                ..TokenUsage::default()
            },
            provider_request_id: None,
            first_byte_ms: 0,
            total_ms: 0,
        }
    }
}

/// A common estimate; scripts have no tokenizer.
const BYTES_PER_TOKEN: u64 = 4;

fn reply_part_bytes(part: &ReplyPart) -> usize {
    match part {
        ReplyPart::Text(text) => text.len(),
        ReplyPart::ToolUse { name, args_json, .. } => name.len() + args_json.len(),
        ReplyPart::Thinking { data, .. } => data["thinking"].as_str().map_or(0, str::len),
    }
}

/// Reasoning in Anthropic's format, which bodies for scripts use.
fn thinking_part(text: &str) -> ReplyPart {
    let data = json!({ "type": "thinking", "thinking": text, "signature": thinking_signature(text) });
    ReplyPart::Thinking { provider: "scripted".to_owned(), data }
}

/// The signature of scripted reasoning, by which the scripted server checks that it was sent back unchanged.
pub fn thinking_signature(text: &str) -> String {
    DecisionHash::hash_bytes(text.as_bytes()).to_string()
}

impl ScriptedCall {
    fn to_reply_part(
        &self,
        turn: usize,
        index: usize,
        fault: Option<FaultKind>,
        fill: impl Fn(&str) -> String,
    ) -> ReplyPart {
        let args = match &self.args {
            Value::Null => "{}".to_owned(),
            args => args.to_string(),
        };
        let mut args_json = fill(self.args_text.as_deref().unwrap_or(&args));
        let mut name = self.name.clone();
        if fault == Some(FaultKind::MalformedArguments) {
            truncate_to_half(&mut args_json);
        }
        if fault == Some(FaultKind::UnknownTool) {
            name = format!("no_such_{name}");
        }
        ReplyPart::ToolUse { provider_id: format!("call_{turn}_{index}"), name, args_json }
    }
}

/// Truncates to the first half, but at least one byte.
fn truncate_to_half(text: &mut String) {
    let half = (text.len() / 2..).find(|at| text.is_char_boundary(*at));
    text.truncate(half.unwrap_or(0).max(1));
}

impl ScriptCondition {
    fn matches(&self, transcript: &RequestTranscript) -> bool {
        let results = |text: &String| transcript.last_results.iter().any(|result| result.contains(text));
        self.last_result_contains.as_ref().is_none_or(results)
            && !self.last_result_lacks.as_ref().is_some_and(results)
            && self.last_text_contains.as_ref().is_none_or(|text| transcript.last_text.contains(text))
            && self
                .any_contains
                .as_ref()
                .is_none_or(|text| transcript.user_texts.iter().any(|said| said.contains(text)))
    }
}

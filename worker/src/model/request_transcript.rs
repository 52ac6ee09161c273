//! Reads a request back from the body of any protocol, for scripts. Used only by the scripted model and the
//! scripted model server. Pure.

use serde_json::Value;

/// Prefix of the runtime's note on how many replies a compaction removed. A model reads it as a hint; a
/// script uses the number.
pub const OMITTED_REPLIES_MARK: &str = "Answers of yours that no longer stand here: ";
/// Prefix of the text that requests a summary of the oldest messages.
pub const SUMMARY_REQUEST_MARK: &str = "Above is the oldest part of the work on the task";

/// Prefix of the line in a system prompt that names its role.
pub const ROLE_MARK: &str = "# Your role: ";

/// A conversation as a script sees it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestTranscript {
    /// Model messages so far, including those removed by a compaction: the number of the requested turn, from
    /// 0.
    pub reply_count: usize,
    /// The role named in the system prompt.
    pub role: Option<String>,
    /// Whether the request is for a summary instead of a turn of the run.
    pub is_summary_request: bool,
    /// Tool results since the model's last message.
    pub last_results: Vec<String>,
    /// Other text on the user's side since the model's last message.
    pub last_text: String,
    /// All texts and results on the user's side.
    pub user_texts: Vec<String>,
}

impl RequestTranscript {
    /// Reads a body of Anthropic Messages, OpenAI Chat Completions or Responses; `None` for anything else.
    pub fn from_body(body: &[u8]) -> Option<Self> {
        let body: Value = serde_json::from_slice(body).ok()?;
        let mut transcript = Self::default();
        transcript.read_system_prompt(&content_text(&body["system"]));
        if let Value::Array(items) = &body["input"] {
            transcript.read_system_prompt(&content_text(&body["instructions"]));
            transcript.read_items(items);
            return Some(transcript);
        }
        for message in body["messages"].as_array()? {
            match message["role"].as_str()? {
                "assistant" => transcript.start_reply(),
                "tool" => transcript.add_result(content_text(&message["content"])),
                "user" => transcript.add_user_content(&message["content"]),
                "system" | "developer" => transcript.read_system_prompt(&content_text(&message["content"])),
                _ => {}
            }
        }
        Some(transcript)
    }

    /// Reads the items of Responses: model items between two items of the user's side form one message.
    fn read_items(&mut self, items: &[Value]) {
        let mut models_turn = false;
        for item in items {
            let of_model = item["type"] == "reasoning"
                || item["type"] == "function_call"
                || (item["type"] == "message" && item["role"] == "assistant");
            if of_model && !models_turn {
                self.start_reply();
            }
            models_turn = of_model;
            if item["type"] == "function_call_output" {
                self.add_result(content_text(&item["output"]));
            } else if item["role"] == "user" {
                self.add_user_content(&item["content"]);
            }
        }
    }

    fn read_system_prompt(&mut self, text: &str) {
        let role = text.lines().find_map(|line| line.strip_prefix(ROLE_MARK));
        self.role = role.map(str::to_owned).or_else(|| self.role.take());
    }

    fn start_reply(&mut self) {
        self.reply_count += 1;
        self.last_results.clear();
        self.last_text.clear();
    }

    fn add_user_content(&mut self, content: &Value) {
        let Value::Array(blocks) = content else {
            return self.add_text(content_text(content));
        };
        for block in blocks {
            if block["type"] == "tool_result" {
                self.add_result(content_text(&block["content"]));
            } else {
                self.add_text(content_text(&block["text"]));
            }
        }
    }

    fn add_result(&mut self, text: String) {
        self.last_results.push(text.clone());
        self.user_texts.push(text);
    }

    fn add_text(&mut self, text: String) {
        self.is_summary_request |= text.lines().any(|line| line.starts_with(SUMMARY_REQUEST_MARK));
        if self.reply_count == 0
            && let Some(count) = text.lines().find_map(|line| line.strip_prefix(OMITTED_REPLIES_MARK))
        {
            self.reply_count = count.trim_end_matches('.').parse().unwrap_or_default();
        }
        self.last_text.push_str(&text);
        self.last_text.push('\n');
        self.user_texts.push(text);
    }
}

/// Content is a string or a list of text blocks.
fn content_text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(blocks) => {
            blocks.iter().filter_map(|block| block["text"].as_str()).collect::<Vec<_>>().join("\n")
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_) => String::new(),
    }
}

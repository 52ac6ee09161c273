//! Flows, and the order in which available tasks are leased: the flow that a task belongs to, and its rank
//! within it.
//!
//! A flow contains all tasks that a worker can either all take or not take: the same queue, batch and
//! selector, setup commands, models and engine. A worker therefore finds the next matching task of each flow
//! without skipping others.

use std::{fmt, str::FromStr};

use super::{lease_conditions::LabelSet, task_record::TaskRecord, task_spec::TaskSpec};
use crate::{
    ids::{BatchId, BlobHash, ParseIdError, QueueName},
    message::ModelRef,
};

/// Aging: a task that has waited this long goes before a new task whose priority is higher by one. This
/// bounds the time in which a task can be overtaken, whatever its priority: 2,000 points, the maximum
/// difference, are 33 hours.
pub const AGING_MS: u64 = 60_000;

/// Maximum total size of a flow's models in its text form, in bytes, because index keys are limited
/// (PostgreSQL: 2,704 bytes). Further models are left out, and a worker's fault with one of them excludes
/// single tasks instead of the flow.
const MODELS_BYTES_MAX: usize = 1000;

/// A flow. See the module documentation.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Flow {
    /// The queue.
    pub queue: QueueName,
    /// The batch; none for all tasks of the queue without one.
    pub batch: Option<BatchId>,
    /// Labels required of the worker.
    pub selector: LabelSet,
    /// Shortened hash of the setup commands; empty if there are none.
    pub setup: String,
    /// Models that its tasks may call, the main one first; scripted ones are left out, because they require
    /// nothing of a worker.
    pub models: Vec<ModelRef>,
    /// The engine.
    pub engine: String,
}

impl Flow {
    /// Returns the flow of a task.
    pub fn from_spec(spec: &TaskSpec) -> Self {
        Self {
            queue: spec.queue.clone(),
            batch: spec.batch,
            selector: spec.conditions.selector.clone(),
            setup: Self::setup_hash(&spec.setup),
            models: flow_models(spec),
            engine: spec.engine.clone(),
        }
    }

    /// Returns 16 digits that identify the setup commands; empty if there are none.
    pub fn setup_hash(setup: &[String]) -> String {
        if setup.is_empty() {
            return String::new();
        }
        let mut hash = BlobHash::hash_bytes(setup.join("\0").as_bytes()).to_string();
        hash.truncate(16);
        hash
    }
}

fn flow_models(spec: &TaskSpec) -> Vec<ModelRef> {
    let others = [&spec.explore_model, &spec.fallback_model].into_iter().flatten();
    let roles = spec.roles.iter().filter_map(|role| role.model.as_ref());
    let (mut models, mut bytes) = (Vec::new(), 0);
    for model in std::iter::once(&spec.model).chain(others).chain(roles) {
        if model.provider == "scripted" || models.contains(model) {
            continue;
        }
        // Measured as `Display` writes it: escaping makes up to six bytes of one, and the provider's name
        // counts as well.
        let written = serde_json::to_string(model).map_or(usize::MAX, |json| json.len());
        bytes = written.saturating_add(1).saturating_add(bytes);
        if bytes > MODELS_BYTES_MAX {
            break;
        }
        models.push(model.clone());
    }
    models
}

/// The text form read by [`FromStr`] and used in an index. Only the last part can contain a tab.
impl fmt::Display for Flow {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\t", self.queue)?;
        if let Some(batch) = self.batch {
            write!(f, "{}", batch.0.simple())?;
        }
        write!(f, "\t{}\t{}\t", self.selector, self.setup)?;
        if !self.models.is_empty() {
            // JSON escapes a tab as two other characters.
            f.write_str(&serde_json::to_string(&self.models).map_err(|_| fmt::Error)?)?;
        }
        write!(f, "\t{}", self.engine)
    }
}

impl FromStr for Flow {
    type Err = ParseIdError;
    fn from_str(text: &str) -> Result<Self, ParseIdError> {
        let bad = || ParseIdError::new("flow (queue, batch, selector, setup, models, engine)", text);
        let mut parts = text.splitn(6, '\t');
        let mut next = || parts.next().ok_or_else(bad);
        let (queue, batch, selector) = (next()?, next()?, next()?);
        let (setup, models, engine) = (next()?.to_owned(), next()?, next()?.to_owned());
        let batch = match batch {
            "" => None,
            digits => Some(BatchId(uuid::Uuid::try_parse(digits).map_err(|_| bad())?)),
        };
        let models = match models {
            "" => Vec::new(),
            json => serde_json::from_str(json).map_err(|_| bad())?,
        };
        Ok(Self { queue: queue.parse()?, batch, selector: selector.parse()?, setup, models, engine })
    }
}

impl TaskRecord {
    /// Returns the rank within the flow, lowest first: the time since which the task is available, in
    /// microseconds, moved back by [`AGING_MS`] for each point of priority.
    pub fn lease_rank(&self) -> i64 {
        let aging_us = AGING_MS as i64 * 1000;
        self.available_at.0.saturating_sub(i64::from(self.spec.priority).saturating_mul(aging_us))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ids::QUEUE_NAME_BYTES_MAX, task::ENGINE_BYTES_MAX};

    fn model(name: &str, base_url: Option<&str>) -> ModelRef {
        ModelRef { provider: "openai".into(), name: name.into(), base_url: base_url.map(Into::into) }
    }

    fn spec(change: impl FnOnce(&mut serde_json::Value)) -> TaskSpec {
        let hash = "0".repeat(64);
        let mut spec = serde_json::json!({
            "title": "t",
            "text": "t",
            "base": { "manifest": { "hash": hash, "bytes": 0 }, "tree": hash },
            "model": { "provider": "scripted", "name": "x" },
        });
        change(&mut spec);
        serde_json::from_value(spec).expect("a specification")
    }

    #[test]
    fn flows_round_trip_as_text() {
        let batch = Some(BatchId(uuid::Uuid::from_u128(7)));
        let models = vec![model("a\tb", None), model("\"c\",", Some("http://127.0.0.1:1/v1"))];
        for (batch, selector, setup, models, engine) in [
            (None, "", "", vec![], "react"),
            (batch, "gpu=a100", "0123456789abcdef", models.clone(), "plan"),
            (None, "a=b,c=d", "", models, "odd\tname"),
        ] {
            let (selector, setup) = (selector.parse().expect("labels"), setup.to_owned());
            let (queue, engine) = (QueueName::default(), engine.to_owned());
            let flow = Flow { queue, batch, selector, setup, models, engine };
            assert_eq!(flow.to_string().parse(), Ok(flow));
        }
        for bad in [
            "",
            "default",
            "default\t\t\t\t",
            "default\tx\t\t\t\treact",
            "a b\t\t\t\t\treact",
            "default\t\t\t\t[\treact",
        ] {
            assert!(bad.parse::<Flow>().is_err(), "{bad}");
        }
    }

    #[test]
    fn longest_flow_fits_an_index() {
        // PostgreSQL's limit for a key, minus the row's rank and id.
        const KEY_BYTES_MAX: usize = 2704 - 100;
        let label = |n: usize| (format!("{n:063}"), "v".repeat(63));
        let mut longest = spec(|spec| {
            spec["queue"] = "q".repeat(QUEUE_NAME_BYTES_MAX).into();
            spec["engine"] = "\u{1}".repeat(ENGINE_BYTES_MAX).into();
            spec["setup"] = serde_json::json!(["make"]);
            let name = |nth: u8| format!("\u{1}{nth}").repeat(60);
            let model = |nth| serde_json::json!({ "provider": "openai-responses", "name": name(nth) });
            spec["model"] = model(1);
            spec["explore_model"] = model(2);
            spec["fallback_model"] = model(3);
        });
        longest.batch = Some(BatchId(uuid::Uuid::from_u128(u128::MAX)));
        let fits = |spec: &TaskSpec| spec.conditions.check().is_ok();
        for n in 0..32 {
            let before = longest.conditions.selector.clone();
            longest.conditions.selector = LabelSet::new((0..=n).map(label).collect()).expect("labels");
            if !fits(&longest) {
                assert!(before.to_string().len() > 1000 - 2 * 64, "refused only where it is long");
                longest.conditions.selector = before;
                break;
            }
        }
        assert!(fits(&longest));
        let text = Flow::from_spec(&longest).to_string();
        assert!(text.len() > 1900 && text.len() <= KEY_BYTES_MAX, "{} bytes", text.len());
    }

    #[test]
    fn tasks_share_a_flow_when_they_need_the_same_of_a_worker() {
        let plain = Flow::from_spec(&spec(|_| {}));
        assert!(plain.models.is_empty() && plain.setup.is_empty(), "{plain}");
        let set_up = Flow::from_spec(&spec(|spec| spec["setup"] = serde_json::json!(["make"])));
        let otherwise = Flow::from_spec(&spec(|spec| spec["setup"] = serde_json::json!(["make", "true"])));
        assert!(set_up.setup.len() == 16 && otherwise.setup.len() == 16 && set_up != otherwise);
        let several = Flow::from_spec(&spec(|spec| {
            spec["model"] = serde_json::json!({ "provider": "openai", "name": "a" });
            spec["fallback_model"] = serde_json::json!({ "provider": "openai", "name": "b" });
            spec["explore_model"] = spec["model"].clone();
        }));
        assert_eq!(several.models, [model("a", None), model("b", None)]);
        let escaped = Flow::from_spec(&spec(|spec| {
            spec["model"] = serde_json::json!({ "provider": "openai", "name": "a" });
            let name = "\u{1}".repeat(MODELS_BYTES_MAX / 4);
            spec["fallback_model"] = serde_json::json!({ "provider": "openai", "name": name });
        }));
        assert_eq!(escaped.models, [model("a", None)], "an escape counts as it is written");
        let endless = Flow::from_spec(&spec(|spec| {
            spec["model"] = serde_json::json!({ "provider": "openai", "name": "a" });
            let name = "b".repeat(MODELS_BYTES_MAX);
            spec["fallback_model"] = serde_json::json!({ "provider": "openai", "name": name });
        }));
        assert_eq!(endless.models, [model("a", None)]);
    }
}

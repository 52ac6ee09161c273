//! Whether this process has the keys that a task's models need.

use docket_worker::model::ModelProvider;

use super::NamedModel;
use crate::output::error::{CliError, CliResult, ExitKind};

/// Checks the keys of models that a worker of this process is to ask. A model at an address that a person named may
/// want no key: only a malformed one is refused there.
///
/// # Errors
/// The model's field, the variable, and what helps.
pub(crate) fn check_keys<'a>(
    models: impl Iterator<Item = NamedModel<'a>>,
    variable: impl Fn(&str) -> Option<String>,
) -> CliResult<()> {
    for (field, model) in models {
        let Some(name) = ModelProvider::for_model(model).ok().and_then(ModelProvider::key_variable) else {
            continue;
        };
        let value = variable(name).filter(|value| !value.trim().is_empty());
        let message = match value {
            None if model.base_url.is_none() => format!(
                "{field} {model} needs a key, and {name} is not set; set it, or give --base-url for a model server of your own"
            ),
            Some(value) if is_malformed_key(&value) => format!(
                "{field} {model}: {name} holds characters that no key has, such as blanks or line breaks; set it to the key alone"
            ),
            None | Some(_) => continue,
        };
        return Err(CliError::new(ExitKind::Usage, message));
    }
    Ok(())
}

/// Checks the keys that a worker is started with: one that can never be sent would block every task of its provider.
///
/// # Errors
/// The variable, and what helps.
pub(crate) fn check_worker_keys<'a>(
    names: impl Iterator<Item = &'a str>,
    variable: impl Fn(&str) -> Option<String>,
) -> CliResult<()> {
    for name in names {
        if variable(name).is_some_and(|value| is_malformed_key(&value)) {
            let message = format!(
                "{name} holds characters that no key has, such as blanks or line breaks; set it to the key alone"
            );
            return Err(CliError::new(ExitKind::Usage, message));
        }
    }
    Ok(())
}

/// Whether a key can never be sent: a header holds visible ASCII characters, and no key has a blank within.
fn is_malformed_key(value: &str) -> bool {
    !value.trim().bytes().all(|byte| byte.is_ascii_graphic())
}

#[cfg(test)]
mod tests {
    use docket_schema::message::ModelRef;

    use super::*;

    fn model(text: &str, base_url: Option<&str>) -> ModelRef {
        ModelRef { base_url: base_url.map(str::to_owned), ..text.parse().expect("a model") }
    }

    #[test]
    fn missing_worker_key_is_allowed_and_malformed_key_is_rejected() {
        for (value, good) in [(None, true), (Some(" "), true), (Some("sk-1\n"), true), (Some("sk 1"), false)]
        {
            let checked = check_worker_keys(["OPENAI_API_KEY"].into_iter(), |_| value.map(str::to_owned));
            assert_eq!(checked.is_ok(), good, "{value:?}");
        }
    }

    #[test]
    fn missing_or_malformed_key_error_names_the_variable() {
        let local = Some("http://localhost:1/v1");
        for (model, key, wrong) in [
            (model("anthropic:m", None), None, Some("ANTHROPIC_API_KEY is not set")),
            (model("anthropic:m", None), Some(" "), Some("ANTHROPIC_API_KEY is not set")),
            (model("anthropic:m", None), Some("sk-ant-1\n"), None),
            (model("openai-responses:m", None), None, Some("OPENAI_API_KEY is not set")),
            (model("openai:m", None), Some("sk two words"), Some("OPENAI_API_KEY holds characters")),
            (model("openai:m", None), Some("clé"), Some("OPENAI_API_KEY holds characters")),
            (model("openai:m", local), None, None),
            (model("openai:m", local), Some("a b"), Some("OPENAI_API_KEY holds characters")),
            (model("scripted:m", None), None, None),
        ] {
            let checked = check_keys([("--model", &model)].into_iter(), |_| key.map(str::to_owned));
            let text = checked.err().map(|failure| failure.error.to_string());
            match wrong {
                None => assert_eq!(text, None, "{model} {key:?}"),
                Some(part) => assert!(
                    text.as_deref().is_some_and(|text| text.contains(part) && text.starts_with("--model ")),
                    "{model} {key:?}: {text:?}"
                ),
            }
        }
    }
}

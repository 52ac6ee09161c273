//! Checks that this process has the API keys that a task's models need.

use docket_worker::model::ModelProvider;

use super::NamedModel;
use crate::output::error::{CliError, CliResult, ExitKind};

/// Checks the keys of the models that a worker of this process will call. A model with an explicit base URL may
/// not need a key; only a malformed one is rejected there.
///
/// # Errors
/// Fails with a usage error that names the model's field, the variable and the remedy.
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
                "{field} {model} needs an API key, and {name} is not set; set it, or give --base-url for a model server of your own"
            ),
            Some(value) if is_malformed_key(&value) => format!(
                "{field} {model}: {name} contains characters that are invalid in a key, such as blanks or line breaks; set it to the key alone"
            ),
            None | Some(_) => continue,
        };
        return Err(CliError::new(ExitKind::Usage, message));
    }
    Ok(())
}

/// Checks the keys that a worker is started with: a malformed key would block every task of its provider.
///
/// # Errors
/// Fails with a usage error that names the variable and the remedy.
pub(crate) fn check_worker_keys<'a>(
    names: impl Iterator<Item = &'a str>,
    variable: impl Fn(&str) -> Option<String>,
) -> CliResult<()> {
    for name in names {
        if variable(name).is_some_and(|value| is_malformed_key(&value)) {
            let message = format!(
                "{name} contains characters that are invalid in a key, such as blanks or line breaks; set it to the key alone"
            );
            return Err(CliError::new(ExitKind::Usage, message));
        }
    }
    Ok(())
}

/// Whether a key can never be sent: a header value consists of visible ASCII characters, and a key contains no
/// blanks.
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
            (model("openai:m", None), Some("sk two words"), Some("OPENAI_API_KEY contains characters")),
            (model("openai:m", None), Some("clé"), Some("OPENAI_API_KEY contains characters")),
            (model("openai:m", local), None, None),
            (model("openai:m", local), Some("a b"), Some("OPENAI_API_KEY contains characters")),
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

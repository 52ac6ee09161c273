//! The models of a run, each with its client and key: who is asked is the engine's word, how is here.

use std::sync::Arc;

use docket_schema::{
    message::ModelRef,
    run::Models,
    wire::{FaultKind, FaultScope},
};

use crate::run::{
    errors::{causes, start_error::StartError},
    log::material::Material,
};
use crate::{
    bootstrap::Bootstrap,
    model::{
        Attempt, ClientError, ModelAnswer, ModelClient, ModelError, OnDelta, Provider, Rendered,
        ScriptedModel, Secret, Timeouts,
    },
};

/// See the module.
pub(in crate::run) struct Voices(Vec<Voice>);

struct Voice {
    model: ModelRef,
    client: ModelClient,
    key: Option<Secret>,
}

impl Voices {
    /// Those that a run has pinned.
    ///
    /// # Errors
    /// [`StartError`]: one of them cannot be spoken to.
    pub(in crate::run) async fn of(
        bootstrap: &Bootstrap,
        models: &Models,
        material: &Material,
    ) -> Result<Self, StartError> {
        let mut voices: Vec<Voice> = Vec::new();
        for (model, _) in models.all() {
            if voices.iter().all(|voice| voice.model != *model) {
                voices.push(Voice::of(bootstrap, model, material).await?);
            }
        }
        Ok(Self(voices))
    }

    /// Asks the model that a request is for.
    ///
    /// # Errors
    /// As [`ModelClient::call`].
    pub(in crate::run) async fn call(
        &self,
        request: &Rendered,
        attempt: Attempt,
        on_delta: OnDelta<'_>,
    ) -> Result<ModelAnswer, ModelError> {
        let voice = self.0.iter().find(|voice| voice.model == request.model);
        let voice = voice.ok_or_else(|| ModelError::InvalidRequest {
            message: format!("the run has not pinned a model {}", request.model),
        })?;
        voice.client.call(request, attempt, voice.key.as_ref(), on_delta).await
    }
}

impl Voice {
    async fn of(bootstrap: &Bootstrap, model: &ModelRef, material: &Material) -> Result<Self, StartError> {
        let environment = |error: &(dyn std::error::Error + 'static)| StartError::environment(error);
        let provider = Provider::of(model).map_err(|error| StartError::Configuration(error.to_string()))?;
        if provider == Provider::Scripted {
            let Some(script) = &bootstrap.lease.spec.script else {
                return Err(StartError::Configuration(ClientError::NoScript(model.name.clone()).to_string()));
            };
            let bytes = material.fetch(script).await.map_err(|error| environment(&error))?;
            let script = ScriptedModel::parse(&bytes).map_err(|error| environment(&error))?;
            let client = ModelClient::scripted(Arc::new(script));
            return Ok(Self { model: model.clone(), client, key: None });
        }
        let listed = &bootstrap.settings.base_urls;
        let client = ModelClient::new(model, listed, Timeouts::default()).map_err(|error| match &error {
            ClientError::Unlisted(_) => {
                StartError::worker(FaultKind::Model, FaultScope::of_provider(model), &error.to_string())
            }
            ClientError::Tls(_) => {
                StartError::worker(FaultKind::Host, FaultScope::of_provider(model), &causes::told(&error))
            }
            ClientError::Provider(_) | ClientError::BaseUrl(_) | ClientError::NoScript(_) => {
                environment(&error)
            }
        })?;
        let key = bootstrap.keys.get(provider.key_name()).and_then(|key| Secret::new(key));
        Ok(Self { model: model.clone(), client, key })
    }
}

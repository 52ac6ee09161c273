//! HTTP clients and API keys for the models pinned by a run. The engine picks the model; this module sends the
//! request.

use std::sync::Arc;

use docket_schema::{
    api::{FaultKind, FaultScope},
    message::ModelRef,
    run::RunModels,
};

use crate::run::{
    errors::{error_chain, start_error::StartError},
    log::blob_cache::BlobCache,
};
use crate::{
    bootstrap::RunBootstrap,
    model::{
        AttemptNumber, ModelClient, ModelClientError, ModelError, ModelProvider, ModelReply, ModelTimeouts,
        OnDelta, RenderedRequest, ScriptedModel, Secret,
    },
};

/// The models of a run, each with its client and key.
pub(in crate::run) struct ModelClients(Vec<ModelClientEntry>);

struct ModelClientEntry {
    model: ModelRef,
    client: ModelClient,
    key: Option<Secret>,
}

impl ModelClients {
    /// Creates clients for the models that a run has pinned.
    ///
    /// # Errors
    /// [`StartError`]: the client of a model cannot be created.
    pub(in crate::run) async fn for_models(
        bootstrap: &RunBootstrap,
        models: &RunModels,
        material: &BlobCache,
    ) -> Result<Self, StartError> {
        let mut voices: Vec<ModelClientEntry> = Vec::new();
        for (model, _) in models.all() {
            if voices.iter().all(|voice| voice.model != *model) {
                voices.push(ModelClientEntry::for_model(bootstrap, model, material).await?);
            }
        }
        Ok(Self(voices))
    }

    /// Sends a request to the model it is for.
    ///
    /// # Errors
    /// The errors of [`ModelClient::call`].
    pub(in crate::run) async fn call(
        &self,
        request: &RenderedRequest,
        attempt: AttemptNumber,
        on_delta: OnDelta<'_>,
    ) -> Result<ModelReply, ModelError> {
        let voice = self.0.iter().find(|voice| voice.model == request.model);
        let voice = voice.ok_or_else(|| ModelError::InvalidRequest {
            message: format!("the run has not pinned a model {}", request.model),
        })?;
        voice.client.call(request, attempt, voice.key.as_ref(), on_delta).await
    }
}

impl ModelClientEntry {
    async fn for_model(
        bootstrap: &RunBootstrap,
        model: &ModelRef,
        material: &BlobCache,
    ) -> Result<Self, StartError> {
        let environment =
            |error: &(dyn std::error::Error + 'static)| StartError::from_environment_error(error);
        let provider =
            ModelProvider::for_model(model).map_err(|error| StartError::Configuration(error.to_string()))?;
        if provider == ModelProvider::Scripted {
            let Some(script) = &bootstrap.lease.spec.script else {
                return Err(StartError::Configuration(
                    ModelClientError::NoScript(model.name.clone()).to_string(),
                ));
            };
            let bytes = material.fetch_blob(script).await.map_err(|error| environment(&error))?;
            let script = ScriptedModel::parse(&bytes).map_err(|error| environment(&error))?;
            let client = ModelClient::scripted(Arc::new(script));
            return Ok(Self { model: model.clone(), client, key: None });
        }
        let listed = &bootstrap.settings.base_urls;
        let client =
            ModelClient::new(model, listed, ModelTimeouts::default()).map_err(|error| match &error {
                ModelClientError::ServerNotAllowed(_) => StartError::from_worker_fault(
                    FaultKind::Model,
                    FaultScope::for_provider(model),
                    &error.to_string(),
                ),
                ModelClientError::Tls(_) => StartError::from_worker_fault(
                    FaultKind::Host,
                    FaultScope::for_provider(model),
                    &error_chain::format_chain(&error),
                ),
                ModelClientError::Provider(_)
                | ModelClientError::InvalidBaseUrl(_)
                | ModelClientError::NoScript(_) => environment(&error),
            })?;
        let key = bootstrap.keys.get(provider.key_name()).and_then(|key| Secret::new(key));
        Ok(Self { model: model.clone(), client, key })
    }
}

//! Builds the request of a model call from the event that announced it, down to the exact bytes of its body.

use docket_schema::{
    message::ToolSpec,
    run::{CallPurpose, ModelRequested, RunState},
};

use crate::run::{errors::executor_error::RunExecutorError, log::blob_cache::BlobCache};
use crate::{
    engine::{
        ModelCall, current_role, default_output_tokens, prompt_and_tools, sampling_options, summary_call,
    },
    model::{ModelRequest, RenderedRequest, render},
    workspace::BlobReader,
};

/// Rebuilds the call announced by an open `ModelRequested`, from the state that contains it.
pub(crate) fn rebuild_open_call(state: &RunState, open: &ModelRequested) -> ModelCall {
    let pins = state.pins.as_ref().expect("a model is asked only after RunStarted");
    let usual = default_output_tokens(pins, open.purpose, &open.model);
    let output_tokens_max = open.output_tokens_max.unwrap_or(usual);
    if open.purpose == CallPurpose::Compact
        && let Some(call) = summary_call(state, pins)
    {
        return ModelCall { call: open.call.clone(), model: open.model.clone(), output_tokens_max, ..call };
    }
    let messages = state.transcript.sealed_conversation();
    let (system, tools) = prompt_and_tools(state, pins);
    ModelCall {
        call: open.call.clone(),
        purpose: open.purpose,
        turn: state.turn,
        attempt: open.attempt,
        model: open.model.clone(),
        role: open.role.clone(),
        system,
        tools,
        nudge: open.nudge.clone(),
        output_tokens_max,
        wait_ms: 0,
        manner: sampling_options((pins, current_role(state, pins)), open.purpose, &open.model, &messages),
        messages,
    }
}

/// Builds the request of a call, with everything it refers to.
///
/// # Errors
/// A blob cannot be read, or the pinned tools do not decode.
pub async fn build_model_request<S: BlobReader>(
    material: &BlobCache<S>,
    call: &ModelCall,
) -> Result<ModelRequest, RunExecutorError> {
    material.fetch_message_blobs(call.messages.iter()).await?;
    let system = material.fetch_blob(&call.system).await?;
    let tools = material.fetch_blob(&call.tools).await?;
    let tools: Vec<ToolSpec> = serde_json::from_slice(&tools).map_err(RunExecutorError::ToolSpecs)?;
    Ok(ModelRequest {
        model: call.model.clone(),
        system: String::from_utf8_lossy(&system).into_owned(),
        tools: if call.purpose == CallPurpose::Compact { Vec::new() } else { tools },
        messages: call.messages.iter().map(|said| said.message.clone()).collect(),
        max_output_tokens: call.output_tokens_max,
        temperature_milli: call.manner.temperature_milli,
        effort: call.manner.effort,
        use_completion_tokens_field: call.manner.completion_tokens,
        began_with_thought: call.manner.thought,
    })
}

/// Renders the exact body of a call.
///
/// # Errors
/// The errors of [`build_model_request`], or the conversation has a form that providers reject.
pub async fn render_call<S: BlobReader>(
    material: &BlobCache<S>,
    call: &ModelCall,
) -> Result<RenderedRequest, RunExecutorError> {
    let request = build_model_request(material, call).await?;
    let body = render(&request, material)?;
    Ok(RenderedRequest { model: call.model.clone(), body: body.into() })
}

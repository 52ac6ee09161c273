//! The request of a model call: from what an event of the log announced, and to the exact bytes of its body.

use docket_schema::{
    message::ToolSpec,
    run::{ModelRequested, Purpose, RunState},
};

use crate::run::{errors::driver_error::DriverError, log::material::Material};
use crate::{
    engine::{ModelCall, manner_of, role_of, summary_call, texts_of, usual_output_tokens},
    model::{ModelRequest, Rendered, render},
    workspace::Blobs,
};

/// The call that an open `ModelRequested` announced, from the state in which it is sealed.
pub(crate) fn reopened(state: &RunState, open: &ModelRequested) -> ModelCall {
    let pins = state.pins.as_ref().expect("a model is asked only after RunStarted");
    let usual = usual_output_tokens(pins, open.purpose, &open.model);
    let output_tokens_max = open.output_tokens_max.unwrap_or(usual);
    if open.purpose == Purpose::Compact
        && let Some(call) = summary_call(state, pins)
    {
        return ModelCall { call: open.call.clone(), model: open.model.clone(), output_tokens_max, ..call };
    }
    let messages = state.transcript.sealed_conversation();
    let (system, tools) = texts_of(state, pins);
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
        manner: manner_of((pins, role_of(state, pins)), open.purpose, &open.model, &messages),
        messages,
    }
}

/// The request that a call stands for, with everything it refers to.
///
/// # Errors
/// A blob is not to be had, or the pinned tools do not decode.
pub async fn model_request<S: Blobs>(
    material: &Material<S>,
    call: &ModelCall,
) -> Result<ModelRequest, DriverError> {
    material.gather(call.messages.iter()).await?;
    let system = material.fetch(&call.system).await?;
    let tools = material.fetch(&call.tools).await?;
    let tools: Vec<ToolSpec> = serde_json::from_slice(&tools).map_err(DriverError::Tools)?;
    Ok(ModelRequest {
        model: call.model.clone(),
        system: String::from_utf8_lossy(&system).into_owned(),
        tools: if call.purpose == Purpose::Compact { Vec::new() } else { tools },
        messages: call.messages.iter().map(|said| said.message.clone()).collect(),
        max_output_tokens: call.output_tokens_max,
        temperature_milli: call.manner.temperature_milli,
        effort: call.manner.effort,
        completion_tokens: call.manner.completion_tokens,
        thought: call.manner.thought,
    })
}

/// The exact body of a call.
///
/// # Errors
/// As [`model_request`]; or the conversation is one that providers refuse.
pub async fn rendered<S: Blobs>(material: &Material<S>, call: &ModelCall) -> Result<Rendered, DriverError> {
    let request = model_request(material, call).await?;
    let body = render(&request, material)?;
    Ok(Rendered { model: call.model.clone(), body: body.into() })
}

//! How fast model providers may be asked: set, listed, removed; and a run's permit.

use docket_schema::{
    ids::RunId,
    system::ProviderLimits,
    wire::{LimitList, PermitRequest, PermitResponse, RemoveLimitRequest, SetLimitRequest},
};
use reqwest::Method;

use crate::client::{Client, ClientError};

impl Client {
    /// What is set.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn limits(&self) -> Result<LimitList, ClientError> {
        self.call("list limits", Method::GET, "/v1/limits").answer().await
    }

    /// Sets how fast a provider may be asked. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set_limit(&self, provider: &str, limits: ProviderLimits) -> Result<LimitList, ClientError> {
        let path = format!("/v1/limits/{provider}");
        self.call("set a limit", Method::POST, &path).json(&SetLimitRequest { limits })?.answer().await
    }

    /// Lets a provider be asked as fast as one likes.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn remove_limit(&self, provider: &str) -> Result<LimitList, ClientError> {
        let path = format!("/v1/limits/{provider}/remove");
        self.call("remove a limit", Method::POST, &path).json(&RemoveLimitRequest {})?.answer().await
    }

    /// Asks whether a run may ask a model now. Sent again it may take another turn, which harms nobody.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn permit(&self, run: RunId, request: &PermitRequest) -> Result<PermitResponse, ClientError> {
        let path = format!("/v1/runs/{run}/permit");
        self.call("ask for a permit", Method::POST, &path).json(request)?.answer().await
    }
}

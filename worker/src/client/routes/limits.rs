//! Provider rate limits: set, list and remove them; and permits for runs.

use docket_schema::{
    api::{LimitList, PermitRequest, PermitResponse, RemoveLimitRequest, SetLimitRequest},
    ids::RunId,
    system::ProviderLimits,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// Lists the provider rate limits.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_limits(&self) -> Result<LimitList, ClientError> {
        self.build_call("list limits", Method::GET, "/v1/limits").send_for_json().await
    }

    /// Sets a provider's rate limit. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn set_limit(&self, provider: &str, limits: ProviderLimits) -> Result<LimitList, ClientError> {
        let path = format!("/v1/limits/{provider}");
        self.build_call("set a limit", Method::POST, &path)
            .with_json(&SetLimitRequest { limits })?
            .send_for_json()
            .await
    }

    /// Removes a provider's rate limit.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if it has none.
    pub async fn remove_limit(&self, provider: &str) -> Result<LimitList, ClientError> {
        let path = format!("/v1/limits/{provider}/remove");
        self.build_call("remove a limit", Method::POST, &path)
            .with_json(&RemoveLimitRequest {})?
            .send_for_json()
            .await
    }

    /// Requests a permit for a run's model call. A repeated request may take another slot, which is harmless.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn request_permit(
        &self,
        run: RunId,
        request: &PermitRequest,
    ) -> Result<PermitResponse, ClientError> {
        let path = format!("/v1/runs/{run}/permit");
        self.build_call("request a permit", Method::POST, &path).with_json(request)?.send_for_json().await
    }
}

//! How fast model providers may be asked: set, listed, removed; and a run's permit.

use docket_schema::{
    api::{LimitList, PermitRequest, PermitResponse, RemoveLimitRequest, SetLimitRequest},
    ids::RunId,
    system::ProviderLimits,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// What is set.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list_limits(&self) -> Result<LimitList, ClientError> {
        self.build_call("list limits", Method::GET, "/v1/limits").send_for_json().await
    }

    /// Sets how fast a provider may be asked. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn set_limit(&self, provider: &str, limits: ProviderLimits) -> Result<LimitList, ClientError> {
        let path = format!("/v1/limits/{provider}");
        self.build_call("set a limit", Method::POST, &path)
            .with_json(&SetLimitRequest { limits })?
            .send_for_json()
            .await
    }

    /// Lets a provider be asked as fast as one likes.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn remove_limit(&self, provider: &str) -> Result<LimitList, ClientError> {
        let path = format!("/v1/limits/{provider}/remove");
        self.build_call("remove a limit", Method::POST, &path)
            .with_json(&RemoveLimitRequest {})?
            .send_for_json()
            .await
    }

    /// Asks whether a run may ask a model now. Sent again it may take another turn, which harms nobody.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn request_permit(
        &self,
        run: RunId,
        request: &PermitRequest,
    ) -> Result<PermitResponse, ClientError> {
        let path = format!("/v1/runs/{run}/permit");
        self.build_call("ask for a permit", Method::POST, &path).with_json(request)?.send_for_json().await
    }
}

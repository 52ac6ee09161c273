//! API tokens: make, list, revoke.

use docket_schema::{
    api::{CreateTokenRequest, CreatedToken, RevokeTokenRequest, TokenList, TokenView},
    system::TokenName,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// Makes a token. It is told this once; an answer that is lost means to revoke it and make another.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` while another of its name is good.
    pub async fn create_token(&self, request: &CreateTokenRequest) -> Result<CreatedToken, ClientError> {
        self.build_call("make a token", Method::POST, "/v1/tokens").with_json(request)?.send_for_json().await
    }

    /// The tokens that were made, without themselves.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list_tokens(&self) -> Result<TokenList, ClientError> {
        self.build_call("list tokens", Method::GET, "/v1/tokens").send_for_json().await
    }

    /// Ends a token. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn revoke_token(&self, name: &TokenName) -> Result<TokenView, ClientError> {
        self.build_call("revoke a token", Method::POST, &format!("/v1/tokens/{name}/revoke"))
            .with_json(&RevokeTokenRequest {})?
            .send_for_json()
            .await
    }
}

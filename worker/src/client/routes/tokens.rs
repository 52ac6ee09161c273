//! API tokens: create, list, revoke.

use docket_schema::{
    api::{CreateTokenRequest, CreatedToken, RevokeTokenRequest, TokenList, TokenView},
    system::TokenName,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// Creates a token. It is returned only once; if the response is lost, revoke the token and create
    /// another.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `wrong_state` if a valid token of this name exists.
    pub async fn create_token(&self, request: &CreateTokenRequest) -> Result<CreatedToken, ClientError> {
        self.build_call("create a token", Method::POST, "/v1/tokens")
            .with_json(request)?
            .send_for_json()
            .await
    }

    /// Lists tokens, without their secrets.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_tokens(&self) -> Result<TokenList, ClientError> {
        self.build_call("list tokens", Method::GET, "/v1/tokens").send_for_json().await
    }

    /// Revokes a token. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if there is no such token.
    pub async fn revoke_token(&self, name: &TokenName) -> Result<TokenView, ClientError> {
        self.build_call("revoke a token", Method::POST, &format!("/v1/tokens/{name}/revoke"))
            .with_json(&RevokeTokenRequest {})?
            .send_for_json()
            .await
    }
}

//! API tokens: make, list, revoke.

use docket_schema::{
    system::TokenName,
    wire::{CreateTokenRequest, CreatedToken, RevokeTokenRequest, TokenList, TokenView},
};
use reqwest::Method;

use crate::client::{Client, ClientError};

impl Client {
    /// Makes a token. It is told this once; an answer that is lost means to revoke it and make another.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` while another of its name is good.
    pub async fn create_token(&self, request: &CreateTokenRequest) -> Result<CreatedToken, ClientError> {
        self.call("make a token", Method::POST, "/v1/tokens").json(request)?.answer().await
    }

    /// The tokens that were made, without themselves.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn tokens(&self) -> Result<TokenList, ClientError> {
        self.call("list tokens", Method::GET, "/v1/tokens").answer().await
    }

    /// Ends a token. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn revoke_token(&self, name: &TokenName) -> Result<TokenView, ClientError> {
        self.call("revoke a token", Method::POST, &format!("/v1/tokens/{name}/revoke"))
            .json(&RevokeTokenRequest {})?
            .answer()
            .await
    }
}

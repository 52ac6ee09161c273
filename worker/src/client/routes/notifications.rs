//! Who is told of what needs them, and what became of it: listed, tried again, for a try.

use docket_schema::{
    api::{
        DropNotificationRequest, NotificationList, NotificationQuery, NotificationView,
        RetryNotificationRequest, TestNotificationRequest,
    },
    ids::NotificationId,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// Targets and notifications, the newest first.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn list_notifications(
        &self,
        query: &NotificationQuery,
    ) -> Result<NotificationList, ClientError> {
        let call = self.build_call("list notifications", Method::GET, "/v1/notifications");
        call.with_optional_query("state", query.state)
            .with_optional_query("limit", query.limit)
            .send_for_json()
            .await
    }

    /// Tells once more who did not take it. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`, or `wrong_state` where all took it.
    pub async fn retry_notification(
        &self,
        id: NotificationId,
        request: &RetryNotificationRequest,
    ) -> Result<NotificationView, ClientError> {
        let path = format!("/v1/notifications/{id}/retry");
        self.build_call("retry a notification", Method::POST, &path).with_json(request)?.send_for_json().await
    }

    /// Gives up what somebody did not take. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`, or `wrong_state` where nothing of it is left to be told.
    pub async fn drop_notification(
        &self,
        id: NotificationId,
        request: &DropNotificationRequest,
    ) -> Result<NotificationView, ClientError> {
        let path = format!("/v1/notifications/{id}/drop");
        self.build_call("drop a notification", Method::POST, &path).with_json(request)?.send_for_json().await
    }

    /// Tells targets something, for a try. Sent again it is another try.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found` where there is no such target.
    pub async fn test_notification(
        &self,
        request: &TestNotificationRequest,
    ) -> Result<NotificationView, ClientError> {
        self.build_call("try notifications", Method::POST, "/v1/notifications/test")
            .with_json(request)?
            .send_for_json()
            .await
    }
}

//! Notification targets and deliveries: list, retry, drop, test.

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
    /// Lists targets and notifications, newest first.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
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

    /// Retries failed deliveries of a notification. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found`, or `wrong_state` if all deliveries succeeded.
    pub async fn retry_notification(
        &self,
        id: NotificationId,
        request: &RetryNotificationRequest,
    ) -> Result<NotificationView, ClientError> {
        let path = format!("/v1/notifications/{id}/retry");
        self.build_call("retry a notification", Method::POST, &path).with_json(request)?.send_for_json().await
    }

    /// Gives up the undelivered part of a notification. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found`, or `wrong_state` if nothing is left to deliver.
    pub async fn drop_notification(
        &self,
        id: NotificationId,
        request: &DropNotificationRequest,
    ) -> Result<NotificationView, ClientError> {
        let path = format!("/v1/notifications/{id}/drop");
        self.build_call("drop a notification", Method::POST, &path).with_json(request)?.send_for_json().await
    }

    /// Sends a test notification. Every call sends another one.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if there is no such target.
    pub async fn test_notification(
        &self,
        request: &TestNotificationRequest,
    ) -> Result<NotificationView, ClientError> {
        self.build_call("send a test notification", Method::POST, "/v1/notifications/test")
            .with_json(request)?
            .send_for_json()
            .await
    }
}

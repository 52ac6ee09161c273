//! Schedules: set, list, show, pause, unpause, remove, run now.

use docket_schema::{
    api::{RunScheduleRequest, ScheduleActRequest, ScheduleList, ScheduleView, SetScheduleRequest},
    system::ScheduleName,
};
use reqwest::Method;

use crate::client::{ClientError, CoordinatorClient};

impl CoordinatorClient {
    /// Lists all schedules.
    ///
    /// # Errors
    /// [`ClientError`] if the call fails.
    pub async fn list_schedules(&self) -> Result<ScheduleList, ClientError> {
        self.build_call("list schedules", Method::GET, "/v1/schedules").send_for_json().await
    }

    /// Returns one schedule.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if it does not exist.
    pub async fn get_schedule(&self, name: &ScheduleName) -> Result<ScheduleView, ClientError> {
        self.build_call("show a schedule", Method::GET, &format!("/v1/schedules/{name}"))
            .send_for_json()
            .await
    }

    /// Creates or replaces a schedule. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `wrong_state` if the name is taken and the request does not replace it.
    pub async fn set_schedule(
        &self,
        name: &ScheduleName,
        request: &SetScheduleRequest,
    ) -> Result<ScheduleView, ClientError> {
        let path = format!("/v1/schedules/{name}");
        self.build_call("set a schedule", Method::POST, &path).with_json(request)?.send_for_json().await
    }

    /// Pauses or unpauses a schedule. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if it does not exist.
    pub async fn pause_schedule(
        &self,
        name: &ScheduleName,
        paused: bool,
    ) -> Result<ScheduleView, ClientError> {
        let act = if paused { "pause" } else { "unpause" };
        let path = format!("/v1/schedules/{name}/{act}");
        self.build_call("pause a schedule", Method::POST, &path)
            .with_json(&ScheduleActRequest {})?
            .send_for_json()
            .await
    }

    /// Removes a schedule; its tasks are kept.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if it does not exist.
    pub async fn remove_schedule(&self, name: &ScheduleName) -> Result<(), ClientError> {
        let path = format!("/v1/schedules/{name}/remove");
        let answer =
            self.build_call("remove a schedule", Method::POST, &path).with_json(&ScheduleActRequest {})?;
        answer.send_for_json::<ScheduleActRequest>().await.map(drop)
    }

    /// Creates a schedule's task now. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Problem`] with `not_found` if it does not exist.
    pub async fn run_schedule(
        &self,
        name: &ScheduleName,
        request: &RunScheduleRequest,
    ) -> Result<ScheduleView, ClientError> {
        let path = format!("/v1/schedules/{name}/run");
        self.build_call("run a schedule", Method::POST, &path).with_json(request)?.send_for_json().await
    }
}

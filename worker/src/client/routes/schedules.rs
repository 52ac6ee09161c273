//! Schedules: set, list, show, pause, unpause, remove, run now.

use docket_schema::{
    system::ScheduleName,
    wire::{RunScheduleRequest, ScheduleActRequest, ScheduleList, ScheduleView, SetScheduleRequest},
};
use reqwest::Method;

use crate::client::{Client, ClientError};

impl Client {
    /// Every schedule.
    ///
    /// # Errors
    /// [`ClientError`].
    pub async fn schedules(&self) -> Result<ScheduleList, ClientError> {
        self.call("list schedules", Method::GET, "/v1/schedules").answer().await
    }

    /// A schedule.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn schedule(&self, name: &ScheduleName) -> Result<ScheduleView, ClientError> {
        self.call("show a schedule", Method::GET, &format!("/v1/schedules/{name}")).answer().await
    }

    /// Makes a schedule. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `wrong_state` where there is one of this name that it is not to replace.
    pub async fn set_schedule(
        &self,
        name: &ScheduleName,
        request: &SetScheduleRequest,
    ) -> Result<ScheduleView, ClientError> {
        let path = format!("/v1/schedules/{name}");
        self.call("set a schedule", Method::POST, &path).json(request)?.answer().await
    }

    /// Lets a schedule rest, or go on. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn pause_schedule(
        &self,
        name: &ScheduleName,
        paused: bool,
    ) -> Result<ScheduleView, ClientError> {
        let act = if paused { "pause" } else { "unpause" };
        let path = format!("/v1/schedules/{name}/{act}");
        self.call("pause a schedule", Method::POST, &path).json(&ScheduleActRequest {})?.answer().await
    }

    /// Ends a schedule; its tasks stay.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn remove_schedule(&self, name: &ScheduleName) -> Result<(), ClientError> {
        let path = format!("/v1/schedules/{name}/remove");
        let answer = self.call("remove a schedule", Method::POST, &path).json(&ScheduleActRequest {})?;
        answer.answer::<ScheduleActRequest>().await.map(drop)
    }

    /// Gives a schedule's task now. Safe to repeat.
    ///
    /// # Errors
    /// [`ClientError::Refused`] with `not_found`.
    pub async fn run_schedule(
        &self,
        name: &ScheduleName,
        request: &RunScheduleRequest,
    ) -> Result<ScheduleView, ClientError> {
        let path = format!("/v1/schedules/{name}/run");
        self.call("run a schedule", Method::POST, &path).json(request)?.answer().await
    }
}

//! Queue decisions: one file per command, each a plain function from a task's record (and the
//! command, and the time) to the events it causes, or a rejection. No IO, no clock, no randomness:
//! the store calls these inside its transaction and writes what they say.

mod answer;
mod budget;
mod cancel;
mod choose;
mod crash;
mod cron;
mod delegate;
mod deliver;
mod depend;
mod due;
mod expire;
mod fire;
mod fork;
mod lease;
mod notify;
mod pause;
mod plan;
mod release;
mod reprioritize;
mod resume;
mod retry;
mod settle;
mod standing;
mod submit;
mod unblock;
mod wanted;
mod why;

#[cfg(test)]
mod advice_tests;
#[cfg(test)]
mod deliver_tests;
#[cfg(test)]
mod goes_on_tests;
#[cfg(test)]
mod table;

pub use answer::{AskedRun, answer, answer_question};
pub use budget::{Afford, afford};
pub use cancel::cancel;
pub use choose::{Candidate, Choice, FairShares, FlowHead, Party, Running, Turns, choose};
pub use crash::crash;
pub use cron::{Timetable, TimetableError};
pub use delegate::{abandoned, child_ended, delegate};
pub use deliver::{ResultVerdict, accept, deliver, reject};
pub use depend::{dependency_ended, dependency_stands};
pub use due::{CLOCKS_APART_MS, make_available, waits_too_long};
pub use expire::expire;
pub use fire::{MISSED_AFTER_MS, fire, fired_until};
pub use fork::fork;
pub use lease::{Lessee, lease};
pub use notify::{
    RETRY_AFTER_MS_MAX, Retries, Seen, Sent, Tell, attempted, ends, given_up, holds_others, is_news, seen,
    waits_too_long_to_tell,
};
pub use pause::{pause, unpause};
pub use plan::{FenceAfter, Plan, Rejection, RunCondition, RunWrite};
pub use release::{release, release_for_fault};
pub use reprioritize::reprioritize;
pub use resume::resume;
pub use retry::{Dependencies, retry};
pub use settle::{Again, Settling, ending, settle};
pub use standing::lost_why;
pub use submit::submit;
pub use unblock::unblock;
pub use wanted::{LabelsOf, Waiting, WaitingPart, wanted};
pub use why::{Dependency, Standing, TakeUp, claim_ms, why};

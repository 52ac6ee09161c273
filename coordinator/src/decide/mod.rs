//! Queue decisions: one file per command, each a plain function from a task's record (and the
//! command, and the time) to the events it causes, or a rejection. No IO, no clock, no randomness:
//! the store calls these inside its transaction and writes what they say.

mod delegate;
mod notify;
mod plan;
mod submit;

#[cfg(test)]
mod advice_tests;
#[cfg(test)]
mod deliver_tests;
#[cfg(test)]
mod goes_on_tests;
pub(crate) mod lease_ends;
pub(crate) mod people;
pub(crate) mod schedule;
#[cfg(test)]
mod table;
pub(crate) mod waiting;

pub use delegate::{abandoned, child_ended, delegate};
pub use lease_ends::crash::crash;
pub use lease_ends::expire::expire;
pub use lease_ends::lease::{Lessee, lease};
pub use lease_ends::release::{release, release_for_fault};
pub use lease_ends::settle::{Again, Settling, ending, settle};
pub use lease_ends::standing::lost_why;
pub use notify::{
    RETRY_AFTER_MS_MAX, Retries, Seen, Sent, Tell, attempted, ends, given_up, holds_others, is_news, seen,
    waits_too_long_to_tell,
};
pub use people::answer::{AskedRun, answer, answer_question};
pub use people::cancel::cancel;
pub use people::deliver::{ResultVerdict, accept, deliver, reject};
pub use people::fork::fork;
pub use people::pause::{pause, unpause};
pub use people::reprioritize::reprioritize;
pub use people::resume::resume;
pub use people::retry::{Dependencies, retry};
pub use plan::{FenceAfter, Plan, Rejection, RunCondition, RunWrite};
pub use schedule::cron::{Timetable, TimetableError};
pub use schedule::due::{CLOCKS_APART_MS, make_available, waits_too_long};
pub use schedule::fire::{MISSED_AFTER_MS, fire, fired_until};
pub use submit::submit;
pub use waiting::budget::{Afford, afford};
pub use waiting::choose::{Candidate, Choice, FairShares, FlowHead, Party, Running, Turns, choose};
pub use waiting::depend::{dependency_ended, dependency_stands};
pub use waiting::unblock::unblock;
pub use waiting::wanted::{LabelsOf, Waiting, WaitingPart, wanted};
pub use waiting::why::{Dependency, Standing, TakeUp, claim_ms, why};

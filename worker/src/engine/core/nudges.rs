//! Reminders that the runtime adds at the end of a request, in addition to tool results and user messages.

/// All reminders. They are not part of the conversation and carry no news, so no summary repeats them.
pub(in crate::engine) const ALL: [&str; 5] = [NO_PLAN, TAKE_OVER, TRUNCATED, EMPTY, REFUSED];

/// The reminder after an empty reply.
pub(in crate::engine) const EMPTY: &str = "Your last answer was empty. Call a tool to go on; or, if the work is done, say in a \
                           sentence what you did; or begin with `BLOCKED:` and say what you need.";

/// The reminder after a reply that a limit cut off before it called a tool.
pub(in crate::engine) const TRUNCATED: &str = "Your last answer was cut at the limit of what one answer may hold. Go on in smaller parts: think less at once, and write a large file with several calls.";

/// The reminder for a model that continues after another one's refusal.
pub(in crate::engine) const REFUSED: &str = "The last answer above is another model's. Go on with the task; or say in a sentence why \
                             you do not.";

/// The reminder for the main model after the explore model says that it is done.
pub(in crate::engine) const TAKE_OVER: &str = "What stands above was found out by a model that only looks around; its last \
     answer is not the end of the task. Go on from there: change what is to be changed; or, if nothing is, say in a \
     sentence why.";

/// The reminder for a model that gave no plan.
pub(in crate::engine) const NO_PLAN: &str = "You gave no plan yet. Begin your next answer with a line `PLAN:` and the steps, one a line, \
                        as `- [ ] step`, and go on beside it.";

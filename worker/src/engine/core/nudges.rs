//! What the runtime tells a model at the end of a request, beside what tools and people say.

/// All of them: nobody's words, and no news, so that no summary repeats them.
pub(in crate::engine) const ALL: [&str; 5] = [NO_PLAN, TAKE_OVER, TRUNCATED, EMPTY, REFUSED];

/// What the model is told after an answer that said nothing.
pub(in crate::engine) const EMPTY: &str = "Your last answer was empty. Call a tool to go on; or, if the work is done, say in a \
                           sentence what you did; or begin with `BLOCKED:` and say what you need.";

/// What the model is told after an answer that a limit cut before it called a tool.
pub(in crate::engine) const TRUNCATED: &str = "Your last answer was cut at the limit of what one answer may hold. Go on in smaller parts: think less at once, and write a large file with several calls.";

/// What a model is told that goes on behind another one's refusal.
pub(in crate::engine) const REFUSED: &str = "The last answer above is another model's. Go on with the task; or say in a sentence why \
                             you do not.";

/// What the main model is told where the one that explored says that it is done.
pub(in crate::engine) const TAKE_OVER: &str = "What stands above was found out by a model that only looks around; its last \
     answer is not the end of the task. Go on from there: change what is to be changed; or, if nothing is, say in a \
     sentence why.";

/// What a model that gave no plan is told.
pub(in crate::engine) const NO_PLAN: &str = "You gave no plan yet. Begin your next answer with a line `PLAN:` and the steps, one a line, \
                        as `- [ ] step`, and go on beside it.";

//! What the file tools do with the syntax gate's verdict: a remark in the result, or a refusal where the
//! run's settings want that.

use docket_schema::content::WorkPath;

use super::context::ToolSettings;
use crate::syntax::{Verdict, compare};

/// The remark on what `after` makes of the file at `path`, a line with its break; empty where there is
/// nothing to say.
///
/// # Errors
/// With the refusal, where syntax errors are refused.
pub(super) fn syntax(
    settings: &ToolSettings,
    path: &WorkPath,
    before: Option<&[u8]>,
    after: &[u8],
) -> Result<String, String> {
    let (does, would) = match before {
        Some(_) => ("the edit adds", "Nothing was changed: syntax: the edit would add"),
        None => ("the file has", "Nothing was made: syntax: the file would have"),
    };
    match compare(&path.to_string(), before, after) {
        Verdict::NotWorse => Ok(String::new()),
        Verdict::NotParsed(why) => Ok(format!("syntax: not checked: {why}\n")),
        Verdict::Worse(added) if settings.refuse_syntax_errors => {
            Err(format!("{would} {added}. Mend that and send the call again"))
        }
        Verdict::Worse(added) => Ok(format!("syntax: {does} {added}\n")),
    }
}

//! `venv_run`: a shell line whose programs are those of the environment first.

use super::{
    super::run_command,
    place::{entering, is_there},
};
use crate::tools::context::tool_context::{ToolContext, ToolOutcome};

pub(crate) use crate::calls::{CommandArgs as Args, VENV_RUN as NAME};

pub(crate) const DESCRIPTION: &str = "Runs a shell line as run_command does, with the programs and packages \
    of the workspace's Python environment (venv_install) first.";

pub(crate) async fn run(context: ToolContext<'_>, args: Args) -> ToolOutcome {
    if !is_there(context.root) {
        return ToolOutcome::error(NAME, "there is no Python environment here: venv_install makes it");
    }
    run_command::run_as(context, args, NAME, entering).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::Workspace;

    #[test]
    fn a_line_is_held_to_what_run_command_is_held_to() {
        let mut w = Workspace::new(&[("file", "")]);
        w.write(".docket-venv/.docket-whole", "");
        w.write(".docket-venv/bin/own", "#!/bin/sh\necho own of $VIRTUAL_ENV; pwd\n");
        w.chmod(".docket-venv/bin/own", 0o755);
        w.write("a/b/c", "");
        w.link("out", "/etc");
        for cwd in ["", "a/b"] {
            let out = w.call(NAME, json!({"command": "own", "cwd": cwd}));
            assert!(out.text().contains("/.docket-venv\n"), "{}", out.text());
            assert!(out.text().trim_end().ends_with(cwd), "{}", out.text());
        }
        let out = w.call(NAME, json!({"command": "exit 3"}));
        assert_eq!((out.facts.exit, out.is_error), (Some(3), false), "as of any command");
        for (args, want) in [
            (json!({"command": "rm -rf /"}), "not run, for it removes a root"),
            (json!({"command": " "}), "`command` is empty"),
            (json!({"command": "ls", "cwd": "../.."}), "is not a path"),
            (json!({"command": "ls", "cwd": "out"}), "leads out of the workspace"),
            (json!({"command": "sleep 30", "timeout": "1"}), "time limit of 1 s"),
        ] {
            let out = w.call(NAME, args.clone());
            assert!(out.is_error && out.text().contains(want), "{args}: {}", out.text());
        }
    }
}

//! `venv_run`: runs a shell line with the environment's programs first.

use super::{
    super::run_command,
    environment::{activation_prefix, has_environment},
};
use crate::tools::context::tool_context::{ToolContext, ToolOutcome};

pub(crate) use crate::calls::{CommandArgs, VENV_RUN as NAME};

pub(crate) const DESCRIPTION: &str = "Runs a shell line as run_command does, with the programs and packages \
    of the workspace's Python environment (venv_install) first.";

pub(crate) async fn run(context: ToolContext<'_>, args: CommandArgs) -> ToolOutcome {
    if !has_environment(context.root) {
        return ToolOutcome::error(NAME, "there is no Python environment here: venv_install makes it");
    }
    run_command::run_as_tool(context, args, NAME, activation_prefix).await
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::tools::testing::TestWorkspace;

    #[test]
    fn venv_run_has_the_limits_of_run_command() {
        let mut w = TestWorkspace::new(&[("file", "")]);
        w.write_file(".docket-venv/.docket-whole", "");
        w.write_file(".docket-venv/bin/own", "#!/bin/sh\necho own of $VIRTUAL_ENV; pwd\n");
        w.set_mode(".docket-venv/bin/own", 0o755);
        w.write_file("a/b/c", "");
        w.create_link("out", "/etc");
        for cwd in ["", "a/b"] {
            let out = w.call_tool(NAME, json!({"command": "own", "cwd": cwd}));
            assert!(out.text().contains("/.docket-venv\n"), "{}", out.text());
            assert!(out.text().trim_end().ends_with(cwd), "{}", out.text());
        }
        let out = w.call_tool(NAME, json!({"command": "exit 3"}));
        assert_eq!((out.facts.exit, out.is_error), (Some(3), false), "as of any command");
        for (args, want) in [
            (json!({"command": "rm -rf /"}), "not run, for it removes a root"),
            (json!({"command": " "}), "`command` is empty"),
            (json!({"command": "ls", "cwd": "../.."}), "is not a path"),
            (json!({"command": "ls", "cwd": "out"}), "leads out of the workspace"),
            (json!({"command": "sleep 30", "timeout": "1"}), "time limit of 1 s"),
        ] {
            let out = w.call_tool(NAME, args.clone());
            assert!(out.is_error && out.text().contains(want), "{args}: {}", out.text());
        }
    }
}

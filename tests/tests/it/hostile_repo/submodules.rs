//! Submodules through a whole run: there to be read, and still submodules in the result.

use std::fs;

use anyhow::{Result, ensure};
use docket_tests::system::acquire_scenario_slot;

use super::fixture::HostileRepository;

const SCRIPT: &str = r#"
[[turns]]
[[turns.calls]]
name = "read_file"
args = { path = "lib/core.py" }
[[turns.calls]]
name = "create_file"
args = { path = "lib/new.py", content = "x = 1\n" }
[[turns]]
calls = [{ name = "run_command", args = { command = "cat lib/core.py; mkdir -p lib/sub; echo y > lib/sub/other.py; rm -f lib/core.py; echo ok > made; git add -A; git -c user.name=m -c user.email=m@example.org commit -qm x" } }]
[[turns]]
text = "Done."
"#;

/// Without a clone of the submodule its folder is empty; the rest is the same.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn writes_below_a_submodule_are_reported_and_it_is_kept() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    for is_there in [true, false] {
        let scene = HostileRepository::new()?;
        scene.make_repository("lib", &[("core.py", "CORE = 1\n")]).await?;
        scene.make_repository("repo", &[("main.py", "import lib.core\n")]).await?;
        let lib = scene.read_text("lib");
        let add = ["-c", "protocol.file.allow=always", "submodule", "add", "-q", &lib, "lib"];
        scene.git_output("repo", &add).await?;
        scene.git_output("repo", &["commit", "-q", "-m", "with lib"]).await?;
        let before = scene.git_output("repo", &["ls-tree", "HEAD", "lib"]).await?;
        ensure!(before.starts_with("160000 commit"), "{before}");
        if !is_there {
            scene.git_output("repo", &["submodule", "deinit", "-q", "-f", "lib"]).await?;
            fs::remove_dir_all(scene.path_in("repo/.git/modules"))?;
        }

        let id = scene.play_script("repo", SCRIPT, &["--branch", "made"]).await?;
        let log = scene.run_docket(&["logs", &id, "--json"]).await?.into_stdout()?;
        ensure!(log.contains("belongs to the submodule `lib`"), "the tool refuses: {log}");
        ensure!(log.contains("Submodules are other repositories"), "the command is told of: {log}");
        ensure!(log.contains("CORE = 1") == is_there, "filled: {is_there}\n{log}");
        let after = scene.git_output("repo", &["ls-tree", "made", "lib"]).await?;
        ensure!(after == before, "the submodule in the result: {after}");
        let changed = scene.git_output("repo", &["diff", "--raw", "--no-renames", "main", "made"]).await?;
        ensure!(changed.lines().count() == 1 && changed.trim_end().ends_with("\tmade"), "{changed}");

        let patch = scene.run_docket(&["diff", &id]).await?.into_stdout()?;
        ensure!(patch.contains("b/made") && !patch.contains("lib/"), "{patch}");
        let out = scene.read_text("out");
        scene.run_docket(&["checkout", &id, &out]).await?.into_stdout()?;
        let core = fs::read_to_string(scene.path_in("out/lib/core.py")).ok();
        ensure!(core.as_deref() == is_there.then_some("CORE = 1\n"), "{core:?}");
        ensure!(
            !scene.path_in("out/lib/new.py").exists() && !scene.path_in("out/lib/sub").exists(),
            "put back"
        );
        scene.run_docket(&["verify", &id]).await?.into_stdout()?;
    }
    Ok(())
}

//! Submodules through a whole run: there to be read, and still submodules in the result.

use std::fs;

use anyhow::{Result, ensure};
use docket_tests::system::room;

use super::scene::Scene;

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
async fn run_that_writes_below_a_submodule_is_told_and_keeps_it() -> Result<()> {
    let _room = room().await;
    for is_there in [true, false] {
        let scene = Scene::new()?;
        scene.repository("lib", &[("core.py", "CORE = 1\n")]).await?;
        scene.repository("repo", &[("main.py", "import lib.core\n")]).await?;
        let lib = scene.text_at("lib");
        let add = ["-c", "protocol.file.allow=always", "submodule", "add", "-q", &lib, "lib"];
        scene.git_ok("repo", &add).await?;
        scene.git_ok("repo", &["commit", "-q", "-m", "with lib"]).await?;
        let before = scene.git_ok("repo", &["ls-tree", "HEAD", "lib"]).await?;
        ensure!(before.starts_with("160000 commit"), "{before}");
        if !is_there {
            scene.git_ok("repo", &["submodule", "deinit", "-q", "-f", "lib"]).await?;
            fs::remove_dir_all(scene.at("repo/.git/modules"))?;
        }

        let id = scene.play("repo", SCRIPT, &["--branch", "made"]).await?;
        let log = scene.docket(&["logs", &id, "--json"]).await?.ok()?;
        ensure!(log.contains("belongs to the submodule `lib`"), "the tool refuses: {log}");
        ensure!(log.contains("Submodules are other repositories"), "the command is told of: {log}");
        ensure!(log.contains("CORE = 1") == is_there, "filled: {is_there}\n{log}");
        let after = scene.git_ok("repo", &["ls-tree", "made", "lib"]).await?;
        ensure!(after == before, "the submodule in the result: {after}");
        let changed = scene.git_ok("repo", &["diff", "--raw", "--no-renames", "main", "made"]).await?;
        ensure!(changed.lines().count() == 1 && changed.trim_end().ends_with("\tmade"), "{changed}");

        let patch = scene.docket(&["diff", &id]).await?.ok()?;
        ensure!(patch.contains("b/made") && !patch.contains("lib/"), "{patch}");
        let out = scene.text_at("out");
        scene.docket(&["checkout", &id, &out]).await?.ok()?;
        let core = fs::read_to_string(scene.at("out/lib/core.py")).ok();
        ensure!(core.as_deref() == is_there.then_some("CORE = 1\n"), "{core:?}");
        ensure!(!scene.at("out/lib/new.py").exists() && !scene.at("out/lib/sub").exists(), "put back");
        scene.docket(&["verify", &id]).await?.ok()?;
    }
    Ok(())
}

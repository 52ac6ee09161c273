//! Repositories that a model hides in its work: git obeys none of them in what a person gets.

use std::{fs, path::Path};

use anyhow::{Result, ensure};
use docket_tests::system::{TestProgram, acquire_scenario_slot, run_program};

use super::fixture::{HostileRepository, run_git_in};

/// Each makes, in the folder it runs in, what has git run `TRAP` in the folder of its name.
const SHAPES: [(&str, &str); 6] = [
    (
        "bare",
        "mkdir -p bare/objects bare/refs; touch bare/objects/k bare/refs/k; echo 'ref: refs/heads/x' > bare/HEAD; conf bare/config",
    ),
    (
        "wt/m",
        "mkdir -p wt/m c/objects c/refs; touch c/objects/k c/refs/k; echo 'ref: refs/heads/x' > wt/m/HEAD; echo ../../c > wt/m/commondir; conf c/config",
    ),
    (
        "lw",
        "mkdir -p lw d/store; touch d/store/k; ln -s store d/objects; ln -s store d/refs; echo 'ref: refs/heads/x' > lw/HEAD; echo ../d > lw/commondir; conf d/config",
    ),
    (
        "ex",
        "mkdir ex; : > ex/objects; : > ex/refs; chmod +x ex/objects ex/refs; ln -s refs/heads/x ex/HEAD; conf ex/config",
    ),
    (
        "gf",
        "mkdir -p gf real/objects real/refs; touch real/objects/k real/refs/k; echo 'ref: refs/heads/x' > real/HEAD; conf real/config; echo 'gitdir: ../real' > gf/.git",
    ),
    (
        "ln",
        "mkdir -p ln real2/objects real2/refs; touch real2/objects/k real2/refs/k; echo 'ref: refs/heads/x' > real2/HEAD; conf real2/config; ln -s ../real2 ln/.git",
    ),
];

fn trap_line(trap: &str) -> String {
    let config = format!(
        "conf() {{ printf '[core]\\n\\trepositoryformatversion = 0\\n\\tbare = false\\n\\tworktree = .\\n\\tfsmonitor = {trap}\\n\\teditor = {trap}\\n' > \"$1\"; }}; "
    );
    let all: Vec<&str> = SHAPES.iter().map(|(_, make)| *make).collect();
    format!("{config}{}", all.join("; "))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repository_hidden_by_a_model_is_inert_in_branch_and_checkout() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = HostileRepository::new()?;
    scene.make_repository("repo", &[("src/a", "1\n")]).await?;
    let trap = scene.write_trap("fsmonitor-hidden")?;
    let line = trap_line(&trap);

    // The control: the same line in a folder of no one's has git run the program in each of these.
    fs::create_dir(scene.path_in("plain"))?;
    run_program(TestProgram::Bash, &scene.path_in("plain"), &[], &["-c", &line]).await?.into_stdout()?;
    for (folder, _) in SHAPES {
        ensure!(
            does_trap_fire(&scene, "plain", folder).await?,
            "git obeys nothing in {folder}, so it proves nothing"
        );
    }

    let script = format!(
        r#"
[[turns]]
calls = [{{ name = "run_command", args = {{ command = '''{line}; echo honest > src/b''' }} }}]
[[turns]]
[[turns.calls]]
name = "create_file"
args = {{ path = "tools/m/HEAD", content = "ref: refs/heads/x\n" }}
[[turns.calls]]
name = "create_file"
args = {{ path = "tools/m/commondir", content = "../../tools/c\n" }}
[[turns.calls]]
name = "create_file"
args = {{ path = "tools/c/objects/k", content = "x\n" }}
[[turns.calls]]
name = "create_file"
args = {{ path = "tools/c/refs/k", content = "x\n" }}
[[turns.calls]]
name = "create_file"
args = {{ path = "tools/c/config", content = "[core]\n\tfsmonitor = {trap}\n" }}
[[turns]]
text = "Done."
"#
    );
    let id = scene.play_script("repo", &script, &["--branch", "made"]).await?;
    let out = scene.read_text("out");
    scene.run_docket(&["checkout", &id, &out]).await?.into_stdout()?;
    scene.git_output("repo", &["checkout", "-q", "made"]).await?;
    scene.take_fired_traps()?;
    for tree in ["repo", "out"] {
        ensure!(
            fs::read_to_string(scene.path_in(tree).join("src/b"))? == "honest\n",
            "{tree} has the honest work"
        );
        for folder in SHAPES.iter().map(|(folder, _)| *folder).chain(["tools/m", "tools/c"]) {
            ensure!(
                !does_trap_fire(&scene, tree, folder).await?,
                "git obeys what a model hid in {tree}/{folder}"
            );
        }
    }
    let log = scene.run_docket(&["logs", &id, "--json"]).await?.into_stdout()?;
    ensure!(log.matches("take its folder for a repository").count() >= 2, "{log}");
    for refused in ["tools/m/commondir", "tools/c/config"] {
        ensure!(!scene.path_in("out").join(refused).exists(), "{refused} was written");
    }
    Ok(())
}

/// Whether a program runs when a person uses git in the folder.
async fn does_trap_fire(scene: &HostileRepository, tree: &str, folder: &str) -> Result<bool> {
    let at = scene.path_in(tree).join(folder);
    if !Path::new(&at).is_dir() {
        return Ok(false);
    }
    // Behind a `commondir` git finds no work tree, and obeys the settings that need none.
    for args in [&["status"][..], &["config", "--edit"]] {
        run_git_in(&at, args).await?;
    }
    Ok(!scene.take_fired_traps()?.is_empty())
}

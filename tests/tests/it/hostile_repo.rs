//! Repositories that strangers made, through every command that touches one: what they define is never run,
//! what lies outside them is neither read nor written, and nothing in them makes a command wait for ever.
//!
//! Each trap has its control: git itself, run in a copy that is thrown away, steps into it.

mod fixture;
mod foreign_paths;
mod hidden_repositories;
mod modes;
mod submodules;
mod trees;

use std::{collections::BTreeSet, fs, os::unix::fs::PermissionsExt as _};

use anyhow::{Context as _, Result, ensure};
use docket_tests::system::{TestProgram, acquire_scenario_slot, run_with_input};
use fixture::HostileRepository;

/// Hooks, and a git command after which each has run.
const HOOKS: [(&str, &[&str]); 6] = [
    ("pre-commit", &["commit", "--allow-empty", "-m", "x"]),
    ("commit-msg", &["commit", "--allow-empty", "-m", "x"]),
    ("post-commit", &["commit", "--allow-empty", "-m", "x"]),
    ("post-checkout", &["checkout", "-f", "HEAD~1"]),
    ("reference-transaction", &["branch", "another"]),
    ("post-index-change", &["add", "-A"]),
];

/// Settings that name a program: the setting, the trap's name, and a git command that runs it.
const SETTINGS: [(&str, &str, &[&str]); 17] = [
    ("core.fsmonitor", "fsmonitor", &["status"]),
    ("core.sshCommand", "ssh", &["ls-remote", "ssh://nowhere.invalid/x"]),
    ("core.pager", "pager", &["grep", "-O", "changed"]),
    ("core.editor", "editor", &["commit", "--allow-empty", "--no-gpg-sign"]),
    ("credential.helper", "credential", &["credential", "fill"]),
    ("filter.up.clean", "clean", &["add", "-A"]),
    ("filter.up.smudge", "smudge", &["checkout", "-f", "HEAD", "--", "a.up"]),
    ("filter.pr.process", "process", &["add", "-A"]),
    ("diff.external", "external", &["diff"]),
    ("diff.tc.textconv", "textconv", &["diff", "--no-ext-diff"]),
    ("diff.dc.command", "command", &["diff"]),
    ("merge.mg.driver", "driver", &["merge", "-m", "x", "other"]),
    ("gpg.program", "gpg", &["commit", "--allow-empty", "-S", "-m", "x"]),
    ("alias.evil", "alias", &["evil"]),
    ("core.alternateRefsCommand", "alternates", &["push", ".", "HEAD:refs/heads/pushed"]),
    ("uploadpack.packObjectsHook", "pack-objects", &[]),
    ("submodule.sub.update", "update", &["submodule", "update", "--force"]),
];

const SCRIPT: &str = r#"
[[turns]]
calls = [{ name = "create_file", args = { path = "new.up", content = "by the model\n" } }]
[[turns]]
calls = [{ name = "run_command", args = { command = "echo more >> a.up; echo more >> b.tc; git add -A; git -c user.name=m -c user.email=m@example.org commit -qm x; echo again >> b.tc; git status" } }]
[[turns]]
text = "Done."
"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_command_runs_programs_defined_by_the_repository() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let scene = HostileRepository::new()?;
    set_traps(&scene).await?;
    ensure!(scene.run_git("repo", &["rev-parse", "HEAD"]).await?.success(), "the repository stands");
    scene.take_fired_traps()?;

    let refused = scene.submit_folder("repo", &[]).await?;
    ensure!(!refused.success() && refused.stderr.contains("--include-dirty"), "{refused:?}");
    scene.submit_folder("repo", &["--include-dirty"]).await?.into_stdout()?;
    scene.submit_folder("repo", &["--commit", "HEAD~1"]).await?.into_stdout()?;
    let id = scene.play_script("repo", SCRIPT, &["--include-dirty", "--branch", "made-by-run"]).await?;
    run_every_command(&scene, &id).await?;
    let fired = scene.take_fired_traps()?;
    ensure!(fired.is_empty(), "docket ran {fired:?}");

    let mut seen = BTreeSet::new();
    let mut expected = BTreeSet::new();
    for (hook, args) in HOOKS {
        expected.insert(hook.to_owned());
        seen.extend(
            run_control(&scene, None, &[&["-c", "core.hooksPath=.git/hooks"][..], args].concat()).await?,
        );
    }
    for (key, name, args) in SETTINGS.iter().filter(|(_, _, args)| !args.is_empty()) {
        expected.insert((*name).to_owned());
        seen.extend(run_control(&scene, Some(key), args).await?);
    }
    for (name, args) in [
        ("hooks-path", &["commit", "--allow-empty", "-m", "x"][..]),
        ("in-submodule", &["add", "-A"]),
        ("included", &["included"]),
        ("included-if", &["included-if"]),
        ("instead-of", &["-c", "protocol.ext.allow=always", "ls-remote", "https://nowhere.invalid/x"]),
    ] {
        expected.insert(name.to_owned());
        seen.extend(run_control(&scene, None, args).await?);
    }
    let harmless: Vec<_> = expected.difference(&seen).collect();
    ensure!(harmless.is_empty(), "traps that do not work, so nothing is known of them: {harmless:?}");
    Ok(())
}

/// Everything that a person does with a run.
async fn run_every_command(scene: &HostileRepository, id: &str) -> Result<()> {
    let (out, exported) = (scene.read_text("out"), scene.read_text("run.docket"));
    for args in [
        &["diff", id][..],
        &["diff", id, "--turn", "2", "--stat"],
        &["apply", id],
        &["apply", id, "--branch", "by-name"],
        &["checkout", id, &out],
        &["cat", id, "a.up"],
        &["blame", id, "a.up"],
        &["shell", id, "--then", "discard", "--", "git", "status"],
        &["replay", id],
        &["verify", id],
        &["export", id, "--output", &exported],
    ] {
        scene.run_docket(args).await?.into_stdout().with_context(|| format!("docket {args:?}"))?;
    }
    let other = HostileRepository::new()?;
    other.run_docket(&["import", &exported]).await?.into_stdout()?;
    let again = scene.read_text("again");
    other.run_docket(&["checkout", id, &again]).await?.into_stdout()?;
    let branches =
        scene.run_git("repo", &["for-each-ref", "--format=%(refname)", "refs/heads"]).await?.into_stdout()?;
    ensure!(["made-by-run", "by-name"].iter().all(|name| branches.contains(name)), "{branches}");
    Ok(())
}

/// What runs when git does this in a copy.
async fn run_control(
    scene: &HostileRepository,
    keeps: Option<&str>,
    args: &[&str],
) -> Result<BTreeSet<String>> {
    let copy = scene.path_in("copy");
    copy_folder(&scene.path_in("repo"), &copy)?;
    scene.take_fired_traps()?;
    if args.contains(&"fill") {
        run_with_input(TestProgram::Git, &copy, &[], args, b"protocol=https\nhost=nowhere.invalid\n\n")
            .await?;
    } else {
        // One trap at a time: some end git before it comes to another.
        let off = ["filter.pr.process=", "core.fsmonitor=false", "commit.gpgSign=false"];
        let off = off.iter().filter(|setting| !keeps.is_some_and(|kept| setting.starts_with(kept)));
        let off: Vec<&str> = off.flat_map(|setting| ["-c", setting]).collect();
        fixture::run_git_in(&copy, &[&off[..], args].concat()).await?;
    }
    fs::remove_dir_all(&copy)?;
    scene.take_fired_traps()
}

fn copy_folder(from: &std::path::Path, to: &std::path::Path) -> Result<()> {
    fs::create_dir(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() { copy_folder(&from, &to)? } else { fs::copy(from, to).map(|_| ())? }
    }
    Ok(())
}

async fn set_traps(scene: &HostileRepository) -> Result<()> {
    scene.make_repository("repo/sub", &[(".gitattributes", "*.in filter=in\n"), ("x.in", "1\n")]).await?;
    scene.make_repository("lent", &[("lent", "1\n")]).await?;
    let attributes = "*.up filter=up\n*.pr filter=pr\n*.tc diff=tc\n*.dc diff=dc\n*.mg merge=mg\n";
    let modules = "[submodule \"sub\"]\n\tpath = sub\n\turl = ./sub\n\tupdate = checkout\n";
    let files = ["a.up", "b.tc", "c.dc", "d.mg", "e.pr"].map(|name| (name, "original\n"));
    scene
        .make_repository(
            "repo",
            &[&[(".gitattributes", attributes), (".gitmodules", modules)][..], &files].concat(),
        )
        .await?;
    scene.git_output("repo", &["checkout", "-q", "-b", "other"]).await?;
    fs::write(scene.path_in("repo/d.mg"), "other\n")?;
    scene.git_output("repo", &["commit", "-q", "-a", "-m", "other"]).await?;
    scene.git_output("repo", &["checkout", "-q", "main"]).await?;
    fs::write(scene.path_in("repo/d.mg"), "main\n")?;
    scene.git_output("repo", &["commit", "-q", "-a", "-m", "main"]).await?;
    scene.git_output("repo/sub", &["config", "filter.in.clean", &scene.write_trap("in-submodule")?]).await?;
    fs::write(scene.path_in("repo/.git/objects/info/alternates"), scene.read_text("lent/.git/objects\n"))?;
    for (key, name, _) in SETTINGS {
        let program = scene.write_trap(name)?;
        let value = if matches!(name, "alias" | "update") { format!("!{program}") } else { program };
        scene.git_output("repo", &["config", key, &value]).await?;
    }
    for (key, value) in [
        ("commit.gpgSign", "true"),
        ("submodule.sub.url", "./sub"),
        ("core.hooksPath", "hooks-elsewhere"),
        ("include.path", "evil-include"),
        ("includeIf.gitdir:/.path", "evil-include-if"),
        (&format!("url.ext::{} %S .insteadOf", scene.write_trap("instead-of")?), "https://"),
        // For gits that know hooks in settings.
        ("hook.configured.event", "reference-transaction"),
        ("hook.configured.command", &scene.write_trap("configured-hook")?),
    ] {
        scene.git_output("repo", &["config", key, value]).await?;
    }
    for (file, name) in [("evil-include", "included"), ("evil-include-if", "included-if")] {
        let text = format!("[alias]\n\t{name} = !{}\n", scene.write_trap(name)?);
        fs::write(scene.path_in("repo/.git").join(file), text)?;
    }
    fs::create_dir_all(scene.path_in("repo/hooks-elsewhere"))?;
    let hooks = HOOKS.iter().map(|(hook, _)| (*hook, format!(".git/hooks/{hook}")));
    for (name, path) in hooks.chain([("hooks-path", "hooks-elsewhere/pre-commit".to_owned())]) {
        let program = fs::read(scene.write_trap(name)?)?;
        let path = scene.path_in("repo").join(path);
        fs::create_dir_all(path.parent().context("in a folder")?)?;
        fs::write(&path, program)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
    }
    for name in ["a.up", "b.tc", "c.dc", "e.pr", "sub/x.in"] {
        fs::write(scene.path_in("repo").join(name), "changed!\n")?;
    }
    // As long as what is committed, so that only its content tells.
    fs::write(scene.path_in("repo/sub/x.in"), "2\n")?;
    Ok(())
}

//! A bounded run of every fuzz target: its seeds as they are, then changed at random.

use std::{fs, path::PathBuf};

use anyhow::{Context as _, Result, ensure};
use docket_tests::fuzz::{FUZZ_TARGETS, FuzzTarget};
use proptest::{
    collection::vec,
    prelude::{any, prop_oneof},
    strategy::Strategy as _,
    test_runner::{Config, RngAlgorithm, TestRng, TestRunner},
};

/// What a change does to an input.
#[derive(Debug, Clone, Copy)]
enum InputChange {
    Flip(u16, u8),
    Insert(u16, u8),
    Cut(u16, u8),
    Repeat(u16, u8),
    /// Takes the rest from another seed.
    Splice(u16, u8),
    Word(u16, u8),
}

/// What breaks parsers, wherever it stands.
const WORDS: [&[u8]; 16] = [
    b"\0",
    b"\xff\xfe",
    b"\xed\xa0\x80",
    "\u{202e}".as_bytes(),
    b"..",
    b"/",
    b"%%\n",
    b"\r\n",
    b"18446744073709551616",
    b"-1",
    b"1e999",
    b"null",
    b"{\"a\":",
    b"[[[[[[[[",
    b"\\ud800",
    b"'\"`$(",
];

fn read_seeds(target: &FuzzTarget) -> Result<Vec<Vec<u8>>> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus").join(target.name);
    let mut files: Vec<PathBuf> = fs::read_dir(&folder)
        .with_context(|| folder.display().to_string())?
        .flatten()
        .map(|e| e.path())
        .collect();
    files.sort();
    ensure!(files.len() >= 5, "too few seeds for {}", target.name);
    files.iter().map(|file| fs::read(file).context("a seed")).collect()
}

fn mutate_seed(seeds: &[Vec<u8>], seed: usize, changes: &[InputChange]) -> Vec<u8> {
    let mut input = seeds[seed % seeds.len()].clone();
    for change in changes {
        let at = |place: u16| usize::from(place) % (input.len() + 1);
        match *change {
            InputChange::Flip(place, by) => {
                let at = at(place);
                if let Some(byte) = input.get_mut(at) {
                    *byte ^= by;
                }
            }
            InputChange::Insert(place, byte) => input.insert(at(place), byte),
            InputChange::Cut(place, length) => {
                let from = at(place);
                input.drain(from..(from + usize::from(length)).min(input.len()));
            }
            InputChange::Repeat(place, length) => {
                let from = at(place);
                let part = input[from..(from + usize::from(length)).min(input.len())].repeat(3);
                input.splice(from..from, part);
            }
            InputChange::Splice(place, other) => {
                let from = at(place);
                let other = &seeds[usize::from(other) % seeds.len()];
                input.truncate(from);
                input.extend_from_slice(&other[from.min(other.len())..]);
            }
            InputChange::Word(place, word) => {
                let from = at(place);
                input.splice(from..from, WORDS[usize::from(word) % WORDS.len()].iter().copied());
            }
        }
    }
    input
}

fn run_bounded(name: &str) -> Result<()> {
    let target = FUZZ_TARGETS.iter().find(|target| target.name == name).context("a target")?;
    let seeds = read_seeds(target)?;
    seeds.iter().for_each(|seed| (target.run)(seed));
    let change = prop_oneof![
        (any::<u16>(), any::<u8>()).prop_map(|(at, by)| InputChange::Flip(at, by)),
        (any::<u16>(), any::<u8>()).prop_map(|(at, byte)| InputChange::Insert(at, byte)),
        (any::<u16>(), any::<u8>()).prop_map(|(at, length)| InputChange::Cut(at, length)),
        (any::<u16>(), any::<u8>()).prop_map(|(at, length)| InputChange::Repeat(at, length)),
        (any::<u16>(), any::<u8>()).prop_map(|(at, other)| InputChange::Splice(at, other)),
        (any::<u16>(), any::<u8>()).prop_map(|(at, word)| InputChange::Word(at, word)),
    ];
    let inputs = (any::<usize>(), vec(change, 1..8));
    // The same inputs each time, so that a change that breaks nothing breaks no build; for more, a number of rounds.
    let rounds: Option<u32> = std::env::var("DOCKET_FUZZ_ROUNDS").ok().and_then(|text| text.parse().ok());
    let cases = target.cases.saturating_mul(rounds.unwrap_or(1));
    let config = Config { cases, failure_persistence: None, ..Config::default() };
    let mut runner = match rounds {
        None => TestRunner::new_with_rng(config, TestRng::deterministic_rng(RngAlgorithm::ChaCha)),
        Some(_) => TestRunner::new(config),
    };
    runner
        .run(&inputs, |(seed, changes)| {
            (target.run)(&mutate_seed(&seeds, seed, &changes));
            Ok(())
        })
        .map_err(|error| anyhow::anyhow!("{name}: {error}"))
}

#[test]
fn fuzz_edits() -> Result<()> {
    run_bounded("edit")
}

#[test]
fn fuzz_patches() -> Result<()> {
    run_bounded("patch")
}

#[test]
fn fuzz_calls() -> Result<()> {
    run_bounded("call")
}

#[test]
fn fuzz_events() -> Result<()> {
    run_bounded("event")
}

#[test]
fn fuzz_policies() -> Result<()> {
    run_bounded("policy")
}

#[test]
fn fuzz_requests() -> Result<()> {
    run_bounded("http")
}

/// Each has its binary for `cargo fuzz`, under its own name.
#[test]
fn every_fuzz_target_has_a_binary_and_seeds() -> Result<()> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    let manifest = fs::read_to_string(root.join("fuzz/Cargo.toml"))?;
    let suite = fs::read_to_string(root.join("tests/it/fuzz.rs"))?;
    for target in FUZZ_TARGETS {
        let binary = fs::read_to_string(root.join(format!("fuzz/fuzz_targets/{}.rs", target.name)))?;
        ensure!(binary.contains(&format!("fuzz::run(\"{}\"", target.name)), "{binary}");
        ensure!(manifest.contains(&format!("name = \"{}\"", target.name)), "{} in the manifest", target.name);
        ensure!(suite.contains(&format!("bounded(\"{}\")", target.name)), "{} in the suite", target.name);
    }
    Ok(())
}

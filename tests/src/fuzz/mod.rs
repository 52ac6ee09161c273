//! Fuzz targets: one function for each parser reachable by untrusted input. Each takes any bytes and panics
//! if a guarantee is broken. `cargo fuzz` calls them endlessly (`tests/fuzz`), the `fuzz` suite with the
//! seeds of `tests/fuzz/corpus` and a bounded number of mutations.

mod calls;
mod edits;
mod events;
mod http;
mod policies;

/// A fuzz target.
pub struct FuzzTarget {
    /// Its name: the binary in `tests/fuzz/fuzz_targets`, and the folder of its seeds.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
    /// Number of mutated inputs that the suite tries; fewer if each is slow.
    pub cases: u32,
}

/// All targets.
pub const FUZZ_TARGETS: [FuzzTarget; 6] = [
    FuzzTarget { name: "edit", run: edits::fuzz_edit, cases: 2000 },
    FuzzTarget { name: "patch", run: edits::fuzz_patch, cases: 2000 },
    FuzzTarget { name: "call", run: calls::fuzz_call, cases: 1000 },
    FuzzTarget { name: "event", run: events::fuzz_event, cases: 4000 },
    FuzzTarget { name: "policy", run: policies::fuzz_policy, cases: 1000 },
    FuzzTarget { name: "http", run: http::fuzz_request, cases: 1000 },
];

/// Calls the target of this name.
///
/// # Panics
/// Panics if there is no such target, or if it found a bug.
pub fn run_target(name: &str, input: &[u8]) {
    let target = FUZZ_TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("no target {name}")).run)(input);
}

/// Splits an input at lines of `%%`.
fn split_input(input: &[u8]) -> Vec<Vec<u8>> {
    let mut pieces = vec![Vec::new()];
    for line in input.split_inclusive(|byte| *byte == b'\n') {
        if line == b"%%\n" {
            pieces.push(Vec::new());
        } else if let Some(last) = pieces.last_mut() {
            last.extend_from_slice(line);
        }
    }
    pieces
}

fn lossy_text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

//! What fuzzing calls: one function for each parser that strangers reach, which takes any bytes and panics where a
//! promise is broken. `cargo fuzz` calls them without end (`tests/fuzz`), the suite `fuzz` with the seeds of
//! `tests/fuzz/corpus` and a bounded number of changes to them.

mod calls;
mod edits;
mod events;
mod http;
mod rules;

/// One of them.
pub struct Target {
    /// Its name: of the binary in `tests/fuzz/fuzz_targets`, and of its folder of seeds.
    pub name: &'static str,
    /// Takes any bytes.
    pub run: fn(&[u8]),
    /// How many changed inputs the suite tries: fewer where each is slow.
    pub cases: u32,
}

/// All of them.
pub const TARGETS: [Target; 6] = [
    Target { name: "edit", run: edits::edit, cases: 2000 },
    Target { name: "patch", run: edits::patch, cases: 2000 },
    Target { name: "call", run: calls::call, cases: 1000 },
    Target { name: "event", run: events::event, cases: 4000 },
    Target { name: "policy", run: rules::policy, cases: 1000 },
    Target { name: "http", run: http::request, cases: 1000 },
];

/// Calls the target of this name.
///
/// # Panics
/// There is none, or it found something.
pub fn run(name: &str, input: &[u8]) {
    let target = TARGETS.iter().find(|target| target.name == name);
    (target.unwrap_or_else(|| panic!("no target {name}")).run)(input);
}

/// Pieces of an input that holds several: what stands between lines of `%%`.
fn pieces(input: &[u8]) -> Vec<Vec<u8>> {
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

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

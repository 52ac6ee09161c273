//! Backoff, and the words of the states.

use super::*;

#[test]
fn backoff_doubles_up_to_its_cap_and_jitters_by_a_quarter() {
    let backoff = Backoff { base_ms: 1000, max_ms: 60_000 };
    for (failures, centre) in [(1, 1000), (2, 2000), (3, 4000), (7, 60_000), (200, 60_000)] {
        for jitter in [0, 1, u64::MAX / 2, u64::MAX] {
            let delay = backoff.delay_ms(failures, jitter);
            assert!(delay >= centre * 3 / 4 && delay < centre * 5 / 4, "{failures}: {delay}");
        }
    }
    assert_eq!(Backoff { base_ms: 0, max_ms: 0 }.delay_ms(1, 7), 0);
}

#[test]
fn the_states_read_back() {
    for state in TaskState::ALL {
        assert_eq!(state.as_str().parse(), Ok(state));
        assert_eq!(serde_json::to_string(&state).expect("json"), format!("\"{state}\""));
    }
}

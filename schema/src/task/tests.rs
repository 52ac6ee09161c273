//! Backoff, and the words of the states.

use super::*;
use crate::message::ModelRef;

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

#[test]
fn a_models_address_is_one_that_may_be_asked_and_may_be_written_down() {
    let check = |text: &str| {
        let model = ModelRef { provider: "openai".into(), name: "x".into(), base_url: Some(text.into()) };
        check_model(&model)
    };
    for good in [
        "http://localhost:11434/v1",
        "https://h",
        "http://127.0.0.1:1/",
        "http://[::1]:80/v1",
        "HTTPS://h/a/b",
    ] {
        assert_eq!(check(good), Ok(()), "{good}");
    }
    for bad in [
        "",
        " ",
        "not a url",
        "localhost:11434",
        "ftp://h",
        "file:///etc/passwd",
        "http://",
        "http://user:pw@h/",
        "http://user@h/v1",
        "https://:pw@h",
        "http://h/v1?key=s",
        "http://h/#s",
        " http://h",
        "http://h:99999",
        "http://h h/",
    ] {
        let error = check(bad).expect_err(bad).to_string();
        assert!(error.contains("base_url") && error.contains("http"), "{error}");
    }
    let own = ModelRef { provider: "openai".into(), name: "x".into(), base_url: None };
    assert_eq!(check_model(&own), Ok(()));

    let unknown = ModelRef { provider: "llama".to_owned(), ..own };
    let error = check_model(&unknown).expect_err("no such provider");
    assert_eq!(error.field, "model.provider");
    assert!(ModelRef::PROVIDERS.iter().all(|name| error.must.contains(name)), "{error}");
}

#[test]
fn a_branch_has_a_name_that_git_takes() {
    for good in ["x", "fix/rounding", "a-b_c.d", "\u{fc}n\u{ef}", "@x", "a@b", "HEADS"] {
        assert!(spec::is_branch_name(good), "{good}");
    }
    let long = "x".repeat(300);
    for bad in [
        "", "-x", "a b", "a..b", "a/", "/a", "a//b", ".a", "a/.b", "a.lock", "a.lock/b", "a.", "a~1", "a^",
        "a:b", "a?", "a*", "a[b", "a\\b", "a@{b", "@", "HEAD", "a\nb", "a\u{7f}", &long,
    ] {
        assert!(!spec::is_branch_name(bad), "{bad}");
    }
}

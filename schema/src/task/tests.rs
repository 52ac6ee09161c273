//! Backoff, and the names of the states.

use super::*;
use crate::message::ModelRef;

#[test]
fn backoff_doubles_up_to_its_cap_and_jitters_by_a_quarter() {
    let backoff = Backoff { base_ms: 1000, max_ms: 60_000 };
    for (failures, centre) in [(1, 1000), (2, 2000), (3, 4000), (7, 60_000), (200, 60_000)] {
        for jitter in [0, 1, u64::MAX / 2, u64::MAX] {
            let delay = backoff.delay_ms(failures, jitter);
            assert!(delay >= centre * 3 / 4 && delay < centre * 5 / 4, "{failures}: {delay}");
            assert!(delay <= backoff.max_delay_ms());
        }
    }
    assert_eq!(Backoff { base_ms: 0, max_ms: 0 }.delay_ms(1, 7), 0);
}

/// A valid task.
fn valid_spec() -> TaskSpec {
    let blob = crate::content::BlobRef::for_bytes(b"tree");
    let base = serde_json::json!({ "manifest": blob, "tree": crate::ids::TreeHash::ZERO });
    let model = serde_json::json!({ "provider": "scripted", "name": "x" });
    let whole = serde_json::json!({ "title": "t", "text": "do it", "base": base, "model": model });
    serde_json::from_value(whole).expect("a task")
}

/// All entry points (HTTP, inbox, schedules, delegation, the command line) share this check.
#[test]
fn out_of_range_numbers_are_reported_with_their_field() {
    type Set = fn(&mut TaskSpec, i64);
    let max = i64::MAX;
    let table: [(&str, Set, &[i64], &[i64]); 13] = [
        (
            "priority",
            |task, n| task.priority = n as i16,
            &[-1000, 0, 1000],
            &[i16::MIN as i64, -1001, 1001, i16::MAX as i64],
        ),
        ("attempts_max", |task, n| task.attempts_max = n as u32, &[1, 100], &[0, 101, u32::MAX as i64]),
        ("crashes_max", |task, n| task.crashes_max = n as u32, &[1, u32::MAX as i64], &[0]),
        (
            "backoff.base_ms",
            |task, n| task.backoff = Backoff { base_ms: n as u64, max_ms: BACKOFF_MS_MAX },
            &[0, 2_592_000_000],
            &[2_592_000_001, max],
        ),
        (
            "backoff.max_ms",
            |task, n| task.backoff = Backoff { base_ms: 0, max_ms: n as u64 },
            &[0, 2_592_000_000],
            &[2_592_000_001, max],
        ),
        ("settings.turns_max", |task, n| task.settings.turns_max = Some(n as u32), &[1, 1000], &[0, 1001]),
        (
            "settings.corrections_max",
            |task, n| task.settings.corrections_max = Some(n as u32),
            &[0, 100],
            &[101],
        ),
        ("settings.tokens_max", |task, n| task.settings.tokens_max = Some(n as u64), &[1, max], &[0]),
        ("settings.cost_max_nusd", |task, n| task.settings.cost_max_nusd = Some(n as u64), &[1, max], &[0]),
        (
            "settings.time_max_ms",
            |task, n| task.settings.time_max_ms = Some(n as u64),
            &[1, 31_622_400_000],
            &[0, 31_622_400_001, max],
        ),
        (
            "settings.command_timeout_ms",
            |task, n| task.settings.command_timeout_ms = Some(n as u64),
            &[100, 3_600_000],
            &[0, 99, 3_600_001, max],
        ),
        (
            "settings.delegation_depth_max",
            |task, n| task.settings.delegation_depth_max = Some(n as u32),
            &[0, 8],
            &[9, u32::MAX as i64],
        ),
        ("settings.children_max", |task, n| task.settings.children_max = Some(n as u32), &[0, 64], &[65]),
    ];
    for (field, set, good, bad) in table {
        for n in good {
            let mut task = valid_spec();
            set(&mut task, *n);
            assert_eq!(task.check(), Ok(()), "{field} = {n}");
        }
        for n in bad {
            let mut task = valid_spec();
            set(&mut task, *n);
            assert_eq!(task.check().map_err(|error| error.field), Err(field), "{field} = {n}");
        }
    }
}

/// The wait of a retry is recorded in the log and must be a representable time.
#[test]
fn longest_backoff_gives_a_representable_instant() {
    let longest = Backoff { base_ms: BACKOFF_MS_MAX, max_ms: BACKOFF_MS_MAX };
    let now: crate::ids::Timestamp = "9000-01-01T00:00:00Z".parse().expect("an instant");
    let at = now.plus_ms(longest.delay_ms(u32::MAX, u64::MAX - 1));
    assert_eq!(at.to_string().parse(), Ok(at));
    let beyond = Backoff { base_ms: u64::MAX, max_ms: u64::MAX };
    assert_eq!(beyond.delay_ms(u32::MAX, u64::MAX / 2 - 1), u64::MAX);
}

#[test]
fn task_states_round_trip_as_text() {
    for state in TaskState::ALL {
        assert_eq!(state.as_str().parse(), Ok(state));
        assert_eq!(serde_json::to_string(&state).expect("json"), format!("\"{state}\""));
    }
}

#[test]
fn model_base_url_is_validated() {
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
fn branch_names_follow_git_rules() {
    for good in ["x", "fix/rounding", "a-b_c.d", "\u{fc}n\u{ef}", "@x", "a@b", "HEADS"] {
        assert!(task_spec::is_branch_name(good), "{good}");
    }
    let long = "x".repeat(300);
    for bad in [
        "", "-x", "a b", "a..b", "a/", "/a", "a//b", ".a", "a/.b", "a.lock", "a.lock/b", "a.", "a~1", "a^",
        "a:b", "a?", "a*", "a[b", "a\\b", "a@{b", "@", "HEAD", "a\nb", "a\u{7f}", &long,
    ] {
        assert!(!task_spec::is_branch_name(bad), "{bad}");
    }
}

//! A recorded log altered in memory, field by field, and what verification says of each.

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, bail, ensure};
use docket_schema::{
    event::{Envelope, Payload},
    ids::{DecisionHash, Seq, Turn},
};
use docket_tests::system::acquire_scenario_slot;
use docket_worker::{
    replay::{Divergence, FieldDifference, VerifyError, verify},
    run::BlobCache,
};
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _};

use super::{
    ReplayFixture, parse_lines,
    tools::{FICKLE, ToolReplayFixture},
};

/// Events that announce what an engine decided.
const INTENTS: [&str; 5] = ["PhaseChanged", "ModelRequested", "ToolRequested", "GateRequested", "RunEnded"];

/// Words of an enumeration and another one of it: a word that is none would not decode.
const OTHERS: [(&str, &str); 10] = [
    ("decide", "plan"),
    ("reads", "workspace"),
    ("workspace", "reads"),
    ("succeeded", "cancelled"),
    ("exploring", "planning"),
    ("testing", "planning"),
    ("creating", "planning"),
    ("editing", "planning"),
    ("fixing", "planning"),
    ("verifying", "planning"),
];

async fn find_divergence(played: &ReplayFixture, events: &[Envelope]) -> Result<Option<Divergence>> {
    let material = BlobCache::new(played.coordinator.client().clone());
    match verify(events, &material).await {
        Ok(verified) if verified.missing_intent.is_none() => Ok(None),
        Ok(_) => bail!("the log is said to end within an append"),
        Err(VerifyError::Diverged(divergence)) => Ok(Some(*divergence)),
        Err(error) => Err(error.into()),
    }
}

/// The payload with the leaf at `pointer` altered.
fn alter_leaf(payload: &Value, pointer: &str) -> Result<Value> {
    let mut payload = payload.clone();
    // Another verdict has other fields beside it.
    if pointer == "/policy/verdict" {
        payload["policy"] = json!({ "verdict": "deny", "rule": payload["policy"]["rule"], "reason": "no" });
        return Ok(payload);
    }
    let leaf = payload.pointer_mut(pointer).context("a pointer to a leaf")?;
    *leaf = match &*leaf {
        Value::String(text) if text.len() == 64 => {
            let first = if text.starts_with('0') { "1" } else { "0" };
            json!(format!("{first}{}", &text[1..]))
        }
        Value::String(text) => match OTHERS.iter().find(|(word, _)| word == text) {
            Some((_, other)) => json!(other),
            None => json!(format!("{text}x")),
        },
        Value::Number(number) => json!(number.as_u64().context("a count")? + 1),
        Value::Bool(said) => json!(!said),
        Value::Array(items) => json!([items.as_slice(), &[json!("more")]].concat()),
        other => bail!("no leaf: {other}"),
    };
    Ok(payload)
}

fn collect_leaves(value: &Value, at: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(fields) => {
            for (name, value) in fields {
                collect_leaves(value, &format!("{at}/{name}"), found);
            }
        }
        Value::Array(items) if !items.is_empty() => {
            for (nth, value) in items.iter().enumerate() {
                collect_leaves(value, &format!("{at}/{nth}"), found);
            }
        }
        Value::Null => {}
        Value::Array(_) | Value::String(_) | Value::Number(_) | Value::Bool(_) => found.push(at.to_owned()),
    }
}

/// Every field of every intent, altered alone, is found at its event and named with both values.
pub(super) async fn check_each_altered_field_is_named(played: &ReplayFixture) -> Result<()> {
    let events = &played.history.envelopes;
    ensure!(find_divergence(played, events).await?.is_none(), "the recorded run itself");
    let (mut kinds, mut fields) = (BTreeSet::new(), BTreeSet::new());
    for (place, event) in events.iter().enumerate().filter(|(_, e)| INTENTS.contains(&e.kind.as_str())) {
        let payload: Value = serde_json::from_str(event.payload.as_str())?;
        let mut pointers = Vec::new();
        collect_leaves(&payload, "", &mut pointers);
        kinds.insert(event.kind.clone());
        for pointer in pointers {
            let changed = alter_leaf(&payload, &pointer)?;
            let mut events = events[..=place].to_vec();
            events[place].payload = Payload::from_value(&changed)?;
            let named = format!("{} {pointer} at {}", event.kind, event.seq);
            let found = find_divergence(played, &events).await.with_context(|| named.clone())?;
            let found = found.with_context(|| format!("{named} is not found"))?;
            check_divergence(played, &found, event, &pointer, (&changed, &payload)).context(named)?;
            fields.insert(format!("{}{pointer}", event.kind));
        }
        let mut events = events[..=place].to_vec();
        events[place].turn = Turn(event.turn.0 + 1);
        let found = find_divergence(played, &events).await?.context("a turn that is altered")?;
        ensure!(found.fields[0].field == "turn" && found.seq == event.seq, "{found}");
    }
    ensure!(kinds.len() == INTENTS.len(), "not every intent was there: {kinds:?}");
    for field in [
        "ModelRequested/model/name",
        "ModelRequested/attempt",
        "ModelRequested/request",
        "ModelRequested/decision",
        "ToolRequested/tool",
        "ToolRequested/class",
        "ToolRequested/policy/rule",
        "GateRequested/gate/command",
        "PhaseChanged/phase",
        "RunEnded/tree",
    ] {
        ensure!(fields.contains(field), "{field} was not tried: {fields:?}");
    }
    Ok(())
}

fn check_divergence(
    played: &ReplayFixture,
    found: &Divergence,
    event: &Envelope,
    pointer: &str,
    (changed, payload): (&Value, &Value),
) -> Result<()> {
    ensure!(found.run == played.run && found.seq == event.seq && found.recorded == event.kind, "{found}");
    ensure!(found.derived == Some(found.recorded), "{found}");
    // An enumeration's tag decides which fields stand beside it.
    let named =
        |difference: &&FieldDifference| difference.field == pointer || pointer.starts_with(&difference.field);
    let difference = found.fields.iter().find(named).with_context(|| found.to_string())?;
    let at = difference.field.as_str();
    ensure!(difference.recorded.as_ref() == changed.pointer(at), "{found}");
    ensure!(difference.derived.as_ref() == payload.pointer(at), "{found}");
    Ok(())
}

fn renumber_events(mut events: Vec<Envelope>) -> Vec<Envelope> {
    for (event, seq) in events.iter_mut().zip(1..) {
        event.seq = Seq(seq);
    }
    events
}

/// Intents that are missing, doubled or in another order; an end without its decision; a cut append.
pub(super) async fn check_missing_or_extra_events_are_named(played: &ReplayFixture) -> Result<()> {
    let events = &played.history.envelopes;
    let place_of = |kind: &str| events.iter().position(|event| event.kind == kind).context(kind.to_owned());
    let tool = place_of("ToolRequested")?;
    ensure!(events[tool + 1].kind == "ToolRequested", "the first batch is one of several calls");

    let mut without = events.clone();
    without.remove(tool + 1);
    let found =
        find_divergence(played, &renumber_events(without)).await?.context("an intent that is missing")?;
    ensure!(found.seq.0 == tool as u64 + 2 && found.derived == Some("ToolRequested"), "{found}");

    let mut doubled = events.clone();
    doubled.insert(tool, events[tool].clone());
    let found = find_divergence(played, &renumber_events(doubled)).await?.context("an intent too many")?;
    ensure!(found.seq.0 == tool as u64 + 2 && found.fields[0].field == "/call", "{found}");

    let mut swapped = events.clone();
    let first = swapped[tool].payload.clone();
    swapped[tool].payload = swapped[tool + 1].payload.clone();
    swapped[tool + 1].payload = first;
    let found = find_divergence(played, &swapped).await?.context("intents in another order")?;
    ensure!(found.seq == events[tool].seq && found.fields.iter().any(|d| d.field == "/call"), "{found}");

    let phase = place_of("PhaseChanged")?;
    let mut silent = events.clone();
    silent.remove(phase);
    let found =
        find_divergence(played, &renumber_events(silent)).await?.context("a phase that is missing")?;
    ensure!(found.derived == Some("PhaseChanged") && found.recorded == "ToolRequested", "{found}");
    ensure!(found.fields[0].field == "kind", "{found}");

    let last = events.len() - 1;
    let mut undecided: Value = serde_json::from_str(events[last].payload.as_str())?;
    undecided.as_object_mut().context("an object")?.remove("decision");
    let mut changed = events.clone();
    changed[last].payload = Payload::from_value(&undecided)?;
    let found = find_divergence(played, &changed).await?.context("an end that nobody decided")?;
    ensure!(found.fields[0].field == "/decision" && found.fields[0].recorded.is_none(), "{found}");

    let material = BlobCache::new(played.coordinator.client().clone());
    let cut = verify(&events[..=tool], &material).await?;
    ensure!(cut.missing_intent == Some("ToolRequested"), "{cut:?}");
    let whole = verify(&events[..tool - 1], &material).await?;
    ensure!(whole.missing_intent.is_none(), "{whole:?}");
    Ok(())
}

/// A field altered in the database itself: the chain shows it, verification names the field, and the request
/// that it belongs to is not given out.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn field_altered_in_the_store_is_named_and_its_request_withheld() -> Result<()> {
    let _room = acquire_scenario_slot().await;
    let kept = ToolReplayFixture::play_run(FICKLE, "test -e then", &[]).await?;
    let request = ["replay", kept.id.as_str(), "--turn", "2", "--request"];
    let sent = kept.run_docket(&request, &[]).await?;
    ensure!(sent.success() && sent.stdout.starts_with('{'), "{sent:?}");

    let path = kept.home.path().join("docket.db");
    let mut raw = sqlx::SqliteConnection::connect(&format!("sqlite:{}", path.display())).await?;
    let other = "0".repeat(64);
    let sql = format!(
        "DROP TRIGGER events_refuse_update; UPDATE events SET payload = json_set(payload, '$.request', '{other}') \
         WHERE kind = 'ModelRequested' AND turn = 2"
    );
    let changed = sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut raw).await?;
    ensure!(changed.rows_affected() == 1, "{changed:?}");
    raw.close().await?;

    let refused = kept.run_docket(&request, &[]).await?;
    ensure!(refused.code() == Some(6) && refused.stdout.is_empty(), "{refused:?}");
    let hash = DecisionHash::hash_bytes(sent.stdout.as_bytes()).to_string();
    ensure!(refused.stderr.contains(&other) && refused.stderr.contains(&hash), "{refused:?}");
    let args = [request.as_slice(), &["--json"]].concat();
    let refused = kept.run_docket(&args, &[]).await?;
    ensure!(refused.code() == Some(6) && parse_lines(&refused.stdout)?[0]["proven"] == false, "{refused:?}");

    let verified = kept.run_docket(&["verify", &kept.id, "--tools", "--json"], &[]).await?;
    ensure!(verified.code() == Some(6), "{verified:?}");
    let reports = parse_lines(&verified.stdout)?;
    ensure!(reports.len() == 1, "what does not hold is not run again: {verified:?}");
    let field = &reports[0]["divergences"][0]["fields"][0];
    ensure!(field["field"] == "/request" && field["recorded"] == other.as_str(), "{verified:?}");
    ensure!(field["derived"] == hash.as_str() && reports[0]["faults_count"] == 2, "{verified:?}");
    let text = kept.run_docket(&["replay", &kept.id, "--verify"], &[]).await?;
    ensure!(text.code() == Some(6) && text.stdout.contains("`/request` is"), "{text:?}");
    Ok(())
}

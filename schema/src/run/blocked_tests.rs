//! The question of a blocked run, and what its model reads of the answer.

use super::{
    tests::{apply_event, fold_events, model_answered, model_requested, run_started},
    *,
};
use crate::{content::Content, ids::DecisionHash, message::MessagePart};

fn blocked_run(why: BlockedReason) -> RunState {
    let mut state = fold_events(&[
        (0, run_started()),
        (1, model_requested(1, 1)),
        (1, model_answered(1, "BLOCKED: which?", 0)),
    ]);
    let event =
        RunBlocked { question: "which?".into(), why, outages: 0, about: None, decision: DecisionHash::ZERO };
    apply_event(&mut state, 1, event.into()).expect("follows");
    state
}

fn answer_blocker(state: &mut RunState, text: &str) -> Vec<String> {
    let event = BlockerAnswered { text: text.into(), by: "me".into() };
    apply_event(state, 0, event.into()).expect("follows");
    let said = state.transcript.conversation(None);
    let texts = said.iter().skip(2).flat_map(|said| &said.message.parts).map(|part| match part {
        MessagePart::Text { text: Content::Text(text) } => text.clone(),
        other => format!("{other:?}"),
    });
    texts.collect()
}

#[test]
fn model_reads_the_answer_and_the_engines_question() {
    for (why, words) in [
        (BlockedReason::Model, &["A person answers your question:", "this"][..]),
        (
            BlockedReason::Escalated,
            &["The run stopped and asked a person:", "which?", "The person answers:", "this"],
        ),
        (BlockedReason::Provider, &["A person says:", "this"]),
    ] {
        let mut state = blocked_run(why);
        assert_eq!(state.blocker.as_ref().map(|asked| asked.why), Some(why));
        assert_eq!(answer_blocker(&mut state, "this"), words);
        assert_eq!((&state.stage, &state.blocker), (&RunStage::Deciding, &None), "{why:?}");
    }
    let mut state = blocked_run(BlockedReason::Provider);
    assert_eq!(answer_blocker(&mut state, ""), Vec::<String>::new(), "nothing to tell");
}

//! What a blocked run asks, and what its model reads of the answer.

use super::{
    tests::{answered, asked, folded, push, started},
    *,
};
use crate::{content::Content, ids::DecisionHash, message::Part};

fn blocked(why: BlockedWhy) -> RunState {
    let mut state = folded(&[(0, started()), (1, asked(1, 1)), (1, answered(1, "BLOCKED: which?", 0))]);
    let event =
        RunBlocked { question: "which?".into(), why, outages: 0, about: None, decision: DecisionHash::ZERO };
    push(&mut state, 1, event.into()).expect("follows");
    state
}

fn answer(state: &mut RunState, text: &str) -> Vec<String> {
    let event = BlockerAnswered { text: text.into(), by: "me".into() };
    push(state, 0, event.into()).expect("follows");
    let said = state.transcript.conversation(None);
    let texts = said.iter().skip(2).flat_map(|said| &said.message.parts).map(|part| match part {
        Part::Text { text: Content::Text(text) } => text.clone(),
        other => format!("{other:?}"),
    });
    texts.collect()
}

#[test]
fn the_model_reads_the_answer_and_the_question_it_has_not_asked_itself() {
    for (why, words) in [
        (BlockedWhy::Model, &["A person answers your question:", "this"][..]),
        (
            BlockedWhy::Escalated,
            &["The run stopped and asked a person:", "which?", "The person answers:", "this"],
        ),
        (BlockedWhy::Provider, &["A person says:", "this"]),
    ] {
        let mut state = blocked(why);
        assert_eq!(state.asked.as_ref().map(|asked| asked.why), Some(why));
        assert_eq!(answer(&mut state, "this"), words);
        assert_eq!((&state.stage, &state.asked), (&Stage::Deciding, &None), "{why:?}");
    }
    let mut state = blocked(BlockedWhy::Provider);
    assert_eq!(answer(&mut state, ""), Vec::<String>::new(), "nothing to tell");
}

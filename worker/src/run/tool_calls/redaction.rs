//! Redacts secrets from the facts of a result before it is recorded. Pure.

use docket_schema::{
    redact::Redactor,
    tool::{NotRun, ToolFacts},
};

/// Redacts the free text in a result's facts.
pub(in crate::run) fn redact_facts(redactor: &Redactor, facts: ToolFacts) -> ToolFacts {
    let signature = facts.error_signature.as_deref().map(|text| redactor.redact_text(text).into_owned());
    let failing = facts.failing.iter().map(|name| redactor.redact_text(name).into_owned()).collect();
    let network = facts.network.map(|mut seen| {
        // A refused name may contain data that a command tried to exfiltrate.
        let places = seen.reached.iter_mut().map(|one| &mut one.place);
        let refused = seen.refused.iter_mut().flat_map(|one| [&mut one.place, &mut one.why]);
        for text in places.chain(refused) {
            *text = redactor.redact_text(text).into_owned();
        }
        seen
    });
    let not_run = facts.not_run.map(|why| NotRun {
        reason: redactor.redact_text(&why.reason).into_owned(),
        missing: why.missing.as_deref().map(|name| redactor.redact_text(name).into_owned()),
        uncollected: why.uncollected.iter().map(|name| redactor.redact_text(name).into_owned()).collect(),
        ..why
    });
    ToolFacts { error_signature: signature, failing, network, not_run, ..facts }
}

//! The final checks: their intents, their results, and what mends them.

use crate::{
    message::Part,
    run::{
        config::{pin::GateSpec, unverified_policy::UnverifiedPolicy},
        events::work::{BaseChecked, GateFinished, GateRequested, GateStep},
        state::{
            checks::{
                check_verdict::{CheckResult, CheckVerdict, OldFailures},
                known_failures::listed,
                quality::CheckEnd,
            },
            run_state::{RunState, UndecidedCheck},
            stage::Stage,
            work::FailedCheck,
        },
    },
    tool::{LintStatus, ToolFacts},
};

impl RunState {
    pub(super) fn base_checked(&mut self, event: &BaseChecked) -> Result<(), String> {
        self.require_deciding()?;
        self.base_checked = true;
        self.known_failures.base_checked(event);
        Ok(())
    }

    pub(super) fn gate_requested(&mut self, event: GateRequested) -> Result<(), String> {
        match self.stage {
            Stage::Deciding if self.mend_rules() > 0 && !event.step.is_check() => self.mend_changed = false,
            Stage::Deciding => {
                self.round_failed = false;
                self.known_failures.round_begins();
                self.round_mends.clear();
                self.round_notes.clear();
                self.failed_checks.clear();
                self.work.failed_checks.clear();
                self.work.checks.clear();
                self.undecided.clear();
                self.undecided_due = false;
            }
            Stage::Gates => {}
            _ => return Err(String::new()),
        }
        self.gates_in_turn += 1;
        self.open_gates.push(event);
        self.stage = Stage::Gates;
        Ok(())
    }

    pub(super) fn gate_finished(&mut self, event: GateFinished) -> Result<(), String> {
        let Some(at) = self.open_gates.iter().position(|open| open.call == event.call) else {
            return Err(format!(": {} has no intent", event.call));
        };
        let open = self.open_gates.remove(at);
        self.outputs.extend(event.full.map(|blob| (event.call.clone(), blob)));
        match open.step {
            GateStep::Check => self.checked(open.gate, event),
            GateStep::Mend => self.mend_finished(open.gate, event),
        }
        Ok(())
    }

    fn checked(&mut self, gate: GateSpec, event: GateFinished) {
        let old = self.old_failures(&gate);
        let end = CheckResult::from_facts(event.passed, &event.facts);
        let judged = self.known_failures.judge(&gate.name, &end, old);
        let verdict = if gate.is_linter() { judged.of_linter() } else { judged };
        if !verdict.fails() {
            let missing = event.facts.lint.iter().filter(|seen| seen.status == LintStatus::Missing);
            self.linters_missing.extend(missing.map(|seen| seen.linter.clone()));
        }
        self.work.checks.push(CheckEnd {
            call: event.call.clone(),
            name: gate.name.clone(),
            command: gate.command.clone(),
            verdict,
            not_run: event.facts.not_run.clone(),
            content: event.content.clone(),
            tests: event.facts.tests,
            failing: event.facts.failing.clone(),
            duration_ms: event.duration_ms,
        });
        match (verdict, event.facts.not_run.clone()) {
            (CheckVerdict::Passed | CheckVerdict::Excused, _) => {}
            (CheckVerdict::Undecided, Some(why)) => self.undecided.push(UndecidedCheck { gate, why }),
            (CheckVerdict::Failed | CheckVerdict::Lost | CheckVerdict::Undecided, _) => {
                self.check_failed(gate, event, verdict);
            }
        }
        // What may yet be mended is not told before it is known to stay.
        if self.round_mends.is_empty() && !self.may_be_mended() {
            self.round_notes.drain(..).for_each(|note| self.transcript.note(note));
        }
        if self.open_gates.is_empty() {
            self.end_round();
        }
    }

    /// The check failed, and the model is to hear of it.
    fn check_failed(&mut self, gate: GateSpec, event: GateFinished, verdict: CheckVerdict) {
        self.round_failed = true;
        self.failed_checks.push(in_short(&gate, &event.facts));
        let mut text =
            format!("The final check `{}` (`{}`) failed. Mend the cause.", gate.name, gate.command);
        if let (CheckVerdict::Lost, Some(why)) = (verdict, &event.facts.not_run) {
            let base = self.known_failures.at_start(&gate.name);
            let before = match base.and_then(CheckResult::not_run) {
                Some(_) => "came further before your work than it does now",
                None => "ran before your work and does not run now",
            };
            text = format!(
                "The final check `{}` (`{}`) {before}: {}. A check that does not run is a failed one. Fix what keeps \
                 it from running.",
                gate.name, gate.command, why.reason
            );
        }
        text.push_str(&self.known_failures.words(&event.facts, self.old_failures(&gate)));
        self.round_notes.push(Part::Text { text: text.into() });
        self.work.failed_checks.push(FailedCheck { name: gate.name.clone(), content: event.content.clone() });
        self.round_notes.push(Part::Text { text: event.content });
        let hangs = self.mend_rules() > 0 && event.facts.timed_out;
        let runs = event.facts.not_run.is_none() || !gate.is_linter();
        if gate.mend.is_some() && !self.mended && !hangs && runs {
            self.round_mends.push(gate);
        }
    }

    /// Whether what failed before the run may fail at its end: only of tests that docket found by itself.
    fn old_failures(&self, gate: &GateSpec) -> OldFailures {
        let found = self.pins.as_ref().is_some_and(|pins| pins.tests.is_none());
        if found && gate.name == "tests" { OldFailures::Excused } else { OldFailures::Held }
    }

    /// Every check of the round has its result.
    fn end_round(&mut self) {
        self.stage = Stage::Deciding;
        self.undecided_due = !self.round_failed && self.has_unsettled_checks();
        let passed = !self.round_failed && !self.undecided_due;
        self.gates_passed = passed;
        self.work.checked = Some(passed);
        self.fixing = self.round_failed;
        self.mends_due = std::mem::take(&mut self.round_mends);
        self.tests_passed &= !self.round_failed;
        if self.round_failed && self.mends_due.is_empty() {
            self.back_to_the_model();
        }
    }

    /// Whether a check decided nothing, and neither a setting nor a person says what follows.
    fn has_unsettled_checks(&self) -> bool {
        let policy = self.pins.as_ref().map_or(UnverifiedPolicy::Ask, |pins| pins.settings.unverified);
        let completes = policy == UnverifiedPolicy::Complete;
        !completes && self.undecided.iter().any(|check| !self.waived_checks.contains(&check.gate.name))
    }

    fn back_to_the_model(&mut self) {
        self.round_notes.drain(..).for_each(|note| self.transcript.note(note));
        self.corrections += 1;
        self.answered_without_tools = false;
    }

    fn mend_rules(&self) -> u32 {
        self.pins.as_ref().map_or(0, |pins| pins.settings.mend_rules)
    }

    /// Whether a check of this round that has no result yet could be mended.
    fn may_be_mended(&self) -> bool {
        !self.mended && self.open_gates.iter().any(|open| open.gate.mend.is_some())
    }

    fn mend_finished(&mut self, gate: GateSpec, event: GateFinished) {
        self.mended = true;
        self.mends_due.retain(|due| *due != gate);
        // A linter's own fix may change what is not looked at here.
        let has_own = gate.mend.is_some_and(|mend| mend.command.is_some());
        self.mend_changed |= has_own || !event.facts.changed.is_empty();
        if !event.facts.changed.is_empty() {
            // Should the run end now, nobody needs to be told.
            self.transcript.aside(Part::Text { text: event.content });
            self.files_written.extend(event.facts.changed);
        }
        if self.open_gates.is_empty() {
            self.stage = Stage::Deciding;
            self.mends_due.clear();
            if self.mend_rules() > 0 && !self.mend_changed {
                self.back_to_the_model();
            } else {
                self.work.checked = None;
            }
        }
    }
}

/// A check that failed: its name, and the little that is known of why.
fn in_short(gate: &GateSpec, facts: &ToolFacts) -> String {
    let why = match facts.exit {
        _ if facts.timed_out => "it did not end in time".to_owned(),
        _ if !facts.failing.is_empty() => listed(&facts.failing.iter().cloned().collect()),
        _ if facts.tests.is_some_and(|tests| tests.total() == 0) => "no test was run".to_owned(),
        _ if facts.not_run.as_ref().is_some_and(|why| !why.by_run) => {
            facts.not_run.as_ref().map(|why| why.reason.clone()).unwrap_or_default()
        }
        // A linter's status says nothing that its name does not.
        Some(status) if gate.name == "tests" => format!("exit status {status}"),
        Some(_) | None => return gate.name.clone(),
    };
    format!("{} ({why})", gate.name)
}

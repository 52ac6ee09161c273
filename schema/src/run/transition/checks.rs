//! The final checks: their intents, their results, and what mends them.

use crate::{
    message::Part,
    run::{
        event_work::{BaseChecked, GateFinished, GateRequested, GateStep},
        known_failures::listed,
        pin::GateSpec,
        quality::CheckEnd,
        state::{RunState, Stage},
        work::FailedCheck,
    },
    tool::{LintStatus, ToolFacts},
};

impl RunState {
    pub(super) fn base_checked(&mut self, event: &BaseChecked) -> Result<(), String> {
        self.require_deciding()?;
        self.base_checked = true;
        self.known_failures.at_base(event);
        Ok(())
    }

    pub(super) fn gate_requested(&mut self, event: GateRequested) -> Result<(), String> {
        match self.stage {
            Stage::Deciding if self.mend_rules() > 0 && !event.step.is_check() => self.mend_changed = false,
            Stage::Deciding => {
                self.round_failed = false;
                self.round_for_model = false;
                self.known_failures.round_begins();
                self.round_mends.clear();
                self.round_notes.clear();
                self.failed_checks.clear();
                self.work.failed_checks.clear();
                self.work.checks.clear();
                self.unrunnable = None;
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
        let missing = event.facts.lint.iter().filter(|seen| seen.status == LintStatus::Missing);
        self.linters_missing.extend(missing.map(|seen| seen.linter.clone()));
        match open.step {
            GateStep::Check => self.checked(open.gate, event),
            GateStep::Mend => self.mend_finished(open.gate, event),
        }
        Ok(())
    }

    fn checked(&mut self, gate: GateSpec, event: GateFinished) {
        let found = self.pins.as_ref().is_some_and(|pins| pins.tests.is_none());
        let excused = gate.name == "tests" && found && self.known_failures.excuse(&event.facts);
        self.work.checks.push(CheckEnd {
            call: event.call.clone(),
            name: gate.name.clone(),
            command: gate.command.clone(),
            passed: event.passed,
            excused,
            content: event.content.clone(),
            tests: event.facts.tests,
            failing: event.facts.failing.clone(),
            duration_ms: event.duration_ms,
        });
        if event.passed || excused {
            // Nothing is to be told.
        } else if let Some(what) = event.facts.missing {
            self.round_failed = true;
            self.failed_checks.push(format!("{} ({what} is not there)", gate.name));
            self.unrunnable = Some((gate, what));
        } else {
            self.round_failed = true;
            self.round_for_model = true;
            self.failed_checks.push(in_short(&gate, &event.facts));
            let mut text =
                format!("The final check `{}` (`{}`) failed. Mend the cause.", gate.name, gate.command);
            text.push_str(&self.known_failures.words(&event.facts, found && gate.name == "tests"));
            self.round_notes.push(Part::Text { text: text.into() });
            self.work
                .failed_checks
                .push(FailedCheck { name: gate.name.clone(), content: event.content.clone() });
            self.round_notes.push(Part::Text { text: event.content });
            let hangs = self.mend_rules() > 0 && event.facts.timed_out;
            if gate.mend.is_some() && !self.mended && !hangs {
                self.round_mends.push(gate);
            }
        }
        // What may yet be mended is not told before it is known to stay.
        if self.round_mends.is_empty() && !self.may_be_mended() {
            self.round_notes.drain(..).for_each(|note| self.transcript.note(note));
        }
        if self.open_gates.is_empty() {
            self.stage = Stage::Deciding;
            self.gates_passed = !self.round_failed;
            self.work.checked = Some(!self.round_failed);
            self.fixing = self.round_failed;
            self.mends_due = std::mem::take(&mut self.round_mends);
            self.tests_passed &= !self.round_failed;
            if self.round_failed && self.mends_due.is_empty() {
                self.back_to_the_model();
            }
        }
    }

    fn back_to_the_model(&mut self) {
        self.round_notes.drain(..).for_each(|note| self.transcript.note(note));
        // Where all that failed cannot run, there is nothing to correct.
        if self.round_for_model {
            self.corrections += 1;
            self.answered_without_tools = false;
        }
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
        // A linter's status says nothing that its name does not.
        Some(status) if gate.name == "tests" => format!("exit status {status}"),
        Some(_) | None => return gate.name.clone(),
    };
    format!("{} ({why})", gate.name)
}

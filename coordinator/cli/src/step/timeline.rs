//! A run's timeline for programs: the stepper's rows as the API hands them out. Pure.

use std::collections::{BTreeMap, BTreeSet};

use docket_schema::{
    event::{DecodeError, TypedEvent as _},
    ids::{RunId, Seq, TaskId, Turn},
    run::{History, RunEvent, RunOutcome},
    wire::{Timeline, TimelineTurn, ToolCount},
};

use super::{
    compare,
    detail::Detail,
    skeleton::{Read, Row, Run, Standing},
};
use crate::events;

/// The timeline of `run`, which is of `task`, and of whose own stream `head` is the last event known.
///
/// # Errors
/// This build does not know an event.
pub(crate) fn timeline(
    (run, task): (RunId, TaskId),
    head: Seq,
    history: &History,
) -> Result<Timeline, DecodeError> {
    let mut cut = Run::new(run);
    let read: Result<Vec<Read>, DecodeError> = history.events().iter().cloned().map(Read::of).collect();
    cut.extend(read?);
    let (opens_at, opens_why) = opening(&cut);
    let ended: BTreeSet<Turn> =
        history.turns().iter().filter(|span| span.end.is_some()).map(|span| span.turn).collect();
    let roles = roles(history)?;
    let turns = cut.rows.iter().map(|row| turn(&cut, row, &ended, &roles)).collect();
    let pins = history.state().pins.as_deref();
    Ok(Timeline {
        run,
        task,
        head,
        engine: pins.map(|pins| pins.engine.to_string()),
        models: pins.map(|pins| pins.models.to_string()),
        commit: pins.and_then(|pins| pins.base.git.as_ref()).map(|git| git.commit.clone()),
        standing: cut.standing.word().to_owned(),
        why: why(&cut.standing, history),
        opens_at: opens_at.0,
        opens_why,
        turns,
    })
}

fn opening(run: &Run) -> (Turn, String) {
    let last = run.rows.last().map_or(Turn(0), |row| row.turn);
    match &run.standing {
        // Whoever opens what went well wants to see what came of it.
        Standing::Ended(RunOutcome::Succeeded | RunOutcome::Cancelled | RunOutcome::Superseded) => {
            (last, format!("{} after {last} turns", run.standing.word()))
        }
        Standing::Ended(RunOutcome::Failed { .. })
        | Standing::Open
        | Standing::Paused
        | Standing::Blocked => {
            let (row, why) = run.opening();
            (run.rows.get(row).map_or(last, |row| row.turn), why)
        }
    }
}

fn why(standing: &Standing, history: &History) -> String {
    match standing {
        Standing::Ended(RunOutcome::Failed { message, .. }) => message.clone(),
        Standing::Blocked => {
            let asked = history.state().asked.as_ref();
            asked.map_or_else(String::new, |asked| events::text_of(&asked.question))
        }
        Standing::Open
        | Standing::Paused
        | Standing::Ended(RunOutcome::Succeeded | RunOutcome::Cancelled | RunOutcome::Superseded) => {
            String::new()
        }
    }
}

/// Which role was at work at the end of each turn that began one.
fn roles(history: &History) -> Result<BTreeMap<Turn, String>, DecodeError> {
    let mut roles = BTreeMap::new();
    for span in history.turns() {
        let began = history.events()[span.events.clone()].iter().filter(|event| event.kind == "RoleBegan");
        for event in began {
            if let RunEvent::RoleBegan(e) =
                RunEvent::decode(&event.kind, event.version, event.payload.as_str())?
            {
                roles.insert(span.turn, e.role);
            }
        }
    }
    Ok(roles)
}

fn turn(run: &Run, row: &Row, ended: &BTreeSet<Turn>, roles: &BTreeMap<Turn, String>) -> TimelineTurn {
    let events = run.events.get(row.events.clone()).unwrap_or_default();
    let (decided, results) = compare::names(&Detail::of(run, row));
    let input = row.usage;
    TimelineTurn {
        turn: row.turn.0,
        phase: row.phase.map(|phase| phase.as_str().to_owned()),
        // A role begins behind the turn before its first.
        role: roles.range(..row.turn).next_back().map(|(_, role)| role.clone()),
        tools: row
            .tools
            .iter()
            .map(|(name, calls)| ToolCount { name: name.clone(), calls: *calls })
            .collect(),
        fate: row.fate.word().into_owned(),
        failed: row.fate.is_failure(),
        ended: ended.contains(&row.turn),
        changed_files: events.iter().any(|event| event.kind == "SnapshotTaken"),
        end_hash: events.last().map(|event| event.hash.to_string()).unwrap_or_default(),
        decided,
        results,
        input_tokens: input.input_tokens + input.cache_read_tokens + input.cache_write_tokens,
        output_tokens: input.output_tokens,
        cost_nusd: row.cost_nusd,
        cost_so_far_nusd: row.cost_so_far_nusd,
        began_at: row.began_at,
        ended_at: row.ended_at,
    }
}

//! What whoever chooses tasks remembers from one choice to the next: whose turn it is, and, on PostgreSQL, from where on
//! to look for tasks.
//!
//! A task that was leased leaves an entry in the index of what may be leased, which only a vacuum takes away; and no
//! vacuum does while somebody holds a snapshot from before, a long report say. Whoever began at each flow's beginning
//! would step over all of them at each lease. So a coordinator remembers the flows there are, and of each the place
//! of the first task that it saw: before that place there was nothing to lease. What another coordinator makes
//! available before it is found by the next look at the whole, of which there is one a second, or fewer where it
//! takes long: at most a twentieth of the time goes into it.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use docket_schema::{ids::TaskId, task::TaskRecord};

use crate::decide::Turns;

/// The usual time between two looks at the whole.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A look that takes less is made whenever nothing was found.
const CHEAP: Duration = Duration::from_millis(5);
/// A look takes at most this part of the time.
const SHARE: u32 = 20;

/// A place in a flow: rank and task.
pub(super) type PlaceInFlow = (i64, TaskId);

/// The beginning of a flow.
pub(super) const BEGINNING: PlaceInFlow = (i64::MIN, TaskId(uuid::Uuid::nil()));

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Lookout {
    flows: BTreeMap<String, PlaceInFlow>,
    looked: Option<(Instant, Duration)>,
    /// Who was served when.
    pub(super) turns: Turns,
    /// Where there are more flows than are looked at together: behind those that were.
    pub(super) next_window: usize,
}

impl Lookout {
    /// The flows and places, where they may be gone by.
    pub(super) fn known(&self) -> Option<&BTreeMap<String, PlaceInFlow>> {
        self.looked.filter(|(at, took)| at.elapsed() < LOOK_EVERY.max(*took * SHARE)).map(|_| &self.flows)
    }

    /// Whether nothing was found, and it is time to look at the whole again.
    pub(super) fn may_look_again(&self) -> bool {
        self.looked.is_none_or(|(at, took)| took < CHEAP || at.elapsed() >= took * SHARE)
    }

    /// The whole was looked at: these flows there are.
    pub(super) fn looked(&mut self, flows: impl Iterator<Item = String>, took: Duration) {
        self.flows = flows.map(|flow| (flow, BEGINNING)).collect();
        self.looked = Some((Instant::now(), took));
    }

    /// How long a look at the whole took in the end, with the first tasks of each flow.
    pub(super) fn took(&mut self, took: Duration) {
        self.looked = Some((Instant::now(), took));
    }

    /// The first task of a flow that is there stands here; none = it holds none.
    pub(super) fn begins_at(&mut self, flow: &str, first: Option<PlaceInFlow>) {
        match (self.flows.get_mut(flow), first) {
            (Some(place), Some(first)) => *place = first,
            (Some(_), None) => drop(self.flows.remove(flow)),
            (None, _) => {}
        }
    }

    /// A task of this coordinator's may be leased now.
    pub(super) fn available(&mut self, flow: String, record: &TaskRecord) {
        self.comes_before(flow, (record.rank(), record.id));
    }

    fn comes_before(&mut self, flow: String, here: PlaceInFlow) {
        let place = self.flows.entry(flow).or_insert(here);
        *place = here.min(*place);
    }
}

/// What a coordinator's other writers make available, for the one that leases.
#[derive(Debug, Clone, Default)]
pub(super) struct News(Arc<Mutex<Lookout>>);

impl News {
    /// What a writer's committed transaction made available: all that its own lookout, empty before, holds.
    pub(super) fn tell(&self, made: Lookout) {
        if !made.flows.is_empty() {
            let mut told = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            made.flows.into_iter().for_each(|(flow, here)| told.comes_before(flow, here));
        }
    }

    /// Takes over what was told.
    pub(super) fn hear(&self, lookout: &mut Lookout) {
        let told = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        told.flows.into_iter().for_each(|(flow, here)| lookout.comes_before(flow, here));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_go_on_and_come_back_for_what_is_put_before_them() {
        let id = |n| TaskId(uuid::Uuid::from_u128(n));
        let mut lookout = Lookout::default();
        assert!(lookout.known().is_none() && lookout.may_look_again());
        lookout.looked(["a".to_owned(), "b".to_owned()].into_iter(), Duration::ZERO);
        assert!(lookout.may_look_again(), "a cheap one");
        lookout.begins_at("a", Some((7, id(1))));
        lookout.begins_at("b", None);
        lookout.begins_at("c", Some((1, id(1))));
        let known = |lookout: &Lookout| lookout.known().expect("fresh").clone();
        assert_eq!(known(&lookout), BTreeMap::from([("a".to_owned(), (7, id(1)))]));
        // What another writer made available, twice before this one asks.
        let news = News::default();
        for rank in [5, 6] {
            let mut made = Lookout::default();
            made.comes_before("a".to_owned(), (rank, id(2)));
            news.tell(made);
        }
        news.hear(&mut lookout);
        news.hear(&mut lookout);
        assert_eq!(known(&lookout), BTreeMap::from([("a".to_owned(), (5, id(2)))]));
        // A look that took long is good for long.
        lookout.looked(["a".to_owned()].into_iter(), Duration::from_secs(60));
        assert!(!lookout.may_look_again());
    }
}

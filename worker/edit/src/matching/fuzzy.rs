//! The loosest level: similarity, fenced in by a margin over the runner-up and by a guard that the
//! statement is the same.

use docket_schema::tool::EditLevel;

use super::{blanks::fill_blanks, distance::Compared};
use crate::{
    doc::Doc,
    found::{Found, Miss},
    guard::statement::{Context, Likeness, compare, is_word_of_sentence},
    pattern::ModelLines,
    similarity::{align_lines, line_similarity},
    text::collapse,
};

/// Least similarity at which a region is taken for what the search quotes.
const SIMILARITY_MIN: f64 = 0.85;
/// Windows may have this many lines more or less than the search.
const WINDOW_SLACK: usize = 2;
/// Runners-up are looked for down to this similarity.
const RUNNER_UP_MIN: f64 = 0.70;
/// Windows that get an exact comparison. A file with more rivals than these has no one place.
const COMPARED_MAX: usize = 600;
/// Words of distance tables that a search for the place may need: it bounds the time of one edit.
const PLACE_WORDS_MAX: usize = 20_000_000;
/// The same where only lines to show are looked for; the best fits come first.
const HINT_WORDS_MAX: usize = 4_000_000;
/// Windows that are compared where only lines to show are looked for.
const HINTS_COMPARED_MAX: usize = 24;
/// A region must be at least this similar to be worth showing.
const WORTH_SHOWING: f64 = 0.35;
/// Searches with fewer characters are too short for similarity to mean anything.
const SEARCH_CHARS_MIN: usize = 12;
/// Searches with more characters are not compared by similarity: time grows with the square.
const SEARCH_CHARS_MAX: usize = 12_000;

/// A stretch of solid lines of the file and how far it is from the search.
#[derive(Debug, Clone)]
pub(crate) struct Window {
    /// Indices into [`Doc::solid`].
    pub(crate) range: std::ops::Range<usize>,
    distance: usize,
    pub(crate) similarity: f64,
}

/// Finds the place by similarity.
pub(crate) fn locate(doc: &Doc<'_>, model: &ModelLines) -> Result<Found, Miss> {
    let solid = model.solid();
    let said: Vec<String> = solid.iter().map(|at| collapse(&model.search[*at])).collect();
    let chars: usize = said.iter().map(|line| line.chars().count()).sum();
    if chars < SEARCH_CHARS_MIN {
        return Err(Miss::Absent);
    }
    let windows = best_windows(doc, &said, Wanted::Place);
    let Some(best) = windows.first().filter(|window| window.similarity > SIMILARITY_MIN) else {
        return Err(Miss::Absent);
    };
    let lines = |window: &Window| doc.solid[window.range.start]..doc.solid[window.range.end - 1] + 1;
    let apart =
        |window: &&Window| window.range.start >= best.range.end || window.range.end <= best.range.start;
    let near = best.distance + margin(chars, best.distance);
    if let Some(second) = windows.iter().find(apart).filter(|second| second.distance < near) {
        return Err(Miss::Ambiguous { places: vec![lines(best), lines(second)], alike: true });
    }
    let mut places = align_lines(&said, &doc.collapsed()[best.range.clone()]);
    pair_gaps(&mut places, best.range.len());
    if !same_statements(doc, model, &said, &solid, best, &places) {
        return Err(Miss::Doubtful(lines(best)));
    }
    let mut align = vec![None; model.search.len()];
    for (at, place) in solid.iter().zip(&places) {
        align[*at] = place.map(|place| doc.solid[best.range.start + place]);
    }
    fill_blanks(doc, &model.search, &mut align);
    Ok(Found { level: EditLevel::Fuzzy, search: model.search.clone(), replace: model.replace.clone(), align })
}

/// By how much the runner-up must be further from a search of `chars` characters than the best.
const fn margin(chars: usize, best: usize) -> usize {
    let share = chars / 50;
    (if share > 3 { share } else { 3 }) + best / 4
}

/// What windows are looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// The best and what is near enough to it to be its rival.
    Place,
    /// Whatever resembles the search enough to be shown.
    Hint,
}

/// The windows that are wanted, best first.
pub(crate) fn best_windows(doc: &Doc<'_>, said: &[String], wanted_for: Wanted) -> Vec<Window> {
    let floor = match wanted_for {
        Wanted::Place => RUNNER_UP_MIN,
        Wanted::Hint => WORTH_SHOWING,
    };
    let text: Vec<char> = said.join("\n").chars().collect();
    if text.is_empty() || text.len() > SEARCH_CHARS_MAX || doc.solid.is_empty() {
        return Vec::new();
    }
    let lines = doc.collapsed();
    let (wanted, compared_with) = (Histogram::of(&text), Compared::new(&text));
    let each: Vec<Histogram> = lines.iter().map(|line| Histogram::of_line(line)).collect();
    let mut bounds: Vec<(usize, std::ops::Range<usize>, usize)> = Vec::new();
    for size in said.len().saturating_sub(WINDOW_SLACK).max(1)..=said.len() + WINDOW_SLACK {
        if size > lines.len() {
            break;
        }
        let mut sum = Histogram::default();
        each[..size - 1].iter().for_each(|line| sum.add(line));
        for start in 0..=lines.len() - size {
            sum.add(&each[start + size - 1]);
            let length = sum.total as usize - 1;
            let longest = length.max(text.len());
            let most = allowed(longest, floor);
            // Lengths alone rule most windows out.
            if length.abs_diff(text.len()) <= most {
                let bound = wanted.distance_at_least(&sum);
                if bound <= most {
                    bounds.push((bound, start..start + size, longest));
                }
            }
            sum.sub(&each[start]);
        }
    }
    bounds.sort_by_key(|(bound, range, _)| (*bound, range.start, range.end));
    let mut out: Vec<Window> = Vec::new();
    let (mut nearest, mut cost) = (usize::MAX, 0usize);
    for (compared, (bound, range, longest)) in bounds.into_iter().enumerate() {
        // What cannot come near the best found so far is no rival of it, nor is what follows.
        let rival = match wanted_for {
            Wanted::Place => nearest.saturating_add(margin(text.len(), nearest)),
            Wanted::Hint => usize::MAX,
        };
        if bound > rival {
            break;
        }
        let limit = allowed(longest, floor).min(rival);
        cost = cost.saturating_add(compared_with.cost(longest));
        match wanted_for {
            // With rivals left unseen no place is certain.
            Wanted::Place if compared >= COMPARED_MAX || cost > PLACE_WORDS_MAX => return Vec::new(),
            Wanted::Hint if compared >= HINTS_COMPARED_MAX || cost > HINT_WORDS_MAX => break,
            Wanted::Place | Wanted::Hint => {}
        }
        let there = compared_with.letters(&lines[range.clone()].join("\n"));
        if let Some(distance) = compared_with.distance(&there, limit) {
            nearest = nearest.min(distance);
            out.push(Window { range, distance, similarity: 1.0 - ratio(distance, longest) });
        }
    }
    out.sort_by(|a, b| {
        b.similarity
            .total_cmp(&a.similarity)
            .then(a.range.start.cmp(&b.range.start))
            .then(a.range.end.cmp(&b.range.end))
    });
    out
}

#[expect(clippy::cast_precision_loss, reason = "lengths are below 2^52")]
fn ratio(part: usize, whole: usize) -> f64 {
    part as f64 / whole.max(1) as f64
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "lengths are below 2^52 and the product is not negative"
)]
fn allowed(longest: usize, floor: f64) -> usize {
    (longest as f64 * (1.0 - floor)).floor() as usize
}

const BUCKETS: usize = 32;

/// How often each class of character occurs: gives a lower bound of the edit distance.
#[derive(Debug, Clone)]
struct Histogram {
    counts: [i32; BUCKETS],
    total: i64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0 }
    }
}

impl Histogram {
    fn of(text: &[char]) -> Self {
        let mut out = Self::default();
        text.iter().for_each(|c| out.count(*c));
        out
    }

    /// With the line's break.
    fn of_line(line: &str) -> Self {
        let mut out = Self::default();
        line.chars().for_each(|c| out.count(c));
        out.count('\n');
        out
    }

    fn count(&mut self, c: char) {
        self.counts[u32::from(c) as usize % BUCKETS] += 1;
        self.total += 1;
    }

    fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.total += other.total;
    }

    fn sub(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a -= b);
        self.total -= other.total;
    }

    /// No edit distance can be below this; one break too many in `window` is forgiven.
    fn distance_at_least(&self, window: &Self) -> usize {
        let (mut more, mut less) = (0i32, 0i32);
        for (a, b) in self.counts.iter().zip(&window.counts) {
            let d = a - b;
            more += d.max(0);
            less += (-d).max(0);
        }
        usize::try_from(more.max(less - 1)).unwrap_or(0)
    }
}

/// Lines left over in equal number on both sides of a gap stand for each other, however they read:
/// whether they may is for [`same_statements`] to say.
fn pair_gaps(places: &mut [Option<usize>], there: usize) {
    let mut at = 0;
    let mut from = 0;
    while at < places.len() {
        if let Some(place) = places[at] {
            from = place + 1;
            at += 1;
            continue;
        }
        let end = (at..places.len()).find(|i| places[*i].is_some()).unwrap_or(places.len());
        let to = places.get(end).copied().flatten().unwrap_or(there);
        if to.saturating_sub(from) == end - at {
            for (offset, place) in places[at..end].iter_mut().enumerate() {
                *place = Some(from + offset);
            }
        }
        at = end;
    }
}

/// Share of the search's lines that may differ from the file's in more than slips.
const ODD_LINES_MAX: f64 = 0.25;
/// A kept line at least this similar counts half.
const KEPT_MIN: f64 = 0.95;

/// Whether the region holds the statements that the search means, not merely similar ones.
fn same_statements(
    doc: &Doc<'_>,
    model: &ModelLines,
    said: &[String],
    solid: &[usize],
    best: &Window,
    places: &[Option<usize>],
) -> bool {
    let context = Context::new(doc, &model.search, &model.replace);
    let mut odd = 0.0;
    for (at, place) in places.iter().enumerate() {
        let Some(place) = place else {
            odd += 1.0;
            continue;
        };
        let real = &doc.collapsed()[best.range.start + place];
        if said[at] == *real {
            continue;
        }
        let kept = model.replace.contains(&model.search[solid[at]]);
        let near = kept && line_similarity(&said[at], real) >= KEPT_MIN;
        let likeness = match compare(&said[at], real, &context) {
            // A word of a sentence, in a line that stays as the file has it.
            Likeness::Other if near && is_word_of_sentence(&said[at], real) => Likeness::Odd,
            likeness => likeness,
        };
        match likeness {
            Likeness::Same => {}
            // The lines at both ends say where the region begins and ends.
            Likeness::Odd if at == 0 || at + 1 == places.len() => return false,
            Likeness::Odd => {
                // One word of a long line that stays as the file has it tells little.
                odd += if near { 0.5 } else { 1.0 };
            }
            Likeness::Other => return false,
        }
    }
    let ends = places.first().is_some_and(Option::is_some) && places.last().is_some_and(Option::is_some);
    let covered = places.iter().flatten().count();
    let extra = best.range.len() - covered;
    ends && extra <= WINDOW_SLACK && odd + ratio(extra, 1) <= ODD_LINES_MAX * ratio(solid.len(), 1)
}

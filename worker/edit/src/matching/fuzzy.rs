//! The loosest level: similarity, limited by a margin over the runner-up and a check that the
//! statements are the same.

use docket_schema::tool::EditLevel;

use super::{blank_lines::fill_blank_lines, edit_distance::PreparedText};
use crate::{
    guard::same_statement::{LineSimilarity, StatementContext, compare_lines, is_prose_word_change},
    pattern::PatternLines,
    search_doc::SearchDoc,
    search_match::{Match, NoMatch},
    similarity::{align_lines, line_similarity},
    text::collapse_whitespace,
};

/// Minimum similarity for a region to count as the text the search quotes.
const SIMILARITY_MIN: f64 = 0.85;
/// A window may have this many lines more or fewer than the search.
const WINDOW_SLACK: usize = 2;
/// Minimum similarity of runners-up that are considered.
const RUNNER_UP_MIN: f64 = 0.70;
/// Maximum number of windows compared exactly. In a file with more rivals, no place is unique.
const WINDOWS_COMPARED_MAX: usize = 600;
/// Maximum cost of finding a place, in words of distance tables. Bounds the time of one edit.
const PLACE_COST_MAX: usize = 20_000_000;
/// The same limit when only looking for lines to show. The best candidates come first.
const SUGGESTION_COST_MAX: usize = 4_000_000;
/// Maximum number of windows compared when only looking for lines to show.
const SUGGESTIONS_COMPARED_MAX: usize = 24;
/// Minimum similarity for a region to be worth showing.
const SUGGESTION_SIMILARITY_MIN: f64 = 0.35;
/// Searches with fewer characters are too short for similarity to be meaningful.
const SEARCH_CHARS_MIN: usize = 12;
/// Searches with more characters are not compared by similarity: the time is quadratic.
const SEARCH_CHARS_MAX: usize = 12_000;

/// A range of non-blank lines of the file and its distance from the search.
#[derive(Debug, Clone)]
pub(crate) struct CandidateWindow {
    /// Indices into [`SearchDoc::non_blank_lines`].
    pub(crate) range: std::ops::Range<usize>,
    distance: usize,
    pub(crate) similarity: f64,
}

/// Finds the place by similarity.
pub(crate) fn find_fuzzy(doc: &SearchDoc<'_>, model: &PatternLines) -> Result<Match, NoMatch> {
    let solid = model.non_blank_indices();
    let said: Vec<String> = solid.iter().map(|at| collapse_whitespace(&model.search[*at])).collect();
    let chars: usize = said.iter().map(|line| line.chars().count()).sum();
    if chars < SEARCH_CHARS_MIN {
        return Err(NoMatch::NotFound);
    }
    let windows = best_windows(doc, &said, WindowPurpose::Place);
    let Some(best) = windows.first().filter(|window| window.similarity > SIMILARITY_MIN) else {
        return Err(NoMatch::NotFound);
    };
    let lines = |window: &CandidateWindow| {
        doc.non_blank_lines[window.range.start]..doc.non_blank_lines[window.range.end - 1] + 1
    };
    let apart = |window: &&CandidateWindow| {
        window.range.start >= best.range.end || window.range.end <= best.range.start
    };
    let near = best.distance + runner_up_margin(chars, best.distance);
    if let Some(second) = windows.iter().find(apart).filter(|second| second.distance < near) {
        return Err(NoMatch::Ambiguous { places: vec![lines(best), lines(second)], only_similar: true });
    }
    let mut places = align_lines(&said, &doc.collapsed_lines()[best.range.clone()]);
    pair_unaligned_lines(&mut places, best.range.len());
    if !has_same_statements(doc, model, &said, &solid, best, &places) {
        return Err(NoMatch::Uncertain(lines(best)));
    }
    let mut align = vec![None; model.search.len()];
    for (at, place) in solid.iter().zip(&places) {
        align[*at] = place.map(|place| doc.non_blank_lines[best.range.start + place]);
    }
    fill_blank_lines(doc, &model.search, &mut align);
    Ok(Match { level: EditLevel::Fuzzy, search: model.search.clone(), replace: model.replace.clone(), align })
}

/// How much further from a search of `chars` characters than the best match the runner-up must be.
const fn runner_up_margin(chars: usize, best: usize) -> usize {
    let share = chars / 50;
    (if share > 3 { share } else { 3 }) + best / 4
}

/// Purpose of a window search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WindowPurpose {
    /// The best match and the rivals close to it.
    Place,
    /// Any text similar enough to the search to be shown.
    Suggestion,
}

/// Returns the windows for the given purpose, best first.
pub(crate) fn best_windows(
    doc: &SearchDoc<'_>,
    said: &[String],
    wanted_for: WindowPurpose,
) -> Vec<CandidateWindow> {
    let floor = match wanted_for {
        WindowPurpose::Place => RUNNER_UP_MIN,
        WindowPurpose::Suggestion => SUGGESTION_SIMILARITY_MIN,
    };
    let text: Vec<char> = said.join("\n").chars().collect();
    if text.is_empty() || text.len() > SEARCH_CHARS_MAX || doc.non_blank_lines.is_empty() {
        return Vec::new();
    }
    let lines = doc.collapsed_lines();
    let (wanted, compared_with) = (CharHistogram::from_chars(&text), PreparedText::new(&text));
    let each: Vec<CharHistogram> = lines.iter().map(|line| CharHistogram::from_line(line)).collect();
    let mut bounds: Vec<(usize, std::ops::Range<usize>, usize)> = Vec::new();
    for size in said.len().saturating_sub(WINDOW_SLACK).max(1)..=said.len() + WINDOW_SLACK {
        if size > lines.len() {
            break;
        }
        let mut sum = CharHistogram::default();
        each[..size - 1].iter().for_each(|line| sum.add(line));
        for start in 0..=lines.len() - size {
            sum.add(&each[start + size - 1]);
            let length = sum.total as usize - 1;
            let longest = length.max(text.len());
            let most = distance_limit(longest, floor);
            // The length alone rules out most windows.
            if length.abs_diff(text.len()) <= most {
                let bound = wanted.distance_lower_bound(&sum);
                if bound <= most {
                    bounds.push((bound, start..start + size, longest));
                }
            }
            sum.subtract(&each[start]);
        }
    }
    bounds.sort_by_key(|(bound, range, _)| (*bound, range.start, range.end));
    let mut out: Vec<CandidateWindow> = Vec::new();
    let (mut nearest, mut cost) = (usize::MAX, 0usize);
    for (compared, (bound, range, longest)) in bounds.into_iter().enumerate() {
        // A window that cannot come near the best one found so far is not a rival, and neither are
        // those after it.
        let rival = match wanted_for {
            WindowPurpose::Place => nearest.saturating_add(runner_up_margin(text.len(), nearest)),
            WindowPurpose::Suggestion => usize::MAX,
        };
        if bound > rival {
            break;
        }
        let limit = distance_limit(longest, floor).min(rival);
        cost = cost.saturating_add(compared_with.comparison_cost(longest));
        match wanted_for {
            // With unseen rivals, no place is certain.
            WindowPurpose::Place if compared >= WINDOWS_COMPARED_MAX || cost > PLACE_COST_MAX => {
                return Vec::new();
            }
            WindowPurpose::Suggestion
                if compared >= SUGGESTIONS_COMPARED_MAX || cost > SUGGESTION_COST_MAX =>
            {
                break;
            }
            WindowPurpose::Place | WindowPurpose::Suggestion => {}
        }
        let there = compared_with.encode_text(&lines[range.clone()].join("\n"));
        if let Some(distance) = compared_with.distance(&there, limit) {
            nearest = nearest.min(distance);
            out.push(CandidateWindow { range, distance, similarity: 1.0 - ratio(distance, longest) });
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
fn distance_limit(longest: usize, floor: f64) -> usize {
    (longest as f64 * (1.0 - floor)).floor() as usize
}

const BUCKETS: usize = 32;

/// Counts of each class of character; yields a lower bound of the edit distance.
#[derive(Debug, Clone)]
struct CharHistogram {
    counts: [i32; BUCKETS],
    total: i64,
}

impl Default for CharHistogram {
    fn default() -> Self {
        Self { counts: [0; BUCKETS], total: 0 }
    }
}

impl CharHistogram {
    fn from_chars(text: &[char]) -> Self {
        let mut out = Self::default();
        text.iter().for_each(|c| out.add_char(*c));
        out
    }

    /// Includes the line break.
    fn from_line(line: &str) -> Self {
        let mut out = Self::default();
        line.chars().for_each(|c| out.add_char(c));
        out.add_char('\n');
        out
    }

    fn add_char(&mut self, c: char) {
        self.counts[u32::from(c) as usize % BUCKETS] += 1;
        self.total += 1;
    }

    fn add(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a += b);
        self.total += other.total;
    }

    fn subtract(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(a, b)| *a -= b);
        self.total -= other.total;
    }

    /// Returns a lower bound of the edit distance. One extra line break in `window` is forgiven.
    fn distance_lower_bound(&self, window: &Self) -> usize {
        let (mut more, mut less) = (0i32, 0i32);
        for (a, b) in self.counts.iter().zip(&window.counts) {
            let d = a - b;
            more += d.max(0);
            less += (-d).max(0);
        }
        usize::try_from(more.max(less - 1)).unwrap_or(0)
    }
}

/// Pairs the remaining lines of a gap if both sides have the same number of them, whatever their
/// text. [`has_same_statements`] decides whether the pairs are acceptable.
fn pair_unaligned_lines(places: &mut [Option<usize>], there: usize) {
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

/// Maximum share of the search's lines that may differ from the file by more than typos.
const UNCLEAR_LINES_MAX: f64 = 0.25;
/// An unchanged line at least this similar counts half.
const UNCHANGED_SIMILARITY_MIN: f64 = 0.95;

/// Returns whether the region holds the statements that the search means, not merely similar ones.
fn has_same_statements(
    doc: &SearchDoc<'_>,
    model: &PatternLines,
    said: &[String],
    solid: &[usize],
    best: &CandidateWindow,
    places: &[Option<usize>],
) -> bool {
    let context = StatementContext::new(doc, &model.search, &model.replace);
    let mut odd = 0.0;
    for (at, place) in places.iter().enumerate() {
        let Some(place) = place else {
            odd += 1.0;
            continue;
        };
        let real = &doc.collapsed_lines()[best.range.start + place];
        if said[at] == *real {
            continue;
        }
        let kept = model.replace.contains(&model.search[solid[at]]);
        let near = kept && line_similarity(&said[at], real) >= UNCHANGED_SIMILARITY_MIN;
        let likeness = match compare_lines(&said[at], real, &context) {
            // A prose word differs in a line that the edit keeps.
            LineSimilarity::OtherStatement if near && is_prose_word_change(&said[at], real) => {
                LineSimilarity::Unclear
            }
            likeness => likeness,
        };
        match likeness {
            LineSimilarity::SameStatement => {}
            // The lines at both ends define where the region begins and ends, so they must be
            // certain.
            LineSimilarity::Unclear if at == 0 || at + 1 == places.len() => return false,
            LineSimilarity::Unclear => {
                // One different word in a long unchanged line is weak evidence.
                odd += if near { 0.5 } else { 1.0 };
            }
            LineSimilarity::OtherStatement => return false,
        }
    }
    let ends = places.first().is_some_and(Option::is_some) && places.last().is_some_and(Option::is_some);
    let covered = places.iter().flatten().count();
    let extra = best.range.len() - covered;
    ends && extra <= WINDOW_SLACK && odd + ratio(extra, 1) <= UNCLEAR_LINES_MAX * ratio(solid.len(), 1)
}

//! Metrics of this process since its start, for `/metrics`.
//!
//! Counters are incremented without locks by the code that does the work and read by one route. They restart
//! at 0 with the process, as collectors expect. Nothing is decided by them.

use std::sync::atomic::{AtomicU64, Ordering};

/// A histogram of sizes: whole numbers of a unit scaled by `per_unit`.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    per_unit: f64,
    /// One more than the bounds: the last counts values above all of them.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A copy of a histogram's values.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSnapshot {
    /// Upper bounds in the unit with cumulative counts; the last has no bound and counts everything.
    pub cumulative_counts: Vec<(Option<f64>, u64)>,
    /// Sum of all values, in the unit.
    pub sum: f64,
}

impl Histogram {
    /// Creates a histogram with these ascending bounds.
    pub fn new(bounds: &'static [u64], per_unit: f64) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, per_unit, counts, sum: AtomicU64::new(0) }
    }

    /// Creates a histogram of times recorded in microseconds and reported in seconds.
    pub fn for_durations() -> Self {
        const US: [u64; 8] = [1000, 5000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000, 60_000_000];
        Self::new(&US, 1_000_000.0)
    }

    /// Records one value.
    pub fn record(&self, size: u64) {
        let at = self.bounds.iter().position(|bound| size <= *bound).unwrap_or(self.bounds.len());
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(size, Ordering::Relaxed);
    }

    /// Returns a copy of the current values.
    pub fn snapshot(&self) -> HistogramSnapshot {
        let mut all = 0;
        let bounds = self.bounds.iter().map(|bound| Some(*bound as f64 / self.per_unit)).chain([None]);
        let at_most = bounds
            .zip(&self.counts)
            .map(|(bound, count)| {
                all += count.load(Ordering::Relaxed);
                (bound, all)
            })
            .collect();
        HistogramSnapshot {
            cumulative_counts: at_most,
            sum: self.sum.load(Ordering::Relaxed) as f64 / self.per_unit,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histogram_counts_are_cumulative() {
        let of = Histogram::new(&[1, 10], 10.0);
        for size in [0, 1, 2, 10, 11, 1000] {
            of.record(size);
        }
        let view = of.snapshot();
        assert_eq!(view.cumulative_counts, [(Some(0.1), 2), (Some(1.0), 4), (None, 6)]);
        assert!((view.sum - 102.4).abs() < 1e-9, "{}", view.sum);
    }
}

//! Counters of this process: what it did since it began, for `/metrics`.
//!
//! They are kept by whoever does the work, by adding to a number that nobody waits for, and read by one route. A
//! process that begins anew begins at 0, which whoever collects them knows of. Nothing is decided by them.

use std::sync::atomic::{AtomicU64, Ordering};

/// How many of something were how large. Sizes are whole numbers of a unit, which `per_unit` of them make.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [u64],
    per_unit: f64,
    /// One more than bounds: the last counts what is beyond all.
    counts: Box<[AtomicU64]>,
    sum: AtomicU64,
}

/// A histogram as it stood.
#[derive(Debug, Clone, PartialEq)]
pub struct HistogramSnapshot {
    /// Upper bounds in the unit, and how many are at most that; the last stands for all, without a bound.
    pub cumulative_counts: Vec<(Option<f64>, u64)>,
    /// All sizes together, in the unit.
    pub sum: f64,
}

impl Histogram {
    /// Of these bounds, rising.
    pub fn new(bounds: &'static [u64], per_unit: f64) -> Self {
        let counts = (0..=bounds.len()).map(|_| AtomicU64::new(0)).collect();
        Self { bounds, per_unit, counts, sum: AtomicU64::new(0) }
    }

    /// Of times in microseconds, told in seconds.
    pub fn for_durations() -> Self {
        const US: [u64; 8] = [1000, 5000, 25_000, 100_000, 500_000, 2_500_000, 10_000_000, 60_000_000];
        Self::new(&US, 1_000_000.0)
    }

    /// Counts one.
    pub fn record(&self, size: u64) {
        let at = self.bounds.iter().position(|bound| size <= *bound).unwrap_or(self.bounds.len());
        if let Some(count) = self.counts.get(at) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        self.sum.fetch_add(size, Ordering::Relaxed);
    }

    /// As it stands.
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

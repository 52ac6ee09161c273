//! The few statistics that the figures need. Pure.

use std::time::Duration;

/// Samples of one quantity, in any order.
#[derive(Debug, Clone, Default)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    pub(crate) fn push(&mut self, value: f64) {
        self.0.push(value);
    }

    /// Adds a duration, in milliseconds.
    pub(crate) fn push_ms(&mut self, time: Duration) {
        self.push(time.as_secs_f64() * 1000.0);
    }

    /// Returns the sample that `percent` of all do not exceed (nearest rank); `None` without
    /// samples.
    pub(crate) fn percentile(&self, percent: u32) -> Option<f64> {
        let mut sorted = self.0.clone();
        sorted.sort_by(f64::total_cmp);
        let rank = (sorted.len() * percent as usize).div_ceil(100).max(1);
        sorted.get(rank - 1).copied()
    }
}

impl Extend<f64> for Samples {
    fn extend<I: IntoIterator<Item = f64>>(&mut self, values: I) {
        self.0.extend(values);
    }
}

/// Returns the number of events per second.
pub(crate) fn rate_per_second(count: u64, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_samples_by_nearest_rank() {
        let cases: [(&[f64], u32, Option<f64>); 6] = [
            (&[], 50, None),
            (&[7.0], 99, Some(7.0)),
            (&[3.0, 1.0, 2.0], 50, Some(2.0)),
            (&[4.0, 1.0, 3.0, 2.0], 50, Some(2.0)),
            (&[1.0, 2.0, 3.0, 4.0], 100, Some(4.0)),
            (&[1.0, 2.0, 3.0, 4.0], 0, Some(1.0)),
        ];
        for (values, percent, expected) in cases {
            let mut samples = Samples::default();
            samples.extend(values.iter().copied());
            assert_eq!(samples.percentile(percent), expected, "{percent} % of {values:?}");
        }
    }

    #[test]
    fn a_rate_is_per_second() {
        assert!((rate_per_second(10, Duration::from_millis(500)) - 20.0).abs() < 1e-9);
    }
}

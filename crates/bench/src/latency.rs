//! Latencies in microseconds, counted in buckets that are at most 1/32 of their value wide.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::{Deserialize, Serialize};

/// Buckets for each doubling.
const STEPS: u64 = 32;
/// 32 doublings of them: up to 2^36 µs, some 19 hours.
const BUCKETS: usize = 32 * 32;

/// A histogram that any number of tasks may write.
pub(crate) struct Histogram {
    buckets: Box<[AtomicU64]>,
    max: AtomicU64,
}

/// What is told of a histogram, in microseconds.
#[expect(
    clippy::struct_field_names,
    reason = "the unit belongs to the names in the JSON"
)]
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Serialize)]
pub(crate) struct Latency {
    /// Half of them were no slower.
    pub(crate) p50_us: u64,
    /// 99 of 100 were no slower.
    pub(crate) p99_us: u64,
    /// The slowest.
    pub(crate) max_us: u64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self {
            buckets: (0..BUCKETS).map(|_| AtomicU64::new(0)).collect(),
            max: AtomicU64::new(0),
        }
    }
}

impl Histogram {
    /// Counts one.
    pub(crate) fn record(&self, micros: u64) {
        if let Some(bucket) = self.buckets.get(bucket(micros)) {
            bucket.fetch_add(1, Ordering::Relaxed);
        }
        self.max.fetch_max(micros, Ordering::Relaxed);
    }

    /// Forgets all.
    pub(crate) fn reset(&self) {
        for bucket in &self.buckets {
            bucket.store(0, Ordering::Relaxed);
        }
        self.max.store(0, Ordering::Relaxed);
    }

    /// The summary so far.
    pub(crate) fn summary(&self) -> Latency {
        let max_us = self.max.load(Ordering::Relaxed);
        Latency {
            p50_us: self.quantile(50).min(max_us),
            p99_us: self.quantile(99).min(max_us),
            max_us,
        }
    }

    fn quantile(&self, percent: u64) -> u64 {
        let counts: Vec<u64> = self
            .buckets
            .iter()
            .map(|bucket| bucket.load(Ordering::Relaxed))
            .collect();
        let wanted = (counts.iter().sum::<u64>() * percent).div_ceil(100);
        let mut seen = 0;
        for (bucket, count) in counts.iter().enumerate() {
            seen += count;
            if seen >= wanted && seen > 0 {
                return upper_end(bucket);
            }
        }
        0
    }
}

/// Values below [`STEPS`] have a bucket each; from there on each doubling has [`STEPS`].
fn bucket(micros: u64) -> usize {
    if micros < STEPS {
        return usize::try_from(micros).unwrap_or(0);
    }
    let doubling = u64::from(micros.ilog2()) - u64::from(STEPS.ilog2());
    let within = (micros >> doubling) - STEPS;
    usize::try_from((doubling + 1) * STEPS + within)
        .unwrap_or(usize::MAX)
        .min(BUCKETS - 1)
}

fn upper_end(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let (doubling, within) = (bucket / STEPS - 1, bucket % STEPS);
    ((STEPS + within + 1) << doubling) - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_holds_its_own_upper_end_and_not_the_next_value() {
        for micros in (0..5_000).chain([1 << 20, (1 << 30) + 12_345]) {
            let end = upper_end(bucket(micros));
            assert!(
                micros <= end && end - micros <= micros / 32,
                "{micros} {end}"
            );
            assert_eq!(bucket(end), bucket(micros));
            assert_eq!(bucket(end + 1), bucket(micros) + 1);
        }
    }

    #[test]
    fn quantiles_of_a_known_series() {
        let histogram = Histogram::default();
        for micros in 1..=1000 {
            histogram.record(micros);
        }
        let summary = histogram.summary();
        assert!((500..=516).contains(&summary.p50_us), "{summary:?}");
        assert!((990..=1000).contains(&summary.p99_us), "{summary:?}");
        assert_eq!(summary.max_us, 1000);
    }

    #[test]
    fn an_empty_histogram_is_all_zero() {
        assert_eq!(Histogram::default().summary(), Latency::default());
    }
}

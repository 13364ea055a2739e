//! What passed, failed and was skipped: the numbers of the closing line, read from each runner's own summary.

use std::ops::AddAssign;

#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) struct Count {
    pub(crate) passed: u64,
    pub(crate) failed: u64,
    pub(crate) skipped: u64,
}

impl Count {
    pub(crate) const ONE_PASSED: Self = Self {
        passed: 1,
        failed: 0,
        skipped: 0,
    };
    pub(crate) const ONE_FAILED: Self = Self {
        passed: 0,
        failed: 1,
        skipped: 0,
    };
    pub(crate) const ONE_SKIPPED: Self = Self {
        passed: 0,
        failed: 0,
        skipped: 1,
    };

    /// The summaries in the output of `cargo test` or `cargo nextest run`.
    pub(crate) fn of_output(text: &str) -> Self {
        let mut count = Self::default();
        for line in text.lines() {
            if let Some((_, rest)) = line.split_once("test result: ") {
                count += Self::of_parts(
                    rest.split_once(". ")
                        .map_or("", |(_, parts)| parts)
                        .split(';'),
                );
            } else if line.trim_start().starts_with("Summary [")
                && let Some((_, rest)) = line.split_once("run: ")
            {
                count += Self::of_parts(rest.split(','));
            }
        }
        count
    }

    fn of_parts<'a>(parts: impl Iterator<Item = &'a str>) -> Self {
        let mut count = Self::default();
        for part in parts {
            let mut words = part.split_whitespace();
            let (Some(number), Some(what)) = (words.next(), words.next()) else {
                continue;
            };
            let Ok(number) = number.parse::<u64>() else {
                continue;
            };
            match what {
                "passed" => count.passed += number,
                // nextest tells a test that ran over its time apart.
                "failed" | "timed" | "exec" => count.failed += number,
                "ignored" | "skipped" => count.skipped += number,
                _ => {}
            }
        }
        count
    }
}

impl AddAssign for Count {
    fn add_assign(&mut self, other: Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.skipped += other.skipped;
    }
}

#[cfg(test)]
mod tests {
    use super::Count;

    #[test]
    fn cargo_tests_summaries_add_up() {
        let text = "test result: ok. 3 passed; 0 failed; 1 ignored; 0 measured; 7 filtered out; finished in 0.00s\n\
                    test result: FAILED. 4 passed; 2 failed; 0 ignored; 0 measured; 0 filtered out; finished in 1s\n";
        assert_eq!(
            Count::of_output(text),
            Count {
                passed: 7,
                failed: 2,
                skipped: 1
            }
        );
    }

    #[test]
    fn nextests_summary_is_read_with_its_flaky_and_slow_asides() {
        let text = "     Summary [   0.004s] 12 tests run: 10 passed (1 slow), 1 failed, 1 timed out, 2 skipped\n";
        assert_eq!(
            Count::of_output(text),
            Count {
                passed: 10,
                failed: 2,
                skipped: 2
            }
        );
    }
}

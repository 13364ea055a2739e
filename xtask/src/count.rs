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
        // nextest has the last word: what it repeats of a test that failed ends in that test's own `test result`.
        let nextest = text
            .lines()
            .filter(|line| line.trim_start().starts_with("Summary ["))
            .filter_map(|line| Some(line.split_once("run: ")?.1))
            .map(|rest| Self::of_parts(rest.split(',')))
            .reduce(Self::and);
        nextest.unwrap_or_else(|| {
            text.lines()
                .filter_map(|line| Some(line.split_once("test result: ")?.1.split_once(". ")?.1))
                .map(|parts| Self::of_parts(parts.split(';')))
                .fold(Self::default(), Self::and)
        })
    }

    /// The tests that nextest's summary names as failed.
    pub(crate) fn failed_names(text: &str) -> Vec<&str> {
        let mut names: Vec<&str> = text
            .lines()
            .skip_while(|line| !line.trim_start().starts_with("Summary ["))
            .filter_map(|line| {
                let failed = ["FAIL [", "TIMEOUT [", "SIG"];
                let failed = failed
                    .iter()
                    .any(|word| line.trim_start().starts_with(word));
                Some(line.rsplit_once(']')?.1.trim()).filter(|_| failed)
            })
            .collect();
        names.dedup();
        names
    }

    fn and(mut self, other: Self) -> Self {
        self += other;
        self
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
    fn a_test_that_failed_under_nextest_is_counted_once_and_named() {
        let text = "test result: FAILED. 0 passed; 1 failed; 0 ignored; 0 measured; 9 filtered out; finished in 1.00s\n\
                    \x20    Summary [   1.004s] 3 tests run: 2 passed, 1 failed, 0 skipped\n\
                    \x20       FAIL [   1.000s] (3/3) posthorn-tests::it threads::apart\n";
        assert_eq!(
            Count::of_output(text),
            Count {
                passed: 2,
                failed: 1,
                skipped: 0
            }
        );
        assert_eq!(
            Count::failed_names(text),
            ["(3/3) posthorn-tests::it threads::apart"]
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

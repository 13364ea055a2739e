//! The command line: flags in any order, unknown ones refused.

use anyhow::{Context as _, Result, bail};

/// What is left of the command line; each question takes its answer out.
pub(crate) struct Args {
    words: Vec<String>,
}

impl Args {
    pub(crate) fn from_command_line() -> Self {
        Self {
            words: std::env::args().skip(1).collect(),
        }
    }

    /// The next word, if it is the first thing left.
    pub(crate) fn word(&mut self) -> Option<String> {
        (!self.words.is_empty()).then(|| self.words.remove(0))
    }

    /// Whether a flag such as `--yes` was given.
    pub(crate) fn flag(&mut self, name: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|word| word != name);
        self.words.len() != before
    }

    /// Whether `--help` or `-h` was given.
    pub(crate) fn asks_for_help(&mut self) -> bool {
        let long = self.flag("--help");
        self.flag("-h") || long
    }

    /// Every value of a flag that may be repeated: `--skip a --skip=b`.
    pub(crate) fn values(&mut self, name: &str) -> Result<Vec<String>> {
        let mut found = Vec::new();
        while let Some(at) = self.words.iter().position(|word| is_named(word, name)) {
            let word = self.words.remove(at);
            if let Some((_, value)) = word.split_once('=') {
                found.push(value.to_owned());
            } else {
                let value = (at < self.words.len()).then(|| self.words.remove(at));
                found.push(value.with_context(|| format!("{name} wants a value"))?);
            }
        }
        Ok(found)
    }

    /// All that is left, for a program that is started with it.
    pub(crate) fn rest(self) -> Vec<String> {
        self.words
    }

    /// Refuses what nobody asked for.
    pub(crate) fn finish(self) -> Result<()> {
        match self.words.first() {
            Some(word) => bail!("unknown argument `{word}` (cargo xtask help)"),
            None => Ok(()),
        }
    }
}

fn is_named(word: &str, name: &str) -> bool {
    word == name
        || word
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(line: &str) -> Args {
        Args {
            words: line.split_whitespace().map(str::to_owned).collect(),
        }
    }

    #[test]
    fn a_repeated_flag_gives_every_value_in_both_spellings() {
        let mut args = args("--skip a --yes --skip=b");
        assert_eq!(args.values("--skip").unwrap(), ["a", "b"]);
        assert!(args.flag("--yes"));
        assert!(args.finish().is_ok());
    }

    #[test]
    fn a_flag_that_wants_a_value_and_has_none_is_refused() {
        assert!(args("--only").values("--only").is_err());
    }

    #[test]
    fn help_is_asked_for_in_both_spellings_and_anywhere() {
        assert!(args("--yes --help").asks_for_help());
        assert!(args("-h").asks_for_help());
        assert!(!args("--yes").asks_for_help());
    }

    #[test]
    fn an_unknown_argument_is_refused_by_name() {
        assert!(
            args("--fast")
                .finish()
                .unwrap_err()
                .to_string()
                .contains("--fast")
        );
    }
}

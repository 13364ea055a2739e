//! What a person reads: steps, progress, colours on a terminal only.

use std::fmt::Display;
use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Between two lines of progress where there is no terminal to rewrite a line on.
const PROGRESS_EVERY: Duration = Duration::from_secs(20);

/// Where progress goes: standard output, or standard error when standard output is kept for JSON.
#[derive(Clone, Copy)]
pub(crate) struct Voice {
    json: bool,
}

impl Voice {
    pub(crate) fn new(json: bool) -> Self {
        Self { json }
    }

    pub(crate) fn json(self) -> bool {
        self.json
    }

    pub(crate) fn line(self, text: impl Display) {
        if self.json {
            eprintln!("{text}");
        } else {
            println!("{text}");
        }
    }

    fn on_terminal(self) -> bool {
        if self.json {
            std::io::stderr().is_terminal()
        } else {
            std::io::stdout().is_terminal()
        }
    }

    /// Rewrites the current line of a terminal.
    fn rewrite(self, text: &str) {
        if self.json {
            eprint!("\r\x1b[K{text}");
            let _ = std::io::stderr().flush();
        } else {
            print!("\r\x1b[K{text}");
            let _ = std::io::stdout().flush();
        }
    }
}

/// One numbered step with a line that tells how it goes.
pub(crate) struct Step {
    voice: Voice,
    head: String,
    last: Option<Instant>,
    open: bool,
}

impl Step {
    pub(crate) fn new(voice: Voice, number: usize, of: usize, name: &str) -> Self {
        Self {
            voice,
            head: format!("[{number}/{of}] {name:<12}"),
            last: None,
            open: false,
        }
    }

    /// How far it is: the same line again on a terminal, else a new line now and then.
    pub(crate) fn progress(&mut self, text: &str) {
        if self.voice.on_terminal() {
            self.voice.rewrite(&format!("{} {text}", self.head));
            self.open = true;
        } else if self
            .last
            .is_none_or(|last| last.elapsed() >= PROGRESS_EVERY)
        {
            self.voice.line(format_args!("{} {text}", self.head));
            self.last = Some(Instant::now());
        }
    }

    /// Its closing line.
    pub(crate) fn done(mut self, text: &str) {
        if self.open {
            self.voice.rewrite("");
            self.open = false;
        }
        self.voice.line(format_args!("{} {text}", self.head));
    }
}

impl Drop for Step {
    fn drop(&mut self) {
        if self.open {
            self.voice.line("");
        }
    }
}

/// `text` in a colour, on a terminal.
pub(crate) fn coloured(text: &str, colour: Colour) -> String {
    if std::io::stdout().is_terminal() {
        format!("\x1b[{}m{text}\x1b[0m", colour as u8)
    } else {
        text.to_owned()
    }
}

/// The few colours in use, by their terminal numbers.
#[derive(Clone, Copy)]
pub(crate) enum Colour {
    Red = 31,
    Green = 32,
    Yellow = 33,
}

/// Asks, and takes Enter for yes. With no terminal the answer is `otherwise`.
pub(crate) fn ask(question: &str, otherwise: bool) -> bool {
    if !std::io::stdin().is_terminal() {
        return otherwise;
    }
    eprint!("{question} [Y/n] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    let read = std::io::stdin().read_line(&mut answer);
    let answer = answer.trim().to_ascii_lowercase();
    read.is_ok() && matches!(answer.as_str(), "" | "y" | "yes")
}

/// Asks about a loss: only a typed yes is one, and nobody to ask is a no.
pub(crate) fn ask_before_loss(question: &str) -> bool {
    if !std::io::stdin().is_terminal() {
        return false;
    }
    eprint!("{question} [y/N] ");
    let _ = std::io::stderr().flush();
    let mut answer = String::new();
    std::io::stdin().read_line(&mut answer).is_ok() && is_yes(&answer)
}

fn is_yes(answer: &str) -> bool {
    let answer = answer.trim();
    answer.eq_ignore_ascii_case("y") || answer.eq_ignore_ascii_case("yes")
}

/// Seconds as people say them: `0.4 s`, `14 s`, `5 min`.
pub(crate) fn span(duration: Duration) -> String {
    let seconds = duration.as_secs_f64();
    if seconds < 10.0 {
        format!("{seconds:.1} s")
    } else if seconds < 120.0 {
        format!("{seconds:.0} s")
    } else {
        format!("{:.0} min", seconds / 60.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_typed_yes_agrees_to_a_loss() {
        for yes in ["y\n", "Y", " yes\n", "YES"] {
            assert!(is_yes(yes), "{yes}");
        }
        for no in ["", "\n", "n", "no", "ye", "yes please", "ok"] {
            assert!(!is_yes(no), "{no}");
        }
    }

    #[test]
    fn a_span_is_told_in_the_unit_that_fits() {
        assert_eq!(span(Duration::from_millis(420)), "0.4 s");
        assert_eq!(span(Duration::from_secs(14)), "14 s");
        assert_eq!(span(Duration::from_mins(5)), "5 min");
    }
}

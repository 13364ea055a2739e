//! What a person reads: steps, progress, colours on a terminal only.
//!
//! Everything that this program prints goes through here, for printing never fails: a closed terminal or the end of
//! `| head` must not end a program that has a server and a database to stop. Lints at the root hold it to that.

use std::fmt::Display;
use std::io::{self, ErrorKind, IsTerminal as _, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Between two lines of progress where there is no terminal to rewrite a line on.
const PROGRESS_EVERY: Duration = Duration::from_secs(20);

/// Set for good when the reader of standard output has gone.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Prints a line on standard output, if anybody reads it.
pub(crate) fn tell(text: impl Display) {
    if put(&mut io::stdout().lock(), format_args!("{text}\n")) == Reader::Gone {
        UNREAD.store(true, Ordering::Relaxed);
    }
}

/// Prints a line on standard error, if anybody reads it.
pub(crate) fn complain(text: impl Display) {
    put(&mut io::stderr().lock(), format_args!("{text}\n"));
}

/// Whether standard output was a pipe whose reader has gone when something was last told.
pub(crate) fn is_unread() -> bool {
    UNREAD.load(Ordering::Relaxed)
}

/// Who is at the other end of what is printed.
#[derive(Debug, Eq, PartialEq)]
enum Reader {
    /// Nothing says that it is gone. (A full disk loses lines, too, and is no reason to stop.)
    There,
    Gone,
}

fn put(out: &mut impl Write, text: impl Display) -> Reader {
    match write!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Reader::Gone,
        Ok(()) | Err(_) => Reader::There,
    }
}

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
            complain(text);
        } else {
            tell(text);
        }
    }

    fn on_terminal(self) -> bool {
        if self.json {
            io::stderr().is_terminal()
        } else {
            io::stdout().is_terminal()
        }
    }

    /// Rewrites the current line of a terminal.
    fn rewrite(self, text: &str) {
        if self.json {
            put(&mut io::stderr().lock(), format_args!("\r\x1b[K{text}"));
        } else {
            put(&mut io::stdout().lock(), format_args!("\r\x1b[K{text}"));
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
    if io::stdout().is_terminal() {
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
    if !io::stdin().is_terminal() {
        return otherwise;
    }
    put(&mut io::stderr().lock(), format_args!("{question} [Y/n] "));
    let mut answer = String::new();
    let read = io::stdin().read_line(&mut answer);
    let answer = answer.trim().to_ascii_lowercase();
    read.is_ok() && matches!(answer.as_str(), "" | "y" | "yes")
}

/// Asks about a loss: only a typed yes is one, and nobody to ask is a no.
pub(crate) fn ask_before_loss(question: &str) -> bool {
    if !io::stdin().is_terminal() {
        return false;
    }
    put(&mut io::stderr().lock(), format_args!("{question} [y/N] "));
    let mut answer = String::new();
    io::stdin().read_line(&mut answer).is_ok() && is_yes(&answer)
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
    fn printing_to_a_pipe_that_nobody_reads_is_told_and_does_not_panic() {
        let (reader, mut writer) = io::pipe().unwrap();
        assert_eq!(put(&mut writer, "one\n"), Reader::There);
        drop(reader);
        assert_eq!(put(&mut writer, "two\n"), Reader::Gone);
    }

    #[test]
    fn a_full_disk_loses_a_line_and_nothing_else() {
        let mut room = [0_u8; 2];
        assert_eq!(put(&mut room.as_mut_slice(), "three\n"), Reader::There);
    }

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

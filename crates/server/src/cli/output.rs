//! What a verb prints.

use std::io::{self, Write as _};

/// For people or for programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Output {
    /// Plain text.
    Text,
    /// One JSON object.
    Json,
}

impl Output {
    /// As `--json` says.
    pub(super) fn of(json: bool) -> Self {
        if json { Self::Json } else { Self::Text }
    }

    /// Prints the result on standard output, in the form that was asked for.
    ///
    /// # Errors
    /// When standard output is closed.
    pub(super) fn print(self, text: &str, object: &serde_json::Value) -> io::Result<()> {
        let mut out = io::stdout().lock();
        match self {
            Self::Text => writeln!(out, "{text}"),
            Self::Json => writeln!(out, "{object}"),
        }
    }
}

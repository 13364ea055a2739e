//! Cargo: run as it was run for us, with its own progress read off and told in a line.

use std::io::{BufReader, Read as _, Write as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::process::tail;
use crate::say::{Step, span};
use crate::workspace::Workspace;

/// A cargo that knows nothing of the cargo that started us.
pub(crate) fn command(workspace: &Workspace) -> Command {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if text.starts_with("CARGO_PKG_")
            || text.starts_with("CARGO_MANIFEST_")
            || text == "CARGO_PRIMARY_PACKAGE"
        {
            cargo.env_remove(&name);
        }
    }
    cargo.current_dir(workspace.root());
    cargo
}

/// Builds, with "214 of 391 crates, about 5 min left" on the step's line and everything else in `log`.
pub(crate) fn build(
    workspace: &Workspace,
    arguments: &[&str],
    step: &mut Step,
    log: &Path,
) -> Result<Duration> {
    let begun = Instant::now();
    let mut child = command(workspace)
        .args(["build", "--color", "never"])
        .args(arguments)
        .envs([
            ("CARGO_TERM_PROGRESS_WHEN", "always"),
            ("CARGO_TERM_PROGRESS_WIDTH", "80"),
        ])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .context("starting cargo")?;
    let output = child.stderr.take().context("cargo's output")?;
    let mut file =
        std::fs::File::create(log).with_context(|| format!("writing {}", log.display()))?;
    let mut clock = Estimate::default();
    let mut line = Vec::new();
    for byte in BufReader::new(output).bytes() {
        let byte = byte.context("reading cargo's output")?;
        if byte != b'\n' && byte != b'\r' {
            line.push(byte);
            continue;
        }
        let text = String::from_utf8_lossy(&line).into_owned();
        match progress(&text) {
            Some((done, of)) => step.progress(&clock.told(done, of, begun.elapsed())),
            None if !text.trim().is_empty() => writeln!(file, "{text}")?,
            None => {}
        }
        line.clear();
    }
    let status = child.wait().context("waiting for cargo")?;
    if !status.success() {
        let text = std::fs::read_to_string(log).unwrap_or_default();
        bail!(
            "the build failed ({status}):\n{}\n(all of it: {})",
            tail(&text, 40),
            log.display()
        );
    }
    Ok(begun.elapsed())
}

/// `   Building [=====>      ] 214/391: serde, tokio` → (214, 391).
fn progress(line: &str) -> Option<(u64, u64)> {
    let (_, rest) = line.split_once("Building [")?;
    let counts = rest.split_once("] ")?.1.split(':').next()?;
    let (done, of) = counts.trim().split_once('/')?;
    Some((done.trim().parse().ok()?, of.trim().parse().ok()?))
}

/// How the time that a build has taken grows with the share that is built: by this power of it. The crates at the end,
/// which wait for all others, are the large ones. Measured: after 0.28 of the crates 0.12 of the time was gone.
const GROWTH: f64 = 5.0 / 3.0;

/// Time left, from what was built since the first count; what was built before costs nothing. Nothing is foretold from
/// less than a third.
#[derive(Default)]
struct Estimate {
    first: Option<(u64, Duration)>,
}

impl Estimate {
    fn told(&mut self, done: u64, of: u64, now: Duration) -> String {
        let (start, since) = *self.first.get_or_insert((done, now));
        let built = u32::try_from(done.saturating_sub(start)).unwrap_or(u32::MAX);
        let left = u32::try_from(of.saturating_sub(done)).unwrap_or(u32::MAX);
        let text = format!("{done} of {of} crates");
        let share = f64::from(built) / f64::from(built.saturating_add(left).max(1));
        if share * 3.0 < 1.0 || now < Duration::from_secs(5) {
            return text;
        }
        let times = share.powf(-GROWTH) - 1.0;
        let spent = now.saturating_sub(since).as_secs_f64();
        let left = Duration::try_from_secs_f64(spent * times).unwrap_or_default();
        format!("{text}, about {} left", span(left))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_own_progress_line_is_understood() {
        assert_eq!(
            progress("    Building [=====>      ] 214/391: serde, tokio"),
            Some((214, 391))
        );
        assert_eq!(progress("   Compiling serde v1.0.0"), None);
    }

    #[test]
    fn nothing_is_foretold_from_less_than_a_third() {
        let mut clock = Estimate::default();
        assert_eq!(
            clock.told(100, 400, Duration::from_secs(1)),
            "100 of 400 crates"
        );
        assert_eq!(
            clock.told(199, 400, Duration::from_secs(61)),
            "199 of 400 crates"
        );
        assert!(
            clock
                .told(200, 400, Duration::from_secs(61))
                .contains("left")
        );
    }

    #[test]
    fn time_left_counts_from_what_was_built_in_this_run_and_weighs_the_end_more() {
        let mut clock = Estimate::default();
        clock.told(100, 200, Duration::from_secs(1));
        // The same rate would be 60 s.
        assert_eq!(
            clock.told(150, 200, Duration::from_secs(61)),
            "150 of 200 crates, about 2 min left"
        );
        assert!(
            clock
                .told(200, 200, Duration::from_secs(200))
                .contains("about 0.0 s left")
        );
    }
}

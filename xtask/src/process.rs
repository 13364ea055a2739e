//! Other programs: found, run, watched and ended by their process id.

use std::ffi::OsStr;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Standard output of a program that must succeed.
pub(crate) fn capture(command: &mut Command) -> Result<String> {
    let name = told(command);
    let output = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("starting {name}"))?;
    if !output.status.success() {
        let error = String::from_utf8_lossy(&output.stderr);
        bail!("{name} failed ({}): {}", output.status, tail(&error, 20));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Runs a program whose output is the reader's to see.
pub(crate) fn check(command: &mut Command) -> Result<()> {
    let name = told(command);
    let status = command
        .status()
        .with_context(|| format!("starting {name}"))?;
    if status.success() {
        Ok(())
    } else {
        bail!("{name} failed ({status})")
    }
}

/// Runs a program with all its output in a file; the file's end is shown when it fails.
pub(crate) fn logged(command: &mut Command, log: &Path) -> Result<()> {
    let name = told(command);
    let file = File::create(log).with_context(|| format!("writing {}", log.display()))?;
    let status = command
        .stdin(Stdio::null())
        .stdout(file.try_clone()?)
        .stderr(file)
        .status()
        .with_context(|| format!("starting {name}"))?;
    if status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&std::fs::read(log).unwrap_or_default()).into_owned();
    bail!(
        "{name} failed ({status}):\n{}\n(all of it: {})",
        tail(&text, 40),
        log.display()
    )
}

/// The last `lines` lines.
pub(crate) fn tail(text: &str, lines: usize) -> String {
    let all: Vec<&str> = text.trim_end().lines().collect();
    all.get(all.len().saturating_sub(lines)..)
        .unwrap_or_default()
        .join("\n")
}

/// A program on the PATH.
pub(crate) fn which(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|file| is_program(file))
}

pub(crate) fn is_program(file: &Path) -> bool {
    use std::os::unix::fs::PermissionsExt as _;
    file.metadata()
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

/// Whether this program runs as root.
pub(crate) fn is_root() -> bool {
    capture(Command::new("id").arg("-u")).is_ok_and(|id| id.trim() == "0")
}

/// The name of a running process, cut to 15 characters by Linux.
pub(crate) fn name_of(pid: u32) -> Option<String> {
    if let Ok(name) = std::fs::read_to_string(format!("/proc/{pid}/comm")) {
        return Some(name.trim().to_owned());
    }
    if Path::new("/proc/self").exists() {
        return None;
    }
    let name = capture(Command::new("ps").args(["-o", "comm=", "-p", &pid.to_string()])).ok()?;
    Some(
        Path::new(name.trim())
            .file_name()?
            .to_string_lossy()
            .into_owned(),
    )
}

/// Whether `pid` runs and is a program of that name (a process id may have been given to another since).
pub(crate) fn runs(pid: u32, name: &str) -> bool {
    name_of(pid).is_some_and(|found| name.starts_with(&found) && !found.is_empty())
        && !is_zombie(pid)
}

fn is_zombie(pid: u32) -> bool {
    std::fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| {
        stat.rsplit(") ")
            .next()
            .is_some_and(|rest| rest.starts_with('Z'))
    })
}

/// Sends a signal such as `TERM` to one process. (The shell has `kill` built in; a bare system has no other.)
pub(crate) fn signal(pid: u32, signal: &str) {
    let _ = Command::new("sh")
        .args(["-c", &format!("kill -{signal} {pid}")])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .status();
}

/// Asks a process to end and waits; true when it is gone.
pub(crate) fn end(pid: u32, name: &str, with: &str, wait: Duration) -> bool {
    if !runs(pid, name) {
        return true;
    }
    signal(pid, with);
    wait_until(wait, || !runs(pid, name))
}

/// Looks again and again until `what` holds or the time is over.
pub(crate) fn wait_until(wait: Duration, mut what: impl FnMut() -> bool) -> bool {
    let begun = Instant::now();
    loop {
        if what() {
            return true;
        }
        if begun.elapsed() >= wait {
            return false;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// A program's name as an error tells it.
fn told(command: &Command) -> String {
    let program = Path::new(command.get_program());
    let mut words = vec![program.file_name().unwrap_or(program.as_os_str())];
    words.extend(command.get_args().take(3));
    words.join(OsStr::new(" ")).to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_tells_the_program_and_what_it_said() {
        let error =
            capture(Command::new("sh").args(["-c", "echo no such thing >&2; exit 3"])).unwrap_err();
        assert!(error.to_string().contains("no such thing"), "{error}");
    }

    #[test]
    fn a_process_is_known_by_its_id_and_its_name() {
        let me = std::process::id();
        let name = name_of(me).unwrap();
        assert!(runs(me, &name));
        assert!(!runs(me, "another program"));
    }

    #[test]
    fn the_tail_of_a_short_text_is_the_text() {
        assert_eq!(tail("a\nb\n", 5), "a\nb");
        assert_eq!(tail("a\nb\nc", 2), "b\nc");
    }
}

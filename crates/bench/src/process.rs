//! What `/proc` tells of processes: CPU time and memory.

use std::{fs, time::Duration};

use anyhow::Context;

/// `/proc` counts in hundredths of a second on every Linux that this runs on (`USER_HZ`).
const TICK: Duration = Duration::from_millis(10);

/// The numbers of `/proc/[pid]/stat` that are used.
struct Stat {
    parent: u32,
    /// Of the process itself, and of the children that it has waited for.
    own_ticks: u32,
    reaped_ticks: u32,
}

/// CPU time of a process so far, without children.
pub(crate) fn cpu(pid: u32) -> anyhow::Result<Duration> {
    Ok(TICK * stat(pid)?.own_ticks)
}

/// CPU time so far of a process, its living children, and the children that have ended: all of a PostgreSQL cluster, given
/// its postmaster.
pub(crate) fn cpu_with_children(pid: u32) -> anyhow::Result<Duration> {
    let parent = stat(pid)?;
    let mut ticks = parent.own_ticks + parent.reaped_ticks;
    for child in processes()?
        .into_iter()
        .filter_map(|child| stat(child).ok())
    {
        if child.parent == pid {
            ticks += child.own_ticks;
        }
    }
    Ok(TICK * ticks)
}

/// Resident memory of a process at its highest, in bytes.
pub(crate) fn peak_memory(pid: u32) -> anyhow::Result<u64> {
    resident(pid, "VmHWM:").or_else(|_| memory(pid))
}

/// Resident memory of a process now, in bytes.
pub(crate) fn memory(pid: u32) -> anyhow::Result<u64> {
    resident(pid, "VmRSS:")
}

fn resident(pid: u32, name: &str) -> anyhow::Result<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status
        .lines()
        .find_map(|line| line.strip_prefix(name))
        .context("no memory in /proc")?;
    let kib: u64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib * 1024)
}

fn processes() -> anyhow::Result<Vec<u32>> {
    let entries = fs::read_dir("/proc")?;
    Ok(entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .collect())
}

fn stat(pid: u32) -> anyhow::Result<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    // The name in brackets may hold anything; what follows the last bracket begins with field 3 (proc(5)).
    let (_, fields) = text
        .rsplit_once(") ")
        .context("an unknown form of /proc/[pid]/stat")?;
    let fields: Vec<&str> = fields.split_whitespace().collect();
    let number = |field: usize| -> anyhow::Result<u32> {
        let text = fields.get(field - 3).context("a short /proc/[pid]/stat")?;
        Ok(text.parse()?)
    };
    Ok(Stat {
        parent: number(4)?,
        own_ticks: number(14)? + number(15)?,
        reaped_ticks: number(16)? + number(17)?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_has_used_memory() {
        let this = std::process::id();
        assert!(peak_memory(this).unwrap() > 0);
        // The smaller one first: what is used between the two readings counts for the greater.
        let alone = cpu(this).unwrap();
        assert!(cpu_with_children(this).unwrap() >= alone);
    }
}

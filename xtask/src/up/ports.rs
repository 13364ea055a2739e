//! Ports of the loopback interface: the usual one, else the next free of ten, with a word on who holds it.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

use crate::process::name_of;
use crate::say::Voice;

/// The usual ports: of the server, and of the demo's receiver.
pub(super) const SERVER: u16 = 8400;
pub(super) const RECEIVER: u16 = 8410;

/// The ports that are looked at, from the usual one on.
pub(super) fn span(first: u16) -> std::ops::Range<u16> {
    first..first + 10
}

/// A port that is free now. (Whoever is faster gets it; the server then says so and names the setting.)
pub(super) fn free(name: &str, first: u16, voice: Voice) -> Result<u16> {
    listen(name, first, voice).map(|(_, port)| port)
}

/// A listener on the first free port of ten.
pub(super) fn listen(name: &str, first: u16, voice: Voice) -> Result<(TcpListener, u16)> {
    let mut taken = Vec::new();
    for port in span(first) {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => {
                for line in told(name, &taken, port) {
                    voice.line(line);
                }
                return Ok((listener, port));
            }
            Err(error) => {
                taken.push((port, holder(port).unwrap_or_else(|| error.to_string())));
            }
        }
    }
    let last = taken.last().map_or(first, |(port, _)| *port);
    for line in told(name, &taken, last) {
        voice.line(line);
    }
    bail!("no free port for the {name} among {first} to {last}")
}

/// A line for each port that was taken; each ends with the one that is looked at or used after it.
fn told(name: &str, taken: &[(u16, String)], used: u16) -> Vec<String> {
    let tell = |(port, holder): &(u16, String)| {
        let after = match port.saturating_add(1) {
            next if next < used => format!("; trying {next}"),
            next if next == used => format!("; using {used}"),
            _ => String::new(),
        };
        format!("port {port} for the {name} is taken ({holder}){after}")
    };
    taken.iter().map(tell).collect()
}

/// Which process listens there, where the system tells us (Linux, and only of processes that we may look at).
fn holder(port: u16) -> Option<String> {
    let inode = listening_inode(port)?;
    let wanted = format!("socket:[{inode}]");
    for entry in std::fs::read_dir("/proc").ok()?.flatten() {
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse::<u32>().ok())
        else {
            continue;
        };
        let Ok(open) = std::fs::read_dir(entry.path().join("fd")) else {
            continue;
        };
        let holds = open.flatten().any(|file| {
            std::fs::read_link(file.path())
                .is_ok_and(|target| target.to_str() == Some(wanted.as_str()))
        });
        if holds {
            return Some(format!("{}, process {pid}", name_of(pid)?));
        }
    }
    Some("by another user's process".to_owned())
}

fn listening_inode(port: u16) -> Option<String> {
    let tables = ["/proc/net/tcp", "/proc/net/tcp6"];
    let text: String = tables
        .iter()
        .filter_map(|table| std::fs::read_to_string(table).ok())
        .collect();
    inode_in(&text, port)
}

/// Of the kernel's table: local address in the second column, state 0A in the fourth, inode in the tenth.
fn inode_in(table: &str, port: u16) -> Option<String> {
    let ending = format!(":{port:04X}");
    table.lines().find_map(|line| {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let listens = columns.get(3) == Some(&"0A")
            && columns.get(1).is_some_and(|local| local.ends_with(&ending));
        listens
            .then(|| columns.get(9).map(|inode| (*inode).to_owned()))
            .flatten()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_names_the_listening_socket() {
        let table = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n   \
                     0: 0100007F:20D0 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 4242 1\n   \
                     1: 0100007F:20D1 00000000:0000 01 00000000:00000000 00:00000000 00000000  1000        0 4343 1\n";
        assert_eq!(inode_in(table, 8400).as_deref(), Some("4242"));
        assert_eq!(inode_in(table, 8401), None);
    }

    #[test]
    fn a_taken_port_is_told_with_its_holder_and_with_what_is_used_instead() {
        let taken = [
            (8400, "python3, process 10".to_owned()),
            (8401, "nc, process 11".to_owned()),
        ];
        assert_eq!(
            told("server", &taken[..1], 8401),
            ["port 8400 for the server is taken (python3, process 10); using 8401"]
        );
        assert_eq!(
            told("server", &taken, 8402),
            [
                "port 8400 for the server is taken (python3, process 10); trying 8401",
                "port 8401 for the server is taken (nc, process 11); using 8402"
            ]
        );
        assert!(told("server", &[], 8400).is_empty());
    }

    #[test]
    fn a_taken_port_is_passed_over() {
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = holder.local_addr().unwrap().port();
        if let Ok((_, port)) = listen("test", taken, Voice::new(true)) {
            assert_ne!(port, taken);
        }
    }
}

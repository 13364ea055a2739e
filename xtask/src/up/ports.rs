//! Ports of the loopback interface: the usual one, else the next free of ten, with a word on who holds it.

use std::net::{Ipv4Addr, TcpListener};

use anyhow::{Result, bail};

use crate::process::name_of;
use crate::say::Voice;

/// A port that is free now. (Whoever is faster gets it; the server then says so and names the setting.)
pub(super) fn free(name: &str, first: u16, voice: Voice) -> Result<u16> {
    listen(name, first, voice).map(|(_, port)| port)
}

/// A listener on the first free port of ten.
pub(super) fn listen(name: &str, first: u16, voice: Voice) -> Result<(TcpListener, u16)> {
    for port in first..first + 10 {
        match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
            Ok(listener) => return Ok((listener, port)),
            Err(error) => {
                let holder = holder(port).unwrap_or_else(|| error.to_string());
                voice.line(format_args!(
                    "port {port} for the {name} is taken ({holder})"
                ));
            }
        }
    }
    bail!("no free port for the {name} among {first} to {}", first + 9)
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
    fn a_taken_port_is_passed_over() {
        let holder = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let taken = holder.local_addr().unwrap().port();
        if let Ok((_, port)) = listen("test", taken, Voice::new(true)) {
            assert_ne!(port, taken);
        }
    }
}

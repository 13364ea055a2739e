//! The binary `posthorn`: settings, lifecycle, telemetry, the managed PostgreSQL and the command line.
//!
//! It decides nothing about events: it reads what the operator wants ([`settings`]), makes the database
//! fit ([`database`], [`managed`]), puts the parts together ([`assemble`]) and takes them down again in
//! order ([`lifecycle`]). Its only neighbours are the crates that it wires.

mod assemble;
mod cli;
mod database;
mod lifecycle;
mod managed;
mod master_keys;
mod own;
mod sending;
mod settings;
mod telemetry;

use std::process::ExitCode;

use clap::Parser as _;
use tikv_jemallocator::Jemalloc;

/// Many small, short-lived allocations from many threads: jemalloc keeps memory flat where glibc's does not.
#[global_allocator]
static ALLOCATOR: Jemalloc = Jemalloc;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    raise_open_files();
    // One stack for TLS, to the database and to endpoints. It can only be installed already.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    let runtime = match tokio::runtime::Builder::new_multi_thread()
        .thread_name("posthorn")
        .enable_all()
        .build()
    {
        Ok(runtime) => runtime,
        Err(error) => return failed(&error.into()),
    };
    let ended = runtime.block_on(cli::run(cli));
    // Not waited for: a name that nobody resolves would keep its thread, and the program with it.
    runtime.shutdown_background();
    match ended {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => failed(&error),
    }
}

/// Raises the soft limit of open files to the hard one. The usual soft limit of 1,024 is below what a node may have
/// open towards endpoints and callers, and running out would look like a fault of theirs.
fn raise_open_files() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit {
        current: limit.maximum,
        ..limit
    };
    // Where it is refused the lower limit stands, as before.
    let _ = setrlimit(Resource::Nofile, raised);
}

fn failed(error: &anyhow::Error) -> ExitCode {
    // Closed standard error leaves nobody to tell.
    let _ = std::io::Write::write_fmt(
        &mut std::io::stderr().lock(),
        format_args!("posthorn: {}\n", told(error)),
    );
    ExitCode::FAILURE
}

/// The error and its causes, without a cause that its parent has already told.
fn told(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1) {
        let cause = cause.to_string();
        if !text.contains(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}

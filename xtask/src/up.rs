//! `cargo xtask up`: from a clone to a delivered event, in one command.
//!
//! Guarantees: it builds, starts and shows everything, keeps the data when it is stopped, and takes over what a crash
//! left. A second `up` prints what the first one printed. It uses ports of the loopback interface alone and files of
//! `.posthorn/` alone (as root also `/var/lib/posthorn-dev/`). The database is the server's own affair
//! (`posthorn serve --managed`); the demo tenant is made by the program and through the API, never by rows.

mod block;
mod demo;
mod follow;
mod ports;
mod receiver;
pub(crate) mod running;
mod server;

use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use crate::args::Args;
use crate::cargo;
use crate::needs::{self, Consent};
use crate::place::Place;
use crate::process::{tail, wait_until};
use crate::say::{Step, Voice, is_unread};
use crate::tools::postgres::Postgres;
use crate::workspace::Workspace;

use self::block::Block;
use self::running::{Guard, Running};
use self::server::Server;

/// What `cargo xtask up --help` prints.
pub(crate) const HELP: &str = "\
cargo xtask up: builds the server, starts it with a PostgreSQL of its own and a demo tenant, prints how to send an
event, then a line per delivery. Ctrl-C stops everything and keeps the data.

  --detach            return when it is ready; `cargo xtask down` stops it
  --yes               answer yes to every question before something is fetched or installed (so do CI=true, and root
                      without a terminal)
  --json              print one JSON object instead of the text; everything else goes to standard error
  --system-postgres   where PostgreSQL is missing, install the distribution's with apt-get (as root) instead of
                      fetching one into the checkout's own folder";

/// Steps that are told with a number.
const STEPS: usize = 4;

/// A first start migrates and makes a cluster; longer than this and something is wrong.
const READY_WITHIN: Duration = Duration::from_mins(2);

/// What the second one says first, so that nobody takes it for a start of his own.
const RUNS_ALREADY: &str =
    "`cargo xtask up` already runs in this checkout; `cargo xtask down` stops it";

/// The flags, and what carries what is said.
struct Wish {
    voice: Voice,
    consent: Consent,
    from_system: bool,
    detach: bool,
    /// We are the one that `--detach` left behind.
    left_behind: bool,
}

pub(crate) fn run(workspace: &Workspace, mut args: Args) -> Result<ExitCode> {
    let wish = Wish {
        detach: args.flag("--detach"),
        left_behind: args.flag("--left-behind"),
        voice: Voice::new(args.flag("--json")),
        consent: Consent::new(args.flag("--yes")),
        from_system: args.flag("--system-postgres"),
    };
    args.finish()?;
    let Some(guard) = Guard::take(workspace)? else {
        return join(workspace, wish.voice);
    };
    let place = Place::of(workspace)?;
    let postgres = needs::postgres(
        workspace,
        &place,
        wish.consent,
        wish.from_system,
        wish.voice,
    )?;
    build(workspace, wish.voice)?;
    if wish.detach {
        drop(guard);
        return detach(workspace, &wish);
    }
    if is_unread() {
        return Ok(ExitCode::SUCCESS);
    }
    serve(workspace, &place, &postgres, &wish, &guard)
}

/// Another one runs: says what it said.
fn join(workspace: &Workspace, voice: Voice) -> Result<ExitCode> {
    let ready = || Running::read(workspace).is_some_and(|running| running.ready);
    if ready() {
        if !voice.json() {
            voice.line(RUNS_ALREADY);
        }
    } else {
        voice.line("another `cargo xtask up` is starting in this checkout; waiting for it");
    }
    if !wait_until(Duration::from_mins(15), || {
        ready() || !Guard::is_taken(workspace)
    }) || !ready()
    {
        bail!("the other `cargo xtask up` did not come up");
    }
    let running = Running::read(workspace).context("reading .posthorn/up.json")?;
    Block::of(workspace, &running)?.print(voice);
    Ok(ExitCode::SUCCESS)
}

fn build(workspace: &Workspace, voice: Voice) -> Result<()> {
    let mut step = Step::new(voice, 1, STEPS, "build");
    let log = workspace.logs()?.join("build.log");
    let wanted = [
        "--profile",
        "quick",
        "--package",
        "posthorn-server",
        "--bin",
        "posthorn",
    ];
    let took = cargo::build(workspace, &wanted, &mut step, &log)?;
    step.done(&format!("built in {}", crate::say::span(took)));
    Ok(())
}

/// Starts ourselves again without a terminal, and waits until that one is ready.
fn detach(workspace: &Workspace, wish: &Wish) -> Result<ExitCode> {
    let log = workspace.logs()?.join("up.log");
    let output =
        std::fs::File::create(&log).with_context(|| format!("writing {}", log.display()))?;
    let mut again = Command::new(std::env::current_exe().context("finding this program")?);
    again
        .args(["up", "--left-behind", "--yes"])
        .current_dir(workspace.root());
    if wish.from_system {
        again.arg("--system-postgres");
    }
    again
        .stdin(Stdio::null())
        .stdout(output.try_clone()?)
        .stderr(output)
        .process_group(0);
    let mut child = again.spawn().context("starting in the background")?;
    let pid = child.id();
    let up = || Running::read(workspace).is_some_and(|running| running.ready && running.pid == pid);
    let mut ended = false;
    wait_until(READY_WITHIN * 2, || {
        ended = child.try_wait().is_ok_and(|status| status.is_some());
        ended || up()
    });
    if !up() {
        let text = std::fs::read_to_string(&log).unwrap_or_default();
        bail!(
            "it did not come up:\n{}\n(all of it: {})",
            tail(&text, 20),
            log.display()
        );
    }
    let told = std::fs::read_to_string(&log).unwrap_or_default();
    // It built once more, in no time; what it said after that is news.
    told.lines()
        .skip_while(|line| !line.contains(" built in "))
        .skip(1)
        .for_each(|line| wish.voice.line(line));
    let running = Running::read(workspace).context("reading .posthorn/up.json")?;
    Block::of(workspace, &running)?.print(wish.voice);
    wish.voice
        .line("It runs in the background; `cargo xtask down` stops it.");
    Ok(ExitCode::SUCCESS)
}

/// Runs everything until a signal, or until the server ends.
fn serve(
    workspace: &Workspace,
    place: &Place,
    postgres: &Postgres,
    wish: &Wish,
    guard: &Guard,
) -> Result<ExitCode> {
    running::end_left_over(workspace);
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).context("listening for signals")?;
    let api_port = ports::free("server", ports::SERVER, wish.voice)?;
    let (listener, receiver_port) = ports::listen("receiver", ports::RECEIVER, wish.voice)?;
    let mut running = Running::new(api_port, receiver_port);
    let mut server = Server::start(workspace, place, postgres, api_port)?;
    running.server_pid = server.pid();
    guard.write(&running)?;
    if !server.wait_ready(READY_WITHIN, || is_to_stop(&mut signals))? {
        server.stop(wish.voice);
        return Ok(ExitCode::SUCCESS);
    }
    let database = place
        .base()
        .strip_prefix(workspace.root())
        .unwrap_or(place.base())
        .display()
        .to_string();
    Step::new(wish.voice, 2, STEPS, "PostgreSQL")
        .done(&format!("{} in {database}, socket only", postgres.version));
    Step::new(wish.voice, 3, STEPS, "server")
        .done("ready; loopback targets are allowed, its own port is not");
    let arrivals = receiver::start(listener);
    let demo = demo::ready(workspace, &server, api_port, receiver_port)?;
    Step::new(wish.voice, 4, STEPS, "demo").done(&demo.told());
    running.ready = true;
    guard.write(&running)?;
    if !wish.left_behind {
        Block::of(workspace, &running)?.print(wish.voice);
    }
    let lines = follow::start(arrivals, demo.api());
    let outcome = watch(&mut server, &mut signals, &lines, wish.voice);
    server.stop(wish.voice);
    outcome
}

/// A signal came, or whoever read our output has gone (`up | head`, a closed terminal): the same wish.
fn is_to_stop(signals: &mut Signals) -> bool {
    signals.pending().next().is_some() || is_unread()
}

/// Prints a line per delivery until somebody or something ends it.
fn watch(
    server: &mut Server,
    signals: &mut Signals,
    lines: &std::sync::mpsc::Receiver<String>,
    voice: Voice,
) -> Result<ExitCode> {
    loop {
        if is_to_stop(signals) {
            voice.line("");
            return Ok(ExitCode::SUCCESS);
        }
        if let Some(why) = server.has_ended() {
            bail!("{why}");
        }
        if let Ok(line) = lines.recv_timeout(Duration::from_millis(100)) {
            voice.line(line);
        }
    }
}

//! The life of `posthorn serve`, from settings to exit.
//!
//! Up: settings, listeners (a taken port fails before anything else is touched), database, schema, keys,
//! then the parts. Probes answer from the second step on and say what is missing. Down, on SIGTERM or
//! Ctrl-C: readiness off; a pause, if one is set, in which all goes on, so that whoever looks at readiness sends elsewhere;
//! stop accepting, let requests end, let the worker hand over and close its stream, then the database. From the end of the
//! pause on all of it shares one deadline. A second signal leaves at once; PostgreSQL then goes on and the next start takes it
//! over. Every wait has a bound.

mod connections;
mod front;
mod peer;
mod readiness;
mod signals;

use std::time::Duration;

use anyhow::Context as _;
use posthorn_domain::shutdown::Deadline;
use posthorn_store::clock::Clock;
use posthorn_store::drive::drive;
use posthorn_store::entropy::Entropy;
use posthorn_store::migrate::{self, Login};
use tokio_util::sync::CancellationToken;

use crate::assemble::{self, Engine};
use crate::database::Reach;
use crate::master_keys;
use crate::own;
use crate::settings::environment::Environment;
use crate::settings::{DatabaseSettings, Flags, Migrate, PublicUrl, Settings};
use crate::telemetry::{self, Metrics};
use connections::{Connections, Listener};
use front::Front;
use readiness::Readiness;

/// How often a managed PostgreSQL is looked after.
const MENDING: Duration = Duration::from_secs(1);

/// How often a node that does not migrate looks whether somebody else did.
const UNTIL_MIGRATED: Duration = Duration::from_secs(1);

/// Serves until a signal.
///
/// # Errors
/// Whatever keeps it from serving. After that, only a database that does not stop.
pub(crate) async fn serve(flags: &Flags, environment: &Environment) -> anyhow::Result<()> {
    let settings = Settings::read(flags, environment)?;
    settings.ready_to_serve()?;
    telemetry::log(&settings.log)?;
    let stop = signals::watch()?;
    let clock = Clock::start();
    let main = Listener::bind(settings.listen, "POSTHORN_LISTEN")?;
    let metrics = Metrics::collect()?;
    let readiness = Readiness::new(clock.clone());
    let front = Front::new(
        readiness.clone(),
        settings.metrics_listen.is_none().then(|| metrics.clone()),
    );
    let connections = Connections::new(clock.clone(), settings.trusted_proxies.clone());
    let mut listeners = vec![main.address()];
    if let Some(address) = settings.metrics_listen {
        let listener = Listener::bind(address, "POSTHORN_METRICS_LISTEN")?;
        listeners.push(listener.address());
        connections.serve(listener, front::metrics_alone(metrics.clone()));
    }
    let listen = main.address();
    connections.serve(main, front.served());
    tokio::spawn(metrics.keep_up(clock.clone(), stop.clone()));

    let reach = tokio::select! {
        biased;
        reach = Reach::open(&settings.database, environment) => reach?,
        // A cluster of our own is not left half started.
        () = stop.cancelled(), if matches!(settings.database, DatabaseSettings::Given { .. }) => {
            readiness.stopping();
            connections.drain(Deadline::begun(clock.monotonic())).await;
            tracing::info!("stopped before the database answered");
            return Ok(());
        }
    };
    tracing::info!("database {}", reach.describe());
    let node = Node {
        settings,
        reach,
        clock,
        readiness,
        stop,
    };
    let ended = node.run(listen, listeners, &front).await;
    let (engine, ended) = match ended {
        Ok(engine) => (engine, Ok(())),
        Err(error) => (None, Err(error)),
    };
    let closed = node.stop(engine, &connections).await;
    ended.and(closed)?;
    tracing::info!("stopped");
    Ok(())
}

/// A node whose database is reachable.
struct Node {
    settings: Settings,
    reach: Reach,
    clock: Clock,
    readiness: Readiness,
    stop: CancellationToken,
}

impl Node {
    /// Starts the engine and serves until the signal. Answers the engine, if it got so far.
    async fn run(
        &self,
        listen: std::net::SocketAddr,
        listeners: Vec<std::net::SocketAddr>,
        front: &Front,
    ) -> anyhow::Result<Option<Engine>> {
        let engine = tokio::select! {
            engine = self.start(listen, listeners) => Some(engine?),
            () = self.stop.cancelled() => None,
        };
        if let Some(engine) = &engine {
            front.open(engine.pages());
            self.readiness
                .follow(engine.keeper(), self.settings.roles.clone());
            self.readiness.running();
            tracing::info!(address = %listen, version = env!("CARGO_PKG_VERSION"), "ready");
            self.look_after().await;
        }
        Ok(engine)
    }

    /// Everything down. Whatever runs is finished, or given up at the deadline.
    async fn stop(self, engine: Option<Engine>, connections: &Connections) -> anyhow::Result<()> {
        self.readiness.stopping();
        let pause = self.settings.shutdown_pause;
        if engine.is_some() && !pause.is_zero() {
            tracing::info!(?pause, "stopping: not ready any more, and still serving");
            connections.send_away();
            self.clock.sleep(pause).await;
        }
        let deadline = Deadline::begun(self.clock.monotonic());
        if engine.is_some() {
            tracing::info!("stopping: no new connections, what is under way is finished");
        }
        connections.drain(deadline).await;
        if let Some(engine) = engine {
            engine.shutdown(deadline, &self.clock).await;
        }
        self.reach.close().await
    }

    async fn start(
        &self,
        listen: std::net::SocketAddr,
        listeners: Vec<std::net::SocketAddr>,
    ) -> anyhow::Result<Engine> {
        self.readiness.watch(self.reach.server());
        let login = self.login().await?;
        self.readiness.watch(login.clone());
        let data_dir = self.reach.cluster().map(crate::managed::Cluster::data_dir);
        let entropy = Entropy;
        let ring = master_keys::ring(
            self.settings.master_keys.as_ref(),
            data_dir,
            &login,
            entropy,
        )
        .await?;
        let public_url = self
            .settings
            .public_url
            .clone()
            .unwrap_or_else(|| PublicUrl::of_loopback(listen));
        let own = own::places(listeners, &self.reach, &public_url);
        let parts = assemble::Parts {
            database: login
                .database_options(self.settings.pools.system, self.settings.pools.tenant),
            ring,
            clock: self.clock.clone(),
            entropy,
            egress: self.settings.egress.clone().with_own(own),
            egress_options: self.settings.egress_options.clone(),
            retention: self.settings.retention,
            public_url,
            roles: self.settings.roles.clone(),
        };
        Engine::start(parts)
            .await
            .context("the engine does not start")
    }

    /// The server's login to a database that is fit. Without leave to migrate, waits for whoever has it.
    async fn login(&self) -> anyhow::Result<Login> {
        if self.settings.migrate == Migrate::Off {
            self.until_migrated().await?;
        }
        let login = self.reach.ready_login(self.settings.migrate).await?;
        if login.steps_down() {
            tracing::warn!(
                login = login.user(),
                "the login is a superuser: every connection steps down to posthorn_app. Better give posthorn_app a \
                 password and log in as it"
            );
        }
        Ok(login)
    }

    async fn until_migrated(&self) -> anyhow::Result<()> {
        let mut told = false;
        loop {
            let pending = migrate::inspect(&self.reach.server()).await?.pending;
            pending.refuse_newer()?;
            let missing = pending.names;
            if missing.is_empty() {
                return Ok(());
            }
            if !told {
                tracing::warn!(
                    missing = missing.len(),
                    "POSTHORN_MIGRATE is off and migrations are missing: waiting"
                );
                told = true;
            }
            self.clock.sleep(UNTIL_MIGRATED).await;
        }
    }

    /// Until the signal; meanwhile a managed PostgreSQL that ends is started again.
    async fn look_after(&self) {
        match self.reach.cluster() {
            Some(cluster) => drive(&self.clock, MENDING, None, &self.stop, || cluster.mend()).await,
            None => self.stop.cancelled().await,
        }
    }
}

//! What a run has started, and a measured stretch through it.

use std::{
    path::PathBuf,
    sync::Arc,
    time::{Duration, Instant},
};

use clap::Args;
use http::Method;
use serde_json::{Value, json};
use sqlx::{Connection, PgConnection};
use tokio::task::JoinSet;

use crate::{
    baseline::Baseline,
    client,
    cluster::Cluster,
    counters::Reader,
    load::{self, Load, Loaded, Pace, Target},
    payload, process,
    program::{self, Program, Running},
    report::Stretch,
    sink::Count,
};

/// How long deliveries may stop coming before what is missing counts as lost: a lease, a retry and a half.
const STALL: Duration = Duration::from_secs(20);

/// What a run may be told.
#[derive(Args, Clone)]
pub(crate) struct RunArgs {
    /// The server's program.
    #[arg(long, env = "POSTHORN_BIN")]
    pub(crate) server_bin: PathBuf,
    /// The folder of PostgreSQL's programs.
    #[arg(long, env = "POSTHORN_PG_BIN")]
    pub(crate) pg_bin: PathBuf,
    /// Where the run's own folder is made; PostgreSQL's user must be able to walk there.
    #[arg(long, env = "POSTHORN_BENCH_DIR", default_value = "/tmp")]
    pub(crate) dir: PathBuf,
    /// How long each stretch lasts. Short, so that a scenario takes half a minute; for figures to be told, 10 and more.
    #[arg(long, default_value_t = 2)]
    pub(crate) seconds: u64,
    /// How often what is compared takes turns; 5 for figures to be told.
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Tenants, each with its own key and endpoints.
    #[arg(long, default_value_t = 100)]
    pub(crate) tenants: usize,
    /// Connections of the load.
    #[arg(long, default_value_t = 128)]
    pub(crate) connections: usize,
    /// The server reaches PostgreSQL by its socket instead of TCP.
    #[arg(long)]
    pub(crate) socket: bool,
    /// Where the report goes as JSON.
    #[arg(long)]
    pub(crate) json: Option<PathBuf>,
}

impl RunArgs {
    /// How long each stretch lasts.
    pub(crate) fn duration(&self) -> Duration {
        Duration::from_secs(self.seconds)
    }
}

/// An endpoint to be made.
#[derive(Clone, Debug)]
pub(crate) struct EndpointSpec {
    /// Of its URL at the sink; or a whole URL.
    pub(crate) path: String,
    /// What it wants.
    pub(crate) event_type: &'static str,
    /// `None`: the usual one.
    pub(crate) retry_policy: Option<Value>,
}

impl EndpointSpec {
    /// One that wants every measured event, at `path`.
    pub(crate) fn at(path: String) -> Self {
        Self {
            path,
            event_type: payload::EVENT_TYPE,
            retry_policy: None,
        }
    }
}

/// An endpoint that was made.
#[derive(Clone, Debug)]
pub(crate) struct MadeEndpoint {
    pub(crate) key: String,
    pub(crate) id: String,
}

/// Everything that a run has started.
pub(crate) struct Stage {
    // Dropped in this order: the server before its database.
    pub(crate) server: Running,
    pub(crate) sink: Running,
    pub(crate) reader: Reader,
    pub(crate) baseline: Baseline,
    /// One key for each tenant, in order.
    pub(crate) keys: Vec<String>,
    /// Of each tenant, in order.
    pub(crate) endpoints: Vec<Vec<MadeEndpoint>>,
    pub(crate) program: Program,
    pub(crate) cluster: Cluster,
}

/// A load to be measured.
pub(crate) struct Measured {
    /// The tenants whose keys take turns.
    pub(crate) keys: Arc<[String]>,
    /// Deliveries of each event at measured paths of the sink.
    pub(crate) fan_out: usize,
    pub(crate) duration: Duration,
    pub(crate) connections: usize,
    pub(crate) pace: Pace,
}

/// What the load made straight to the sink: what this machine can do, and what a request costs on it.
pub(crate) struct Direct {
    pub(crate) per_second: f64,
    /// CPU of load and sink, for each request.
    pub(crate) cpu_ms: f64,
    pub(crate) sink: Count,
}

impl Stage {
    /// Starts PostgreSQL, server and sink, and makes the tenants, each with the endpoints that `endpoints` names for its
    /// place.
    pub(crate) async fn set(
        args: &RunArgs,
        endpoints: impl Fn(usize) -> Vec<EndpointSpec>,
    ) -> anyhow::Result<Self> {
        eprintln!("starting PostgreSQL, server and sink");
        let cluster = Cluster::start(&args.pg_bin, &args.dir)?;
        for database in ["posthorn", "log"] {
            create_database(&cluster, database).await?;
        }
        Program::prepare(&args.server_bin, &cluster.url("log"))?;
        let database = if args.socket {
            cluster.socket_url("posthorn")
        } else {
            cluster.url("posthorn")
        };
        let program = Program::prepare(&args.server_bin, &database)?;
        let keys = program.tenants(args.tenants).await?;
        let server = program.serve(&cluster.folder().join("server.log")).await?;
        let sink = Running::sink()?;
        let reader = Reader::connect(&cluster.url("posthorn"), cluster.counts_statements).await?;
        let baseline = Baseline::connect(&cluster.url("log")).await?;
        let mut stage = Self {
            server,
            sink,
            reader,
            baseline,
            keys,
            endpoints: Vec::new(),
            program,
            cluster,
        };
        for place in 0..args.tenants {
            let mut made = Vec::new();
            for spec in endpoints(place) {
                made.push(stage.make(place, &spec).await?);
            }
            stage.endpoints.push(made);
        }
        Ok(stage)
    }

    async fn make(&self, place: usize, spec: &EndpointSpec) -> anyhow::Result<MadeEndpoint> {
        let key = self.keys.get(place).cloned().unwrap_or_default();
        let mut fields = json!({ "url": self.url(&spec.path), "event_types": [spec.event_type] });
        if let (Some(policy), Some(fields)) = (&spec.retry_policy, fields.as_object_mut()) {
            fields.insert("retry_policy".to_owned(), policy.clone());
        }
        let id = program::endpoint(self.server.address, &key, &fields).await?;
        Ok(MadeEndpoint { key, id })
    }

    fn url(&self, path: &str) -> String {
        if path.starts_with('/') {
            format!("http://{}{path}", self.sink.address)
        } else {
            path.to_owned()
        }
    }

    /// Changes the first endpoint of the first `tenants`: `fields` are made for its place. Waits until the last one is
    /// in force.
    pub(crate) async fn change(
        &self,
        tenants: usize,
        fields: impl Fn(usize) -> Value,
    ) -> anyhow::Result<()> {
        let mut changing = JoinSet::new();
        for (place, made) in self.endpoints.iter().take(tenants).enumerate() {
            let Some(made) = made.first().cloned() else {
                continue;
            };
            let (server, fields) = (self.server.address, fields(place).to_string());
            changing.spawn(async move {
                let path = format!("/v1/endpoints/{}", made.id);
                let key = Some(made.key.as_str());
                client::call::<Value>(server, Method::PATCH, &path, key, &fields).await
            });
        }
        while changing
            .join_next()
            .await
            .transpose()?
            .transpose()?
            .is_some()
        {}
        tokio::time::sleep(Duration::from_secs(1)).await;
        Ok(())
    }

    /// Sends the first endpoints of the first `tenants` to another path.
    pub(crate) async fn point(
        &self,
        tenants: usize,
        path: impl Fn(usize) -> String,
    ) -> anyhow::Result<()> {
        self.change(tenants, |place| json!({ "url": self.url(&path(place)) }))
            .await
    }

    /// The load straight to the sink.
    pub(crate) async fn direct(&self, args: &RunArgs, pace: Pace) -> anyhow::Result<Direct> {
        self.reset_sink().await?;
        let target = Target::Sink {
            address: self.sink.address,
        };
        let cpu = self.cpu_of_load_and_sink()?;
        let loaded = load::send(&Load {
            target,
            duration: args.duration(),
            connections: args.connections,
            pace,
            accepted: None,
        })
        .await?;
        let cpu = self.cpu_of_load_and_sink()?.saturating_sub(cpu);
        Ok(Direct {
            per_second: loaded.per_second(),
            cpu_ms: millis_each(cpu, loaded.accepted),
            sink: self.count().await?,
        })
    }

    fn cpu_of_load_and_sink(&self) -> anyhow::Result<Duration> {
        Ok(process::cpu(std::process::id())? + process::cpu(self.sink.pid())?)
    }

    /// A load through the server, not measured by itself.
    pub(crate) async fn submit(&self, measured: &Measured) -> anyhow::Result<Loaded> {
        let target = Target::Server {
            address: self.server.address,
            keys: Arc::clone(&measured.keys),
        };
        load::send(&Load {
            target,
            duration: measured.duration,
            connections: measured.connections,
            pace: measured.pace,
            accepted: None,
        })
        .await
    }

    /// A load through the server until its last delivery has come, with another one `beside` it that is not measured.
    pub(crate) async fn through_server(
        &self,
        measured: &Measured,
        beside: Option<&Measured>,
    ) -> anyhow::Result<Stretch> {
        self.reset_sink().await?;
        let before = self.reader.begin().await?;
        let cpu = (
            process::cpu(self.server.pid())?,
            process::cpu_with_children(self.cluster.pid())?,
        );
        let begin_us = payload::now_us();
        let aside = async {
            match beside {
                Some(beside) => self.submit(beside).await.map(Some),
                None => Ok(None),
            }
        };
        let (loaded, aside) = tokio::try_join!(self.submit(measured), aside)?;
        let expected = loaded.accepted * measured.fan_out as u64;
        let sink = self.wait_for(expected).await?;
        let server_cpu = process::cpu(self.server.pid())?.saturating_sub(cpu.0);
        let postgres_cpu = process::cpu_with_children(self.cluster.pid())?.saturating_sub(cpu.1);
        let spent = self.reader.read().await?.since(before);
        let until_last =
            Duration::from_micros(sink.last_at_us.saturating_sub(begin_us)).as_secs_f64();
        let seconds = loaded.seconds.max(until_last);
        let accepted = loaded.accepted;
        Ok(Stretch {
            load: loaded,
            aside,
            sink,
            expected,
            lost: expected.saturating_sub(sink.unique),
            seconds,
            delivered_per_second: load::rate(sink.unique, seconds),
            server_cpu_ms: millis_each(server_cpu, accepted),
            postgres_cpu_ms: millis_each(postgres_cpu, accepted),
            spent,
        })
    }

    /// Waits until every measured delivery has come, or none has for [`STALL`].
    pub(crate) async fn wait_for(&self, expected: u64) -> anyhow::Result<Count> {
        self.wait_until(|count| count.unique, expected).await
    }

    /// Waits until `of` what the sink counts has reached `expected`, or has not changed for [`STALL`].
    pub(crate) async fn wait_until(
        &self,
        of: fn(&Count) -> u64,
        expected: u64,
    ) -> anyhow::Result<Count> {
        let (mut last, mut changed) = (self.count().await?, Instant::now());
        while of(&last) < expected && changed.elapsed() < STALL {
            tokio::time::sleep(Duration::from_millis(50)).await;
            let count = self.count().await?;
            if of(&count) > of(&last) {
                changed = Instant::now();
            }
            last = count;
        }
        Ok(last)
    }

    /// What the sink counts now.
    pub(crate) async fn count(&self) -> anyhow::Result<Count> {
        client::call(self.sink.address, Method::GET, "/count", None, "").await
    }

    /// The sink begins at nothing.
    pub(crate) async fn reset_sink(&self) -> anyhow::Result<()> {
        client::call::<Value>(self.sink.address, Method::POST, "/reset", None, "")
            .await
            .map(drop)
    }
}

/// Milliseconds for each of `count`.
fn millis_each(cpu: Duration, count: u64) -> f64 {
    1000.0 * load::rate(1, load::rate(count, cpu.as_secs_f64()))
}

async fn create_database(cluster: &Cluster, name: &'static str) -> anyhow::Result<()> {
    let mut connection = PgConnection::connect(&cluster.url("postgres")).await?;
    let statement = match name {
        "log" => "CREATE DATABASE log",
        _ => "CREATE DATABASE posthorn",
    };
    sqlx::query(statement).execute(&mut connection).await?;
    Ok(connection.close().await?)
}

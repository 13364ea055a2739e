//! How the program speaks about itself: log lines on standard error, metrics for Prometheus.
//!
//! Nothing secret is logged because nothing secret has a `Debug`; metrics have no label whose values a
//! tenant or a caller can choose, so their number stays bounded (INV-10, INV-11).

mod help;

use std::io::IsTerminal as _;
use std::time::Duration;

use anyhow::Context as _;
use metrics_exporter_prometheus::{Matcher, PrometheusBuilder, PrometheusHandle};
use posthorn_store::clock::Clock;
use posthorn_store::drive::drive;
use tokio_util::sync::CancellationToken;
use tracing_subscriber::EnvFilter;

use crate::settings::{LogFormat, LogSettings};

/// Bounds of every histogram of seconds: from a fast write to a slow endpoint.
const SECONDS: [f64; 14] = [
    0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
];

/// Bounds of every histogram of rows of a statement: the largest has [`posthorn_domain::limits::RECORD_ROWS`].
const ROWS: [f64; 11] = [
    1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0, 1024.0,
];

/// How often what the recorder collected is folded, so that its memory stays flat between scrapes.
const UPKEEP: Duration = Duration::from_secs(5);

/// Logs as the settings say, for as long as the program runs.
///
/// # Errors
/// When the filter does not parse.
pub(crate) fn log(settings: &LogSettings) -> anyhow::Result<()> {
    let filter = EnvFilter::try_new(&settings.filter).context("POSTHORN_LOG")?;
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr);
    let set = match settings.format {
        LogFormat::Json => lines.json().flatten_event(true).try_init(),
        LogFormat::Text => lines
            .with_ansi(std::io::stderr().is_terminal())
            .with_target(false)
            .try_init(),
    };
    set.map_err(|error| anyhow::anyhow!("{error}"))
}

/// For verbs that run to their end: warnings alone.
pub(crate) fn log_warnings() {
    // A logger that is there already serves as well.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new("warn"))
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .without_time()
        .with_target(false)
        .try_init();
}

/// The program's metrics, rendered on request.
#[derive(Clone)]
pub(crate) struct Metrics {
    handle: PrometheusHandle,
}

impl Metrics {
    /// Collects from here on.
    ///
    /// # Errors
    /// When something else collects already.
    pub(crate) fn collect() -> anyhow::Result<Self> {
        let recorder = PrometheusBuilder::new()
            .set_buckets(&SECONDS)?
            .set_buckets_for_metric(Matcher::Suffix("_rows".to_owned()), &ROWS)?
            .build_recorder();
        let handle = recorder.handle();
        metrics::set_global_recorder(recorder)
            .map_err(|_| anyhow::anyhow!("metrics are collected already"))?;
        help::describe();
        metrics::gauge!("posthorn_build_info", "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        Ok(Self { handle })
    }

    /// The text that Prometheus reads.
    pub(crate) fn render(&self) -> String {
        self.handle.render()
    }

    /// Folds what was collected, again and again until `stop`.
    pub(crate) async fn keep_up(self, clock: Clock, stop: CancellationToken) {
        drive(&clock, UPKEEP, None, &stop, || {
            self.handle.run_upkeep();
            std::future::ready(())
        })
        .await;
    }
}

#[cfg(test)]
impl Metrics {
    /// A recorder that nothing records into.
    pub(crate) fn for_tests() -> Self {
        Self {
            handle: PrometheusBuilder::new().build_recorder().handle(),
        }
    }
}

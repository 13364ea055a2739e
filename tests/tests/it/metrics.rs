//! Metrics: how many there can be, and what a scrape costs.

use std::time::Duration;

use posthorn_store::clock::Clock;
use posthorn_tests::program::{Client, Installation};
use posthorn_tests::proxy::Way;
use posthorn_tests::receiver::{Reply, Script};

use crate::stage::{AMPLE, Stage};

/// Series that a node may have at all.
const SERIES: usize = 2_000;

/// A scrape, of an unoptimised program on a busy machine.
const PROMPT: Duration = Duration::from_millis(50);

const ENDPOINTS: &str = "INSERT INTO endpoints
     SELECT (jsonb_populate_record(e, jsonb_build_object('id', gen_random_uuid(), 'uid', NULL, 'event_types', ARRAY['nobody.cares']))).*
     FROM endpoints AS e CROSS JOIN generate_series(1, 10000)";

/// Names and labels, without values.
async fn series(api: &Client) -> Vec<String> {
    let scraped = api.get("/metrics").await;
    assert_eq!(scraped.status, 200);
    let text = String::from_utf8(scraped.body.to_vec()).unwrap();
    text.lines()
        .filter(|line| !line.starts_with('#'))
        .filter_map(|line| Some(line.rsplit_once(' ')?.0.to_owned()))
        .collect()
}

/// Whoever meets a metric for the first time reads beside it what it is.
#[tokio::test]
async fn every_metric_says_what_it_is() {
    let stage = Stage::set().await;
    let script = Script::first(1, Reply::status(500)).then(Reply::status(200));
    stage.receiver.script("/", script);
    stage.endpoint("/", 100, 3).await;
    let id = stage.api.submit("a.b", b"1").await;
    stage.delivery(&id, "delivered").await;
    let scraped = stage.api.get("/metrics").await;
    let text = String::from_utf8(scraped.body.to_vec()).unwrap();
    let named = |word: &str| {
        let lines = text.lines().filter_map(|line| line.strip_prefix(word));
        let names = lines.filter_map(|line| line.split_whitespace().next());
        names.map(str::to_owned).collect::<Vec<_>>()
    };
    let typed = named("# TYPE ");
    assert!(
        typed.contains(&"posthorn_attempts_total".to_owned()),
        "{text}"
    );
    let explained = named("# HELP ");
    let silent: Vec<_> = typed
        .iter()
        .filter(|name| !explained.contains(name))
        .collect();
    assert_eq!(silent, [] as [&String; 0]);
}

/// INV-11; G16: nothing that a caller, a tenant or a receiver chooses makes a series.
#[tokio::test(flavor = "multi_thread")]
async fn no_path_type_endpoint_or_status_makes_a_series_of_its_own() {
    let stage = Stage::set().await;
    // All but 410, which would end it.
    let statuses = (301..600).filter(|status| *status != 410);
    let script = statuses.fold(Script::first(1, Reply::status(300)), |script, status| {
        script.then_times(1, Reply::status(status))
    });
    stage.receiver.script("/", script);
    stage.endpoint("/", 60_000, 2).await;
    // One of each kind: what there is by itself.
    stage.api.submit("a.b", b"1").await;
    stage.arrived("/", 1).await;
    let before = series(&stage.api).await;

    stage.installation.query(ENDPOINTS).await;
    for number in 0..5_000 {
        let path = format!("/v1/admin/{number}.php");
        assert_eq!(stage.api.get(&path).await.status, 404);
    }
    for number in 0..300 {
        stage.api.submit(&format!("type.n{number}"), b"1").await;
    }
    stage.arrived("/", 301).await;
    let after = series(&stage.api).await;
    assert!(after.len() < SERIES, "{}", after.len());
    let new: Vec<_> = after.iter().filter(|name| !before.contains(name)).collect();
    assert!(new.len() < before.len(), "{new:?}");
    let theirs = ["php", "n299", "599", "\"ep_", "127.0.0.1"];
    let told = after
        .iter()
        .find(|name| theirs.iter().any(|word| name.contains(word)));
    assert_eq!(told, None);
}

/// G17: a scrape asks the database nothing, however much is in it or however far away it is.
#[tokio::test(flavor = "multi_thread")]
async fn a_scrape_asks_the_database_nothing() {
    let installation = Installation::new().await;
    let proxy = installation.proxy().await;
    let node = installation.serve_through(&proxy).await;
    let stage = Stage::around(installation, node).await;
    stage.endpoint("/", 500, 3).await;
    stage.api.submit("a.b", b"1").await;
    stage.receiver.wait_for("/", 1, AMPLE).await;
    proxy.set(Way::Stalled);
    let clock = Clock::start();
    let mut times = Vec::new();
    for _ in 0..21 {
        let began = clock.monotonic();
        assert!(!series(&stage.api).await.is_empty());
        times.push(clock.monotonic() - began);
    }
    times.sort();
    assert!(times[10] < PROMPT, "{times:?}");
}

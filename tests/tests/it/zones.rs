//! Time zones: of the database, of the server, of whoever asks. None of them moves anything.

use std::time::Duration;

use chrono::{DateTime, FixedOffset, SecondsFormat, TimeDelta};
use posthorn_tests::program::{At, Installation};
use posthorn_tests::receiver::{Reply, Script};

use crate::stage::{AMPLE, Stage};

/// Half an hour off in both, so that no whole hour hides a mistake.
const DATABASE: &str = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = %L', current_database(), 'Asia/Kolkata'); END $$";

const SERVER: &str = "America/St_Johns";

/// Between two attempts.
const DELAY_MS: u64 = 2_000;

fn time(text: &str) -> DateTime<FixedOffset> {
    DateTime::parse_from_rfc3339(text).unwrap()
}

/// A moment as a query takes it, as another zone's clock shows it.
fn shown(at: DateTime<FixedOffset>, zone_minutes: i32) -> String {
    let zone = FixedOffset::east_opt(zone_minutes * 60).unwrap();
    let text = at
        .with_timezone(&zone)
        .to_rfc3339_opts(SecondsFormat::Micros, false);
    text.replace('+', "%2B")
}

/// D29: schedules, filters and times are what they are everywhere.
#[tokio::test(flavor = "multi_thread")]
async fn no_time_zone_moves_a_schedule_a_filter_or_a_time() {
    let installation = Installation::new().await;
    installation.query(DATABASE).await;
    let set = "SELECT array_to_string(setconfig, ',') FROM pg_db_role_setting AS s JOIN pg_database AS d ON d.oid = s.setdatabase
               WHERE d.datname = current_database()";
    assert_eq!(installation.query(set).await, ["TimeZone=Asia/Kolkata"]);
    let node = installation.serve_with("TZ", SERVER).await;
    let stage = Stage::around(installation, node).await;
    let script = Script::first(1, Reply::status(500)).then(Reply::status(200));
    stage.receiver.script("/", script);
    stage.endpoint("/", DELAY_MS, 3).await;

    let body = br#"{"type":"a.b","payload":1,"occurred_at":"2026-03-29T02:30:00+05:30"}"#;
    let accepted = stage.api.post("/v1/events", body.to_vec()).await;
    let id = accepted.expect(202).text("/id");
    let requests = stage.receiver.wait_for("/", 2, AMPLE).await;
    let waited = requests[1].arrived - requests[0].arrived;
    let delay = Duration::from_millis(DELAY_MS);
    assert!(
        waited > delay.mul_f64(0.7) && waited < 3 * delay,
        "{waited:?}"
    );
    stage.delivery(&id, "delivered").await;

    let event = stage.api.get(&format!("/v1/events/{id}")).await.expect(200);
    assert_eq!(
        time(&event.text("/occurred_at")),
        time("2026-03-28T21:00:00Z")
    );
    let at = time(&event.text("/accepted_at"));
    let sent: i64 = requests[0]
        .header("webhook-timestamp")
        .unwrap()
        .parse()
        .unwrap();
    assert!((at.timestamp() - sent).abs() < 5, "{at} {sent}");
    for zone in [0, 330, -210] {
        let moment = TimeDelta::microseconds(1);
        let (from, to) = (shown(at, zone), shown(at + moment, zone));
        let found = format!("/v1/events?since={from}&until={to}");
        let found = stage.api.get(&found).await.expect(200);
        assert_eq!(found.list("/data").len(), 1, "{found}");
        let earlier = stage.api.get(&format!("/v1/events?until={from}")).await;
        assert_eq!(
            earlier.expect(200).list("/data"),
            [] as [serde_json::Value; 0]
        );
    }
    let today = "SELECT count(*)::text FROM events WHERE tableoid::regclass::text = 'events_' || to_char(now() AT TIME ZONE 'UTC', 'YYYYMMDD')";
    assert_eq!(stage.installation.query(today).await, ["1"]);
    assert_eq!(stage.installation.complaints().await, [] as [String; 0]);
}

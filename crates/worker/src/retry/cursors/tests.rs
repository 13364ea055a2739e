use posthorn_domain::id::{EndpointId, EventId, TenantId};
use posthorn_store::clock::Clock;
use posthorn_store::record::DeliveryKey;
use uuid::Uuid;

use super::*;

fn row(shard: u8, at_ms: i64) -> Due {
    Due {
        key: DeliveryKey {
            tenant: TenantId::from_uuid(Uuid::nil()),
            endpoint: EndpointId::from_uuid(Uuid::from_u128(u128::from(shard))),
            event: EventId::from_uuid(Uuid::nil()),
        },
        n: 1,
        due: DateTime::from_timestamp_millis(at_ms),
    }
}

fn at(ms: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_millis(ms).unwrap()
}

fn now() -> Instant {
    Clock::start().monotonic()
}

#[test]
fn a_shard_that_was_read_to_its_end_is_looked_at_again_a_little_before_it() {
    let mut cursors = Cursors::new(now());
    assert!(!cursors.advance(&[row(7, 60_000)]));
    let from = cursors.begin(&[6, 7], now());
    assert_eq!(from, [(6, DateTime::UNIX_EPOCH), (7, at(58_000))]);
}

#[test]
fn a_shard_with_more_goes_on_where_it_stopped_and_leaves_the_others_alone() {
    let mut cursors = Cursors::new(now());
    let many: Vec<_> = (0..128).map(|n| row(7, 60_000 + n)).collect();
    assert!(cursors.advance(&many));
    let from = cursors.begin(&[6, 7], now());
    assert_eq!(from, [(6, DateTime::UNIX_EPOCH), (7, at(60_127))]);
}

#[test]
fn a_pile_of_one_moment_does_not_hold_a_cursor_up() {
    let mut cursors = Cursors::new(now());
    let many: Vec<_> = (0..128).map(|_| row(7, 60_000)).collect();
    cursors.advance(&many);
    cursors.advance(&many);
    let from = cursors.begin(&[7], now());
    assert!(from[0].1 > at(60_000));
}

#[test]
fn a_scan_that_was_cut_is_followed_by_one_that_begins_with_the_next_shard() {
    let mut cursors = Cursors::new(now());
    let many: Vec<_> = (0..128)
        .flat_map(|_| (1..=8).map(|shard| row(shard, 60_000)))
        .collect();
    assert!(cursors.advance(&many));
    let order: Vec<_> = cursors
        .begin(&[1, 2, 8, 9, 10], now())
        .into_iter()
        .map(|(shard, _)| shard)
        .collect();
    assert_eq!(order, [9, 10, 1, 2, 8]);
}

#[test]
fn a_shard_that_comes_back_is_scanned_from_the_beginning() {
    let mut cursors = Cursors::new(now());
    cursors.advance(&[row(7, 60_000)]);
    cursors.begin(&[6], now());
    assert_eq!(cursors.begin(&[7], now()), [(7, DateTime::UNIX_EPOCH)]);
}

#[test]
fn all_shards_are_scanned_from_the_beginning_every_15_seconds() {
    let began = now();
    let mut cursors = Cursors::new(began);
    cursors.advance(&[row(7, 60_000)]);
    let from = cursors.begin(&[7], began + limits::DUE_RESTART);
    assert_eq!(from, [(7, DateTime::UNIX_EPOCH)]);
}

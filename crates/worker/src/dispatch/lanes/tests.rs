use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use chrono::DateTime;
use posthorn_domain::content_type::ContentType;
use posthorn_domain::event_type::EventType;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::{EndpointId, EventId, TenantId};
use posthorn_store::accept::{FreshEvent, Taken};
use posthorn_store::pending::Due;
use posthorn_store::stream::{OpenSet, Stream};
use uuid::Uuid;

mod behind;
mod properties;
mod rates;

use super::*;

fn key(tenant: u128, endpoint: u128, event: u128) -> DeliveryKey {
    DeliveryKey {
        tenant: TenantId::from_uuid(Uuid::from_u128(tenant)),
        endpoint: EndpointId::from_uuid(Uuid::from_u128(endpoint)),
        event: EventId::from_uuid(Uuid::from_u128(event)),
    }
}

fn due(key: DeliveryKey) -> Item {
    Item::Pending(Due {
        key,
        n: 1,
        due: Some(DateTime::UNIX_EPOCH),
    })
}

fn parked(key: DeliveryKey) -> Item {
    Item::Pending(Due {
        key,
        n: 1,
        due: None,
    })
}

fn fresh(key: DeliveryKey, bytes: usize) -> Item {
    let event = FreshEvent {
        tenant: key.tenant,
        id: key.event,
        event_type: EventType::parse("order.paid").unwrap(),
        content_type: ContentType::JSON,
        payload: Bytes::from_static(&PAYLOAD[..bytes]),
        occurred_at: None,
        headers: CustomHeaders::default(),
        endpoints: vec![key.endpoint],
        handed_over: Vec::new(),
        has_strict: false,
        stream: Arc::new(Stream::opened(1, OpenSet::default(), now())),
        taken: Taken::default(),
    };
    Item::Fresh(Arc::new(event), key.endpoint)
}

static PAYLOAD: [u8; limits::PAYLOAD_BYTES] = [b' '; limits::PAYLOAD_BYTES];

/// Fills a tenant's endpoints with as many small fresh events as each may have in flight.
fn flood(lanes: &mut Lanes, tenant: u128, endpoints: u128) {
    for endpoint in 0..endpoints {
        for event in 0..16 {
            let key = key(
                tenant,
                tenant << 16 | endpoint,
                tenant << 32 | endpoint << 8 | event,
            );
            lanes.push(fresh(key, 100), now(), usual).unwrap();
        }
    }
}

fn pop_all(lanes: &mut Lanes) -> Vec<Item> {
    std::iter::from_fn(|| lanes.pop(now())).collect()
}

fn usual() -> Allowance {
    Allowance::default()
}

fn in_flight(in_flight: usize) -> Allowance {
    Allowance {
        in_flight,
        ..usual()
    }
}

fn now() -> Instant {
    posthorn_store::clock::Clock::start().monotonic()
}

#[test]
fn tenants_take_turns_however_much_one_of_them_has_queued() {
    let mut lanes = Lanes::default();
    for event in 0..50 {
        lanes.push(due(key(1, 1, event)), now(), usual).unwrap();
    }
    lanes.push(due(key(2, 2, 100)), now(), usual).unwrap();
    let first: Vec<_> = (0..2)
        .filter_map(|_| lanes.pop(now()))
        .map(|item| item.key().tenant)
        .collect();
    assert_eq!(first, [key(1, 1, 0).tenant, key(2, 2, 0).tenant]);
}

#[test]
fn endpoints_of_one_tenant_take_turns() {
    let mut lanes = Lanes::default();
    for event in 0..10 {
        lanes.push(due(key(1, 1, event)), now(), usual).unwrap();
    }
    lanes.push(due(key(1, 2, 100)), now(), usual).unwrap();
    let endpoints: Vec<_> = (0..2)
        .filter_map(|_| lanes.pop(now()))
        .map(|item| item.key().endpoint)
        .collect();
    assert_eq!(endpoints, [key(1, 1, 0).endpoint, key(1, 2, 0).endpoint]);
}

#[test]
fn an_endpoint_has_no_more_in_flight_than_its_cap() {
    let mut lanes = Lanes::default();
    for event in 0..60 {
        lanes.push(due(key(1, 1, event)), now(), usual).unwrap();
    }
    let out: Vec<_> = std::iter::from_fn(|| lanes.pop(now())).collect();
    assert_eq!(out.len(), limits::IN_FLIGHT_PER_ENDPOINT);
    lanes.answered(out.first().unwrap().key());
    assert!(lanes.pop(now()).is_some() && lanes.pop(now()).is_none());
}

#[test]
fn a_delivery_that_is_held_is_not_taken_again_until_it_is_recorded() {
    let mut lanes = Lanes::default();
    let one = key(1, 1, 1);
    lanes.push(due(one), now(), usual).unwrap();
    assert_eq!(lanes.push(due(one), now(), usual), Err(Refusal::Held));
    lanes.pop(now()).unwrap();
    lanes.answered(one);
    assert_eq!(lanes.push(due(one), now(), usual), Err(Refusal::Held));
    lanes.recorded(one);
    assert_eq!(lanes.push(due(one), now(), usual), Ok(()));
}

#[test]
fn an_endpoint_holds_no_more_due_rows_than_a_scan_may_take() {
    let mut lanes = Lanes::default();
    let taken = (0..200)
        .filter(|event| lanes.push(due(key(1, 1, *event)), now(), usual).is_ok())
        .count();
    assert_eq!(taken, limits::DUE_ROWS_PER_ENDPOINT);
}

#[test]
fn what_is_drained_leaves_the_queues_usable() {
    let mut lanes = Lanes::default();
    for event in 0..3 {
        lanes.push(due(key(1, 1, event)), now(), usual).unwrap();
    }
    assert_eq!(lanes.drain().len(), 3);
    assert!(lanes.pop(now()).is_none());
    lanes.push(due(key(1, 2, 9)), now(), usual).unwrap();
    assert!(lanes.pop(now()).is_some());
}

#[test]
fn nothing_stays_in_memory_once_everything_is_recorded() {
    let mut lanes = Lanes::default();
    for event in 0..40 {
        lanes
            .push(due(key(event % 5, event % 7, event)), now(), usual)
            .unwrap();
    }
    while let Some(item) = lanes.pop(now()) {
        lanes.answered(item.key());
        lanes.recorded(item.key());
    }
    assert_eq!(
        (
            lanes.in_flight(),
            lanes.held(),
            lanes.tenants.len(),
            lanes.bytes
        ),
        (0, 0, 0, 0)
    );
}

#[test]
fn an_overdue_moment_before_everything_takes_out_nothing() {
    let mut lanes = Lanes::default();
    lanes.push(due(key(1, 1, 1)), now(), usual).unwrap();
    assert!(
        lanes
            .overdue(now().checked_sub(Duration::from_secs(3)).unwrap())
            .is_empty()
    );
}

/// INV-13: what hangs of one tenant may have most of the node while nobody else has work.
#[test]
fn a_tenant_alone_gets_three_quarters_of_the_slots() {
    let mut lanes = Lanes::default();
    flood(&mut lanes, 1, 128);
    let got = pop_all(&mut lanes).len();
    assert!((1450..=1536).contains(&got), "{got}");
}

/// INV-13, D10: within one tenant, too.
#[test]
fn a_thousand_endpoints_that_hang_leave_slots_for_their_sibling() {
    for hanging in [50, 200, 1000] {
        let mut lanes = Lanes::default();
        flood(&mut lanes, 1, hanging);
        pop_all(&mut lanes);
        for event in 0..16 {
            let sibling = fresh(key(1, 1 << 40, 1 << 48 | event), 100);
            lanes.push(sibling, now(), usual).unwrap();
        }
        let got = pop_all(&mut lanes).len();
        assert!(got >= 1, "{got} beside {hanging}");
    }
}

/// INV-13: what an endpoint gives back goes to those with fewer.
#[test]
fn an_endpoint_that_has_its_part_goes_on_when_slots_are_free_again() {
    let mut lanes = Lanes::default();
    flood(&mut lanes, 1, 1000);
    let out = pop_all(&mut lanes);
    for item in out.iter().take(500) {
        lanes.answered(item.key());
    }
    let more = pop_all(&mut lanes).len();
    assert!(more >= 490, "{more}");
}

/// INV-13, D09.
#[test]
fn ten_tenants_that_flood_leave_slots_for_the_eleventh() {
    let mut lanes = Lanes::default();
    for tenant in 1..=10 {
        flood(&mut lanes, tenant, 20);
    }
    pop_all(&mut lanes);
    flood(&mut lanes, 11, 20);
    let got = pop_all(&mut lanes).len();
    assert!(got >= 40, "{got}");
}

/// INV-11: slots bound the payloads in flight.
#[test]
fn large_payloads_in_flight_take_the_slots_of_many_small_ones() {
    let mut lanes = Lanes::default();
    for event in 0..64 {
        let large = fresh(key(event, event, event), limits::PAYLOAD_BYTES);
        lanes.push(large, now(), usual).unwrap();
        let other = fresh(
            key(event, 1000 + event, 1000 + event),
            limits::PAYLOAD_BYTES,
        );
        lanes.push(other, now(), usual).unwrap();
    }
    assert_eq!(pop_all(&mut lanes).len(), limits::IN_FLIGHT_PER_NODE / 17);
}

/// INV-11: nobody knows the size of a payload that is not read yet.
#[test]
fn a_pending_row_takes_the_slots_of_the_largest_payload_until_its_own_is_read() {
    let mut lanes = Lanes::default();
    for endpoint in 0..40 {
        for event in 0..50 {
            let key = key(1, endpoint, endpoint * 100 + event);
            lanes.push(due(key), now(), usual).unwrap();
        }
    }
    let unread = pop_all(&mut lanes);
    for item in &unread {
        lanes.weighed(item.key(), 200);
    }
    let more = pop_all(&mut lanes).len();
    assert!(unread.len() <= 90 && more >= 80, "{} {more}", unread.len());
}

/// INV-13: ten tenants with nothing but large payloads leave room for the eleventh's.
#[test]
fn tenants_that_fill_the_memory_leave_room_for_another() {
    let mut lanes = Lanes::default();
    for event in 0..1000 {
        let key = key(event % 10, event % 10, event);
        let _ = lanes.push(fresh(key, limits::PAYLOAD_BYTES), now(), usual);
    }
    let eleventh = fresh(key(11, 11, 2000), limits::PAYLOAD_BYTES);
    assert_eq!(lanes.push(eleventh, now(), usual), Ok(()));
}

/// INV-13: a drain has at least half of what is started; fresh events have the rest.
#[test]
fn a_drain_and_fresh_events_take_turns() {
    let mut lanes = Lanes::default();
    for event in 0..100 {
        lanes
            .push(fresh(key(1, 1, event), 100), now(), usual)
            .unwrap();
        lanes
            .push(parked(key(1, 1, 1000 + event)), now(), usual)
            .unwrap();
    }
    let drained = pop_all(&mut lanes)
        .iter()
        .filter(|item| matches!(item, Item::Pending(_)))
        .count();
    assert_eq!(drained, limits::IN_FLIGHT_PER_ENDPOINT / 2);
}

#[test]
fn a_retry_that_is_due_comes_before_a_drain() {
    let mut lanes = Lanes::default();
    for event in 0..100 {
        lanes.push(parked(key(1, 1, event)), now(), usual).unwrap();
    }
    lanes.push(due(key(1, 1, 1000)), now(), usual).unwrap();
    assert_eq!(lanes.pop(now()).unwrap().key(), key(1, 1, 1000));
}

#[test]
fn a_lane_whose_parked_rows_run_low_is_told_once_until_more_are_brought() {
    let mut lanes = Lanes::default();
    let one = key(1, 1, 0);
    let rows = limits::PARKED_LOW + 10;
    for event in 0..u128::try_from(rows).unwrap() {
        lanes.push(parked(key(1, 1, event)), now(), usual).unwrap();
    }
    lanes.set_more(one.tenant, one.endpoint, true);
    assert!(!lanes.any_low());
    let mut told = Vec::new();
    for _ in 0..20 {
        let item = lanes.pop(now()).unwrap();
        lanes.answered(item.key());
        told.extend(lanes.low());
    }
    assert_eq!(told, [(one.tenant, one.endpoint)]);
}

#[test]
fn an_endpoint_whose_rest_is_parked_is_low_at_once_unless_parked_rows_are_queued() {
    let mut lanes = Lanes::default();
    let (gone, busy, full) = (key(1, 1, 0), key(1, 2, 1), key(1, 3, 0));
    lanes.push(due(busy), now(), usual).unwrap();
    for event in 0..=u128::try_from(limits::PARKED_LOW).unwrap() {
        lanes.push(parked(key(1, 3, event)), now(), usual).unwrap();
    }
    for of in [gone, busy, full] {
        lanes.rest_is_parked(of.tenant, of.endpoint);
    }
    let low = [gone, busy].map(|of| (of.tenant, of.endpoint));
    assert_eq!(lanes.low(), low);
}

#[test]
fn a_lane_holds_no_more_parked_rows_than_a_drain_may_bring() {
    let mut lanes = Lanes::default();
    let taken = (0..2000)
        .filter(|event| lanes.push(parked(key(1, 1, *event)), now(), usual).is_ok())
        .count();
    assert_eq!(taken, limits::PARKED_PER_ENDPOINT);
}

#[test]
fn a_cap_that_is_changed_holds_at_once() {
    let mut lanes = Lanes::default();
    let one = key(1, 1, 0);
    for event in 0..50 {
        lanes.push(due(key(1, 1, event)), now(), usual).unwrap();
    }
    let mut counts = Vec::new();
    for cap in [0, 3, 20, limits::IN_FLIGHT_PER_ENDPOINT] {
        lanes.set_allowance(one.tenant, one.endpoint, in_flight(cap));
        counts.push(pop_all(&mut lanes).len());
    }
    assert_eq!(counts, [0, 3, 17, 0]);
}

#[test]
fn a_lane_begins_with_what_its_endpoint_is_allowed() {
    let mut lanes = Lanes::default();
    for event in 0..10 {
        lanes
            .push(due(key(1, 1, event)), now(), || in_flight(1))
            .unwrap();
    }
    assert_eq!(pop_all(&mut lanes).len(), 1);
}

#[test]
fn what_is_refused_leaves_nothing_behind() {
    let mut lanes = Lanes::default();
    for tenant in 0..400 {
        let _ = lanes.push(
            fresh(key(tenant, 1, tenant), limits::PAYLOAD_BYTES),
            now(),
            usual,
        );
    }
    assert_eq!(lanes.tenants.len(), lanes.held());
}

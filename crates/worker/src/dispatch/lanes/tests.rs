use std::time::{Duration, Instant};

use chrono::DateTime;
use posthorn_domain::id::{EndpointId, EventId, TenantId};
use uuid::Uuid;

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
        due: DateTime::UNIX_EPOCH,
    })
}

fn now() -> Instant {
    posthorn_store::clock::Clock::start().monotonic()
}

#[test]
fn tenants_take_turns_however_much_one_of_them_has_queued() {
    let mut lanes = Lanes::default();
    for event in 0..50 {
        lanes.push(due(key(1, 1, event)), now()).unwrap();
    }
    lanes.push(due(key(2, 2, 100)), now()).unwrap();
    let first: Vec<_> = (0..2)
        .filter_map(|_| lanes.pop())
        .map(|item| item.key().tenant)
        .collect();
    assert_eq!(first, [key(1, 1, 0).tenant, key(2, 2, 0).tenant]);
}

#[test]
fn endpoints_of_one_tenant_take_turns() {
    let mut lanes = Lanes::default();
    for event in 0..10 {
        lanes.push(due(key(1, 1, event)), now()).unwrap();
    }
    lanes.push(due(key(1, 2, 100)), now()).unwrap();
    let endpoints: Vec<_> = (0..2)
        .filter_map(|_| lanes.pop())
        .map(|item| item.key().endpoint)
        .collect();
    assert_eq!(endpoints, [key(1, 1, 0).endpoint, key(1, 2, 0).endpoint]);
}

#[test]
fn an_endpoint_has_no_more_in_flight_than_its_cap() {
    let mut lanes = Lanes::default();
    for event in 0..60 {
        lanes.push(due(key(1, 1, event)), now()).unwrap();
    }
    let out: Vec<_> = std::iter::from_fn(|| lanes.pop()).collect();
    assert_eq!(out.len(), limits::IN_FLIGHT_PER_ENDPOINT);
    lanes.answered(out.first().unwrap().key());
    assert!(lanes.pop().is_some() && lanes.pop().is_none());
}

#[test]
fn a_delivery_that_is_held_is_not_taken_again_until_it_is_recorded() {
    let mut lanes = Lanes::default();
    let one = key(1, 1, 1);
    lanes.push(due(one), now()).unwrap();
    assert_eq!(lanes.push(due(one), now()), Err(Refusal::Held));
    lanes.pop().unwrap();
    lanes.answered(one);
    assert_eq!(lanes.push(due(one), now()), Err(Refusal::Held));
    lanes.recorded(one, true);
    assert_eq!(lanes.push(due(one), now()), Ok(()));
}

#[test]
fn an_endpoint_holds_no_more_due_rows_than_a_scan_may_take() {
    let mut lanes = Lanes::default();
    let taken = (0..200)
        .filter(|event| lanes.push(due(key(1, 1, *event)), now()).is_ok())
        .count();
    assert_eq!(taken, limits::DUE_ROWS_PER_ENDPOINT);
    assert_eq!(lanes.room(key(1, 1, 0).endpoint), 0);
}

#[test]
fn what_is_drained_leaves_the_queues_usable() {
    let mut lanes = Lanes::default();
    for event in 0..3 {
        lanes.push(due(key(1, 1, event)), now()).unwrap();
    }
    assert_eq!(lanes.drain().len(), 3);
    assert!(lanes.pop().is_none());
    lanes.push(due(key(1, 2, 9)), now()).unwrap();
    assert!(lanes.pop().is_some());
}

#[test]
fn nothing_stays_in_memory_once_everything_is_recorded() {
    let mut lanes = Lanes::default();
    for event in 0..40 {
        lanes
            .push(due(key(event % 5, event % 7, event)), now())
            .unwrap();
    }
    while let Some(item) = lanes.pop() {
        lanes.answered(item.key());
        lanes.recorded(item.key(), true);
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
    lanes.push(due(key(1, 1, 1)), now()).unwrap();
    assert!(
        lanes
            .overdue(now().checked_sub(Duration::from_secs(3)).unwrap())
            .is_empty()
    );
}

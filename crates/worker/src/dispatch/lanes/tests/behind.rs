//! Which endpoints are told to be behind, and which are not.

use super::*;

/// Since when, and some time after it.
fn moments() -> (Instant, Instant) {
    let queued = now();
    (queued, queued + limits::BEHIND_AFTER)
}

/// Starts whatever may start.
fn start_all(lanes: &mut Lanes, at: Instant) -> Vec<Item> {
    std::iter::from_fn(|| lanes.pop(at)).collect()
}

fn of(tenant: u128, endpoint: u128) -> EndpointId {
    key(tenant, tenant << 16 | endpoint, 0).endpoint
}

/// Queues so many events for each of a tenant's endpoints.
fn queue(lanes: &mut Lanes, tenant: u128, endpoints: u128, events: u128, at: Instant) {
    for endpoint in 0..endpoints {
        for event in 0..events {
            let event = tenant << 64 | endpoint << 32 | event;
            let key = key(tenant, tenant << 16 | endpoint, event);
            lanes.push(fresh(key, 100), at, usual).unwrap();
        }
    }
}

/// A tenant with more to send than it has slots, whose requests are quick: as many as are out have ended lately.
fn saturated(at: Instant) -> Lanes {
    let mut lanes = Lanes::default();
    queue(&mut lanes, 1, 2000, 3, at);
    for item in start_all(&mut lanes, at) {
        lanes.answered(item.key());
    }
    start_all(&mut lanes, at);
    lanes
}

#[test]
fn an_endpoint_is_behind_when_the_node_has_nothing_free_for_it() {
    let (queued, later) = moments();
    let lanes = saturated(queued);
    assert!(lanes.behind(queued).is_empty(), "nothing has waited yet");
    let behind = lanes.behind(later);
    assert!(behind.len() > 400, "{}", behind.len());
}

#[test]
fn an_endpoint_that_has_reached_its_cap_is_not_behind() {
    let (queued, later) = moments();
    let mut lanes = Lanes::default();
    queue(&mut lanes, 1, 1, 100, queued);
    let out = start_all(&mut lanes, queued);
    assert_eq!(out.len(), limits::IN_FLIGHT_PER_ENDPOINT);
    assert!(lanes.behind(later).is_empty());
}

/// INV-13: what keeps the tenant's slots is set aside, and slows no caller.
#[test]
fn an_endpoint_is_not_behind_while_its_tenants_slots_are_held_by_requests_that_do_not_end() {
    let (queued, later) = moments();
    let mut lanes = Lanes::default();
    queue(&mut lanes, 1, 2000, 3, queued);
    start_all(&mut lanes, queued);
    assert!(lanes.behind(later).is_empty());
    // Nor when they did end some time ago.
    let key = key(1, 1 << 16, 1 << 64);
    lanes.answered(key);
    lanes.tick();
    start_all(&mut lanes, queued);
    assert!(lanes.behind(later).is_empty());
}

/// INV-13.
#[test]
fn a_tenant_that_has_its_share_is_behind_and_one_that_comes_is_not() {
    let (queued, later) = moments();
    let mut lanes = saturated(queued);
    queue(&mut lanes, 2, 1, 3, queued);
    start_all(&mut lanes, later);
    let behind = lanes.behind(later);
    assert!(!behind.is_empty());
    assert!(!behind.contains(&of(2, 0)));
}

/// INV-13: what it waits for is another's crowd.
#[test]
fn a_tenant_with_little_waiting_is_not_behind_because_another_has_much() {
    let (queued, later) = moments();
    let mut lanes = Lanes::default();
    // As though nothing could be started at all.
    queue(&mut lanes, 1, 2000, 3, queued);
    queue(&mut lanes, 2, 1, 10, queued);
    let behind = lanes.behind(later);
    assert!(behind.contains(&of(1, 0)));
    assert!(!behind.contains(&of(2, 0)));
}

#[test]
fn few_deliveries_are_not_behind_however_long_they_wait() {
    let (queued, later) = moments();
    let mut lanes = Lanes::default();
    queue(&mut lanes, 1, limits::BEHIND_LEAST as u128 - 1, 1, queued);
    assert!(lanes.behind(later).is_empty());
}

#[test]
fn tenants_with_as_much_waiting_are_behind_alike() {
    let (queued, later) = moments();
    let mut lanes = Lanes::default();
    for tenant in 1..=100 {
        queue(&mut lanes, tenant, 10, 2, queued);
    }
    assert_eq!(lanes.behind(later).len(), 1000);
}

#[test]
fn what_ended_is_forgotten_within_seconds() {
    let (queued, later) = moments();
    let mut lanes = saturated(queued);
    assert!(!lanes.behind(later).is_empty());
    (0..4).for_each(|_| lanes.tick());
    assert!(lanes.behind(later).is_empty());
}

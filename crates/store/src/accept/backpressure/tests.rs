use std::pin::{Pin, pin};
use std::task::{Context, Waker};

use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::clock::Clock;

fn tenant(n: u128) -> TenantId {
    TenantId::from_uuid(Uuid::from_u128(n))
}

fn endpoint(n: u128) -> EndpointId {
    EndpointId::from_uuid(Uuid::from_u128(n))
}

fn endpoints(of: impl IntoIterator<Item = u128>) -> Vec<EndpointId> {
    of.into_iter().map(endpoint).collect()
}

fn behind(of: impl IntoIterator<Item = u128>) -> HashSet<EndpointId> {
    of.into_iter().map(endpoint).collect()
}

fn is_over(event: Pin<&mut impl Future<Output = ()>>) -> bool {
    event
        .poll(&mut Context::from_waker(Waker::noop()))
        .is_ready()
}

/// Events that wait, each with its tenant.
struct Come(Vec<(u128, oneshot::Receiver<()>)>);

impl Come {
    /// The tenants of those that wait still.
    fn waiting(&mut self) -> Vec<u128> {
        self.0.retain_mut(|(_, let_in)| let_in.try_recv().is_err());
        self.0.iter().map(|(tenant, _)| *tenant).collect()
    }
}

fn come(pressure: &Backpressure, events: impl IntoIterator<Item = (u128, Vec<u128>)>) -> Come {
    let hold = |(of, list): (u128, Vec<u128>)| {
        let held = pressure.lock().hold(tenant(of), &endpoints(list));
        held.map(|held| (of, held))
    };
    Come(events.into_iter().filter_map(hold).collect())
}

#[tokio::test]
async fn an_event_waits_only_while_an_endpoint_of_its_is_behind() {
    let pressure = Backpressure::default();
    pressure.tell(behind([1]), 0);
    let (two, both) = (endpoints([2]), endpoints([1, 2]));
    assert!(is_over(pin!(pressure.hold(tenant(1), &two))));
    let mut waits = pin!(pressure.hold(tenant(1), &both));
    assert!(!is_over(waits.as_mut()));
    pressure.tell(behind([]), 0);
    assert!(is_over(waits));
    assert!(pressure.lock().awaited.is_empty());
}

/// INV-11.
#[tokio::test]
async fn an_event_is_accepted_after_a_second_however_far_its_endpoint_is_behind() {
    let pressure = Backpressure::default();
    pressure.tell(behind([1]), 0);
    let clock = Clock::start();
    let began = clock.monotonic();
    pressure.hold(tenant(1), &endpoints([1])).await;
    assert!(clock.monotonic() >= began + limits::HELD_BACK);
    pressure.tell(behind([1]), 0);
    let waiting = pressure.lock();
    assert!(waiting.awaited.is_empty() && waiting.tenants.is_empty() && waiting.turns.is_empty());
}

/// INV-13.
#[test]
fn tenants_are_let_in_by_turns_however_many_events_one_of_them_has() {
    let pressure = Backpressure::default();
    pressure.tell(behind([1, 2]), 0);
    let flood = std::iter::repeat_n((1, vec![1]), 1000);
    let mut come = come(&pressure, flood.chain([(2, vec![2])]));
    pressure.tell(behind([]), 0);
    assert_eq!(come.waiting(), vec![1; 1001 - limits::LET_IN_LEAST]);
}

/// INV-13.
#[test]
fn an_event_does_not_wait_behind_those_for_another_endpoint_of_its_tenant() {
    let pressure = Backpressure::default();
    pressure.tell(behind([1, 2]), 0);
    let mut come = come(&pressure, [(1, vec![1]), (1, vec![2])]);
    pressure.tell(behind([1]), 0);
    assert_eq!(come.waiting(), [1]);
    assert!(pressure.lock().hold(tenant(1), &endpoints([2])).is_none());
    assert!(pressure.is_on());
}

#[test]
fn whoever_comes_later_waits_behind_those_that_wait_for_the_same_endpoint() {
    let pressure = Backpressure::default();
    pressure.tell(behind([1]), 0);
    let first = come(&pressure, std::iter::repeat_n((1, vec![1]), 1000));
    pressure.tell(behind([]), 0);
    assert!(pressure.lock().hold(tenant(1), &endpoints([1])).is_some());
    drop(first);
    pressure.tell(behind([]), 0);
    assert!(!pressure.is_on());
}

#[test]
fn as_many_are_let_in_as_were_started() {
    let pressure = Backpressure::default();
    pressure.tell(behind([0]), 0);
    let events = (0..1000).map(|n| (n % 7, vec![0, 1, 2, 3]));
    let mut come = come(&pressure, events);
    pressure.tell(behind([]), 1000);
    assert_eq!(come.waiting().len(), 750);
    pressure.tell(behind([]), 0);
    assert_eq!(come.waiting().len(), 750 - limits::LET_IN_LEAST / 4);
}

#[test]
fn an_event_for_more_endpoints_than_are_let_in_at_once_is_let_in_alone() {
    let pressure = Backpressure::default();
    pressure.tell(behind([0]), 0);
    let mut come = come(&pressure, [(1, (0..10_000).collect()), (2, vec![0])]);
    pressure.tell(behind([]), 0);
    assert_eq!(come.waiting(), [2]);
    pressure.tell(behind([]), 0);
    assert!(come.waiting().is_empty());
}

proptest! {
    /// INV-13, INV-11: nobody is forgotten, whatever comes and goes; nothing is left of those who have gone.
    #[test]
    fn whoever_waits_is_let_in_once_nothing_is_behind(
        events in prop::collection::vec((0..5_u128, prop::collection::vec(0..9_u128, 1..4), any::<bool>()), 0..400),
        looks in prop::collection::vec((prop::collection::vec(0..9_u128, 0..9), 0..50_usize), 0..20),
    ) {
        let pressure = Backpressure::default();
        pressure.tell(behind(0..9), 0);
        let (mut come, gone): (Vec<_>, Vec<_>) = come(&pressure, events.iter().map(|(t, e, _)| (*t, e.clone())))
            .0
            .into_iter()
            .zip(&events)
            .partition(|(_, (_, _, stays))| *stays);
        drop(gone);
        for (of, started) in looks {
            pressure.tell(behind(of), started);
        }
        for _ in 0..400 {
            pressure.tell(behind([]), 0);
        }
        for ((_, let_in), _) in &mut come {
            prop_assert!(let_in.try_recv().is_ok());
        }
        prop_assert!(!pressure.is_on());
        prop_assert!(pressure.lock().awaited.is_empty());
    }
}

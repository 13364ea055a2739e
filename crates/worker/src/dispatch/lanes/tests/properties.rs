//! Whatever is pushed, started and answered in whatever order.

use std::collections::HashSet;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Fresh(u8, u8, usize),
    Due(u8, u8),
    Parked(u8, u8),
    Pop,
    Weigh(usize),
    Answer(usize),
    Record(usize),
    Overdue,
    Cap(u8, u8, usize),
    Shut(u8, u8),
}

fn step() -> impl Strategy<Value = Step> {
    let (tenant, endpoint) = (0..12_u8, 0..6_u8);
    prop_oneof![
        3 => (tenant.clone(), endpoint.clone(), prop_oneof![Just(100), Just(65_536), Just(1_048_576)])
            .prop_map(|(t, e, bytes)| Step::Fresh(t, e, bytes)),
        3 => (tenant.clone(), endpoint.clone()).prop_map(|(t, e)| Step::Due(t, e)),
        3 => (tenant.clone(), endpoint.clone()).prop_map(|(t, e)| Step::Parked(t, e)),
        6 => Just(Step::Pop),
        3 => any::<usize>().prop_map(Step::Weigh),
        2 => any::<usize>().prop_map(Step::Answer),
        2 => any::<usize>().prop_map(Step::Record),
        1 => Just(Step::Overdue),
        1 => (tenant, endpoint, 0..4_usize).prop_map(|(t, e, cap)| Step::Cap(t, e, cap)),
        1 => (0..12_u8, 0..6_u8).prop_map(|(t, e)| Step::Shut(t, e)),
    ]
}

/// Lanes, and what a dispatcher would know of them.
#[derive(Default)]
struct Played {
    lanes: Lanes,
    events: u128,
    queued: HashSet<DeliveryKey>,
    out: Vec<Item>,
    answered: Vec<DeliveryKey>,
    begun: HashSet<DeliveryKey>,
}

impl Played {
    fn key(&mut self, tenant: u8, endpoint: u8) -> DeliveryKey {
        self.events += 1;
        key(
            u128::from(tenant),
            u128::from(tenant) << 8 | u128::from(endpoint),
            self.events,
        )
    }

    fn push(&mut self, item: Item) {
        let key = item.key();
        if self.lanes.push(item, now(), usual).is_ok() {
            self.queued.insert(key);
        }
    }

    fn pop(&mut self) -> bool {
        let Some(item) = self.lanes.pop(now()) else {
            return false;
        };
        assert!(self.queued.remove(&item.key()), "popped, but not queued");
        assert!(self.begun.insert(item.key()), "popped twice");
        self.out.push(item);
        true
    }

    fn answer(&mut self, at: usize) {
        if !self.out.is_empty() {
            let item = self.out.swap_remove(at % self.out.len());
            self.lanes.answered(item.key());
            self.answered.push(item.key());
        }
    }

    fn record(&mut self, at: usize) {
        if !self.answered.is_empty() {
            let key = self.answered.swap_remove(at % self.answered.len());
            self.lanes.recorded(key);
        }
    }

    fn play(&mut self, step: Step) {
        match step {
            Step::Fresh(tenant, endpoint, bytes) => {
                let key = self.key(tenant, endpoint);
                self.push(fresh(key, bytes));
            }
            Step::Due(tenant, endpoint) => {
                let key = self.key(tenant, endpoint);
                self.push(due(key));
            }
            Step::Parked(tenant, endpoint) => {
                let key = self.key(tenant, endpoint);
                self.push(parked(key));
            }
            Step::Pop => {
                self.pop();
            }
            Step::Weigh(at) => {
                if !self.out.is_empty() {
                    let item = &self.out[at % self.out.len()];
                    self.lanes.weighed(item.key(), at % limits::PAYLOAD_BYTES);
                }
            }
            Step::Answer(at) => self.answer(at),
            Step::Record(at) => self.record(at),
            Step::Overdue => {
                for (item, _) in self.lanes.overdue(now() + Duration::from_secs(1)) {
                    assert!(self.queued.remove(&item.key()));
                    self.answered.push(item.key());
                }
            }
            Step::Cap(tenant, endpoint, cap) => self.allow(tenant, endpoint, in_flight(cap)),
            Step::Shut(tenant, endpoint) => {
                let shut = Some(Why::Circuit);
                self.allow(tenant, endpoint, Allowance { shut, ..usual() });
                for (item, why) in self.lanes.evicted() {
                    assert_eq!(why, Why::Circuit);
                    assert!(self.queued.remove(&item.key()));
                    self.answered.push(item.key());
                }
            }
        }
        assert!(self.lanes.slots <= limits::IN_FLIGHT_PER_NODE);
        assert_eq!(self.lanes.in_flight(), self.out.len());
    }

    fn allow(&mut self, tenant: u8, endpoint: u8, allowance: Allowance) {
        let tenant_id = key(u128::from(tenant), 0, 0).tenant;
        let endpoint_id = key(0, u128::from(tenant) << 8 | u128::from(endpoint), 0).endpoint;
        self.lanes.set_allowance(tenant_id, endpoint_id, allowance);
    }

    fn without_caps(&mut self) {
        self.lanes.allow(|_, _| usual());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// INV-13: whatever the others have queued and out, a tenant with work and nothing in flight has a slot after one turn of
    /// each of them; and each of those turns waits for no more answers than free the slots of the largest payload.
    #[test]
    fn a_tenant_with_nothing_in_flight_gets_a_slot_within_one_turn_of_each_other_tenant(
        steps in prop::collection::vec(step(), 200..1500)
    ) {
        let mut played = Played::default();
        for step in steps {
            played.play(step);
        }
        let newcomer = key(99, 99, 999_999);
        prop_assert_eq!(played.lanes.push(due(newcomer), now(), usual), Ok(()));
        let (mut turns, mut answers) = (0, 0);
        loop {
            match played.lanes.pop(now()) {
                Some(item) if item.key() == newcomer => break,
                Some(item) => {
                    turns += 1;
                    played.out.push(item);
                }
                None => {
                    prop_assert!(!played.out.is_empty());
                    answers += 1;
                    let item = played.out.swap_remove(0);
                    played.lanes.answered(item.key());
                }
            }
        }
        prop_assert!(turns <= 12, "{} turns", turns);
        prop_assert!(answers <= 17 * 13, "{} answers", answers);
    }

    /// INV-13, D10: however many endpoints of its tenant hang, with however much each, an endpoint with nothing in flight has
    /// a slot at once.
    #[test]
    fn an_endpoint_with_nothing_in_flight_gets_a_slot_beside_any_number_that_hang(
        hanging in prop::collection::vec(1..40_u8, 1..1400)
    ) {
        let mut lanes = Lanes::default();
        let mut event = 0;
        for (endpoint, queued) in (0..).zip(hanging) {
            for _ in 0..queued {
                event += 1;
                let of = key(1, endpoint, event);
                lanes.push(fresh(of, 10), now(), || in_flight(40)).unwrap();
            }
        }
        pop_all(&mut lanes);
        for endpoint in 5000..5002 {
            let sibling = key(1, endpoint, 1_000_000 + endpoint);
            lanes.push(fresh(sibling, 10), now(), usual).unwrap();
            let started = pop_all(&mut lanes);
            prop_assert!(started.iter().any(|item| item.key() == sibling));
        }
    }

    /// INV-2, INV-11: each delivery that was taken is started once, and at the end nothing is left.
    #[test]
    fn everything_that_was_taken_is_started_once_and_nothing_is_left(
        steps in prop::collection::vec(step(), 0..800)
    ) {
        let mut played = Played::default();
        for step in steps {
            played.play(step);
        }
        played.without_caps();
        while played.pop() || !played.out.is_empty() {
            played.answer(0);
        }
        while !played.answered.is_empty() {
            played.record(0);
        }
        prop_assert!(played.queued.is_empty(), "{} left", played.queued.len());
        let lanes = &played.lanes;
        prop_assert_eq!(
            (lanes.held(), lanes.bytes, lanes.rows, lanes.slots, lanes.in_flight, lanes.tenants.len()),
            (0, 0, 0, 0, 0, 0)
        );
    }

    /// INV-13: while both wait, a drain has at least half of an endpoint's starts, whatever else is pushed.
    #[test]
    fn a_drain_has_at_least_half_of_the_starts_of_its_endpoint(
        pushes in prop::collection::vec(any::<bool>(), 100..400)
    ) {
        let mut lanes = Lanes::default();
        for (event, pending) in (0..).zip(&pushes) {
            let of = key(1, 1, event);
            let _ = lanes.push(if *pending { parked(of) } else { fresh(of, 10) }, now(), usual);
        }
        let mut waiting = pushes.iter().filter(|pending| **pending).count();
        let (mut drained, mut started) = (0, 0);
        while waiting > 0 && let Some(item) = lanes.pop(now()) {
            started += 1;
            if matches!(item, Item::Pending(_)) {
                waiting -= 1;
                drained += 1;
            }
            lanes.answered(item.key());
            prop_assert!(2 * drained + 1 >= started);
        }
    }
}

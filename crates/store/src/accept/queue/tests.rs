use std::collections::HashMap;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use posthorn_domain::content_type::ContentType;
use posthorn_domain::event_type::EventType;
use posthorn_domain::header::CustomHeaders;
use posthorn_domain::id::EventId;
use posthorn_domain::metadata::Metadata;
use proptest::collection::vec;
use proptest::prelude::*;
use tokio::sync::oneshot;
use uuid::Uuid;

use super::*;
use crate::accept::{NewEvent, Taken};

const TURN: i64 = limits::SMALL_TURN_BYTES;

fn tenant(n: u128) -> TenantId {
    TenantId::from_uuid(Uuid::from_u128(n))
}

/// Queues an event with a payload of so many bytes; its id is `n`.
fn put(queue: &Queue, of: TenantId, n: u128, payload: usize) -> Result<(), AcceptError> {
    let place = queue.reserve(of, weight(payload, 1, false))?;
    let bytes = Bytes::from(vec![b'1'; payload]);
    queue.push(Row {
        new: NewEvent {
            tenant: of,
            event_type: EventType::parse("a").unwrap(),
            content_type: ContentType::JSON,
            payload: bytes.clone(),
            occurred_at: None,
            metadata: Metadata::default(),
            headers: CustomHeaders::default(),
            keys: None,
        },
        id: EventId::from_uuid(Uuid::from_u128(n)),
        endpoints: vec![posthorn_domain::id::EndpointId::from_uuid(Uuid::from_u128(
            1,
        ))],
        handovers: Vec::new(),
        has_strict: false,
        matched: 0,
        codec: 0,
        stored: bytes,
        doubtful: false,
        contested: None,
        reply: oneshot::channel().0,
        taken: Taken::default(),
        _place: place,
    });
    Ok(())
}

fn batch(queue: &Queue) -> Vec<Row> {
    match queue.take() {
        Next::Batch(rows) => rows,
        Next::Empty | Next::Ended => Vec::new(),
    }
}

fn of(rows: &[Row], tenant: TenantId) -> usize {
    rows.iter().filter(|row| row.new.tenant == tenant).count()
}

#[test]
fn a_second_flush_begins_as_soon_as_a_whole_company_waits_and_no_sooner() {
    let queue = Queue::new(TURN);
    let mut context = Context::from_waker(Waker::noop());
    let mut crowd = pin!(queue.take_crowd());
    for n in 1..limits::FLUSH_COMPANY as u128 {
        put(&queue, tenant(n % 3), n, 10).unwrap();
        assert!(crowd.as_mut().poll(&mut context).is_pending());
    }
    put(&queue, tenant(1), 0, 10).unwrap();
    let Poll::Ready(rows) = crowd.poll(&mut context) else {
        panic!("a whole company waits");
    };
    assert_eq!(rows.len(), limits::FLUSH_COMPANY);
    assert!(batch(&queue).is_empty());
}

/// INV-13: whoever comes after a flood is in the next flush.
#[test]
fn a_tenant_that_comes_after_a_flood_is_in_the_next_batch() {
    let queue = Queue::new(TURN);
    let flood = tenant(1);
    let flooded = (0..20_000).take_while(|n| put(&queue, flood, *n, 500).is_ok());
    assert!(flooded.count() > limits::FLUSH_ROWS);
    for other in 2..20 {
        put(&queue, tenant(other), other, 500).unwrap();
    }
    let rows = batch(&queue);
    assert!((2..20).all(|other| of(&rows, tenant(other)) == 1));
}

/// INV-13: a flush takes the longer the more is in it, and whoever comes meanwhile waits for it.
#[test]
fn a_flood_fills_a_batch_only_where_nobody_else_has_been_for_a_while() {
    let queue = Queue::new(TURN);
    let flood = tenant(1);
    for n in 0..4000 {
        put(&queue, flood, n, 500).unwrap();
    }
    assert_eq!(of(&batch(&queue), flood), limits::FLUSH_ROWS);
    put(&queue, tenant(2), 0, 500).unwrap();
    let turn = usize::try_from(TURN).unwrap() / weight(500, 0, false) + 1;
    let small = limits::FLUSH_ROWS_SHARED..limits::FLUSH_ROWS_SHARED + turn;
    let rows = batch(&queue);
    assert_eq!(of(&rows, tenant(2)), 1);
    assert!(small.contains(&rows.len()));
    for _ in 0..limits::FLUSHES_SHARED {
        assert!(small.contains(&batch(&queue).len()));
    }
    assert_eq!(batch(&queue).len(), limits::FLUSH_ROWS);
}

/// Whoever is alone has the whole of each flush, however little it has at times.
#[test]
fn a_tenant_alone_fills_a_batch_after_one_that_it_did_not_fill() {
    let queue = Queue::new(TURN);
    put(&queue, tenant(1), 0, 500).unwrap();
    assert_eq!(batch(&queue).len(), 1);
    for n in 0..300 {
        put(&queue, tenant(1), n, 500).unwrap();
    }
    assert_eq!(batch(&queue).len(), limits::FLUSH_ROWS);
}

/// The same in bytes.
#[test]
fn a_flood_of_larger_events_leaves_a_shared_batch_sooner() {
    let queue = Queue::new(TURN);
    for n in 0..100 {
        put(&queue, tenant(1), n, 30_000).unwrap();
    }
    put(&queue, tenant(2), 0, 500).unwrap();
    let rows = batch(&queue);
    assert_eq!(of(&rows, tenant(2)), 1);
    assert_eq!(rows.len() - 1, limits::FLUSH_BYTES_SHARED / 30_000 + 1);
}

/// Where all have a little, a batch is full.
#[test]
fn tenants_that_have_no_more_than_a_turn_fill_a_batch_together() {
    let queue = Queue::new(TURN);
    for n in 0..300 {
        put(&queue, tenant(n % 100), n, 500).unwrap();
    }
    assert_eq!(batch(&queue).len(), limits::FLUSH_ROWS);
}

/// INV-13: there is room for the next, too.
#[test]
fn a_tenant_alone_has_half_of_the_places_and_the_next_one_half_of_the_rest() {
    for (payload, bound) in [(10, limits::ACCEPT_QUEUE_ROWS), (1024 * 1024, 64)] {
        let queue = Queue::new(TURN);
        let fill = |of| {
            (0..20_000)
                .take_while(|n| put(&queue, tenant(of), *n, payload).is_ok())
                .count()
        };
        let (first, second) = (fill(1), fill(2));
        assert!(first.abs_diff(bound / 2) <= 1, "{first}");
        assert!(second.abs_diff(bound / 4) <= 1, "{second}");
        assert!(put(&queue, tenant(3), 0, payload).is_ok());
    }
}

/// INV-11.
#[test]
fn the_places_of_all_tenants_together_are_bounded() {
    let queue = Queue::new(TURN);
    let taken = (0..200).filter(|n| put(&queue, tenant(*n), *n, 1024 * 1024).is_ok());
    assert!(taken.count() <= limits::ACCEPT_QUEUE_BYTES / (1024 * 1024) + 1);
}

#[test]
fn an_event_over_the_bounds_of_a_flush_is_alone_and_others_stay_within_them() {
    let queue = Queue::new(TURN);
    for (n, payload) in [10, limits::FLUSH_BYTES, 10, 600_000, 600_000]
        .into_iter()
        .enumerate()
    {
        put(&queue, tenant(1), n as u128, payload).unwrap();
    }
    let sizes = std::iter::from_fn(|| Some(batch(&queue).len()).filter(|size| *size > 0));
    assert_eq!(sizes.collect::<Vec<_>>(), [1, 1, 2, 1]);
}

#[test]
fn a_queue_ends_when_it_is_closed_and_every_place_is_given_back() {
    let queue = Queue::new(TURN);
    let place = queue.reserve(tenant(1), 10).unwrap();
    put(&queue, tenant(2), 1, 10).unwrap();
    queue.close();
    assert!(matches!(
        queue.reserve(tenant(1), 10),
        Err(AcceptError::ShuttingDown)
    ));
    let rows = batch(&queue);
    assert_eq!(rows.len(), 1);
    assert!(matches!(queue.take(), Next::Empty));
    drop(place);
    assert!(matches!(queue.take(), Next::Empty));
    drop(rows);
    assert!(matches!(queue.take(), Next::Ended));
    assert!(queue.lock().tenants.is_empty());
}

proptest! {
    /// Every row comes out once, those of a tenant in their order, in batches within the bounds.
    #[test]
    fn what_is_put_in_comes_out_once_and_in_its_tenants_order(
        rows in vec((0_u128..5, 0_usize..100_000), 1..400),
        turn in 1_i64..300_000,
    ) {
        let queue = Queue::new(turn);
        let mut put_in = HashMap::<_, Vec<_>>::new();
        for (n, (of, payload)) in rows.into_iter().enumerate() {
            let n = n as u128;
            if put(&queue, tenant(of), n, payload).is_ok() {
                put_in.entry(tenant(of)).or_default().push(n);
            }
        }
        let mut came_out = HashMap::<_, Vec<_>>::new();
        loop {
            let rows = batch(&queue);
            if rows.is_empty() {
                break;
            }
            prop_assert!(rows.len() <= limits::FLUSH_ROWS);
            let bytes: usize = rows.iter().map(Row::weight).sum();
            prop_assert!(rows.len() == 1 || bytes <= limits::FLUSH_BYTES);
            for row in rows {
                came_out.entry(row.new.tenant).or_default().push(row.id.uuid().as_u128());
            }
        }
        prop_assert_eq!(put_in, came_out);
        prop_assert_eq!(queue.waiting(), 0);
    }

    /// Deficit round robin: of two tenants that both have more than enough, neither gets ahead by more than a turn and a row.
    #[test]
    fn tenants_with_enough_are_served_alike_in_bytes(
        payloads in (1_usize..60_000, 1_usize..60_000),
        turn in 1_000_i64..100_000,
    ) {
        let queue = Queue::new(turn);
        let payloads = [payloads.0, payloads.1];
        for (of, payload) in payloads.into_iter().enumerate() {
            for n in 0..2_000_000 / payload.max(1000) {
                let _full = put(&queue, tenant(of as u128), n as u128, payload);
            }
        }
        let rows = batch(&queue);
        let got = |at: usize| of(&rows, tenant(at as u128)) * weight(payloads[at], 1, false);
        let most = usize::try_from(turn).unwrap() + payloads[0].max(payloads[1]) + 512;
        prop_assert!(got(0).abs_diff(got(1)) <= most, "{} and {}", got(0), got(1));
    }
}

use posthorn_domain::id::{EndpointId, TenantId};
use uuid::Uuid;

use super::*;

fn of(shard: u8, n: u128) -> ParkedEndpoint {
    ParkedEndpoint {
        tenant: TenantId::from_uuid(Uuid::nil()),
        endpoint: EndpointId::from_uuid(Uuid::from_u128(n << 8 | u128::from(shard))),
    }
}

/// A sweep over these shards that lists these endpoints.
fn advance(walk: &mut Walk, shards: &[i16], listed: &[ParkedEndpoint]) {
    let from = walk.begin(shards);
    walk.advance(&from, listed);
}

#[test]
fn a_shard_with_more_goes_on_behind_what_was_listed() {
    let mut walk = Walk::default();
    let mut listed: Vec<_> = (0..32).map(|n| of(3, n)).collect();
    listed.push(of(5, 1));
    advance(&mut walk, &[3, 5], &listed);
    assert_eq!(walk.begin(&[3, 5]), [(3, Some(of(3, 31))), (5, None)]);
}

#[test]
fn a_list_that_was_cut_is_followed_by_one_that_begins_with_the_next_shard() {
    let mut walk = Walk::default();
    let listed: Vec<_> = (0..256)
        .map(|n| of(u8::try_from(n / 20).unwrap(), n))
        .collect();
    let shards: Vec<_> = (0..14).collect();
    advance(&mut walk, &shards, &listed);
    let from = walk.begin(&[11, 12, 13]);
    assert_eq!(from, [(13, None), (11, None), (12, Some(of(12, 255)))]);
}

#[test]
fn what_was_listed_to_its_end_begins_anew() {
    let mut walk = Walk::default();
    advance(
        &mut walk,
        &[3],
        &(0..32).map(|n| of(3, n)).collect::<Vec<_>>(),
    );
    advance(&mut walk, &[3], &[of(3, 40)]);
    assert_eq!(walk.begin(&[3]), [(3, None)]);
}

#[test]
fn a_shard_that_a_cut_list_did_not_come_to_keeps_its_place() {
    let mut walk = Walk::default();
    advance(
        &mut walk,
        &[3],
        &(0..32).map(|n| of(3, n)).collect::<Vec<_>>(),
    );
    let cut: Vec<_> = (0..256)
        .map(|n| of(if n < 250 { 1 } else { 2 }, n))
        .collect();
    advance(&mut walk, &[1, 2, 3], &cut);
    assert_eq!(walk.begin(&[3]), [(3, Some(of(3, 31)))]);
}

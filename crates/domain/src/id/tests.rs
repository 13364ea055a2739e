//! Tests of the module that this file stands beside.

use proptest::prelude::*;

use super::*;

fn at(micros: i64) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros).unwrap()
}

/// Moments that an id can hold: 1970 to the year 10889.
fn moments() -> impl Strategy<Value = DateTime<Utc>> {
    (0..(1_i64 << 48) * 1000).prop_map(at)
}

fn deliveries() -> impl Strategy<Value = DeliveryId> {
    (any::<u128>(), any::<u128>()).prop_map(|(event, endpoint)| DeliveryId {
        event: EventId::from_uuid(Uuid::from_u128(event)),
        endpoint: EndpointId::from_uuid(Uuid::from_u128(endpoint)),
    })
}

#[test]
fn every_microsecond_of_a_millisecond_is_read_back() {
    for micros in 0..1000 {
        let moment = at(1_700_000_000_123_000 + micros);
        assert_eq!(EventId::mint(moment, [0xff; 8]).minted_at(), moment);
    }
}

#[test]
fn a_minted_id_is_a_uuid_of_version_7() {
    let id = EventId::mint(at(1_700_000_000_123_456), [0xff; 8]).uuid();
    assert_eq!(id.get_version_num(), 7);
    assert_eq!(id.get_variant(), uuid::Variant::RFC4122);
}

#[test]
fn an_id_has_this_text() {
    let id = EventId::mint(at(1_700_000_000_123_456), [0; 8]);
    assert_eq!(
        id.uuid().to_string(),
        "018bcfe5-687b-774c-8000-000000000000"
    );
    assert_eq!(id.to_string(), "evt_01hf7yat3vex68000000000000");
}

#[test]
fn each_kind_of_id_refuses_the_prefixes_of_the_others() {
    let body = "01hf7yat3vex68000000000000";
    for prefix in Prefix::ALL {
        let text = format!("{prefix}_{body}");
        assert_eq!(
            text.parse::<TenantId>().is_ok(),
            *prefix == Prefix::Tenant,
            "{text}"
        );
    }
    assert_eq!(
        body.parse::<TenantId>(),
        Err(IdError::Prefix { expected: "ten" })
    );
}

#[test]
fn an_id_in_another_spelling_is_refused() {
    let cases = [
        ("evt_01HF7YAT3VEXP8000000000000", IdError::Character),
        ("evt_01hf7yat3vex6800000000000i", IdError::Character),
        ("evt_01hf7yat3vex6800000000000l", IdError::Character),
        ("evt_01hf7yat3vex6800000000000o", IdError::Character),
        ("evt_01hf7yat3vex6800000000000u", IdError::Character),
        ("evt_01hf7yat3vex680000000000é", IdError::Character),
        ("evt_81hf7yat3vexp8000000000000", IdError::Overflow),
        ("evt_01hf7yat3vex6800000000000", IdError::Length),
        ("evt_01hf7yat3vex680000000000000", IdError::Length),
        ("evt_01hf7yat3vex68000000000000 ", IdError::Length),
        ("evt_", IdError::Length),
        ("evt", IdError::Prefix { expected: "evt" }),
        (
            "EVT_01hf7yat3vex68000000000000",
            IdError::Prefix { expected: "evt" },
        ),
        ("", IdError::Prefix { expected: "evt" }),
    ];
    for (text, error) in cases {
        assert_eq!(text.parse::<EventId>(), Err(error), "{text}");
    }
}

#[test]
fn the_number_and_nonce_of_an_attempt_have_one_spelling() {
    let delivery = format!("att_{}", "0".repeat(52));
    let nonce = "00000000000000ff";
    assert!(format!("{delivery}-1-{nonce}").parse::<AttemptId>().is_ok());
    assert!(
        format!("{delivery}-2147483647-{nonce}")
            .parse::<AttemptId>()
            .is_ok()
    );
    for n in [
        "0",
        "01",
        "+1",
        "-1",
        "",
        "2147483648",
        "99999999999",
        "1.0",
        "x",
    ] {
        assert!(
            format!("{delivery}-{n}-{nonce}")
                .parse::<AttemptId>()
                .is_err(),
            "{n}"
        );
    }
    for nonce in [
        "",
        "ff",
        "00000000000000FF",
        "+0000000000000ff",
        "00000000000000ff-",
        "00000000000000fg",
    ] {
        assert_eq!(
            format!("{delivery}-1-{nonce}").parse::<AttemptId>(),
            Err(IdError::Nonce),
            "{nonce}"
        );
    }
    assert_eq!(
        format!("{delivery}-1").parse::<AttemptId>(),
        Err(IdError::Length)
    );
    assert_eq!(delivery.parse::<AttemptId>(), Err(IdError::Length));
}

#[test]
fn an_endpoint_belongs_to_the_shard_of_its_last_byte() {
    assert_eq!(
        EndpointId::from_uuid(Uuid::from_u128(0x1_02a7)).shard(),
        0xa7
    );
}

#[test]
fn the_floor_of_a_whole_millisecond_is_that_of_sql() {
    // posthorn_uuid_floor: 12 hex digits of milliseconds, then 20 zeros.
    let floor = EventId::floor_at(at(1_700_000_000_123_000));
    assert_eq!(
        floor.uuid().to_string(),
        "018bcfe5-687b-0000-0000-000000000000"
    );
}

#[test]
fn a_floor_counts_what_is_finer_than_an_id_as_the_next_microsecond() {
    let between = at(1_700_000_000_123_456) + chrono::TimeDelta::nanoseconds(1);
    assert_eq!(
        EventId::floor_at(between),
        EventId::floor_at(at(1_700_000_000_123_457))
    );
}

#[test]
fn moments_outside_what_an_id_holds_are_kept_at_its_ends() {
    assert_eq!(EventId::mint(at(-5), [0; 8]).minted_at(), at(0));
    let far = DateTime::<Utc>::MAX_UTC;
    assert_eq!(
        EventId::mint(far, [0; 8]).minted_at().timestamp_millis(),
        (1 << 48) - 1
    );
    assert!(EventId::floor_at(far) > EventId::mint(at(0), [0xff; 8]));
}

#[test]
fn a_text_of_our_own_is_told_by_its_prefix() {
    for text in ["evt_1", "ep_", "att_x", "usr_a_b"] {
        assert!(Prefix::begins(text), "{text}");
    }
    for text in ["evt", "order_1", "Evt_1", "_evt", "", "evts_1"] {
        assert!(!Prefix::begins(text), "{text}");
    }
}

#[test]
fn an_id_in_json_is_its_text() {
    let id = EventId::mint(at(1_700_000_000_123_456), [7; 8]);
    let json = serde_json::to_string(&id).unwrap();
    assert_eq!(json, format!("\"{id}\""));
    assert_eq!(serde_json::from_str::<EventId>(&json).unwrap(), id);
    assert!(serde_json::from_str::<TenantId>(&json).is_err());
}

proptest! {
    #[test]
    fn an_id_reads_back_from_its_text(moment in moments(), random in any::<[u8; 8]>()) {
        let id = EventId::mint(moment, random);
        prop_assert_eq!(id.to_string().parse(), Ok(id));
        prop_assert_eq!(id.minted_at(), moment);
    }

    #[test]
    fn any_128_bits_read_back_from_their_text(bits in any::<u128>()) {
        let id = EndpointId::from_uuid(Uuid::from_u128(bits));
        prop_assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn ids_sort_by_time_as_values_and_as_text(a in moments(), b in moments(), x in any::<[u8; 8]>(), y in any::<[u8; 8]>()) {
        let (one, two) = (EventId::mint(a, x), EventId::mint(b, y));
        if a != b {
            prop_assert_eq!(one.cmp(&two), a.cmp(&b));
        }
        prop_assert_eq!(one.cmp(&two), one.to_string().cmp(&two.to_string()));
        prop_assert_eq!(one.cmp(&two), one.uuid().cmp(&two.uuid()));
    }

    #[test]
    fn an_id_is_at_or_above_a_floor_exactly_when_it_was_minted_at_or_after_it(
        near in 0_i64..3000, nanos in 0_i64..1000, minted in 0_i64..3000, random in any::<[u8; 8]>(),
    ) {
        let floor_at = at(1_700_000_000_000_000 + near) + chrono::TimeDelta::nanoseconds(nanos);
        let minted_at = at(1_700_000_000_000_000 + minted);
        let id = EventId::mint(minted_at, random);
        prop_assert_eq!(id >= EventId::floor_at(floor_at), minted_at >= floor_at);
    }

    #[test]
    fn deliveries_and_attempts_read_back_from_their_text(delivery in deliveries(), n in 1..=2_147_483_647_u32, nonce in any::<u64>()) {
        prop_assert_eq!(delivery.to_string().parse(), Ok(delivery));
        let attempt = AttemptId { delivery, n, nonce };
        prop_assert_eq!(attempt.to_string().parse(), Ok(attempt));
    }

    #[test]
    fn no_text_makes_the_parsers_panic(text in "\\PC{0,120}", prefix in "(evt|ep|dlv|att)_", body in "[0-9a-z-é]{0,90}") {
        for text in [text, format!("{prefix}{body}")] {
            let _ = (text.parse::<EventId>(), text.parse::<DeliveryId>(), text.parse::<AttemptId>());
        }
    }
}

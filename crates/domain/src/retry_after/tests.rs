//! Tests of the module that this file stands beside.

use proptest::prelude::*;

use super::*;

/// 1994-11-06T08:49:37Z, the moment of the examples in RFC 9110.
fn now() -> DateTime<Utc> {
    DateTime::from_timestamp(784_111_777, 0).unwrap()
}

fn seconds(value: &str) -> Option<u64> {
    parse_retry_after(value, now()).map(|wait| wait.as_secs())
}

#[test]
fn seconds_are_taken_as_they_are() {
    assert_eq!(seconds("30"), Some(30));
    assert_eq!(seconds(" 120\t"), Some(120));
    assert_eq!(seconds("0005"), Some(5));
}

#[test]
fn all_three_forms_of_a_date_are_understood() {
    assert_eq!(seconds("Sun, 06 Nov 1994 08:50:17 GMT"), Some(40));
    assert_eq!(seconds("Sunday, 06-Nov-94 08:50:17 GMT"), Some(40));
    assert_eq!(seconds("Sun Nov  6 08:50:17 1994"), Some(40));
}

#[test]
fn the_past_and_the_present_ask_for_nothing() {
    for value in [
        "0",
        "Sun, 06 Nov 1994 08:49:37 GMT",
        "Sun, 06 Nov 1994 08:49:36 GMT",
        "Thu, 01 Jan 1970 00:00:00 GMT",
    ] {
        assert_eq!(seconds(value), None, "{value}");
    }
}

#[test]
fn what_is_too_long_is_a_day() {
    let day = Some(86_400);
    for value in [
        "86401",
        "4294967296",
        "18446744073709551615",
        "18446744073709551616",
        &"9".repeat(64),
    ] {
        assert_eq!(seconds(value), day, "{value}");
    }
    assert_eq!(seconds("Fri, 31 Dec 9999 23:59:59 GMT"), day);
}

#[test]
fn what_is_neither_seconds_nor_a_date_is_ignored() {
    let long = "9".repeat(65);
    let odd = [
        "",
        " ",
        "-1",
        "+5",
        "1.5",
        "1e3",
        "5s",
        "0x10",
        "soon",
        "NaN",
        "30, 40",
        "30;",
        "٣٠",
        "\u{0}",
        "5\n6",
        &long,
        "Sun, 06 Nov 1994 08:50:17 +0100",
        "1994-11-06T08:50:17Z",
        "Sun, 99 Nov 1994 08:50:17 GMT",
    ];
    for value in odd {
        assert_eq!(seconds(value), None, "{value:?}");
    }
}

proptest! {
    #[test]
    fn no_value_waits_longer_than_a_day(value in "\\PC{0,80}", number in any::<u128>()) {
        for value in [value, number.to_string()] {
            let wait = parse_retry_after(&value, now());
            prop_assert!(wait.is_none_or(|wait| !wait.is_zero() && wait <= limits::RETRY_AFTER_MAX));
        }
    }

    /// The three forms of RFC 9110, section 5.6.7, of one moment. Those with two digits of a year mean one within fifty years.
    #[test]
    fn a_date_is_the_same_in_each_of_its_forms(after in -2_000_000_i64..2_000_000) {
        let at = now() + chrono::TimeDelta::seconds(after);
        let wait = u64::try_from(after).ok().filter(|after| *after > 0).map(|after| after.min(86_400));
        for form in ["%a, %d %b %Y %H:%M:%S GMT", "%A, %d-%b-%y %H:%M:%S GMT", "%a %b %e %H:%M:%S %Y"] {
            let value = at.format(form).to_string();
            prop_assert_eq!(seconds(&value), wait, "{}", value);
        }
    }
}

//! A line per attempt, as the receiver saw it and the API tells it.

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::Value;

use super::receiver::Arrival;
use crate::http::Api;
use crate::process::{capture, wait_until};
use crate::say::{Colour, coloured};

/// Attempts that are remembered to be counted; then counting begins anew.
const REMEMBERED: usize = 10_000;

/// Turns arrivals into lines, in a thread of its own.
pub(super) fn start(arrivals: Receiver<Arrival>, api: Api) -> Receiver<String> {
    let (tell, told) = sync_channel(64);
    std::thread::spawn(move || {
        let mut desk = Desk {
            api,
            seen: HashMap::new(),
            paths: HashMap::new(),
            offset: offset_of_this_place(),
        };
        for arrival in arrivals {
            if tell.send(desk.line(&arrival)).is_err() {
                return;
            }
        }
    });
    told
}

struct Desk {
    api: Api,
    /// (event, path) → requests so far.
    seen: HashMap<(String, String), u64>,
    /// Endpoint id → path of its URL.
    paths: HashMap<String, String>,
    /// Seconds east of UTC.
    offset: i64,
}

impl Desk {
    fn line(&mut self, arrival: &Arrival) -> String {
        if self.seen.len() >= REMEMBERED {
            self.seen.clear();
        }
        let count = self
            .seen
            .entry((arrival.event.clone(), arrival.path.clone()))
            .or_default();
        *count += 1;
        let count = *count;
        let kind = self.event_type(&arrival.event);
        let outcome = self.outcome(arrival, count);
        format!(
            "{}  {}  {kind}  -> {:<7} {outcome}",
            self.clock(arrival.at),
            arrival.event,
            arrival.path
        )
    }

    fn event_type(&self, event: &str) -> String {
        let answer = self.api.get(&format!("/v1/events/{event}"));
        let kind = answer
            .ok()
            .and_then(|answer| answer.body.get("type")?.as_str().map(str::to_owned));
        kind.unwrap_or_else(|| "?".to_owned())
    }

    /// What the delivery came to, once the attempt is on record.
    fn outcome(&mut self, arrival: &Arrival, count: u64) -> String {
        let mut delivery = None;
        wait_until(Duration::from_secs(2), || {
            delivery = self.delivery(&arrival.event, &arrival.path);
            delivery
                .as_ref()
                .is_none_or(|found| number(found, "attempt_count") >= count)
        });
        told(arrival.status, delivery.as_ref(), SystemTime::now())
    }

    fn delivery(&mut self, event: &str, path: &str) -> Option<Value> {
        let answer = self
            .api
            .get(&format!("/v1/deliveries?event_id={event}&limit=250"))
            .ok()?;
        let listed = answer.body.get("data")?.as_array()?.clone();
        listed.into_iter().find(|delivery| {
            let endpoint = delivery
                .get("endpoint_id")
                .and_then(Value::as_str)
                .unwrap_or_default();
            self.path_of(endpoint).is_some_and(|found| found == path)
        })
    }

    fn path_of(&mut self, endpoint: &str) -> Option<String> {
        if let Some(path) = self.paths.get(endpoint) {
            return Some(path.clone());
        }
        let answer = self.api.get(&format!("/v1/endpoints/{endpoint}")).ok()?;
        let url = answer.body.get("url")?.as_str()?.to_owned();
        let path = format!("/{}", url.splitn(4, '/').nth(3)?);
        self.paths.insert(endpoint.to_owned(), path.clone());
        Some(path)
    }

    fn clock(&self, at: SystemTime) -> String {
        let seconds = at
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs());
        let local = i64::try_from(seconds).unwrap_or(0) + self.offset;
        let of_day = local.rem_euclid(86_400);
        format!(
            "{:02}:{:02}:{:02}",
            of_day / 3600,
            of_day / 60 % 60,
            of_day % 60
        )
    }
}

fn told(status: u16, delivery: Option<&Value>, now: SystemTime) -> String {
    let Some(delivery) = delivery else {
        return status.to_string();
    };
    let state = delivery
        .get("state")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let attempts = number(delivery, "attempt_count");
    if (200..300).contains(&status) {
        let took = delivery
            .get("last_attempt")
            .map_or(0, |attempt| number(attempt, "duration_ms"));
        return coloured(&format!("{status} in {took} ms"), Colour::Green);
    }
    match (
        state,
        delivery
            .get("next_attempt_at")
            .and_then(Value::as_str)
            .and_then(unix_seconds),
    ) {
        ("dead", _) => coloured(
            &format!("{status}, a dead letter after {attempts} attempts"),
            Colour::Red,
        ),
        (_, Some(next)) => {
            let now = now
                .duration_since(UNIX_EPOCH)
                .map_or(0.0, |since| since.as_secs_f64());
            coloured(
                &format!("{status}, again in {:.0} s", (next - now).max(0.0)),
                Colour::Yellow,
            )
        }
        (other, None) => format!("{status}, {other}"),
    }
}

fn number(value: &Value, key: &str) -> u64 {
    value.get(key).and_then(Value::as_u64).unwrap_or(0)
}

/// RFC 3339 in UTC, as the API writes it, to seconds since 1970. (Days by Howard Hinnant's `days_from_civil`.)
fn unix_seconds(text: &str) -> Option<f64> {
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let mut date = date.splitn(3, '-').map(|part| part.parse::<i64>().ok());
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let mut time = time.splitn(3, ':');
    let (hours, minutes): (f64, f64) = (time.next()?.parse().ok()?, time.next()?.parse().ok()?);
    let seconds: f64 = time.next()?.parse().ok()?;
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    let days = i32::try_from(era * 146_097 + day_of_era - 719_468).ok()?;
    Some(f64::from(days) * 86_400.0 + hours * 3600.0 + minutes * 60.0 + seconds)
}

/// `+0530` → 19,800 seconds. Asked once; a change of summer time while it runs shows after the next start.
fn offset_of_this_place() -> i64 {
    let told = capture(std::process::Command::new("date").arg("+%z")).unwrap_or_default();
    let digits: i64 = told
        .trim()
        .trim_start_matches(['+', '-'])
        .parse()
        .unwrap_or(0);
    let seconds = (digits / 100 * 60 + digits % 100) * 60;
    if told.starts_with('-') {
        -seconds
    } else {
        seconds
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_time_of_the_api_is_read_to_the_second() {
        assert_eq!(unix_seconds("1970-01-01T00:00:00Z"), Some(0.0));
        assert_eq!(
            unix_seconds("2024-02-29T12:00:00.500000Z"),
            Some(1_709_208_000.5)
        );
        assert_eq!(unix_seconds("yesterday"), None);
    }

    #[test]
    fn a_failure_says_when_it_is_sent_again_and_a_death_says_so() {
        let now = UNIX_EPOCH + Duration::from_secs(100);
        let retrying = json!({"state": "retrying", "attempt_count": 1, "next_attempt_at": "1970-01-01T00:01:45Z"});
        assert!(told(500, Some(&retrying), now).contains("500, again in 5 s"));
        let dead = json!({"state": "dead", "attempt_count": 3, "next_attempt_at": null});
        assert!(told(503, Some(&dead), now).contains("a dead letter after 3 attempts"));
    }
}

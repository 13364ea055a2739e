//! The pace by its rules, and against receivers with a limit.

use std::collections::VecDeque;

use proptest::prelude::*;

use super::*;
use crate::delivery::Cause;
use crate::rate::Bucket;

fn seconds(span: f64) -> Duration {
    Duration::from_secs_f64(span)
}

/// A pace after these answers, each to a request of a time at which it counts.
fn after(answers: &[Answer]) -> Option<Pace> {
    let mut now = Duration::ZERO;
    answers.iter().fold(None, |pace, answer| {
        now += seconds(2.0);
        Pace::after(pace, *answer, now, now)
    })
}

fn per_second(pace: Option<Pace>) -> Option<f64> {
    Some(pace?.limit()?.per_second())
}

#[test]
fn an_endpoint_that_refuses_nothing_has_no_pace() {
    assert_eq!(after(&[Answer::Taken; 40]), None);
}

/// One in a hundred is no reason to send the other 99 later.
#[test]
fn a_refusal_now_and_then_holds_nothing_back() {
    let mut answers = vec![Answer::Taken; 15];
    answers.push(Answer::Refused);
    let many = answers.repeat(20);
    assert_eq!(per_second(after(&many)), None);
    assert_eq!(after(&[&many[..], &[Answer::Taken; 16]].concat()), None);
}

#[test]
fn three_refusals_of_sixteen_answers_begin_at_one_a_second() {
    let refused = [Answer::Refused; 3];
    assert_eq!(per_second(after(&refused[..2])), None);
    assert_eq!(per_second(after(&refused)), Some(1.0));
}

#[test]
fn an_endpoint_that_asks_for_time_is_sent_one_a_second_after_it() {
    assert_eq!(per_second(after(&[Answer::Asked])), Some(1.0));
    assert_eq!(Pace::first(seconds(2.0)), after(&[Answer::Asked]).unwrap());
}

/// D08.
#[test]
fn what_is_taken_raises_the_pace_and_a_refusal_halves_it() {
    let rising = [&[Answer::Asked][..], &[Answer::Taken; 7]].concat();
    assert_eq!(per_second(after(&rising)), Some(8.0));
    let halved = [&rising[..], &[Answer::Asked]].concat();
    assert_eq!(per_second(after(&halved)), Some(4.0));
    let steady = [&halved[..], &[Answer::Taken; 10]].concat();
    let steady = per_second(after(&steady)).unwrap();
    assert!((steady - 5.0).abs() < 1e-9, "{steady}");
}

/// What was under way when the pace was halved says nothing of the new one.
#[test]
fn what_began_before_a_cut_or_in_the_second_after_it_is_not_counted() {
    let cut = after(&[Answer::Asked; 3]);
    let now = seconds(6.0);
    for began in [5.0, 6.0, 6.9] {
        for answer in [Answer::Taken, Answer::Refused, Answer::Asked] {
            assert_eq!(Pace::after(cut, answer, seconds(began), now), cut);
        }
    }
    assert_ne!(Pace::after(cut, Answer::Asked, seconds(7.0), now), cut);
}

#[test]
fn a_pace_is_never_below_a_tenth_nor_above_a_thousand_a_second() {
    assert_eq!(per_second(after(&[Answer::Asked; 60])), Some(0.1));
    let rising = [&[Answer::Asked][..], &[Answer::Taken; 998]].concat();
    assert_eq!(per_second(after(&rising)), Some(999.0));
    assert_eq!(after(&[&rising[..], &[Answer::Taken]].concat()), None);
}

#[test]
fn a_pace_is_forgotten_ten_minutes_after_the_last_refusal() {
    let pace = after(&[Answer::Asked]).unwrap();
    assert!(!pace.is_over(seconds(601.9)));
    assert!(pace.is_over(seconds(602.0)));
}

#[test]
fn only_429_and_what_asks_for_time_are_refusals() {
    let failed = |floor| Outcome::Failed {
        floor,
        dies_as: Cause::Exhausted,
    };
    let asked = failed(Some(seconds(1.0)));
    assert_eq!(
        Answer::of(&Outcome::Success, Some(200)),
        Some(Answer::Taken)
    );
    assert_eq!(Answer::of(&failed(None), Some(429)), Some(Answer::Refused));
    assert_eq!(Answer::of(&asked, Some(503)), Some(Answer::Asked));
    for status in [None, Some(500), Some(503)] {
        assert_eq!(Answer::of(&failed(None), status), None);
    }
}

/// A receiver that takes so many in any second.
struct Receiver {
    limit: usize,
    taken: VecDeque<Duration>,
    asks: bool,
}

impl Receiver {
    fn answer(&mut self, at: Duration) -> Answer {
        while self
            .taken
            .front()
            .is_some_and(|first| *first + seconds(1.0) <= at)
        {
            self.taken.pop_front();
        }
        if self.taken.len() < self.limit {
            self.taken.push_back(at);
            return Answer::Taken;
        }
        if self.asks {
            Answer::Asked
        } else {
            Answer::Refused
        }
    }
}

/// What a node does for one endpoint: 16 requests under way, a floor of a second where one is asked for, and the pace.
struct Sender {
    latency: Duration,
    pace: Option<Pace>,
    bucket: Option<(RateLimit, Bucket)>,
    /// When each request began.
    out: VecDeque<Duration>,
    floor: Duration,
}

impl Sender {
    /// When the next request may start.
    fn next(&self, now: Duration) -> Option<Duration> {
        if self.out.len() >= 16 {
            return None;
        }
        let paced = self
            .bucket
            .as_ref()
            .map_or(now, |(_, bucket)| bucket.next_at(now, 0));
        Some(paced.max(self.floor).max(now))
    }

    fn start(&mut self, now: Duration) {
        if let Some((_, bucket)) = &mut self.bucket {
            bucket.take(now).unwrap();
        }
        self.out.push_back(now);
    }

    fn hear(&mut self, answer: Answer, began: Duration, now: Duration) {
        self.pace = Pace::after(self.pace, answer, began, now);
        if answer == Answer::Asked {
            self.floor = now + seconds(1.0);
        }
        self.bucket = match (self.pace.and_then(|pace| pace.limit()), self.bucket) {
            (None, _) => None,
            (Some(limit), None) => Some((limit, Bucket::full(limit))),
            (Some(limit), Some((_, mut bucket))) => {
                bucket.set_limit(limit, now);
                Some((limit, bucket))
            }
        };
    }
}

/// Sends a pile to a receiver. Answers what came of each request, and when it began.
fn played(pile: usize, mut receiver: Receiver, latency: f64) -> Vec<(Duration, Answer)> {
    let mut sender = Sender {
        latency: seconds(latency),
        pace: None,
        bucket: None,
        out: VecDeque::new(),
        floor: Duration::ZERO,
    };
    let (mut now, mut left, mut came) = (Duration::ZERO, pile, Vec::new());
    while left > 0 {
        let ends = sender.out.front().map(|began| *began + sender.latency);
        let starts = sender.next(now).filter(|_| left > sender.out.len());
        match (starts, ends) {
            (Some(starts), ends) if ends.is_none_or(|ends| starts < ends) => {
                now = starts;
                sender.start(now);
            }
            _ => {
                now = ends.unwrap();
                let began = sender.out.pop_front().unwrap();
                let answer = receiver.answer(began);
                sender.hear(answer, began, now);
                left -= usize::from(answer == Answer::Taken);
                came.push((began, answer));
            }
        }
    }
    came
}

/// The largest part of a minute's requests that was refused.
fn worst_minute(came: &[(Duration, Answer)]) -> f64 {
    let mut minutes: Vec<(f64, f64)> = Vec::new();
    for (began, answer) in came {
        let minute = usize::try_from(began.as_secs() / 60).unwrap();
        minutes.resize(minutes.len().max(minute + 1), (0.0, 0.0));
        minutes[minute].0 += 1.0;
        minutes[minute].1 += f64::from(u8::from(*answer != Answer::Taken));
    }
    // The last may be a few requests only.
    minutes.pop();
    minutes
        .iter()
        .map(|(all, refused)| refused / all.max(1.0))
        .fold(0.0, f64::max)
}

/// D08 with its own numbers.
#[test]
fn five_thousand_go_to_a_receiver_that_takes_twenty_a_second_with_few_refused() {
    for asks in [false, true] {
        let receiver = Receiver {
            limit: 20,
            taken: VecDeque::new(),
            asks,
        };
        let came = played(5_000, receiver, 0.005);
        let took = came.last().unwrap().0.as_secs_f64();
        let refused = came.len() - 5_000;
        assert!(worst_minute(&came) <= 0.2, "{}", worst_minute(&came));
        assert!(took <= 2.0 * 5_000.0 / 20.0, "{took} s");
        assert!(refused <= 500, "{refused} refused");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// D08: whatever a receiver takes and however fast it answers, no minute has more refused than taken, and the pile goes out
    /// at no less than a third of what it takes.
    #[test]
    fn no_minute_has_more_refused_than_taken_whatever_the_receiver_takes(
        limit in 2..400_usize,
        latency in 0.001..0.8_f64,
        minutes in 2..6_usize,
        asks: bool,
    ) {
        let pile = limit * 60 * minutes;
        let receiver = Receiver { limit, taken: VecDeque::new(), asks };
        let came = played(pile.min(20_000), receiver, latency);
        let worst = worst_minute(&came);
        prop_assert!(worst <= 0.5, "{} of a minute refused", worst);
        let took = came.last().unwrap().0.as_secs_f64();
        let most = f64::from(u32::try_from(limit).unwrap()).min(16.0 / latency);
        let ideal = f64::from(u32::try_from(pile.min(20_000)).unwrap()) / most;
        prop_assert!(took <= 3.0 * ideal + 60.0, "{} s instead of {}", took, ideal);
    }
}
